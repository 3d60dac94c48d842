// @ts-check
/**
 * Below the sharded model: what each rank holds over one iteration, and when a rank has which layer
 * whole.
 *
 * @typedef {import("./index.js").ShardsIndex} ShardsIndex
 * @typedef {import("./frame.js").ShardsFrame} ShardsFrame
 * @typedef {import("../../drawing/chart.js").Chart} Chart
 * @typedef {{start: number, end: number}} ShardSpan
 */
import { scale } from "../../drawing/chart.js";
import { huesOf } from "../../drawing/glyph.js";
import { countUntil } from "../../engine/search.js";
import { bytesScale } from "./place.js";
import { bytes, duration, ticks } from "../../engine/format.js";

const LEFT = 62;
const RIGHT = 8;
const TOP = 8;
const AXIS = 20;
/** @param {number} layers */
export const chartHeight = (layers) => Math.max(150, Math.min(300, 28 + layers * 16));
/** Where the moments of an iteration lie. @param {ShardSpan} span @param {number} width */
export const momentsScale = ({ start, end }, width) =>
  scale(start, Math.max(end, start + 1), LEFT, width - RIGHT, { within: true });

/** @param {Chart} chart @param {ShardSpan} span @param {number} t */
function drawAxisAndHead(chart, span, t) {
  const { width } = chart;
  const base = chart.height - AXIS;
  const x = momentsScale(span, width);
  chart.box(LEFT, base, x.to - LEFT, 1, "rule");
  let free = -Infinity;
  const many = Math.max(2, Math.floor((width - LEFT) / 90));
  for (const { t: at, label } of ticks(span.end - span.start, many)) {
    const tick = x.px(span.start + at);
    const half = label.length * 3.4;
    chart.box(tick, base, 1, 4, "rule");
    if (tick - half < free || tick + half > width) continue;
    chart.write(label, Math.max(LEFT + half - 4, tick), base + 12, "ink-3", "center");
    free = tick + half + 8;
  }
  if (t >= span.start && t <= span.end) chart.playhead(x.px(t), 0, base);
}

/**
 * What each rank holds of the model, without activations, as steps; the hairline is what it would
 * hold unsharded.
 * @param {Chart} chart
 * @param {ShardsIndex} index
 * @param {ShardsFrame} frame
 * @param {ShardSpan} span
 * @param {number} t
 * @param {number} chosen
 */
export function drawHeld(chart, index, frame, span, t, chosen) {
  const ranks = frame.holders.map((h) => h.rank);
  const hues = huesOf(chart.ink, ranks, ranks.length);
  const lines = ranks.map((rank) => stepsIn(index.holders.get(rank), span));
  const end = bytesScale(
    Math.max(frame.unsharded, 1, ...lines.flatMap((line) => line.map((p) => p.bytes))),
  );
  const x = momentsScale(span, chart.width);
  const y = scale(0, end, chart.height - AXIS, TOP);
  chart.levels([0, end / 2, end], x, y, (n) => (n ? bytes(n) : "0"));
  lines.forEach((line, rank) => {
    if (!line.length) return;
    chart.line(
      line.map((p) => [x.px(p.t), y.px(p.bytes)]),
      hues[rank],
      {
        wide: chosen === rank ? 2.5 : 1.25,
        alpha: chosen < 0 || chosen === rank ? 1 : 0.45,
        dash: RANK_DASHES[rank % RANK_DASHES.length],
        stairs: true,
      },
    );
  });
  if (frame.unsharded) chart.box(LEFT, y.px(frame.unsharded) - 0.5, x.to - LEFT, 1, "ideal");
  drawAxisAndHead(chart, span, t);
}
const RANK_DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]]; // a rank is not told by colour alone

/** @param {import("./index.js").Holder | undefined} holder @param {ShardSpan} span */
function stepsIn(holder, { start, end }) {
  if (!holder) return [];
  const { t, bytes: held } = holder.held;
  const active = holder.active.bytes;
  const first = Math.max(0, countUntil(t, start, (at) => at) - 1);
  const last = countUntil(t, end, (at) => at);
  const line = [];
  for (let i = first; i < last; i++)
    // the two are written at once
    line.push({ t: Math.max(start, t[i]), bytes: held[i] - (active[i] ?? 0) });
  if (line.length) line.push({ t: end, bytes: line[line.length - 1].bytes });
  return line;
}

/**
 * When a rank had each layer whole, and when its parts or sums were on their way.
 * @param {Chart} chart
 * @param {ShardsIndex} index
 * @param {ShardsFrame} frame
 * @param {ShardSpan} span
 * @param {number} t
 * @param {number} rank
 */
export function drawWhen(chart, index, frame, span, t, rank) {
  const { layers } = frame;
  const x = momentsScale(span, chart.width);
  const lane = (chart.height - AXIS - 4) / Math.max(1, layers.length);
  const holder = index.holders.get(rank);
  const every = Math.max(1, Math.ceil(13 / lane));
  const tall = Math.max(2, Math.min(12, lane - 3));
  layers.forEach(({ name }, l) => {
    const y = 2 + l * lane;
    const top = y + (lane - tall) / 2;
    const short = [name, name.split(".").at(-1) ?? name].find(
      (text) => chart.wide(text) < LEFT - 8,
    );
    if (l % every === 0 && short) chart.write(short, LEFT - 6, y + lane / 2, "ink-2", "right");
    chart.box(LEFT, top + tall / 2 - 0.5, x.to - LEFT, 1, "track");
    if (!holder) return;
    const { t: times, bytes: held } = holder.layers.get(name) ?? { t: [], bytes: [] };
    const first = Math.max(0, countUntil(times, span.start, (at) => at) - 1);
    for (let i = first; i < times.length && times[i] < span.end; i++) {
      if (!held[i]) continue;
      const from = x.px(times[i]);
      chart.box(from, top, Math.max(0.75, x.px(times[i + 1] ?? span.end) - from), tall, "done");
    }
    for (
      let i = countUntil(holder.ways, span.end, (one) => one.start) - 1;
      i >= 0 && holder.ways[i].end >= span.start;
      i--
    ) {
      const { layer, what, start, end } = holder.ways[i];
      if (layer !== name) continue;
      const from = x.px(start);
      const w = Math.max(1, x.px(end) - from);
      chart.box(from, what === "gather" ? top : top + tall / 2, w, tall / 2, "comm");
    }
  });
  drawAxisAndHead(chart, span, t);
}

/** @param {ShardsIndex} index @param {ShardsFrame} frame @param {ShardSpan} span */
export function heldWords(index, frame, span) {
  const parts = frame.holders
    .map(({ rank }) => {
      const line = stepsIn(index.holders.get(rank), span);
      return line.length
        ? `rank ${rank} held of the model at most ${bytes(Math.max(...line.map((p) => p.bytes)))}`
        : "";
    })
    .filter(Boolean);
  return parts.length
    ? `Over ${duration(span.end - span.start)}: ${parts.join(", ")}`
    : "Nothing is held yet";
}

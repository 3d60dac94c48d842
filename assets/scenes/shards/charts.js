// @ts-check
/**
 * Below the sharded model: what each rank holds over one iteration, and when a rank has which layer
 * whole.
 *
 * @typedef {import("./index.js").ShardsIndex} ShardsIndex
 * @typedef {import("./frame.js").ShardsFrame} ShardsFrame
 * @typedef {{g: CanvasRenderingContext2D, ink: Record<string, string>, font: string, ratio: number,
 *   width: number, height: number}} ShardChart
 * @typedef {{start: number, end: number}} ShardSpan
 */
import { huesOf } from "../../drawing/glyph.js";
import { writeAt } from "../../drawing/colors.js";
import { countUntil } from "../../engine/search.js";
import { bytesScale } from "./place.js";
import { bytes, duration, ticks } from "../../engine/format.js";

const LEFT = 62;
const RIGHT = 8;
const TOP = 8;
const AXIS = 20;
/** @param {number} layers */
export const chartHeight = (layers) => Math.max(150, Math.min(300, 28 + layers * 16));
/** @param {ShardSpan} span @param {number} width @param {number} t */
export const shardX = ({ start, end }, width, t) =>
  LEFT + Math.min(1, Math.max(0, (t - start) / Math.max(1, end - start))) * (width - LEFT - RIGHT);
/** The moment at a place. @param {ShardSpan} span @param {number} width @param {number} x */
export const shardMoment = ({ start, end }, width, x) =>
  start + Math.min(1, Math.max(0, (x - LEFT) / (width - LEFT - RIGHT))) * (end - start);

/** @param {ShardChart} chart @param {ShardSpan} span @param {number} t */
function drawAxisAndHead({ g, ink, font, width, height }, span, t) {
  const base = height - AXIS;
  g.fillStyle = ink.rule;
  g.fillRect(LEFT, base, width - LEFT - RIGHT, 1);
  let free = -Infinity;
  for (const { t: at, label } of ticks(
    span.end - span.start,
    Math.max(2, Math.floor((width - LEFT) / 90)),
  )) {
    const x = shardX(span, width, span.start + at);
    const half = label.length * 3.4;
    g.fillStyle = ink.rule;
    g.fillRect(x, base, 1, 4);
    if (x - half < free || x + half > width) continue;
    writeAt(g, font, label, Math.max(LEFT + half - 4, x), base + 12, ink["ink-3"], "center");
    free = x + half + 8;
  }
  if (t < span.start || t > span.end) return;
  g.fillStyle = ink.focus;
  g.fillRect(shardX(span, width, t) - 1, 0, 2, base);
}

/**
 * What each rank holds of the model, without activations, as steps; the hairline is what it would
 * hold unsharded.
 * @param {ShardChart} chart
 * @param {ShardsIndex} index
 * @param {ShardsFrame} frame
 * @param {ShardSpan} span
 * @param {number} t
 * @param {number} chosen
 */
export function drawHeld(chart, index, frame, span, t, chosen) {
  const { g, ink, font, width, height } = chart;
  const base = height - AXIS;
  const ranks = frame.holders.length;
  const hues = huesOf(
    ink,
    frame.holders.map((h) => h.rank),
    ranks,
  );
  const lines = frame.holders.map(({ rank }) => stepsIn(index.holders.get(rank), span));
  const end = bytesScale(
    Math.max(frame.unsharded, 1, ...lines.flatMap((line) => line.map((p) => p.bytes))),
  );
  const Y = (/** @type {number} */ n) => base - (n / end) * (base - TOP);
  for (const part of [0, 0.5, 1]) {
    g.fillStyle = ink.rule;
    g.fillRect(LEFT, Y(end * part), width - LEFT - RIGHT, 1);
    writeAt(
      g,
      font,
      part ? bytes(end * part) : "0",
      LEFT - 6,
      Y(end * part),
      ink["ink-3"],
      "right",
    );
  }
  lines.forEach((line, rank) => {
    if (!line.length) return;
    g.strokeStyle = hues[rank];
    g.lineWidth = chosen === rank ? 2.5 : 1.25;
    g.globalAlpha = chosen < 0 || chosen === rank ? 1 : 0.45;
    g.setLineDash(RANK_DASHES[rank % RANK_DASHES.length]);
    g.beginPath();
    g.moveTo(shardX(span, width, line[0].t), Y(line[0].bytes));
    for (let i = 1; i < line.length; i++) {
      g.lineTo(shardX(span, width, line[i].t), Y(line[i - 1].bytes));
      g.lineTo(shardX(span, width, line[i].t), Y(line[i].bytes));
    }
    g.stroke();
    g.setLineDash([]);
    g.globalAlpha = 1;
  });
  if (frame.unsharded) {
    g.fillStyle = ink.ideal;
    g.fillRect(LEFT, Y(frame.unsharded) - 0.5, width - LEFT - RIGHT, 1);
  }
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
 * @param {ShardChart} chart
 * @param {ShardsIndex} index
 * @param {ShardsFrame} frame
 * @param {ShardSpan} span
 * @param {number} t
 * @param {number} rank
 */
export function drawWhen(chart, index, frame, span, t, rank) {
  const { g, ink, font, width, height } = chart;
  const base = height - AXIS;
  const layers = frame.layers;
  const lane = (base - 4) / Math.max(1, layers.length);
  const holder = index.holders.get(rank);
  const every = Math.max(1, Math.ceil(13 / lane));
  layers.forEach(({ name }, l) => {
    const y = 2 + l * lane;
    const tall = Math.max(2, Math.min(12, lane - 3));
    const top = y + (lane - tall) / 2;
    g.font = `400 11px ${font}`;
    const short = [name, name.split(".").at(-1) ?? name].find(
      (text) => g.measureText(text).width < LEFT - 8,
    );
    if (l % every === 0 && short)
      writeAt(g, font, short, LEFT - 6, y + lane / 2, ink["ink-2"], "right");
    g.fillStyle = ink.track;
    g.fillRect(LEFT, top + tall / 2 - 0.5, width - LEFT - RIGHT, 1);
    const held = holder?.layers.get(name);
    const bar = (/** @type {number} */ from, /** @type {number} */ to) => {
      const x = shardX(span, width, from);
      g.fillRect(x, top, Math.max(0.75, shardX(span, width, to) - x), tall);
    };
    for (
      let i = held ? Math.max(0, countUntil(held.t, span.start, (at) => at) - 1) : 0;
      held && i < held.t.length && held.t[i] < span.end;
      i++
    ) {
      g.fillStyle = ink.done;
      if (held.bytes[i]) bar(held.t[i], held.t[i + 1] ?? span.end);
    }
    if (!holder) return;
    for (
      let i = countUntil(holder.ways, span.end, (one) => one.start) - 1;
      i >= 0 && holder.ways[i].end >= span.start;
      i--
    ) {
      const way = holder.ways[i];
      if (way.layer !== name) continue;
      g.fillStyle = ink.comm;
      const x = shardX(span, width, way.start);
      const w = Math.max(1, shardX(span, width, way.end) - x);
      if (way.what === "gather") g.fillRect(x, top, w, tall / 2);
      else g.fillRect(x, top + tall / 2, w, tall / 2);
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

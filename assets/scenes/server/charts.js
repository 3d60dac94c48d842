// @ts-check
/**
 * Two charts beside the parameter server's picture, up to the playhead: clocks as stairs inside the
 * band that the bound leaves, and how stale the gradients were that were applied. What they show is
 * worked out by pure functions. The third, where time went, is in shares_chart.js.
 *
 * @typedef {import("./index.js").ServerIndex} ServerIndex
 * @typedef {import("./call_source.js").Rounds} Rounds
 * @typedef {import("./frame.js").Rule} Rule
 * @typedef {{g: CanvasRenderingContext2D, ink: Record<string, string>, font: string, ratio: number,
 *   width: number, height: number}} Chart
 */
import { hatched } from "../../drawing/hatch.js";
import { countUntil } from "../../engine/search.js";
import { turnAt } from "./lookups.js";
import { writeAt } from "../../drawing/colors.js";

const STAIR_ROUNDS = 16;
export const NAMED_WORKERS = 8;
const EACH_HIGH = 8; // px of a worker in the chart of their time, where they are many
const LEAST_BINS = 10;
/** Height of the charts; it depends on the workers only. @param {number} workers */
export const chartHeight = (workers) => Math.max(130, 40 + workers * EACH_HIGH);
/** @param {Record<string, string>} ink @param {number} rank */
const identity = (ink, rank) => ink[`s${((rank % 8) + 8) & 7}`]; // eight identities, then again

/**
 * Iterations that each worker had started, over the last rounds.
 * @param {ServerIndex} index @param {Rounds} rounds @param {number} t
 * @returns {{from: number, to: number, min: [number, number][], stairs: {rank: number,
 *   points: [number, number][]}[]}} points: from then on
 */
export function stairsOf(index, rounds, t) {
  const { calls } = rounds;
  const at = Math.max(0, countUntil(calls, t, (round) => round.start) - 1);
  const first = Math.max(0, at - STAIR_ROUNDS);
  const from = Math.min(calls[first]?.start ?? 0, t);
  const to = Math.max(t, from + 1);
  const min = /** @type {[number, number][]} */ (
    calls.slice(first, at + 1).map((round) => [Math.max(from, round.start), round.iteration])
  );
  const stairs = [...index.workers.values()]
    .filter(({ lost }) => !(lost <= from))
    .map((worker) => {
      // of who has gone before there is nothing to see
      const a = Math.max(0, countUntil(worker.granted, from, (turn) => turn.granted) - 1);
      const b = countUntil(worker.granted, t, (turn) => turn.granted);
      return {
        rank: worker.rank,
        points: /** @type {[number, number][]} */ (
          worker.granted.slice(a, b).map((turn) => [Math.max(from, turn.granted), turn.iteration])
        ),
      };
    });
  return { from, to, min, stairs };
}

/**
 * @param {Chart} chart
 * @param {ServerIndex} index
 * @param {Rounds} rounds
 * @param {Rule} rule
 * @param {number} t
 * @param {number} chosen  a rank, or -1
 */
export function drawStairs({ g, ink, font, width, height }, index, rounds, rule, t, chosen) {
  const { from, to, min, stairs } = stairsOf(index, rounds, t);
  const few = stairs.length <= NAMED_WORKERS;
  const left = 30;
  const right = width - 66;
  const top = 6;
  const bottom = height - 20;
  const reach = rule.low ?? 0;
  const values = stairs.flatMap(({ points }) => points.map(([, c]) => c));
  const slow = min.map(([, c]) => c);
  const lo = Math.max(0, Math.min(...slow, ...values, Infinity));
  const hi = Math.max(1, ...values, ...slow.map((c) => c + (rule.models > 1 ? 0 : reach))) + 0.6;
  const low = Number.isFinite(lo) ? lo - 0.4 : 0;
  const X = (/** @type {number} */ v) => left + ((v - from) / (to - from)) * (right - left);
  const Y = (/** @type {number} */ c) =>
    bottom - ((c - low) / Math.max(1, hi - low)) * (bottom - top);
  const stair = (/** @type {[number, number][]} */ points, /** @type {number} */ up) => {
    points.forEach(([v, c], i) => {
      if (!i) return g.moveTo(X(v), Y(c + up));
      g.lineTo(X(v), Y(points[i - 1][1] + up));
      g.lineTo(X(v), Y(c + up));
    });
    if (points.length) g.lineTo(X(to), Y(points[points.length - 1][1] + up));
  };
  if (rule.low !== null && min.length && rule.models <= 1) {
    // of several models each has a band of its own
    g.fillStyle = ink.panel;
    for (let i = 0; i < min.length; i++)
      g.fillRect(
        X(min[i][0]),
        Y(min[i][1] + reach),
        X(min[i + 1]?.[0] ?? to) - X(min[i][0]),
        Y(min[i][1]) - Y(min[i][1] + reach),
      );
    g.strokeStyle = ink.wait;
    g.lineWidth = 2;
    g.setLineDash([4, 2]);
    g.beginPath();
    stair(min, reach);
    g.stroke();
    g.setLineDash([]);
  }
  const last = stairs.map(({ rank, points }) => ({
    rank,
    c: points[points.length - 1]?.[1] ?? 0,
    points,
  }));
  const least = Math.min(...last.map((s) => s.c));
  const most = Math.max(...last.map((s) => s.c));
  for (const { rank, points, c } of last) {
    g.strokeStyle = few || rank === chosen ? identity(ink, rank) : ink.edge;
    g.lineWidth = rank === chosen ? 3 : c === least && least < most ? 2.5 : 1.5;
    g.beginPath();
    stair(points, 0);
    g.stroke();
  }
  const named = few
    ? last
    : last.filter((s, i) =>
        s.c === least
          ? last.findIndex((o) => o.c === least) === i
          : s.c === most && last.findIndex((o) => o.c === most) === i,
      );
  const ends = named.map((s) => ({ ...s, y: Y(s.c) })).sort((a, b) => a.y - b.y || a.rank - b.rank);
  const apart = 12;
  const room = bottom + 4;
  ends.forEach((e, i) => i && (e.y = Math.max(e.y, ends[i - 1].y + apart)));
  for (let i = ends.length - 1; i >= 0; i--)
    ends[i].y = Math.min(ends[i].y, i === ends.length - 1 ? room : ends[i + 1].y - apart);
  for (const { rank, y } of ends) {
    g.fillStyle = few ? identity(ink, rank) : ink.edge;
    g.fillRect(right + 3, y - 3, 4, 6);
    writeAt(g, font, `worker ${rank}`, right + 11, y, ink["ink-2"]);
  }
  const each =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find(
      (k) => (k * (bottom - top)) / Math.max(1, hi - low) >= 18,
    ) ?? 2000;
  for (let c = Math.ceil(Math.max(0, low) / each) * each; c < hi; c += each) {
    writeAt(g, font, String(c), left - 6, Y(c), ink["ink-3"], "right");
    g.fillStyle = ink.edge;
    g.fillRect(left - 3, Y(c), 3, 1);
  }
  drawSeconds(g, ink, font, from, to, X, bottom + 12);
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {number} from
 * @param {number} to
 * @param {(t: number) => number} X
 * @param {number} y
 */
function drawSeconds(g, ink, font, from, to, X, y) {
  const span = to - from;
  const raw = span / 5;
  const unit = 10 ** Math.floor(Math.log10(Math.max(1, raw)));
  const apart = unit * ([1, 2, 5, 10].find((k) => k * unit >= raw) ?? 10);
  const places = Math.max(0, Math.min(6, -Math.floor(Math.log10(apart / 1e9) + 1e-9)));
  const now = `${(to / 1e9).toFixed(places + 1)} s`;
  g.font = `700 11px ${font}`;
  const wide = g.measureText(now).width;
  const end = X(to);
  writeAt(g, font, now, end, y, ink.ink, "right", true);
  for (let v = Math.ceil(from / apart) * apart; v < to; v += apart)
    if (X(v) + 16 < end - wide - 6)
      writeAt(g, font, (v / 1e9).toFixed(places), X(v), y, ink["ink-3"], "center");
}

/**
 * How many updates the gradients had missed that were applied by t, and the worker whose had missed
 * most.
 * @param {ServerIndex} index @param {number} t
 */
export function stalenessOf(index, t) {
  const counts = /** @type {number[]} */ ([]);
  const perWorker = /** @type {Map<number, {sum: number, n: number, counts: number[]}>} */ (
    new Map()
  );
  let sum = 0;
  let n = 0;
  let dropped = 0;
  let samples = 0;
  for (const { done } of index.servers.values()) {
    for (let i = countUntil(done, t, (push) => push.end) - 1; i >= 0; i--) {
      const { worker, stale, dropped: left } = done[i];
      const bin = Math.max(0, Math.round(stale));
      let of = perWorker.get(worker);
      if (!of) perWorker.set(worker, (of = { sum: 0, n: 0, counts: [] }));
      counts[bin] = (counts[bin] ?? 0) + 1;
      of.counts[bin] = (of.counts[bin] ?? 0) + 1;
      of.sum += stale;
      of.n += 1;
      sum += stale;
      n += 1;
      if (left) ((dropped += 1), (samples += left));
    }
  }
  const means = [...perWorker]
    .map(([rank, o]) => ({ rank, mean: o.sum / o.n, counts: o.counts }))
    .sort((a, b) => b.mean - a.mean || a.rank - b.rank);
  const mean = n ? sum / n : NaN;
  const stalest = means.length > 1 && means[0].mean > mean + 0.05 ? means[0] : null;
  return { counts: Array.from(counts, (c) => c ?? 0), mean, n, dropped, samples, stalest };
}

/** @param {Chart} chart @param {ReturnType<typeof stalenessOf>} found @param {Rule} rule */
export function drawStaleness(
  { g, ink, font, ratio, width, height },
  { counts, mean, n, dropped, stalest },
  rule,
) {
  const bins = Math.max(LEAST_BINS, counts.length) + 1;
  const each = (width - 6) / bins;
  const y0 = height - 34;
  const top = 20;
  const most = Math.max(1, ...counts);
  const every = [1, 2, 5, 10, 20, 50].find((k) => k * each > 22) ?? 100;
  const up = (/** @type {number} */ count) =>
    count ? Math.max(1, (count / most) * (y0 - top)) : 0;
  counts.forEach((count, d) => {
    const mine = stalest?.counts[d] ?? 0;
    const x = d * each + 1;
    const w = Math.max(1, each - 2);
    const whole = up(count);
    const part = count ? (whole * mine) / count : 0;
    g.fillStyle = ink.edge;
    g.fillRect(x, y0 - whole + part, w, whole - part);
    if (!part || !stalest) return;
    g.fillStyle = identity(ink, stalest.rank);
    g.fillRect(x, y0 - whole, w, part);
    g.fillStyle = hatched(ink.ground, ratio);
    g.fillRect(x, y0 - whole, w, part);
  });
  g.fillStyle = ink.edge;
  g.fillRect(0, y0, width - 6, 1);
  for (let d = 0; d < bins; d += every)
    writeAt(
      g,
      font,
      String(d),
      Math.max(3.5 * String(d).length, (d + 0.5) * each),
      y0 + 10,
      ink["ink-3"],
      "center",
    );
  if (rule.drop_above !== null) {
    const x = (rule.drop_above + 1) * each;
    const words = `dropped above ${rule.drop_above}`;
    g.strokeStyle = ink.fault;
    g.lineWidth = 1.5;
    g.setLineDash([3, 2]);
    g.beginPath();
    g.moveTo(Math.min(width - 6, x), top - 4);
    g.lineTo(Math.min(width - 6, x), y0);
    g.stroke();
    g.setLineDash([]);
    g.font = `400 11px ${font}`;
    const half = g.measureText(words).width / 2;
    writeAt(g, font, words, Math.max(half, Math.min(width - half, x)), 8, ink.fault, "center");
  }
  const words = n
    ? `mean ${mean.toFixed(1)}${dropped ? ` · ${dropped} dropped` : ""}`
    : "no update yet";
  writeAt(g, font, words, 0, height - 8, ink["ink-2"]);
  if (!stalest) return;
  g.font = `400 11px ${font}`;
  const x = g.measureText(words).width + 12;
  const label = `worker ${stalest.rank}, mean ${stalest.mean.toFixed(1)}`;
  if (x + 14 + g.measureText(label).width > width) return;
  g.fillStyle = identity(ink, stalest.rank);
  g.fillRect(x, height - 13, 10, 10);
  g.fillStyle = hatched(ink.ground, ratio);
  g.fillRect(x, height - 13, 10, 10);
  writeAt(g, font, label, x + 14, height - 8, ink["ink-2"]);
}

/** Iterations started, in words. @param {ServerIndex} index @param {number} t */
export const stairsWords = (index, t) =>
  [...index.workers.values()]
    .map((worker) => {
      const turn = turnAt(worker, t);
      return `worker ${worker.rank} ${turn ? `in iteration ${turn.iteration + 1}` : "not yet in one"}`;
    })
    .join(", ");

/** @param {ReturnType<typeof stalenessOf>} stale @param {string} pushes  what is pushed */
export const stalenessWords = ({ n, mean, stalest }, pushes) =>
  n
    ? `${pushes}s had missed ${mean.toFixed(1)} updates on average` +
      `${stalest ? `, those of worker ${stalest.rank} ${stalest.mean.toFixed(1)}` : ""}`
    : "no update yet";

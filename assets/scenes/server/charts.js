// @ts-check
/**
 * Two charts beside the parameter server's picture, up to the playhead: clocks as stairs inside the
 * band that the bound leaves, and how stale the gradients were that were applied. What they show is
 * worked out by pure functions. The third, where time went, is in shares_chart.js.
 *
 * @typedef {import("./index.js").ServerIndex} ServerIndex
 * @typedef {import("./call_source.js").Rounds} Rounds
 * @typedef {import("./frame.js").Rule} Rule
 * @typedef {import("../../drawing/chart.js").Chart} Chart
 * @typedef {import("../../drawing/chart.js").Point} Point
 * @typedef {import("../../drawing/chart.js").Scale} Scale
 */
import { scale } from "../../drawing/chart.js";
import { countUntil } from "../../engine/search.js";
import { turnAt } from "./lookups.js";

const STAIR_ROUNDS = 16;
export const NAMED_WORKERS = 8;
const EACH_HIGH = 8; // px of a worker in the chart of their time, where they are many
const LEAST_BINS = 10;
/** Height of the charts; it depends on the workers only. @param {number} workers */
export const chartHeight = (workers) => Math.max(130, 40 + workers * EACH_HIGH);
/** @param {number} rank */
const identity = (rank) => `s${((rank % 8) + 8) & 7}`; // eight identities, then again

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
export function drawStairs(chart, index, rounds, rule, t, chosen) {
  const { from, to, min, stairs } = stairsOf(index, rounds, t);
  const few = stairs.length <= NAMED_WORKERS;
  const reach = rule.low ?? 0;
  const values = stairs.flatMap(({ points }) => points.map(([, c]) => c));
  const slow = min.map(([, c]) => c);
  const lo = Math.max(0, Math.min(...slow, ...values, Infinity));
  const high = Math.max(1, ...values, ...slow.map((c) => c + (rule.models > 1 ? 0 : reach))) + 0.6;
  const low = Number.isFinite(lo) ? lo - 0.4 : 0;
  const x = scale(from, to, 30, chart.width - 66);
  const y = scale(low, Math.max(low + 1, high), chart.height - 20, 6);
  const stair = (/** @type {Point[]} */ points, up = 0) =>
    points.map(([v, c]) => /** @type {Point} */ ([x.px(v), y.px(c + up)]));
  if (rule.low !== null && min.length && rule.models <= 1) {
    // of several models each has a band of its own
    min.forEach(([v, c], i) => {
      const top = y.px(c + reach);
      chart.box(x.px(v), top, x.px(min[i + 1]?.[0] ?? to) - x.px(v), y.px(c) - top, "panel");
    });
    chart.line(stair(min, reach), "wait", { wide: 2, dash: [4, 2], stairs: true, till: x.to });
  }
  const last = stairs.map((one) => ({ ...one, c: one.points.at(-1)?.[1] ?? 0 }));
  const least = Math.min(...last.map((s) => s.c));
  const most = Math.max(...last.map((s) => s.c));
  for (const { rank, points, c } of last)
    chart.line(stair(points), few || rank === chosen ? identity(rank) : "edge", {
      wide: rank === chosen ? 3 : c === least && least < most ? 2.5 : 1.5,
      stairs: true,
      till: x.to,
    });
  const first = (/** @type {number} */ c) => last.find((one) => one.c === c);
  const named = few ? last : last.filter((s) => s === first(least) || s === first(most));
  nameEnds(
    chart,
    named.map((s) => ({ rank: s.rank, y: y.px(s.c) })),
    x.to,
    y.from + 4,
    few,
  );
  const each =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find(
      (k) => (k * (y.from - y.to)) / (y.high - low) >= 18,
    ) ?? 2000;
  for (let c = Math.ceil(Math.max(0, low) / each) * each; c < high; c += each) {
    chart.write(String(c), x.from - 6, y.px(c), "ink-3", "right");
    chart.box(x.from - 3, y.px(c), 3, 1, "edge");
  }
  drawSeconds(chart, x, y.from + 12);
}

/**
 * The names of lines at their right ends, far enough apart to be read.
 * @param {Chart} chart
 * @param {{rank: number, y: number}[]} ends
 * @param {number} right @param {number} room  px
 * @param {boolean} few  each has a colour of its own
 */
function nameEnds(chart, ends, right, room, few) {
  const apart = 12;
  ends.sort((a, b) => a.y - b.y || a.rank - b.rank);
  ends.forEach((e, i) => i && (e.y = Math.max(e.y, ends[i - 1].y + apart)));
  for (let i = ends.length - 1; i >= 0; i--)
    ends[i].y = Math.min(ends[i].y, i === ends.length - 1 ? room : ends[i + 1].y - apart);
  for (const { rank, y } of ends) {
    chart.box(right + 3, y - 3, 4, 6, few ? identity(rank) : "edge");
    chart.write(`worker ${rank}`, right + 11, y);
  }
}

/** @param {Chart} chart @param {Scale} x  of times @param {number} y */
function drawSeconds(chart, { low: from, high: to, px }, y) {
  const raw = (to - from) / 5;
  const unit = 10 ** Math.floor(Math.log10(Math.max(1, raw)));
  const apart = unit * ([1, 2, 5, 10].find((k) => k * unit >= raw) ?? 10);
  const places = Math.max(0, Math.min(6, -Math.floor(Math.log10(apart / 1e9) + 1e-9)));
  const now = `${(to / 1e9).toFixed(places + 1)} s`;
  const free = px(to) - chart.wide(now, true) - 6;
  chart.write(now, px(to), y, "ink", "right", true);
  for (let v = Math.ceil(from / apart) * apart; v < to; v += apart)
    if (px(v) + 16 < free) chart.write((v / 1e9).toFixed(places), px(v), y, "ink-3", "center");
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
export function drawStaleness(chart, { counts, mean, n, dropped, stalest }, rule) {
  const { width, height } = chart;
  const bins = Math.max(LEAST_BINS, counts.length) + 1;
  const each = (width - 6) / bins;
  const y0 = height - 34;
  const top = 20;
  const most = Math.max(1, ...counts);
  const every = [1, 2, 5, 10, 20, 50].find((k) => k * each > 22) ?? 100;
  const stalestBox = (/** @type {number[]} */ ...[x, y, w, h]) => {
    if (!stalest) return;
    chart.box(x, y, w, h, identity(stalest.rank));
    chart.hatch(x, y, w, h, "ground");
  };
  counts.forEach((count, d) => {
    const x = d * each + 1;
    const w = Math.max(1, each - 2);
    const whole = count ? Math.max(1, (count / most) * (y0 - top)) : 0;
    const part = count ? (whole * (stalest?.counts[d] ?? 0)) / count : 0;
    chart.box(x, y0 - whole + part, w, whole - part, "edge");
    if (part) stalestBox(x, y0 - whole, w, part);
  });
  chart.box(0, y0, width - 6, 1, "edge");
  for (let d = 0; d < bins; d += every) {
    const x = Math.max(3.5 * String(d).length, (d + 0.5) * each);
    chart.write(String(d), x, y0 + 10, "ink-3", "center");
  }
  if (rule.drop_above !== null) {
    const x = (rule.drop_above + 1) * each;
    const words = `dropped above ${rule.drop_above}`;
    const at = Math.min(width - 6, x);
    chart.line(
      [
        [at, top - 4],
        [at, y0],
      ],
      "fault",
      { wide: 1.5, dash: [3, 2] },
    );
    const half = chart.wide(words) / 2;
    chart.write(words, Math.max(half, Math.min(width - half, x)), 8, "fault", "center");
  }
  const words = n
    ? `mean ${mean.toFixed(1)}${dropped ? ` · ${dropped} dropped` : ""}`
    : "no update yet";
  chart.write(words, 0, height - 8);
  if (!stalest) return;
  const x = chart.wide(words) + 12;
  const label = `worker ${stalest.rank}, mean ${stalest.mean.toFixed(1)}`;
  if (x + 14 + chart.wide(label) > width) return;
  stalestBox(x, height - 13, 10, 10);
  chart.write(label, x + 14, height - 8);
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

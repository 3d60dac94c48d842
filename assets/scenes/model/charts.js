// @ts-check
/**
 * Beside the picture of a model: the model as one line with its cuts, the time of each stage
 * against a cut into equal counts of layers, and the memory of each rank against the limit.
 *
 * @typedef {import("./fold.js").Model} Model
 * @typedef {import("./traffic.js").Traffic} Traffic
 * @typedef {import("../../drawing/chart.js").Chart} Chart
 * @typedef {{rank: number, stages: number[], parameters: number, planned: number, most: number}}
 *   Holding  bytes; planned: all that is known beforehand; most: measured, NaN if not
 */
import { inkOfRank, weightOf } from "./draw.js";
import { shardingOf } from "./shards.js";
import { scale } from "../../drawing/chart.js";
import { stageTimes } from "./captions.js";
import { bytes, duration } from "../../engine/format.js";

export const STRIP_HIGH = 34;
const ROW = 19;

const LOW_ROW = 14; // so that eight ranks, with the picture above, are one screen
const TIGHT_ROW = 12;
const NAMES = 62;
const VALUES = 60;
const FOOT = 20;

/** @param {number} rows */
export const chartHeight = (rows) => rows * rowOf(rows) + FOOT;

/**
 * Where the layers lie in the line: as wide as they take time, or have parameters.
 * @param {Model} model
 * @param {boolean} timed
 * @param {number} width
 * @returns {{x: number, w: number}[]}
 */
export function stripOf(model, timed, width) {
  const weights = model.layers.map((l) => weightOf(/** @type {any} */ (l), timed));
  const whole = weights.reduce((a, b) => a + b, 0);
  let x = 0;
  return weights.map((v) => {
    const w = whole > 0 ? (v / whole) * width : width / weights.length;
    const at = { x, w };
    x += w;
    return at;
  });
}

/**
 * @param {Chart} chart
 * @param {Model} model
 * @param {number[]} ranks
 * @param {boolean} timed
 * @param {[number, number] | null} window  the first and last stage in sight, if not all are
 * @param {number} chosen  a layer, or -1
 */
export function drawModelLine(chart, model, ranks, timed, window, chosen) {
  const { ink, width } = chart;
  const spots = stripOf(model, timed, width);
  const top = 15;
  const high = 12;
  const sharding = shardingOf(model);
  const layersOf = (/** @type {number} */ s) => model.layers.filter((l) => l.stage === s);
  for (const { index, stage } of model.layers) {
    const { x, w } = spots[index];
    const shares = sharding?.layers.get(index);
    const wide = w > 2 ? w - 0.75 : w;
    const own = sharding ? "edge" : inkOfRank(ink, ranks[stage]);
    let y = top;
    if (!shares || shares.how === "whole") chart.box(x, top, wide, high, own);
    else
      shares.shares.forEach((share, rank) => {
        chart.box(x, y, wide, share * high, inkOfRank(ink, rank));
        y += share * high;
      });
    if (index === chosen) chart.outline(x, top - 1, Math.max(3, w), high + 2, "focus", 2);
  }
  const times = stageTimes(model);
  const ends = Array.from({ length: model.stages }, (_, s) => {
    const layers = layersOf(s);
    const last = spots[layers[layers.length - 1]?.index ?? 0];
    return { a: spots[layers[0]?.index ?? 0].x, b: last.x + last.w };
  });
  const forms = [
    (/** @type {number} */ s) => (timed ? `stage ${s}: ${duration(times[s] * 1e6)}` : `stage ${s}`),
    (/** @type {number} */ s) => (timed ? `${s}: ${duration(times[s] * 1e6)}` : String(s)),
    String,
  ];
  const fits = (/** @type {number} */ s, /** @type {number} */ k) =>
    chart.wide(forms[k](s)) < ends[s].b - ends[s].a - 6;
  const form = ends.every((_, s) => fits(s, 0)) ? 0 : 1; // one form for all
  ends.forEach(({ a, b }, s) => {
    const k = [form, 2].find((f) => fits(s, f));
    if (k !== undefined && model.stages > 1)
      chart.write(forms[k](s), (a + b) / 2, 7, "ink", "center");
    if (!s) return;
    chart.box(a - 1, top - 4, 1.5, high + 8, "ideal");
    chart.box((s / model.stages) * width - 0.5, top + high + 4, 1, 3, "ideal"); // all stages alike
  });
  if (!window) return;
  const from = spots[layersOf(window[0])[0]?.index ?? 0].x;
  const till = spots[layersOf(window[1]).at(-1)?.index ?? 0];
  chart.outline(from + 0.75, top - 3, till.x + till.w - from - 1.5, high + 6, "focus", 1.5);
}

/** @param {Chart} chart @param {Model} model @param {number[]} ranks */
export function drawStageTimes(chart, model, ranks) {
  const { ink, width } = chart;
  const forward = Array(model.stages).fill(0);
  const both = Array(model.stages).fill(0);
  const row = rowOf(model.stages);
  for (const l of model.layers) {
    forward[l.stage] += l.forward;
    both[l.stage] += l.backward;
  }
  forward.forEach((f, s) => (both[s] += f));
  const equal = model.largest?.equal ?? NaN;
  const most = Math.max(...both, Number.isFinite(equal) ? equal : 0) || 1;
  const x = scale(0, most, NAMES, width - VALUES);
  forward.forEach((f, s) => {
    const y = s * row;
    const cut = x.px(f);
    chartName(chart, `stage ${s}`, inkOfRank(ink, ranks[s]), y, row);
    chart.box(x.from, y + 2, cut - x.from, row - 5, "forward");
    chart.hatch(cut, y + 2, x.px(both[s]) - cut, row - 5, "backward");
    if (row !== TIGHT_ROW)
      chart.write(duration(both[s] * 1e6), width, y + row / 2, "ink-2", "right");
  });
  const words = `in equal numbers of layers the slowest takes ${duration(equal * 1e6)}, with what it sends`;
  if (Number.isFinite(equal) && model.stages > 1) boundLine(chart, x.px(equal), words);
}

/**
 * Of each rank in the pipeline: what it was planned to hold and the most it needed.
 * @param {Model} model
 * @param {number[]} ranks
 * @param {any} run
 * @param {Traffic} traffic
 * @param {number} t
 * @returns {Holding[]}
 */
export function memoryOf(model, ranks, run, traffic, t) {
  const sharding = shardingOf(model);
  if (sharding)
    return Array.from({ length: sharding.ranks }, (_, rank) => {
      const parameters = model.layers.reduce(
        (n, l) => n + l.parameters * (sharding.layers.get(l.index)?.shares[rank] ?? 1),
        0,
      );
      return {
        rank,
        stages: [0],
        parameters,
        planned: parameters,
        most: traffic.memoryAt(rank, t),
      };
    });
  const places = 1 + Math.max(...ranks);
  const replicas = run?.pipeline?.replicas ?? 1;
  const peaks = run?.pipeline?.peaks ?? [];
  return Array.from({ length: places }, (_, rank) => {
    const stages = ranks.flatMap((r, s) => (r === rank ? [s] : []));
    const layers = model.layers.filter((l) => stages.includes(l.stage));
    const all = Array.from({ length: replicas }, (_, d) =>
      traffic.memoryAt(d * places + rank, t),
    ).filter(Number.isFinite);
    const parameters = layers.reduce((n, l) => n + l.parameters, 0);
    const kept = layers.reduce((n, l) => n + l.activations * (peaks[l.stage] ?? 1), 0);
    return {
      rank,
      stages,
      parameters,
      planned: model.memory
        ? stages.reduce((n, s) => n + (model.memory?.[s] ?? 0), 0)
        : parameters + kept,
      most: all.length ? Math.max(...all) : NaN,
    };
  });
}

/** @param {Chart} chart @param {Holding[]} holdings @param {number | null} limit */
export function drawMemory(chart, holdings, limit) {
  const { ink, width } = chart;
  const measured = holdings.some((h) => Number.isFinite(h.most));
  const row = rowOf(holdings.length);
  const most =
    Math.max(
      limit ?? 0,
      ...holdings.map((h) => Math.max(h.planned, Number.isFinite(h.most) ? h.most : 0)),
    ) || 1;
  const x = scale(0, most, NAMES, width - VALUES);
  const long = (/** @type {number} */ v) => x.px(v) - x.from;
  const thick = row - 5;
  const bar = measured ? Math.max(2, Math.round(thick / 3)) : thick;
  holdings.forEach(({ rank, parameters, planned, most: peak }, i) => {
    const y = i * row;
    const at = y + 2 + thick - bar;
    const beyond = limit !== null && peak > limit;
    const name = measured || holdings.length > 1 ? `rank ${rank}` : "";
    chartName(chart, name, inkOfRank(ink, rank), y, row);
    if (Number.isFinite(peak))
      chart.box(
        x.from,
        y + 2,
        long(peak),
        thick - bar - 1,
        beyond ? "fault" : inkOfRank(ink, rank),
      );
    const words = bytes(Number.isFinite(peak) ? peak : planned);
    const colour = beyond ? "fault" : "ink-2";
    if (row !== TIGHT_ROW)
      chart.write(beyond ? `✕ ${words}` : words, width, y + row / 2, colour, "right");
    chart.box(x.from, at, long(parameters), bar, "done");
    chart.hatch(x.px(parameters), at, long(Math.max(0, planned - parameters)), bar, "done");
  });
  if (limit) boundLine(chart, x.px(limit), `limit ${bytes(limit)}`);
}

/** @param {number} rows */
const rowOf = (rows) => (rows > 12 ? TIGHT_ROW : rows > 4 ? LOW_ROW : ROW);

/**
 * @param {Chart} chart @param {string} words @param {string} colour @param {number} y
 * @param {number} row
 */
function chartName(chart, words, colour, y, row) {
  chart.box(0, y + 2, 4, row - 5, colour);
  chart.write(words, 10, y + row / 2);
}

/**
 * A hairline with its words under the bars.
 * @param {Chart} chart @param {number} x @param {string} words
 */
function boundLine(chart, x, words) {
  const wide = chart.wide(words);
  chart.box(x - 0.5, 0, 1, chart.height - FOOT + 4, "ideal");
  chart.write(words, Math.max(0, Math.min(chart.width - wide, x - wide / 2)), chart.height - 8);
}

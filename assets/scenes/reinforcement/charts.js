// @ts-check
/**
 * Three charts below the picture, up to the playhead: the returns of episodes, how old parameters
 * and samples are, and the bytes of each kind of message. What they show is worked out by pure
 * functions.
 *
 * @typedef {import("./index.js").RlIndex} RlIndex
 * @typedef {import("./index.js").RlRoles} RlRoles
 * @typedef {import("../../drawing/chart.js").Chart} Chart
 * @typedef {import("../../drawing/chart.js").Point} Point
 * @typedef {{bins: Bin[], colour: string, dash: number[], name: string}} Line
 * @typedef {{t: number, mean: number, low: number, high: number, many: number}} Bin
 */
import { bytes, duration, ticks } from "../../engine/format.js";
import { countUntil } from "../../engine/search.js";
import { scale } from "../../drawing/chart.js";
import { EPISODES } from "./captions.js";
import { inBundles } from "./index.js";
import { shortNumber } from "./lines.js";

export const CHART = 138; // px
const BINS = 48;
const KIND_HIGH = 32;
/** From which role to which each kind goes. @type {Record<string, string>} */
const WAYS = {
  experience: "actor → replay",
  minibatch: "replay → learner",
  priorities: "learner → replay",
  gradients: "learner → server",
  parameters: "back to all",
};

/**
 * The values that some ranks measured by t, in equal parts of the time.
 * @param {RlIndex} index
 * @param {number[]} ranks
 * @param {string} name
 * @param {number} t
 * @returns {Bin[]}
 */
export function binsOf(index, ranks, name, t) {
  const from = Math.max(0, index.table.from);
  const each = Math.max(1, (t - from) / BINS);
  const bins = Array.from({ length: BINS }, () => /** @type {number[]} */ ([]));
  for (const rank of ranks) {
    const { t: times, v } = index.of(rank, name);
    for (let i = countUntil(times, t, Number) - 1; i >= 0; i--)
      if (Number.isFinite(v[i]))
        bins[Math.max(0, Math.min(BINS - 1, Math.floor((times[i] - from) / each)))].push(v[i]);
  }
  return bins.flatMap((values, i) =>
    values.length
      ? [
          {
            t: from + each * (i + 0.5),
            mean: values.reduce((sum, one) => sum + one, 0) / values.length,
            low: Math.min(...values),
            high: Math.max(...values),
            many: values.length,
          },
        ]
      : [],
  );
}

/**
 * Round numbers, evenly apart, from one that is not above `low` to one that is not below `high`.
 * @param {number} low
 * @param {number} high
 * @returns {number[]}
 */
export function roundLevels(low, high) {
  const least = (high - low) / 3;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * ([1, 2, 5].find((one) => one * power >= least * (1 - 1e-9)) ?? 10);
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

/**
 * A line through bins; axes with round numbers.
 * @param {Chart} chart
 * @param {Line[]} lines
 * @param {number} from
 * @param {number} t
 * @param {boolean} zero  0 is on the axis
 * @param {boolean} band  from the lowest to the highest is shaded
 */
function drawBinned(chart, lines, from, t, zero, band) {
  const bottom = chart.height - 20;
  const x = scale(from, Math.max(t, from + 1), 34, chart.width - 4);
  const all = lines.flatMap(({ bins }) => bins);
  if (!all.length) return chart.write("nothing yet", x.from, chart.height / 2, "ink-3");
  let low = Math.min(...all.map((bin) => (band ? bin.low : bin.mean)));
  let high = Math.max(...all.map((bin) => (band ? bin.high : bin.mean)));
  if (zero) low = Math.min(0, low);
  if (high - low < 1e-9) high = low + 1;
  const levels = roundLevels(low, high);
  const y = scale(levels[0], levels[levels.length - 1], bottom, lines.length > 1 ? 22 : 8);
  chart.levels(levels, x, y, shortNumber, { thick: 0.75, apart: 5 });
  for (const { bins, colour, dash } of lines) {
    if (band)
      chart.band(
        bins.map((bin) => [x.px(bin.t), y.px(bin.high) - 1]),
        bins.map((bin) => [x.px(bin.t), y.px(bin.low) + 1]),
        "track",
      );
    const points = bins.map(({ t: at, mean }) => /** @type {Point} */ ([x.px(at), y.px(mean)]));
    if (bins.length === 1) points.push([points[0][0] + 2, points[0][1]]);
    chart.line(points, colour, { wide: 2, dash });
  }
  if (lines.length > 1) nameLines(chart, lines, x.from);
  for (const { t: at, label } of ticks(t - from, Math.max(2, Math.floor((x.to - x.from) / 70)))) {
    const tick = x.px(from + at);
    if (at && tick + chart.wide(label) / 2 > x.to) continue;
    chart.write(at ? label : "0", tick, bottom + 11, "ink-3", at ? "center" : "left");
  }
}

/**
 * What each line is, above them.
 * @param {Chart} chart @param {Line[]} lines @param {number} left
 */
function nameLines(chart, lines, left) {
  const long = lines.reduce((sum, { name }) => sum + 31 + chart.wide(name), 0);
  // so that the last word ends within it
  let x = Math.max(0, Math.min(left, chart.width - long + 10));
  for (const { name, colour, dash } of lines) {
    chart.line(
      [
        [x, 7],
        [x + 16, 7],
      ],
      colour,
      { wide: 2, dash },
    );
    chart.write(name, x + 21, 7);
    x += 31 + chart.wide(name);
  }
}

/**
 * Each bin as the last episodes by then are: their mean, as the sentence says it, and the lowest
 * and the highest of the same episodes.
 * @param {Bin[]} bins
 * @returns {Bin[]}
 */
export function lastEpisodes(bins) {
  return bins.map((bin, i) => {
    let [many, sum, low, high] = [0, 0, Infinity, -Infinity];
    for (let k = i; k >= 0 && many < EPISODES; k--) {
      many += bins[k].many;
      sum += bins[k].many * bins[k].mean;
      low = Math.min(low, bins[k].low);
      high = Math.max(high, bins[k].high);
    }
    return { ...bin, mean: sum / many, low, high };
  });
}

/** @param {Chart} chart @param {RlIndex} index @param {RlRoles} roles @param {number} t */
export function drawReturns(chart, index, { actors }, t) {
  const from = Math.max(0, index.table.from);
  const bins = lastEpisodes(binsOf(index, actors, "return", t));
  drawBinned(chart, [{ bins, colour: "ink", dash: [], name: "" }], from, t, false, true);
}

/** @param {Chart} chart @param {RlIndex} index @param {RlRoles} roles @param {number} t */
export function drawOld(chart, index, roles, t) {
  const from = Math.max(0, index.table.from);
  const samples = {
    bins: binsOf(index, roles.learners, "sample age", t),
    colour: "age-4",
    dash: [],
    name: "samples",
  };
  const replay = {
    bins: binsOf(index, roles.actors, "policy lag", t),
    colour: "age-0",
    dash: [5, 3],
    name: chart.width < 200 ? "parameters" : "actors' parameters",
  };
  drawBinned(chart, replay.bins.length ? [samples, replay] : [samples], from, t, true, false);
}

/**
 * Bytes and messages of each kind that had begun to go by t.
 * @param {RlIndex} index
 * @param {number} t
 * @returns {{kind: string, way: string, nbytes: number, many: number}[]}
 */
export function bytesByKind(index, t) {
  return Object.entries(WAYS).map(([kind, way]) => {
    const all = [...index.ways.values()].filter((one) => one.kind === kind);
    const sums = all.map((one) => index.sentOver(one, t));
    return {
      kind,
      way,
      nbytes: sums.reduce((sum, one) => sum + one.nbytes, 0),
      many: sums.reduce((sum, one) => sum + one.many, 0),
    };
  });
}

/**
 * Whether messages of a kind go from rank to rank in such a run.
 * @param {string} kind
 * @param {RlRoles} roles
 */
function travels(kind, roles) {
  if (kind === "gradients") return roles.servers.length > 0;
  if (kind === "parameters") return true;
  return !inBundles(roles) && (kind !== "priorities" || roles.options.replay !== "uniform");
}

/** How high the chart of bytes is where it stands alone. @param {RlRoles} roles */
export const kindsHigh = (roles) =>
  4 + KIND_HIGH * Object.keys(WAYS).filter((kind) => travels(kind, roles)).length;

/** @param {Chart} chart @param {RlIndex} index @param {RlRoles} roles @param {number} t */
export function drawKinds(chart, index, roles, t) {
  const { width } = chart;
  const shown = bytesByKind(index, t).filter(({ kind }) => travels(kind, roles));
  const most = Math.max(1, ...shown.map((one) => one.nbytes));
  const each = Math.min(KIND_HIGH, chart.height / shown.length);
  shown.forEach(({ kind, way, nbytes }, i) => {
    const y = 3 + each * i;
    const value = bytes(nbytes);
    const wide = chart.wide(kind);
    chart.write(kind, 0, y + 7, "ink");
    chart.write(value, width - 2, y + 7, "ink", "right", true);
    if (wide + chart.wide(value, true) + 16 + chart.wide(way) < width)
      chart.write(way, wide + 7, y + 7, "ink-3");
    const long = Math.max(nbytes ? 1 : 0, ((width - 2) * nbytes) / most);
    chart.box(0, y + 15, width - 2, 5, "track");
    chart.box(0, y + 15, long, 5, kind === "parameters" ? "age-0" : "comm");
  });
}

/** @param {RlIndex} index @param {number} t */
export const kindsWords = (index, t) =>
  bytesByKind(index, t)
    .map(({ kind, nbytes, many }) => `${kind}: ${bytes(nbytes)} in ${many} messages`)
    .join(", ");

/** @param {Bin[]} bins @param {string} what */
export const binsWords = (bins, what) =>
  bins.length
    ? `${what}: ${shortNumber(bins[0].mean)} at first, ${shortNumber(bins[bins.length - 1].mean)} at ${duration(bins[bins.length - 1].t)}`
    : `${what}: nothing yet`;

// @ts-check
/**
 * Three charts below the picture, up to the playhead: the returns of episodes, how old parameters
 * and samples are, and the bytes of each kind of message. What they show is worked out by pure
 * functions.
 *
 * @typedef {import("./index.js").RlIndex} RlIndex
 * @typedef {import("./index.js").RlRoles} RlRoles
 * @typedef {{g: CanvasRenderingContext2D, ink: Record<string, string>, font: string, width: number,
 *   height: number}} Chart
 * @typedef {{t: number, mean: number, low: number, high: number, many: number}} Bin
 */
import { bytes, duration, ticks } from "../../engine/format.js";
import { countUntil } from "../../engine/search.js";
import { writeAt } from "../../drawing/colors.js";
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
 * @param {{bins: Bin[], colour: string, dash: number[], name: string}[]} lines
 * @param {number} from
 * @param {number} t
 * @param {boolean} zero  0 is on the axis
 * @param {boolean} band  from the lowest to the highest is shaded
 */
function drawBinned({ g, ink, font, width, height }, lines, from, t, zero, band) {
  const left = 34;
  const right = width - 4;
  const top = lines.length > 1 ? 22 : 8;
  const bottom = height - 20;
  const all = lines.flatMap(({ bins }) => bins);
  if (!all.length) return writeAt(g, font, "nothing yet", left, height / 2, ink["ink-3"]);
  let low = Math.min(...all.map((bin) => (band ? bin.low : bin.mean)));
  let high = Math.max(...all.map((bin) => (band ? bin.high : bin.mean)));
  if (zero) low = Math.min(0, low);
  if (high - low < 1e-9) high = low + 1;
  const levels = roundLevels(low, high);
  [low, high] = [levels[0], levels[levels.length - 1]];
  const X = (/** @type {number} */ at) =>
    left + ((at - from) / Math.max(1, t - from)) * (right - left);
  const Y = (/** @type {number} */ v) => bottom - ((v - low) / (high - low)) * (bottom - top);
  for (const v of levels) {
    g.fillStyle = ink.rule;
    g.fillRect(left, Y(v), right - left, 0.75);
    writeAt(g, font, shortNumber(v), left - 5, Y(v), ink["ink-3"], "right");
  }
  for (const { bins, colour, dash } of lines) {
    if (band) {
      g.fillStyle = ink.track;
      g.beginPath();
      for (const { t: at, high: most } of bins) g.lineTo(X(at), Y(most) - 1);
      for (const { t: at, low: least } of [...bins].reverse()) g.lineTo(X(at), Y(least) + 1);
      g.fill();
    }
    g.strokeStyle = colour;
    g.lineWidth = 2;
    g.setLineDash(dash);
    g.beginPath();
    bins.forEach((bin, i) =>
      i ? g.lineTo(X(bin.t), Y(bin.mean)) : g.moveTo(X(bin.t), Y(bin.mean)),
    );
    if (bins.length === 1) g.lineTo(X(bins[0].t) + 2, Y(bins[0].mean));
    g.stroke();
    g.setLineDash([]);
  }
  g.font = `400 11px ${font}`;
  const long = lines.reduce((sum, { name }) => sum + 31 + g.measureText(name).width, 0);
  let x = Math.max(0, Math.min(left, width - long + 10)); // so that the last word ends within it
  if (lines.length > 1)
    for (const { name, colour, dash } of lines) {
      g.strokeStyle = colour;
      g.lineWidth = 2;
      g.setLineDash(dash);
      g.beginPath();
      g.moveTo(x, 7);
      g.lineTo(x + 16, 7);
      g.stroke();
      g.setLineDash([]);
      writeAt(g, font, name, x + 21, 7, ink["ink-2"]);
      x += 31 + g.measureText(name).width;
    }
  g.font = `400 11px ${font}`;
  const last = ticks(t - from, Math.max(2, Math.floor((right - left) / 70)));
  for (const { t: at, label } of last) {
    const tick = X(from + at);
    if (at && tick + g.measureText(label).width / 2 > right) continue;
    writeAt(g, font, at ? label : "0", tick, bottom + 11, ink["ink-3"], at ? "center" : "left");
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
  drawBinned(chart, [{ bins, colour: chart.ink.ink, dash: [], name: "" }], from, t, false, true);
}

/** @param {Chart} chart @param {RlIndex} index @param {RlRoles} roles @param {number} t */
export function drawOld(chart, index, roles, t) {
  const { ink } = chart;
  const from = Math.max(0, index.table.from);
  const samples = {
    bins: binsOf(index, roles.learners, "sample age", t),
    colour: ink["age-4"],
    dash: [],
    name: "samples",
  };
  const replay = {
    bins: binsOf(index, roles.actors, "policy lag", t),
    colour: ink["age-0"],
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
export function drawKinds({ g, ink, font, width, height }, index, roles, t) {
  const shown = bytesByKind(index, t).filter(({ kind }) => travels(kind, roles));
  const most = Math.max(1, ...shown.map((one) => one.nbytes));
  const each = Math.min(KIND_HIGH, height / shown.length);
  shown.forEach(({ kind, way, nbytes }, i) => {
    const y = 3 + each * i;
    writeAt(g, font, kind, 0, y + 7, ink.ink);
    g.font = `400 11px ${font}`;
    const wide = g.measureText(kind).width;
    const value = bytes(nbytes);
    writeAt(g, font, value, width - 2, y + 7, ink.ink, "right", true);
    const taken = wide + g.measureText(value).width + 16;
    g.font = `400 11px ${font}`;
    if (taken + g.measureText(way).width < width)
      writeAt(g, font, way, wide + 7, y + 7, ink["ink-3"]);
    g.fillStyle = ink.track;
    g.fillRect(0, y + 15, width - 2, 5);
    g.fillStyle = kind === "parameters" ? ink["age-0"] : ink.comm;
    g.fillRect(0, y + 15, Math.max(nbytes ? 1 : 0, ((width - 2) * nbytes) / most), 5);
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

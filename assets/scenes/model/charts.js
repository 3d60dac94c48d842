// @ts-check
/**
 * Beside the picture of a model: the model as one line with its cuts, the time of each stage
 * against a cut into equal counts of layers, and the memory of each rank against the limit.
 *
 * @typedef {import("./fold.js").Model} Model
 * @typedef {import("./traffic.js").Traffic} Traffic
 * @typedef {{g: CanvasRenderingContext2D, ink: Record<string, string>, font: string, ratio: number,
 *   width: number, height: number}} Chart
 * @typedef {{rank: number, stages: number[], parameters: number, planned: number, most: number}}
 *   Holding  bytes; planned: all that is known beforehand; most: measured, NaN if not
 */
import { inkOfRank, weightOf } from "./draw.js";
import { shardingOf } from "./shards.js";
import { hatched } from "../../drawing/hatch.js";
import { writeAt } from "../../drawing/colors.js";
import { stageTimes } from "./captions.js";
import { bytes, duration } from "../../engine/format.js";

export const STRIP_HIGH = 34;
const ROW = 19;

const LOW_ROW = 14; // so that eight ranks, with the picture above, are one screen
const TIGHT_ROW = 12;
const NAMES = 62;
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
export function drawModelLine({ g, ink, font, width }, model, ranks, timed, window, chosen) {
  const spots = stripOf(model, timed, width);
  const top = 15;
  const high = 12;
  const sharding = shardingOf(model);
  const layersOf = (/** @type {number} */ s) => model.layers.filter((l) => l.stage === s);
  for (const { index, stage } of model.layers) {
    const { x, w } = spots[index];
    const shares = sharding?.layers.get(index);
    const wide = w > 2 ? w - 0.75 : w;
    g.fillStyle = sharding ? ink.edge : inkOfRank(ink, ranks[stage]);
    if (!shares || shares.how === "whole") g.fillRect(x, top, wide, high);
    else
      shares.shares.reduce(
        (from, share, rank) => (
          (g.fillStyle = inkOfRank(ink, rank)),
          g.fillRect(x, top + from * high, wide, share * high),
          from + share
        ),
        0,
      );
    if (index === chosen)
      ((g.strokeStyle = ink.focus),
        (g.lineWidth = 2),
        g.strokeRect(x, top - 1, Math.max(3, w), high + 2));
  }
  const times = stageTimes(model);
  const ends = Array.from({ length: model.stages }, (_, s) => {
    const layers = layersOf(s);
    const last = spots[layers[layers.length - 1]?.index ?? 0];
    return { a: spots[layers[0]?.index ?? 0].x, b: last.x + last.w };
  });
  g.font = `400 11px ${font}`;
  const forms = [
    (/** @type {number} */ s) => (timed ? `stage ${s}: ${duration(times[s] * 1e6)}` : `stage ${s}`),
    (/** @type {number} */ s) => (timed ? `${s}: ${duration(times[s] * 1e6)}` : String(s)),
    String,
  ];
  const fits = (/** @type {number} */ s, /** @type {number} */ k) =>
    g.measureText(forms[k](s)).width < ends[s].b - ends[s].a - 6;
  const form = ends.every((_, s) => fits(s, 0)) ? 0 : 1; // one form for all
  ends.forEach(({ a, b }, s) => {
    const k = [form, 2].find((f) => fits(s, f));
    if (k !== undefined && model.stages > 1)
      writeAt(g, font, forms[k](s), (a + b) / 2, 7, ink.ink, "center");
    if (!s) return;
    g.fillStyle = ink.ideal;
    g.fillRect(a - 1, top - 4, 1.5, high + 8);
    g.fillRect((s / model.stages) * width - 0.5, top + high + 4, 1, 3); // all stages alike
  });
  if (!window) return;
  const from = spots[layersOf(window[0])[0]?.index ?? 0].x;
  const till = spots[layersOf(window[1]).at(-1)?.index ?? 0];
  g.strokeStyle = ink.focus;
  g.lineWidth = 1.5;
  g.strokeRect(from + 0.75, top - 3, till.x + till.w - from - 1.5, high + 6);
}

/** @param {Chart} chart @param {Model} model @param {number[]} ranks */
export function drawStageTimes({ g, ink, font, ratio, width, height }, model, ranks) {
  const forward = Array(model.stages).fill(0);
  const backward = Array(model.stages).fill(0);
  const row = rowOf(model.stages);
  for (const l of model.layers)
    ((forward[l.stage] += l.forward), (backward[l.stage] += l.backward));
  const equal = model.largest?.equal ?? NaN;
  const chosen = Math.max(...forward.map((f, s) => f + backward[s]));
  const most = Math.max(chosen, Number.isFinite(equal) ? equal : 0) || 1;
  const left = NAMES;
  const right = width - 60;
  const X = (/** @type {number} */ v) => left + (v / most) * (right - left);
  for (let s = 0; s < model.stages; s++) {
    const y = s * row;
    chartName(g, ink, font, `stage ${s}`, inkOfRank(ink, ranks[s]), y, row);
    g.fillStyle = ink.forward;
    g.fillRect(left, y + 2, X(forward[s]) - left, row - 5);
    g.fillStyle = hatched(ink.backward, ratio);
    g.fillRect(X(forward[s]), y + 2, X(forward[s] + backward[s]) - X(forward[s]), row - 5);
    if (row !== TIGHT_ROW)
      writeAt(
        g,
        font,
        duration((forward[s] + backward[s]) * 1e6),
        width,
        y + row / 2,
        ink["ink-2"],
        "right",
      );
  }
  if (Number.isFinite(equal) && model.stages > 1)
    boundLine(
      g,
      ink,
      font,
      X(equal),
      height,
      width,
      `in equal numbers of layers the slowest takes ${duration(equal * 1e6)}, with what it sends`,
    );
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
export function drawMemory({ g, ink, font, ratio, width, height }, holdings, limit) {
  const measured = holdings.some((h) => Number.isFinite(h.most));
  const row = rowOf(holdings.length);
  const left = NAMES;
  const right = width - 60;
  const most =
    Math.max(
      limit ?? 0,
      ...holdings.map((h) => Math.max(h.planned, Number.isFinite(h.most) ? h.most : 0)),
    ) || 1;
  const long = (/** @type {number} */ v) => (v / most) * (right - left);
  holdings.forEach((h, i) => {
    const y = i * row;
    const thick = row - 5;
    const bar = measured ? Math.max(2, Math.round(thick / 3)) : thick;
    const at = y + 2 + (measured ? thick - bar : 0);
    chartName(
      g,
      ink,
      font,
      measured || holdings.length > 1 ? `rank ${h.rank}` : "",
      inkOfRank(ink, h.rank),
      y,
      row,
    );
    if (Number.isFinite(h.most)) {
      const beyond = limit !== null && h.most > limit;
      g.fillStyle = beyond ? ink.fault : inkOfRank(ink, h.rank);
      g.fillRect(left, y + 2, long(h.most), thick - bar - 1);
      if (row !== TIGHT_ROW)
        writeAt(
          g,
          font,
          beyond ? `✕ ${bytes(h.most)}` : bytes(h.most),
          width,
          y + row / 2,
          beyond ? ink.fault : ink["ink-2"],
          "right",
        );
    } else if (row !== TIGHT_ROW)
      writeAt(g, font, bytes(h.planned), width, y + row / 2, ink["ink-2"], "right");
    g.fillStyle = ink.done;
    g.fillRect(left, at, long(h.parameters), bar);
    g.fillStyle = hatched(ink.done, ratio);
    g.fillRect(left + long(h.parameters), at, long(Math.max(0, h.planned - h.parameters)), bar);
  });
  if (limit) boundLine(g, ink, font, left + long(limit), height, width, `limit ${bytes(limit)}`);
}

/** @param {number} rows */
const rowOf = (rows) => (rows > 12 ? TIGHT_ROW : rows > 4 ? LOW_ROW : ROW);

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {string} words
 * @param {string} colour
 * @param {number} y
 * @param {number} row
 */
function chartName(g, ink, font, words, colour, y, row) {
  g.fillStyle = colour;
  g.fillRect(0, y + 2, 4, row - 5);
  writeAt(g, font, words, 10, y + row / 2, ink["ink-2"]);
}

/**
 * A hairline with its words under the bars.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {number} x
 * @param {number} height
 * @param {number} width
 * @param {string} words
 */
function boundLine(g, ink, font, x, height, width, words) {
  g.fillStyle = ink.ideal;
  g.fillRect(x - 0.5, 0, 1, height - FOOT + 4);
  g.font = `400 11px ${font}`;
  const wide = g.measureText(words).width;
  const at = Math.max(0, Math.min(width - wide, x - wide / 2));
  writeAt(g, font, words, at, height - 8, ink["ink-2"]);
}

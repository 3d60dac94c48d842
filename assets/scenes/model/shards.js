// @ts-check
/**
 * A model whose layers are split over the ranks: which rank has what of a layer, what is exchanged,
 * and the small picture of it. Columns are parts of the outputs, rows parts of the inputs; a layer
 * that is not split is whole on every rank.
 *
 * @typedef {import("./fold.js").Model} Model
 * @typedef {{name: string, collective: string, pass: string, nbytes: number}} Exchange  pass:
 *   "forward", "backward" or "gradients"
 * @typedef {{how: string, words: string, shares: number[], exchanges: Exchange[]}} LayerParts
 *   shares: of each rank, 0 to 1; how: "column", "row" or "whole"
 * @typedef {{ranks: number, layers: Map<number, LayerParts>, exchanges: Exchange[]}} Sharding
 * @typedef {import("../../drawing/pen.js").Pen} Pen
 */
import { bytes, grouped } from "../../engine/format.js";

const MOST_STRIPES = 8; // more ranks than that are not told apart in a small square
const shardings = /** @type {WeakMap<Model, Sharding | null>} */ (new WeakMap());

/** Layers that an exchange is of: "blocks.0.query, key" are two. @param {string} name */
export function layersNamed(name) {
  const [first, ...others] = name.split(", ");
  const dot = first.lastIndexOf(".");
  return [first, ...others.map((other) => first.slice(0, dot + 1) + other)];
}

/**
 * How a model's layers are split, or null if none is.
 * @param {Model} model
 * @returns {Sharding | null}
 */
export function shardingOf(model) {
  let sharding = shardings.get(model);
  if (sharding === undefined) shardings.set(model, (sharding = readSharding(model)));
  return sharding;
}

/** @param {Model} model @returns {Sharding | null} */
function readSharding({ layers, shards, exchanges }) {
  if (!shards.length) return null;
  const at = new Map(layers.map((l) => [l.name, l.index]));
  const ranks = Math.max(1, ...shards.map((s) => s.runs?.length ?? 1));
  const parts = /** @type {Map<number, LayerParts>} */ (new Map());
  for (const { layer, how, words, runs, size } of shards) {
    const index = at.get(layer);
    const shares = Array.from({ length: ranks }, (_, r) =>
      size
        ? (runs[r] ?? []).reduce(
            (/** @type {number} */ n, /** @type {number[]} */ [a, b]) => n + b - a,
            0,
          ) / size
        : 1,
    );
    if (index !== undefined) parts.set(index, { how, words, shares, exchanges: [] });
  }
  for (const exchange of exchanges)
    for (const name of layersNamed(exchange.name))
      parts.get(at.get(name) ?? -1)?.exchanges.push(exchange);
  return { ranks, layers: parts, exchanges };
}

/**
 * A layer's parts in a small square: stripes that stand are parts of its outputs, stripes that lie
 * parts of its inputs.
 * @param {Pen} pen
 * @param {LayerParts} parts
 * @param {number} x
 * @param {number} y
 * @param {number} size
 */
export function drawParts(pen, { how, shares }, x, y, size) {
  const { g, ink } = pen;
  if (how === "whole") {
    pen.outline(x + 0.5, y + 0.5, size - 1, size - 1, "edge");
    return;
  }
  let from = 0;
  shares.forEach((share, rank) => {
    const wide = share * size;
    const gap = shares.length <= MOST_STRIPES ? 1 : 0;
    g.fillStyle = ink[`s${rank % 8}`];
    if (how === "column") g.fillRect(x + from, y, Math.max(0.5, wide - gap), size);
    else g.fillRect(x, y + from, size, Math.max(0.5, wide - gap));
    from += wide;
  });
}

/**
 * What a layer exchanges, in words.
 * @param {LayerParts} parts
 * @param {import("./traffic.js").Traffic} traffic
 * @param {number} t
 * @returns {string[]}
 */
export function partLines({ words, exchanges }, traffic, t) {
  return [
    words,
    ...exchanges.map((e) => {
      const { calls, nbytes } = traffic.calledBy(e.name, e.collective, t);
      const of = e.name.includes(", ") ? ` of ${e.name.split(", ").length} layers together` : "";
      const when =
        e.pass === "forward" ? "forward" : e.pass === "backward" ? "backward" : "for gradients";
      return (
        `${e.collective.replaceAll("_", "-")} ${when}${of}: ${bytes(e.nbytes)} ` +
        `planned${calls ? `; ${bytes(Math.round(nbytes / calls))} in each of ${grouped(calls)} so far` : ""}`
      );
    }),
  ];
}

/** @param {Model} model @param {Sharding} sharding */
export function shardingSentence(model, { ranks, layers, exchanges }) {
  const count = (/** @type {string} */ how) =>
    [...layers.values()].filter((p) => p.how === how).length;
  const whole = model.layers.length - count("column") - count("row");
  const sum = exchanges.reduce((n, e) => n + e.nbytes, 0);
  return (
    `Each of ${ranks} ranks has a part of ${count("column") + count("row")} layers: ` +
    `${count("column")} are split by columns, ${count("row")} by rows; ${whole} are whole on ` +
    `every rank. An iteration takes ${grouped(exchanges.length)} collectives of ` +
    `${bytes(sum)} in all.`
  );
}

// @ts-check
/**
 * Who has what of a sharded model at a moment: frame = f(what the rows say, playhead). No browser,
 * no drawing.
 *
 * @typedef {import("./index.js").ShardsIndex} ShardsIndex
 * @typedef {import("./index.js").Way} Way
 * @typedef {{name: string, kind: string, bytes: number, parts: number[]}} ShardLayer  parts: bytes
 *   that each rank keeps
 * @typedef {{kind: string, units: string, free: boolean, ahead: number, states: number,
 *   layers: ShardLayer[]}} ShardFacts
 * @typedef {{name: string, state: "part" | "gathering" | "there" | "whole" | "reducing",
 *   arrived: number[], since: number, held: number, way: Way | null}} LayerNow
 *   there: all parts have arrived and wait in the buffer; arrived: of each rank's part the share
 *   that has come, in the gather or, of sums, in the reduction
 * @typedef {{rank: number, layers: LayerNow[], held: number, active: number, peak: number,
 *   doing: string, iteration: number, copy: {t: number, of: number} | null}} HolderNow
 *   held: all of it; active: of that, activations; peak: the most held up to now; copy: of whose
 *   part it keeps one, and when its last message came
 * @typedef {{t: number, holders: HolderNow[], layers: ShardLayer[], whole: number,
 *   unsharded: number}} ShardsFrame
 *   whole: bytes of all parameters; unsharded: what parameters, gradients and the optimiser's state
 *   would take on a rank alone
 */
import { countUntil } from "../../engine/search.js";
import { heldAt, heldSince } from "./index.js";

/**
 * How a run's model is sharded, as its ranks have reported it.
 * @param {import("../../engine/player.js").Known["run"]} run
 * @returns {ShardFacts | null}
 */
export const factsOf = (run) => run?.shards ?? null;

/**
 * Layers and parts as the ranks recorded them; before that as the rows name them, without sizes.
 * @param {ShardFacts | null | undefined} facts
 * @param {ShardsIndex | null} index
 * @param {number} ranks
 * @returns {ShardLayer[]}
 */
export const layersOf = (facts, index, ranks) =>
  facts?.layers ??
  (index?.names ?? []).map((name) => ({
    name,
    kind: "",
    bytes: 0,
    parts: Array.from({ length: ranks }, () => 0),
  }));

/**
 * @param {ShardsIndex} index
 * @param {ShardFacts | null | undefined} facts
 * @param {number} ranks
 * @param {number} t
 * @returns {ShardsFrame}
 */
export function frameAt(index, facts, ranks, t) {
  const layers = layersOf(facts, index, ranks);
  const whole = layers.reduce((sum, { bytes }) => sum + bytes, 0);
  const holders = Array.from({ length: ranks }, (_, rank) =>
    holderAt(index, layers, rank, ranks, t),
  );
  return { t, holders, layers, whole, unsharded: whole * (2 + (facts?.states ?? 0)) };
}

/**
 * @param {ShardsIndex} index
 * @param {ShardLayer[]} layers
 * @param {number} rank
 * @param {number} ranks
 * @param {number} t
 * @returns {HolderNow}
 */
function holderAt(index, layers, rank, ranks, t) {
  const holder = index.holders.get(rank);
  if (!holder)
    return {
      rank,
      layers: layers.map(({ name }) => ({
        name,
        state: "part",
        arrived: [],
        since: -1,
        held: 0,
        way: null,
      })),
      held: 0,
      active: 0,
      peak: 0,
      doing: "",
      iteration: -1,
      copy: null,
    };
  const { ways, deeds, held, copies } = holder;
  const deed = deeds[countUntil(deeds, t, (one) => one.start) - 1];
  const upTo = countUntil(held.t, t, (at) => at);
  const now = layers.map(({ name }) => layerAt(holder, name, ranks, t));
  let peak = 0;
  for (let i = 0; i < upTo; i++) peak = Math.max(peak, held.bytes[i]);
  const doing =
    deed && t < deed.end
      ? deed.kind
      : ways.some((way) => way.measuring && way.start <= t && t < way.end)
        ? "measuring"
        : "";
  return {
    rank,
    layers: now,
    held: heldAt(held, t),
    active: heldAt(holder.active, t),
    peak,
    doing,
    iteration: deed?.iteration ?? -1,
    copy: copies[countUntil(copies, t, (one) => one.t) - 1] ?? null,
  };
}

/**
 * @param {import("./index.js").Holder} holder
 * @param {string} name
 * @param {number} ranks
 * @param {number} t
 * @returns {LayerNow}
 */
function layerAt(holder, name, ranks, t) {
  const layer = holder.layers.get(name);
  const held = heldAt(layer, t);
  const since = heldSince(layer, t);
  // The last collective of this layer that had begun.
  let way = null;
  for (
    let i = countUntil(holder.ways, t, (one) => one.start) - 1, looked = 0;
    i >= 0 && !way && looked < 256;
    i--, looked++
  )
    if (holder.ways[i].layer === name) way = holder.ways[i];
  const on = way && t < way.end ? way : null;
  if (on && on.what === "reduce")
    return {
      name,
      state: "reducing",
      arrived: arrivedBy(holder, on, ranks, t),
      since: on.start,
      held,
      way: on,
    };
  if (held) return { name, state: "whole", arrived: [], since, held, way: null };
  if (on)
    return {
      name,
      state: "gathering",
      arrived: arrivedBy(holder, on, ranks, t),
      since: on.start,
      held,
      way: on,
    };
  if (way && way.what === "gather" && way.start > since && !way.measuring)
    return {
      name,
      state: "there",
      arrived: Array.from({ length: ranks }, () => 1),
      since: way.end,
      held,
      way,
    };
  return { name, state: "part", arrived: [], since, held, way: null };
}

/**
 * Of each rank's part, the share that has come by t.
 * @param {import("./index.js").Holder} holder
 * @param {Way} way
 * @param {number} ranks
 * @param {number} t
 */
function arrivedBy(holder, way, ranks, t) {
  const got = Array.from({ length: ranks }, () => 0);
  const each = way.nbytes / ranks;
  for (const { t: at, chunk, nbytes } of holder.arrivals.get(way.op) ?? [])
    if (at <= t && chunk >= 0 && chunk < ranks) got[chunk] += nbytes;
  return got.map((nbytes) => (each > 0 ? Math.min(1, nbytes / each) : 0));
}

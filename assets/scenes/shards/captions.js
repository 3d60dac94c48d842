// @ts-check
/**
 * A sharded model in words: who holds what, why, against a rank that keeps everything.
 *
 * @typedef {import("./frame.js").ShardsFrame} ShardsFrame
 * @typedef {import("./frame.js").ShardFacts} ShardFacts
 * @typedef {import("./frame.js").LayerNow} LayerNow
 */
import { failedWords } from "../../engine/failure_caption.js";
import { bytes, counted, duration, sentence } from "../../engine/format.js";
import { heldByReader } from "../../engine/run_words.js";

const HOLDER_DOING = /** @type {Record<string, string>} */ ({
  load: "loads samples",
  forward: "computes forward",
  backward: "computes backward",
  optimizer: "updates its parts",
  measuring: "measures",
});

/** @param {ShardFacts | null | undefined} facts */
export function factsWords(facts) {
  if (!facts) return "";
  const what =
    facts.units === "whole" ? "the whole model at once" : counted(facts.layers.length, "layer");
  return [
    what,
    facts.free ? "" : "kept after forward",
    facts.ahead ? `gathered ${facts.ahead} ahead` : "",
  ]
    .filter(Boolean)
    .join(", ");
}

/**
 * One sentence: what the rank in question does with which layer, and what it holds.
 * @param {import("../../engine/player.js").Known} known
 * @param {ShardsFrame | null} frame
 * @param {number} chosen
 * @param {boolean} newest
 */
export function sentenceOf(known, frame, chosen, newest) {
  if (known.state === "failed" && newest)
    return known.words ? failedWords(known) : "The run failed.";
  if (!frame || frame.holders.every(({ held }) => !held))
    return known.table.rows && known.state === "running"
      ? "No layer has been gathered yet."
      : sentence(known);
  const rank =
    chosen >= 0
      ? chosen
      : frame.holders.reduce(
          (most, holder) => (holder.held > frame.holders[most].held ? holder.rank : most),
          0,
        );
  const holder = frame.holders[rank];
  const whole = holder.layers.filter(({ held }) => held > 0);
  const coming = holder.layers.find(({ state }) => state === "gathering");
  const sum = holder.layers.find(({ state }) => state === "reducing");
  const what = sum
    ? `adds up layer ${sum.name}'s gradient with the others`
    : coming
      ? `gathers layer ${coming.name}`
      : (HOLDER_DOING[holder.doing] ?? "is between two steps");
  const there = holder.layers.filter(({ state }) => state === "there").map(({ name }) => name);
  const holds =
    whole.length === 0
      ? there.length
        ? `all parts of ${there.length > 2 ? `${there.length} layers` : `layer${there.length > 1 ? "s" : ""} ${there.join(" and ")}`} there, not unpacked yet`
        : "no layer whole"
      : whole.length === 1
        ? `layer ${whole[0].name} whole`
        : whole.length === holder.layers.length
          ? "every layer whole"
          : `${whole.length} layers whole`;
  const model = holder.held - holder.active;
  const share = frame.unsharded
    ? `, ${Math.round((100 * model) / frame.unsharded)} % of unsharded`
    : "";
  return (
    `${heldByReader(known, newest)}Rank ${rank} ${what}, ${holds}: ${bytes(model)} of the ` +
    `model${share}${holder.active > 0 ? `, and ${bytes(holder.active)} of activations` : ""}.`
  );
}

/** @param {ShardsFrame} frame @param {number} rank @param {number} layer @returns {string[]} */
export function cellWords(frame, rank, layer) {
  const { name, kind, bytes: size, parts } = frame.layers[layer];
  const now = frame.holders[rank].layers[layer];
  const all = size || 1;
  const lines = [`layer ${name}${kind ? ` (${kind})` : ""}${size ? `: ${bytes(size)}` : ""}`];
  if (size)
    lines.push(
      parts[rank]
        ? `rank ${rank} keeps ${bytes(parts[rank])}, ${Math.round((100 * parts[rank]) / all)} %`
        : `rank ${rank} keeps nothing of it: fewer rows than ranks`,
    );
  return [...lines, layerStateWords(frame, now, rank)];
}

/** @param {ShardsFrame} frame @param {LayerNow} now @param {number} rank */
function layerStateWords(frame, now, rank) {
  const ago = now.since >= 0 ? duration(Math.max(0, frame.t - now.since)) : "";
  if (now.state === "whole") return `whole here for ${ago}: ${bytes(now.held)}`;
  if (now.state === "gathering")
    return (
      `being gathered for ${ago}: ${now.arrived.filter((share) => share >= 1).length} of ` +
      `${now.arrived.length - 1} other parts are here`
    );
  if (now.state === "there") return `all parts are here for ${ago}, not unpacked yet`;
  if (now.state === "reducing")
    return (
      `its gradient is added up around the ring for ${ago}; rank ${rank} keeps its part of ` +
      "the sum"
    );
  return now.since >= 0 ? `only its own part for ${ago}` : "only its own part";
}

/** @param {ShardsFrame} frame @param {number} rank @returns {string[]} */
export function holderWords(frame, rank) {
  const { held, active, peak, doing, iteration, layers, copy } = frame.holders[rank];
  const whole = layers.filter((layer) => layer.held > 0);
  if (!held) return [`rank ${rank}: nothing is known yet`];
  return [
    "rank " +
      `${rank}${iteration >= 0 ? `, iteration ${iteration + 1}` : ""}${doing ? `: ${HOLDER_DOING[doing]}` : ""}`,
    `holds ${bytes(held)}, of it ${bytes(active)} activations`,
    whole.length
      ? `whole here: ${whole
          .map(({ name }) => name)
          .slice(0, 6)
          .join(", ")}${whole.length > 6 ? ` and ${whole.length - 6} more` : ""}`
      : "no layer is whole here",
    `at most so far: ${bytes(peak)}`,
    ...(copy
      ? [
          `keeps a copy of rank ${copy.of}'s part, ${duration(frame.t - copy.t)} old: a process ` +
            "that takes its place receives it",
        ]
      : []),
  ];
}

/** @param {ShardsFrame} frame */
export const spokenWords = (frame) =>
  frame.holders
    .map(({ rank, held, layers }) => {
      const whole = layers.filter((layer) => layer.held > 0).map(({ name }) => name);
      return (
        `rank ${rank} holds ` +
        `${bytes(held)}${whole.length ? `, layer ${whole.join(" and ")} whole` : ""}`
      );
    })
    .join("; ");

// @ts-check
/**
 * What a rank does, in words, by the kind of a row.
 *
 * @typedef {import("./rank_activity.js").DoingMark} DoingMark
 * @typedef {import("./rank_activity.js").Doing} Doing
 */
import { COMPUTES } from "./waits.js";

/** What a rank does in a kind of row, now and then. @type {Record<string, [string, string]>} */
const DOES = {
  forward: ["computes the loss", "was computing the loss"],
  backward: ["computes gradients", "was computing gradients"],
  weight_grad: ["computes weight gradients", "was computing weight gradients"],
  optimizer: ["updates its parameters", "was updating its parameters"],
  load: ["loads its samples", "was loading its samples"],
  apply: ["applies a push", "was applying a push"],
  wait: ["waits", "was waiting"],
  send: ["sends", "was sending"],
  recv: ["receives", "was receiving"],
  reduce: ["adds", "was adding"],
  copy: ["copies", "was copying"],
  push: ["pushes to a server", "was pushing to a server"],
  pull: ["pulls parameters", "was pulling parameters"],
  collective: ["takes part in", "was taking part in"],
};

/** What is loaded where it is no file's samples. @type {Record<string, [string, string]>} */
const LOADS = {
  play: ["plays", "was playing"],
  sample: ["draws a minibatch", "was drawing a minibatch"],
};

export const EXAMPLES = "examples"; // a worker's wait for what servers of examples send

export const INSTANTS = new Set([
  "metric",
  "memory",
  "fault",
  "detect",
  "abort",
  "rebuild",
  "restore",
  "checkpoint",
  "clock",
]);

/** @param {string} kind @returns {"compute" | "wait" | "move"} */
export const sortOf = (kind) =>
  COMPUTES.has(kind) ? "compute" : kind === "wait" ? "wait" : "move";

/** "all_reduce" is the all-reduce. @param {string} collective */
export const collectiveWords = (collective) =>
  collective === "p2p" || !collective ? "a message" : `the ${collective.replaceAll("_", "-")}`;

/**
 * @param {string} kind
 * @param {{peer: number, chunk: number, collective: string, name?: string}} row
 * @param {boolean} past
 */
export function doesWords(kind, { peer, chunk, collective, name }, past) {
  if (kind === "load" && name && LOADS[name]) return LOADS[name][past ? 1 : 0];
  const does = (DOES[kind] ?? [`is in ${kind}`, `was in ${kind}`])[past ? 1 : 0];
  const what = chunk >= 0 ? ` chunk ${chunk}` : "";
  if (kind === "pull" && name === EXAMPLES)
    return (
      `${past ? "was waiting" : "waits"} for its ` +
      `examples${peer >= 0 ? ` from rank ${peer}` : ""}`
    );
  if (kind === "wait") return peer >= 0 ? `${does} for rank ${peer}` : does;
  if (kind === "send")
    return `${does}${what || " a message"}${peer >= 0 ? ` to rank ${peer}` : ""}`;
  if (kind === "recv" || kind === "reduce")
    return `${does}${what || " a message"}${peer >= 0 ? ` from rank ${peer}` : ""}`;
  return kind === "collective" ? `${does} ${collectiveWords(collective)}` : does;
}

/**
 * What is known of a rank whose host is cut off.
 * @param {string} host
 */
export const awayWords = (host) => `host ${host} is cut off: what it does is not known`;

/** @param {number} rank @param {DoingMark} mark @param {string} words @returns {Doing} */
export const plain = (rank, mark, words) => ({
  rank,
  mark,
  halo: false,
  words,
  waits: 0,
  forWhom: -1,
  long: false,
});

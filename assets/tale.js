// @ts-check
/**
 * What a run is told in: the collectives that its ranks complete together, with the bursts of messages between them; where there
 * are none, the rounds of a parameter server or a pipeline's passes. All have the form of the table's calls, which is what the player goes by.
 *
 * @typedef {import("./player.js").Known} Known
 * @typedef {import("./model.js").Call} Call
 */
import { mixingsOf } from "./peers_rounds.js";
import { pairsOf } from "./pairs.js";
import { passesOf } from "./pipeline_rounds.js";
import { roundsOf } from "./server_rounds.js";
import { shardingsOf } from "./shards_rounds.js";
import { talkOf } from "./talk.js";

/** By what it is told of: what one steps by, the strip's words, what the badge says is real. */
export const TALES = /** @type {Record<string, {units: Record<string, string>, strip: string, real: string}>} */ ({
  rounds: { units: { chunk: "message", step: "update", iteration: "round" }, strip: "rounds", real: "real pushes and pulls" },
  mixings: { units: { chunk: "message", step: "iteration", iteration: "mixing" }, strip: "mixings", real: "real messages" },
  passes: { units: { chunk: "action", step: "microbatch", iteration: "iteration" }, strip: "iterations", real: "real microbatches" },
  pairs: { units: { chunk: "chunk", step: "arrival", iteration: "pair" }, strip: "pairs", real: "two calls from one start" },
  shardings: { units: { chunk: "gather or free", step: "gather or free", iteration: "iteration" }, strip: "iterations", real: "real gathers" },
});
/** What one steps by in messages between two ranks. @type {Record<string, string>} */
const OF_MESSAGES = { chunk: "message" };
/** What one steps by there. @param {{group: string, collective: string} | null | undefined} call @returns {Record<string, string> | undefined} */
export const unitsOf = (call) => (call?.collective === "p2p" ? OF_MESSAGES : TALES[call?.group ?? ""]?.units);
/** Whether it is a call of the table: neither a round nor a pass. @param {{group: string} | null} call */
export const isCall = (call) => !!call && !TALES[call.group];

/** What the player goes by: the run, its rounds or passes in place of its calls where it has such. @param {Known} known @returns {Known} */
export function taleOf(known) {
  const told = roundsOf(known.table) ?? passesOf(known) ?? mixingsOf(known) ?? talkOf(known);
  return told ? { ...known, table: /** @type {any} */ (told) } : known;
}

/** A round or a pass by its key, opened. @param {Known} known @param {string} key @returns {Call | null} */
export const openTold = (known, key) => roundsOf(known.table)?.open(key) ?? passesOf(known)?.open(key) ?? mixingsOf(known)?.open(key) ?? shardingsOf(known)?.open(key) ?? pairsOf(known)?.open(key) ?? talkOf(known)?.open(key) ?? null;

// @ts-check
/**
 * What the player goes by: calls, one after another. The table of rows is one source of them: the
 * collectives that ranks complete together. Others are derived from its rows: bursts of messages, a
 * parameter server's rounds, a pipeline's passes.
 *
 * @typedef {import("./player.js").Known} Known
 * @typedef {import("./model.js").Call} Call
 * @typedef {import("./table.js").CallHead} CallHead
 * @typedef {{units: Record<string, string>, strip: string, real: string, where: string,
 *   numbered?: boolean, ofIterations?: boolean}} Words
 *   of calls that are derived: what one steps by, what the strip holds, what the badge says is
 *   real, how the page names the playhead's place; numbered: with "3 of 12" there, too;
 *   ofIterations: its number is an iteration's, which rows count from 0 and pages from 1
 * @typedef {{calls: CallHead[], newest: CallHead | null, rows: number, from: number, to: number,
 *   callOf: {get(key: string): CallHead | undefined, has(key: string): boolean},
 *   callAt(t: number, group?: string): CallHead | null, indexOf(call: CallHead | Call): number,
 *   open(key: string): Call | null}} CallSource
 *   newest: the newest one that is complete; callOf: by their keys; callAt: the one in which a
 *   moment lies; open: with its rows and flights, null if there is none of that key
 * @typedef {Omit<Known, "table"> & {table: CallSource, choice?:
 *   import("./call_choice.js").CallChoice}} Telling  a run as the player tells it, and which of
 *   its calls
 * @typedef {(known: Known) => CallSource | null} FindSource  null: there is nothing of the kind
 */
import { burstsOf } from "./bursts_of_run.js";

/** What one steps by in messages between two ranks. @type {Record<string, string>} */
const OF_MESSAGES = { chunk: "message" };
/**
 * What one steps by there.
 * @param {{collective: string, words?: Words} | null | undefined} call
 * @returns {Record<string, string> | undefined}
 */
export const unitsOf = (call) => (call?.collective === "p2p" ? OF_MESSAGES : call?.words?.units);
/**
 * Whether it is a call of the table or a burst of messages: neither a round nor a pass.
 * @param {{words?: Words} | null} call
 */
export const isCall = (call) => !!call && !call.words;

/**
 * Return the units that a run is shown in: the first of these sources that has any, else its messages
 * with its calls, else its calls alone.
 * @param {Known} known
 * @param {FindSource[]} sources
 * @returns {CallSource}
 */
export function sourceOf(known, sources) {
  for (const find of sources) {
    const source = find(known);
    if (source) return source;
  }
  return burstsOf(known) ?? known.table;
}

/**
 * A call by its key, opened, whichever source it is of.
 * @param {Known} known
 * @param {string} key
 * @param {FindSource[]} sources
 * @returns {Call | null}
 */
export function openCallOf(known, key, sources) {
  const collective = known.table.open(key);
  if (collective) return collective;
  for (const find of sources) {
    const call = find(known)?.open(key);
    if (call) return call;
  }
  return burstsOf(known)?.open(key) ?? null;
}

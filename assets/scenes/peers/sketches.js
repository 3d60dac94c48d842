// @ts-check
/**
 * What replicas recorded of an iteration: their sketches, or nothing any more.
 *
 * @typedef {import("./index.js").Replica} Replica
 * @typedef {import("./index.js").Sketched} Sketched
 */
import { goneSince } from "../../engine/generations.js";
import { countUntil } from "../../engine/search.js";

/**
 * @param {Replica} replica
 * @param {number} iteration
 * @param {number} numbers
 * @returns {Sketched | undefined}
 */
export function sketchedIn({ done }, iteration, numbers) {
  const newest = done[countUntil(done, iteration, (one) => one.iteration) - 1];
  return newest?.iteration === iteration && newest.filled >= numbers ? newest : undefined;
}

/**
 * Whether a replica may still tell of an iteration: not one that is gone, or that was, and is in a
 * later one.
 * @param {import("../../engine/table.js").Table} table
 * @param {Replica} replica
 * @param {number} iteration
 */
export const mayTell = (table, { rank, done, lost }, iteration) =>
  Number.isNaN(goneSince(table, rank, Infinity, lost)) &&
  !((done[done.length - 1]?.iteration ?? -1) > iteration);

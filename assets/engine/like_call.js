// @ts-check
/**
 * The newest complete call of the same kind as one that goes on, or broke off: it tells which links and
 * chunks are still to come. Pure functions.
 *
 * @typedef {import("./model.js").Call} Call
 * @typedef {import("./table.js").Table} Table
 */
import { openCall } from "./model.js";

/**
 * Complete calls that were opened for what they tell of others: the last of each table.
 * @type {WeakMap<Table, Call>}
 */
const openedOf = new WeakMap();

/**
 * Return a complete call of the same operation, algorithm and group; null: there is none yet.
 * @param {Table} table
 * @param {Call} call
 * @returns {Call | null}
 */
export function likeCall(table, call) {
  const head = table.calls.findLast(
    (c) =>
      c.complete &&
      c.generation === call.generation &&
      c.group === call.group &&
      c.collective === call.collective &&
      c.algorithm === call.algorithm,
  );
  if (!head) return null;
  const had = openedOf.get(table);
  if (had?.key === head.key) return had;
  const opened = openCall(table, head);
  openedOf.set(table, opened);
  return opened;
}

/**
 * Return the chunks that a call which is not complete will have, as one like it had; none are known of
 * messages that ranks send as they like.
 * @param {Table} table
 * @param {Call} call
 * @returns {number[]}
 */
export function chunksToCome(table, call) {
  if (call.complete || call.collective === "p2p") return [];
  const like = likeCall(table, call);
  return [...new Set(like?.flights.map(({ chunk }) => chunk))];
}

// @ts-check
/**
 * The bursts of a run's messages, kept for each table of rows.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {import("./player.js").Known} Known
 * @typedef {import("./message_bursts.js").CellMark} CellMark
 */
import { Bursts } from "./message_bursts.js";

const burstsOfTables = /** @type {WeakMap<Table, Bursts>} */ (new WeakMap());

/**
 * Whether something else explains the messages between ranks: a plan of their own, or replicas that
 * tell of themselves.
 * @param {Known} known
 */
const isExplained = ({ run, table }) =>
  !!(run?.pipeline || run?.inputs || run?.server || run?.pair || run?.peers) ||
  table.strings.includes("sketch");

/**
 * What ranks say to each other in messages, with their collectives; null where there is nothing of
 * the kind.
 * @param {Known} known @param {number} [at]  the page's clock, ms
 * @returns {Bursts | null}
 */
export function burstsOf(known, at = performance.now()) {
  const { table } = known;
  if (isExplained(known)) return null;
  if (
    !burstsOfTables.has(table) &&
    !table.strings.includes("p2p") &&
    !table.strings.includes("cell")
  )
    return null;
  let bursts = burstsOfTables.get(table);
  if (!bursts) burstsOfTables.set(table, (bursts = new Bursts(table)));
  const over = ["finished", "failed", "replay"].includes(known.state);
  bursts.update(known, !over && Number.isFinite(known.clock) ? known.clock + at * 1e6 : NaN, over);
  return bursts.bursts.size ? bursts : null;
}

/**
 * The newest cell of a notebook that ranks have begun, or undefined.
 * @param {Known} known
 * @returns {CellMark | undefined}
 */
export function newestCell(known) {
  burstsOf(known);
  return burstsOfTables.get(known.table)?.cells.at(-1);
}

/**
 * Which of all bursts, and of how many.
 * @param {Known} known
 * @param {{key: string}} call
 * @returns {[number, number]}
 */
export function burstNumber(known, call) {
  const all = [...(burstsOf(known)?.calls ?? [])].filter((one) => one.collective === "p2p");
  return [all.findIndex((one) => one.key === call.key) + 1, all.length];
}

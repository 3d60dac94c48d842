// @ts-check
/**
 * How a sharded run is cut into units where its layers are on show: iterations, at an even
 * pace. They have the form of the table's calls, so that the player (player.js) tells them as it
 * tells those.
 *
 * @typedef {import("../../engine/table.js").Table} Table
 * @typedef {import("../../engine/table.js").CallHead} CallHead
 * @typedef {import("../../engine/derived_calls.js").Contents} Contents
 */
import { clockOf } from "../../engine/model.js";
import { indexOf } from "./index.js";
import { DerivedCalls } from "../../engine/derived_calls.js";

/** @type {import("../../engine/call_source.js").Words} */
const SHARDINGS_WORDS = {
  units: { chunk: "gather or free", step: "gather or free", iteration: "iteration" },
  strip: "iterations",
  real: "real gathers",
  where: "iteration",
  ofIterations: true,
};

export class Shardings extends DerivedCalls {
  /** @param {Table} table */
  constructor(table) {
    super(table, "shardings", "sharding", SHARDINGS_WORDS);
    this.index = indexOf(table);
  }

  /** Add the iterations that have come since; the last goes on. @param {number} ranks */
  update(ranks) {
    const index = indexOf(this.table);
    // row numbers have changed
    if (this.life !== this.table.life) Object.assign(this, new Shardings(this.table));
    if (index.version === this.read) return this;
    this.read = index.version;
    this.index = index;
    const { calls } = this;
    while (calls.length && !calls[calls.length - 1].complete)
      this.callOf.delete(/** @type {CallHead} */ (calls.pop()).key);
    const first = calls.length ? calls[calls.length - 1].iteration + 1 : -Infinity;
    const all = [...index.iterations.values()].sort((a, b) => a.iteration - b.iteration);
    for (const { iteration, from, to, done } of all)
      if (iteration >= first)
        this.put(iteration, from, Math.max(from + 1, to), done.size >= ranks, 1);
    return this;
  }

  /**
   * An iteration: when a layer became whole or free again.
   * @param {CallHead} head
   * @returns {Contents}
   */
  contents(head) {
    const times = [...this.index.holders.values()]
      .flatMap(({ layers }) => [...layers.values()].flatMap(({ t }) => t))
      .filter((t) => t >= head.start && t <= head.end);
    return {
      number: head.iteration + 1,
      flights: [],
      moments: [...new Set(times.map((t) => t - head.start))].sort((a, b) => a - b),
      clock: clockOf([], head.end - head.start),
    };
  }
}

const shardingsOfTables = /** @type {WeakMap<Table, Shardings>} */ (new WeakMap());

/**
 * This run's iterations, or null where no layer is gathered.
 * @param {import("../../engine/player.js").Known} known
 * @returns {Shardings | null}
 */
export function shardingsOf({ table, run }) {
  if (!indexOf(table).present) return null;
  let shardings = shardingsOfTables.get(table);
  if (!shardings) shardingsOfTables.set(table, (shardings = new Shardings(table)));
  return shardings.update(run?.ranks ?? 1);
}

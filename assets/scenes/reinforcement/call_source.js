// @ts-check
/**
 * How a run with actors and one learner is cut into units: its *updates*, each from the end of the one
 * before to its own, so that what actors and replay do meanwhile is seen too. Where there are
 * servers of parameters it is shown in their rounds. They have the form of the table's calls, so
 * that the player (player.js) tells them as it tells those.
 *
 * @typedef {import("../../engine/table.js").Table} Table
 * @typedef {import("../../engine/table.js").CallHead} CallHead
 * @typedef {import("../../engine/derived_calls.js").Contents} Contents
 */
import { DerivedCalls, contentsOf, flightsIn } from "../../engine/derived_calls.js";
import { arrivalOf, indexOf, rolesOf } from "./index.js";

const MOST_IN_UPDATE = 600; // messages of an update, that its pace is fitted to

/** @type {import("../../engine/call_source.js").Words} */
const UPDATE_WORDS = {
  units: { chunk: "message", step: "message", iteration: "update" },
  strip: "updates",
  real: "real messages",
  where: "update",
};

export class Updates extends DerivedCalls {
  /** @param {Table} table @param {number} learner */
  constructor(table, learner) {
    super(table, "updates", "update", UPDATE_WORDS);
    this.learner = learner;
    this.index = indexOf(table);
  }

  /** Add the updates that have ended since; the last one goes on. */
  update() {
    const { table, calls, learner } = this;
    if (this.life !== table.life) Object.assign(this, new Updates(table, learner)); // row numbers have changed
    this.index = indexOf(table);
    if (this.index.version === this.read || !Number.isFinite(table.from)) return this;
    this.read = this.index.version;
    if (calls.length && !calls[calls.length - 1].complete)
      this.callOf.delete(/** @type {CallHead} */ (calls.pop()).key);
    const { t, v } = this.index.of(learner, "version");
    let start = calls.at(-1)?.end ?? Math.max(0, table.from);
    for (let k = calls.length; k < t.length; k++) {
      const end = Math.max(start + 1, t[k]);
      this.put(v[k], start, end, true, 1);
      start = end;
    }
    if (table.to > start) this.put((v.at(-1) ?? 0) + 1, start, table.to, false, 1);
    return this;
  }

  /**
   * An update: what flew, counted from its start, and its pace.
   * @param {CallHead} head
   * @returns {Contents}
   */
  contents(head) {
    const all = this.index.flownBetween(head.start, head.end, MOST_IN_UPDATE);
    const messages = all.map((one) => ({ ...one, phase: one.kind, end: arrivalOf(one) }));
    return contentsOf(head, head.iteration, flightsIn(head, messages));
  }
}

const updatesOfTables = /** @type {WeakMap<Table, Updates>} */ (new WeakMap());

/**
 * This run in updates of its one learner, or null where there is none.
 * @param {import("../../engine/player.js").Known} known
 */
export function updatesOf({ table, run }) {
  const roles = rolesOf(run);
  if (!roles || roles.servers.length || roles.learners.length !== 1) return null;
  let updates = updatesOfTables.get(table);
  if (!updates) updatesOfTables.set(table, (updates = new Updates(table, roles.learners[0])));
  return updates.update();
}

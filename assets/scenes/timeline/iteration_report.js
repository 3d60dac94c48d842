// @ts-check
/**
 * What the iteration before the playhead was made of, and who held up whom in it: worked out once
 * an iteration.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./index.js").TimelineIndex} TimelineIndex
 * @typedef {import("./step_facts.js").StepFacts} StepFacts
 */
import { badEnds } from "../../engine/deaths.js";
import { lostAt } from "../../engine/generations.js";
import { timeSpent } from "../../engine/time_spent.js";
import { RECENT, beginningOf, stragglerOf } from "./captions.js";

/**
 * Return the ranks that have ended, and were not replaced.
 * @param {import("../../engine/player.js").Known} known
 */
export const goneRanks = (known) =>
  new Set([...badEnds(known.control).keys(), ...lostAt(known, Infinity).keys()]);

export class IterationReport {
  constructor() {
    this.key = "";
    this.iteration = -1;
    this.facts = /** @type {StepFacts[]} */ ([]);
    this.straggler = /** @type {any} */ (null);
  }

  /** Report on the newest iteration that all ranks have ended. @param {Look} look @param {TimelineIndex} index */
  update(look, index) {
    const around = index.around(look.t);
    const newest = index.newestDone();
    const iteration = around
      ? Math.min(around.done ? around.iteration : around.iteration - 1, newest)
      : -1;
    const key = [iteration, look.table.life].join();
    if (key === this.key) return this;
    const factsOf = (/** @type {number} */ i) => (i < 0 ? [] : index.factsOf(i, look.t));
    const facts = factsOf(iteration);
    const spent = index.script ? null : timeSpent(look.table, facts);
    for (const f of facts) f.spent = spent?.get(f.rank);
    const recent = Array.from({ length: RECENT }, (_, k) =>
      factsOf(iteration - RECENT + 1 + k),
    ).filter((f) => f.length);
    const straggler = index.script ? null : stragglerOf(recent, look.known.run?.cores ?? 0);
    const first = Math.min(
      ...[...index.ranks.values()].map((rank) => rank.steps[0]?.iteration ?? Infinity),
    );
    if (straggler)
      Object.assign(straggler, beginningOf(factsOf, straggler.rank, iteration, Math.max(0, first)));
    return Object.assign(this, { key: facts.length ? key : "", iteration, facts, straggler });
  }
}

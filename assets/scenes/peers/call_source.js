// @ts-check
/**
 * How a run in which replicas mix now and then is cut into units: *mixings*, each from the end of the one
 * before to its own, so that what the ranks do for themselves in between is seen too. One ends when
 * the last rank has done the iteration at whose end they mix. They have the form of the table's
 * calls, so that the player (player.js) tells them as it tells those.
 *
 * @typedef {import("../../engine/table.js").Table} Table
 * @typedef {import("../../engine/table.js").CallHead} CallHead
 * @typedef {import("../../engine/derived_calls.js").Contents} Contents
 * @typedef {import("./index.js").PeerFacts} PeerFacts
 */
import { arrivedAt, mixes, peerFacts, indexOf } from "./index.js";
import { countUntil } from "../../engine/search.js";
import { DerivedCalls, contentsOf, flightsIn } from "../../engine/derived_calls.js";

const MOST_FLOWN = 600; // of a mixing, that its pace is fitted to

/**
 * The iteration at whose end the replicas mix first.
 * @param {PeerFacts | null | undefined} facts
 */
export const firstMixing = (facts) => facts?.first ?? Math.max(1, facts?.every ?? 1) - 1;
/**
 * Which mixing an iteration leads to, counted from 0.
 * @param {PeerFacts | null | undefined} facts
 * @param {number} iteration
 */
export function mixingOf(facts, iteration) {
  const first = firstMixing(facts);
  return iteration <= first ? 0 : Math.ceil((iteration - first) / Math.max(1, facts?.every ?? 1));
}

/** @type {import("../../engine/call_source.js").Words} */
const MIXINGS_WORDS = {
  units: { chunk: "message", step: "iteration", iteration: "mixing" },
  strip: "mixings",
  real: "real messages",
  where: "mixing",
};

export class Mixings extends DerivedCalls {
  /** @param {Table} table */
  constructor(table) {
    super(table, "mixings", "mixing", MIXINGS_WORDS);
    this.plan = "";
    this.index = /** @type {import("./index.js").PeersIndex | null} */ (null);
  }

  /**
   * Add the mixings that have ended since; the last one goes on.
   * @param {import("../../engine/player.js").Known} known
   */
  update(known) {
    const index = indexOf(known);
    const facts = peerFacts(known.run);
    const plan = `${facts?.every} ${facts?.first}`;
    if (this.life !== this.table.life || plan !== this.plan)
      // row numbers have changed, or when they mix
      Object.assign(this, new Mixings(this.table), { plan });
    if (index.version === this.read || !Number.isFinite(this.table.from)) return this;
    this.read = index.version;
    this.index = index;
    const { calls } = this;
    if (calls.length && !calls[calls.length - 1].complete)
      this.callOf.delete(/** @type {CallHead} */ (calls.pop()).key);
    const last = calls[calls.length - 1];
    const { spreads } = index;
    let start = last ? last.end : Math.max(0, this.table.from);
    let from = last ? last.iteration : 0; // the mixing that follows: their numbers begin with 1
    for (
      let k = countUntil(spreads, from - 0.5, (one) => mixingOf(facts, one.iteration));
      k < spreads.length;
      k++
    ) {
      const mixing = mixingOf(facts, spreads[k].iteration);
      // one ends where the next iteration leads to another
      if (mixingOf(facts, spreads[k].iteration + 1) === mixing) continue;
      this.put(mixing + 1, start, Math.max(start + 1, spreads[k].t), true, 1);
      start = Math.max(start + 1, spreads[k].t);
      from = mixing + 1;
    }
    if (this.table.to > start) this.put(from + 1, start, this.table.to, false, 1);
    return this;
  }

  /**
   * A mixing: what flew, counted from its start, and its pace.
   * @param {CallHead} head
   * @returns {Contents}
   */
  contents(head) {
    const all = this.index?.flownBetween(head.start, head.end, MOST_FLOWN) ?? [];
    const messages = all.map((f) => ({
      ...f,
      step: f.iteration,
      phase: f.name,
      end: arrivedAt(f),
    }));
    return contentsOf(head, head.iteration, flightsIn(head, messages));
  }
}

const mixingsOfTables = /** @type {WeakMap<Table, Mixings>} */ (new WeakMap());

/**
 * This run in mixings, or null where replicas do not differ.
 * @param {import("../../engine/player.js").Known} known
 * @returns {Mixings | null}
 */
export function mixingsOf(known) {
  if (!mixes(known)) return null;
  let mixings = mixingsOfTables.get(known.table);
  if (!mixings) mixingsOfTables.set(known.table, (mixings = new Mixings(known.table)));
  return mixings.update(known);
}

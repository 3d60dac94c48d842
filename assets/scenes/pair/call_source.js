// @ts-check
/**
 * Two calls from one start: of a page that compares two algorithms, the k-th call of the one beside
 * the k-th of the other, as one piece of the tale, so that one playhead goes through both on one
 * scale.
 *
 * @typedef {import("../../engine/table.js").Table} Table
 * @typedef {import("../../engine/table.js").CallHead} CallHead
 * @typedef {import("../../engine/derived_calls.js").Contents} Contents
 * @typedef {{group: string, label: string, notes?: string[], own?: Record<string, any>}} Side  the
 *   group under which its rows are, what it is called, what of it is made by us, and the facts of
 *   its own, such as its links
 * @typedef {{left: Side, right: Side}} PairFacts
 */
import { openCall } from "../../engine/model.js";
import { DerivedCalls, contentsOf } from "../../engine/derived_calls.js";

/** @param {import("../../engine/player.js").Known} known @returns {PairFacts | null} */
export const pairOf = (known) => known.run?.pair ?? null;

/**
 * What is known of one side: its ranks, its links.
 * @param {import("../../engine/player.js").Known} known
 * @param {0 | 1} side
 */
export function knownOfSide(known, side) {
  const { run } = known;
  const own = pairOf(known)?.[side ? "right" : "left"].own;
  return run && own ? { ...known, run: { ...run, ...own } } : known;
}

/**
 * What is made by us: first of both, then of each side, whose name it has unless that is the name of
 * the very link ("link 0 → 1 at 10 Mbit/s").
 * @param {PairFacts | null} facts
 */
export function pairNotes(facts) {
  const [left, right] = [facts?.left, facts?.right].map((side) => side?.notes ?? []);
  const same = left.filter((note) => right.includes(note));
  const ofSide = (/** @type {string[]} */ notes, label = "") => {
    const [link = ""] = /^link \d+ \S \d+ /.exec(label) ?? [];
    return notes
      .filter((note) => !same.includes(note))
      .map((note) => (link && note.startsWith(link) ? note : `${label}: ${note}`));
  };
  return [...same, ...ofSide(left, facts?.left.label), ...ofSide(right, facts?.right.label)];
}

/** @type {import("../../engine/call_source.js").Words} */
const PAIRS_WORDS = {
  units: { chunk: "chunk", step: "arrival", iteration: "pair" },
  strip: "pairs",
  real: "two calls from one start",
  where: "pair",
  numbered: true,
};

class CallPairs extends DerivedCalls {
  /** @param {Table} table @param {PairFacts} facts */
  constructor(table, facts) {
    super(table, "pairs", "pair", PAIRS_WORDS);
    this.facts = facts;
  }

  /** @returns {this} */
  update() {
    if (this.read === this.table.epoch) return this;
    this.read = this.table.epoch;
    const { left, right } = this.facts;
    for (const one of this.table.calls.filter((c) => c.group === left.group && c.sends)) {
      const other = this.table.callOf.get(`${one.generation}/${right.group}/${one.op}`);
      if (other?.sends && !this.callOf.has(`pair/${one.op + 1}`))
        this.put(
          one.op + 1,
          Math.min(one.start, other.start),
          Math.max(one.end, other.end),
          true,
          one.rows + other.rows,
        );
    }
    return this;
  }

  /** The calls of both sides. @param {string} key @returns {[string, string]} */
  keys(key) {
    const op = Number(key.split("/")[1]) - 1;
    const first = this.table.calls.find((c) => c.group === this.facts.left.group && c.op === op);
    return [
      `${first?.generation ?? 0}/${this.facts.left.group}/${op}`,
      `${first?.generation ?? 0}/${this.facts.right.group}/${op}`,
    ];
  }

  /**
   * A pair: what flew on both sides, and its pace.
   * @param {CallHead} head
   * @returns {Contents}
   */
  contents(head) {
    const flights = this.keys(head.key)
      .flatMap((k) => this.table.callOf.get(k) ?? [])
      .map((h) => openCall(this.table, h))
      .flatMap((c) =>
        c.flights.map((f) => ({
          ...f,
          start: f.start + c.start - head.start,
          end: f.end + c.start - head.start,
        })),
      )
      .sort((a, b) => a.start - b.start);
    return contentsOf(head, head.iteration, flights);
  }
}

const pairsOfTables = /** @type {WeakMap<Table, CallPairs>} */ (new WeakMap());

/**
 * The pairs of a page that compares two, else null.
 * @param {import("../../engine/player.js").Known} known
 * @returns {CallPairs | null}
 */
export function pairsOf(known) {
  const facts = pairOf(known);
  if (!facts) return null;
  let pairs = pairsOfTables.get(known.table);
  if (!pairs) pairsOfTables.set(known.table, (pairs = new CallPairs(known.table, facts)));
  return pairs.update();
}

// @ts-check
/**
 * How a parameter server's run is cut into units. It has no calls that all ranks complete, and its pushes and
 * pulls fly for microseconds. So it is shown in *rounds*: round k lasts while the slowest worker is
 * in its iteration k, and ends when the last server has taken in that worker's push: then the wall
 * moves on. Rounds follow each other without a gap. They have the form of the table's calls, so
 * that the player (player.js) tells them as it tells those: live the newest one that is complete,
 * stretched to a few seconds, slower where something flies; rounds of seconds at the ranks' own
 * pace.
 *
 * @typedef {import("../../engine/table.js").Table} Table
 * @typedef {import("../../engine/table.js").CallHead} CallHead
 * @typedef {import("../../engine/derived_calls.js").Contents} Contents
 */
import { countUntil } from "../../engine/search.js";
import { indexOf } from "./index.js";
import { acceptedBy, turnAt } from "./lookups.js";
import { DerivedCalls, contentsOf, flightsIn } from "../../engine/derived_calls.js";

const LOOK_BACK = 6; // rounds
const MOST_FLIGHTS = 600; // of a round, that its pace is fitted to

/**
 * @typedef {{from: number, to: number, start: number, end: number, op: number, nbytes: number,
 *   kind: "push" | "pull", iteration: number, version: number}} Flight
 */

/**
 * What is on its way at some time between two moments, in the order in which it left.
 * @param {import("./index.js").ServerIndex} index
 * @param {number} from
 * @param {number} to
 * @returns {Flight[]}
 */
export function flightsBetween(index, from, to) {
  const flights = /** @type {Flight[]} */ ([]);
  for (const { worker, server, pushes, pulls } of index.pairs.values()) {
    for (let i = countUntil(pushes, to, (push) => push?.start ?? -Infinity) - 1; i >= 0; i--) {
      const push = pushes[i];
      if (!push) break;
      if (push.arrive <= from) break;
      if (push.arrive > push.start)
        flights.push({
          from: worker,
          to: server,
          start: push.start,
          end: push.arrive,
          op: push.op,
          nbytes: push.nbytes,
          kind: "push",
          iteration: i,
          version: push.on,
        });
    }
    for (
      let i = countUntil(pulls, to, (pull) => pull.depart) - 1;
      i >= 0 && pulls[i].end > from;
      i--
    ) {
      const pull = pulls[i];
      if (pull.end > pull.depart)
        flights.push({
          from: server,
          to: worker,
          start: pull.depart,
          end: pull.end,
          op: pull.op,
          nbytes: pull.nbytes,
          kind: "pull",
          iteration: pull.iteration,
          version: pull.version,
        });
    }
  }
  return flights.sort((a, b) => a.start - b.start);
}

/** @type {import("../../engine/call_source.js").Words} */
const ROUNDS_WORDS = {
  units: { chunk: "message", step: "update", iteration: "round" },
  strip: "rounds",
  real: "real pushes and pulls",
  where: "slowest: iteration",
  ofIterations: true,
};

export class Rounds extends DerivedCalls {
  /** @param {Table} table */
  constructor(table) {
    super(table, "rounds", "round", ROUNDS_WORDS);
    this.index = indexOf(table);
  }

  /** Add the rounds that have ended since; the last one goes on. */
  update() {
    const index = indexOf(this.table);
    // row numbers have changed
    if (this.life !== this.table.life) Object.assign(this, new Rounds(this.table));
    const { calls } = this;
    if (index.version === this.read) return this;
    this.read = index.version;
    this.index = index;
    if (calls.length && !calls[calls.length - 1].complete)
      this.callOf.delete(/** @type {CallHead} */ (calls.pop()).key);
    const pairs = [...index.pairs.values()];
    if (!pairs.length || !Number.isFinite(this.table.from)) return this;
    const first = Math.min(...pairs.map((pair) => pair.iterations[0] ?? Infinity));
    const began = Math.min(
      ...[...index.workers.values()]
        .map((worker) => worker.granted[0]?.granted)
        .filter((t) => t >= 0),
    );
    let k = calls.length ? calls[calls.length - 1].iteration + 1 : first;
    let start = calls.length
      ? calls[calls.length - 1].end
      : Math.max(0, Number.isFinite(began) ? began : this.table.from);
    for (let end = this.#endOf(pairs, k); !Number.isNaN(end); end = this.#endOf(pairs, ++k)) {
      this.put(k, start, Math.max(start, end), true, 1);
      start = Math.max(start, end);
    }
    const goesOn = [...index.workers.values()].some((worker) => worker.turns.length > k);
    if (goesOn && this.table.to > start) this.put(k, start, this.table.to, false, 1);
    return this;
  }

  /**
   * When the last server had taken in the last live worker's push of iteration k; NaN: not yet.
   * @param {import("./index.js").Pair[]} pairs
   * @param {number} k
   */
  #endOf(pairs, k) {
    let end = -Infinity;
    for (const { pushes, worker, server } of pairs) {
      const done = pushes[k]?.end ?? NaN;
      if (!(done >= 0)) {
        // it is not in: a worker that has gone, or was gone in that iteration, is not counted
        if (pushes.length > k + 1 && pushes[pushes.length - 1]?.end >= 0) continue;
        const gone = [worker, server].map((rank) => this.index.goneAt(rank, Infinity));
        const lost = Math.min(...gone.filter((t) => !Number.isNaN(t)));
        if (lost === Infinity) return NaN;
        end = Math.max(end, lost);
      } else end = Math.max(end, done);
    }
    const alive = pairs.some(({ pushes }) => pushes[k]?.end >= 0);
    return alive ? end : NaN;
  }

  /**
   * A round: what flew, counted from its start, and its pace.
   * @param {CallHead} head
   * @returns {Contents}
   */
  contents(head) {
    const all = flightsBetween(this.index, head.start, head.end).slice(0, MOST_FLIGHTS);
    const messages = all.map((f) => ({ ...f, step: f.iteration, phase: f.kind }));
    return contentsOf(head, head.iteration + 1, flightsIn(head, messages));
  }

  /**
   * How far the fastest led the slowest at most, at the ends of the last rounds up to t.
   * @param {number} t
   */
  lead(t) {
    const at = countUntil(this.calls, t, (round) => round.start) - 1;
    let lead = 0;
    for (let i = Math.max(0, at - LOOK_BACK); i < at; i++)
      for (const worker of this.index.workers.values())
        lead = Math.max(
          lead,
          (turnAt(worker, this.calls[i].end)?.iteration ?? 0) - this.calls[i].iteration,
        );
    return lead;
  }

  /** Pushes that every server has taken in of everybody by t. @param {number} t */
  slowest(t) {
    const alive = [...this.index.pairs.values()].filter(({ worker, server }) =>
      [worker, server].every((rank) => Number.isNaN(this.index.goneAt(rank, t))),
    );
    return alive.length
      ? Math.min(...alive.map((pair) => acceptedBy(pair, t, this.index.stride)))
      : 0;
  }
}

const ofTables = /** @type {WeakMap<Table, Rounds>} */ (new WeakMap());

/**
 * The rounds of this run, or null where no server served.
 * @param {Table} table
 * @returns {Rounds | null}
 */
export function roundsOf(table) {
  if (!indexOf(table).present) return null;
  let rounds = ofTables.get(table);
  if (!rounds) ofTables.set(table, (rounds = new Rounds(table)));
  return rounds.update();
}

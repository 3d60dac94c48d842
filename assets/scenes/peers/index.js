// @ts-check
/**
 * What a page knows of replicas that differ, kept up to date row by row: the numbers that each rank
 * recorded of its parameters after every iteration (its sketch), every message on its way, the
 * averagings of all. No browser, no drawing.
 *
 * A sketch is a few random projections of all parameters, the same on every rank: the distance
 * between two sketches estimates the distance between two replicas. Times are ns since the run's
 * origin; NaN is "not known yet".
 *
 * @typedef {import("../../engine/table.js").Table} Table
 * @typedef {{kind: string, edges: [number, number, number][], every: number, first?: number,
 *   synchronous: boolean, stands?: number[] | null, rate: number | null, words: string}} PeerFacts
 *   edges: from, to, weight in the mean; every: iterations from one mixing to the next; first: the
 *   iteration at whose end the first one is;
 *   stands: ranks that stand still for messages, null: all; rate: what mixing alone leaves of the
 *   disagreement, each time
 * @typedef {{iteration: number, t: number, v: number[], filled: number}} Sketched
 * @typedef {{rank: number, done: Sketched[], lost: number}} Replica  done: in the order of
 *   iterations
 * @typedef {{key: string, from: number, to: number, start: number, left: number, there: number,
 *   sent: number, got: number, nbytes: number, iteration: number, op: number, message: boolean,
 *   name: string}} Flown
 *   left: when its last byte had left; there: when it was taken in; sent, got: its pieces, of which
 *   there are rows; message: it is one of two ranks', not a collective's chunk
 * @typedef {{from: number, to: number, flown: Flown[], sums: number[], read: number}} Way  sums:
 *   bytes up to each; read: how many of them hold
 * @typedef {{iteration: number, t: number, of: Map<number, number>, rms: number, length: number}}
 *   Spread
 *   of: each rank's distance from the mean of the replicas; rms: the root of their mean square;
 *   length: of the mean itself
 */
import { goneSince, joinsWithin } from "../../engine/generations.js";
import { countUntil } from "../../engine/search.js";
import { mayTell, sketchedIn } from "./sketches.js";

const OTHER_GROUPS = new Set(["metrics", "control"]); // groups that do not train
const FLOWN_BACK = 16; // flights of a link that may be on their way at once
// of the last points of workers that run on their own time: rows of others may still come
const UNSURE = 4;

/** @param {Flown} flown  when it had arrived with all its pieces; NaN: not yet */
export const arrivedAt = (flown) => (flown.got >= flown.sent && flown.sent > 0 ? flown.there : NaN);

/**
 * How far each of some replicas is from their mean.
 * @param {[number, number[]][]} all  rank, its numbers
 */
export function spreadOf(all) {
  const n = Math.max(1, all.length);
  const size = Math.max(0, ...all.map(([, v]) => v.length));
  const mean = Array.from(
    { length: size },
    (_, j) => all.reduce((sum, [, v]) => sum + v[j], 0) / n,
  );
  const of = new Map(all.map(([rank, v]) => [rank, Math.hypot(...v.map((x, j) => x - mean[j]))]));
  return {
    of,
    rms: Math.sqrt([...of.values()].reduce((sum, d) => sum + d * d, 0) / n),
    length: Math.hypot(...mean),
  };
}

export class PeersIndex {
  /** @param {Table} table */
  constructor(table) {
    this.table = table;
    this.life = table.life;
    this.next = 0;
    this.version = 0; // grows with every change
    this.present = false; // there are replicas that differ
    this.numbers = 0; // of a sketch
    this.synchronous = true;
    this.replicas = /** @type {Map<number, Replica>} */ (new Map());
    this.ways = /** @type {Map<number, Way>} */ (new Map());
    this.flown = /** @type {Map<string, Flown>} */ (new Map());
    this.largest = 0; // bytes of a message, or of what is averaged: those of a replica
    this.spreads = /** @type {Spread[]} */ ([]); // of every iteration that all have done
  }

  /**
   * Take in the rows that have come since.
   * @param {PeerFacts | null} facts
   * @param {number} ranks  that there are; 0: as many as are heard of
   */
  update(facts, ranks) {
    const { table } = this;
    const { passages } = table;
    const synchronous = facts?.synchronous ?? true;
    if (table.life !== this.life)
      // row numbers have changed
      Object.assign(this, new PeersIndex(table), { version: this.version + 1 });
    if (synchronous !== this.synchronous)
      Object.assign(this, { synchronous, spreads: [], version: this.version + 1 });
    if (!this.present && !facts && !table.strings.includes("sketch")) return this;
    this.present = true;
    if (this.next >= table.rows) return this;
    for (let p = table.passage[this.next]; p < table.count; p++) {
      const first = Math.max(this.next, passages.first[p]);
      const end = passages.first[p] + passages.count[p];
      const away = OTHER_GROUPS.has(table.text(passages.group[p]));
      for (let row = first; row < end; row++) this.#row(p, row, away);
    }
    this.next = table.rows;
    this.version += 1;
    this.#spread(ranks);
    return this;
  }

  /**
   * @param {number} p
   * @param {number} row
   * @param {boolean} away  it is of a measurement, not of the training
   */
  #row(p, row, away) {
    const { table } = this;
    const { code } = table;
    const k = table.kind[row];
    const rank = table.passages.rank[p];
    if (k === code.metric && rank >= 0 && table.text(table.name[row]) === "sketch")
      this.#sketched(
        rank,
        table.passages.iteration[p],
        table.chunk[row],
        table.value[row],
        table.end[row],
      );
    else if ((k === code.send || k === code.recv) && !away)
      this.#moved(p, row, rank, k === code.send);
    else if (k === code.collective && !away && table.nbytes[row] > this.largest)
      this.largest = table.nbytes[row];
    else if (k === code.detect && table.text(table.name[row]) === "lost" && table.peer[row] >= 0) {
      const gone = this.replica(table.peer[row]);
      if (
        !(gone.lost <= table.end[row]) ||
        joinsWithin(table, gone.rank, gone.lost, table.end[row])
      )
        gone.lost = table.end[row];
    }
  }

  /** @param {number} rank @returns {Replica} */
  replica(rank) {
    let replica = this.replicas.get(rank);
    if (!replica) {
      this.replicas.set(rank, (replica = { rank, done: [], lost: NaN }));
      this.replicas = new Map([...this.replicas].sort(([a], [b]) => a - b));
    }
    return replica;
  }

  /**
   * @param {number} rank
   * @param {number} iteration
   * @param {number} j
   * @param {number} value
   * @param {number} t
   */
  #sketched(rank, iteration, j, value, t) {
    const { done } = this.replica(rank);
    const place = Math.max(0, j);
    let last = done[done.length - 1];
    if (!last || last.iteration !== iteration || last.v[place] !== undefined) {
      // after a recovery iterations are done again: earlier records of them count no more
      const upTo = (/** @type {{iteration: number}[]} */ all) =>
        countUntil(all, iteration - 1, (one) => one.iteration);
      done.splice(upTo(done));
      this.spreads.splice(upTo(this.spreads));
      done.push((last = { iteration, t, v: [], filled: 0 }));
    }
    last.v[place] = value;
    last.t = t;
    last.filled += 1;
    this.numbers = Math.max(this.numbers, last.filled);
  }

  /**
   * A piece of something between two ranks: its message, or its chunk of a collective.
   * @param {number} p
   * @param {number} row
   * @param {number} rank
   * @param {boolean} sent
   */
  #moved(p, row, rank, sent) {
    const { table } = this;
    const { passages } = table;
    const peer = table.peer[row];
    const op = passages.op[p];
    const message = table.text(passages.collective[p]) === "p2p";
    if (peer < 0 || op < 0 || rank < 0) return;
    const [from, to] = sent ? [rank, peer] : [peer, rank];
    const what = message ? "" : `/${table.step[row]}/${table.chunk[row]}`;
    const key = `${passages.generation[p]}/${passages.group[p]}/${from}>${to}/${op}${what}`;
    const nbytes = Math.max(0, table.nbytes[row]);
    let flown = this.flown.get(key);
    if (!flown)
      this.flown.set(
        key,
        (flown = {
          key,
          from,
          to,
          start: NaN,
          left: NaN,
          there: NaN,
          sent: 0,
          got: 0,
          nbytes: 0,
          iteration: passages.iteration[p],
          op,
          message,
          name: "",
        }),
      );
    if (!sent) {
      flown.got += 1;
      flown.there = Number.isNaN(flown.there)
        ? table.end[row]
        : Math.max(flown.there, table.end[row]);
      return;
    }
    const begins = !flown.sent;
    flown.sent += 1;
    flown.nbytes += nbytes;
    flown.iteration = passages.iteration[p];
    flown.name ||= table.text(table.name[row]);
    flown.start = begins ? table.start[row] : Math.min(flown.start, table.start[row]);
    flown.left = begins ? table.end[row] : Math.max(flown.left, table.end[row]);
    if (message) this.largest = Math.max(this.largest, flown.nbytes);
    this.#onWay(flown, begins);
  }

  /** @param {Flown} flown @param {boolean} begins */
  #onWay(flown, begins) {
    const number = flown.from * 65_536 + flown.to;
    let way = this.ways.get(number);
    if (!way)
      this.ways.set(
        number,
        (way = { from: flown.from, to: flown.to, flown: [], sums: [], read: 0 }),
      );
    if (!begins)
      return void (way.read = Math.min(way.read, Math.max(0, way.flown.lastIndexOf(flown))));
    let at = way.flown.length;
    while (at > 0 && way.flown[at - 1].start > flown.start) at--;
    way.flown.splice(at, 0, flown);
    way.read = Math.min(way.read, at);
  }

  /**
   * Points of the disagreement that are new: an iteration counts when every rank that lives has
   * done it.
   * @param {number} ranks
   */
  #spread(ranks) {
    const replicas = [...this.replicas.values()].filter(
      ({ rank, done, lost }) =>
        done.length || !Number.isNaN(goneSince(this.table, rank, Infinity, lost)),
    );
    const { spreads } = this;
    // of some nothing has come yet
    if (replicas.length < Math.max(1, ranks) || !replicas.some(({ done }) => done.length)) return;
    if (!this.synchronous) spreads.splice(Math.max(0, spreads.length - UNSURE));
    const oldest = Math.min(...replicas.map(({ done }) => done[0]?.iteration ?? Infinity));
    for (let k = spreads.length ? spreads[spreads.length - 1].iteration + 1 : oldest; ; k++) {
      const latest = replicas.map((replica) => ({
        replica,
        sketched: sketchedIn(replica, k, this.numbers),
      }));
      if (latest.some(({ replica, sketched }) => !sketched && mayTell(this.table, replica, k)))
        return;
      const sketches = latest.flatMap(({ replica, sketched }) =>
        sketched ? [{ replica, sketched }] : [],
      );
      if (!sketches.length) return;
      const t = Math.max(...sketches.map(({ sketched }) => sketched.t));
      spreads.push({
        iteration: k,
        t,
        ...(this.synchronous
          ? spreadOf(sketches.map(({ replica, sketched }) => [replica.rank, sketched.v]))
          : this.spreadAt(t)),
      });
    }
  }

  /**
   * How far the replicas are apart as they are at t, each after what it had done last.
   * @param {number} t
   */
  spreadAt(t) {
    return spreadOf(
      [...this.replicas.values()].flatMap((replica) => {
        const at = countUntil(replica.done, t, (one) => one.t) - 1;
        const last =
          replica.done[at]?.filled >= this.numbers ? replica.done[at] : replica.done[at - 1];
        return last && !(goneSince(this.table, replica.rank, t, replica.lost) <= t)
          ? [/** @type {[number, number[]]} */ ([replica.rank, last.v])]
          : [];
      }),
    );
  }

  /** What is on its way at t, in the order of links. @param {number} t @returns {Flown[]} */
  flyingAt(t) {
    const flying = [];
    for (const { flown } of this.ways.values()) {
      for (
        let i = countUntil(flown, t, (one) => one.start) - 1, seen = 0;
        i >= 0 && seen < FLOWN_BACK;
        i--, seen++
      )
        if (arrivedAt(flown[i]) > t) flying.push(flown[i]);
    }
    return flying;
  }

  /**
   * All that flew in this time, at most so many.
   * @param {number} from
   * @param {number} to
   * @param {number} most
   * @returns {Flown[]}
   */
  flownBetween(from, to, most) {
    const messages = /** @type {Flown[]} */ ([]);
    for (const { flown } of this.ways.values()) {
      const end = countUntil(flown, to, (one) => one.start);
      const begin = Math.max(0, countUntil(flown, from, (one) => one.start) - FLOWN_BACK);
      for (let i = begin; i < end; i++) if (arrivedAt(flown[i]) > from) messages.push(flown[i]);
    }
    return messages.sort((a, b) => a.start - b.start).slice(0, most);
  }

  /**
   * What had begun to go over a link by t.
   * @param {Way} way
   * @param {number} t
   * @returns {{nbytes: number, many: number}}
   */
  sentOver(way, t) {
    const { flown, sums } = way;
    const many = countUntil(flown, t, (one) => one.start);
    for (; way.read < many; way.read++)
      sums[way.read] = (way.read ? sums[way.read - 1] : 0) + flown[way.read].nbytes;
    return { nbytes: many ? sums[many - 1] : 0, many };
  }
}

const indexes = /** @type {WeakMap<Table, PeersIndex>} */ (new WeakMap());

/**
 * How replicas of a run are to mix, as its strategy says.
 * @param {import("../../engine/player.js").Known["run"]} run
 * @returns {PeerFacts | null}
 */
export const peerFacts = (run) => run?.peers ?? null;

/**
 * What is known of replicas that differ; `present` is false where there are none.
 * @param {import("../../engine/player.js").Known} known
 */
export function indexOf({ table, run, state }) {
  let index = indexes.get(table);
  if (!index) indexes.set(table, (index = new PeersIndex(table)));
  return index.update(
    peerFacts(run),
    run && (run.peers || !["finished", "failed", "replay"].includes(state)) ? run.ranks : 0,
  );
}

/** @type {WeakMap<PeersIndex, {key: string, all: number[]}>} */
const mixedOf = new WeakMap();

/**
 * Iterations in which replicas mixed: all took their mean, or sent each other something.
 * @param {Table} table @param {PeersIndex} index
 */
export function mixedIn({ calls, life }, index) {
  const key = `${life} ${calls.length} ${index.version}`;
  const known = mixedOf.get(index);
  if (known?.key === key) return known.all;
  const averages = calls.filter((call) => call.name.startsWith("average "));
  const flown = [...index.ways.values()].flatMap((way) => way.flown.filter((one) => one.message));
  const all = [...new Set([...averages, ...flown].map((one) => one.iteration))];
  mixedOf.set(index, { key, all });
  return all;
}

/**
 * Whether a run's replicas differ, so that there is something to see of how they mix.
 * @param {import("../../engine/player.js").Known} known
 */
export const mixes = (known) => !!known.run?.peers || known.table.strings.includes("sketch");

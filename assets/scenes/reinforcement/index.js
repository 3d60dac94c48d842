// @ts-check
/**
 * What a page knows of actors, replay, learners and servers, kept up to date row by row: every
 * message between them by its kind, what each rank computed when, what it measured, and which
 * version of the parameters it held. No browser, no drawing. Times are ns since the run's origin;
 * NaN is "not known yet".
 *
 * @typedef {import("../../engine/table.js").Table} Table
 * @typedef {{servers: number[], learners: number[], replays: number[], actors: number[],
 *   elements: number, parameters: number, transition: number, actions: number, batch: number,
 *   options: Record<string, any>}} RlRoles  ranks by role; parameters, transition: bytes
 * @typedef {{kind: string, from: number, to: number, op: number, start: number, there: number,
 *   sent: number, got: number, nbytes: number, version: number}} RlMessage
 *   start: its first byte left; there: its last was taken in; sent, got: its pieces, of which there
 *   are rows; version: that its sender had
 * @typedef {{kind: string, from: number, to: number, list: RlMessage[], sums: number[],
 *   read: number}} RlWay  the messages of one kind between two ranks, in the order in which they
 *   left; sums: bytes up to each, of which `read` hold
 * @typedef {{t: number[], v: number[], sums: number[], version: number[],
 *   peer: number[]}} Series
 *   v: values at the times t; sums: of the values up to each; version, peer: of the rows, or the
 *   place that a value is of
 * @typedef {{start: number[], end: number[], what: string[], peer: number[]}} Spans
 *   what a rank did, in the order of the ends
 */
import { countUntil } from "../../engine/search.js";

const APART = new Set(["metrics", "control"]); // groups that do not train
const SPANS = ["forward", "backward", "optimizer", "load", "apply", "push", "pull"];
const FLYING = 12; // messages of one way that may be on their way at once

/** When a message had arrived with all its pieces. @param {RlMessage} message */
export const arrivalOf = ({ sent, got, there }) => (sent > 0 && got >= sent ? there : NaN);

/** @returns {Series} */
const emptySeries = () => ({ t: [], v: [], sums: [], version: [], peer: [] });

/** Something a rank never measured. */
const NO_SERIES = emptySeries();

export class RlIndex {
  /** @param {Table} table */
  constructor(table) {
    this.table = table;
    this.life = table.life;
    this.next = 0;
    this.version = 0; // grows with every change
    this.series = /** @type {Map<string, Series>} */ (new Map()); // by rank and name
    this.spans = /** @type {Map<number, Spans>} */ (new Map()); // by rank
    this.messages = /** @type {Map<string, RlMessage>} */ (new Map());
    this.ways = /** @type {Map<string, RlWay>} */ (new Map()); // by kind and ranks
    this.held = /** @type {Map<string, Series>} */ (new Map()); // by rank and holder: its version
    this.lost = /** @type {Map<number, number>} */ (new Map()); // ranks that others found lost
  }

  /** Take in the rows that have come since. */
  update() {
    const { table } = this;
    const { passages } = table;
    if (table.life !== this.life)
      // row numbers have changed
      Object.assign(this, new RlIndex(table), { version: this.version + 1 });
    if (this.next >= table.rows) return this;
    for (let p = table.passage[this.next]; p < table.count; p++) {
      const first = Math.max(this.next, passages.first[p]);
      const end = passages.first[p] + passages.count[p];
      if (!APART.has(table.text(passages.group[p])))
        for (let row = first; row < end; row++) this.#row(p, row);
    }
    this.next = table.rows;
    this.version += 1;
    return this;
  }

  /** @param {number} p @param {number} row */
  #row(p, row) {
    const { table } = this;
    const { code, passages } = table;
    const k = table.kind[row];
    const rank = passages.rank[p];
    if (rank < 0) return;
    if (k === code.send || k === code.recv) return this.#moved(p, row, rank, k === code.send);
    if (k === code.metric)
      return this.#measured(`${rank} ${table.text(table.name[row])}`, p, row, table.value[row]);
    if (k === code.detect && table.peer[row] >= 0 && table.text(table.name[row]) === "lost") {
      const peer = table.peer[row];
      this.lost.set(peer, Math.min(this.lost.get(peer) ?? Infinity, table.end[row]));
      return;
    }
    const what = table.kindName(k);
    if (!SPANS.includes(what)) return;
    this.#did(rank, what === "load" ? table.text(table.name[row]) || what : what, row);
    if (what === "optimizer") this.#measured(`${rank} version`, p, row, passages.iteration[p] + 1);
    if (what === "apply") this.#measured(`${rank} version`, p, row, passages.version[p]);
    if (what === "pull" && table.peer[row] >= 0) {
      const key = `${rank}<${table.peer[row]}`;
      if (!this.held.has(key)) this.held.set(key, emptySeries());
      this.#put(/** @type {Series} */ (this.held.get(key)), p, row, passages.version[p]);
    }
  }

  /** @param {string} key @param {number} p @param {number} row @param {number} value */
  #measured(key, p, row, value) {
    let series = this.series.get(key);
    if (!series) this.series.set(key, (series = emptySeries()));
    this.#put(series, p, row, value);
  }

  /** @param {Series} series @param {number} p @param {number} row @param {number} value */
  #put({ t, v, sums, version, peer }, p, row, value) {
    const { table } = this;
    sums.push((sums.at(-1) ?? 0) + (Number.isFinite(value) ? value : 0));
    t.push(Math.max(t.at(-1) ?? -Infinity, table.end[row]));
    v.push(value);
    version.push(table.passages.version[p]);
    peer.push(table.chunk[row] >= 0 ? table.chunk[row] : table.peer[row]);
  }

  /** @param {number} rank @param {string} what @param {number} row */
  #did(rank, what, row) {
    const { table } = this;
    let spans = this.spans.get(rank);
    if (!spans) this.spans.set(rank, (spans = { start: [], end: [], what: [], peer: [] }));
    let at = spans.end.length; // a rank's lanes are read one after the other
    while (at > 0 && spans.end[at - 1] > table.end[row]) at--;
    spans.start.splice(at, 0, table.start[row]);
    spans.end.splice(at, 0, table.end[row]);
    spans.what.splice(at, 0, what);
    spans.peer.splice(at, 0, table.peer[row]);
  }

  /**
   * A piece of a message has left, or was taken in.
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
    if (peer < 0 || op < 0 || table.text(passages.collective[p]) !== "p2p") return;
    const [from, to] = sent ? [rank, peer] : [peer, rank];
    const key = `${passages.generation[p]}/${from}>${to}/${op}`;
    let message = this.messages.get(key);
    if (!message) {
      message = {
        kind: "",
        from,
        to,
        op,
        start: NaN,
        there: -Infinity,
        sent: 0,
        got: 0,
        nbytes: 0,
        version: -1,
      };
      this.messages.set(key, message);
    }
    if (sent) return this.#left(message, p, row);
    message.got += 1;
    message.there = Math.max(message.there, table.end[row]);
  }

  /** @param {RlMessage} message @param {number} p @param {number} row */
  #left(message, p, row) {
    const { table } = this;
    const begins = !message.sent;
    message.sent += 1;
    message.nbytes += Math.max(0, table.nbytes[row]);
    if (!begins) {
      const way = this.ways.get(`${message.kind} ${message.from}>${message.to}`);
      if (way) way.read = Math.min(way.read, Math.max(0, way.list.lastIndexOf(message)));
      return;
    }
    message.start = table.start[row];
    message.kind = table.text(table.name[row]);
    message.version = table.passages.version[p];
    const { kind, from, to } = message;
    const key = `${kind} ${from}>${to}`;
    let way = this.ways.get(key);
    if (!way) this.ways.set(key, (way = { kind, from, to, list: [], sums: [], read: 0 }));
    let at = way.list.length;
    while (at > 0 && way.list[at - 1].start > message.start) at--;
    way.list.splice(at, 0, message);
    way.read = Math.min(way.read, at);
  }

  // ---- what is asked of it

  /** What a rank measured under a name. @param {number} rank @param {string} name */
  of(rank, name) {
    return this.series.get(`${rank} ${name}`) ?? NO_SERIES;
  }

  /** The last value by t; NaN none. @param {Series} series @param {number} t */
  last({ t: times, v }, t) {
    return v[countUntil(times, t, Number) - 1] ?? NaN;
  }

  /** The sum of the values by t. @param {Series} series @param {number} t */
  sum({ t: times, sums }, t) {
    return sums[countUntil(times, t, Number) - 1] ?? 0;
  }

  /** The messages of a kind between two ranks. @param {string} kind @param {number} from @param {number} to */
  way(kind, from, to) {
    return this.ways.get(`${kind} ${from}>${to}`)?.list ?? [];
  }

  /**
   * What a rank was in at t, the shortest of what encloses it.
   * @param {number} rank
   * @param {number} t
   * @returns {{what: string, peer: number, start: number, end: number} | null}
   */
  doing(rank, t) {
    const spans = this.spans.get(rank);
    if (!spans) return null;
    const first = countUntil(spans.end, t, Number);
    for (let i = first; i < Math.min(spans.end.length, first + 6); i++)
      if (spans.start[i] <= t)
        return {
          what: spans.what[i],
          peer: spans.peer[i],
          start: spans.start[i],
          end: spans.end[i],
        };
    return null;
  }

  /** What a rank had done last by t; "": nothing. @param {number} rank @param {number} t */
  done(rank, t) {
    const spans = this.spans.get(rank);
    return spans?.what[countUntil(spans.end, t, Number) - 1] ?? "";
  }

  /** What is on its way at t. @param {number} t @returns {RlMessage[]} */
  flyingAt(t) {
    const flying = [];
    for (const { list } of this.ways.values()) {
      const end = countUntil(list, t, (one) => one.start);
      for (let i = end - 1; i >= Math.max(0, end - FLYING); i--)
        if (arrivalOf(list[i]) > t) flying.push(list[i]);
    }
    return flying;
  }

  /**
   * All that flew in this time, at most so many.
   * @param {number} from
   * @param {number} to
   * @param {number} most
   */
  flownBetween(from, to, most) {
    const messages = /** @type {RlMessage[]} */ ([]);
    for (const { list } of this.ways.values()) {
      const end = countUntil(list, to, (one) => one.start);
      const begin = Math.max(0, countUntil(list, from, (one) => one.start) - FLYING);
      for (let i = begin; i < end; i++) if (arrivalOf(list[i]) > from) messages.push(list[i]);
    }
    return messages.sort((a, b) => a.start - b.start).slice(0, most);
  }

  /** What had begun to go one way by t. @param {RlWay} way @param {number} t */
  sentOver(way, t) {
    const { list, sums } = way;
    const many = countUntil(list, t, (one) => one.start);
    for (; way.read < many; way.read++)
      sums[way.read] = (way.read ? sums[way.read - 1] : 0) + list[way.read].nbytes;
    return { nbytes: many ? sums[many - 1] : 0, many };
  }
}

const indexes = /** @type {WeakMap<Table, RlIndex>} */ (new WeakMap());

/** What is known of a run with actors. @param {Table} table */
export function indexOf(table) {
  let index = indexes.get(table);
  if (!index) indexes.set(table, (index = new RlIndex(table)));
  return index.update();
}

/** Which rank plays which role; null: none plays. @param {import("../../engine/player.js").RunFacts | null} run */
export const rolesOf = (run) => /** @type {RlRoles | null} */ (run?.roles ?? null);
/** Whether each rank but the servers is all in one. @param {RlRoles} roles */
export const inBundles = ({ options }) => !!options.bundle;

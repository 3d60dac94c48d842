// @ts-check
/**
 * The calls of a source that derives them from the table's rows: a parameter server's rounds, a
 * pipeline's passes. They have the form of the table's calls, so that the player (player.js) tells
 * them as it tells those.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {import("./table.js").CallHead} CallHead
 * @typedef {import("./model.js").Call} Call
 * @typedef {import("./model.js").Flight} Flight
 * @typedef {import("./call_source.js").Words} Words
 * @typedef {{number: number, flights: Flight[], moments: number[],
 *   clock: ReturnType<typeof clockOf>}} Contents  of a call: its number for people, what flew, when
 *   something ended, and its pace
 */
import { clockOf } from "./model.js";
import { countUntil } from "./search.js";

const MOST_OPENED = 8; // calls that are kept opened

export class DerivedCalls {
  /**
   * @param {Table} table
   * @param {string} group
   * @param {string} collective
   * @param {Words} [words]  what its pieces are called; none: they are calls
   */
  constructor(table, group, collective, words) {
    this.table = table;
    this.group = group;
    this.collective = collective;
    this.words = words;
    this.life = table.life;
    this.read = -1; // the index's version that is in here
    this.calls = /** @type {CallHead[]} */ ([]);
    this.callOf = /** @type {Map<string, CallHead>} */ (new Map());
    this.newest = /** @type {CallHead | null} */ (null);
    this.opened = /** @type {Map<string, {rows: number, call: Call}>} */ (new Map());
  }

  get rows() {
    return this.table.rows;
  }
  get from() {
    return this.table.from;
  }
  get to() {
    return this.table.to;
  }
  get epoch() {
    return this.table.epoch;
  }
  get completed() {
    return this.newest ? this.newest.iteration + 1 : 0;
  }

  /**
   * One more piece.
   * @param {number} iteration
   * @param {number} start
   * @param {number} end
   * @param {boolean} complete
   * @param {number} rows
   * @param {string} name
   * @param {string} key
   */
  put(iteration, start, end, complete, rows, name = "", key = `${this.collective}/${iteration}`) {
    const head = {
      key,
      generation: 0,
      group: this.group,
      op: iteration,
      collective: this.collective,
      algorithm: "",
      iteration,
      start,
      end,
      ranks: 0,
      nbytes: -1,
      name,
      rows: complete ? rows : this.table.rows,
      sends: 1,
      complete,
      failed: false,
      passages: [],
      parties: null,
      through: null,
      words: this.words,
    };
    this.calls.push(head);
    this.callOf.set(key, head);
    if (complete) this.newest = head;
  }

  /** @param {number} t @returns {CallHead | null} */
  callAt(t) {
    return this.calls[Math.max(0, countUntil(this.calls, t, (one) => one.start) - 1)] ?? null;
  }

  /** @param {CallHead | Call} head */
  indexOf(head) {
    const at = countUntil(this.calls, head.start, (one) => one.start) - 1;
    return this.calls[at]?.key === head.key
      ? at
      : this.calls.findIndex((one) => one.key === head.key);
  }

  /**
   * A call by its key, as the player takes it.
   * @param {string} key
   * @returns {Call | null}
   */
  open(key) {
    const head = this.callOf.get(key);
    const had = this.opened.get(key);
    if (!head) return null;
    if (had?.rows === head.rows && had.call.end === head.end) return had.call;
    const { passages, parties, through, sends, rows, ...named } = head;
    const call = {
      ...named,
      left_out: "",
      rows: [],
      waits: [],
      came: new Map(),
      ...this.contents(head),
    };
    this.opened.set(key, { rows: head.rows, call });
    if (this.opened.size > MOST_OPENED)
      this.opened.delete(/** @type {string} */ (this.opened.keys().next().value));
    return call;
  }

  /**
   * What is in a call; the sources that derive calls say it.
   * @param {CallHead} head
   * @returns {Contents}
   */
  contents(head) {
    throw new Error(`${this.constructor.name} does not open calls: ${head.key}`);
  }
}

/**
 * The contents of a call in which nothing but messages counts.
 * @param {CallHead} head
 * @param {number} number
 * @param {Flight[]} flights  counted from its start
 * @returns {Contents}
 */
export function contentsOf(head, number, flights) {
  const moments = [...new Set(flights.map((one) => one.end))].sort((a, b) => a - b);
  return { number, flights, moments, clock: clockOf(flights, head.end - head.start) };
}

/**
 * Messages of a call, counted from its start and cut at its end; those outside are left out.
 * @param {CallHead} head
 * @param {{from: number, to: number, step?: number, chunk?: number, phase: string, nbytes: number,
 *   start: number, end: number}[]} messages
 * @returns {Flight[]}
 */
export function flightsIn(head, messages) {
  const span = head.end - head.start;
  return messages
    .map((one) => ({
      from: one.from,
      to: one.to,
      step: one.step ?? 0,
      chunk: one.chunk ?? 0,
      slot: 0,
      phase: one.phase,
      nbytes: one.nbytes,
      fused: false,
      track: 0,
      start: Math.max(0, one.start - head.start),
      end: Math.min(span, one.end - head.start),
      until: Math.min(span, one.end - head.start),
    }))
    .filter((one) => one.end > one.start);
}

// @ts-check
/**
 * The calls of a source that derives them from the table's rows: a parameter server's rounds, a
 * pipeline's passes. They have the form of the table's calls, so that the player (player.js) tells
 * them as it tells those.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {import("./table.js").CallHead} CallHead
 * @typedef {import("./model.js").Call} Call
 * @typedef {import("./call_source.js").Words} Words
 */
import { countUntil } from "./search.js";

export class DerivedCalls {
  /**
   * @param {Table} table
   * @param {string} group
   * @param {string} collective
   * @param {Words} [words]  what its pieces are called; none: they are told as calls
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
   */
  put(iteration, start, end, complete, rows, name = "") {
    const key = `${this.collective}/${iteration}`;
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
   * A call by its key, opened; the sources that derive calls say what is in it.
   * @param {string} key
   * @returns {Call | null}
   */
  open(key) {
    throw new Error(`${this.constructor.name} does not open calls: ${key}`);
  }
}

// @ts-check
/**
 * Messages between two ranks, shown like calls: in *bursts*. A burst is what the ranks of a group
 * say to each other until they are quiet for a while, begin another iteration or another cell of a
 * notebook, or take part in a collective. Bursts and collectives, in the order of their start, are
 * what a page shows where ranks send messages of their own and nothing else (a parameter
 * server, a pipeline, replicas that mix) explains them. In a burst every message is a chunk of its
 * own: number k is the k-th that left. Pure functions; times are ns since the run's origin.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {import("./table.js").CallHead} CallHead
 * @typedef {import("./model.js").Call} Call
 * @typedef {import("./player.js").Known} Known
 * @typedef {{from: number, to: number, op: number, iteration: number, start: number, left: number,
 *   there: number, sent: number, got: number, nbytes: number, rows: number[]}} Message
 *   start: its first byte left; left: its last; there: its last was taken in; sent, got: its
 *   pieces, of which there are rows; rows: all of it in the table
 * @typedef {CallHead & {number: number, messages: Message[], quiet: number}} Burst  number: which
 *   of its group's, from 1; quiet: when its last message was there
 * @typedef {{generation: number, group: string, messages: Message[], bursts: Burst[],
 *   dirty: number}} Group  messages: in the order in which they left; dirty: the first moment of
 *   which there is news
 * @typedef {{cell: number, from: number, over: number, begun: Set<number>, ended: Set<number>}}
 *   CellMark  ranks that have begun and ended it; from: the first; over: the last
 */
import { DerivedCalls } from "./derived_calls.js";
import { openBurst } from "./burst_call.js";

const QUIET_NS = 1e6;

// quiet for so long, and for so many times as long as it has lasted: a burst is over
const QUIET_TIMES = 3;

const MANY = 32; // messages; then it is over as soon as all of them are there

const MOST_MESSAGES = 512;

const SETTLED_NS = 0.5e9; // so long after its last message nothing is expected to belong to it

const OTHERS = new Set(["metrics", "control"]); // groups that do not train

/** Whether every piece that left has been taken in. @param {Message} message */
const isThere = ({ sent, got }) => sent > 0 && got >= sent;

/**
 * When a message has nothing more to do: it is there, or, as far as is known, lies where it was
 * sent to.
 * @param {Message} message
 */
const doneAt = (message) => (isThere(message) ? message.there : message.left);

export class Bursts extends DerivedCalls {
  /** @param {Table} table */
  constructor(table) {
    super(table, "", "p2p");
    this.next = 0;
    this.groups = /** @type {Map<string, Group>} */ (new Map());
    this.messageOf = /** @type {Map<string, Message>} */ (new Map());
    this.cells = /** @type {CellMark[]} */ ([]); // in their order
    this.bursts = /** @type {Map<string, Burst>} */ (new Map());
    const bursts = this.bursts;
    this.callOf = /** @type {any} */ ({
      get: (/** @type {string} */ key) => bursts.get(key) ?? table.callOf.get(key),
      has: (/** @type {string} */ key) => bursts.has(key) || table.callOf.has(key),
    });
  }

  /**
   * Take in the rows that have come since.
   * @param {Known} known
   * @param {number} now  the ranks' own time, NaN unknown
   * @param {boolean} over  nothing more will come
   */
  update(known, now, over) {
    const { table } = this;
    // row numbers have changed
    if (table.life !== this.life) Object.assign(this, new Bursts(table), { life: table.life });
    if (this.read !== table.epoch) {
      this.read = table.epoch;
      this.#rows();
      for (const group of this.groups.values()) if (group.dirty < Infinity) this.#cut(group);
      this.#merge();
    }
    for (const { bursts } of this.groups.values()) {
      const last = bursts[bursts.length - 1];
      if (last && !last.complete && this.#closed(last, now, over)) this.#complete(last);
    }
    return this;
  }

  #rows() {
    const { table } = this;
    const { passages } = table;
    const p2p = table.strings.indexOf("p2p");
    const cell = table.strings.indexOf("cell");
    const cellOver = table.strings.indexOf("cell over");
    if (this.next >= table.rows) return;
    for (let p = table.passage[this.next]; p < table.count; p++) {
      const first = Math.max(this.next, passages.first[p]);
      const end = passages.first[p] + passages.count[p];
      if (p2p > 0 && passages.collective[p] === p2p) this.#passage(p, first, end);
      else if (cell > 0)
        for (let r = first; r < end; r++)
          if (
            table.kind[r] === table.code.metric &&
            (table.name[r] === cell || table.name[r] === cellOver)
          )
            this.#mark(passages.rank[p], table.value[r], table.start[r], table.name[r] === cell);
    }
    this.next = table.rows;
  }

  /**
   * A rank begins a cell, or has ended it.
   * @param {number} rank
   * @param {number} number
   * @param {number} t
   * @param {boolean} begins
   */
  #mark(rank, number, t, begins) {
    let mark = this.cells.find((one) => one.cell === number);
    if (!mark) {
      this.cells.push(
        (mark = {
          cell: number,
          from: Infinity,
          over: -Infinity,
          begun: new Set(),
          ended: new Set(),
        }),
      );
      this.cells.sort((a, b) => a.cell - b.cell);
    }
    (begins ? mark.begun : mark.ended).add(rank);
    if (begins) mark.from = Math.min(mark.from, t);
    else mark.over = Math.max(mark.over, t);
    if (begins)
      // its earlier rows had no cell yet
      for (const group of this.groups.values()) group.dirty = Math.min(group.dirty, mark.from);
  }

  /** The cell in which a moment lies. @param {number} t @returns {CellMark | undefined} */
  cellAt(t) {
    return this.cells.findLast((one) => one.from <= t);
  }

  /** Rows of one message. @param {number} p @param {number} first @param {number} end */
  #passage(p, first, end) {
    const { table } = this;
    const { passages, code } = table;
    const name = table.text(passages.group[p]);
    const op = passages.op[p];
    const rank = passages.rank[p];
    const generation = passages.generation[p];
    if (op < 0 || OTHERS.has(name)) return;
    const where = `${generation}/${name}`;
    for (let row = first; row < end; row++) {
      const kind = table.kind[row];
      const peer = table.peer[row];
      const send =
        kind === code.send || (kind === code.wait && table.text(table.name[row]) === "slots full");
      if (peer < 0 || (kind !== code.send && kind !== code.recv && kind !== code.wait)) continue;
      const [from, to] = send ? [rank, peer] : [peer, rank];
      const key = `${where}/${from}>${to}/${op}`;
      let message = this.messageOf.get(key);
      if (!message)
        this.messageOf.set(
          key,
          (message = {
            from,
            to,
            op,
            iteration: passages.iteration[p],
            start: NaN,
            left: NaN,
            there: NaN,
            sent: 0,
            got: 0,
            nbytes: 0,
            rows: [],
          }),
        );
      message.rows.push(row);
      if (kind === code.recv) {
        message.got += 1;
        message.there = Math.max(message.got > 1 ? message.there : -Infinity, table.end[row]);
      } else if (kind === code.send) this.#left(message, row, where);
      const group = this.groups.get(where);
      if (group && message.sent) group.dirty = Math.min(group.dirty, message.start);
    }
  }

  /**
   * A piece of a message has left.
   * @param {Message} message
   * @param {number} row
   * @param {string} where
   */
  #left(message, row, where) {
    const { table } = this;
    const begins = !message.sent;
    const { passages } = table;
    const p = table.passage[row];
    message.sent += 1;
    message.nbytes += Math.max(0, table.nbytes[row]);
    message.left = begins ? table.end[row] : Math.max(message.left, table.end[row]);
    message.iteration = passages.iteration[p];
    if (!begins) return;
    message.start = table.start[row];
    let group = this.groups.get(where);
    if (!group)
      this.groups.set(
        where,
        (group = {
          generation: passages.generation[p],
          group: table.text(passages.group[p]),
          messages: [],
          bursts: [],
          dirty: Infinity,
        }),
      );
    let at = group.messages.length;
    while (at > 0 && group.messages[at - 1].start > message.start) at--;
    group.messages.splice(at, 0, message);
  }

  /**
   * Cut a group's messages into bursts, from the first one of which there is news.
   * @param {Group} group
   */
  #cut(group) {
    const { bursts, messages } = group;
    let from = 0;
    while (
      bursts.length &&
      (bursts[bursts.length - 1].messages[bursts[bursts.length - 1].messages.length - 1].start >=
        group.dirty ||
        bursts[bursts.length - 1].quiet >= group.dirty)
    )
      this.bursts.delete(/** @type {Burst} */ (bursts.pop()).key);
    // what was its end may not be one any more
    if (bursts.length) this.bursts.delete(/** @type {Burst} */ (bursts.pop()).key);
    for (const { messages: all } of bursts) from += all.length;
    group.dirty = Infinity;
    let burst = /** @type {Message[]} */ ([]);
    let quiet = -Infinity;
    for (let i = from; i < messages.length; i++) {
      if (burst.length && this.#isOver(group, burst, quiet, messages[i])) {
        this.#put(group, burst, quiet, true);
        burst = [];
        quiet = -Infinity;
      }
      burst.push(messages[i]);
      quiet = Math.max(quiet, doneAt(messages[i]));
    }
    if (burst.length) this.#put(group, burst, quiet, false);
  }

  /**
   * Whether a message that leaves later belongs to another burst.
   * @param {Group} group
   * @param {Message[]} burst
   * @param {number} quiet
   * @param {Message} next
   */
  #isOver(group, burst, quiet, next) {
    if (burst.length >= MOST_MESSAGES || next.iteration !== burst[0].iteration) return true;
    if (this.cells.length && this.cellAt(next.start)?.cell !== this.cellAt(burst[0].start)?.cell)
      return true;
    if (next.start < quiet) return false;
    if (burst.length >= MANY) return true;
    const between = this.table.callAt(next.start, group.group);
    if (between && between.start > burst[burst.length - 1].start) return true;
    return (
      !this.cells.length &&
      next.start - quiet > Math.max(QUIET_NS, QUIET_TIMES * (quiet - burst[0].start))
    );
  }

  /**
   * @param {Group} group
   * @param {Message[]} messages
   * @param {number} quiet
   * @param {boolean} complete
   */
  #put(group, messages, quiet, complete) {
    const { table } = this;
    const before = group.bursts[group.bursts.length - 1];
    const first = messages[0];
    const cell = this.cellAt(first.start);
    const numbers = new Set(/** @type {number[]} */ ([]));
    let start = first.start;
    let end = quiet;
    let rows = 0;
    let nbytes = 0;
    for (const message of messages) {
      // who waits for a message is part of it
      for (const row of message.rows) start = Math.min(start, table.start[row]);
      numbers.add(message.from).add(message.to);
      rows += message.rows.length;
      nbytes += message.nbytes;
    }
    start = Math.min(
      first.start,
      Math.max(start, before?.end ?? -Infinity, cell?.from ?? -Infinity),
    );
    end = Math.max(end, start + 1);
    const number = group.bursts.length + 1;
    const burst = /** @type {Burst} */ ({
      key: `p2p/${group.generation}/${group.group}/${first.from}>${first.to}/${first.op}`,
      generation: group.generation,
      group: group.group,
      op: number - 1,
      collective: "p2p",
      algorithm: "",
      iteration: first.iteration,
      start,
      end,
      ranks: numbers.size,
      nbytes,
      name: cell ? `cell ${cell.cell}` : "",
      rows,
      sends: messages.length,
      complete,
      failed: false,
      passages: [],
      parties: null,
      through: null,
      number,
      messages,
      quiet,
    });
    group.bursts.push(burst);
    this.bursts.set(burst.key, burst);
  }

  /**
   * Whether nothing more is to come of the newest burst of a group.
   * @param {Burst} burst
   * @param {number} now
   * @param {boolean} over
   */
  #closed(burst, now, over) {
    const cell = this.cellAt(burst.start);
    if (
      over ||
      (cell && (cell !== this.cells[this.cells.length - 1] || cell.ended.size >= cell.begun.size))
    )
      return true;
    return burst.messages.every(isThere) && Math.max(now, this.table.to) - burst.quiet > SETTLED_NS;
  }

  /** @param {Burst} burst */
  #complete(burst) {
    burst.complete = true;
    if (!this.newest || burst.start >= this.newest.start) this.newest = burst;
  }

  /** Bursts and collectives in the order of their start. */
  #merge() {
    const { table } = this;
    this.calls = [...table.calls, ...this.bursts.values()].sort((a, b) => a.start - b.start);
    this.newest = this.calls.findLast((call) => call.complete && call.sends) ?? null;
  }

  /** @param {number} t @param {string} [group] @returns {CallHead | null} */
  callAt(t, group) {
    for (let i = this.calls.findLastIndex((call) => call.start <= t); i >= 0; i--)
      if (this.calls[i].sends && (group === undefined || this.calls[i].group === group))
        return this.calls[i];
    return null;
  }

  /**
   * A burst as the player takes it; a collective is opened elsewhere.
   * @param {string} key
   * @returns {Call | null}
   */
  open(key) {
    const head = this.bursts.get(key);
    const had = this.opened.get(key);
    if (!head) return null;
    if (had?.rows === head.rows && had.call.complete === head.complete) return had.call;
    const call = openBurst(this.table, head);
    this.opened.set(key, { rows: head.rows, call });
    if (this.opened.size > 8)
      this.opened.delete(/** @type {string} */ (this.opened.keys().next().value));
    return call;
  }
}

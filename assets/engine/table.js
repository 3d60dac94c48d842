// @ts-check
/**
 * The page's event table: the rows that the ranks recorded, as columns of numbers. No browser, no
 * drawing.
 *
 * Rows arrive in *passages*: rows of one lane, one after the other, that share a context (which
 * collective, which iteration). Times are nanoseconds since the run's origin; -1 is "none" in every
 * integer column, string 0 is "". A *call* is one collective, found by what its rows say: nothing
 * here knows an algorithm.
 *
 * @typedef {import("./model.js").Call} Call
 * @typedef
 *   {Float64ArrayConstructor | Int32ArrayConstructor | Uint32ArrayConstructor |
 *     Int16ArrayConstructor | Uint16ArrayConstructor | Uint8ArrayConstructor}
 *   Kind
 * @typedef {{rank: number, name: string, rows: Int32Array, length: number}} Lane  its rows in order
 *   of their end
 * @typedef {{key: string, generation: number, group: string, op: number, collective: string,
 *   algorithm: string, iteration: number, start: number, end: number, ranks: number,
 *   nbytes: number, name: string, rows: number, sends: number, complete: boolean, failed: boolean,
 *   passages: number[], parties: Set<number> | null, through: Set<number> | null,
 *   words?: import("./call_source.js").Words}} CallHead
 *   failed: an error ended it, or a kill, or its ranks called different operations;
 *   words: of a call that is derived from rows, what such calls are called
 */
import { openCall } from "./model.js";
import { CAPACITY, PASSAGE_COLUMNS, ROW_COLUMNS, roomFor, unpackColumns } from "./columns.js";

const OPEN_CALLS = 8; // that are kept opened

const FAILED = "failed"; // the phase of a rank's part in a call that raised an error, or was cut off
const APART = new Set(["metrics", "control"]); // groups that do not train

export class Table {
  constructor() {
    this.rows = this.count = this.forgotten = 0; // rows, passages, rows let go
    this.life = 0; // grows when row numbers change: code that keeps row numbers starts afresh
    this.epoch = 0; // grows with every change
    this.from = Infinity;
    this.to = -Infinity;
    this.strings = [""];
    /** @type {string[]} */
    this.kinds = [];
    /** The number of each kind of row. @type {Record<string, number>} */
    this.code = {};
    /** @type {Map<string, Lane>} */
    this.lanes = new Map();
    /** In order of their start. @type {CallHead[]} */
    this.calls = [];
    /** @type {Map<string, CallHead>} */
    this.callOf = new Map();
    this.opened = /** @type {Map<string, {call: Call, rows: number}>} */ (new Map());
    /** The newest call that all its ranks have ended, or null. @type {CallHead | null} */
    this.newest = null;
    this.completed = 0;
    /** How many ranks a group has, as far as its calls tell. @type {Map<string, number>} */
    this.members = new Map();
    /** @type {import("./columns.js").Columns<typeof ROW_COLUMNS> & {passage: Uint32Array}} */
    this.columns = roomFor({ ...ROW_COLUMNS, passage: Uint32Array }, 4096);
    /** @type {import("./columns.js").Columns<typeof PASSAGE_COLUMNS> & {first: Uint32Array}} */
    this.passages = roomFor({ ...PASSAGE_COLUMNS, first: Uint32Array }, 512);
  }

  get start() {
    return this.columns.start;
  }
  get end() {
    return this.columns.end;
  }
  get nbytes() {
    return this.columns.nbytes;
  }
  get value() {
    return this.columns.value;
  }
  get seq() {
    return this.columns.seq;
  }
  get step() {
    return this.columns.step;
  }
  get chunk() {
    return this.columns.chunk;
  }
  get slot() {
    return this.columns.slot;
  }
  get peer() {
    return this.columns.peer;
  }
  get name() {
    return this.columns.name;
  }
  get phase() {
    return this.columns.phase;
  }
  get kind() {
    return this.columns.kind;
  }
  get passage() {
    return this.columns.passage;
  }

  /** @param {number} number */
  text(number) {
    return this.strings[number] ?? "";
  }

  /** @param {number} code */
  kindName(code) {
    return this.kinds[code] ?? "";
  }

  /**
   * Take in the rows of one message.
   * @param {any} message @param {ArrayBuffer | ArrayBufferView} [bytes]
   */
  take(message, bytes) {
    if (message.strings)
      message.strings.texts.forEach(
        (/** @type {string} */ text, /** @type {number} */ i) =>
          (this.strings[message.strings.first + i] = text),
      );
    if (message.kinds && message.kinds.length !== this.kinds.length) {
      this.kinds = message.kinds;
      this.code = Object.fromEntries(this.kinds.map((kind, code) => [kind, code]));
    }
    if (!message.rows || !bytes) return;
    const whole = ArrayBuffer.isView(bytes)
      ? bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength)
      : bytes;
    const [rows, after] = unpackColumns(
      message.layout,
      message.rows,
      /** @type {ArrayBuffer} */ (whole),
      0,
    );
    const [passages] = unpackColumns(
      message.passage_layout,
      message.passages,
      /** @type {ArrayBuffer} */ (whole),
      after,
    );
    this.append(rows, message.rows, passages, message.passages);
    if (this.rows > CAPACITY) this.forget(this.rows - CAPACITY / 2);
  }

  /**
   * @param {Record<string, any>} rows
   * @param {number} n
   * @param {Record<string, any>} passages
   * @param {number} m
   */
  append(rows, n, passages, m) {
    const firstRow = this.rows;
    const firstPassage = this.count;
    if (firstRow + n > this.start.length)
      this.columns = roomFor(
        { ...ROW_COLUMNS, passage: Uint32Array },
        Math.max(2 * this.start.length, firstRow + n),
        this.columns,
      );
    if (firstPassage + m > this.passages.op.length)
      this.passages = roomFor(
        { ...PASSAGE_COLUMNS, first: Uint32Array },
        Math.max(2 * this.passages.op.length, firstPassage + m),
        this.passages,
      );
    const ofRows = /** @type {any} */ (this.columns);
    const ofPassages = /** @type {any} */ (this.passages);
    for (const name of Object.keys(ROW_COLUMNS)) ofRows[name].set(rows[name], firstRow);
    for (const name of Object.keys(PASSAGE_COLUMNS))
      ofPassages[name].set(passages[name], firstPassage);
    this.rows += n;
    this.count += m;
    let at = firstRow;
    for (let p = firstPassage; p < this.count; p++) {
      const count = this.passages.count[p];
      this.passages.first[p] = at;
      this.passage.fill(p, at, at + count);
      this.#toLane(p, at, count);
      this.#toCall(p, at, count);
      at += count;
    }
    this.#settle();
    this.epoch += 1;
  }

  /** @param {number} p @param {number} first @param {number} count */
  #toLane(p, first, count) {
    const rank = this.passages.rank[p];
    const name = this.text(this.passages.lane[p]);
    const key = `${rank} ${name}`;
    let lane = this.lanes.get(key);
    if (!lane) this.lanes.set(key, (lane = { rank, name, rows: new Int32Array(256), length: 0 }));
    if (lane.length + count > lane.rows.length) {
      const more = new Int32Array(Math.max(2 * lane.rows.length, lane.length + count));
      more.set(lane.rows);
      lane.rows = more;
    }
    for (let i = 0; i < count; i++) lane.rows[lane.length + i] = first + i;
    lane.length += count;
    for (let r = first; r < first + count; r++) {
      if (this.start[r] < this.from) this.from = this.start[r];
      if (this.end[r] > this.to) this.to = this.end[r];
    }
  }

  /**
   * A passage of a collective belongs to its call; messages, what is measured and what is agreed on
   * belong to none.
   * @param {number} p
   * @param {number} first
   * @param {number} count
   */
  #toCall(p, first, count) {
    const { passages, code } = this;
    const op = passages.op[p];
    const group = this.text(passages.group[p]);
    const collective = this.text(passages.collective[p]);
    if (op < 0 || APART.has(group) || collective === "p2p" || collective === "") return;
    const generation = passages.generation[p];
    let key = `${generation}/${group}/${op}`;
    let call = this.callOf.get(key);
    const apart = !!call && call.collective !== collective; // ranks that called different operations
    if (call && apart) {
      call.failed = true;
      key = `${key}/${collective}`;
      call = this.callOf.get(key);
    }
    if (!call) {
      call = {
        key,
        generation,
        group,
        op,
        collective,
        algorithm: this.text(passages.algorithm[p]),
        iteration: passages.iteration[p],
        start: Infinity,
        end: -Infinity,
        ranks: 0,
        nbytes: -1,
        name: "",
        rows: 0,
        sends: 0,
        complete: false,
        failed: apart,
        passages: [],
        parties: new Set(),
        through: new Set(),
      };
      this.callOf.set(key, call);
      this.calls.push(call);
    }
    call.passages.push(p);
    call.rows += count;
    call.parties?.add(passages.rank[p]);
    for (let r = first; r < first + count; r++) {
      const kind = this.kind[r];
      if (this.start[r] < call.start) call.start = this.start[r];
      if (this.end[r] > call.end) call.end = this.end[r];
      if (kind === code.collective) {
        call.through?.add(passages.rank[p]);
        call.failed ||= this.text(this.phase[r]) === FAILED;
        call.nbytes = Math.max(call.nbytes, this.nbytes[r]);
        call.name ||= this.text(this.name[r]);
      } else if (kind === code.send || kind === code.recv) {
        if (this.peer[r] >= 0) call.parties?.add(this.peer[r]);
        if (kind === code.send) call.sends += 1;
      }
    }
    if (!call.parties || !call.through) {
      // it seemed complete: the rest of it was in other lanes
      call.ranks = Math.max(call.ranks, new Set(call.passages.map((q) => passages.rank[q])).size);
      this.members.set(
        `${generation}/${group}`,
        Math.max(call.ranks, this.members.get(`${generation}/${group}`) ?? 0),
      );
      return;
    }
    call.ranks = call.parties.size;
    const known = `${generation}/${group}`;
    const members = this.members.get(known) ?? 0;
    if (
      !call.failed &&
      call.sends &&
      call.through.size === call.parties.size &&
      call.ranks >= members
    ) {
      // fewer than an earlier one's: some have not come yet
      this.members.set(known, call.ranks);
      call.complete = true;
      call.parties = call.through = null;
      this.completed += 1;
      if (!this.newest || call.start >= this.newest.start) this.newest = call;
    }
  }

  /**
   * Calls in order of their start: a rank that was read late may have begun earlier than was known.
   */
  #settle() {
    const { calls } = this;
    let i = 1;
    while (i < calls.length && calls[i - 1].start <= calls[i].start) i++;
    if (i < calls.length) calls.sort((a, b) => a.start - b.start);
  }

  /** Let the oldest rows go, about so many. @param {number} rows */
  forget(rows) {
    const { passages, columns } = this;
    let p = 0;
    while (p < this.count && passages.first[p] < rows) p++;
    const gone = p < this.count ? passages.first[p] : this.rows;
    const kept = this.rows - gone;
    for (const column of Object.values(columns)) column.copyWithin(0, gone, this.rows);
    for (const column of Object.values(passages)) column.copyWithin(0, p, this.count);
    this.rows = kept;
    this.count -= p;
    for (let i = 0; i < this.count; i++) passages.first[i] -= gone;
    for (let r = 0; r < kept; r++) columns.passage[r] -= p;
    for (const lane of this.lanes.values()) {
      const from = lane.rows.subarray(0, lane.length).findIndex((row) => row >= gone);
      const left = from < 0 ? 0 : lane.length - from;
      for (let i = 0; i < left; i++) lane.rows[i] = lane.rows[i + from] - gone;
      lane.length = left;
    }
    this.calls = this.calls.filter((call) => call.passages[0] >= p);
    for (const call of this.calls) call.passages = call.passages.map((q) => q - p);
    this.callOf = new Map(this.calls.map((call) => [call.key, call]));
    if (this.newest && !this.callOf.has(this.newest.key)) this.newest = null;
    this.from = this.rows
      ? columns.start.subarray(0, this.rows).reduce((a, b) => Math.min(a, b), Infinity)
      : Infinity;
    this.forgotten += gone;
    this.life += 1;
    this.epoch += 1;
  }

  /**
   * A call by its key, opened; kept until it has more rows.
   * @param {string} key
   * @returns {Call | null}
   */
  open(key) {
    const head = this.callOf.get(key);
    const had = this.opened.get(key);
    if (!head) return null;
    if (had?.rows === head.rows) return had.call;
    const call = openCall(this, head);
    this.opened.delete(key);
    this.opened.set(key, { call, rows: head.rows });
    if (this.opened.size > OPEN_CALLS)
      this.opened.delete(/** @type {string} */ (this.opened.keys().next().value));
    return call;
  }

  /**
   * The last call of `group` (any, if not given) that had begun by `t`, or null.
   * @param {number} t
   * @param {string} [group]
   * @returns {CallHead | null}
   */
  callAt(t, group) {
    let low = 0;
    let high = this.calls.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.calls[middle].start <= t) low = middle + 1;
      else high = middle;
    }
    for (let i = low - 1; i >= 0 && i > low - 256; i--)
      if (this.calls[i].sends && (group === undefined || this.calls[i].group === group))
        return this.calls[i];
    return null;
  }

  /** Where a call stands among all, or -1. @param {CallHead | Call} call */
  indexOf(call) {
    let low = 0;
    let high = this.calls.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.calls[middle].start < call.start) low = middle + 1;
      else high = middle;
    }
    for (let i = low; i < this.calls.length && this.calls[i].start === call.start; i++)
      if (this.calls[i].key === call.key) return i;
    return -1;
  }
}

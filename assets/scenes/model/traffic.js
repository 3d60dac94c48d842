// @ts-check
/**
 * What the rows tell of a model in parts: the bytes that crossed each cut, iteration by iteration,
 * messages on their way, and the memory that each rank needed. Read onward from where it was; pure
 * but for that.
 *
 * @typedef {import("../../engine/table.js").Table} Table
 * @typedef {{from: number, to: number, op: number, cut: number, gradient: boolean, start: number,
 *   end: number, there: number, bytes: number, microbatch: number, iteration: number,
 *   generation: number, first: number}} Parcel
 *   there: when it was received, NaN until then; first: when the first part of it was sent
 * @typedef {{bytes: number, parcels: number, microbatches: Set<number>}} Load  microbatches: of
 *   each sender
 * @typedef {{iteration: number, generation: number, start: number, end: number,
 *   cuts: {activation: Load, gradient: Load}[]}} Crossed
 */

const LONGEST_LOOK = 4096; // parcels that are looked through for those on their way

/** @returns {Load} */
const emptyLoad = () => ({ bytes: 0, parcels: 0, microbatches: new Set() });

export class Traffic {
  /** @param {Table} table */
  constructor(table) {
    this.table = table;
    this.next = 0; // the next row to look at, counted over the whole run
    this.parcels = /** @type {Parcel[]} */ ([]); // in order of their start
    this.open = /** @type {Map<string, Parcel>} */ (new Map());
    this.iterations = /** @type {Map<number, Crossed>} */ (new Map());
    this.memory = /** @type {Map<number, {at: number[], bytes: number[]}>} */ (new Map());
    // collectives of the lowest rank, by name
    this.called = /** @type {Map<string, {at: number[], nbytes: number[]}>} */ (new Map());
    this.newest = -1;
    this.sorted = 0;
  }

  /** Read what is new. @returns {this} */
  read() {
    const { table } = this;
    const { code, kind, passages, passage } = table;
    const from = Math.max(0, this.next - table.forgotten);
    this.next = table.forgotten + table.rows;
    for (let r = from; r < table.rows; r++) {
      if (kind[r] === code.send || kind[r] === code.recv) {
        const what = table.text(table.name[r]);
        if ((what === "activation" || what === "gradient") && passages.stage[passage[r]] >= 0)
          this.#message(r, what === "gradient");
      } else if (
        kind[r] === code.collective &&
        passages.rank[passage[r]] === 0 &&
        table.text(passages.group[passage[r]]) !== "metrics"
      )
        this.#call(r);
      else if (kind[r] === code.metric && table.text(table.name[r]) === "memory")
        this.#memory(passages.rank[passage[r]], table.end[r], table.value[r]);
    }
    if (this.sorted !== this.parcels.length) {
      // lanes are read one after the other
      this.parcels.sort((a, b) => a.first - b.first);
      this.sorted = this.parcels.length;
    }
    return this;
  }

  /** @param {number} r */
  #call(r) {
    const { table } = this;
    const key =
      `${table.text(table.passages.collective[table.passage[r]])} ` +
      `${table.text(table.name[r])}`;
    const calls = this.called.get(key) ?? { at: [], nbytes: [] };
    this.called.set(key, calls);
    calls.at.push(table.end[r]);
    calls.nbytes.push(Math.max(0, table.nbytes[r]));
  }

  /**
   * How often rank 0 had ended a collective by `t`, and the bytes of its tensors.
   * @param {string} name
   * @param {string} collective
   * @param {number} t
   */
  calledBy(name, collective, t) {
    const traffic = this.called.get(`${collective} ${name}`);
    let calls = 0;
    let nbytes = 0;
    for (let i = 0; traffic && i < traffic.at.length && traffic.at[i] <= t; i++)
      (calls++, (nbytes += traffic.nbytes[i]));
    return { calls, nbytes };
  }

  /** @param {number} r @param {boolean} gradient */
  #message(r, gradient) {
    const { table } = this;
    const { passages } = table;
    const p = table.passage[r];
    const rank = passages.rank[p];
    const peer = table.peer[r];
    const sent = table.kind[r] === table.code.send;
    const [from, to] = sent ? [rank, peer] : [peer, rank];
    const op = passages.op[p];
    const key = `${passages.generation[p]} ${from} ${to} ${op}`;
    const stage = passages.stage[p];
    let parcel = this.open.get(key);
    if (!parcel) {
      parcel = {
        from,
        to,
        op,
        gradient,
        cut: sent === gradient ? stage - 1 : stage,
        start: Infinity,
        end: -Infinity,
        there: NaN,
        bytes: 0,
        microbatch: passages.microbatch[p],
        iteration: passages.iteration[p],
        generation: passages.generation[p],
        first: Infinity,
      };
      this.open.set(key, parcel);
      this.parcels.push(parcel);
      this.sorted = -1;
    }
    parcel.first = Math.min(parcel.first, table.start[r]);
    if (!sent)
      return void (parcel.there = Math.max(
        Number.isNaN(parcel.there) ? -Infinity : parcel.there,
        table.end[r],
      ));
    parcel.start = Math.min(parcel.start, table.start[r]);
    parcel.end = Math.max(parcel.end, table.end[r]);
    const size = Math.max(0, table.nbytes[r]);
    this.#count(parcel, size, parcel.bytes === 0);
    parcel.bytes += size;
  }

  /** @param {Parcel} parcel @param {number} size @param {boolean} begins */
  #count(parcel, size, begins) {
    if (parcel.cut < 0) return;
    const { iteration, generation } = parcel;
    let crossed = this.iterations.get(iteration);
    if (crossed && crossed.generation > generation) return; // that attempt was given up
    if (!crossed || crossed.generation < generation)
      this.iterations.set(
        iteration,
        (crossed = { iteration, generation, start: Infinity, end: -Infinity, cuts: [] }),
      );
    while (crossed.cuts.length <= parcel.cut)
      crossed.cuts.push({ activation: emptyLoad(), gradient: emptyLoad() });
    const load = crossed.cuts[parcel.cut][parcel.gradient ? "gradient" : "activation"];
    crossed.start = Math.min(crossed.start, parcel.start);
    crossed.end = Math.max(crossed.end, parcel.end);
    load.bytes += size;
    load.parcels += begins ? 1 : 0;
    load.microbatches.add(parcel.from * 65536 + parcel.microbatch);
    this.newest = Math.max(this.newest, parcel.iteration);
  }

  /** @param {number} rank @param {number} at @param {number} bytes */
  #memory(rank, at, bytes) {
    const samples = this.memory.get(rank) ?? { at: [], bytes: [] };
    this.memory.set(rank, samples);
    samples.at.push(at);
    samples.bytes.push(bytes);
  }

  /**
   * The newest iteration whose messages had all been sent by `t`; `over`: none follows the newest.
   * @param {number} t
   * @param {boolean} over
   * @returns {Crossed | null}
   */
  iterationAt(t, over) {
    for (let i = this.newest; i >= 0; i--) {
      const crossed = this.iterations.get(i);
      if (crossed && crossed.end <= t && (over || i < this.newest)) return crossed;
    }
    return null;
  }

  /**
   * Messages on their way at `t`, with the share of it that is done.
   * @param {number} t
   * @returns {(Parcel & {share: number})[]}
   */
  flying(t) {
    let low = 0;
    let high = this.parcels.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.parcels[middle].first <= t) low = middle + 1;
      else high = middle;
    }
    const packets = [];
    for (let i = low - 1; i >= Math.max(0, low - LONGEST_LOOK); i--) {
      const p = this.parcels[i];
      if (p.cut >= 0 && p.start <= t && p.there > t)
        packets.push({ ...p, share: (t - p.start) / (p.there - p.start) });
    }
    return packets.reverse();
  }

  /** The most that a rank had needed by `t`, or NaN. @param {number} rank @param {number} t */
  memoryAt(rank, t) {
    const samples = this.memory.get(rank);
    let most = NaN;
    for (let i = 0; samples && i < samples.at.length && samples.at[i] <= t; i++)
      most = Math.max(Number.isNaN(most) ? 0 : most, samples.bytes[i]);
    return most;
  }
}

const traffics = /** @type {WeakMap<Table, Traffic>} */ (new WeakMap());

/** The traffic of a table, read up to now. @param {Table} table @returns {Traffic} */
export function trafficOf(table) {
  let traffic = traffics.get(table);
  if (!traffic) traffics.set(table, (traffic = new Traffic(table)));
  return traffic.read();
}

/** Bytes that one microbatch moved in one direction, or NaN. @param {Load | undefined} load */
export const perMicrobatch = (load) =>
  load?.microbatches.size ? load.bytes / load.microbatches.size : NaN;

// @ts-check
/**
 * How much time of each class lies in any interval, exactly, however long the run: a *line* is a
 * stretch of time cut into disjoint segments, one class each, with running totals every 64
 * segments. No browser, no drawing.
 *
 * Rows of a lane nest (a collective's row holds the sends, receives and waits that made it) and
 * overlap (a relay's receive and send begin together), and come in order of their end: inner ones
 * first. So the first row keeps its time, and a later row is given what is left within it:
 * nothing is counted twice, and the sum over classes of any interval is at most its length. Times
 * are nanoseconds.
 */

/**
 * The classes of time. `upkeep`: what belongs to the run but not to training itself (measuring,
 * checkpoints, recovery).
 */
export const SPANS = [
  "forward",
  "backward",
  "weight-grad",
  "optimizer",
  "load",
  "upkeep",
  "comm",
  "reduce",
  "wait",
];
/** Their numbers. */
export const SPAN = {
  forward: 0,
  backward: 1,
  "weight-grad": 2,
  optimizer: 3,
  load: 4,
  upkeep: 5,
  comm: 6,
  reduce: 7,
  wait: 8,
};
const WIDE = SPANS.length;

/** The class of each kind of row; what is not here takes no time. @type {Record<string, number>} */
export const SPAN_OF_KIND = {
  forward: SPAN.forward,
  backward: SPAN.backward,
  weight_grad: SPAN["weight-grad"],
  optimizer: SPAN.optimizer,
  load: SPAN.load,
  metric: SPAN.upkeep,
  abort: SPAN.upkeep,
  rebuild: SPAN.upkeep,
  restore: SPAN.upkeep,
  checkpoint: SPAN.upkeep,
  collective: SPAN.comm,
  send: SPAN.comm,
  recv: SPAN.comm,
  push: SPAN.comm,
  pull: SPAN.comm,
  reduce: SPAN.reduce,
  copy: SPAN.reduce,
  apply: SPAN.reduce,
  wait: SPAN.wait,
};
/** Whether a class is computing: time that no communication is charged for. @param {number} kind */
export const isComputing = (kind) => kind <= SPAN.upkeep;

const IN_BLOCK = 64;
const TO_BLOCK = 6; // segments between two totals

export class Line {
  constructor() {
    this.length = 0;
    this.from = new Float64Array(IN_BLOCK);
    this.to = new Float64Array(IN_BLOCK);
    this.kind = new Uint8Array(IN_BLOCK);
    /** Totals before segment 64 k. */
    this.sums = new Float64Array(WIDE);
    this.spare = {
      from: new Float64Array(IN_BLOCK),
      to: new Float64Array(IN_BLOCK),
      kind: new Uint8Array(IN_BLOCK),
    };
  }

  /** The end of the last segment. */
  get end() {
    return this.length ? this.to[this.length - 1] : -Infinity;
  }

  /**
   * Give [from, to) to this class where no class has it yet.
   * @param {number} from
   * @param {number} to
   * @param {number} kind
   */
  cover(from, to, kind) {
    if (!(to > from)) return;
    if (from >= this.end) return this.#push(from, to, kind);
    const first = this.find(from);
    const moved = this.length - first;
    const { spare } = this;
    if (moved > spare.from.length)
      this.spare = {
        from: new Float64Array(2 * moved),
        to: new Float64Array(2 * moved),
        kind: new Uint8Array(2 * moved),
      };
    const old = this.spare;
    for (let i = 0; i < moved; i++) {
      old.from[i] = this.from[first + i];
      old.to[i] = this.to[first + i];
      old.kind[i] = this.kind[first + i];
    }
    this.length = first;
    let at = from;
    for (let i = 0; i < moved; i++) {
      if (at < old.from[i] && at < to) this.#push(at, Math.min(to, old.from[i]), kind);
      this.#push(old.from[i], old.to[i], old.kind[i]);
      if (old.to[i] > at) at = old.to[i];
    }
    if (at < to) this.#push(at, to, kind);
  }

  /** Forget everything from this moment on. @param {number} t */
  rewind(t) {
    const i = this.find(t);
    const cut = i < this.length && this.from[i] < t;
    this.length = i;
    if (cut) this.to[this.length++] = t;
  }

  /** Forget everything before this moment. @param {number} t */
  drop(t) {
    const gone = this.find(t);
    const kept = this.length - gone;
    if (!gone) return;
    const { from, to, kind } = this;
    from.copyWithin(0, gone, this.length);
    to.copyWithin(0, gone, this.length);
    kind.copyWithin(0, gone, this.length);
    this.length = 0;
    for (let i = 0; i < kept; i++) this.#push(from[i], to[i], kind[i]);
  }

  /**
   * A segment after all others; one that continues the last becomes part of it.
   * @param {number} from
   * @param {number} to
   * @param {number} kind
   */
  #push(from, to, kind) {
    const n = this.length;
    if (n && this.to[n - 1] === from && this.kind[n - 1] === kind) {
      this.to[n - 1] = to;
      return;
    }
    if (n === this.from.length) this.#grow();
    if (n && !(n & (IN_BLOCK - 1))) this.#total(n >> TO_BLOCK);
    this.from[n] = from;
    this.to[n] = to;
    this.kind[n] = kind;
    this.length = n + 1;
  }

  #grow() {
    for (const name of /** @type {const} */ (["from", "to", "kind"])) {
      const more = new /** @type {any} */ (this[name].constructor)(2 * this.length);
      more.set(this[name]);
      /** @type {any} */ (this)[name] = more;
    }
    const sums = new Float64Array(2 * (this.length >> TO_BLOCK) * WIDE);
    sums.set(this.sums);
    this.sums = sums;
  }

  /** Write the totals of all blocks before this one. @param {number} block */
  #total(block) {
    const { sums } = this;
    const at = block * WIDE;
    sums.copyWithin(at, at - WIDE, at);
    for (let i = (block - 1) << TO_BLOCK; i < block << TO_BLOCK; i++)
      sums[at + this.kind[i]] += this.to[i] - this.from[i];
  }

  /**
   * The first segment that ends after this moment; `length` if none does. `first`: one that is
   * known not to be after it.
   * @param {number} t
   * @param {number} [first]
   * @returns {number}
   */
  find(t, first = 0) {
    const { to } = this;
    let low = first;
    let high = this.length;
    if (high && to[high - 1] <= t) return high;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (to[middle] > t) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** The class at a moment, -1 for none. @param {number} t */
  at(t) {
    const i = this.find(t);
    return i < this.length && this.from[i] <= t ? this.kind[i] : -1;
  }

  /**
   * The time of each class up to a moment, in O(log n).
   * @param {number} t @param {Float64Array} totals  overwritten @param {number} [at] where in it
   */
  until(t, totals, at = 0) {
    const i = this.find(t);
    this.#between(Math.min(i, Math.max(0, this.length - 1)) >> TO_BLOCK, i, t, totals, at);
  }

  /**
   * Totals before this block, then on to segment `i`, which the moment lies in or before.
   * @param {number} block
   * @param {number} i
   * @param {number} t
   * @param {Float64Array} totals
   * @param {number} at
   */
  #between(block, i, t, totals, at) {
    const { sums, from, to, kind } = this;
    for (let c = 0; c < WIDE; c++) totals[at + c] = sums[block * WIDE + c];
    for (let k = block << TO_BLOCK; k < i; k++) totals[at + kind[k]] += to[k] - from[k];
    if (i < this.length && from[i] < t) totals[at + kind[i]] += t - from[i];
  }

  /**
   * The time of each class within [from, to).
   * @param {number} from
   * @param {number} to
   * @returns {Float64Array}
   */
  within(from, to) {
    const sums = new Float64Array(WIDE);
    const before = new Float64Array(WIDE);
    if (!(to > from) || !this.length) return sums;
    this.until(from, before);
    this.until(to, sums);
    for (let c = 0; c < WIDE; c++) sums[c] -= before[c];
    return sums;
  }

  /**
   * The time of each class in every column of a picture: column k is [from + k dt, from + (k + 1)
   * dt). Costs the segments that are in it, or log n a column where there are more.
   * @param {number} from
   * @param {number} dt
   * @param {number} columns
   * @param {Float64Array} out  columns × WIDE, overwritten
   */
  columns(from, dt, columns, out) {
    out.fill(0, 0, columns * WIDE);
    const { length } = this;
    const ends = this.to;
    const begins = this.from;
    const kinds = this.kind;
    if (!length) return;
    let i = this.find(from);
    for (let k = 0; k < columns && i < length; k++) {
      const left = from + k * dt;
      const right = from + (k + 1) * dt;
      const at = k * WIDE;
      // two blocks on: then it is quicker to ask the totals
      const next = ((i >> TO_BLOCK) + 2) << TO_BLOCK;
      if (next < length && ends[next] <= right) {
        this.until(left, lefts);
        i = this.find(right, next);
        this.#between(Math.min(i, length - 1) >> TO_BLOCK, i, right, out, at);
        for (let c = 0; c < WIDE; c++) out[at + c] -= lefts[c];
        continue;
      }
      while (i < length && begins[i] < right) {
        const begin = begins[i] < left ? left : begins[i];
        const end = ends[i] > right ? right : ends[i];
        if (end > begin) out[at + kinds[i]] += end - begin;
        if (ends[i] > right) break;
        i++;
      }
    }
  }
}

const lefts = new Float64Array(WIDE);
// whose time it is: computing's, then by class
const TURN = SPANS.map((_, kind) => (isComputing(kind) ? 0 : kind));

/**
 * What a rank does: its lanes laid over each other from a moment on. Computing comes first, then
 * communication, its adding and copying, then waiting: so communication in it is *exposed*, and
 * waiting in it cost time.
 * @param {Line} out  rewound to `from` @param {Line[]} lines @param {number} from
 */
export function layOver(out, lines, from) {
  out.rewind(from);
  const at = lines.map((line) => line.find(from));
  const n = lines.length;
  for (let x = from; ; ) {
    let best = -1;
    let next = Infinity;
    for (let j = 0; j < n; j++) {
      const line = lines[j];
      let i = at[j];
      while (i < line.length && line.to[i] <= x) i++;
      at[j] = i;
      if (i >= line.length) continue;
      if (line.from[i] > x) {
        if (line.from[i] < next) next = line.from[i];
        continue;
      }
      if (line.to[i] < next) next = line.to[i];
      if (best < 0 || TURN[line.kind[i]] < TURN[best]) best = line.kind[i];
    }
    if (next === Infinity) return;
    if (best >= 0) out.cover(x, next, best);
    x = next;
  }
}

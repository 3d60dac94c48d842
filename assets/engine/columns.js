// @ts-check
/**
 * The columns of the rows that a page keeps, and how they are unpacked from a message.
 */

/** The array of each type of a column. */
export const NUMBERS = {
  f8: Float64Array,
  i4: Int32Array,
  u4: Uint32Array,
  i2: Int16Array,
  u2: Uint16Array,
  u1: Uint8Array,
};

export const ROW_COLUMNS = /** @type {const} */ ({
  start: Float64Array,
  end: Float64Array,
  nbytes: Float64Array,
  value: Float64Array,
  seq: Int32Array,
  step: Int32Array,
  chunk: Int32Array,
  slot: Int32Array,
  peer: Int16Array,
  name: Uint16Array,
  phase: Uint16Array,
  kind: Uint8Array,
});

export const PASSAGE_COLUMNS = /** @type {const} */ ({
  op: Int32Array,
  iteration: Int32Array,
  generation: Int32Array,
  microbatch: Int32Array,
  stage: Int32Array,
  version: Int32Array,
  count: Uint32Array,
  rank: Int16Array,
  lane: Uint16Array,
  collective: Uint16Array,
  algorithm: Uint16Array,
  group: Uint16Array,
});

/**
 * Rows that a page keeps; beyond it the older half is let go, and `forgotten` says how many that
 * were.
 */
export const CAPACITY = 2_000_000;

/**
 * @template T
 * @typedef {{-readonly [K in keyof T]: T[K] extends new (n: number) => infer A ? A : never}}
 *   Columns
 */

/**
 * The columns of a block: arrays of fixed-size little-endian numbers, one after the other, padded
 * to eight bytes.
 * @param {[string, string][]} layout  names and number types, in their order
 * @param {number} rows @param {ArrayBuffer} whole @param {number} at  where the first begins
 * @returns {[Record<string, any>, number]} the columns, and where the block ends
 */
export function unpackColumns(layout, rows, whole, at) {
  const columns = /** @type {Record<string, any>} */ ({});
  for (const [name, code] of layout) {
    const column = new NUMBERS[/** @type {keyof typeof NUMBERS} */ (code)](whole, at, rows);
    columns[name] = column;
    at += Math.ceil(column.byteLength / 8) * 8;
  }
  return [columns, at];
}

/**
 * Columns of this many rows, the old ones' content at their start.
 * @param {any} kinds
 * @param {number} room
 * @param {any} [old]
 * @returns {any}
 */
export function roomFor(kinds, room, old) {
  return Object.fromEntries(
    Object.entries(kinds).map(([name, Numbers]) => {
      const column = new Numbers(room);
      if (old) column.set(old[name]);
      return [name, column];
    }),
  );
}

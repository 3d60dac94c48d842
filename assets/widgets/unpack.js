// @ts-check
/**
 * A saved run as the messages that a live one sends: workbench/views/pages/compact.py undone, bit
 * by bit. Pure: no browser.
 *
 * The file is parts, one a message: two lengths (u4), the header as JSON, the columns. A column is
 * one byte that says how many planes it has, then the planes: all lowest bytes, all second bytes,
 * ... of whole numbers with the sign in bit 0.
 */

const ARRAYS = {
  f8: Float64Array,
  i4: Int32Array,
  u4: Uint32Array,
  i2: Int16Array,
  u2: Uint16Array,
  u1: Uint8Array,
};

/**
 * The parts of a file, not yet unpacked.
 * @param {Uint8Array} file
 * @returns {Generator<{header: any, columns: Uint8Array}>}
 */
export function* partsOf(file) {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  for (let at = 0; at < file.length; ) {
    const header = at + 8;
    const columns = header + view.getUint32(at, true);
    const end = columns + view.getUint32(at + 4, true);
    yield {
      header: JSON.parse(new TextDecoder().decode(file.subarray(header, columns))),
      columns: file.subarray(columns, end),
    };
    at = end;
  }
}

/** Reads columns one after the other. */
class Planes {
  /** @param {Uint8Array} data */
  constructor(data) {
    this.data = data;
    this.at = 0;
  }

  /** The next column, `rows` whole numbers. @param {number} rows */
  next(rows) {
    const { data } = this;
    const width = data[this.at];
    const first = this.at + 1;
    const numbers = new Float64Array(rows);
    for (let i = 0; i < rows; i++) {
      let low = 0;
      let high = 0;
      for (let plane = width - 1; plane >= 4; plane--)
        high = high * 256 + data[first + plane * rows + i];
      for (let plane = Math.min(width, 4) - 1; plane >= 0; plane--)
        low = low * 256 + data[first + plane * rows + i];
      const half = high * 2 ** 31 + Math.floor(low / 2);
      numbers[i] = low % 2 ? -half - 1 : half;
    }
    this.at = first + width * rows;
    return numbers;
  }

  /** So many columns. @param {number} count @param {number} rows */
  some(count, rows) {
    return Array.from({ length: count }, () => this.next(rows));
  }

  /**
   * The last column: eight planes that are the bytes of `rows` numbers; two words each.
   * @param {number} rows
   */
  doubles(rows) {
    const bytes = new Uint8Array(8 * rows);
    for (let plane = 0; plane < 8; plane++)
      for (let i = 0; i < rows; i++) bytes[8 * i + plane] = this.data[this.at + plane * rows + i];
    return new Int32Array(bytes.buffer);
  }
}

/**
 * The block of a message as it is on the wire.
 * @param {any} header @param {Uint8Array} columns
 * @returns {ArrayBuffer}
 */
export function unpack(header, columns) {
  const n = header.rows;
  const m = header.passages;
  const { lanes, shapes, contexts } = header.compact;
  const [block, row, passage] = blockOf(header);
  if (!n) return block;
  const shaped = header.layout
    .map(columnName)
    .filter((/** @type {string} */ name) => !["start", "end", "seq", "value"].includes(name));
  const shared = header.passage_layout
    .map(columnName)
    .filter(
      (/** @type {string} */ name) =>
        !["count", "rank", "lane", "op", "iteration", "version"].includes(name),
    );
  const planes = new Planes(columns);
  const [rank, lane] = planes.some(2, lanes);
  const context = planes.some(shared.length, contexts);
  const laneOf = planes.next(m);
  const [count, contextOf, op, iteration, version] = planes.some(5, m);
  const shape = planes.some(shaped.length, shapes);
  const [start, last, shapeOf, seq] = planes.some(4, n);
  const value = planes.doubles(n);
  // bits, as they are: a NaN keeps its own
  const values = new Int32Array(block, row.value.byteOffset, 2 * n);
  const shapeTo = shaped.map((/** @type {string} */ name) => row[name]);
  const contextTo = shared.map((/** @type {string} */ name) => passage[name]);

  // Columns are in the order of lanes, the block is in the order of passages: each lane has its own
  // place to read on from.
  const nextPassage = new Float64Array(lanes);
  const nextRow = new Float64Array(lanes);
  for (let p = 0; p < m; p++) nextPassage[laneOf[p]] += 1;
  sumsBefore(nextPassage);
  for (let l = 0; l < lanes; l++) {
    const stop = l + 1 < lanes ? nextPassage[l + 1] : m;
    for (let q = nextPassage[l]; q < stop; q++) nextRow[l] += count[q];
  }
  sumsBefore(nextRow);
  const [ends, seqs, ops, iterations, versions] = Array.from(
    { length: 5 },
    () => new Float64Array(lanes),
  );
  let to = 0;
  for (let p = 0; p < m; p++) {
    const l = laneOf[p];
    const q = nextPassage[l]++;
    passage.count[p] = count[q];
    passage.rank[p] = rank[l];
    passage.lane[p] = lane[l];
    passage.op[p] = ops[l] += op[q];
    passage.iteration[p] = iterations[l] += iteration[q];
    passage.version[p] = versions[l] += version[q];
    for (let c = 0; c < contextTo.length; c++) contextTo[c][p] = context[c][contextOf[q]];
    for (const stop = to + count[q]; to < stop; to++) {
      const from = nextRow[l]++;
      const began = ends[l] + start[from];
      row.start[to] = began;
      row.end[to] = ends[l] = began + last[from];
      row.seq[to] = seqs[l] += seq[from] + 1;
      for (let c = 0; c < shapeTo.length; c++) shapeTo[c][to] = shape[c][shapeOf[from]];
      values[2 * to] = value[2 * from];
      values[2 * to + 1] = value[2 * from + 1];
    }
  }
  return block;
}

const columnName = (/** @type {[string, string]} */ [name]) => name;

/**
 * Room for a message's block, and its columns in it.
 * @param {any} header
 * @returns {[ArrayBuffer, Record<string, any>, Record<string, any>]}
 */
function blockOf(header) {
  const places = /** @type {[string, string, number, number, boolean][]} */ ([]);
  let at = 0;
  for (const [layout, rows, ofRow] of [
    [header.layout, header.rows, true],
    [header.passage_layout, header.passages, false],
  ]) {
    for (const [name, code] of layout ?? []) {
      places.push([name, code, at, rows, ofRow]);
      at +=
        Math.ceil(
          (rows * ARRAYS[/** @type {keyof typeof ARRAYS} */ (code)].BYTES_PER_ELEMENT) / 8,
        ) * 8;
    }
  }
  const block = new ArrayBuffer(at);
  const row = /** @type {Record<string, any>} */ ({});
  const passage = /** @type {Record<string, any>} */ ({});
  for (const [name, code, from, rows, ofRow] of places)
    (ofRow ? row : passage)[name] = new ARRAYS[/** @type {keyof typeof ARRAYS} */ (code)](
      block,
      from,
      rows,
    );
  return [block, row, passage];
}

/** Each number becomes the sum of those before it. @param {Float64Array} numbers */
function sumsBefore(numbers) {
  let sum = 0;
  for (let i = 0; i < numbers.length; i++) {
    const number = numbers[i];
    numbers[i] = sum;
    sum += number;
  }
}

// @ts-check
/**
 * Where the sharded model's marks stand: a row a rank, a column a layer, at the end of the row what
 * the rank holds. Pure.
 *
 * @typedef {import("./frame.js").ShardLayer} ShardLayer
 * @typedef {{x: number, w: number}} Column
 * @typedef {{key: string, width: number, height: number, top: number, left: number, row: number,
 *   cell: number, columns: Column[], memory: Column, level: "slots" | "bar" | "line",
 *   names: boolean}} ShardsPlace
 *   slots: a rank's part is seen in each cell; bar: its own and the rest; line: without words.
 *   cell: a cell's height
 */
const NARROW = 760;
const HEAD = 40;
const FOOT = 22;
const GAP = 5;
const LEAST = 22; // px of a column, if there is room

/**
 * @param {number} width
 * @param {number} ranks
 * @param {ShardLayer[]} layers
 * @returns {ShardsPlace}
 */
export function placeOf(width, ranks, layers) {
  const wide = width >= NARROW;
  const left = wide ? 62 : 52;
  const memory = wide ? 236 : 150;
  const row =
    ranks <= 4 ? 40 : ranks <= 8 ? 30 : ranks <= 16 ? 20 : Math.max(5, Math.floor(320 / ranks));
  const room = width - left - memory - 24;
  const count = Math.max(1, layers.length);
  const gap = count > 40 ? 1 : GAP;
  const least = Math.min(LEAST, (room - gap * (count - 1)) / count);
  const spare = Math.max(0, room - gap * (count - 1) - least * count);
  const all = layers.reduce((sum, { bytes }) => sum + Math.sqrt(bytes), 0) || 1;
  const columns = [];
  let x = left;
  for (const { bytes } of layers) {
    const w = least + (layers.length > 1 ? (spare * Math.sqrt(bytes)) / all : spare);
    columns.push({ x, w });
    x += w + gap;
  }
  const level =
    ranks > 16 ? "line" : ranks > 8 || columns.some(({ w }) => w / ranks < 2.5) ? "bar" : "slots";
  const cell = Math.max(3, row - (row > 16 ? 10 : row > 8 ? 4 : 1));
  return {
    key: [width, ranks, layers.map(({ bytes }) => bytes)].join(),
    width,
    height: HEAD + ranks * row + FOOT,
    top: HEAD,
    left,
    row,
    cell,
    columns,
    memory: { x: width - memory, w: memory - 8 },
    level,
    names: least >= 12,
  };
}

/**
 * Where a rank's part lies in a cell, by its bytes.
 * @param {Column} column
 * @param {ShardLayer} layer
 * @param {number} rank
 * @param {number} ranks
 * @returns {Column}
 */
export function partOf({ x, w }, layer, rank, ranks) {
  const all = layer.parts.reduce((sum, part) => sum + part, 0);
  if (!all) return { x: x + (w * rank) / ranks, w: w / ranks };
  let before = 0;
  for (let r = 0; r < rank; r++) before += layer.parts[r];
  return { x: x + (w * before) / all, w: (w * layer.parts[rank]) / all };
}

/** The top of a rank's cells. @param {ShardsPlace} place @param {number} rank */
export const topOf = (place, rank) => place.top + rank * place.row + (place.row - place.cell) / 2;

/**
 * What lies under the pointer.
 * @param {ShardsPlace} place
 * @param {number} ranks
 * @param {number} x
 * @param {number} y
 * @returns {{rank: number, layer: number} | null} layer -1: what the rank holds
 */
export function hitUnder(place, ranks, x, y) {
  const rank = Math.floor((y - place.top) / place.row);
  if (rank < 0 || rank >= ranks) return null;
  if (x >= place.memory.x || x < place.left) return { rank, layer: -1 };
  const layer = place.columns.findIndex((column) => x >= column.x && x <= column.x + column.w);
  return layer < 0 ? null : { rank, layer };
}

/** The end of a scale of bytes: round, and never less than what is shown. @param {number} most */
export function bytesScale(most) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(1, most)));
  return ([1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((k) => k * unit >= most) ?? 10) * unit;
}

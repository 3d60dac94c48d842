// @ts-check
/**
 * Where minibatches lie: panels of one size beside and below each other, as many as fit on a page.
 * Pure functions.
 *
 * @typedef {import("./deal.js").Deal} Deal
 * @typedef {{key: string, left: number, width: number, height: number, cell: number, row: number,
 *   head: number, upright: boolean, plain: boolean, numbers: boolean, panel: number,
 *   across: number, down: number, rows: number, page: number, pages: number,
 *   panels: {index: number, x: number, y: number}[]}} DealPlace
 *   cell, row: a sample's width and height; head: height of one process's row; upright: its numbers
 *   stand upright; plain: it has none; numbers: ranks' cells have theirs;
 *   panel: width of a panel; across, down: panels on a page; x, y: where a panel's own cells begin,
 *   one process's row first
 */

const DEAL = { left: 78, narrow: 66, gap: 22, title: 20, below: 16, high: 560, split: 7 };
const LETTER = 6.3; // width of a digit, 11 px

/** How high a rank's row is, by the number of ranks. @param {number} ranks */
const rowHeight = (ranks) => (ranks <= 8 ? 21 : ranks <= 16 ? 15 : ranks <= 32 ? 9 : 6);

/** @param {Deal} deal @param {number} width @param {number} page @returns {DealPlace} */
export function placeOf(deal, width, page) {
  const ranks = deal.ranks.length;
  const row = rowHeight(ranks);
  const left = width < 760 ? DEAL.narrow : DEAL.left;
  const room = width - left - 2;
  // beside a number on a hatch the hatch is seen
  const need = Math.max(20, deal.digits * LETTER + (deal.batches.some((b) => b.again) ? 14 : 7));
  const most = deal.most;
  const extra = DEAL.split;
  const fit = (room - extra) / most;
  const cell =
    fit >= need
      ? 2 * (need * most + extra) + DEAL.gap > room
        ? Math.min(1.5 * need, Math.floor(fit))
        : need
      : Math.max(1, fit >= 3 ? Math.floor(fit) : fit);
  const numbers = cell >= need && row >= 15;
  const upright = cell < need && cell >= 11;
  const plain = cell < 11;
  const head = upright ? Math.ceil(deal.digits * LETTER + 8) : plain ? 8 : 20;
  const panel = cell * most + extra;
  const across = Math.max(1, Math.floor((room + DEAL.gap) / (panel + DEAL.gap)));
  const line = DEAL.title + head + 3 + row * ranks + DEAL.below;
  const down = Math.max(
    1,
    Math.min(Math.floor(DEAL.high / line), Math.ceil(deal.batches.length / across)),
  );
  const each = across * down;
  const pages = Math.ceil(deal.batches.length / each);
  const shown = Math.max(0, Math.min(pages - 1, page));
  const panels = deal.batches.slice(shown * each, (shown + 1) * each).map(({ index }, i) => ({
    index,
    x: left + (i % across) * (panel + DEAL.gap),
    y: Math.floor(i / across) * line + DEAL.title,
  }));
  return {
    key: [width, cell, row, head, shown, pages, deal.batches.length, deal.most, ranks].join(),
    left,
    width,
    height: line * down,
    cell,
    row,
    head,
    upright,
    plain,
    numbers,
    panel,
    across,
    down,
    rows: ranks,
    page: shown,
    pages,
    panels,
  };
}

/** The page on which a minibatch lies. @param {DealPlace} place @param {number} index */
export const pageOf = (place, index) => Math.floor(index / (place.across * place.down));

/**
 * The left edge of a column: those that one process does not take stand apart.
 * @param {DealPlace} place
 * @param {number} x  of the panel
 * @param {number} column
 * @param {number} wide  columns of one process
 */
export const columnAt = (place, x, column, wide) =>
  x + column * place.cell + (column >= wide ? DEAL.split : 0);

/**
 * The top of a row within a panel: -1 is one process.
 * @param {DealPlace} place
 * @param {number} y
 * @param {number} row
 */
export const rowAt = (place, y, row) => (row < 0 ? y : y + place.head + 3 + row * place.row);

/**
 * What lies at a place of the canvas.
 * @param {DealPlace} place
 * @param {Deal} deal
 * @param {number} x
 * @param {number} y
 * @returns {{index: number, row: number, column: number} | null} column: -1 where no sample is
 */
export function hitUnder(place, deal, x, y) {
  for (const panel of place.panels) {
    if (
      x < (panel.x === place.left ? 0 : panel.x - 4) ||
      x > panel.x + place.panel ||
      y < panel.y - DEAL.title ||
      y > rowAt(place, panel.y, place.rows)
    )
      continue;
    const batch = deal.batches[panel.index];
    const row =
      y < panel.y + place.head + 2
        ? -1
        : Math.min(
            place.rows - 1,
            Math.max(0, Math.floor((y - rowAt(place, panel.y, 0)) / place.row)),
          );
    const column =
      y < panel.y
        ? -1
        : batch.columns.findIndex(
            (_, k) =>
              x >= columnAt(place, panel.x, k, batch.wide) &&
              x < columnAt(place, panel.x, k, batch.wide) + place.cell,
          );
    return { index: panel.index, row, column };
  }
  return null;
}

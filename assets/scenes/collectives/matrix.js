// @ts-check
/**
 * What each rank holds: a cell for each rank × chunk, and beside it, in the same row, how far the
 * rank is: step k of N, bytes sent against the bound. Geometry, then drawing; cells that have not
 * changed are not drawn again.
 *
 * @typedef {import("../../engine/rates.js").Reading} Reading
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {ReturnType<typeof import("../../engine/model.js").frameAt>} Frame
 * @typedef {{rows: number, columns: number, left: number, top: number, cw: number, rh: number,
 *   cell: {w: number, h: number, dx: number}, tail: number, steps: {x: number, bar: number},
 *   sent: {x: number, bar: number, end: number}, strip: boolean}} Grid
 *   cw, rh: pitch of the cells; cell.dx: from a cell's place to its left edge; tail: where the
 *   columns beside begin; strip: shades, no glyphs
 */
import { cross, crossAt, drawGlyph, huesOf, onHues } from "../../drawing/glyph.js";
import { drawNaN } from "../../drawing/nan.js";
import { neededIn } from "../../engine/holdings.js";
import { isCoarser, recordsContents } from "../../engine/operation.js";
import { cellHasNaN } from "../../engine/poison.js";
import { pieceName } from "../../engine/format.js";

const NO_CONTENTS = [
  "Not recorded. What is passed on is one tensor here,",
  "what is added up another: the messages do not",
  "say whose parts a rank holds.",
];

const COARSER = [
  "Not recorded. The way to the driver was slow, so",
  "a rank's messages of this call came as sums.",
];

const HEAD = 34;

const GLYPHS = 32; // ranks or chunks; with more the cells are shades

/** @param {number} ranks @param {number} room  px for all, where a whole screen is to be filled */
const rowHeight = (ranks, room) =>
  room > HEAD + 2
    ? Math.max(1, (room - HEAD - 2) / ranks)
    : ranks > 8
      ? Math.max(1, 296 / ranks)
      : ranks > 4
        ? 37
        : 58;

/**
 * Height of the picture in CSS pixels; it depends on the ranks and the room only.
 * @param {number} ranks @param {number} [room]
 */
export const matrixHeight = (ranks, room = 0) =>
  Math.ceil(HEAD + ranks * rowHeight(ranks, room) - 0.001) + 2;

/**
 * Where everything lies.
 * @param {number} ranks
 * @param {number} chunks
 * @param {number} width
 * @param {number} [room]
 * @returns {Grid}
 */
export function gridOf(ranks, chunks, width, room = 0) {
  const tail = width < 360 ? 78 : 176;
  const left = 26;
  const columns = Math.max(1, chunks);
  const cw = Math.max(1, Math.min(240, (width - left - tail) / columns)); // 1: a tab being opened
  const rh = rowHeight(ranks, room);
  const strip = ranks > GLYPHS || columns > GLYPHS;
  const dx = strip ? 0 : cw > 14 ? 2 : 1;
  const gap = strip ? 0 : ranks > 8 ? 3 : 7;
  const bars = tail > 100;
  const at = width - tail + 14;
  return {
    rows: ranks,
    columns,
    left,
    top: HEAD,
    cw,
    rh,
    cell: { w: strip ? cw : Math.max(1, cw - 2 * dx), h: Math.max(1, rh - gap), dx },
    tail: at,
    steps: { x: at + 16, bar: bars ? 34 : 0 },
    sent: { x: width - 96, bar: bars ? 50 : 0, end: width },
    strip,
  };
}

/** @param {Grid} grid @param {number} row @param {number} column */
export const cellBox = ({ left, top, cw, rh, cell }, row, column) => ({
  x: left + column * cw + cell.dx,
  y: top + row * rh,
  w: cell.w,
  h: cell.h,
});

/** The cell under the pointer. @param {Grid} grid @param {number} x @param {number} y */
export function cellUnder({ left, top, cw, rh, rows, columns }, x, y) {
  const row = Math.floor((y - top) / rh);
  const column = Math.floor((x - left) / cw);
  return row >= 0 && row < rows && column >= 0 && column < columns ? { row, column } : null;
}

/** Return the unit for a call's bytes. @param {number} most @returns {[number, string]} */
export const unitOf = (most) =>
  most < 10e3 ? [1, "B"] : most < 10e6 ? [1e3, "kB"] : most < 10e9 ? [1e6, "MB"] : [1e9, "GB"];

/**
 * What a cell's glyph shows.
 * @param {Reading} reading
 * @param {number} cell
 * @param {number} state
 * @param {boolean} over  its rank is through
 * @returns {import("../../drawing/glyph.js").Fill}
 */
export function cellFill({ holdings }, cell, state, over) {
  const { ranks, chunks, within, twice, whole, way, asked } = holdings;
  const needed = over ? neededIn(holdings, cell) : [];
  const n = ranks.length;
  const slots = holdings.slots[cell % chunks.length];
  const shares = new Float32Array(n);
  const doubled = /** @type {number[]} */ ([]);
  const lacking = /** @type {number[]} */ ([]);
  for (let i = 0; i < n; i++) {
    shares[i] = within[state * n + i] / slots;
    if (twice[state * n + i]) doubled.push(i);
    else if (shares[i] < 1 && needed.includes(i)) lacking.push(i);
  }
  return {
    shares,
    whole: whole[state] === slots,
    doubled: way === "sum" ? doubled : [],
    lacking,
    open: !asked[cell],
    single: way === "keep",
  };
}

/** The cells of a call as they were last drawn: only what has changed is drawn again. */
export class CellLayer {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.key = "";
    this.drawn = new Int32Array(0);
  }

  /**
   * @param {Look} look
   * @param {Grid} grid
   * @param {Reading} reading
   * @param {Int32Array} states
   * @param {number} t
   * @param {number} height
   * @param {import("../../engine/poison.js").Poison | null} [poison]
   */
  update(look, grid, reading, states, t, height, poison = null) {
    const { ink, ratio, width } = look;
    const { holdings, call } = reading;
    const key = [
      call.key,
      call.rows.length,
      width,
      height,
      grid.cw,
      ratio,
      ink.track,
      look.ranks,
      poison?.place,
      ...(poison?.chunks ?? []),
    ].join();
    const g = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    const columns = holdings.chunks.length;
    if (key !== this.key) {
      this.key = key;
      this.canvas.width = Math.ceil((grid.left + grid.columns * grid.cw + 4) * ratio);
      this.canvas.height = Math.ceil(height * ratio);
      this.drawn = new Int32Array(states.length).fill(-1);
      g.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    const hues = huesOf(ink, holdings.ranks, look.ranks);
    const ons = onHues(ink, holdings.ranks, look.ranks);
    for (let cell = 0; cell < states.length; cell++) {
      const row = Math.floor(cell / columns);
      const over = holdings.judged && t >= holdings.left[row];
      const code = 2 * states[cell] + Number(over);
      if (this.drawn[cell] === code) continue;
      this.drawn[cell] = code;
      const { x, y, w, h } = cellBox(grid, row, cell % columns);
      const fill = cellFill(reading, cell, states[cell], over);
      const room = grid.strip ? 0 : 1.5;
      g.clearRect(x - room, y - room, w + 2 * room, h + 2 * room);
      if (grid.strip) drawShade(g, ink, x, y, w, h, fill);
      else drawGlyph(g, ink, hues, x, y, w, h, fill);
      if (!grid.strip && !fill.whole)
        numberSlots(g, look.font, ons, x, y, w, h, fill, holdings.ranks);
      if (cellHasNaN(poison, holdings, cell, states[cell]))
        drawNaN(g, ink, look.font, ratio, x, y, w, h);
    }
    return this.canvas;
  }
}

/**
 * A cell of a heat strip: the more is in, the stronger.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {import("../../drawing/glyph.js").Fill} fill
 */
export function drawShade(g, ink, x, y, w, h, fill) {
  let sum = 0;
  for (let i = 0; i < fill.shares.length; i++) sum += fill.shares[i];
  const wrong = fill.doubled.length + fill.lacking.length > 0;
  if (fill.open && !sum) return;
  g.fillStyle = ink.track;
  g.fillRect(x, y, w, h);
  g.globalAlpha =
    fill.whole || wrong ? 1 : 0.1 + 0.55 * (sum / (fill.single ? 1 : fill.shares.length));
  g.fillStyle = wrong ? ink.fault : ink.done;
  g.fillRect(x, y, w, h);
  g.globalAlpha = 1;
}

/**
 * Who a slot belongs to, where there is room.
 * @param {CanvasRenderingContext2D} g
 * @param {string} font
 * @param {string[]} ons
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {import("../../drawing/glyph.js").Fill} fill
 * @param {number[]} ranks
 */
function numberSlots(g, font, ons, x, y, w, h, fill, ranks) {
  const n = ranks.length;
  const each = (w - 2) / n;
  if (each < 13 || h < 22) return;
  g.font = `700 11px ${font}`;
  g.textAlign = "center";
  g.textBaseline = "middle";
  for (let i = 0; i < n; i++) {
    if (fill.shares[i] < 1 || fill.doubled.includes(i)) continue;
    g.fillStyle = ons[i];
    g.fillText(String(ranks[i]), x + 1 + (i + 0.5) * each, y + h / 2 + 0.5);
  }
}

/**
 * What arrives: an orange frame, and at the bottom how much of the way is done.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {Grid} grid
 * @param {Reading} reading
 * @param {Frame} frame
 */
export function drawArriving(g, ink, grid, reading, frame) {
  const { place, chunks } = reading.holdings;
  const shares = /** @type {Map<number, number[]>} */ (new Map());
  for (const c of frame.comets) {
    const cell = (place.get(c.to) ?? 0) * chunks.length + chunks.indexOf(c.chunk);
    const list = shares.get(cell);
    if (list) list.push(c.share);
    else shares.set(cell, [c.share]);
  }
  g.strokeStyle = g.fillStyle = ink.comm;
  g.lineWidth = grid.strip ? 1 : 1.5;
  for (const [cell, list] of shares) {
    const { x, y, w, h } = cellBox(grid, Math.floor(cell / chunks.length), cell % chunks.length);
    const share = list.reduce((a, b) => a + b) / list.length;
    if (grid.strip) {
      g.fillRect(x, y, Math.max(1, w), Math.max(1, h));
      continue;
    }
    g.beginPath();
    g.roundRect(x - 1.5, y - 1.5, w + 3, h + 3, 3);
    g.stroke();
    g.fillRect(x - 1.5, y + h - (h > 16 ? 2.5 : 2), (w + 3) * share, h > 16 ? 4 : 3.5);
  }
}

/**
 * What stands above and left of the cells, and never moves.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {Grid} grid
 * @param {Reading | null} reading
 */
export function drawFrame(g, { ink, font, choice, ranks: places }, grid, reading) {
  const ranks = reading?.holdings.ranks ?? Array.from({ length: grid.rows }, (_, r) => r);
  const chunks = reading?.holdings.chunks ?? [];
  const hues = huesOf(ink, ranks, places);
  const ons = onHues(ink, ranks, places);
  const r = Math.min(8, grid.cell.h / 2);
  g.textBaseline = "middle";
  g.textAlign = "left";
  g.font = `11px ${font}`;
  g.fillStyle = ink["ink-3"];
  g.fillText(
    reading?.holdings.way === "hear" ? "has heard of" : pieceName(reading?.call),
    grid.left,
    7,
  );
  if (reading && !recordsContents(reading.call.rows))
    (isCoarser(reading.call.rows) ? COARSER : NO_CONTENTS).forEach((line, i) =>
      g.fillText(line, grid.left, grid.top + 20 + 16 * i),
    );
  const every = Math.ceil((String(chunks[chunks.length - 1] ?? 0).length * 6.3 + 3) / grid.cw);
  g.textAlign = "center";
  g.font = `700 11px ${font}`;
  chunks.forEach((chunk, c) => {
    if (c % every || reading?.holdings.way === "hear") return;
    const x = grid.left + (c + 0.5) * grid.cw;
    const on = choice?.chunk === chunk;
    g.fillStyle = on ? ink.focus : ink.ink;
    g.fillText(String(chunk), x, 22);
    if (on) g.fillRect(x - 7, 29, 14, 2);
  });
  const rowsEach = Math.ceil(13 / grid.rh);
  ranks.forEach((rank, i) => {
    const y = grid.top + i * grid.rh + grid.cell.h / 2;
    if (rowsEach > 1 && i % (rowsEach > 2 ? 8 : 2)) return;
    g.fillStyle = hues[i];
    const x = outlineRank(g, rank, y, r);
    if (r >= 7) g.fill();
    g.fillStyle = r >= 7 ? ons[i] : ink["ink-2"];
    g.fillText(String(rank), x, y + 0.5);
    if (choice?.rank !== rank) return;
    g.strokeStyle = ink.focus;
    g.lineWidth = 2;
    outlineRank(g, rank, y, r + 0.5);
    g.stroke();
  });
}

/**
 * Begin the outline around a rank's number, left of its row: a circle, longer where the number is.
 * @param {CanvasRenderingContext2D} g
 * @param {number} rank
 * @param {number} y
 * @param {number} r
 * @returns {number} the middle, across
 */
function outlineRank(g, rank, y, r) {
  const half = Math.min(4, 3.2 * Math.max(0, String(rank).length - 2));
  const x = 9 + half;
  g.beginPath();
  g.roundRect(x - half - r, y - r, 2 * (half + r), 2 * r, r);
  return x;
}

/**
 * The cell that is chosen, or under the keyboard.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {Grid} grid
 * @param {number} row
 * @param {number} column
 */
export function drawChosenCell(g, ink, grid, row, column) {
  const { x, y, w, h } = cellBox(grid, row, column);
  g.strokeStyle = ink.focus;
  g.lineWidth = 2;
  g.strokeRect(x - 2, y - 2, w + 4, h + 4);
}

/**
 * Ranks that have ended, as beside their names in the ring: an open disc with a cross at its edge.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {Grid} grid
 * @param {[number, number][]} ended  [row, rank]
 */
export function drawEndedRows(g, { ink, font }, grid, ended) {
  const r = Math.min(8, grid.cell.h / 2);
  for (const [row, rank] of ended) {
    const y = grid.top + row * grid.rh + grid.cell.h / 2;
    if (r < 7) {
      g.strokeStyle = ink.fault;
      g.lineWidth = 2;
      cross(g, 9, y, r);
      continue;
    }
    g.fillStyle = ink.ground;
    g.strokeStyle = ink.fault;
    g.lineWidth = 1.5;
    const x = outlineRank(g, rank, y, r - 0.25);
    g.fill();
    g.stroke();
    g.fillStyle = ink.ink;
    g.font = `700 11px ${font}`;
    g.textAlign = "center";
    g.fillText(String(rank), x, y + 0.5);
    crossAt(g, ink, 2 * x - 9 + r, y - r * 0.75, 2.5);
  }
}

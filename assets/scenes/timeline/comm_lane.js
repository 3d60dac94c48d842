// @ts-check
/**
 * A rank's communication lane: a bar a collective, what of it was waiting hatched, each named where
 * it has room; single chunks where they are wide enough to be seen.
 * @typedef {import("./index.js").TimelineIndex} TimelineIndex
 * @typedef {import("./index.js").RankLines} RankLines
 * @typedef {import("./draw.js").Canvas} Canvas
 * @typedef {import("./draw.js").Hit} Hit
 * @typedef {import("./draw.js").Shares} Shares
 */
import { SPAN, isComputing } from "./density.js";
import { fitting, windowX } from "./layout.js";
import { SPAN_COUNT, SPAN_INK, drawStacks, drawWait, inkOn, typeIn, writeOn } from "./paint.js";

const TRAVELS = new Set(["send", "recv", "reduce", "copy", "push", "pull", "apply"]);
const HOLDS_NUMBER = 9; // px: a bar this high has room for its chunk's number
const SHORT = 2.5; // px: single chunks are drawn where they are this wide on average

/**
 * Whether sends and receives are wide enough to be seen one by one, on every rank.
 * @param {Canvas} canvas
 * @param {number[]} ranks
 */
export function showsChunks({ index, place, win }, ranks) {
  const { table } = index;
  let count = 0;
  let length = 0;
  for (const number of ranks) {
    const rank = index.ranks.get(number);
    for (const { name } of rank?.talks ?? []) {
      const rows = chunkRows(index, number, name, win.from, win.to, place.room / 3);
      if (!rows) return false;
      for (const row of rows) {
        if (!TRAVELS.has(table.kindName(table.kind[row]))) continue;
        count += 1;
        length += table.end[row] - table.start[row];
      }
    }
  }
  return count > 0 && (length / count / (win.to - win.from)) * place.room >= SHORT;
}

/**
 * The rows of a lane that touch [from, to), outer ones left out; null if they are more than `most`.
 * @param {TimelineIndex} index
 * @param {number} rank
 * @param {string} lane
 * @param {number} from
 * @param {number} to
 * @param {number} most
 */
export function chunkRows(index, rank, lane, from, to, most) {
  const { table, classes } = index;
  const rows = table.lanes.get(`${rank} ${lane}`);
  const chunks = [];
  if (!rows) return [];
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (table.end[rows.rows[middle]] > from) high = middle;
    else low = middle + 1;
  }
  for (let i = low, beyond = 0; i < rows.length && beyond < 8; i++) {
    // of a relay, receive and send begin together
    const row = rows.rows[i];
    const kind = table.kind[row];
    if (kind === table.code.collective || classes[kind] === undefined || classes[kind] < SPAN.comm)
      continue;
    if (table.start[row] >= to) beyond++;
    else chunks.push(row);
    if (chunks.length > most) return null;
  }
  return chunks;
}

/**
 * Communication: a bar a collective, what of it was waiting hatched; single chunks where they are
 * wide enough.
 * @param {CanvasRenderingContext2D} g
 * @param {Canvas} canvas
 * @param {RankLines} rank
 * @param {number} y
 * @param {Shares} sums
 * @param {number} columns
 * @param {number} dt
 * @param {boolean} single
 * @param {Hit[]} hits
 */
export function drawTalk(g, canvas, rank, y, sums, columns, dt, single, hits) {
  const { index, place, win, ink, waiting } = canvas;
  const { lanes } = place;
  const places = Math.max(1, ...rank.talks.map((lane) => lane.place + 1));
  const tall = lanes.talkHeight / places;
  const rows = index.within(rank.calls, win.from, win.to, columns / 3);
  if (!rows) {
    rank.talk.columns(win.from, dt, columns, sums.talk);
    return drawStacks(
      g,
      ink,
      waiting,
      sums.talk,
      columns,
      dt,
      place.left,
      y + lanes.talk,
      lanes.talkHeight,
    );
  }
  for (const lane of rank.talks) {
    const top = y + lanes.talk + lane.place * tall;
    const h = tall - (places > 1 ? 1 : 0);
    const { table } = index;
    const mine = rows.filter(
      (row) => table.text(table.passages.lane[table.passage[row]]) === lane.name,
    );
    lane.line.columns(win.from, dt, columns, sums.talk);
    const runs = runsOf(sums, columns, dt);
    for (const row of mine) {
      const a = Math.max(place.left, windowX(win, place, table.start[row]));
      const b = Math.min(place.right, windowX(win, place, table.end[row]));
      const w = Math.max(1, b - a - (b - a > 3 ? 1 : 0));
      g.globalAlpha = single ? 0.22 : 1;
      g.fillStyle = ink.comm;
      g.fillRect(a, top, w, h);
      g.globalAlpha = 1;
      hits.push({ x: a, y: top, w, h, rank: rank.rank, row, words: "" });
    }
    if (single) drawChunks(g, canvas, rank, lane.name, top, h, hits);
    else drawRuns(g, canvas, runs, top, h, mine.length > 0);
    if (place.labels && h >= 14) nameCalls(g, canvas, mine, single ? [] : runs, top, h, single);
  }
}

/**
 * Where a lane's columns are mostly one thing: [column, after, class, pale]. A column belongs to
 * what has most of its busy time.
 * @param {Shares} sums @param {number} columns @param {number} dt
 */
function runsOf(sums, columns, dt) {
  const runs = /** @type {[number, number, number, boolean][]} */ ([]);
  let was = -1;
  let pale = false;
  for (let k = 0; k < columns; k++) {
    const at = k * SPAN_COUNT;
    const comm = sums.talk[at + SPAN.comm];
    const reduce = sums.talk[at + SPAN.reduce];
    const wait = sums.talk[at + SPAN.wait];
    const kind =
      comm + reduce + wait < 0.5 * dt
        ? -1
        : wait >= comm && wait >= reduce
          ? SPAN.wait
          : comm >= reduce
            ? SPAN.comm
            : SPAN.reduce;
    let computing = 0;
    if (kind === SPAN.wait) for (let c = 0; isComputing(c); c++) computing += sums.compute[at + c];
    const faint = computing > 0.5 * dt;
    if (kind >= 0 && kind === was && faint === pale) runs[runs.length - 1][1] = k + 1;
    else if (kind >= 0) runs.push([k, k + 1, kind, faint]);
    was = kind;
    pale = faint;
  }
  return runs;
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Canvas} canvas
 * @param {[number, number, number, boolean][]} runs
 * @param {number} y
 * @param {number} h
 * @param {boolean} calls  bars are there already
 */
function drawRuns(g, { ink, place, waiting }, runs, y, h, calls) {
  for (const [a, b, kind, pale] of runs) {
    const x = place.left + a;
    const w = b - a;
    if (kind === SPAN.wait) drawWait(g, ink, waiting, x, y, w, h, pale);
    else if (kind === SPAN.reduce || !calls) {
      g.fillStyle = ink[SPAN_INK[kind]];
      g.fillRect(x, y, w, h);
    }
  }
}

/**
 * Single chunks: sends in the upper half, receives and waiting in the lower.
 * @param {CanvasRenderingContext2D} g
 * @param {Canvas} canvas
 * @param {RankLines} rank
 * @param {string} lane
 * @param {number} top
 * @param {number} h
 * @param {Hit[]} hits
 */
function drawChunks(g, { index, place, win, ink, font, waiting }, rank, lane, top, h, hits) {
  const { table } = index;
  const half = h / 2;
  typeIn(g, font, true);
  for (const row of chunkRows(index, rank.rank, lane, win.from, win.to, Infinity) ?? []) {
    const kind = table.kindName(table.kind[row]);
    const out = kind === "send" || kind === "push";
    const y = out ? top : top + half;
    const a = Math.max(place.left, windowX(win, place, table.start[row]));
    const b = Math.min(place.right, windowX(win, place, table.end[row]));
    const w = Math.max(1, b - a - (b - a > 3 ? 1 : 0));
    if (kind === "wait")
      drawWait(
        g,
        ink,
        waiting,
        a,
        y,
        w,
        half,
        isComputing(Math.max(0, rank.compute.at((table.start[row] + table.end[row]) / 2))) &&
          rank.compute.at((table.start[row] + table.end[row]) / 2) >= 0,
      );
    else {
      const name = kind === "reduce" || kind === "copy" || kind === "apply" ? "reduce" : "comm";
      const label = `${table.chunk[row]}`;
      g.fillStyle = ink[name];
      g.fillRect(a, y, w, half - 0.5);
      if (
        place.labels &&
        half >= HOLDS_NUMBER &&
        table.chunk[row] >= 0 &&
        w >= g.measureText(label).width + 4
      )
        writeOn(g, label, a + w / 2, y + half / 2, inkOn(ink, name));
    }
    hits.push({ x: a, y, w, h: half, rank: rank.rank, row, words: "" });
  }
}

/**
 * The numbers of the chunks that a rank sends, under their bars, where these are too low to hold
 * them: each where it has room, beside what is written there.
 * @param {CanvasRenderingContext2D} g
 * @param {Canvas} canvas
 * @param {RankLines} rank
 * @param {number} line  the middle of the text
 * @param {import("../../drawing/label_row.js").LabelRow} row
 */
export function numberBelow(g, { index, place, win, ink, font }, rank, line, row) {
  const { table } = index;
  if (place.lanes.talkHeight / 2 >= HOLDS_NUMBER) return;
  typeIn(g, font, true);
  for (const { name } of rank.talks)
    for (const chunk of chunkRows(index, rank.rank, name, win.from, win.to, Infinity) ?? []) {
      if (table.kindName(table.kind[chunk]) !== "send" || table.chunk[chunk] < 0) continue;
      const a = Math.max(place.left, windowX(win, place, table.start[chunk]));
      const b = Math.min(place.right, windowX(win, place, table.end[chunk]));
      const wide = g.measureText(String(table.chunk[chunk])).width;
      const x = (a + b) / 2;
      if (b - a >= wide + 4 && row.take(x - wide / 2, x + wide / 2))
        writeOn(g, String(table.chunk[chunk]), x, line, ink["ink-2"]);
    }
}

/**
 * The names of collectives, each where its longest piece has room for it.
 * @param {CanvasRenderingContext2D} g
 * @param {Canvas} canvas
 * @param {number[]} rows
 * @param {[number, number, number, boolean][]} runs
 * @param {number} y
 * @param {number} h
 * @param {boolean} single
 */
function nameCalls(g, { index, place, win, ink, font }, rows, runs, y, h, single) {
  // chunks have their own numbers; the bar around them is named on pointing at it
  if (single) return;
  const { table } = index;
  const measure = (/** @type {string} */ text) => g.measureText(text).width;
  typeIn(g, font, true);
  for (const row of rows) {
    const a = Math.max(place.left, windowX(win, place, table.start[row]));
    const b = Math.min(place.right, windowX(win, place, table.end[row]));
    const name = table.text(table.name[row]);
    if (b - a < 12 || !name) continue;
    let best = /** @type {{from: number, to: number, wait: boolean} | null} */ (null);
    for (const [first, after, kind] of runs) {
      const from = Math.max(a, place.left + first);
      const to = Math.min(b, place.left + after);
      const wait = kind === SPAN.wait;
      if (
        to - from > 0 &&
        (!best || (to - from) * (wait ? 1 : 1.5) > (best.to - best.from) * (best.wait ? 1 : 1.5))
      )
        best = { from, to, wait };
    }
    const text = best ? fitting(name, best.to - best.from - 2, measure) : "";
    if (!best || !text) continue;
    const x = (best.from + best.to) / 2;
    const wide = measure(text);
    if (best.wait) {
      // legible on a plate of its own
      g.fillStyle = ink.ground;
      g.fillRect(x - wide / 2 - 2, y + 3, wide + 4, h - 6);
    }
    writeOn(g, text, x, y + h / 2, best.wait ? ink.wait : inkOn(ink, "comm"));
  }
}

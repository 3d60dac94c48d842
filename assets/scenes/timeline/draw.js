// @ts-check
/**
 * The timeline's lanes as marks on a canvas: what of a window does not move, drawn once.
 * Each mark that is drawn is returned with its row, for the tooltip.
 *
 * @typedef {import("./index.js").TimelineIndex} TimelineIndex
 * @typedef {import("./index.js").RankLines} RankLines
 * @typedef {import("./layout.js").TimelinePlace} TimelinePlace
 * @typedef {import("./layout.js").Window} Window
 * @typedef {{index: TimelineIndex, win: Window, place: TimelinePlace, ink: Record<string, string>,
 *   font: string, waiting: any, holding: any, cores: number, crowded: boolean}} Canvas
 *   waiting, holding: what hatches a wait, and a hold by the reader
 * @typedef {{x: number, y: number, w: number, h: number, rank: number, row: number, words: string,
 *   bucket?: number}} Hit  row -1: of no single row; bucket: that a piece of backward fills
 * @typedef {{room: number, compute: Float64Array, talk: Float64Array, all: Float64Array}} Shares  by
 *   column and class, ns
 */
import { SPAN } from "./density.js";
import { faultWords } from "../../engine/fault_words.js";
import { LabelRow } from "../../drawing/label_row.js";
import { rowsOfRanks, windowX } from "./layout.js";
import { SPAN_COUNT, addMean, drawStacks, typeIn } from "./paint.js";
import { drawTalk, numberBelow, showsChunks } from "./comm_lane.js";
import { drawComputing } from "./computing_lane.js";
import { duration, grouped, ticks } from "../../engine/format.js";

/** @type {Shares} */
const laneShares = {
  room: 0,
  compute: new Float64Array(0),
  talk: new Float64Array(0),
  all: new Float64Array(0),
};
/** Arrays for a picture of so many columns. @param {number} room */
function sharesFor(room) {
  if (laneShares.room < room)
    Object.assign(laneShares, {
      room,
      compute: new Float64Array(room * SPAN_COUNT),
      talk: new Float64Array(room * SPAN_COUNT),
      all: new Float64Array(room * SPAN_COUNT),
    });
  return laneShares;
}

/**
 * Everything of the lanes that does not move.
 * @param {CanvasRenderingContext2D} g
 * @param {Canvas} canvas
 * @param {number[]} ranks
 * @param {number} [first]  column of rows of density: those before it are there
 * @returns {{hits: Hit[], single: boolean}}
 */
export function drawLanes(g, canvas, ranks, first = 0) {
  const { index, place, win } = canvas;
  const hits = /** @type {Hit[]} */ ([]);
  drawAxisTop(g, canvas);
  const dt = (win.to - win.from) / place.room;
  const single = place.level !== "density" && showsChunks(canvas, ranks);
  if (place.level === "density") drawDensity(g, canvas, ranks, dt, first);
  ranks.forEach((number, i) => {
    const rank = index.ranks.get(number);
    const y = place.lanes.top + i * place.lanes.row;
    if (!rank || place.level === "density") return;
    const sums = sharesFor(Math.ceil(place.room));
    const columns = Math.floor(place.room);
    rank.all.columns(win.from, dt, columns, sums.all);
    rank.compute.columns(win.from, dt, columns, sums.compute);
    drawSteps(g, canvas, rank, y);
    drawComputing(g, canvas, rank, y, sums, columns, dt, hits);
    drawTalk(g, canvas, rank, y, sums, columns, dt, single, hits);
    if (!index.script) drawExposed(g, canvas, y, sums.all, columns, dt);
    drawUnder(g, canvas, rank, y, single, hits);
  });
  drawFaults(g, canvas, ranks, hits);
  return { hits, single };
}

/**
 * Rows of density: in every column the share of each class of time, of several ranks their mean.
 * @param {CanvasRenderingContext2D} g
 * @param {Canvas} canvas
 * @param {number[]} ranks
 * @param {number} dt
 * @param {number} first  column
 */
function drawDensity(g, { index, place, win, ink, waiting }, ranks, dt, first) {
  const { all, compute: mean } = sharesFor(Math.ceil(place.room));
  const { table } = index;
  const until = Math.min(Math.floor(place.room), Math.ceil((table.to - win.from) / dt));
  const columns = Math.max(0, until - first);
  const from = win.from + first * dt;
  rowsOfRanks(place, ranks).forEach((members, i) => {
    mean.fill(0, 0, columns * SPAN_COUNT);
    for (const number of members) {
      const rank = index.ranks.get(number);
      if (!rank) continue;
      rank.all.columns(from, dt, columns, all);
      addMean(mean, all, columns * SPAN_COUNT, members.length);
    }
    const y = place.lanes.top + i * place.lanes.row;
    const tall = Math.max(1, place.lanes.row - 1);
    drawStacks(g, ink, waiting, mean, columns, dt, place.left + first, y, tall);
  });
}

/**
 * The axis: time from the window's start.
 * @param {CanvasRenderingContext2D} g
 * @param {Canvas} canvas
 */
function drawAxisTop(g, { ink, font, place, win }) {
  const { lanes, left, room } = place;
  const span = win.to - win.from;
  typeIn(g, font, false);
  g.textBaseline = "alphabetic";
  for (const tick of ticks(span, room > 700 ? 9 : 6)) {
    const x = left + (tick.t / span) * room;
    g.fillStyle = ink.rule;
    g.fillRect(Math.round(x), lanes.top - 2, 1, lanes.bottom - lanes.top + 2);
    g.fillStyle = ink["ink-3"];
    g.textAlign = tick.t === 0 ? "left" : "center";
    if (x + g.measureText(tick.label).width / 2 <= place.right + 6)
      g.fillText(tick.label, tick.t === 0 ? x - 2 : x, 11);
  }
}

/**
 * A rank's iterations: a thin line while one is under way, a tick where it begins.
 * @param {CanvasRenderingContext2D} g
 * @param {Canvas} canvas
 * @param {RankLines} rank
 * @param {number} y
 */
function drawSteps(g, { index, place, win, ink }, rank, y) {
  const { lanes } = place;
  const tall = lanes.talk + lanes.talkHeight;
  for (
    let k = Math.max(0, index.stepAt(rank, win.from));
    k < rank.steps.length && rank.steps[k].start < win.to;
    k++
  ) {
    const step = rank.steps[k];
    const x = Math.max(place.left, windowX(win, place, step.start));
    const end = Math.min(place.right, windowX(win, place, step.end));
    if (end < place.left) continue;
    g.fillStyle = ink.edge;
    g.fillRect(x, y + lanes.ownHeight / 2, end - x, 1);
    if (x > place.left) g.fillRect(x - 0.5, y - 2, 1, tall + 2);
  }
}

/**
 * Exposed: communication and waiting while the rank computes nothing.
 * @param {CanvasRenderingContext2D} g
 * @param {Canvas} canvas
 * @param {number} y
 * @param {Float64Array} all
 * @param {number} columns
 * @param {number} dt
 */
function drawExposed(g, { place, ink }, y, all, columns, dt) {
  const { lanes } = place;
  const tall = place.level === "full" ? 2.5 : 1.5;
  g.fillStyle = ink.ink;
  for (let k = 0; k < columns; k++) {
    const from = k;
    while (
      k < columns &&
      all[k * SPAN_COUNT + SPAN.comm] +
        all[k * SPAN_COUNT + SPAN.reduce] +
        all[k * SPAN_COUNT + SPAN.wait] >=
        0.5 * dt
    )
      k++;
    if (k > from)
      g.fillRect(place.left + from, y + lanes.under, k - from - (k - from > 3 ? 1 : 0), tall);
  }
}

/**
 * Under a rank's lanes: the collectives' names where their bars hold single chunks, and the chunks'
 * numbers where these have no room for them; and how long it had to wait for a core in an iteration, as long as the dotted line; where in it is unknown.
 * @param {CanvasRenderingContext2D} g
 * @param {Canvas} canvas
 * @param {RankLines} rank
 * @param {number} y
 * @param {boolean} single
 * @param {Hit[]} hits
 */
function drawUnder(g, canvas, rank, y, single, hits) {
  const { index, place, win, ink, font, crowded } = canvas;
  if (place.level !== "full") return;
  const row = new LabelRow(place.left, place.right);
  const line = y + place.lanes.core + 1;
  const { table } = index;
  const labels = /** @type {[number, string][]} */ ([]);
  typeIn(g, font, false);
  for (
    let k = Math.max(0, index.stepAt(rank, win.from));
    k < rank.steps.length && rank.steps[k].start < win.to;
    k++
  ) {
    const step = rank.steps[k];
    const lasts = step.end - step.start;
    const w = (step.queue / (win.to - win.from)) * place.room;
    if (!(step.queue > 0.01 * lasts) || w < 2) continue;
    const end = windowX(win, place, step.end);
    const x = end - w;
    if (x < place.left || end > place.right + 1 || !row.take(x, Math.min(end, place.right)))
      continue; // cut off it would tell a wrong length
    g.fillStyle = ink.edge;
    for (let dot = end - 2; dot > x - 0.5; dot -= 4) g.fillRect(dot, line - 1, 2, 2);
    const words =
      `rank ${rank.rank} waited ${duration(step.queue)} for a core in iteration ` +
      `${grouped(step.iteration + 1)}, in all: it is not known where`;
    hits.push({ x, y: line - 4, w: end - x, h: 8, rank: rank.rank, row: -1, words });
    if (crowded || step.queue > 0.03 * lasts)
      labels.push([x, `waits for a core ${duration(step.queue)}`]);
  }
  g.fillStyle = ink["ink-2"];
  g.textAlign = "left";
  g.textBaseline = "middle";
  for (const call of single
    ? (index.within(rank.calls, win.from, win.to, place.room / 3) ?? [])
    : []) {
    const a = Math.max(place.left, windowX(win, place, table.start[call]));
    const b = windowX(win, place, table.end[call]);
    const name = table.text(table.name[call]);
    const wide = g.measureText(name).width;
    if (name && b - a > 20 && row.take(a, a + wide)) g.fillText(name, a, line + 0.5);
  }
  for (const [x, text] of labels) {
    const at = row.place(x - 4, g.measureText(text).width, ["left"]);
    if (at !== null) g.fillText(text, at, line + 0.5);
  }
  if (single) numberBelow(g, canvas, rank, line, row);
}

/**
 * Faults and what was noticed: dashed verticals with words; and the iterations' numbers, where
 * there is room.
 * @param {CanvasRenderingContext2D} g
 * @param {Canvas} canvas
 * @param {number[]} ranks
 * @param {Hit[]} hits
 */
function drawFaults(g, { index, place, win, ink, font }, ranks, hits) {
  const row = new LabelRow(place.left - 2, place.right + 6);
  const { lanes } = place;
  typeIn(g, font, true);
  for (const fault of index.faults) {
    const x = windowX(win, place, fault.at);
    if (x < place.left || x > place.right) continue;
    const ours = fault.rank < 0;
    const who = ours ? fault.peer : fault.rank;
    const isFault = fault.kind === "fault";
    const words = isFault
      ? faultWords({ ...fault, rank: who }, ours)
      : `${ours ? "" : `rank ${fault.rank} `}noticed: rank ${fault.peer} ${fault.name}`;
    g.fillStyle = isFault ? ink.hold : ink.fault;
    for (let y = lanes.top - 4; y < lanes.bottom; y += 6) g.fillRect(x - 1, y, 2, 4);
    hits.push({
      x: x - 3,
      y: lanes.top - 16,
      w: 6,
      h: lanes.bottom - lanes.top + 16,
      rank: who,
      row: -1,
      words,
    });
    const at = row.place(x, g.measureText(words).width, ["right", "left"]);
    if (at === null) continue;
    g.textAlign = "left";
    g.textBaseline = "middle";
    g.fillText(words, at, 22);
  }
  for (const { number, began } of index.generations) {
    const x = windowX(win, place, began);
    if (!(x >= place.left && x <= place.right)) continue;
    g.fillStyle = ink.edge;
    g.fillRect(x - 0.5, lanes.top - 4, 1, lanes.bottom - lanes.top + 4);
    const words = `generation ${number}`;
    const at = row.place(x, g.measureText(words).width, ["right", "left"]);
    g.fillStyle = ink["ink-2"];
    g.textAlign = "left";
    g.textBaseline = "middle";
    if (at !== null) g.fillText(words, at, 22);
  }
  const rank = index.ranks.get(ranks[0]);
  if (!rank) return;
  typeIn(g, font, false);
  g.fillStyle = ink["ink-2"];
  g.textAlign = "left";
  g.textBaseline = "middle";
  const first = Math.max(0, index.stepAt(rank, win.from));
  const within = rank.steps[first + 1]?.start < win.to; // else none begins in the window
  for (let k = first; k < rank.steps.length && rank.steps[k].start < win.to; k++) {
    const x = windowX(win, place, rank.steps[k].start);
    const text = `iteration ${grouped(rank.steps[k].iteration + 1)}`;
    const wide = g.measureText(text).width;
    if (x < place.left - 1 && within) continue;
    const at = Math.max(place.left, x);
    if (row.take(at, at + wide)) g.fillText(text, at, 22);
  }
}

// @ts-check
/**
 * The timeline's lanes as marks on a canvas: what of a window does not move, drawn once.
 * Each mark that is drawn is returned with the row that it is, for whoever points at it.
 *
 * @typedef {import("./timeline_index.js").TimelineIndex} TimelineIndex
 * @typedef {import("./timeline_index.js").RankLines} RankLines
 * @typedef {import("./timeline_layout.js").TimelinePlace} TimelinePlace
 * @typedef {import("./timeline_layout.js").Window} Window
 * @typedef {{index: TimelineIndex, win: Window, place: TimelinePlace, ink: Record<string, string>, font: string, waiting: any, cores: number, crowded: boolean}} Canvas
 *   waiting: what hatches a wait
 * @typedef {{x: number, y: number, w: number, h: number, rank: number, row: number, words: string, bucket?: number}} Hit  row -1: of no single row; bucket: that a piece of backward fills
 * @typedef {{room: number, own: Float64Array, talk: Float64Array, all: Float64Array}} Shares  by column and class, ns
 */
import { SPAN } from "./density.js";
import { faultWords } from "./feed.js";
import { bucketNumber, bucketWords, rebuiltWords } from "./timeline_buckets.js";
import { LabelRow, fitting, windowX } from "./timeline_layout.js";
import { SPAN_COUNT, SPAN_INK, drawStacks, inkOn, typeIn, writeOn } from "./timeline_paint.js";
import { drawTalk, showsChunks } from "./timeline_talk.js";
import { rowWords } from "./timeline_words.js";
import { duration, grouped, ticks } from "./words.js";

/** @type {Shares} */
const laneShares = { room: 0, own: new Float64Array(0), talk: new Float64Array(0), all: new Float64Array(0) };
/** Arrays for a picture of so many columns. @param {number} room */
function sharesFor(room) {
  if (laneShares.room < room) Object.assign(laneShares, { room, own: new Float64Array(room * SPAN_COUNT), talk: new Float64Array(room * SPAN_COUNT), all: new Float64Array(room * SPAN_COUNT) });
  return laneShares;
}

/** Everything of the lanes that does not move. @param {CanvasRenderingContext2D} g @param {Canvas} canvas @param {number[]} ranks @returns {{hits: Hit[], single: boolean}} */
export function drawLanes(g, canvas, ranks) {
  const { index, place, win } = canvas, hits = /** @type {Hit[]} */ ([]);
  drawAxisTop(g, canvas);
  const dt = (win.to - win.from) / place.room, single = place.level !== "density" && showsChunks(canvas, ranks);
  ranks.forEach((number, i) => {
    const rank = index.ranks.get(number), y = place.lanes.top + i * place.lanes.row;
    if (!rank) return;
    const sums = sharesFor(Math.ceil(place.room)), columns = Math.floor(place.room);
    rank.all.columns(win.from, dt, columns, sums.all);
    if (place.level === "density") return drawStacks(g, canvas.ink, canvas.waiting, sums.all, columns, dt, place.left, y, Math.max(1, place.lanes.row - 1));
    rank.own.columns(win.from, dt, columns, sums.own);
    drawSteps(g, canvas, rank, y);
    drawOwn(g, canvas, rank, y, sums, columns, dt, hits);
    drawTalk(g, canvas, rank, y, sums, columns, dt, single, hits);
    drawExposed(g, canvas, y, sums.all, columns, dt);
    drawUnder(g, canvas, rank, y, single, hits);
  });
  drawFaults(g, canvas, ranks, hits);
  return { hits, single };
}

/** The axis: time from the window's start. @param {CanvasRenderingContext2D} g @param {Canvas} canvas */
function drawAxisTop(g, { ink, font, place, win }) {
  const { lanes, left, room } = place, span = win.to - win.from;
  typeIn(g, font, false);
  g.textBaseline = "alphabetic";
  for (const tick of ticks(span, room > 700 ? 9 : 6)) {
    const x = left + (tick.t / span) * room;
    g.fillStyle = ink.rule;
    g.fillRect(Math.round(x), lanes.top - 2, 1, lanes.bottom - lanes.top + 2);
    g.fillStyle = ink["ink-3"];
    g.textAlign = tick.t === 0 ? "left" : "center";
    if (x + g.measureText(tick.label).width / 2 <= place.right + 6) g.fillText(tick.label, tick.t === 0 ? x - 2 : x, 11);
  }
}

/** A rank's iterations: a thin line while one is under way, a tick where it begins. @param {CanvasRenderingContext2D} g @param {Canvas} canvas @param {RankLines} rank @param {number} y */
function drawSteps(g, { index, place, win, ink }, rank, y) {
  const { lanes } = place, tall = lanes.talk + lanes.talkHeight;
  for (let k = Math.max(0, index.stepAt(rank, win.from)); k < rank.steps.length && rank.steps[k].start < win.to; k++) {
    const step = rank.steps[k], x = Math.max(place.left, windowX(win, place, step.start)), end = Math.min(place.right, windowX(win, place, step.end));
    if (end < place.left) continue;
    g.fillStyle = ink.edge;
    g.fillRect(x, y + lanes.ownHeight / 2, end - x, 1);
    if (x > place.left) g.fillRect(x - 0.5, y - 2, 1, tall + 2);
  }
}

/** Computing: a bar a row, backward by the bucket that it fills. @param {CanvasRenderingContext2D} g @param {Canvas} canvas @param {RankLines} rank @param {number} y @param {Shares} sums @param {number} columns @param {number} dt @param {Hit[]} hits */
function drawOwn(g, canvas, rank, y, sums, columns, dt, hits) {
  const { index, place, win, ink, font, waiting } = canvas, { table } = index, h = place.lanes.ownHeight;
  const rows = index.within(rank.computed, win.from, win.to, columns / 3);
  if (!rows) return drawStacks(g, ink, waiting, sums.own, columns, dt, place.left, y, h);
  typeIn(g, font, true);
  const measure = (/** @type {string} */ text) => g.measureText(text).width;
  for (const row of rows) {
    const span = index.classes[table.kind[row]], name = SPAN_INK[span], wide = ((table.end[row] - table.start[row]) / (win.to - win.from)) * place.room;
    const marks = span === SPAN.backward && wide > 24 ? index.within(rank.marks, table.start[row], table.end[row]) ?? [] : [];
    const cuts = marks.length ? [...marks.map((m) => ({ t: table.start[m], bucket: table.value[m] })), { t: table.end[row], bucket: -1 }] : [{ t: table.end[row], bucket: -1 }];
    let from = table.start[row];
    for (const { t, bucket } of cuts) {
      const a = Math.max(place.left, windowX(win, place, from)), b = Math.min(place.right, windowX(win, place, t)), w = Math.max(1, b - a - (b - a > 3 ? 1 : 0));
      from = t;
      if (b < place.left || a > place.right || (bucket < 0 && marks.length && b - a < 2)) continue; // what follows the last bucket is no work
      g.fillStyle = ink[name];
      g.fillRect(a, y, w, h);
      const text = span === SPAN.upkeep ? table.text(table.name[row]) || table.kindName(table.kind[row]) : bucket >= 0 ? `backward ${bucket}` : table.kindName(table.kind[row]).replace("_", " ");
      const label = place.labels ? fitting(text, w, measure) : "";
      if (label) writeOn(g, label, a + w / 2, y + h / 2, inkOn(ink, name));
      hits.push({ x: a, y, w, h, rank: rank.rank, row, words: bucket >= 0 ? `, here until bucket ${bucket} was full` : "", bucket });
    }
    g.fillStyle = ink.ink; // a tick where a bucket is full: its all-reduce may begin
    for (const m of marks) {
      const x = windowX(win, place, table.start[m]);
      if (x >= place.left && x <= place.right) g.fillRect(x - 1.25, y + h - 4, 1.5, 8);
    }
  }
  for (const row of index.within(rank.rebuilds, win.from, win.to) ?? []) drawRebuilt(g, canvas, rank.rank, row, y, hits);
}

/** Two ticks close together: here the buckets were built anew. @param {CanvasRenderingContext2D} g @param {Canvas} canvas @param {number} rank @param {number} row @param {number} y @param {Hit[]} hits */
function drawRebuilt(g, { index, place, win, ink }, rank, row, y, hits) {
  const x = windowX(win, place, index.table.start[row]), h = place.lanes.ownHeight;
  if (x < place.left || x > place.right) return;
  g.fillStyle = ink.ink;
  for (const side of [-2.25, 0.75]) g.fillRect(x + side, y + h - 4, 1.5, 8); // below the names of bars
  hits.push({ x: x - 4, y: y + h - 5, w: 8, h: 10, rank, row, words: "" });
}

/** Exposed: communication and waiting while the rank computes nothing. @param {CanvasRenderingContext2D} g @param {Canvas} canvas @param {number} y @param {Float64Array} all @param {number} columns @param {number} dt */
function drawExposed(g, { place, ink }, y, all, columns, dt) {
  const { lanes } = place, tall = place.level === "full" ? 2.5 : 1.5;
  g.fillStyle = ink.ink;
  for (let k = 0; k < columns; k++) {
    const from = k;
    while (k < columns && all[k * SPAN_COUNT + SPAN.comm] + all[k * SPAN_COUNT + SPAN.reduce] + all[k * SPAN_COUNT + SPAN.wait] >= 0.5 * dt) k++;
    if (k > from) g.fillRect(place.left + from, y + lanes.under, k - from - (k - from > 3 ? 1 : 0), tall);
  }
}

/**
 * Under a rank's lanes: the collectives' names where their bars hold single chunks; and how long it had to wait for a core in
 * an iteration, as long as the dotted line: nobody knows where in it.
 * @param {CanvasRenderingContext2D} g @param {Canvas} canvas @param {RankLines} rank @param {number} y @param {boolean} single @param {Hit[]} hits
 */
function drawUnder(g, { index, place, win, ink, font, crowded }, rank, y, single, hits) {
  if (place.level !== "full") return;
  const row = new LabelRow(place.left, place.right), line = y + place.lanes.core + 1, { table } = index, told = /** @type {[number, string][]} */ ([]);
  typeIn(g, font, false);
  for (let k = Math.max(0, index.stepAt(rank, win.from)); k < rank.steps.length && rank.steps[k].start < win.to; k++) {
    const step = rank.steps[k], lasts = step.end - step.start, w = (step.queue / (win.to - win.from)) * place.room;
    if (!(step.queue > 0.01 * lasts) || w < 2) continue;
    const end = windowX(win, place, step.end), x = end - w;
    if (x < place.left || end > place.right + 1 || !row.take(x, Math.min(end, place.right))) continue; // cut off it would tell a wrong length
    g.fillStyle = ink.edge;
    for (let dot = end - 2; dot > x - 0.5; dot -= 4) g.fillRect(dot, line - 1, 2, 2);
    const words = `rank ${rank.rank} waited ${duration(step.queue)} for a core in iteration ${grouped(step.iteration)}, in all: it is not known where`;
    hits.push({ x, y: line - 4, w: end - x, h: 8, rank: rank.rank, row: -1, words });
    if (crowded || step.queue > 0.03 * lasts) told.push([x, `waits for a core ${duration(step.queue)}`]);
  }
  g.fillStyle = ink["ink-2"];
  g.textAlign = "left";
  g.textBaseline = "middle";
  for (const call of single ? index.within(rank.calls, win.from, win.to, place.room / 3) ?? [] : []) {
    const a = Math.max(place.left, windowX(win, place, table.start[call])), b = windowX(win, place, table.end[call]), name = table.text(table.name[call]), wide = g.measureText(name).width;
    if (name && b - a > 20 && row.take(a, a + wide)) g.fillText(name, a, line + 0.5);
  }
  for (const [x, text] of told) {
    const at = row.place(x - 4, g.measureText(text).width, ["left"]);
    if (at !== null) g.fillText(text, at, line + 0.5);
  }
}

/** Faults and what was noticed: dashed verticals with words; and the iterations' numbers, where there is room. @param {CanvasRenderingContext2D} g @param {Canvas} canvas @param {number[]} ranks @param {Hit[]} hits */
function drawFaults(g, { index, place, win, ink, font }, ranks, hits) {
  const row = new LabelRow(place.left - 2, place.right + 6), { lanes } = place;
  typeIn(g, font, true);
  for (const fault of index.faults) {
    const x = windowX(win, place, fault.at);
    if (x < place.left || x > place.right) continue;
    const ours = fault.rank < 0, who = ours ? fault.peer : fault.rank, made = fault.kind === "fault";
    const words = made ? faultWords(fault.name, who, fault.value, ours) : `rank ${fault.rank} noticed: rank ${fault.peer} ${fault.name}`;
    g.fillStyle = made ? ink.hold : ink.fault;
    for (let y = lanes.top - 4; y < lanes.bottom; y += 6) g.fillRect(x - 1, y, 2, 4);
    hits.push({ x: x - 3, y: lanes.top - 16, w: 6, h: lanes.bottom - lanes.top + 16, rank: who, row: -1, words });
    const at = row.place(x, g.measureText(words).width, ["right", "left"]);
    if (at === null) continue;
    g.textAlign = "left";
    g.textBaseline = "middle";
    g.fillText(words, at, 22);
  }
  const rank = index.ranks.get(ranks[0]);
  if (!rank) return;
  typeIn(g, font, false);
  g.fillStyle = ink["ink-2"];
  g.textAlign = "left";
  g.textBaseline = "middle";
  const first = Math.max(0, index.stepAt(rank, win.from)), within = rank.steps[first + 1]?.start < win.to; // else none begins in the window
  for (let k = first; k < rank.steps.length && rank.steps[k].start < win.to; k++) {
    const x = windowX(win, place, rank.steps[k].start), text = `iteration ${grouped(rank.steps[k].iteration)}`, wide = g.measureText(text).width;
    if (x < place.left - 1 && within) continue;
    const at = Math.max(place.left, x);
    if (row.take(at, at + wide)) g.fillText(text, at, 22);
  }
}

/** The name of the collective that a chunk belongs to. @param {import("./table.js").Table} table @param {number} p  its passage */
function movedIn(table, p) {
  const { passages, calls } = table, op = passages.op[p], group = table.text(passages.group[p]);
  return op < 0 ? "" : calls.findLast((call) => call.op === op && call.group === group && call.generation === passages.generation[p])?.name ?? "";
}

/** What a mark is, in words. @param {import("./table.js").Table} table @param {Hit} hit @param {import("./timeline_buckets.js").Buckets | null} [buckets]  of a DDP run */
export function hitWords(table, hit, buckets = null) {
  if (hit.row < 0) return hit.words;
  const p = table.passage[hit.row], iteration = table.passages.iteration[p], name = table.text(table.name[hit.row]);
  if (name === "buckets rebuilt") return rebuiltWords(hit.rank, buckets, iteration);
  const bucket = hit.bucket ?? bucketNumber(table.kind[hit.row] === table.code.collective ? name : movedIn(table, p));
  return rowWords(table, hit.row, hit.words) + bucketWords(buckets, bucket, iteration);
}

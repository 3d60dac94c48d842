// @ts-check
/**
 * What lies over the timeline's lanes: ranks' names, the selection with its arrows, the playhead.
 * And where the playhead goes when it steps.
 *
 * @typedef {import("./index.js").TimelineIndex} TimelineIndex
 * @typedef {import("./draw.js").Canvas} Canvas
 * @typedef {import("./draw.js").Hit} Hit
 * @typedef {import("../../engine/model.js").Call} Call
 */
import { lostAt } from "../../engine/generations.js";
import { openCall } from "../../engine/model.js";
import { nameOfRow, rowsOfRanks, windowX } from "./layout.js";
import { drawDoubt, drawErrorBar, halfBar, knownOf } from "./uncertainty.js";

const ARROWS = 120; // more of them say nothing
const NEAR_ROWS = 400; // before the playhead, among which the edge before it is looked for

/**
 * The ranks that are no more at a moment: after their last row, if their processes have ended.
 * @param {import("../../chrome/stage.js").Look} look
 * @param {Pick<TimelineIndex, "ranks">} index
 */
export function goneAt({ known, t }, index) {
  const ended = Object.keys(known?.control?.ended ?? {}).map(Number);
  const after = ended.filter((rank) => !((index.ranks.get(rank)?.all.end ?? 0) > t));
  return new Set([...after, ...(known ? lostAt(known, t).keys() : [])]);
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Canvas} canvas
 * @param {number[]} ranks
 * @param {import("../../chrome/stage.js").Look} look
 * @param {{rank: number} | null} straggler
 * @param {Hit[]} hits
 */
export function drawOver(g, canvas, ranks, look, straggler, hits) {
  const { place, ink, win } = canvas;
  const { choice } = look;
  nameRanks(
    g,
    canvas,
    ranks,
    choice?.rank ?? -1,
    straggler?.rank ?? -1,
    goneAt(look, canvas.index),
  );
  if (choice) drawChoice(g, canvas, ranks, choice, hits);
  const x = windowX(win, place, look.t);
  if (x < place.left - 1 || x > place.right + 1 || !look.table.rows) return;
  g.fillStyle = ink.focus;
  g.fillRect(x - 1, place.lanes.top - 4, 2, place.lanes.bottom - place.lanes.top + 4);
  g.beginPath();
  g.moveTo(x - 5, place.lanes.top - 8);
  g.lineTo(x + 5, place.lanes.top - 8);
  g.lineTo(x, place.lanes.top - 2);
  g.fill();
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Canvas} canvas
 * @param {number[]} ranks
 * @param {number} chosen
 * @param {number} straggler
 * @param {Set<number>} ended  ranks that are no more
 */
function nameRanks(g, { place, ink, font, index }, ranks, chosen, straggler, ended) {
  const { lanes, level } = place;
  const every = Math.ceil(13 / lanes.row);
  g.textAlign = "right";
  g.textBaseline = "middle";
  const rowWith = (/** @type {number} */ rank) => Math.floor(ranks.indexOf(rank) / place.band);
  rowsOfRanks(place, ranks).forEach((members, i) => {
    const rank = [chosen, straggler].find((one) => members.includes(one)) ?? members[0];
    const y = lanes.top + i * lanes.row;
    const named = rank === chosen || rank === straggler;
    if (rank === chosen) {
      g.fillStyle = ink.focus;
      g.fillRect(0, y, 3, Math.max(3, lanes.row - 8));
    }
    const near = [chosen, straggler].some(
      (other) => ranks.includes(other) && other !== rank && Math.abs(rowWith(other) - i) < every,
    );
    // the chosen one before the straggler, both before the others
    if (near ? rank !== chosen : !named && i % every) return;
    g.font = `${named || level === "full" ? "700 " : ""}11px ${font}`;
    g.fillStyle =
      rank === straggler && level !== "full"
        ? ink.wait
        : named || level === "full"
          ? ink.ink
          : ink["ink-3"];
    g.fillText(
      named ? `rank ${rank}` : nameOfRow(members),
      place.left - 8,
      y + (level === "density" ? lanes.row / 2 : lanes.ownHeight / 2 + 0.5),
    );
    if (level !== "full") return;
    const role = ended.has(rank) ? "gone" : rank === straggler ? "straggler" : "";
    g.font = `${role ? "700 " : ""}11px ${font}`;
    g.fillStyle = role === "gone" ? ink.fault : role ? ink.wait : ink["ink-3"];
    g.fillText(
      role || talkName(index),
      place.left - 8,
      y + lanes.talk + lanes.talkHeight / 2 + 0.5,
    );
  });
}

/**
 * What the communication lane holds: "all-reduce", if it is nothing else.
 * @param {TimelineIndex} index
 */
function talkName({ table }) {
  const last = table.calls.at(-1)?.collective ?? "";
  const name =
    last && table.calls.slice(-32).every((call) => call.collective === last)
      ? last.replaceAll("_", "-")
      : "comm.";
  return name.length <= 10 ? name : "comm.";
}

/** @type {{head: any, rows: number, call: Call | null}} */
let openedChoice = { head: null, rows: 0, call: null };

/**
 * The same collective on all ranks, framed; from each send an arrow to where it was received.
 * @param {CanvasRenderingContext2D} g
 * @param {Canvas} canvas
 * @param {number[]} ranks
 * @param {import("../../chrome/stage.js").Choice} choice
 * @param {Hit[]} hits
 */
function drawChoice(g, { index, place, win, ink }, ranks, choice, hits) {
  const { table, bounds } = index;
  const { lanes } = place;
  const scale = place.room / (win.to - win.from); // px a ns
  g.strokeStyle = ink.focus;
  if (choice.op === undefined) {
    const lines = index.ranks.get(choice.rank ?? -1);
    const step =
      lines && choice.iteration !== undefined
        ? index.stepOf(lines, choice.iteration, win.from)
        : null;
    const a = step ? Math.max(place.left, windowX(win, place, step.start)) : 0;
    const b = step ? Math.min(place.right, windowX(win, place, step.end)) : 0;
    g.lineWidth = 1.5;
    if (b - a > 4 && choice.rank !== undefined && ranks.includes(choice.rank))
      g.strokeRect(
        a - 1,
        lanes.top + Math.floor(ranks.indexOf(choice.rank) / place.band) * lanes.row - 1.5,
        b - a + 2,
        Math.max(3, place.band > 1 ? lanes.row + 1 : lanes.under + 0.5),
      );
    return;
  }
  const head = table.calls.findLast(
    (call) => call.op === choice.op && (choice.group === undefined || call.group === choice.group),
  );
  if (!head || head.end < win.from || head.start > win.to) return;
  g.lineWidth = 2.25;
  for (const hit of hits) {
    if (hit.row < 0) continue;
    const p = table.passage[hit.row];
    const kind = table.kind[hit.row];
    if (table.passages.op[p] !== head.op || table.text(table.passages.group[p]) !== head.group)
      continue;
    if (kind === table.code.collective) {
      g.strokeRect(hit.x - 1, hit.y - 1, hit.w + 2, hit.h + 2);
      const half = halfBar(bounds[hit.rank] ?? 0, scale);
      const ends = [table.start[hit.row], table.end[hit.row]].map((t) => windowX(win, place, t));
      g.lineWidth = 1.25;
      for (const x of ends)
        if (x >= place.left && x <= place.right) drawErrorBar(g, x, hit.y + hit.h / 2, half);
      g.lineWidth = 2.25;
    } else if (
      choice.chunk !== undefined &&
      table.chunk[hit.row] === choice.chunk &&
      kind !== table.code.wait
    )
      g.strokeRect(hit.x - 0.5, hit.y - 0.5, hit.w + 1, hit.h + 0.5);
  }
  if (openedChoice.head !== head || openedChoice.rows !== head.rows)
    openedChoice = { head, rows: head.rows, call: openCall(table, head) };
  const call = /** @type {Call} */ (openedChoice.call);
  const mine = (/** @type {import("../../engine/model.js").Flight} */ f) =>
    choice.chunk === undefined || f.chunk === choice.chunk;
  const flights = call.flights.filter(mine);
  const wide = (/** @type {number} */ ns) => (ns / (win.to - win.from)) * place.room;
  if (flights.length > ARROWS || wide(head.end - head.start) < 30 || place.level === "density")
    return;
  g.strokeStyle = g.fillStyle = ink.ink;
  g.lineWidth = 1;
  for (const f of flights) {
    const a = ranks.indexOf(f.from);
    const b = ranks.indexOf(f.to);
    const x0 = windowX(win, place, call.start + f.start);
    const x1 = windowX(win, place, call.start + f.end);
    if (
      a < 0 ||
      b < 0 ||
      x1 < place.left ||
      x0 > place.right ||
      x0 < place.left ||
      x1 > place.right
    )
      continue;
    const y0 = lanes.top + a * lanes.row + lanes.talk + lanes.talkHeight / 4;
    const y1 = lanes.top + b * lanes.row + lanes.talk + (3 * lanes.talkHeight) / 4;
    const { start, end, sure } = knownOf(f, bounds);
    const halves = [halfBar(start, scale), halfBar(end, scale)];
    drawDoubt(g, { x: x0, y: y0, half: halves[0] }, { x: x1, y: y1, half: halves[1] });
    drawArrow(g, x0, y0, x1, y1, sure);
    drawErrorBar(g, x0, y0, halves[0]);
    drawErrorBar(g, x1, y1, halves[1]);
  }
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {number} x0
 * @param {number} y0
 * @param {number} x1
 * @param {number} y1
 * @param {boolean} sure  else it is dashed and has no head: when it came is not known so well
 */
function drawArrow(g, x0, y0, x1, y1, sure) {
  const angle = Math.atan2(y1 - y0, x1 - x0);
  g.globalAlpha = 0.75;
  g.setLineDash(sure ? [] : [3, 3]);
  g.beginPath();
  g.moveTo(x0, y0);
  g.lineTo(x1, y1);
  g.stroke();
  g.setLineDash([]);
  g.globalAlpha = 1;
  if (!sure) return;
  g.globalAlpha = 0.75;
  g.beginPath();
  g.moveTo(x1, y1);
  for (const turn of [2.75, -2.75])
    g.lineTo(x1 + 6 * Math.cos(angle + turn), y1 + 6 * Math.sin(angle + turn));
  g.fill();
  g.globalAlpha = 1;
}

/**
 * Where a step leads: the neighbouring iteration's start, or the next edge of a row (of the
 * selected rank, if one is).
 * @param {TimelineIndex} index
 * @param {import("../../chrome/stage.js").Look} look
 * @param {string} unit  chunk | step | iteration
 * @param {number} way
 * @returns {number | null}
 */
export function neighbourEdge(index, look, unit, way) {
  const { table } = index;
  const { t } = look;
  if (!table.rows) return null;
  if (unit === "iteration") {
    const now = index.around(t);
    if (!now) return null;
    if (way < 0 && t > now.from + 0.5) return now.from; // first to its own start
    const other = index.extent(now.iteration + way, t);
    return other ? other.from : t;
  }
  const edge = { t, way, best: way > 0 ? Infinity : -Infinity };
  const mine = (/** @type {number} */ rank) =>
    rank >= 0 && (look.choice?.rank === undefined || rank === look.choice.rank);
  if (unit === "chunk")
    for (const lane of table.lanes.values())
      mine(lane.rank) && takeEdges(table, index.classes, lane, 0, edge);
  else
    for (const rank of index.ranks.values())
      for (const list of mine(rank.rank) ? [rank.computed, rank.calls] : [])
        takeEdges(table, index.classes, list, table.forgotten, edge);
  return Number.isFinite(edge.best) ? edge.best : t;
}

/**
 * The nearest edge of some rows, in order of their end.
 * @param {import("../../engine/table.js").Table} table
 * @param {number[]} classes
 * @param {{rows: ArrayLike<number>, length: number}} list
 * @param {number} shift  of its numbers
 * @param {{t: number, way: number, best: number}} nearest
 */
function takeEdges(table, classes, list, shift, nearest) {
  const { t, way } = nearest;
  const after = (/** @type {number} */ i) => table.end[list.rows[i] - shift] > t - 0.5;
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (after(middle)) high = middle;
    else low = middle + 1;
  }
  for (let i = Math.max(0, low - NEAR_ROWS), seen = 0; i < list.length && seen < 8; i++) {
    const row = list.rows[i] - shift;
    if (!(classes[table.kind[row]] >= 0) || table.end[row] <= table.start[row]) continue;
    for (const edge of [table.start[row], table.end[row]])
      if (way > 0 ? edge > t + 0.5 && edge < nearest.best : edge < t - 0.5 && edge > nearest.best)
        nearest.best = edge;
    if (i >= low && table.start[row] > t + 0.5) seen++;
  }
}

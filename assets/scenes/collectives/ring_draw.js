// @ts-check
/**
 * The ring of ranks on a canvas: links as wide as they are fast, ranks with their incidents,
 * chunks on their way as the matrix's own cells, and words beside them.
 *
 * @typedef {import("./ring.js").Place} Place
 * @typedef {import("./ring.js").Mark} Mark
 * @typedef {import("./ring.js").Label} Label
 * @typedef {import("../../engine/rates.js").Reading} Reading
 * @typedef {{rank: number, member: boolean, away: boolean,
 *   wait: import("../../engine/model.js").Row | null, blocked: {peer: number, chunk?: number,
 *   since?: number, words?: string} | null, ended: string, killed: boolean, held: boolean,
 *   frozen: boolean, host: string | null,
 *   factor: number, receives: boolean}} RankState  blocked: it waits now, in a wait that has no row yet
 */
import { chunkWay, drawWayOnLinks } from "../../drawing/chunk_way.js";
import { SLOTTED, cross, drawGlyph, fillOf, huesOf } from "../../drawing/glyph.js";
import { besideRanks } from "./frame.js";
import { nanTag } from "../../drawing/nan.js";
import { isComplete } from "../../engine/holdings.js";
import { carriesNaN } from "../../engine/poison.js";
import { sendKey } from "../../engine/replayed_cells.js";
import { wayOf } from "./ring.js";
import { labelsOf, middleBox } from "./ring_labels.js";
import { drawStuck } from "../../engine/blocked.js";
import { factLine, middleFact } from "./captions.js";
import { drawRanks } from "./rank_draw.js";

/**
 * The width of a link that carries `rate` bytes/s, where `scale` is the widest.
 * @param {number} rate
 * @param {number} scale
 * @param {Place} place
 */
export function widthOf(rate, scale, place) {
  const { links, members: ranks, dots, around, level } = place;
  const most =
    links.length > 4 * ranks
      ? 1.5
      : links.length > 2 * ranks || (dots && !around)
        ? 4
        : [10, 8, 4][level];
  return scale > 0 ? Math.max(0.75, Math.min(1, rate / scale) * most) : 1;
}

/**
 * Every way that a chunk took. What does not move: drawn once a call.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {Place} place
 * @param {Reading | null} reading
 * @param {number} scale  bytes/s of the widest
 * @param {Map<string, {down: boolean}>} emulated @param {Set<number>} gone  ranks that have ended
 */
export function drawWays(g, ink, place, reading, scale, emulated, gone) {
  for (const { x, y, w, h } of place.boxes) {
    // a group of ranks
    g.strokeStyle = ink.rule;
    g.lineWidth = 1;
    g.beginPath();
    g.roundRect(x, y, w, h, 12);
    g.stroke();
  }
  for (const [from, to] of place.links) {
    const key = `${from}>${to}`;
    const [a, b] = wayOf(place, from, to);
    const ours = emulated.get(key);
    const dead = gone.has(from) || gone.has(to);
    g.strokeStyle = ours ? ink.hold : place.links.length > 2 * place.members ? ink.edge : ink.link;
    g.lineWidth = dead
      ? 1.5
      : Math.max(ours ? 2 : 0.75, widthOf(reading?.links.get(key)?.rate ?? 0, scale, place));
    g.setLineDash(dead ? [1.5, 4] : ours ? [6, 4] : []);
    g.beginPath();
    g.moveTo(a.x, a.y);
    g.lineTo(b.x, b.y);
    g.stroke();
    g.setLineDash([]);
    if (!ours?.down) continue;
    g.strokeStyle = ink.fault;
    g.lineWidth = 2.5;
    cross(g, (a.x + b.x) / 2, (a.y + b.y) / 2, 5);
  }
}

/**
 * The way done, from the sender's rim to the chunk.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {Place} place
 * @param {Mark[]} marks
 */
export function drawTails(g, ink, place, marks) {
  const wide = place.dots ? 2 : place.level ? 4 : 4.5;
  g.globalAlpha = 0.55;
  g.fillStyle = ink.comm;
  for (const mark of marks) {
    const half = mark.form === 2 ? 2 : wide;
    const [a] = wayOf(place, mark.from, mark.to);
    const length = Math.hypot(mark.x - a.x, mark.y - a.y);
    if (length < 1) continue;
    const u = { x: (mark.x - a.x) / length, y: (mark.y - a.y) / length };
    g.beginPath();
    g.moveTo(a.x, a.y);
    g.lineTo(mark.x - u.y * half, mark.y + u.x * half);
    g.lineTo(mark.x + u.y * half, mark.y - u.x * half);
    g.fill();
  }
  g.globalAlpha = 1;
}

/**
 * Every chunk on its way: the matrix's cell, with its number.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {Place} place
 * @param {Mark[]} marks
 * @param {Reading} reading
 * @param {{chunk?: number} | null} choice
 * @param {import("../../engine/poison.js").Poison | null} [poison]
 */
export function drawComets(g, ink, font, place, marks, reading, choice, poison = null) {
  const room = place.cell.number;
  const { ranks, carried } = reading.holdings;
  const hues = huesOf(ink, ranks, place.ranks);
  g.textAlign = "center";
  g.textBaseline = "middle";
  g.font = `700 11px ${font}`;
  for (const mark of marks) {
    const counts = carried.get(sendKey(mark));
    const fill = counts
      ? {
          ...fillOf(counts),
          whole: reading.call.collective !== "p2p" && isComplete(reading.holdings, counts),
        }
      : null;
    const { x, y, w, h, form } = mark;
    const slotted = !form && place.level === 0 && ranks.length <= SLOTTED;
    const nan = carriesNaN(poison, mark.chunk, counts);
    g.lineWidth = nan ? 2.5 : 1.5;
    g.strokeStyle = nan ? ink.fault : ink.comm;
    g.setLineDash(mark.lying ? [3, 2.5] : []); // it lies there, and is not received yet
    if (form === 2) {
      g.fillStyle = nan ? ink.fault : fill?.whole ? ink.comm : ink.ground;
      g.beginPath();
      g.arc(x, y, w / 2, 0, 7);
      g.fill();
      g.stroke();
      g.setLineDash([]);
      continue;
    }
    g.fillStyle = !slotted && fill?.whole ? ink.done : ink.ground;
    g.beginPath();
    g.roundRect(x - w / 2, y - h / 2, w, h, 3);
    g.fill();
    g.stroke();
    g.setLineDash([]);
    if (mark.chunk === choice?.chunk) {
      g.strokeStyle = ink.focus;
      g.lineWidth = 2;
      g.beginPath();
      g.roundRect(x - w / 2 - 2.5, y - h / 2 - 2.5, w + 5, h + 5, 5);
      g.stroke();
    }
    g.fillStyle = !slotted && fill?.whole ? ink.ground : ink.ink;
    g.fillText(String(mark.chunk), slotted ? x - w / 2 + room / 2 + 1 : x, y + 0.5);
    if (slotted && fill)
      drawGlyph(g, ink, hues, x - w / 2 + room + 1, y - h / 2 + 2.5, w - room - 4, h - 5, fill);
    if (nan) nanTag(g, ink, font, x + w / 2, y - h / 2);
  }
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {Label[]} labels
 */
export function drawLabels(g, ink, font, labels) {
  g.font = `700 11px ${font}`;
  g.textBaseline = "middle";
  for (const { lines, x, align, box, colour } of labels) {
    g.fillStyle = ink[colour];
    g.textAlign = align;
    lines.forEach((line, i) =>
      g.fillText(line, x, box.y + (i + 0.5) * (box.h / lines.length) + 0.5),
    );
  }
}

/**
 * The one fact in the middle: its first line is heard first; a line of ours is amber.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {Place} place
 * @param {{words: string, ours: boolean}[]} lines
 */
export function drawMiddle(g, ink, font, place, lines) {
  g.textAlign = "center";
  g.textBaseline = "middle";
  lines.forEach(({ words, ours }, i) => {
    g.font = `${i ? 400 : 700} ${i ? 11 : 12}px ${font}`;
    g.fillStyle = ours ? ink.hold : i ? ink["ink-2"] : ink.ink;
    g.fillText(words, place.middle.x, place.middle.y + (i - (lines.length - 1) / 2) * 16);
  });
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {Place} place
 * @param {number} from
 * @param {number} to
 */
function drawChosenLink(g, ink, { nodes }, from, to) {
  g.strokeStyle = ink.focus;
  g.lineWidth = 2;
  g.beginPath();
  g.moveTo(nodes[from].x, nodes[from].y);
  g.lineTo(nodes[to].x, nodes[to].y);
  g.stroke();
}

/**
 * The words in the picture, and where they stand: clear of ranks and halos, of chunks and the ways
 * that they take, and of each other.
 * @param {import("./frame.js").Prepared} seen
 * @param {import("../../engine/player.js").Known} known
 */
export function wordsAround(seen, known) {
  const { place, reading, marks } = seen;
  const fact = reading ? middleFact(reading, known) : [];
  const lines = fact.map((l) => l.words);
  const middle = fact.length ? middleBox(place, lines) : null;
  const flying = marks.map(({ x, y, w, h }) => ({ x: x - w / 2, y: y - h / 2, w, h }));
  const labels = labelsOf(place, besideRanks(seen), middle ? [middle, ...flying] : flying);
  return { fact, middle, labels };
}

/**
 * The whole ring at the playhead.
 * @param {CanvasRenderingContext2D} g  cleared, scaled to CSS pixels
 * @param {import("../../chrome/stage.js").Look} look
 * @param {import("./frame.js").Prepared} seen
 * @param {CanvasImageSource} ways  as `drawWays` drew them
 * @returns {string} the text to put below, because it has no place in the middle
 */
export function drawSpace(g, { ink, font, choice, known }, seen, ways) {
  const { place, reading, marks } = seen;
  const dots = marks.filter((m) => m.form === 2);
  const cells = dots.length ? marks.filter((m) => m.form < 2) : marks;
  g.drawImage(ways, 0, 0, seen.left, seen.height);
  drawTails(g, ink, place, marks);
  if (reading) drawWayOnLinks(g, ink, place.nodes, chunkWay(reading.call, choice), seen.t);
  if (reading) drawComets(g, ink, font, place, dots, reading, choice, seen.poison); // they pass below the ranks
  if (
    choice?.rank !== undefined &&
    choice.peer !== undefined &&
    reading?.links.has(`${choice.rank}>${choice.peer}`)
  )
    drawChosenLink(g, ink, place, choice.rank, choice.peer);
  drawRanks(
    g,
    ink,
    font,
    place,
    seen.ranks,
    reading,
    choice?.peer === undefined ? (choice?.rank ?? -1) : -1,
  );
  if (seen.stuck.size) drawStuck(g, ink, place, seen.stuck);
  if (reading) drawComets(g, ink, font, place, cells, reading, choice, seen.poison);
  const { fact, middle, labels } = wordsAround(seen, known);
  if (middle) drawMiddle(g, ink, font, place, fact);
  drawLabels(g, ink, font, labels);
  return middle ? "" : factLine(fact);
}

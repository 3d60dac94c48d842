// @ts-check
/**
 * The ring of ranks on a canvas: links as wide as they are fast, ranks with what befell them, chunks on their way as the
 * matrix's own cells, and words beside them.
 *
 * @typedef {import("./ring.js").Place} Place
 * @typedef {import("./ring.js").Mark} Mark
 * @typedef {import("./ring.js").Label} Label
 * @typedef {import("./rates.js").Reading} Reading
 * @typedef {{rank: number, member: boolean, away: boolean, wait: import("./model.js").Row | null, blocked: {peer: number, chunk?: number, since?: number, words?: string} | null,
 *   ended: string, held: boolean, frozen: boolean, factor: number}} RankState  blocked: it waits now, in a wait that has no row yet
 */
import { SLOTTED, cross, drawGlyph, fillOf, huesOf, onHues } from "./glyph.js";
import { besideRanks } from "./collective_frame.js";
import { isComplete, sendKey } from "./holdings.js";
import { labelsOf, middleBox, wayOf } from "./ring.js";
import { drawStuck } from "./stuck.js";
import { factLine, middleFact } from "./tell_collectives.js";

/** The width of a link that carries `rate` bytes/s, where `scale` is the widest. @param {number} rate @param {number} scale @param {Place} place */
export function widthOf(rate, scale, place) {
  const { links, members: ranks, dots, around, level } = place, most = links.length > 4 * ranks ? 1.5 : links.length > 2 * ranks || (dots && !around) ? 4 : [10, 8, 4][level];
  return scale > 0 ? Math.max(0.75, Math.min(1, rate / scale) * most) : 1;
}

/**
 * Every way that a chunk took. What does not move: drawn once a call.
 * @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {Place} place @param {Reading | null} reading @param {number} scale  bytes/s of the widest
 * @param {Map<string, {down: boolean}>} made @param {Set<number>} gone  ranks that have ended
 */
export function drawWays(g, ink, place, reading, scale, made, gone) {
  for (const { x, y, w, h } of place.boxes) { // a group of ranks
    g.strokeStyle = ink.rule;
    g.lineWidth = 1;
    g.beginPath();
    g.roundRect(x, y, w, h, 12);
    g.stroke();
  }
  for (const [from, to] of place.links) {
    const key = `${from}>${to}`, [a, b] = wayOf(place, from, to), ours = made.get(key), dead = gone.has(from) || gone.has(to);
    g.strokeStyle = ours ? ink.hold : place.links.length > 2 * place.members ? ink.edge : ink.rule;
    g.lineWidth = dead ? 1.5 : Math.max(ours ? 2 : 0.75, widthOf(reading?.links.get(key)?.rate ?? 0, scale, place));
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

/** The way done, from the sender's rim to the chunk. @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {Place} place @param {Mark[]} marks */
export function drawTails(g, ink, place, marks) {
  const wide = place.dots ? 2 : place.level ? 4 : 4.5;
  g.globalAlpha = 0.55;
  g.fillStyle = ink.comm;
  for (const mark of marks) {
    const half = mark.form === 2 ? 2 : wide, [a] = wayOf(place, mark.from, mark.to), length = Math.hypot(mark.x - a.x, mark.y - a.y);
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

/** @param {CanvasRenderingContext2D} g @param {number} x @param {number} y @param {number} r @param {string} colour @param {number} width @param {number[]} dash */
function round(g, x, y, r, colour, width, dash) {
  g.strokeStyle = colour;
  g.lineWidth = width;
  g.setLineDash(dash);
  g.beginPath();
  g.arc(x, y, r, 0, 7);
  g.stroke();
  g.setLineDash([]);
}

/**
 * @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {string} font @param {Place} place @param {RankState[]} states
 * @param {Reading | null} reading @param {number} chosen  the reader's rank, or -1
 */
export function drawRanks(g, ink, font, place, states, reading, chosen) {
  const { node, level, middle } = place, all = states.map((s) => s.rank), ranks = reading?.holdings.ranks ?? all;
  const hues = huesOf(ink, ranks, place.ranks), ons = onHues(ink, ranks, place.ranks), halo = node + (level ? 5 : 5.5);
  g.textAlign = "center";
  g.textBaseline = "middle";
  for (const { rank, member, away, wait: recorded, blocked, ended, held, frozen, factor } of states) {
    const wait = recorded ?? blocked;
    const { x, y } = place.nodes[rank], i = ranks.indexOf(rank), hue = i < 0 ? ink.edge : hues[i], open = away || !!ended || !member;
    if (!member && place.outside) {
      drawOutside(g, ink, font, rank, x, y, place.outside, !!ended, rank === chosen);
      continue;
    }
    if (level === 2) {
      const c = (x - middle.x) / place.radius, d = (y - middle.y) / place.radius; // a tick, across the circle
      g.strokeStyle = ended ? ink.fault : wait ? ink.wait : member ? ink.edge : ink.rule;
      g.lineWidth = held || frozen ? 4 : 2.5;
      g.setLineDash(wait ? [2, 2] : []);
      g.beginPath();
      g.moveTo(x - c * node, y - d * node);
      g.lineTo(x + c * node, y + d * node);
      g.stroke();
      g.setLineDash([]);
      if (held || frozen) markSquare(g, ink.hold, x, y, node + 2, frozen);
      if (ended) crossAt(g, ink, x, y, 3);
      const out = place.around ? -14 : 14; // inside, where only neighbours talk
      if (rank % Math.ceil(place.ranks / 8) === 0 || rank === chosen) number(g, font, ink["ink-2"], rank, x + c * out, y + d * out, 11);
      continue;
    }
    g.beginPath();
    g.arc(x, y, node - (open ? 1 : 0), 0, 7);
    if (open) {
      g.fillStyle = ink.ground;
      g.fill();
      g.strokeStyle = ended ? ink.fault : member ? hue : ink.rule;
      g.lineWidth = member ? 2 : 1;
      g.stroke();
    } else {
      g.fillStyle = hue;
      g.fill();
    }
    number(g, font, open ? (member ? ink.ink : ink["ink-3"]) : ons[i] ?? ink.ground, rank, x, y, level ? 11 : 14);
    if (wait) round(g, x, y, halo, ink.wait, level ? 2.5 : 3, [3, 3.2]);
    if (factor !== 1) round(g, x, y, halo + 4, ink.hold, 1.5, [4, 3]);
    if (held || frozen) markSquare(g, ink.hold, x, y, halo, frozen);
    if (ended) crossAt(g, ink, x + node * 0.75, y - node * 0.75, level ? 4 : 5);
    if (rank === chosen) round(g, x, y, node + 2, ink.focus, 2.5, []);
  }
}

/** A rank that is in another group: small, and faint. @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {string} font @param {number} rank @param {number} x @param {number} y @param {number} r @param {boolean} ended @param {boolean} chosen */
function drawOutside(g, ink, font, rank, x, y, r, ended, chosen) {
  round(g, x, y, r, ended ? ink.fault : chosen ? ink.focus : ink.rule, chosen ? 2 : 1, []);
  if (r >= 8) number(g, font, ink["ink-3"], rank, x, y, 11);
  if (ended) crossAt(g, ink, x + r * 0.75, y - r * 0.75, 3);
}

/** @param {CanvasRenderingContext2D} g @param {string} font @param {string} colour @param {number} rank @param {number} x @param {number} y @param {number} size */
function number(g, font, colour, rank, x, y, size) {
  g.fillStyle = colour;
  g.font = `700 ${size}px ${font}`;
  g.fillText(String(rank), x, y + 0.5);
}

/** The ranks' hold is a square; dashed, it is a process that was stopped. @param {CanvasRenderingContext2D} g @param {string} colour @param {number} x @param {number} y @param {number} half @param {boolean} dashed */
function markSquare(g, colour, x, y, half, dashed) {
  g.strokeStyle = colour;
  g.lineWidth = 2;
  g.setLineDash(dashed ? [4, 3] : []);
  g.strokeRect(x - half, y - half, 2 * half, 2 * half);
  g.setLineDash([]);
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {number} x @param {number} y @param {number} r */
function crossAt(g, ink, x, y, r) {
  g.fillStyle = ink.fault;
  g.beginPath();
  g.arc(x, y, r + 2, 0, 7);
  g.fill();
  g.strokeStyle = ink.ground;
  g.lineWidth = 1.75;
  cross(g, x, y, r * 0.6);
}

/**
 * Every chunk on its way: the matrix's cell, with its number.
 * @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {string} font @param {Place} place @param {Mark[]} marks @param {Reading} reading
 * @param {{chunk?: number} | null} choice
 */
export function drawComets(g, ink, font, place, marks, reading, choice) {
  const room = place.cell.number, { ranks, carried } = reading.holdings, hues = huesOf(ink, ranks, place.ranks);
  g.textAlign = "center";
  g.textBaseline = "middle";
  g.font = `700 11px ${font}`;
  for (const mark of marks) {
    const counts = carried.get(sendKey(mark)), fill = counts ? { ...fillOf(counts), whole: reading.call.collective !== "p2p" && isComplete(reading.holdings, counts) } : null, { x, y, w, h, form } = mark, slotted = !form && place.level === 0 && ranks.length <= SLOTTED;
    g.lineWidth = 1.5;
    g.strokeStyle = ink.comm;
    g.setLineDash(mark.lying ? [3, 2.5] : []); // it lies there, and nobody has received it
    if (form === 2) {
      g.fillStyle = fill?.whole ? ink.comm : ink.ground;
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
    if (slotted && fill) drawGlyph(g, ink, hues, x - w / 2 + room + 1, y - h / 2 + 2.5, w - room - 4, h - 5, fill);
  }
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {string} font @param {Label[]} labels */
export function drawLabels(g, ink, font, labels) {
  g.font = `700 11px ${font}`;
  g.textBaseline = "middle";
  for (const { lines, x, align, box, colour } of labels) {
    g.fillStyle = ink[colour];
    g.textAlign = align;
    lines.forEach((line, i) => g.fillText(line, x, box.y + (i + 0.5) * (box.h / lines.length) + 0.5));
  }
}

/** The one fact in the middle: its first line is heard first; a line of ours is amber. @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {string} font @param {Place} place @param {{words: string, ours: boolean}[]} lines */
export function drawMiddle(g, ink, font, place, lines) {
  g.textAlign = "center";
  g.textBaseline = "middle";
  lines.forEach(({ words, ours }, i) => {
    g.font = `${i ? 400 : 700} ${i ? 11 : 12}px ${font}`;
    g.fillStyle = ours ? ink.hold : i ? ink["ink-2"] : ink.ink;
    g.fillText(words, place.middle.x, place.middle.y + (i - (lines.length - 1) / 2) * 16);
  });
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {Place} place @param {number} from @param {number} to */
function drawChosenLink(g, ink, { nodes }, from, to) {
  g.strokeStyle = ink.focus;
  g.lineWidth = 2;
  g.beginPath();
  g.moveTo(nodes[from].x, nodes[from].y);
  g.lineTo(nodes[to].x, nodes[to].y);
  g.stroke();
}

/**
 * The whole ring at the playhead.
 * @param {CanvasRenderingContext2D} g  cleared, scaled to CSS pixels
 * @param {import("./stage.js").Look} look @param {import("./collective_frame.js").Prepared} seen @param {CanvasImageSource} ways  as `drawWays` drew them
 * @returns {string} what is to be said below, because it has no place in the middle
 */
export function drawSpace(g, { ink, font, choice, known }, seen, ways) {
  const { place, reading, marks } = seen, dots = marks.filter((m) => m.form === 2), cells = dots.length ? marks.filter((m) => m.form < 2) : marks;
  g.drawImage(ways, 0, 0, seen.left, seen.height);
  drawTails(g, ink, place, marks);
  if (reading) drawComets(g, ink, font, place, dots, reading, choice); // they pass below the ranks
  if (choice?.rank !== undefined && choice.peer !== undefined && reading?.links.has(`${choice.rank}>${choice.peer}`)) drawChosenLink(g, ink, place, choice.rank, choice.peer);
  drawRanks(g, ink, font, place, seen.ranks, reading, choice?.peer === undefined ? (choice?.rank ?? -1) : -1);
  if (seen.stuck.size) drawStuck(g, ink, place, seen.stuck);
  if (reading) drawComets(g, ink, font, place, cells, reading, choice);
  const fact = reading ? middleFact(reading, known) : [], middle = fact.length ? middleBox(place, fact.map((l) => l.words)) : null;
  if (middle) drawMiddle(g, ink, font, place, fact);
  const beside = marks.filter((m) => m.track).map(({ x, y, w, h }) => ({ x: x - w / 2, y: y - h / 2, w, h }));
  drawLabels(g, ink, font, labelsOf(place, besideRanks(seen), middle ? [middle, ...beside] : beside));
  return middle ? "" : factLine(fact);
}

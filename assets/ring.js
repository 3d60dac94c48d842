// @ts-check
/**
 * Where the chunks are: ranks on a circle, an edge for each pair between which a chunk really went, and every
 * chunk on its way at its place, (playhead − start) / (end − start) of the edge. Geometry first, then drawing.
 * @typedef {import("./model.js").Call} Call
 * @typedef {import("./model.js").Flight} Flight
 * @typedef {ReturnType<typeof import("./model.js").frameAt>} Frame
 * @typedef {{x: number, y: number}} Point
 * @typedef {{nodes: Point[], node: number, cell: {w: number, h: number}, middle: Point, both: Set<string>, terse: boolean}} Place
 */
import { awaited, bytes, duration } from "./words.js";

/** Height of the picture in CSS pixels; it depends on the ranks only, so nothing jumps. @param {number} ranks */
export const ringHeight = (ranks) => (ranks > 4 ? 356 : 308);

/**
 * Places that hold for a whole call: ranks clockwise from the top.
 * @param {number} ranks @param {number} width @param {number} height @param {Flight[]} flights
 * @returns {Place}
 */
export function placesOf(ranks, width, height, flights) {
  const node = ranks > 32 ? 4 : ranks > 8 ? 11 : 17, middle = { x: width / 2, y: height / 2 };
  const margin = ranks > 8 ? node + 14 : width < 400 ? 84 : 114; // beside a rank: room for the words of its wait
  const radius = Math.max(20, Math.min(width / 2 - margin, height / 2 - node - 26));
  const nodes = Array.from({ length: ranks }, (_, r) => {
    const angle = (2 * Math.PI * r) / ranks;
    return { x: middle.x + radius * Math.sin(angle), y: middle.y - radius * Math.cos(angle) };
  });
  const ways = new Set(flights.map((f) => `${f.from}>${f.to}`));
  const both = new Set([...ways].filter((way) => ways.has(way.split(">").reverse().join(">"))));
  return { nodes, node, cell: ranks > 8 ? { w: 20, h: 15 } : { w: 28, h: 19 }, middle, both, terse: width < 400 };
}

/**
 * The straight way of a chunk, rim to rim, such that a cell never covers a rank. Two ways between the same ranks lie side by side.
 * @param {Place} place @param {number} from @param {number} to @param {boolean} [forCell] leave room for the cell itself
 * @returns {[Point, Point]}
 */
export function wayOf(place, from, to, forCell = false) {
  const a = place.nodes[from], b = place.nodes[to], length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const u = { x: (b.x - a.x) / length, y: (b.y - a.y) / length }, aside = place.both.has(`${from}>${to}`) ? 13 : 0;
  const half = forCell ? Math.min(Math.abs(u.x) * place.cell.w + Math.abs(u.y) * place.cell.h, place.cell.w) / 2 + 2 : 0;
  const gap = Math.min(length / 2 - 1, place.node + 3 + half);
  const at = (/** @type {number} */ d) => ({ x: a.x + u.x * d - u.y * aside, y: a.y + u.y * d + u.x * aside });
  return [at(gap), at(length - gap)];
}

const ASIDE = [0, 1, 2, -1, 3]; // where the tracks of a link lie, in cells; outside the ring there is more room

/**
 * Each chunk on its way, with its place: along the link its share of the flight, across it a track of its own.
 * @param {Frame} frame @param {Place} place
 */
export function marksOf(frame, place) {
  return frame.comets.map((comet) => {
    const [a, b] = wayOf(place, comet.from, comet.to, true), length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const across = { x: (b.y - a.y) / length, y: (a.x - b.x) / length }; // to the left of the way
    const room = 2 + Math.min((place.cell.w + 2) / Math.abs(across.x), (place.cell.h + 2) / Math.abs(across.y));
    const aside = room * ASIDE[comet.track % ASIDE.length];
    return { ...comet, x: a.x + (b.x - a.x) * comet.share + across.x * aside, y: a.y + (b.y - a.y) * comet.share + across.y * aside };
  });
}

/**
 * What lies under the pointer, in words; "" is nothing.
 * @param {Frame} frame @param {Place} place @param {number} x @param {number} y
 */
export function wordsAt(frame, place, x, y) {
  const { w, h } = place.cell;
  const mark = marksOf(frame, place).findLast((m) => Math.abs(m.x - x) <= w / 2 && Math.abs(m.y - y) <= h / 2);
  if (mark)
    return `chunk ${mark.chunk} from rank ${mark.from} to rank ${mark.to}: ${Math.round(mark.share * 100)} % of its ` +
      `${duration(mark.end - mark.start)}, ${bytes(mark.nbytes)}, step ${mark.step} (${mark.phase.replaceAll("_", "-")})`;
  const rank = place.nodes.findIndex((n) => Math.hypot(n.x - x, n.y - y) <= place.node + 5);
  if (rank < 0) return "";
  const wait = frame.waiting.get(rank);
  if (frame.away.has(rank)) return `rank ${rank} has not joined in yet`;
  return wait ? `rank ${rank} has waited ${duration(frame.t - wait.start)} for ${awaited(wait, true)}` : `rank ${rank}`;
}

/** The ways that the chunks of a call took. @param {Call} call */
const waysOf = (call) => new Map(call.flights.map((f) => [`${f.from}>${f.to}`, f]));

/**
 * @param {CanvasRenderingContext2D} g  scaled to CSS pixels
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {number} ranks
 * @param {Place} place
 * @param {Call | null} call
 * @param {Frame | null} frame
 * @param {Set<string>} emulated  "0>1": links that are slowed by us
 */
export function drawRing(g, ink, font, ranks, place, call, frame, emulated) {
  if (call) for (const { from, to } of waysOf(call).values()) drawWay(g, ink, place, from, to, emulated.has(`${from}>${to}`));
  const marks = frame ? marksOf(frame, place) : [];
  for (const mark of marks) drawTail(g, ink, place, mark);
  for (let r = 0; r < ranks; r++) drawRank(g, ink, font, ranks, place, r, frame);
  for (const mark of marks) drawCell(g, ink, font, place, mark);
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {Place} place @param {number} from @param {number} to @param {boolean} slowed */
function drawWay(g, ink, place, from, to, slowed) {
  const [a, b] = wayOf(place, from, to);
  g.strokeStyle = slowed ? ink.hold : ink.rule;
  g.lineWidth = slowed ? 2.5 : 4;
  g.setLineDash(slowed ? [6, 4] : []);
  g.beginPath();
  g.moveTo(a.x, a.y);
  g.lineTo(b.x, b.y);
  g.stroke();
  g.setLineDash([]);
}

/** The way done, from the sender's rim to the cell. @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {Place} place @param {Flight & Point} mark */
function drawTail(g, ink, place, mark) {
  const [a] = wayOf(place, mark.from, mark.to), length = Math.hypot(mark.x - a.x, mark.y - a.y);
  if (length < 1) return;
  const u = { x: (mark.x - a.x) / length, y: (mark.y - a.y) / length };
  g.globalAlpha = 0.5;
  g.fillStyle = ink.comm;
  g.beginPath();
  g.moveTo(a.x, a.y);
  g.lineTo(mark.x - u.y * 5, mark.y + u.x * 5);
  g.lineTo(mark.x + u.y * 5, mark.y - u.x * 5);
  g.fill();
  g.globalAlpha = 1;
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {string} font @param {number} ranks @param {Place} place @param {number} r @param {Frame | null} frame */
function drawRank(g, ink, font, ranks, place, r, frame) {
  const { x, y } = place.nodes[r], wait = frame?.waiting.get(r), own = ranks <= 8;
  const colour = own ? ink[`s${r}`] : ink.edge, away = frame?.away.has(r) ?? true;
  g.fillStyle = g.strokeStyle = colour;
  g.lineWidth = 2;
  g.beginPath();
  g.arc(x, y, place.node - (away ? 1 : 0), 0, 7);
  if (away) g.stroke(); // it has not joined in yet: an open circle
  else g.fill();
  g.textAlign = "center";
  g.textBaseline = "middle";
  if (ranks <= 32) {
    g.fillStyle = away ? ink.ink : own ? ink[`on-s${r}`] : ink.ground;
    g.font = `700 ${own ? 15 : 11}px ${font}`;
    g.fillText(String(r), x, y + 0.5);
  }
  if (!wait || !frame) return;
  g.strokeStyle = ink.wait;
  g.lineWidth = own ? 3 : 2;
  g.setLineDash([3.2, 3.2]);
  g.beginPath();
  g.arc(x, y, place.node + 5.5, 0, 7);
  g.stroke();
  g.setLineDash([]);
  if (!own) return;
  const dx = x - place.middle.x, dy = y - place.middle.y, reach = Math.hypot(dx, dy) || 1;
  const side = Math.abs(dx) < reach * 0.3 ? 0 : Math.sign(dx), out = place.node + 13;
  g.fillStyle = ink.wait;
  g.font = `700 12px ${font}`;
  // Beside a rank at the top or bottom there is no edge: its label stands to the right of it.
  g.textAlign = side < 0 ? "right" : "left";
  const tx = side < 0 ? x - out : x + out, ty = side === 0 ? y + Math.sign(dy) * 10 : y;
  const lasted = duration(frame.t - wait.start);
  g.fillText(place.terse ? lasted : `waits ${lasted}`, tx, ty - 7);
  g.fillText(`for ${place.terse ? "" : "rank "}${wait.peer}`, tx, ty + 8);
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {string} font @param {Place} place @param {Flight & Point} mark */
function drawCell(g, ink, font, place, mark) {
  const { w, h } = place.cell;
  g.fillStyle = ink.ground;
  g.strokeStyle = ink.comm;
  g.lineWidth = 2;
  g.beginPath();
  g.roundRect(mark.x - w / 2, mark.y - h / 2, w, h, 4);
  g.fill();
  g.stroke();
  g.fillStyle = ink.ink;
  g.textAlign = "center";
  g.textBaseline = "middle";
  g.font = `700 ${w > 20 ? 13 : 11}px ${font}`;
  g.fillText(String(mark.chunk), mark.x, mark.y + 0.5);
}

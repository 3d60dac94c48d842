// @ts-check
/**
 * The marks of ranks in the picture of the chunks, with what each does.
 *
 * @typedef {import("./ring.js").Place} Place
 * @typedef {import("../../engine/rates.js").Reading} Reading
 * @typedef {import("./ring_draw.js").RankState} RankState
 */
import { crossAt, huesOf, onHues } from "../../drawing/glyph.js";

/**
 * @param {CanvasRenderingContext2D} g
 * @param {number} x
 * @param {number} y
 * @param {number} r
 * @param {string} colour
 * @param {number} width
 * @param {number[]} dash
 */
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
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {Place} place
 * @param {RankState[]} states
 * @param {Reading | null} reading @param {number} chosen  the reader's rank, or -1
 */
export function drawRanks(g, ink, font, place, states, reading, chosen) {
  const { node, level, middle } = place;
  const all = states.map((s) => s.rank);
  const ranks = reading?.holdings.ranks ?? all;
  const hues = huesOf(ink, ranks, place.ranks);
  const ons = onHues(ink, ranks, place.ranks);
  const halo = node + (level ? 5 : 5.5);
  g.textAlign = "center";
  g.textBaseline = "middle";
  for (const {
    rank,
    member,
    away,
    wait: recorded,
    blocked,
    ended,
    held,
    frozen,
    host,
    factor,
  } of states) {
    const wait = recorded ?? blocked;
    const { x, y } = place.nodes[rank];
    const i = ranks.indexOf(rank);
    const hue = i < 0 || host !== null ? ink.edge : hues[i];
    const open = away || !!ended || !member || host !== null;
    if (!member && place.outside) {
      drawOutside(g, ink, font, rank, x, y, place.outside, !!ended, rank === chosen);
      continue;
    }
    if (level === 2) {
      const c = (x - middle.x) / place.radius;
      const d = (y - middle.y) / place.radius; // a tick, across the circle
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
      if (rank % Math.ceil(place.ranks / 8) === 0 || rank === chosen)
        number(g, font, ink["ink-2"], rank, x + c * out, y + d * out, 11);
      continue;
    }
    g.beginPath();
    g.arc(x, y, node - (open ? 1 : 0), 0, 7);
    if (open) {
      g.fillStyle = ink.ground;
      g.fill();
      g.strokeStyle = ended ? ink.fault : member ? hue : ink.rule;
      g.lineWidth = member && host === null ? 2 : 1;
      g.setLineDash(host === null ? [] : [3, 3]);
      g.stroke();
      g.setLineDash([]);
    } else {
      g.fillStyle = hue;
      g.fill();
    }
    number(
      g,
      font,
      open ? (member && host === null ? ink.ink : ink["ink-3"]) : (ons[i] ?? ink.ground),
      rank,
      x,
      y,
      level ? 11 : 14,
    );
    if (wait) round(g, x, y, halo, ink.wait, level ? 2.5 : 3, [3, 3.2]);
    if (factor !== 1) round(g, x, y, halo + 4, ink.hold, 1.5, [4, 3]);
    if (held || frozen) markSquare(g, ink.hold, x, y, halo, frozen);
    if (ended) crossAt(g, ink, x + node * 0.75, y - node * 0.75, level ? 4 : 5);
    if (rank === chosen) round(g, x, y, node + 2, ink.focus, 2.5, []);
  }
}

/**
 * A rank that is in another group: small, and faint.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {number} rank
 * @param {number} x
 * @param {number} y
 * @param {number} r
 * @param {boolean} ended
 * @param {boolean} chosen
 */
function drawOutside(g, ink, font, rank, x, y, r, ended, chosen) {
  round(g, x, y, r, ended ? ink.fault : chosen ? ink.focus : ink.rule, chosen ? 2 : 1, []);
  if (r >= 8) number(g, font, ink["ink-3"], rank, x, y, 11);
  if (ended) crossAt(g, ink, x + r * 0.75, y - r * 0.75, 3);
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {string} font
 * @param {string} colour
 * @param {number} rank
 * @param {number} x
 * @param {number} y
 * @param {number} size
 */
function number(g, font, colour, rank, x, y, size) {
  g.fillStyle = colour;
  g.font = `700 ${size}px ${font}`;
  g.fillText(String(rank), x, y + 0.5);
}

/**
 * The ranks' hold is a square; dashed, it is a process that was stopped.
 * @param {CanvasRenderingContext2D} g
 * @param {string} colour
 * @param {number} x
 * @param {number} y
 * @param {number} half
 * @param {boolean} dashed
 */
function markSquare(g, colour, x, y, half, dashed) {
  g.strokeStyle = colour;
  g.lineWidth = 2;
  g.setLineDash(dashed ? [4, 3] : []);
  g.strokeRect(x - half, y - half, 2 * half, 2 * half);
  g.setLineDash([]);
}

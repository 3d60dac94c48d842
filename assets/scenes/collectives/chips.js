// @ts-check
/**
 * The small marks of the collectives' keys, drawn as the pictures draw them.
 */
import { TALL } from "../../drawing/key_row.js";
import { cross, drawGlyph, fillOf } from "../../drawing/glyph.js";

/**
 * @param {CanvasRenderingContext2D} g
 * @param {string} colour
 * @param {number} width
 * @param {number[]} dash
 */
export function stroke(g, colour, width, dash) {
  g.strokeStyle = colour;
  g.lineWidth = width;
  g.setLineDash(dash);
  g.beginPath();
  g.moveTo(0, TALL / 2);
  g.lineTo(22, TALL / 2);
  g.stroke();
  g.setLineDash([]);
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {string} colour
 * @param {number} r
 * @param {number} width
 * @param {number[]} dash
 */
export function ringAt(g, colour, r, width, dash) {
  g.strokeStyle = colour;
  g.lineWidth = width;
  g.setLineDash(dash);
  g.beginPath();
  g.arc(8, TALL / 2, r, 0, 7);
  g.stroke();
}

/** Three of n parts, as an example. @param {number} n */
export const some = (n) =>
  fillOf(Array.from({ length: n }, (_, i) => Number(i < Math.min(3, Math.max(1, n - 1)))));

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink */
export function lyingChip(g, ink) {
  g.strokeStyle = ink.comm;
  g.lineWidth = 1.5;
  g.setLineDash([3, 2.5]);
  g.beginPath();
  g.roundRect(1, 1, 20, 13, 3);
  g.stroke();
  g.setLineDash([]);
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink */
export function arrivingChip(g, ink) {
  g.strokeStyle = g.fillStyle = ink.comm;
  g.lineWidth = 1.5;
  g.beginPath();
  g.roundRect(1, 1, 20, 13, 3);
  g.stroke();
  g.fillRect(1, 11, 12, 3);
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {string[]} hues
 * @param {boolean} whole
 */
export function comet(g, ink, font, hues, whole) {
  const w = hues.length ? 36 : 20;
  const solid = whole && !hues.length;
  g.strokeStyle = ink.comm;
  g.fillStyle = solid ? ink.done : ink.ground;
  g.lineWidth = 1.5;
  g.beginPath();
  g.roundRect(1, 1, w, 14, 3);
  g.fill();
  g.stroke();
  g.fillStyle = solid ? ink.ground : ink.ink;
  g.font = `700 11px ${font}`;
  g.textAlign = "center";
  g.textBaseline = "middle";
  g.fillText("3", hues.length ? 8 : 11, 8.5);
  if (hues.length)
    drawGlyph(g, ink, hues, 14, 3.5, 20, 9, whole ? fillOf(hues.map(() => 1)) : some(hues.length));
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {boolean} full */
export function dot(g, ink, full) {
  g.fillStyle = full ? ink.comm : ink.ground;
  g.strokeStyle = ink.comm;
  g.lineWidth = 1.5;
  g.beginPath();
  g.arc(5, TALL / 2, 3.5, 0, 7);
  g.fill();
  g.stroke();
}

/** @param {CanvasRenderingContext2D} g @param {string} colour */
export function crossed16(g, colour) {
  g.strokeStyle = colour;
  g.lineWidth = 2.5;
  cross(g, 8, TALL / 2, 5);
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink */
export function endedChip(g, ink) {
  ringAt(g, ink.fault, 6, 2, []);
  g.lineWidth = 2;
  cross(g, 8, TALL / 2, 3);
}

/** @param {CanvasRenderingContext2D} g @param {string} colour @param {number[]} dash */
export function square(g, colour, dash) {
  g.strokeStyle = colour;
  g.lineWidth = 2;
  g.setLineDash(dash);
  g.strokeRect(2, 2, 12, 12);
}

// @ts-check
/** The marks of a NaN: a cell with one is hatched and framed, a chunk with one has a tag. */
import { writeAt } from "./colors.js";
import { hatched } from "./hatch.js";

const TAG_WIDE = 30; // px
const TAG_HIGH = 13;

/**
 * Mark a cell as one with a NaN.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {number} ratio
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 */
export function drawNaN(g, ink, font, ratio, x, y, w, h) {
  if (Math.min(w, h) < 5) {
    g.fillStyle = ink.fault;
    g.fillRect(x, y, w, h);
    return;
  }
  g.fillStyle = hatched(ink.fault, ratio);
  g.fillRect(x, y, w, h);
  g.strokeStyle = ink.fault;
  g.lineWidth = 2;
  g.strokeRect(x + 1, y + 1, w - 2, h - 2);
  if (w >= TAG_WIDE + 8 && h >= TAG_HIGH + 6)
    nanTag(g, ink, font, x + w / 2 + TAG_WIDE / 2, y + h / 2);
}

/**
 * The tag "NaN", which ends at a place.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {number} right
 * @param {number} middle
 */
export function nanTag(g, ink, font, right, middle) {
  g.fillStyle = ink.ground;
  g.strokeStyle = ink.fault;
  g.lineWidth = 1;
  g.beginPath();
  g.roundRect(right - TAG_WIDE, middle - TAG_HIGH / 2, TAG_WIDE, TAG_HIGH, 3);
  g.fill();
  g.stroke();
  writeAt(g, font, "NaN", right - TAG_WIDE / 2, middle + 0.5, ink.fault, "center", true);
}

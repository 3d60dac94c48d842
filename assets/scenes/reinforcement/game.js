// @ts-check
/**
 * An actor's game in its box: what it saw last, as small squares.
 *
 * @typedef {import("./place.js").Box} Box
 * @typedef {import("../../drawing/pen.js").Pen} Pen
 */
import { SHADES } from "./frame.js";
import { STRIP_WIDE } from "./place.js";

/**
 * How many px a number of the game is wide and high in a box; 0: there is no room for it.
 * @param {Box} box
 * @param {number[][]} picture  rows of shades
 */
export function gameScale({ w, h }, picture) {
  const columns = picture[0]?.length ?? 0;
  const each = Math.floor(((h - 8) / picture.length) * 2) / 2;
  return columns && each >= 2 && w >= 118 + columns * each ? each : 0;
}

/**
 * The game as its actor saw it last, where there is room. Returns how wide it is.
 * @param {Pen} pen
 * @param {Box} box
 * @param {number[][]} picture  rows of shades
 */
export function drawGame(pen, box, picture) {
  const { g, ink } = pen;
  const each = gameScale(box, picture);
  if (!each) return 0;
  const { x, y, h } = box;
  const wide = picture[0].length * each;
  const left = x + STRIP_WIDE + 5;
  const top = y + (h - each * picture.length) / 2;
  pen.box(left, top, wide, each * picture.length, "track");
  g.fillStyle = ink.ink;
  picture.forEach((row, i) =>
    row.forEach((shade, k) => {
      g.globalAlpha = shade / (SHADES - 1);
      if (shade) g.fillRect(left + k * each, top + i * each, each, each);
    }),
  );
  g.globalAlpha = 1;
  return wide + 3;
}

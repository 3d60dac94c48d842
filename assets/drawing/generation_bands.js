// @ts-check
/**
 * The generations of a run as a thin strip over time: one tint after the other, a hairline where
 * each begins, its name where there is room.
 *
 * @typedef {{number: number, from: number, to: number}} Band  from where to where, in px or in ns
 */
import { generationsOf } from "../engine/generations.js";
import { writeAt } from "./colors.js";

export const BAND_HEIGHT = 13;

/**
 * Whether there is room for the strip: from the start where ranks may be lost, so that nothing
 * moves later.
 * @param {import("../engine/player.js").Known} known
 */
export const hasBands = (known) => !!known.run?.recovery || generationsOf(known).length > 1;

/**
 * The generations that have begun, in ns: the first from `from`, the last up to `to`.
 * @param {import("../engine/player.js").Known} known
 * @param {number} from
 * @param {number} to
 * @returns {Band[]}
 */
export function bandsOf(known, from, to) {
  const begun = generationsOf(known).filter(({ began }) => began <= to);
  return begun.map(({ number, began }, i) => ({
    number,
    from: Math.max(from, began),
    to: Math.min(to, begun[i + 1]?.began ?? to),
  }));
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {Band[]} bands  in px
 * @param {number} y
 */
export function drawBands(g, ink, font, bands, y) {
  bands.forEach(({ number, from, to }, i) => {
    g.fillStyle = i % 2 ? ink.track : (ink.panel ?? ink.track);
    g.fillRect(from, y, Math.max(1, to - from), BAND_HEIGHT);
    if (i) {
      g.fillStyle = ink.edge;
      g.fillRect(from - 0.5, y, 1, BAND_HEIGHT);
    }
    g.font = `400 11px ${font}`;
    const words = [`generation ${number}`, String(number)].find(
      (text) => g.measureText(text).width + 10 <= to - from,
    );
    if (words) writeAt(g, font, words, from + 5, y + BAND_HEIGHT / 2 + 0.5, ink["ink-2"]);
  });
}

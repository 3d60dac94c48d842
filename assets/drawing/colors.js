// @ts-check
/**
 * What the parameter server's pictures share: the tint of what has missed updates, and words on a
 * canvas.
 */

const OLDEST = 7;

/**
 * How many updates a step of the tint stands for: where many workers push, everybody soon lacks
 * many.
 * @param {number} workers
 * @param {{low: number | null}} rule  the clocks that a worker may be ahead, at least
 */
export const ageStep = (workers, { low }) => (low === 0 ? 1 : Math.max(1, Math.floor(workers / 4)));
/**
 * The tint of what lacks so many updates, any at all being seen.
 * @param {Record<string, string>} ink
 * @param {number} behind
 * @param {number} [step]
 */
export const ageInk = (ink, behind, step = 1) =>
  ink[`age-${Math.max(0, Math.min(OLDEST, Math.ceil(behind / step)))}`];

/**
 * @param {CanvasRenderingContext2D} g
 * @param {string} font
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {string} colour
 * @param {"left" | "center" | "right"} [align]
 * @param {boolean} [bold]
 * @param {number} [size]
 */
export function writeAt(g, font, text, x, y, colour, align = "left", bold = false, size = 11) {
  g.font = `${bold ? 700 : 400} ${size}px ${font}`;
  g.textAlign = align;
  g.textBaseline = "middle";
  g.fillStyle = colour;
  g.fillText(text, x, y);
}

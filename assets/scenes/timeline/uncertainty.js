// @ts-check
/**
 * How well the times of a rank are known, whose host has another clock than the driver: its error
 * bars. Geometry, then drawing.
 *
 * @typedef {Record<string, number>} Bounds  by rank: ns by which its times may be wrong, each way
 */
import { duration } from "../../engine/format.js";

const LEAST_BAR = 1.5; // px: half of the narrowest error bar that is drawn

const BAR_END = 3; // px: half of the height of its ends

/**
 * How well the ends of an arrow are known. It is `sure` where it lasts longer than its ends may be
 * wrong by: else nobody knows that it took any time at all.
 * @param {{from: number, to: number, start: number, end: number}} flight
 * @param {Bounds} bounds
 * @returns {{start: number, end: number, sure: boolean}} ns, each way
 */
export function knownOf({ from, to, start, end }, bounds) {
  const first = bounds[from] ?? 0;
  const last = bounds[to] ?? 0;
  return { start: first, end: last, sure: !first && !last ? true : end - start > first + last };
}

/**
 * Half of an error bar's width in px; 0: it would be too narrow to be seen.
 * @param {number} ns
 * @param {number} pxPerNs
 */
export const halfBar = (ns, pxPerNs) => (ns * pxPerNs < LEAST_BAR ? 0 : ns * pxPerNs);

/**
 * What is to be said of a rank's times.
 * @param {Bounds} bounds @param {number} rank
 */
export const clockWords = (bounds, rank) =>
  bounds[rank] ? `; times of rank ${rank}: ± ${duration(bounds[rank])}` : "";

/**
 * An error bar around a moment.
 * @param {CanvasRenderingContext2D} g
 * @param {number} x
 * @param {number} y
 * @param {number} half  of its width; 0: none
 */
export function drawErrorBar(g, x, y, half) {
  if (!half) return;
  g.beginPath();
  for (const end of [x - half, x + half]) {
    g.moveTo(end, y - BAR_END);
    g.lineTo(end, y + BAR_END);
  }
  g.moveTo(x - half, y);
  g.lineTo(x + half, y);
  g.stroke();
}

/**
 * All the ways that an arrow may have gone, as an area.
 * @param {CanvasRenderingContext2D} g
 * @param {{x: number, y: number, half: number}} a
 * @param {{x: number, y: number, half: number}} b
 */
export function drawDoubt(g, a, b) {
  if (!a.half && !b.half) return;
  g.globalAlpha = 0.14;
  g.beginPath();
  g.moveTo(a.x - a.half, a.y);
  g.lineTo(a.x + a.half, a.y);
  g.lineTo(b.x + b.half, b.y);
  g.lineTo(b.x - b.half, b.y);
  g.fill();
  g.globalAlpha = 1;
}

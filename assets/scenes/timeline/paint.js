// @ts-check
/**
 * What the timeline's pictures are painted with: the ink of each class, hatched waiting, stacked
 * shares, text.
 */
import { SPAN, SPANS } from "./density.js";

// in the light theme; black in the dark one
const WHITE_ON = new Set(["backward", "optimizer", "done", "reduce"]);
const PALE_WAIT = 0.4;
/** How many classes there are: as wide is a column's share of an array. */
export const SPAN_COUNT = SPANS.length;
/** The ink of each class. */
export const SPAN_INK = SPANS.map((name) => (name === "upkeep" ? "done" : name));

/** Whether the ground is dark. @param {Record<string, string>} ink */
const isNight = (ink) =>
  (ink.ground?.match(/[\d.]+/g) ?? ["255"])
    .slice(0, 3)
    .reduce((sum, part) => sum + Number(part), 0) < 384;
/**
 * The ink that may be written on a mark.
 * @param {Record<string, string>} ink
 * @param {string} name
 */
export const inkOn = (ink, name) => (WHITE_ON.has(name) && !isNight(ink) ? "#fff" : "#000");

/**
 * Columns of density: the share of each class, stacked from below. Nothing is left out: what takes
 * time has a height.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {any} waiting
 * @param {Float64Array} sums  columns × classes
 * @param {number} columns
 * @param {number} dt
 * @param {number} x
 * @param {number} y
 * @param {number} h
 * @param {number} [first]
 */
export function drawStacks(g, ink, waiting, sums, columns, dt, x, y, h, first = 0) {
  const bottom = new Float64Array(columns).fill(y + h);
  for (let kind = 0; kind < SPAN_COUNT; kind++) {
    g.fillStyle = kind === SPAN.wait ? waiting : ink[SPAN_INK[kind]];
    for (let k = first; k < columns; k++) {
      const sum = sums[k * SPAN_COUNT + kind];
      if (!(sum > 0)) continue;
      const tall = (sum / dt) * h;
      let wide = 1; // columns that are full of the same are one rectangle
      if (sum >= dt * 0.999)
        while (k + wide < columns && sums[(k + wide) * SPAN_COUNT + kind] >= dt * 0.999) wide++;
      g.fillRect(x + k, bottom[k] - tall, wide + (wide > 1 ? 0 : 0.05), tall);
      for (let i = 0; i < wide; i++) bottom[k + i] -= tall;
      k += wide - 1;
    }
  }
}

/**
 * Add one rank's share to the mean of `many`.
 * @param {Float64Array} mean @param {Float64Array} sums @param {number} length @param {number} many
 */
export function addMean(mean, sums, length, many) {
  for (let i = 0; i < length; i++) if (sums[i]) mean[i] += sums[i] / many;
}

/** @param {CanvasRenderingContext2D} g @param {string} font @param {boolean} bold */
export const typeIn = (g, font, bold) => (g.font = `${bold ? "700 " : ""}11px ${font}`);

/**
 * @param {CanvasRenderingContext2D} g
 * @param {string} text
 * @param {number} x its middle
 * @param {number} y the middle of its line
 * @param {string} color
 */
export function writeOn(g, text, x, y, color) {
  g.fillStyle = color;
  g.textAlign = "center";
  g.textBaseline = "middle";
  g.fillText(text, x, y + 0.5);
}

/**
 * Waiting: open, never a solid; pale while the rank still computes.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {any} waiting
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {boolean} pale
 */
export function drawWait(g, ink, waiting, x, y, w, h, pale) {
  g.fillStyle = ink.ground;
  g.fillRect(x, y, w, h);
  g.globalAlpha = pale ? PALE_WAIT : 1;
  g.fillStyle = waiting;
  g.fillRect(x, y, w, h);
  if (w > 5) {
    g.strokeStyle = ink.wait;
    g.lineWidth = 0.75;
    g.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  }
  g.globalAlpha = 1;
}

/**
 * Where the reader held the ranks: whatever a rank had under way, nothing moved.
 * @param {CanvasRenderingContext2D} g
 * @param {{ink: Record<string, string>, font: string, holding: any}} look  holding: the fill
 * @param {import("../../engine/holds.js").Hold[]} holds
 * @param {(t: number) => number} xOf
 * @param {{left: number, right: number, top: number, bottom: number}} box
 */
export function drawHolds(g, { ink, font, holding }, holds, xOf, { left, right, top, bottom }) {
  for (const { from, to } of holds) {
    const a = Math.max(left, xOf(from));
    const b = Math.min(right, to === Infinity ? right : xOf(to));
    if (b - a < 1) continue;
    for (const fill of [ink.ground, holding]) {
      g.fillStyle = fill;
      g.fillRect(a, top, b - a, bottom - top);
    }
    typeIn(g, font, true);
    if (b - a < 40 || bottom - top < 14) continue;
    g.fillStyle = ink.ground;
    g.fillRect((a + b) / 2 - 16, (top + bottom) / 2 - 8, 32, 16);
    writeOn(g, "held", (a + b) / 2, (top + bottom) / 2, ink.hold);
  }
}

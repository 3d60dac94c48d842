// @ts-check
/**
 * A chart on a canvas: scales, axes with levels, bands, the playhead, and all that a pen can.
 *
 * @typedef {import("./pen.js").Point} Point
 * @typedef {{px(value: number): number, at(px: number): number, low: number, high: number,
 *   from: number, to: number}} Scale  from, to: px of low and of high
 */
import { Pen } from "./pen.js";

/**
 * A scale from values to px, linear or logarithmic. `at` is its inverse.
 * @param {number} low @param {number} high  values, apart from each other
 * @param {number} from @param {number} to  px
 * @param {{log?: boolean, within?: boolean}} [how]  within: nothing is drawn beyond the ends
 * @returns {Scale}
 */
export function scale(low, high, from, to, { log = false, within = false } = {}) {
  const of = log ? Math.log10 : Number;
  const [a, b] = [of(low), of(high)];
  const kept = (/** @type {number} */ share) => (within ? Math.max(0, Math.min(1, share)) : share);
  return {
    low,
    high,
    from,
    to,
    px: (v) => from + kept((of(log ? Math.max(v, low) : v) - a) / (b - a)) * (to - from),
    at(px) {
      const v = a + kept((px - from) / (to - from)) * (b - a);
      return log ? 10 ** v : v;
    },
  };
}

export class Chart extends Pen {
  /**
   * @param {{g: CanvasRenderingContext2D, ink: Record<string, string>, font: string,
   *   ratio?: number, width: number, height: number}} canvas
   */
  constructor({ g, ink, font, ratio = 1, width, height }) {
    super(g, { ink, font, ratio });
    this.width = width;
    this.height = height;
  }

  /**
   * What lies between two lines.
   * @param {Point[]} upper @param {Point[]} lower @param {string} colour
   */
  band(upper, lower, colour) {
    const { g } = this;
    g.fillStyle = this.colour(colour);
    g.beginPath();
    for (const [x, y] of [...upper, ...[...lower].reverse()]) g.lineTo(x, y);
    g.fill();
  }

  /**
   * Levels of the vertical axis: a hairline and a number each.
   * @param {number[]} values @param {Scale} x @param {Scale} y
   * @param {(value: number) => string} words
   * @param {{thick?: number, apart?: number, base?: string}} [how]  apart: px of the numbers from
   *   the axis; base: colour of the lowest
   */
  levels(values, x, y, words, { thick = 1, apart = 6, base = "rule" } = {}) {
    for (const v of values) {
      this.box(x.from, y.px(v), x.to - x.from, thick, v === y.low ? base : "rule");
      this.write(words(v), x.from - apart, y.px(v), "ink-3", "right");
    }
  }

  /** Where the playhead is. @param {number} x @param {number} top @param {number} bottom */
  playhead(x, top, bottom) {
    this.box(x - 1, top, 2, bottom - top, "focus");
  }
}

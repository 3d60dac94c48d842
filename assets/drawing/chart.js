// @ts-check
/**
 * A chart on a canvas: scales, axes with ticks, lines, bands, bars, the playhead. A colour is the
 * name of an ink ("ink-2"), or what a canvas takes.
 *
 * @typedef {[number, number]} Point  x and y, in px
 * @typedef {{px(value: number): number, at(px: number): number, low: number, high: number,
 *   from: number, to: number}} Scale  from, to: px of low and of high
 */
import { hatched } from "./hatch.js";

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

export class Chart {
  /**
   * @param {{g: CanvasRenderingContext2D, ink: Record<string, string>, font: string,
   *   ratio?: number, width: number, height: number}} canvas
   */
  constructor({ g, ink, font, ratio = 1, width, height }) {
    this.g = g;
    this.ink = ink;
    this.font = font;
    this.ratio = ratio;
    this.width = width;
    this.height = height;
  }

  /** @param {string} colour */
  #colour(colour) {
    return this.ink[colour] ?? colour;
  }

  /**
   * A word, its middle at y.
   * @param {string} text @param {number} x @param {number} y @param {string} [colour]
   * @param {"left" | "center" | "right"} [align] @param {boolean} [bold] @param {number} [size]
   */
  write(text, x, y, colour = "ink-2", align = "left", bold = false, size = 11) {
    const { g } = this;
    g.font = `${bold ? 700 : 400} ${size}px ${this.font}`;
    g.textAlign = align;
    g.textBaseline = "middle";
    g.fillStyle = this.#colour(colour);
    g.fillText(text, x, y);
  }

  /** How wide a word is. @param {string} text @param {boolean} [bold] */
  wide(text, bold = false) {
    this.g.font = `${bold ? 700 : 400} 11px ${this.font}`;
    return this.g.measureText(text).width;
  }

  /**
   * @param {number} x @param {number} y @param {number} w @param {number} h
   * @param {string | CanvasPattern} colour
   */
  box(x, y, w, h, colour) {
    this.g.fillStyle = typeof colour === "string" ? this.#colour(colour) : colour;
    this.g.fillRect(x, y, w, h);
  }

  /**
   * A box hatched in an ink.
   * @param {number} x @param {number} y @param {number} w @param {number} h @param {string} ink
   */
  hatch(x, y, w, h, ink) {
    this.box(x, y, w, h, hatched(this.#colour(ink), this.ratio));
  }

  /**
   * A line through points; stairs: level until the next point, and to `till`.
   * @param {Point[]} points
   * @param {string} colour
   * @param {{wide?: number, dash?: number[], stairs?: boolean, till?: number, alpha?: number}} [how]
   */
  line(points, colour, { wide = 1, dash = [], stairs = false, till, alpha = 1 } = {}) {
    const { g } = this;
    g.strokeStyle = this.#colour(colour);
    g.lineWidth = wide;
    g.globalAlpha = alpha;
    g.setLineDash(dash);
    g.beginPath();
    points.forEach(([x, y], i) => {
      if (!i) return g.moveTo(x, y);
      if (stairs) g.lineTo(x, points[i - 1][1]);
      g.lineTo(x, y);
    });
    if (till !== undefined && points.length) g.lineTo(till, points[points.length - 1][1]);
    g.stroke();
    g.setLineDash([]);
    g.globalAlpha = 1;
  }

  /**
   * What lies between two lines.
   * @param {Point[]} upper @param {Point[]} lower @param {string} colour
   */
  band(upper, lower, colour) {
    const { g } = this;
    g.fillStyle = this.#colour(colour);
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

// @ts-check
/**
 * A pen on a canvas: words, boxes, lines and outlines, each with its colour in one call. A colour is
 * the name of an ink ("ink-2"), or what a canvas takes.
 *
 * @typedef {[number, number]} Point  x and y, in px
 */
import { cross } from "./glyph.js";
import { hatched } from "./hatch.js";

export class Pen {
  /**
   * @param {CanvasRenderingContext2D} g
   * @param {{ink: Record<string, string>, font?: string, ratio?: number}} look
   */
  constructor(g, { ink, font = "sans-serif", ratio = 1 }) {
    this.g = g;
    this.ink = ink;
    this.font = font;
    this.ratio = ratio;
  }

  /** @param {string} colour */
  colour(colour) {
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
    g.fillStyle = this.colour(colour);
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
    this.g.fillStyle = typeof colour === "string" ? this.colour(colour) : colour;
    this.g.fillRect(x, y, w, h);
  }

  /**
   * A box hatched in an ink.
   * @param {number} x @param {number} y @param {number} w @param {number} h @param {string} ink
   */
  hatch(x, y, w, h, ink) {
    this.box(x, y, w, h, hatched(this.colour(ink), this.ratio));
  }

  /**
   * A line through points; stairs: level until the next point, and to `till`.
   * @param {Point[]} points
   * @param {string} colour
   * @param {{wide?: number, dash?: number[], stairs?: boolean, till?: number, alpha?: number}} [how]
   */
  line(points, colour, { wide = 1, dash = [], stairs = false, till, alpha = 1 } = {}) {
    const { g } = this;
    g.strokeStyle = this.colour(colour);
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
   * An outline.
   * @param {number} x @param {number} y @param {number} w @param {number} h
   * @param {string} colour @param {number} [wide] @param {number[]} [dash]
   */
  outline(x, y, w, h, colour, wide = 1, dash = []) {
    const { g } = this;
    g.strokeStyle = this.colour(colour);
    g.lineWidth = wide;
    g.setLineDash(dash);
    g.strokeRect(x, y, w, h);
    g.setLineDash([]);
  }

  /**
   * What has ended.
   * @param {number} x @param {number} y @param {number} r @param {number} [wide] @param {string} [colour]
   */
  cross(x, y, r, wide = 2.5, colour = "fault") {
    this.g.strokeStyle = this.colour(colour);
    this.g.lineWidth = wide;
    cross(this.g, x, y, r);
  }
}

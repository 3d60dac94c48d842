// @ts-check
/**
 * Textures of the pipeline's picture: what an action is, and why a rank is idle; each made once for
 * a colour.
 *
 * @typedef {import("../../drawing/pen.js").Pen} Pen
 */

/**
 * How wide a tile is, and the lines in it: [x1, y1, x2, y2], thickness.
 * @type {Record<string, {tile: number, thick: number, lines: number[][]}>}
 */
const TEXTURES = {
  backward: {
    tile: 5,
    thick: 1.6,
    lines: [
      [-1, 6, 6, -1],
      [-6, 6, 1, -1],
      [4, 6, 11, -1],
    ],
  },
  weights: {
    tile: 4,
    thick: 1.4,
    lines: [
      [0.5, 1, 2, 1],
      [2.5, 3, 4, 3],
    ],
  }, // dots
  warm: {
    tile: 9,
    thick: 0.8,
    lines: [
      [-1, 10, 10, -1],
      [-10, 10, 1, -1],
      [8, 10, 19, -1],
    ],
  },
  imbalance: {
    tile: 5,
    thick: 1.6,
    lines: [
      [-1, -1, 6, 6],
      [-6, -1, 1, 6],
      [4, -1, 11, 6],
    ],
  },
  comm: { tile: 3, thick: 1.5, lines: [[0, 1.5, 3, 1.5]] },
  fault: {
    tile: 6,
    thick: 1.1,
    lines: [
      [-1, -1, 7, 7],
      [-1, 7, 7, -1],
    ],
  },
};
const patterns = /** @type {Map<string, CanvasPattern>} */ (new Map());

/**
 * @param {keyof typeof TEXTURES | string} name
 * @param {string} color
 * @param {number} ratio  device pixels a CSS pixel
 * @returns {CanvasPattern}
 */
export function textured(name, color, ratio) {
  const key = `${name} ${color} ${ratio}`;
  const had = patterns.get(key);
  if (had) return had;
  const { tile, thick, lines } = TEXTURES[name];
  const fine = Math.max(2, ratio);
  const canvas = document.createElement("canvas"); // made finer than the page, then scaled
  canvas.width = canvas.height = Math.round(tile * fine);
  const g = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  g.scale(fine, fine);
  g.strokeStyle = color;
  g.lineWidth = thick;
  for (const [x1, y1, x2, y2] of lines) {
    g.beginPath();
    g.moveTo(x1, y1);
    g.lineTo(x2, y2);
    g.stroke();
  }
  const pattern = /** @type {CanvasPattern} */ (g.createPattern(canvas, "repeat"));
  pattern.setTransform(new DOMMatrix().scale(1 / fine));
  patterns.set(key, pattern);
  return pattern;
}

/**
 * The colour of each reason.
 * @param {Record<string, string>} ink
 * @param {import("./idle.js").Why} why
 */
export const whyInk = (ink, why) =>
  ({ warm: ink.edge, imbalance: ink.wait, comm: ink["ink-2"], fault: ink.fault })[why];

/**
 * Idle time: open, never a solid.
 * @param {Pen} pen
 * @param {import("./idle.js").Why} why
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 */
export function drawIdle(pen, why, x, y, w, h) {
  const { ink, ratio } = pen;
  pen.box(x, y, w, h, "panel");
  pen.box(x, y, w, h, textured(why, whyInk(ink, why), ratio));
}

const CLEAR = 12;
// px of a textured bar that its number has for itself; that must be left to its texture
const TEXTURE = 5;

/**
 * An action's bar: its hue is the microbatch, its texture what it does.
 * @param {Pen} pen
 * @param {{kind: string, microbatch: number}} task
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 */
export function drawAction(pen, { kind, microbatch }, x, y, w, h) {
  const { g, ink, ratio } = pen;
  const hue = microbatch % 8;
  const text = String(microbatch);
  const wide = pen.wide(text, true);
  const plain = kind === "F";
  const needed = plain ? wide + 3 : Math.max(CLEAR, wide + 4);
  const room = h >= 12 && w >= needed + (plain ? 0 : TEXTURE);
  const clear = room ? needed : 0;
  pen.box(x, y, w, h, `s${hue}`);
  if (!plain && w > clear) {
    g.globalAlpha *= 0.75;
    pen.box(
      x + clear,
      y,
      w - clear,
      h,
      textured(kind === "W" ? "weights" : "backward", pen.ink.ground, ratio),
    );
    g.globalAlpha /= 0.75;
  }
  if (!room) return;
  g.textAlign = "center";
  g.textBaseline = "middle";
  g.fillStyle = ink[`on-s${hue}`];
  g.fillText(text, plain ? x + w / 2 : x + clear / 2, y + h / 2 + 0.5);
}

// @ts-check
/** Diagonal lines, in which waiting is drawn everywhere: never a solid. */

const TILE = 4;
const THICK = 1.2; // CSS pixels: the square that repeats, a line in it
const hatches = /** @type {Map<string, CanvasPattern>} */ (new Map());

/**
 * A fill for any canvas, made once.
 * @param {string} color @param {number} ratio  device pixels a CSS pixel
 */
export function hatched(color, ratio) {
  const key = `${color} ${ratio}`;
  const pattern = hatches.get(key) ?? hatchOf(color, ratio);
  hatches.set(key, pattern);
  return pattern;
}

/** @param {string} color @param {number} ratio */
function hatchOf(color, ratio) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = TILE * ratio;
  const g = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
  g.scale(ratio, ratio);
  g.strokeStyle = color;
  g.lineWidth = THICK;
  for (const shift of [-TILE, 0, TILE]) {
    g.beginPath();
    g.moveTo(shift - 1, TILE + 1);
    g.lineTo(shift + TILE + 1, -1);
    g.stroke();
  }
  const pattern = /** @type {CanvasPattern} */ (g.createPattern(tile, "repeat"));
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

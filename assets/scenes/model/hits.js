// @ts-check
/**
 * What lies at a place of a model's picture.
 *
 * @typedef {import("./fold.js").Wire} Wire
 * @typedef {import("./place.js").Point} Point
 * @typedef {import("./place.js").Box} Box
 * @typedef {import("./place.js").GraphPlace} GraphPlace
 */

/**
 * What lies under a point.
 * @param {GraphPlace} place @param {number} x @param {number} y
 * @returns
 *   {{node: number} | {fold: string} | {wire: Wire} | {cut: number} | {stage: number} | null}
 */
export function hitUnder(place, x, y) {
  const within = (/** @type {Box} */ b) => x >= b.x && x <= b.x + b.w && y >= b.y && y <= b.y + b.h;
  const fold = place.folds.find(within);
  if (fold) return { fold: fold.block };
  for (const { lines } of place.bands)
    for (const { boxes } of lines)
      for (const box of boxes) if (within(box)) return { node: box.node };
  const isIn = (/** @type {{x: number, top: number, height: number}} */ part) =>
    y >= part.top && y <= part.top + part.height && x >= part.x && x <= part.x + place.width;
  const cut = place.cuts.find(isIn);
  if (cut) return { cut: cut.border };
  let near = 5;
  let wire = /** @type {Wire | null} */ (null);
  for (const { lines } of place.bands)
    for (const { paths } of lines)
      for (const path of paths) {
        const d = distanceTo(path.points, x, y);
        if (d < near) ((near = d), (wire = path.wire));
      }
  if (wire) return { wire };
  const band = place.bands.find(isIn);
  return band ? { stage: band.stage } : null;
}

/** @param {Point[]} points @param {number} x @param {number} y */
function distanceTo(points, x, y) {
  let least = Infinity;
  for (let i = 1; i < points.length; i++) {
    const a = points[i - 1];
    const b = points[i];
    const dx = b.x - a.x;
    const dy = b.y - a.y;
    const along = Math.max(
      0,
      Math.min(1, ((x - a.x) * dx + (y - a.y) * dy) / (dx * dx + dy * dy || 1)),
    );
    least = Math.min(least, Math.hypot(a.x + along * dx - x, a.y + along * dy - y));
  }
  return least;
}

/**
 * A share of the way along a line: where, from its first point.
 * @param {Point[]} points
 * @param {number} share
 * @returns {Point}
 */
export function pointAlong(points, share) {
  const long = points.map((p, i) =>
    i ? Math.hypot(p.x - points[i - 1].x, p.y - points[i - 1].y) : 0,
  );
  let left = Math.max(0, Math.min(1, share)) * long.reduce((a, b) => a + b, 0);
  for (let i = 1; i < points.length; i++) {
    if (left <= long[i] || i === points.length - 1) {
      const part = long[i] ? Math.min(1, left / long[i]) : 1;
      return {
        x: points[i - 1].x + part * (points[i].x - points[i - 1].x),
        y: points[i - 1].y + part * (points[i].y - points[i - 1].y),
      };
    }
    left -= long[i];
  }
  return points[0];
}

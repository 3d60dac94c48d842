// @ts-check
/**
 * A model of many stages in two columns: the second goes on at the top.
 * @typedef {import("./place.js").GraphPlace} GraphPlace
 */

export const COLUMNS_APART = 28; // px

/**
 * Move the later stages beside the earlier ones, so that the higher column is as low as can be.
 * @param {GraphPlace} place
 */
export function twoColumns(place) {
  const { bands, cuts, width, left, right } = place;
  const whole = place.height;
  const highOf = (/** @type {number} */ k) => Math.max(cuts[k].top, whole - cuts[k].top);
  const last = cuts.reduce((best, _, k) => (highOf(k) < highOf(best) ? k : best), 0);
  const dx = width + COLUMNS_APART;
  const dy = -cuts[last].top;
  const moved = new Set(bands.filter(({ stage }) => stage > last).flatMap(({ lines }) => lines));
  const isMoved = (/** @type {number} */ y) => y >= cuts[last].top;
  for (const fold of place.folds) if (isMoved(fold.y)) ((fold.x += dx), (fold.y += dy));
  for (const points of place.returns)
    if (isMoved(points[0].y)) for (const p of points) ((p.x += dx), (p.y += dy));
  for (const line of moved) {
    line.top += dy;
    for (const box of line.boxes) ((box.x += dx), (box.y += dy));
    for (const { points } of line.paths) for (const p of points) ((p.x += dx), (p.y += dy));
    for (const p of [line.left, line.right]) ((p.x += dx), (p.y += dy));
  }
  for (const band of bands) if (band.stage > last) ((band.x += dx), (band.top += dy));
  place.height = highOf(last);
  for (const cut of cuts.slice(last)) {
    ((cut.x += dx), (cut.top += dy), (cut.y += dy));
    for (const p of cut.from) ((p.x += dx), (p.y += dy));
  }
  // From the foot of the first column up between the two.
  const from = bands[last].lines.at(-1)?.right ?? { x: right, y: bands[last].top };
  const to = bands[last + 1].lines[0]?.left;
  const between = width + COLUMNS_APART / 2;
  cuts[last].from = [
    { ...from },
    { x: between, y: from.y },
    { x: between, y: cuts[last].y },
    { x: dx + left, y: cuts[last].y },
    ...(to ? [{ x: dx + left, y: to.y }, { ...to }] : []),
  ];
}

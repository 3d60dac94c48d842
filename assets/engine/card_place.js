// @ts-check
/**
 * Where a card stands beside a mark: as near as it can be without lying over the mark or over the ways
 * that lead to it. Pure.
 *
 * @typedef {{x: number, y: number, w: number, h: number}} Box
 * @typedef {{x: number, y: number}} Point
 */
const STEP = 8; // px from one place that is tried to the next
const CLEAR = 8; // px between the card and what it must not cover

/**
 * Whether a way passes through a box: what is left of the way, cut off at each of its four sides.
 * @param {Box} box @param {[Point, Point]} way
 */
export function crosses({ x, y, w, h }, [a, b]) {
  let [from, to] = [0, 1];
  const sides = [
    [b.x - a.x, x - a.x, x + w - a.x],
    [b.y - a.y, y - a.y, y + h - a.y],
  ];
  for (const [runs, low, high] of sides) {
    if (Math.abs(runs) < 1e-9) {
      if (low > 0 || high < 0) return false;
      continue;
    }
    const [near, far] = [low / runs, high / runs].sort((p, q) => p - q);
    [from, to] = [Math.max(from, near), Math.min(to, far)];
  }
  return from <= to;
}

/**
 * The place of a card; null: there is none in the room.
 * @param {{w: number, h: number}} card @param {Box} room
 * @param {Box[]} marks  the first is the one that the card tells of
 * @param {[Point, Point][]} ways
 * @returns {Point | null}
 */
export function freePlace(card, room, marks, ways) {
  const [mark] = marks;
  const middle = { x: mark.x + mark.w / 2, y: mark.y + mark.h / 2 };
  let best = Infinity;
  let found = null;
  for (let y = room.y; y + card.h <= room.y + room.h; y += STEP)
    for (let x = room.x; x + card.w <= room.x + room.w; x += STEP) {
      const far = Math.hypot(
        Math.max(0, x - middle.x, middle.x - x - card.w),
        Math.max(0, y - middle.y, middle.y - y - card.h),
      );
      const aside = Math.abs(y + card.h / 2 - middle.y) / 1000; // of two as near: the one at its side
      if (far + aside >= best) continue;
      const taken = { x: x - CLEAR, y: y - CLEAR, w: card.w + 2 * CLEAR, h: card.h + 2 * CLEAR };
      const covers = marks.some(
        (one) =>
          one.x < taken.x + taken.w &&
          taken.x < one.x + one.w &&
          one.y < taken.y + taken.h &&
          taken.y < one.y + one.h,
      );
      if (covers || ways.some((way) => crosses(taken, way))) continue;
      [best, found] = [far + aside, { x, y }];
    }
  return found;
}

/**
 * The place of a card that covers neither other discs nor other pictures. Where there is none: null if it
 * can stand beside the scene; else over another picture, at last over another disc.
 * @param {{w: number, h: number}} card @param {Box} room
 * @param {{marks: Box[], ways: [Point, Point][], discs: Box[], pictures: Box[]}} around
 * @param {boolean} beside
 */
export function clearPlace(card, room, { marks, ways, discs, pictures }, beside) {
  const free = (/** @type {Box[]} */ others) => freePlace(card, room, [...marks, ...others], ways);
  const clear = free([...discs, ...pictures]);
  return clear || beside ? clear : (free(discs) ?? free([]));
}

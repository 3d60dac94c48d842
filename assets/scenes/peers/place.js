// @ts-check
/**
 * Where things lie in the picture of replicas that mix: ranks on a circle, outside of each a bar as
 * long as it is far from the mean, inside the links. Places depend on the ranks and the width only,
 * so that nothing shifts. Pure geometry, in CSS pixels.
 *
 * @typedef {{x: number, y: number}} Point
 * @typedef {{key: string, width: number, height: number,
 *   circle: ReturnType<typeof import("../../drawing/rank_circle.js").circleOf>, middle: Point,
 *   reach: number, words: boolean, form: "cell" | "dot"}} Place
 *   reach: px of the longest bar; words: the ranks' distances are written beside them
 */
import { circleOf } from "../../drawing/rank_circle.js";

const AWAY = 9; // px from a rank's rim to where its bar begins: its halo lies between
const LINE_HIGH = 15;
const WORDS_WIDE = 40;

/** Height of the picture; it depends on the ranks only. @param {number} ranks */
export const heightOf = (ranks) => (ranks > 16 ? 410 : ranks > 8 ? 400 : ranks > 4 ? 370 : 330);

/** @param {number} ranks @param {number} width @returns {Place} */
export function placeOf(ranks, width) {
  const height = heightOf(ranks);
  const words = ranks <= 16;
  const reach = ranks <= 8 ? 36 : ranks <= 16 ? 26 : 30;
  const node = circleOf(ranks, 100).node;
  const beside = node + AWAY + reach + (words ? WORDS_WIDE : 4);
  const above = node + AWAY + reach + (words ? LINE_HIGH : 4);
  const radius = Math.max(30, Math.min(width / 2 - beside, height / 2 - above));
  const size = 2 * (radius + node + 6);
  const flat = circleOf(ranks, size);
  const middle = { x: width / 2, y: height / 2 };
  const nodes = flat.nodes.map(({ x, y }) => ({
    x: x - size / 2 + middle.x,
    y: y - size / 2 + middle.y,
  }));
  return {
    key: [ranks, Math.round(width)].join(),
    width,
    height,
    circle: { ...flat, nodes },
    middle,
    reach,
    words,
    form: ranks <= 16 ? "cell" : "dot",
  };
}

/**
 * Outward from the middle, at a rank.
 * @param {Place} place
 * @param {number} rank
 * @returns {Point}
 */
export function outward({ circle, middle }, rank) {
  const { x, y } = circle.nodes[rank];
  const length = Math.hypot(x - middle.x, y - middle.y);
  return length < 1 ? { x: 0, y: -1 } : { x: (x - middle.x) / length, y: (y - middle.y) / length };
}

/**
 * A rank's bar: from where to where.
 * @param {Place} place
 * @param {number} rank
 * @param {number} share  of the longest
 * @returns {[Point, Point]}
 */
export function barAt(place, rank, share) {
  const { circle, reach } = place;
  const { x, y } = circle.nodes[rank];
  const u = outward(place, rank);
  const from = circle.node + AWAY;
  const to = from + Math.max(share > 0 ? 1.5 : 0, Math.min(1, share) * reach);
  return [
    { x: x + u.x * from, y: y + u.y * from },
    { x: x + u.x * to, y: y + u.y * to },
  ];
}

/**
 * Where the words of a rank's distance stand: beyond its longest bar, so that they keep their
 * place.
 * @param {Place} place
 * @param {number} rank
 */
export function wordsAt(place, rank) {
  const { circle, reach } = place;
  const { x, y } = circle.nodes[rank];
  const u = outward(place, rank);
  const far = circle.node + AWAY + reach + 3;
  const align = /** @type {"left" | "center" | "right"} */ (
    Math.abs(u.x) < 0.3 ? "center" : u.x < 0 ? "right" : "left"
  );
  return { x: x + u.x * far, y: y + u.y * (far + (align === "center" ? 6 : 2)), align };
}

/**
 * The way from one rank to another, rim to rim; both ways lie side by side.
 * @param {Place} place
 * @param {number} from
 * @param {number} to
 * @param {number} [inset] px more at both ends
 * @returns {[Point, Point]}
 */
export function linkWay({ circle, form }, from, to, inset = 0) {
  const a = circle.nodes[from];
  const b = circle.nodes[to];
  const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const ux = (b.x - a.x) / length;
  const uy = (b.y - a.y) / length;
  const gap = Math.min(length / 2 - 1, circle.node + 4 + inset);
  const aside = form === "cell" ? 5 : 2;
  const at = (/** @type {number} */ d) => ({
    x: a.x + ux * d - uy * aside,
    y: a.y + uy * d + ux * aside,
  });
  return [at(gap), at(length - gap)];
}

/**
 * Where something on its way is.
 * @param {Place} place
 * @param {{from: number, to: number, share: number}} comet
 * @returns {Point}
 */
export function flownSpot(place, { from, to, share }) {
  const [a, b] = linkWay(place, from, to, place.form === "cell" ? 8 : 3);
  return { x: a.x + (b.x - a.x) * share, y: a.y + (b.y - a.y) * share };
}

/** @param {Point} p @param {Point} a @param {Point} b */
function away(p, a, b) {
  const dx = b.x - a.x;
  const dy = b.y - a.y;
  const along = Math.max(
    0,
    Math.min(1, ((p.x - a.x) * dx + (p.y - a.y) * dy) / (dx * dx + dy * dy || 1)),
  );
  return Math.hypot(p.x - a.x - dx * along, p.y - a.y - dy * along);
}

/**
 * What lies under the pointer.
 * @template {{from: number, to: number, share: number}} C
 * @param {Place} place
 * @param {C[]} comets
 * @param {{from: number, to: number}[]} links
 * @param {number} x
 * @param {number} y
 * @returns {{comet: C} | {rank: number} | {link: {from: number, to: number}} | null}
 */
export function hitUnder(place, comets, links, x, y) {
  const comet = comets.findLast(
    (c) => Math.hypot(flownSpot(place, c).x - x, flownSpot(place, c).y - y) < 9,
  );
  if (comet) return { comet };
  const { circle } = place;
  const near = circle.nodes.map((n, rank) =>
    Math.min(
      Math.hypot(n.x - x, n.y - y) - circle.node,
      away({ x, y }, ...barAt(place, rank, 1)) - 3,
    ),
  );
  const least = Math.min(...near);
  if (least <= 5) return { rank: near.indexOf(least) };
  let best = 6;
  let nearest = null;
  for (const link of links) {
    const far = away({ x, y }, ...linkWay(place, link.from, link.to));
    if (far < best) ((best = far), (nearest = { link }));
  }
  return nearest;
}

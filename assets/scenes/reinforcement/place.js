// @ts-check
/**
 * Where things lie in the picture of a run with actors: a column for each role, from the left to
 * the right the way that experience takes; above them the way back that parameters take to actors.
 * Places depend on the roles and the width only, so that nothing shifts. Pure geometry, CSS pixels.
 *
 * @typedef {import("./index.js").RlRoles} RlRoles
 * @typedef {{x: number, y: number}} Point
 * @typedef {{x: number, y: number, w: number, h: number}} Box
 * @typedef {"actor" | "replay" | "learner" | "server" | "bundle"} Role
 * @typedef {"full" | "two" | "line" | "dots"} Level  how much there is room to say
 * @typedef {Box & {rank: number, role: Role, level: Level}} Spot
 * @typedef {{key: string, width: number, height: number, spots: Spot[],
 *   of: Map<number, Spot>, columns: {role: Role, x: number, w: number, many: number}[],
 *   bus: number}} RlPlace
 *   bus: the height at which parameters go back to actors; NaN: none do
 */
import { inBundles } from "./index.js";

export const STRIP_WIDE = 7; // px of a box's strip that is tinted by the version held
const HEAD = 50; // px above the boxes: the columns' names, and the way back
const BUNDLE_HEAD = 22;
const ROW_GAP = 8;
export const SIDE = 13; // px from a column to the way back beside it
const LEAST_HIGH = 148; // px of the boxes together

/** The share of the width that a role's column takes. @type {Record<Role, number>} */
const ROLE_WIDE = { actor: 1.3, replay: 1.45, learner: 1.15, server: 0.95, bundle: 5 };
/** The height that a role's box likes to have. @type {Record<Role, number>} */
const ROLE_TALL = { actor: 62, replay: 112, learner: 74, server: 58, bundle: 74 };

/** How much there is to say in a box of this height. @param {number} h @returns {Level} */
const levelOf = (h) => (h >= 56 ? "full" : h >= 36 ? "two" : h >= 17 ? "line" : "dots");

/** From one box to the next, where there are so many. @param {number} many */
const gapOf = (many) => Math.min(ROW_GAP, Math.max(2, 90 / many));

/** The height of a box where there are so many. @param {Role} role @param {number} many */
function tall(role, many) {
  const most = role === "bundle" ? 460 : 400;
  return Math.min(ROLE_TALL[role], Math.max(8, most / many - gapOf(many)));
}

/**
 * The columns of a run, from the left.
 * @param {RlRoles} roles
 * @returns {[Role, number[]][]}
 */
function roleColumns(roles) {
  const { actors, replays, learners, servers } = roles;
  const all = /** @type {[Role, number[]][]} */ (
    inBundles(roles)
      ? [
          ["bundle", learners],
          ["server", servers],
        ]
      : [
          ["actor", actors],
          ["replay", replays],
          ["learner", learners],
          ["server", servers],
        ]
  );
  return all.filter(([, ranks]) => ranks.length);
}

/** @param {RlRoles} roles @param {number} width @returns {RlPlace} */
export function placeOf(roles, width) {
  const columns = roleColumns(roles);
  const bundles = inBundles(roles);
  const head = bundles ? BUNDLE_HEAD : HEAD;
  const gap = bundles
    ? width >= 728
      ? 110
      : 76
    : width >= 728
      ? 72
      : columns.length > 3
        ? 46
        : 62;
  const room = width - gap * (columns.length - 1) - 2;
  const sum = columns.reduce((all, [role]) => all + ROLE_WIDE[role], 0);
  const need = columns.map(([role, { length }]) => length * (tall(role, length) + gapOf(length)));
  const high = Math.max(LEAST_HIGH, ...need);
  const spots = /** @type {Spot[]} */ ([]);
  const placed = /** @type {RlPlace["columns"]} */ ([]);
  let x = 1;
  for (const [role, ranks] of columns) {
    const w = (room * ROLE_WIDE[role]) / sum;
    const each = high / ranks.length;
    const h = Math.min(each - gapOf(ranks.length), ROLE_TALL[role] * 1.5);
    ranks.forEach((rank, i) => {
      const y = head + each * i + (each - h) / 2;
      spots.push({ rank, role, x, y, w, h, level: levelOf(h) });
    });
    placed.push({ role, x, w, many: ranks.length });
    x += w + gap;
  }
  return {
    key: [width, ...spots.map(({ rank, role }) => role[0] + rank)].join(),
    width,
    height: head + high + 4,
    spots,
    of: new Map(spots.map((spot) => [spot.rank, spot])),
    columns: placed,
    bus: bundles ? NaN : 24,
  };
}

/**
 * The way from one rank to another as points: straight to the next column, or above those between.
 * @param {RlPlace} place
 * @param {number} from
 * @param {number} to
 * @returns {Point[]}
 */
export function wayOf(place, from, to) {
  const a = place.of.get(from);
  const b = place.of.get(to);
  if (!a || !b) return [];
  const at = (/** @type {Spot} */ one) => place.columns.findIndex(({ role }) => role === one.role);
  const right = at(b) > at(a);
  const [left, other] = right ? [a, b] : [b, a];
  const apart = Math.min(6, left.h / 4, other.h / 4) * (right ? -1 : 1); // both ways side by side
  if (Math.abs(at(a) - at(b)) === 1) {
    const start = { x: left.x + left.w + 2, y: left.y + left.h / 2 + apart };
    const end = { x: other.x - 2, y: other.y + other.h / 2 + apart };
    const points = Array.from({ length: 13 }, (_, k) => {
      const f = k / 12;
      return {
        x: start.x + (end.x - start.x) * f,
        y: start.y + (end.y - start.y) * f * f * (3 - 2 * f),
      };
    });
    return right ? points : points.reverse();
  }
  const back = place.bus + apart / 2;
  const near = left.y + left.h / 2 + Math.min(left.h / 3, 16);
  const far = other.y + Math.min(other.h / 2, 18);
  const points = [
    { x: left.x + left.w + 2, y: near },
    { x: left.x + left.w + SIDE, y: near },
    { x: left.x + left.w + SIDE, y: back },
    { x: other.x - SIDE, y: back },
    { x: other.x - SIDE, y: far },
    { x: other.x - 2, y: far },
  ];
  return right ? points : points.reverse();
}

/**
 * A point of a way, and where it leads there.
 * @param {Point[]} way
 * @param {number} share
 * @returns {Point & {turn: number, after: number}} after: how many of its points lie behind
 */
export function spotAlong(way, share) {
  const lengths = way.map((p, i) => (i ? Math.hypot(p.x - way[i - 1].x, p.y - way[i - 1].y) : 0));
  let left = Math.max(0, Math.min(1, share)) * lengths.reduce((sum, one) => sum + one, 0);
  let i = 1;
  while (i < way.length - 1 && left > lengths[i]) left -= lengths[i++];
  const [a, b] = [way[i - 1], way[i]];
  const f = lengths[i] > 0 ? Math.min(1, left / lengths[i]) : 0;
  return {
    x: a.x + (b.x - a.x) * f,
    y: a.y + (b.y - a.y) * f,
    turn: Math.atan2(b.y - a.y, b.x - a.x),
    after: i,
  };
}

/**
 * The part of a way that is done.
 * @param {Point[]} way
 * @param {number} share
 * @returns {Point[]}
 */
export function pointsUntil(way, share) {
  const end = spotAlong(way, share);
  return [...way.slice(0, end.after), { x: end.x, y: end.y }];
}

/**
 * What lies under the pointer.
 * @template {{from: number, to: number, share: number}} C
 * @param {RlPlace} place
 * @param {C[]} comets
 * @param {number} x
 * @param {number} y
 * @returns {{comet: C} | {spot: Spot} | null}
 */
export function hitUnder(place, comets, x, y) {
  const comet = comets.findLast((one) => {
    const way = wayOf(place, one.from, one.to);
    if (!way.length) return false;
    const at = spotAlong(way, one.share);
    return Math.hypot(at.x - x, at.y - y) < 9;
  });
  if (comet) return { comet };
  const spot = place.spots.find(
    (one) => x >= one.x && x <= one.x + one.w && y >= one.y && y <= one.y + one.h,
  );
  return spot ? { spot } : null;
}

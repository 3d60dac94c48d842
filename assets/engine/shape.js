// @ts-check
/**
 * The shape in which ranks talk, found from who sent to whom in a call: a star, a tree, a
 * hypercube, groups within which and between which they talk, else a circle. And where each shape's
 * ranks lie. Pure functions; no algorithm is known here, but a name may say which of two shapes
 * with the same links is meant.
 *
 * @typedef {{x: number, y: number}} Point
 * @typedef {{x: number, y: number, w: number, h: number}} Box
 * @typedef {{kind: "circle" | "star" | "tree" | "cube" | "groups", key: string, centre: number,
 *   parents: number[], corner: number[], beside: number[], size: number, outer: number[],
 *   slots: number[], between: [number, number][]}} Shape
 *   centre: of a star, or a tree's root; parents: of each rank of a tree, -1 the root's; corner: of
 *   each rank of a cube, -1 for one
 *   that only talks to a neighbour: beside it; size: ranks of a group; slots: of each rank, where
 *   it stands when groups are counted one after the other, [] where ranks are in that order;
 *   between: links from group to group, by slots
 * @typedef {{nodes: Point[], out: Point[], boxes: Box[]}} Laid  out: the way out of the picture
 *   from each rank; boxes: around groups
 */

/** @type {Shape} */
export const CIRCLE = {
  kind: "circle",
  key: "circle",
  centre: -1,
  parents: [],
  corner: [],
  beside: [],
  size: 0,
  outer: [],
  slots: [],
  between: [],
};

const LARGEST = 20; // ranks; more are ticks on a circle

const MOST_PAIRS = 6;

const NO_HOSTS = { levels: /** @type {number[]} */ ([]), inTurn: false };

const MOST_GROUPS = 4; // hosts of two, or of more: with more their links pass over ranks

/** @param {number} n */
const lgUp = (n) => Math.ceil(Math.log2(n) - 1e-9);

/**
 * @param {number} n  ranks, all of which take part
 * @param {Iterable<string>} ways  "from>to", in the order of the first that went there
 * @param {number} [root]  of the operation, -1 none
 * @param {string} [algorithm]
 * @param {{levels: number[], inTurn: boolean}} [hosts]  that it went by
 * @returns {Shape}
 */
export function shapeOf(n, ways, root = -1, algorithm = "", hosts = NO_HOSTS) {
  const firsts = /** @type {Map<string, [number, number]>} */ (new Map());
  const near = Array.from({ length: n }, () => /** @type {number[]} */ ([]));
  for (const way of ways) {
    const [a, b] = way.split(">").map(Number);
    const key = `${Math.min(a, b)} ${Math.max(a, b)}`;
    if (a >= n || b >= n || firsts.has(key)) continue;
    firsts.set(key, [a, b]);
    near[a].push(b);
    near[b].push(a);
  }
  const pairs = [...firsts.values()];
  if (n < 3 || n > LARGEST || pairs.length < n - 1) return CIRCLE;
  const grouped = hostsOf(n, pairs, hosts) ?? groupsOf(n, pairs, near);
  if (algorithm === "hierarchical" && grouped) return grouped;
  return (
    starOf(n, pairs, near) ??
    treeOf(n, pairs, near, root) ??
    cubeOf(n, pairs, near) ??
    grouped ??
    CIRCLE
  );
}

/**
 * @param {number} n
 * @param {[number, number][]} pairs
 * @param {number[][]} near
 * @returns {Shape | null}
 */
function starOf(n, pairs, near) {
  const centre = near.findIndex((list) => list.length === n - 1);
  return n > 3 && pairs.length === n - 1 && centre >= 0
    ? { ...CIRCLE, kind: "star", key: `star ${centre}`, centre }
    : null;
}

/**
 * @param {number} n
 * @param {[number, number][]} pairs
 * @param {number[][]} near
 * @param {number} root
 * @returns {Shape | null}
 */
function treeOf(n, pairs, near, root) {
  if (pairs.length !== n - 1) return null;
  const gives = Array(n).fill(0);
  const takes = Array(n).fill(0); // over each link the first chunk went up, or down
  for (const [a, b] of pairs) ((gives[a] += 1), (takes[b] += 1));
  const sinks = gives.flatMap((count, r) => (count === 0 ? [r] : []));
  const sources = takes.flatMap((count, r) => (count === 0 ? [r] : []));
  const centre =
    root >= 0
      ? root
      : sinks.length === 1
        ? sinks[0]
        : sources.length === 1
          ? sources[0]
          : near.findIndex((list) => list.length === Math.max(...near.map((l) => l.length)));
  const parents = Array(n).fill(-2);
  const depth = Array(n).fill(0);
  const queue = [centre];
  parents[centre] = -1;
  for (const rank of queue) {
    for (const other of [...near[rank]].sort((a, b) => a - b)) {
      if (parents[other] !== -2) continue;
      parents[other] = rank;
      depth[other] = depth[rank] + 1;
      queue.push(other);
    }
  }
  return queue.length === n && Math.max(...depth) <= lgUp(n)
    ? { ...CIRCLE, kind: "tree", key: `tree ${parents}`, centre, parents }
    : null;
}

/**
 * @param {number} n
 * @param {[number, number][]} pairs
 * @param {number[][]} near
 * @returns {Shape | null}
 */
function cubeOf(n, pairs, near) {
  const core = near.flatMap((list, r) => (list.length > 1 ? [r] : []));
  const m = core.length;
  const dims = Math.log2(m);
  if (m < 4 || !Number.isInteger(dims) || dims > 4) return null;
  const corner = near.map((_, r) => core.indexOf(r));
  const beside = near.map((list, r) => (corner[r] < 0 ? list[0] : -1));
  const hosts = beside.filter((r) => r >= 0);
  if (hosts.some((r) => corner[r] < 0) || new Set(hosts).size < hosts.length) return null;
  const edges = pairs.filter(([a, b]) => corner[a] >= 0 && corner[b] >= 0);
  const bit = (/** @type {number} */ x) => x > 0 && (x & (x - 1)) === 0;
  if (edges.length !== (m * dims) / 2 || !edges.every(([a, b]) => bit(corner[a] ^ corner[b])))
    return null;
  return { ...CIRCLE, kind: "cube", key: `cube ${corner}`, corner, beside };
}

/**
 * Hosts as they are known.
 * @param {number} n
 * @param {[number, number][]} pairs
 * @param {{levels: number[], inTurn: boolean}} hosts
 * @returns {Shape | null}
 */
function hostsOf(n, pairs, { levels, inTurn }) {
  if (levels.length < 2 || levels.reduce((a, b) => a * b, 1) !== n) return null;
  let inside = 0;
  let size = levels[0];
  while (n / size > (levels.length === 2 && size === 2 ? MOST_PAIRS : MOST_GROUPS))
    size *= levels[++inside]; // too many hosts to be told apart: those of a rack are one
  if (size < 2 || size === n) return size === n ? CIRCLE : null;
  let count = 1;
  const outer = levels
    .slice(inside + 1)
    .map((p) => (count *= p))
    .filter((p) => p > 1 && p < n / size);
  const groups = n / size;
  const slots = inTurn
    ? Array.from({ length: n }, (_, r) => (r % groups) * size + Math.floor(r / groups))
    : [];
  const between = pairs
    .map(([a, b]) => /** @type {[number, number]} */ ([slots[a] ?? a, slots[b] ?? b]))
    .filter(([a, b]) => Math.floor(a / size) !== Math.floor(b / size));
  const key = `groups ${size} ${outer}${inTurn ? " in turn" : ""}`;
  return { ...CIRCLE, kind: "groups", key, size, outer, slots, between };
}

/**
 * Blocks of neighbours, within which and between whose k-th ranks they talk.
 * @param {number} n
 * @param {[number, number][]} pairs
 * @param {number[][]} near
 * @returns {Shape | null}
 */
function groupsOf(n, pairs, near) {
  for (let size = Math.floor(n / 2); size > 1; size--) {
    if (!Number.isInteger(n / size)) continue;
    const block = (/** @type {number} */ r) => Math.floor(r / size);
    const place = (/** @type {number} */ r) => r - size * block(r);
    const inside = pairs.filter(([a, b]) => block(a) === block(b));
    if (
      inside.length === pairs.length ||
      !pairs.every(([a, b]) => block(a) === block(b) || place(a) === place(b))
    )
      continue;
    const reached = (/** @type {number} */ first) => {
      // of its own block
      const seen = new Set([first]);
      for (const r of seen) for (const o of near[r]) if (block(o) === block(r)) seen.add(o);
      return seen.size;
    };
    if (
      Array.from({ length: n / size }, (_, b) => reached(b * size)).every((count) => count === size)
    )
      return {
        ...CIRCLE,
        kind: "groups",
        key: `groups ${size}`,
        size,
        between: pairs.filter((pair) => !inside.includes(pair)),
      };
  }
  return null;
}

// ---- where the ranks lie

/** @param {Point} p @param {Point} from @returns {Point} */
export function outOf(p, from) {
  const x = p.x - from.x;
  const y = p.y - from.y;
  const far = Math.hypot(x, y);
  return far < 1 ? { x: 0.8, y: 0.6 } : { x: x / far, y: y / far };
}

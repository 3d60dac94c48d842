// @ts-check
/**
 * The shape in which ranks talk, found from who sent to whom in a call: a star, a tree, a hypercube, groups within which and
 * between which they talk, else a circle. And where each shape's ranks lie. Pure functions; no algorithm is known here, but a
 * name may say which of two shapes with the same links is meant.
 *
 * @typedef {{x: number, y: number}} Point
 * @typedef {{x: number, y: number, w: number, h: number}} Box
 * @typedef {{kind: "circle" | "star" | "tree" | "cube" | "groups", key: string, centre: number, parents: number[], corner: number[], beside: number[], size: number, outer: number[], between: [number, number][]}} Shape
 *   centre: of a star, or a tree's root; parents: of each rank of a tree, -1 the root's; corner: of each rank of a cube, -1 for one
 *   that only talks to a neighbour: beside it; size: ranks of a group
 * @typedef {{nodes: Point[], out: Point[], boxes: Box[]}} Laid  out: the way out of the picture from each rank; boxes: around groups
 */

/** @type {Shape} */
export const CIRCLE = { kind: "circle", key: "circle", centre: -1, parents: [], corner: [], beside: [], size: 0, outer: [], between: [] };
const LARGEST = 20; // ranks; more are ticks on a circle
const MOST_PAIRS = 6, MOST_GROUPS = 4; // hosts of two, or of more: with more their links pass over ranks

/** @param {number} n */
const lgUp = (n) => Math.ceil(Math.log2(n) - 1e-9);

/**
 * @param {number} n  ranks, all of which take part
 * @param {Iterable<string>} ways  "from>to", in the order of the first that went there
 * @param {number} [root]  of the operation, -1 none @param {string} [algorithm] @param {number[]} [levels]  of hosts, that it went by
 * @returns {Shape}
 */
export function shapeOf(n, ways, root = -1, algorithm = "", levels = []) {
  const firsts = /** @type {Map<string, [number, number]>} */ (new Map()), near = Array.from({ length: n }, () => /** @type {number[]} */ ([]));
  for (const way of ways) {
    const [a, b] = way.split(">").map(Number), key = `${Math.min(a, b)} ${Math.max(a, b)}`;
    if (a >= n || b >= n || firsts.has(key)) continue;
    firsts.set(key, [a, b]);
    near[a].push(b);
    near[b].push(a);
  }
  const pairs = [...firsts.values()];
  if (n < 3 || n > LARGEST || pairs.length < n - 1) return CIRCLE;
  const grouped = hostsOf(n, pairs, levels) ?? groupsOf(n, pairs, near);
  if (algorithm === "hierarchical" && grouped) return grouped;
  return starOf(n, pairs, near) ?? treeOf(n, pairs, near, root) ?? cubeOf(n, pairs, near) ?? grouped ?? CIRCLE;
}

/** @param {number} n @param {[number, number][]} pairs @param {number[][]} near @returns {Shape | null} */
function starOf(n, pairs, near) {
  const centre = near.findIndex((list) => list.length === n - 1);
  return n > 3 && pairs.length === n - 1 && centre >= 0 ? { ...CIRCLE, kind: "star", key: `star ${centre}`, centre } : null;
}

/** @param {number} n @param {[number, number][]} pairs @param {number[][]} near @param {number} root @returns {Shape | null} */
function treeOf(n, pairs, near, root) {
  if (pairs.length !== n - 1) return null;
  const gives = Array(n).fill(0), takes = Array(n).fill(0); // over each link the first chunk went up, or down
  for (const [a, b] of pairs) (gives[a] += 1), (takes[b] += 1);
  const sinks = gives.flatMap((count, r) => (count === 0 ? [r] : [])), sources = takes.flatMap((count, r) => (count === 0 ? [r] : []));
  const centre = root >= 0 ? root : sinks.length === 1 ? sinks[0] : sources.length === 1 ? sources[0] : near.findIndex((list) => list.length === Math.max(...near.map((l) => l.length)));
  const parents = Array(n).fill(-2), depth = Array(n).fill(0), queue = [centre];
  parents[centre] = -1;
  for (const rank of queue) {
    for (const other of [...near[rank]].sort((a, b) => a - b)) {
      if (parents[other] !== -2) continue;
      parents[other] = rank;
      depth[other] = depth[rank] + 1;
      queue.push(other);
    }
  }
  return queue.length === n && Math.max(...depth) <= lgUp(n) ? { ...CIRCLE, kind: "tree", key: `tree ${parents}`, centre, parents } : null;
}

/** @param {number} n @param {[number, number][]} pairs @param {number[][]} near @returns {Shape | null} */
function cubeOf(n, pairs, near) {
  const core = near.flatMap((list, r) => (list.length > 1 ? [r] : [])), m = core.length, dims = Math.log2(m);
  if (m < 4 || !Number.isInteger(dims) || dims > 4) return null;
  const corner = near.map((_, r) => core.indexOf(r)), beside = near.map((list, r) => (corner[r] < 0 ? list[0] : -1)), hosts = beside.filter((r) => r >= 0);
  if (hosts.some((r) => corner[r] < 0) || new Set(hosts).size < hosts.length) return null;
  const edges = pairs.filter(([a, b]) => corner[a] >= 0 && corner[b] >= 0), bit = (/** @type {number} */ x) => x > 0 && (x & (x - 1)) === 0;
  if (edges.length !== (m * dims) / 2 || !edges.every(([a, b]) => bit(corner[a] ^ corner[b]))) return null;
  return { ...CIRCLE, kind: "cube", key: `cube ${corner}`, corner, beside };
}

/** Hosts as they are known. @param {number} n @param {[number, number][]} pairs @param {number[]} levels @returns {Shape | null} */
function hostsOf(n, pairs, levels) {
  if (levels.length < 2 || levels.reduce((a, b) => a * b, 1) !== n) return null;
  let inside = 0, size = levels[0];
  while (n / size > (levels.length === 2 && size === 2 ? MOST_PAIRS : MOST_GROUPS)) size *= levels[++inside]; // too many hosts to be told apart: those of a rack are one
  if (size < 2 || size === n) return size === n ? CIRCLE : null;
  let count = 1;
  const outer = levels.slice(inside + 1).map((p) => (count *= p)).filter((p) => p > 1 && p < n / size);
  const between = pairs.filter(([a, b]) => Math.floor(a / size) !== Math.floor(b / size));
  return { ...CIRCLE, kind: "groups", key: `groups ${size} ${outer}`, size, outer, between };
}

/** Blocks of neighbours, within which and between whose k-th ranks they talk. @param {number} n @param {[number, number][]} pairs @param {number[][]} near @returns {Shape | null} */
function groupsOf(n, pairs, near) {
  for (let size = Math.floor(n / 2); size > 1; size--) {
    if (!Number.isInteger(n / size)) continue;
    const block = (/** @type {number} */ r) => Math.floor(r / size), place = (/** @type {number} */ r) => r - size * block(r), inside = pairs.filter(([a, b]) => block(a) === block(b));
    if (inside.length === pairs.length || !pairs.every(([a, b]) => block(a) === block(b) || place(a) === place(b))) continue;
    const reached = (/** @type {number} */ first) => { // of its own block
      const seen = new Set([first]);
      for (const r of seen) for (const o of near[r]) if (block(o) === block(r)) seen.add(o);
      return seen.size;
    };
    if (Array.from({ length: n / size }, (_, b) => reached(b * size)).every((count) => count === size)) return { ...CIRCLE, kind: "groups", key: `groups ${size}`, size, between: pairs.filter((pair) => !inside.includes(pair)) };
  }
  return null;
}

// ---- where the ranks lie

/** @param {Point} p @param {Point} from @returns {Point} */
function outOf(p, from) {
  const x = p.x - from.x, y = p.y - from.y, far = Math.hypot(x, y);
  return far < 1 ? { x: 0.8, y: 0.6 } : { x: x / far, y: y / far };
}

/**
 * Places for a shape that is no circle.
 * @param {Shape} shape @param {number} n @param {number} width @param {number} height @param {number} node  radius of a rank @param {Point[]} circle  places on the circle
 * @returns {Laid}
 */
export function laidOut(shape, n, width, height, node, circle) {
  const middle = { x: width / 2, y: height / 2 };
  if (shape.kind === "star") return starPlaces(shape, n, middle, circle);
  if (shape.kind === "tree") return treePlaces(shape, width, height, node);
  if (shape.kind === "cube") return cubePlaces(shape, width, height, node);
  return groupPlaces(shape, n, width, height, node);
}

/** The centre in the middle, the others around it in the order of ranks. @param {Shape} shape @param {number} n @param {Point} middle @param {Point[]} circle @returns {Laid} */
function starPlaces({ centre }, n, middle, circle) {
  const radius = Math.hypot(circle[0].x - middle.x, circle[0].y - middle.y), nodes = Array.from({ length: n }, (_, r) => {
    const angle = (2 * Math.PI * (r < centre ? r - centre : r - centre - 1)) / (n - 1);
    return r === centre ? middle : { x: middle.x + radius * Math.sin(angle), y: middle.y - radius * Math.cos(angle) };
  });
  return { nodes, out: nodes.map((p) => outOf(p, middle)), boxes: [] };
}

/** The root on top; a rank stands over the middle of those below it. @param {Shape} shape @param {number} width @param {number} height @param {number} node @returns {Laid} */
function treePlaces({ parents, centre }, width, height, node) {
  const below = parents.map((_, r) => parents.flatMap((p, child) => (p === r ? [child] : []))), at = Array(parents.length).fill(0), depth = Array(parents.length).fill(0);
  const size = /** @type {(r: number) => number} */ ((r) => below[r].reduce((sum, c) => sum + size(c), 1));
  let leaves = 0, deepest = 0;
  const place = (/** @type {number} */ r, /** @type {number} */ d) => {
    depth[r] = d;
    deepest = Math.max(deepest, d);
    const children = [...below[r]].sort((a, b) => size(b) - size(a) || a - b);
    for (const c of children) place(c, d + 1);
    at[r] = children.length ? (at[children[0]] + at[children[children.length - 1]]) / 2 : leaves++;
  };
  place(centre, 0);
  const beside = node + 26, above = node + 14, apart = Math.min(110, (width - 2 * beside) / Math.max(1, leaves - 1)), left = (width - apart * (leaves - 1)) / 2;
  const down = Math.min(110, (height - 2 * above) / Math.max(1, deepest)), top = (height - down * deepest) / 2;
  const nodes = at.map((slot, r) => ({ x: left + slot * apart, y: top + depth[r] * down }));
  return { nodes, out: nodes.map(({ x }) => ({ x: x < width / 2 - 1 ? -1 : 1, y: 0 })), boxes: [] };
}

// The ways along a cube's bits, in shares of the picture: chosen so that no link passes over a third rank.
const AXES = [[], [], [[1, 0], [0, 1]], [[0.66, 0.1], [-0.1, 0.62], [0.34, -0.38]], [[0.38, 0.14], [0.11, 0.29], [0.2, -0.6], [0.94, 0]]];

/** @param {Shape} shape @param {number} width @param {number} height @param {number} node @returns {Laid} */
function cubePlaces({ corner, beside }, width, height, node) {
  const dims = Math.round(Math.log2(corner.filter((v) => v >= 0).length)), axes = AXES[dims], leaves = beside.some((r) => r >= 0);
  const raw = corner.map((v) => axes.reduce((p, [dx, dy], bit) => ((v >> bit) & 1 ? { x: p.x + dx, y: p.y + dy } : p), { x: 0, y: 0 }));
  const on = raw.filter((_, r) => corner[r] >= 0), [x0, x1] = [Math.min(...on.map((p) => p.x)), Math.max(...on.map((p) => p.x))], [y0, y1] = [Math.min(...on.map((p) => p.y)), Math.max(...on.map((p) => p.y))];
  const side = node + (leaves ? 2.2 * node + 40 : dims > 3 ? 8 : 44), edge = node + (leaves ? 2.2 * node + 24 : 20), most = dims === 2 ? 230 : 1e9;
  const w = Math.min(most, width - 2 * side), h = Math.min(most, height - 2 * edge), left = (width - w) / 2, top = (height - h) / 2, middle = { x: width / 2, y: height / 2 };
  const nodes = raw.map(({ x, y }) => ({ x: left + ((x - x0) / (x1 - x0)) * w, y: top + ((y - y0) / (y1 - y0)) * h }));
  const standing = corner.flatMap((v, r) => (v >= 0 ? [r] : [])), edges = standing.flatMap((a) => standing.flatMap((b) => (a < b && ((corner[a] ^ corner[b]) & ((corner[a] ^ corner[b]) - 1)) === 0 ? [[nodes[a], nodes[b]]] : [])));
  beside.forEach((host, r) => { // one that only talks to a neighbour stands where there is most room beside it
    if (host < 0) return;
    const from = nodes[host], far = 2.2 * node + 30;
    let best = -1, found = from;
    for (let k = 0; k < 32; k++) {
      const p = { x: from.x + far * Math.cos((k * Math.PI) / 16), y: from.y + far * Math.sin((k * Math.PI) / 16) };
      if (p.x < node + 2 || p.y < node + 2 || p.x > width - node - 2 || p.y > height - node - 2) continue;
      const free = Math.min(...standing.map((s) => (s === host ? Infinity : Math.hypot(nodes[s].x - p.x, nodes[s].y - p.y))), ...edges.map(([a, b]) => awayFrom(p, a, b))) + 0.02 * Math.hypot(p.x - middle.x, p.y - middle.y);
      if (free > best) (best = free), (found = p);
    }
    nodes[r] = found;
    standing.push(r);
    edges.push([from, found]);
  });
  return { nodes, out: nodes.map((p) => outOf(p, middle)), boxes: [] };
}

/** How far a point is from a line between two. @param {Point} p @param {Point} a @param {Point} b */
export function awayFrom(p, a, b) {
  const dx = b.x - a.x, dy = b.y - a.y, share = Math.max(0, Math.min(1, ((p.x - a.x) * dx + (p.y - a.y) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(p.x - a.x - dx * share, p.y - a.y - dy * share);
}

const TURNS = 24; // ways to turn groups that are tried

/** @param {Shape} shape @param {number} n @param {number} width @param {number} height @param {number} node @returns {Laid} */
function groupPlaces({ size, outer, between }, n, width, height, node) {
  const groups = n / size, round = groups > 2, reach = (round ? 0.26 : 0.25) * width, high = round ? 0.26 * height : 0, room = node + 10;
  const radius = Math.max(node + 6, Math.min(reach - room - (round ? 4 : 12), width / 2 - reach - room, round ? height / 2 - high - room - (outer.length ? BOX_GAP + 1 : 0) : height / 2 - room - 12, groups > 4 ? Math.sin(Math.PI / groups) * Math.min(reach, high) - room : 0.78 * (round ? Math.min(reach, high) : reach) - 4, 84));
  const from = groups === 2 ? -90 : groups === 4 ? -45 : 0, stretch = groups === 4 ? Math.SQRT2 : 1, centres = Array.from({ length: groups }, (_, g) => {
    const at = groups === 4 && outer[0] === 2 && g > 1 ? 5 - g : g, angle = ((from + (360 * at) / groups) * Math.PI) / 180; // two pairs stand above each other
    return { x: width / 2 + reach * stretch * Math.sin(angle), y: height / 2 - high * stretch * Math.cos(angle) };
  });
  const turned = (/** @type {number[]} */ by) => centres.flatMap((centre, g) => Array.from({ length: size }, (_, k) => {
    const turn = (2 * Math.PI * (k + by[g] / TURNS)) / size;
    return { x: centre.x + radius * Math.sin(turn), y: centre.y - radius * Math.cos(turn) };
  }));
  let best = centres.map(() => 0), free = nearestThird(turned(best), between);
  for (let i = 0; i < TURNS * (1 + 2 * groups); i++) { // all together, then each by itself, twice
    const g = Math.floor(i / TURNS) - 1, tried = best.map((by, other) => (g < 0 || other === g % groups ? i % TURNS : by)), found = nearestThird(turned(tried), between);
    if (found > free) (best = tried), (free = found);
  }
  const nodes = turned(best);
  const boxes = centres.map(({ x, y }) => ({ x: x - radius - room, y: y - radius - room, w: 2 * (radius + room), h: 2 * (radius + room) }));
  return { nodes, out: nodes.map((p, r) => outOf(p, centres[Math.floor(r / size)])), boxes: [...outer.flatMap((count) => boxesAround(boxes, count, width, height)), ...boxes] };
}

const BOX_GAP = 7; // pixels between a box and those in it

/** Boxes around so many boxes each; none if they would lie over each other, or out of the picture. @param {Box[]} boxes @param {number} count @param {number} width @param {number} height */
function boxesAround(boxes, count, width, height) {
  const found = Array.from({ length: boxes.length / count }, (_, g) => {
    const own = boxes.slice(g * count, (g + 1) * count), x = Math.min(...own.map((b) => b.x)) - BOX_GAP, y = Math.min(...own.map((b) => b.y)) - BOX_GAP;
    return { x, y, w: Math.max(...own.map((b) => b.x + b.w)) + BOX_GAP - x, h: Math.max(...own.map((b) => b.y + b.h)) + BOX_GAP - y };
  });
  const apart = (/** @type {Box} */ a, /** @type {Box} */ b) => a.x + a.w < b.x || b.x + b.w < a.x || a.y + a.h < b.y || b.y + b.h < a.y;
  const fits = found.every(({ x, y, w, h }, i) => x >= 0 && y >= 0 && x + w <= width && y + h <= height && found.every((b, j) => i === j || apart(found[i], b)));
  return fits ? found : [];
}

/** How near links between groups come to a third rank. @param {Point[]} nodes @param {[number, number][]} between */
function nearestThird(nodes, between) {
  let nearest = Infinity;
  for (const [a, b] of between) nodes.forEach((p, other) => other !== a && other !== b && (nearest = Math.min(nearest, awayFrom(p, nodes[a], nodes[b]))));
  return nearest;
}

// @ts-check
/**
 * Where the ranks of a shape stand in a picture: stars, trees, cubes, groups of hosts. Pure
 * geometry.
 *
 * @typedef {import("./shape.js").Point} Point
 * @typedef {import("./shape.js").Box} Box
 * @typedef {import("./shape.js").Shape} Shape
 * @typedef {import("./shape.js").Laid} Laid
 */
import { outOf } from "./shape.js";

/**
 * Places for a shape that is no circle.
 * @param {Shape} shape
 * @param {number} n
 * @param {number} width
 * @param {number} height
 * @param {number} node  radius of a rank
 * @param {Point[]} circle  places on the circle
 * @returns {Laid}
 */
export function laidOut(shape, n, width, height, node, circle) {
  const middle = { x: width / 2, y: height / 2 };
  if (shape.kind === "star") return starPlaces(shape, n, middle, circle);
  if (shape.kind === "tree") return treePlaces(shape, width, height, node);
  if (shape.kind === "cube") return cubePlaces(shape, width, height, node);
  return groupPlaces(shape, n, width, height, node);
}

/**
 * The centre in the middle, the others around it in the order of ranks.
 * @param {Shape} shape
 * @param {number} n
 * @param {Point} middle
 * @param {Point[]} circle
 * @returns {Laid}
 */
function starPlaces({ centre }, n, middle, circle) {
  const radius = Math.hypot(circle[0].x - middle.x, circle[0].y - middle.y);
  const nodes = Array.from({ length: n }, (_, r) => {
    const angle = (2 * Math.PI * (r < centre ? r - centre : r - centre - 1)) / (n - 1);
    return r === centre
      ? middle
      : { x: middle.x + radius * Math.sin(angle), y: middle.y - radius * Math.cos(angle) };
  });
  return { nodes, out: nodes.map((p) => outOf(p, middle)), boxes: [] };
}

/**
 * The root on top; a rank stands over the middle of those below it.
 * @param {Shape} shape
 * @param {number} width
 * @param {number} height
 * @param {number} node
 * @returns {Laid}
 */
function treePlaces({ parents, centre }, width, height, node) {
  const below = parents.map((_, r) => parents.flatMap((p, child) => (p === r ? [child] : [])));
  const at = Array(parents.length).fill(0);
  const depth = Array(parents.length).fill(0);
  const size = /** @type {(r: number) => number} */ (
    (r) => below[r].reduce((sum, c) => sum + size(c), 1)
  );
  let leaves = 0;
  let deepest = 0;
  const place = (/** @type {number} */ r, /** @type {number} */ d) => {
    depth[r] = d;
    deepest = Math.max(deepest, d);
    const children = [...below[r]].sort((a, b) => size(b) - size(a) || a - b);
    for (const c of children) place(c, d + 1);
    at[r] = children.length ? (at[children[0]] + at[children[children.length - 1]]) / 2 : leaves++;
  };
  place(centre, 0);
  const beside = node + 26;
  const above = node + 14;
  const apart = Math.min(110, (width - 2 * beside) / Math.max(1, leaves - 1));
  const left = (width - apart * (leaves - 1)) / 2;
  const down = Math.min(110, (height - 2 * above) / Math.max(1, deepest));
  const top = (height - down * deepest) / 2;
  const nodes = at.map((slot, r) => ({ x: left + slot * apart, y: top + depth[r] * down }));
  return { nodes, out: nodes.map(({ x }) => ({ x: x < width / 2 - 1 ? -1 : 1, y: 0 })), boxes: [] };
}

// The ways along a cube's bits, in shares of the picture: chosen so that no link passes over a
// third rank.
const AXES = [
  [],
  [],
  [
    [1, 0],
    [0, 1],
  ],
  [
    [0.66, 0.1],
    [-0.1, 0.62],
    [0.34, -0.38],
  ],
  [
    [0.38, 0.14],
    [0.11, 0.29],
    [0.2, -0.6],
    [0.94, 0],
  ],
];

/**
 * @param {Shape} shape
 * @param {number} width
 * @param {number} height
 * @param {number} node
 * @returns {Laid}
 */
function cubePlaces({ corner, beside }, width, height, node) {
  const dims = Math.round(Math.log2(corner.filter((v) => v >= 0).length));
  const axes = AXES[dims];
  const leaves = beside.some((r) => r >= 0);
  const raw = corner.map((v) =>
    axes.reduce((p, [dx, dy], bit) => ((v >> bit) & 1 ? { x: p.x + dx, y: p.y + dy } : p), {
      x: 0,
      y: 0,
    }),
  );
  const on = raw.filter((_, r) => corner[r] >= 0);
  const [x0, x1] = [Math.min(...on.map((p) => p.x)), Math.max(...on.map((p) => p.x))];
  const [y0, y1] = [Math.min(...on.map((p) => p.y)), Math.max(...on.map((p) => p.y))];
  const side = node + (leaves ? 2.2 * node + 40 : dims > 3 ? 8 : 44);
  const edge = node + (leaves ? 2.2 * node + 24 : 20);
  const most = dims === 2 ? 230 : 1e9;
  const w = Math.min(most, width - 2 * side);
  const h = Math.min(most, height - 2 * edge);
  const left = (width - w) / 2;
  const top = (height - h) / 2;
  const middle = { x: width / 2, y: height / 2 };
  const nodes = raw.map(({ x, y }) => ({
    x: left + ((x - x0) / (x1 - x0)) * w,
    y: top + ((y - y0) / (y1 - y0)) * h,
  }));
  const standing = corner.flatMap((v, r) => (v >= 0 ? [r] : []));
  const edges = standing.flatMap((a) =>
    standing.flatMap((b) =>
      a < b && ((corner[a] ^ corner[b]) & ((corner[a] ^ corner[b]) - 1)) === 0
        ? [[nodes[a], nodes[b]]]
        : [],
    ),
  );
  beside.forEach((host, r) => {
    // one that only talks to a neighbour stands where there is most room beside it
    if (host < 0) return;
    const from = nodes[host];
    const far = 2.2 * node + 30;
    let best = -1;
    let place = from;
    for (let k = 0; k < 32; k++) {
      const p = {
        x: from.x + far * Math.cos((k * Math.PI) / 16),
        y: from.y + far * Math.sin((k * Math.PI) / 16),
      };
      if (p.x < node + 2 || p.y < node + 2 || p.x > width - node - 2 || p.y > height - node - 2)
        continue;
      const free =
        Math.min(
          ...standing.map((s) =>
            s === host ? Infinity : Math.hypot(nodes[s].x - p.x, nodes[s].y - p.y),
          ),
          ...edges.map(([a, b]) => awayFrom(p, a, b)),
        ) +
        0.02 * Math.hypot(p.x - middle.x, p.y - middle.y);
      if (free > best) ((best = free), (place = p));
    }
    nodes[r] = place;
    standing.push(r);
    edges.push([from, place]);
  });
  return { nodes, out: nodes.map((p) => outOf(p, middle)), boxes: [] };
}

/**
 * How far a point is from a line between two.
 * @param {Point} p
 * @param {Point} a
 * @param {Point} b
 */
export function awayFrom(p, a, b) {
  const dx = b.x - a.x;
  const dy = b.y - a.y;
  const share = Math.max(
    0,
    Math.min(1, ((p.x - a.x) * dx + (p.y - a.y) * dy) / (dx * dx + dy * dy || 1)),
  );
  return Math.hypot(p.x - a.x - dx * share, p.y - a.y - dy * share);
}

const TURNS = 24; // ways to turn groups that are tried

/**
 * @param {Shape} shape
 * @param {number} n
 * @param {number} width
 * @param {number} height
 * @param {number} node
 * @returns {Laid}
 */
function groupPlaces({ size, outer, slots, between }, n, width, height, node) {
  const groups = n / size;
  const round = groups > 2;
  const reach = (round ? 0.26 : 0.25) * width;
  const high = round ? 0.26 * height : 0;
  const room = node + 10;
  const radius = Math.max(
    node + 6,
    Math.min(
      reach - room - (round ? 4 : 12),
      width / 2 - reach - room,
      round ? height / 2 - high - room - (outer.length ? BOX_GAP + 1 : 0) : height / 2 - room - 12,
      groups > 4
        ? Math.sin(Math.PI / groups) * Math.min(reach, high) - room
        : 0.78 * (round ? Math.min(reach, high) : reach) - 4,
      84,
    ),
  );
  const from = groups === 2 ? -90 : groups === 4 ? -45 : 0;
  const stretch = groups === 4 ? Math.SQRT2 : 1;
  const centres = Array.from({ length: groups }, (_, g) => {
    const at = groups === 4 && outer[0] === 2 && g > 1 ? 5 - g : g;
    // two pairs stand above each other
    const angle = ((from + (360 * at) / groups) * Math.PI) / 180;
    return {
      x: width / 2 + reach * stretch * Math.sin(angle),
      y: height / 2 - high * stretch * Math.cos(angle),
    };
  });
  const turned = (/** @type {number[]} */ by) =>
    centres.flatMap((centre, g) =>
      Array.from({ length: size }, (_, k) => {
        const turn = (2 * Math.PI * (k + by[g] / TURNS)) / size;
        return { x: centre.x + radius * Math.sin(turn), y: centre.y - radius * Math.cos(turn) };
      }),
    );
  let best = centres.map(() => 0);
  let free = nearestThird(turned(best), between);
  for (let i = 0; i < TURNS * (1 + 2 * groups); i++) {
    // all together, then each by itself, twice
    const g = Math.floor(i / TURNS) - 1;
    const tried = best.map((by, other) => (g < 0 || other === g % groups ? i % TURNS : by));
    const apart = nearestThird(turned(tried), between);
    if (apart > free) ((best = tried), (free = apart));
  }
  const standing = turned(best);
  const slot = (/** @type {number} */ r) => slots[r] ?? r;
  const nodes = standing.map((_, r) => standing[slot(r)]);
  const boxes = centres.map(({ x, y }) => ({
    x: x - radius - room,
    y: y - radius - room,
    w: 2 * (radius + room),
    h: 2 * (radius + room),
  }));
  return {
    nodes,
    out: nodes.map((p, r) => outOf(p, centres[Math.floor(slot(r) / size)])),
    boxes: [...outer.flatMap((count) => boxesAround(boxes, count, width, height)), ...boxes],
  };
}

const BOX_GAP = 7; // pixels between a box and those in it

/**
 * Boxes around so many boxes each; none if they would lie over each other, or out of the picture.
 * @param {Box[]} boxes
 * @param {number} count
 * @param {number} width
 * @param {number} height
 */
function boxesAround(boxes, count, width, height) {
  const frames = Array.from({ length: boxes.length / count }, (_, g) => {
    const group = boxes.slice(g * count, (g + 1) * count);
    const x = Math.min(...group.map((b) => b.x)) - BOX_GAP;
    const y = Math.min(...group.map((b) => b.y)) - BOX_GAP;
    return {
      x,
      y,
      w: Math.max(...group.map((b) => b.x + b.w)) + BOX_GAP - x,
      h: Math.max(...group.map((b) => b.y + b.h)) + BOX_GAP - y,
    };
  });
  const apart = (/** @type {Box} */ a, /** @type {Box} */ b) =>
    a.x + a.w < b.x || b.x + b.w < a.x || a.y + a.h < b.y || b.y + b.h < a.y;
  const fits = frames.every(
    ({ x, y, w, h }, i) =>
      x >= 0 &&
      y >= 0 &&
      x + w <= width &&
      y + h <= height &&
      frames.every((b, j) => i === j || apart(frames[i], b)),
  );
  return fits ? frames : [];
}

/**
 * How near links between groups come to a third rank.
 * @param {Point[]} nodes
 * @param {[number, number][]} between
 */
function nearestThird(nodes, between) {
  let nearest = Infinity;
  for (const [a, b] of between)
    nodes.forEach(
      (p, other) =>
        other !== a &&
        other !== b &&
        (nearest = Math.min(nearest, awayFrom(p, nodes[a], nodes[b]))),
    );
  return nearest;
}

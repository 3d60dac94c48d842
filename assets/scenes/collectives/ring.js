// @ts-check
/**
 * Where the chunks are, as geometry: ranks on a circle or in the shape in which they talk, a way
 * for each pair between which a chunk really went, every chunk on its way at its place, (playhead −
 * start) / (end − start) of the way, and labels where nothing else is. Pure functions.
 *
 * @typedef {import("../../engine/model.js").Flight} Flight
 * @typedef {ReturnType<typeof import("../../engine/model.js").frameAt>} Frame
 * @typedef {{x: number, y: number}} Point
 * @typedef {{x: number, y: number, w: number, h: number}} Box
 * @typedef {{ranks: number, nodes: Point[], node: number, level: 0 | 1 | 2, dots: boolean,
 *   cell: {w: number, h: number, number: number}, small: {w: number, h: number}, middle: Point,
 *   radius: number, width: number, height: number, members: number, outside: number,
 *   both: Set<string>, around: boolean, links: [number, number][],
 *   shape: import("../../engine/shape.js").Shape, out: Point[], boxes: Box[]}} Place
 *   level: 0 numbered ranks and cells with slots, 1 cells with numbers alone, 2 ticks and dots;
 *   around: only neighbours talk, so the inside is free; members: ranks that lie in the shape;
 *   outside: radius of the others, below it, 0 none; out: from each rank, the way out of the
 *   picture; boxes: around groups of ranks; cell.number: width of the chunk's number in it; small:
 *   a cell with its number alone
 * @typedef {Flight & {share: number, lying?: boolean, x: number, y: number, w: number, h: number,
 *   form: 0 | 1 | 2}} Mark
 *   its middle and its size; form: 0 a cell with its number, and slots where there is room; 1 the
 *   number alone; 2 a dot
 * @typedef {{rank: number, lines: string[], x: number, y: number,
 *   align: "left" | "center" | "right", colour: string, box: Box}} Label
 */
import { SLOTTED } from "../../drawing/glyph.js";
import { CIRCLE } from "../../engine/shape.js";
import { awayFrom, laidOut } from "../../engine/shape_places.js";

const NUMBERED = 20; // ranks; with more they are ticks, and chunks are dots

export const LINE = 13; // px of a line of text

const DOT = { w: 7, h: 7 };
export const HALO = 7; // px around a rank: the halo of one that waits

export const CHARACTER = 6.3; // px, about, of a digit or letter at 11 px, bold

/** The next of 1, 2, 5, 10, 20 … bit/s that is not less, in bytes/s. @param {number} x  bytes/s */
export function niceRate(x) {
  if (!(x > 0)) return 0;
  const unit = 10 ** Math.floor(Math.log10(x * 8) + 1e-9);
  return (
    (unit * /** @type {number} */ ([1, 2, 5, 10].find((k) => k * unit >= x * 8 * (1 - 1e-9)))) / 8
  );
}

/**
 * Height of the picture in CSS pixels; it depends on the ranks only, so nothing jumps.
 * @param {number} ranks
 */
export const ringHeight = (ranks) => (ranks > SLOTTED ? 372 : ranks > 4 ? 340 : 290);

/**
 * Places that hold for a whole run: ranks clockwise from the top.
 * @param {number} ranks
 * @param {number} width
 * @param {number} height
 * @param {Iterable<string>} links  "from>to"
 * @param {number} [digits]  of the largest chunk's number
 * @param {number} [crowd]  the most chunks on their way at once
 * @param {import("../../engine/shape.js").Shape} [shape]
 * @param {number[]} [members]  of the group, if it is not all; the shape is theirs
 * @returns {Place}
 */
export function placesOf(
  ranks,
  width,
  height,
  links,
  digits = 1,
  crowd = 0,
  shape = CIRCLE,
  members = [],
) {
  if (members.length && members.length < ranks)
    return placesOfGroup(ranks, width, height, links, digits, crowd, shape, members);
  const level = ranks > NUMBERED ? 2 : ranks > SLOTTED ? 1 : 0;
  const node = [15, 10, 4][level];
  const middle = { x: width / 2, y: height / 2 };
  const [beside, above] = [
    [node + 60, node + 34],
    [node + 25, node + 25],
    [node + 20, node + 20],
  ][level]; // room for words outside
  const radius = Math.max(20, Math.min(width / 2 - beside, height / 2 - above));
  const circle = Array.from({ length: ranks }, (_, r) => {
    const angle = (2 * Math.PI * r) / ranks;
    return { x: middle.x + radius * Math.sin(angle), y: middle.y - radius * Math.cos(angle) };
  });
  const round = shape.kind === "circle" || level === 2;
  const out = circle.map(({ x, y }) => ({
    x: (x - middle.x) / radius,
    y: (y - middle.y) / radius,
  }));
  const laid = round
    ? { nodes: circle, out, boxes: [] }
    : laidOut(shape, ranks, width, height, node, circle);
  const ways = new Set(links);
  const pairs = [...ways].map(
    (way) => /** @type {[number, number]} */ (way.split(">").map(Number)),
  );
  const both = new Set([...ways].filter((way) => ways.has(way.split(">").reverse().join(">"))));
  const around =
    round && ranks > 2 && pairs.every(([a, b]) => [1, ranks - 1].includes(Math.abs(a - b)));
  const number = Math.ceil(digits * CHARACTER) + 5;
  const dots = level === 2 || crowd > 3 * ranks || (level === 1 && !around && pairs.length > 0);
  const cell = [
    { w: number + 24, h: 16, number },
    { w: number + 6, h: 15, number: number + 6 },
    { ...DOT, number: 0 },
  ][dots ? 2 : level];
  const small = dots ? DOT : { w: number + 6, h: 15 };
  return {
    ranks,
    ...laid,
    shape: round ? CIRCLE : shape,
    node,
    level: /** @type {0 | 1 | 2} */ (level),
    dots,
    cell,
    small,
    middle,
    radius,
    width,
    height,
    members: ranks,
    outside: 0,
    both,
    around,
    links: pairs,
  };
}

const OUTSIDE_HIGH = 30;

// px: of the row of ranks that are in another group; from one to the next
const OUTSIDE_APART = 24;

/**
 * A group's ranks in their own shape; those that are not in it in a row below, small.
 * @param {number} ranks
 * @param {number} width
 * @param {number} height
 * @param {Iterable<string>} links
 * @param {number} digits
 * @param {number} crowd
 * @param {import("../../engine/shape.js").Shape} shape
 * @param {number[]} members
 * @returns {Place}
 */
function placesOfGroup(ranks, width, height, links, digits, crowd, shape, members) {
  const at = new Map(members.map((rank, i) => [rank, i]));
  const others = Array.from({ length: ranks }, (_, rank) => rank).filter((rank) => !at.has(rank));
  const circle = placesOf(
    members.length,
    width,
    height - OUTSIDE_HIGH,
    [...links].map((way) =>
      way
        .split(">")
        .map((rank) => at.get(Number(rank)) ?? 0)
        .join(">"),
    ),
    digits,
    crowd,
    shape,
  );
  const apart = Math.min(OUTSIDE_APART, (width - 24) / others.length);
  const left = (width - apart * (others.length - 1)) / 2;
  const named = (/** @type {string} */ way) =>
    way
      .split(">")
      .map((i) => members[Number(i)])
      .join(">");
  const placed = /** @type {[Point, Point][]} */ (
    Array.from({ length: ranks }, (_, rank) => {
      const i = at.get(rank);
      return i === undefined
        ? [
            { x: left + apart * others.indexOf(rank), y: height - 12 },
            { x: 0, y: -1 },
          ]
        : [circle.nodes[i], circle.out[i]];
    })
  );
  return {
    ...circle,
    ranks,
    nodes: placed.map(([node]) => node),
    out: placed.map(([, out]) => out),
    height,
    outside: apart >= 20 ? 9 : Math.max(1.5, apart / 2 - 1),
    both: new Set([...circle.both].map(named)),
    links: circle.links.map(([a, b]) => [members[a], members[b]]),
  };
}

/**
 * The straight way of a chunk, rim to rim, such that a cell never covers a rank or its halo. Two ways between
 * the same ranks lie side by side.
 * @param {Place} place
 * @param {number} from
 * @param {number} to
 * @param {boolean} [forCell] leave room for the cell itself
 * @returns {[Point, Point]}
 */
export function wayOf(place, from, to, forCell = false) {
  const a = place.nodes[from];
  const b = place.nodes[to];
  const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const { w, h } = place.cell;
  const u = { x: (b.x - a.x) / length, y: (b.y - a.y) / length };
  // cells that meet do not touch
  const beside = forCell ? (Math.abs(u.y) * w + Math.abs(u.x) * h) / 2 + 1 : place.dots ? 3 : 6;
  const aside = place.both.has(`${from}>${to}`) ? beside : 0;
  const half = forCell
    ? Math.min(
        w / 2 / Math.max(0.01, Math.abs(u.x)),
        h / 2 / Math.max(0.01, Math.abs(u.y)),
        Math.hypot(w, h) / 2,
      ) + 1
    : 0;
  const gap = Math.min(length / 2 - 1, place.node + (forCell ? HALO + 1 : 2) + half);
  const at = (/** @type {number} */ d) => ({
    x: a.x + u.x * d - u.y * aside,
    y: a.y + u.y * d + u.x * aside,
  });
  return [at(gap), at(length - gap)];
}

/**
 * How far apart along (x, y) the middles of two boxes must be not to touch.
 * @param {{w: number, h: number}} a
 * @param {{w: number, h: number}} b
 * @param {Point} along
 */
const clearance = (a, b, along) =>
  2 +
  Math.min(
    (a.w + b.w) / 2 / Math.max(0.01, Math.abs(along.x)),
    (a.h + b.h) / 2 / Math.max(0.01, Math.abs(along.y)),
  );

/**
 * The places of one link's chunks along it, in px from where the first can stand: each where its share
 * of the flight is, or behind the one before it: chunks that wait for one another queue on their link.
 * The first has its cell, the others their numbers alone; where that is too long all have dots.
 * @param {number[]} at  px, where each would be alone, the foremost first
 * @param {number} length  px
 * @param {Point} along
 * @param {{w: number, h: number}[]} sizes  of a cell, a number, a dot
 * @param {0 | 1 | 2} first  the form of the first
 * @returns {{at: number, form: 0 | 1 | 2}[]}
 */
export function queued(at, length, along, sizes, first) {
  for (const rest of /** @type {(1 | 2)[]} */ ([1, 2])) {
    const form = (/** @type {number} */ i) => (i || rest === 2 ? Math.max(first, rest) : first);
    const places = /** @type {{at: number, form: 0 | 1 | 2}[]} */ ([]);
    at.forEach((wanted, i) => {
      const own = /** @type {0 | 1 | 2} */ (form(i));
      const before = places[i - 1];
      const most = before ? before.at - clearance(sizes[before.form], sizes[own], along) : length;
      places.push({ at: Math.min(wanted, most), form: own });
    });
    const lacks = -(places.at(-1)?.at ?? 0);
    if (lacks <= 0) return places;
    if (rest === 1) continue;
    const front = places[0].at; // even dots have no room: they stand as close as need be
    return places.map(({ at: own, form: how }, i) => ({
      at: Math.min(at[i], (front * (own + lacks)) / Math.max(1, front + lacks)),
      form: how,
    }));
  }
  return [];
}

/**
 * Each chunk on its way, with its place: along the link its share of the flight, or behind the chunk
 * before it. Where cells of different links would lie over each other or over a rank, the younger one is
 * shortened to its number, then to a dot.
 * @param {Frame} frame @param {Place} place
 * @returns {Mark[]}
 */
export function marksOf(frame, place) {
  const { cell, small, nodes, node } = place;
  const sizes = [cell, small, DOT];
  const taken = /** @type {Box[]} */ ([]);
  const first = place.dots ? 2 : 0;
  const links = /** @type {Map<string, number[]>} */ (new Map());
  frame.comets.forEach(({ from, to }, i) => {
    const key = `${from}>${to}`;
    links.set(key, [...(links.get(key) ?? []), i]);
  });
  const placed = /** @type {{x: number, y: number, form: 0 | 1 | 2}[]} */ ([]);
  for (const those of links.values()) {
    const { from, to } = frame.comets[those[0]];
    const [a, b] = wayOf(place, from, to, true);
    const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const u = { x: (b.x - a.x) / length, y: (b.y - a.y) / length };
    const share = (/** @type {number} */ i) => frame.comets[i].share;
    those.sort((i, j) => share(j) - share(i) || i - j);
    const at = those.map((i) => share(i) * length);
    queued(at, length, u, sizes, first).forEach(({ at: d, form }, k) => {
      placed[those[k]] = { x: a.x + u.x * d, y: a.y + u.y * d, form };
    });
  }
  return frame.comets.map((comet, i) => {
    const { x, y } = placed[i];
    let { form } = /** @type {{form: number}} */ (placed[i]);
    for (; form < 2; form++) {
      const { w, h } = sizes[form];
      const box = { x: x - w / 2, y: y - h / 2, w, h };
      if (
        taken.some((other) => overlaps(box, other)) ||
        nodes.some(
          (n) =>
            Math.hypot(
              Math.max(0, Math.abs(n.x - x) - w / 2),
              Math.max(0, Math.abs(n.y - y) - h / 2),
            ) <
            node + HALO,
        )
      )
        continue;
      taken.push(box);
      break;
    }
    const { w, h } = sizes[form];
    return { ...comet, x, y, w, h, form: /** @type {0 | 1 | 2} */ (form) };
  });
}

/**
 * What lies under the pointer: a chunk on its way, a rank, a link, or nothing. The nearest wins.
 * @param {Mark[]} marks @param {Place} place @param {number} x @param {number} y
 * @returns {{chunk: Mark} | {rank: number} | {link: {from: number, to: number}} | null}
 */
export function underRing(marks, place, x, y) {
  const mark = marks.findLast(
    (m) => Math.abs(m.x - x) <= Math.max(m.w, 12) / 2 && Math.abs(m.y - y) <= Math.max(m.h, 12) / 2,
  );
  if (mark) return { chunk: mark };
  const far = place.nodes.map((n) => Math.hypot(n.x - x, n.y - y));
  const nearest = Math.min(...far);
  if (nearest <= place.node + 6) return { rank: far.indexOf(nearest) };
  let best = 7;
  let hit = null;
  for (const [from, to] of place.links) {
    const [a, b] = wayOf(place, from, to);
    const away = awayFrom({ x, y }, a, b);
    if (away < best) ((best = away), (hit = { link: { from, to } }));
  }
  return hit;
}

/** @param {Box} a @param {Box} b */
export const overlaps = (a, b) =>
  a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;

/**
 * Return whether the words of waits have a place beside their ranks; else they go below.
 * @param {Place} place
 */
export const labelled = (place) => place.level === 0 || (place.level === 1 && place.around);

// @ts-check
/**
 * Where words stand in the picture of the ranks: clear of marks and of each other. Pure geometry.
 *
 * @typedef {import("./ring.js").Point} Point
 * @typedef {import("./ring.js").Box} Box
 * @typedef {import("./ring.js").Place} Place
 * @typedef {import("./ring.js").Label} Label
 */
import { CHARACTER, HALO, LINE, labelled, overlaps, wayOf } from "./ring.js";

/**
 * Whether a link passes through a box, with this much room around it; -1: as much as a cell takes
 * that goes along it.
 * @param {Place} place
 * @param {Box} box
 * @param {number} around
 */
export function crossed(place, box, around) {
  const { w, h } = place.cell;
  return place.links.some(([from, to]) => {
    const [a, b] = wayOf(place, from, to);
    const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const room =
      around >= 0 ? around : (Math.abs(b.y - a.y) * w + Math.abs(b.x - a.x) * h) / (2 * length) + 1;
    const wide = { x: box.x - room, y: box.y - room, w: box.w + 2 * room, h: box.h + 2 * room };
    let [t0, t1] = [0, 1]; // Liang–Barsky: the part of the way that lies inside
    for (const [p, q] of [
      [a.x - b.x, a.x - wide.x],
      [b.x - a.x, wide.x + wide.w - a.x],
      [a.y - b.y, a.y - wide.y],
      [b.y - a.y, wide.y + wide.h - a.y],
    ]) {
      if (p === 0 && q < 0) return false;
      if (p < 0) t0 = Math.max(t0, q / p);
      if (p > 0) t1 = Math.min(t1, q / p);
    }
    return t0 < t1;
  });
}

/**
 * The box of some centred lines in the middle of the ring, or null where something passes there.
 * @param {Place} place
 * @param {string[]} lines
 */
export function middleBox(place, lines) {
  const w = Math.max(...lines.map((l) => l.length)) * (CHARACTER * 0.97);
  const h = lines.length * 16;
  const box = { x: place.middle.x - w / 2, y: place.middle.y - h / 2, w, h };
  const free =
    place.shape.kind === "circle" &&
    place.links.length > 0 &&
    !crossed(place, box, place.cell.h / 2 + 3);
  const corner = Math.hypot(w / 2, h / 2);
  const inside = place.radius - place.node - (place.level ? 66 : 8);
  return free && corner < inside ? box : null;
}

/**
 * The words beside ranks, in order of importance; one that would lie over a rank, a link or another
 * one is left out.
 * @param {Place} place
 * @param {{rank: number, lines: string[], colour: string, aside?: boolean}[]} wanted  aside:
 *   anywhere beside the rank
 * @param {Box[]} taken  what else is written
 * @returns {Label[]}
 */
export function labelsOf(place, wanted, taken) {
  const halo = HALO;
  const boxes = [
    ...taken,
    ...place.nodes.map(({ x, y }) => ({
      x: x - place.node - halo,
      y: y - place.node - halo,
      w: 2 * (place.node + halo),
      h: 2 * (place.node + halo),
    })),
  ];
  const placed = /** @type {Label[]} */ ([]);
  if (!labelled(place)) return placed;
  for (const { rank, lines, colour, aside } of wanted) {
    const inwards = place.level ? -1 : 1;
    const { x, y } = place.out[rank];
    const first = { x: x * inwards, y: y * inwards };
    for (const way of !place.level || aside ? [first, ...ASIDE] : [first]) {
      const label = labelAt(place, rank, lines, colour, way, halo);
      const { box } = label;
      const inside =
        box.x >= 0 && box.y >= 0 && box.x + box.w <= place.width && box.y + box.h <= place.height;
      if (
        !inside ||
        boxes.some((other) => overlaps(box, other)) ||
        crossed(place, box, place.dots ? place.cell.h / 2 : -1)
      )
        continue;
      boxes.push(box);
      placed.push(label);
      break;
    }
  }
  return placed;
}

const ASIDE = [
  { x: 1, y: 0 },
  { x: -1, y: 0 },
  { x: 0, y: -1 },
  { x: 0, y: 1 },
]; // other ways out, where links may go anywhere

/**
 * Words beside a rank on this side of it.
 * @param {Place} place
 * @param {number} rank
 * @param {string[]} lines
 * @param {string} colour
 * @param {Point} way
 * @param {number} halo
 * @returns {Label}
 */
function labelAt(place, rank, lines, colour, { x: c, y: d }, halo) {
  const { x, y } = place.nodes[rank];
  const w = Math.max(...lines.map((l) => l.length)) * CHARACTER;
  const h = lines.length * LINE;
  const reach = place.node + halo + (place.level ? 3 : 6);
  const align = Math.abs(c) < 0.2 ? "center" : c < 0 ? "right" : "left";
  const far = Math.abs(c) < 0.2 ? reach + h / 2 : reach; // beside, above or below
  const X = x + (align === "center" ? 0 : Math.sign(c) * reach * Math.min(1, Math.abs(c) * 1.3));
  const Y = y + d * far * (align === "center" ? 1 : 1.15);
  return {
    rank,
    lines,
    x: X,
    y: Y,
    align,
    colour,
    box: { x: align === "left" ? X : align === "right" ? X - w : X - w / 2, y: Y - h / 2, w, h },
  };
}

// @ts-check
/**
 * The picture of replicas that mix: who mixes with whom (hairlines: the plan; as wide as what has
 * gone there: measured), what is on its way, and outside of each rank a bar as long as its replica
 * is far from the mean of all, as estimated.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./place.js").Place} Place
 * @typedef {import("./frame.js").PeersFrame} PeersFrame
 * @typedef {{place: Place, frame: PeersFrame, index: import("./index.js").PeersIndex,
 *   facts: import("./index.js").PeerFacts | null,
 *   doings: import("../../engine/rank_activity.js").Doing[]}} PeersSeen
 */
import { Pen } from "../../drawing/pen.js";
import { roundUp } from "../../engine/losses.js";
import { barAt, flownSpot, linkWay, wordsAt } from "./place.js";
import { drawCircle } from "../../drawing/rank_circle.js";

/** Planned links beyond this many are not drawn, and a caption says so. */
export const MOST_PLANNED = 200;

/** A distance in two digits. @param {number} x */
export function distanceWords(x) {
  if (!Number.isFinite(x)) return "–";
  if (x === 0) return "0";
  if (x >= 1000 || x < 0.001) return x.toExponential(1).replace("e+", "e").replace("-", "−");
  return x >= 100
    ? x.toFixed(0)
    : x >= 10
      ? x.toFixed(1)
      : x >= 1
        ? x.toFixed(1)
        : x.toPrecision(2);
}

/**
 * What the longest bar stands for: it changes in steps, so that bars do not creep.
 * @param {PeersFrame} frame
 */
export const barScale = (frame) => (frame.most > 0 ? roundUp(frame.most) : 1);
/** Whether the planned links are few enough to be drawn. @param {PeersSeen["facts"]} facts */
export const plans = (facts) =>
  !!facts && facts.edges.length > 0 && facts.edges.length <= MOST_PLANNED;

/** @param {CanvasRenderingContext2D} g @param {Look} look @param {PeersSeen} seen */
export function drawPicture(g, look, { place, frame, facts, doings }) {
  const pen = new Pen(g, look);
  const { ink, font, choice } = look;
  const { nodes, node } = place.circle;
  const most = Math.max(1, ...frame.links.map((l) => l.nbytes));
  const widest = widestLink(frame.links.length, frame.peers.length);
  const lost = new Set(frame.peers.filter((p) => p.lost).map((p) => p.rank));
  g.lineCap = "butt";
  for (const link of frame.links) {
    // what has gone there
    if (!link.nbytes) continue;
    const [a, b] = linkWay(place, link.from, link.to);
    const mine =
      choice?.rank === link.from && (choice.peer === undefined || choice.peer === link.to);
    peerStroke(
      pen,
      mine ? ink.focus : ink.edge,
      linkWidth(link.nbytes, most, widest),
      lost.has(link.from) || lost.has(link.to) ? [2, 3] : [],
      a,
      b,
    );
  }
  if (facts && plans(facts))
    for (const [from, to] of facts.edges) {
      // the plan: a hairline between the two ways
      if (from > to && facts.edges.some(([a, b]) => a === to && b === from)) continue;
      const a = nodes[from];
      const b = nodes[to];
      const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
      const u = { x: ((b.x - a.x) / length) * (node + 4), y: ((b.y - a.y) / length) * (node + 4) };
      peerStroke(
        pen,
        ink.ideal,
        0.75,
        [],
        { x: a.x + u.x, y: a.y + u.y },
        { x: b.x - u.x, y: b.y - u.y },
      );
    }
  for (const comet of frame.comets) {
    // its tail is the way done
    g.globalAlpha = 0.45;
    peerStroke(
      pen,
      ink.comm,
      3,
      [],
      linkWay(place, comet.from, comet.to)[0],
      flownSpot(place, comet),
    );
    g.globalAlpha = 1;
  }
  drawCircle(
    g,
    ink,
    font,
    place.circle,
    doings,
    new Set(),
    emulatedHere(look, frame),
    choice?.rank,
  );
  const scale = barScale(frame);
  for (const peer of frame.peers) {
    if (!Number.isFinite(peer.distance) || peer.lost) continue;
    const [a, end] = barAt(place, peer.rank, 1);
    const [, b] = barAt(place, peer.rank, peer.distance / scale);
    const wide = place.words ? 7 : 3;
    peerStroke(pen, ink.track, wide, [], a, end);
    peerStroke(pen, peerInk(ink, peer.rank, frame.peers.length), wide, [], a, b);
    if (!place.words) continue;
    const { x, y, align } = wordsAt(place, peer.rank);
    pen.write(
      distanceWords(peer.distance),
      x,
      y,
      "ink",
      align,
      frame.far.length === 1 && frame.far[0] === peer.rank,
    );
  }
  const taken = /** @type {{x: number, y: number}[]} */ ([]);
  for (const comet of frame.comets) drawComet(pen, place, comet, taken);
}

/**
 * The colour of a rank's replica: its own while there are few.
 * @param {Record<string, string>} ink
 * @param {number} rank
 * @param {number} ranks
 */
export const peerInk = (ink, rank, ranks) => (ranks <= 8 ? ink[`s${rank}`] : ink["ink-2"]);
/**
 * How wide the link is that carried most: the more there are, the less.
 * @param {number} links
 * @param {number} ranks
 */
export const widestLink = (links, ranks) =>
  links <= 2 * ranks ? (ranks > 16 ? 3 : 5) : links <= 4 * ranks && ranks <= 8 ? 3 : 1.5;
/**
 * How wide a link is that carried so much.
 * @param {number} nbytes
 * @param {number} most
 * @param {number} widest
 */
export const linkWidth = (nbytes, most, widest) => 0.75 + ((widest - 0.75) * nbytes) / most;

/**
 * Links that we made slower, of those that are used.
 * @param {Look} look
 * @param {PeersFrame} frame
 */
function emulatedHere({ known }, frame) {
  const used = new Set(frame.links.map((l) => `${l.from}>${l.to}`));
  return (known.control?.links ?? []).filter((l) => used.has(`${l.from}>${l.to}`));
}

/**
 * @param {Pen} pen
 * @param {string} colour
 * @param {number} width
 * @param {number[]} dash
 * @param {{x: number, y: number}} a
 * @param {{x: number, y: number}} b
 */
function peerStroke(pen, colour, width, dash, a, b) {
  const { g } = pen;
  g.strokeStyle = colour;
  g.lineWidth = width;
  g.setLineDash(dash);
  g.beginPath();
  g.moveTo(a.x, a.y);
  g.lineTo(b.x, b.y);
  g.stroke();
  g.setLineDash([]);
}

/**
 * A replica's parameters, with the number of whose they are; or a chunk of an averaging.
 * @param {Pen} pen
 * @param {Place} place
 * @param {PeersFrame["comets"][0]} comet
 * @param {{x: number, y: number}[]} taken  by others: where it is tight it is a dot
 */
function drawComet(pen, place, comet, taken) {
  const { g, ink } = pen;
  const { x, y } = flownSpot(place, comet);
  const { nodes, node } = place.circle;
  const w = comet.from > 9 ? 19 : 16;
  const free =
    taken.every((o) => Math.abs(o.x - x) > w + 2 || Math.abs(o.y - y) > 17) &&
    nodes.every(
      (n) =>
        Math.hypot(Math.max(0, Math.abs(n.x - x) - w / 2), Math.max(0, Math.abs(n.y - y) - 8)) >
        node + 3,
    );
  if (comet.message && place.form === "cell" && free) {
    taken.push({ x, y });
    return drawParcel(pen, x, y, comet.from);
  }
  g.fillStyle = ink.comm;
  g.strokeStyle = ink.ground;
  g.lineWidth = 1;
  g.beginPath();
  g.arc(x, y, place.form === "cell" ? 4.5 : 3, 0, 7);
  g.fill();
  g.stroke();
}

/**
 * @param {Pen} pen
 * @param {number} x
 * @param {number} y
 * @param {number} from
 */
export function drawParcel(pen, x, y, from) {
  const { g, ink } = pen;
  const w = from > 9 ? 18 : 14;
  g.fillStyle = ink.ground;
  g.strokeStyle = ink.comm;
  g.lineWidth = 2;
  g.beginPath();
  g.roundRect(x - w / 2, y - 7, w, 14, 3);
  g.fill();
  g.stroke();
  pen.write(String(from), x, y + 0.5, "ink", "center", true);
}

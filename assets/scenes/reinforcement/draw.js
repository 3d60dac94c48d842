// @ts-check
/**
 * The picture of a run with actors: a box for each rank in the column of its role, what is on its
 * way between them, and how much each way has carried. The tint is that of the parameter server's
 * picture: what has missed updates fades.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./place.js").RlPlace} RlPlace
 * @typedef {import("./place.js").Spot} Spot
 * @typedef {import("./frame.js").RlFrame} RlFrame
 * @typedef {{place: RlPlace, frame: RlFrame, index: import("./index.js").RlIndex,
 *   roles: import("./index.js").RlRoles}} RlSeen
 */
import { Pen } from "../../drawing/pen.js";
import { drawBundle, drawRole } from "./boxes.js";
import { ageInk } from "../../drawing/colors.js";
import { bytes } from "../../engine/format.js";
import { spotAlong, pointsUntil, wayOf, SIDE } from "./place.js";

const MOST_LINKS = 60; // ways that are drawn while nothing is on them
const ASKS = new Set(["request", "pull", "grant", "farewell"]); // a few numbers, not what is learned

/** How a role is called above its column. @type {Record<string, [string, string]>} */
const HEADS = {
  actor: ["actor", "actors"],
  replay: ["replay", "replay shards"],
  learner: ["learner", "learners"],
  server: ["server", "servers"],
  bundle: ["bundle: actor, replay and learner", "bundles: actor, replay and learner"],
};

/** @param {CanvasRenderingContext2D} g @param {Look} look @param {RlSeen} seen */
export function drawPicture(g, look, seen) {
  const pen = new Pen(g, look);
  const { font } = look;
  const { place, frame } = seen;
  for (const { role, x, w, many } of place.columns) {
    g.font = `700 11px ${font}`;
    const [one, more] = HEADS[role];
    const words = many > 1 ? (w > 96 ? `${many} ${more}` : more) : one;
    pen.write(words, x, 8, "ink-2", "left", true);
  }
  drawLinks(pen, look, seen);
  drawBusWords(pen, seen);
  for (const spot of place.spots)
    if (spot.role === "bundle") drawBundle(pen, look, seen, spot);
    else drawRole(pen, look, seen, spot);
  for (const comet of frame.comets) {
    const way = wayOf(place, comet.from, comet.to);
    if (!way.length) continue;
    drawTail(pen, way, comet);
    drawMessage(pen, spotAlong(way, comet.share), comet.kind, frame.newest - comet.version, frame);
  }
}

/** All bytes that went between two ranks by now, both ways apart. @param {RlSeen} seen */
function carried({ index, frame }) {
  const links = new Map(/** @type {[string, {from: number, to: number, nbytes: number}][]} */ ([]));
  for (const way of index.ways.values()) {
    if (ASKS.has(way.kind) || !way.kind) continue;
    const key = `${way.from}>${way.to}`;
    const one = links.get(key) ?? { from: way.from, to: way.to, nbytes: 0 };
    one.nbytes += index.sentOver(way, frame.t).nbytes;
    links.set(key, one);
  }
  return [...links.values()].filter((one) => one.nbytes > 0);
}

/** @param {Pen} pen @param {{x: number, y: number}[]} points */
function trace(pen, points) {
  const { g } = pen;
  g.beginPath();
  points.forEach(({ x, y }, i) => (i ? g.lineTo(x, y) : g.moveTo(x, y)));
  g.stroke();
}

/**
 * Lines as wide as what has gone there; of very many only those of who is chosen or at work.
 * @param {Pen} pen
 * @param {Look} look
 * @param {RlSeen} seen
 */
function drawLinks(pen, { choice }, seen) {
  const { g, ink } = pen;
  const { place, frame } = seen;
  const links = carried(seen);
  const most = Math.max(1, ...links.map((one) => one.nbytes));
  const used = new Set(frame.comets.map((one) => `${one.from}>${one.to}`));
  g.lineJoin = "round";
  for (const { from, to, nbytes } of links) {
    const mine = choice?.rank === from || choice?.rank === to;
    if (links.length > MOST_LINKS && !mine && !used.has(`${from}>${to}`)) continue;
    const way = wayOf(place, from, to);
    if (!way.length) continue;
    g.strokeStyle = mine ? ink.focus : ink.rule;
    g.lineWidth = 0.75 + 3 * (nbytes / most);
    trace(pen, way);
  }
}

/**
 * What the way back above the boxes is, written below it: messages pass there.
 * @param {Pen} pen
 * @param {RlSeen} seen
 */
function drawBusWords(pen, seen) {
  const { g, font } = pen;
  const { place, roles } = seen;
  if (Number.isNaN(place.bus)) return;
  const nbytes = carried(seen)
    .filter((one) => roles.actors.includes(one.to))
    .reduce((sum, one) => sum + one.nbytes, 0);
  const [actors, replay] = place.columns;
  const [from, to] = [actors.x + actors.w, place.columns[place.columns.length - 1].x];
  const room = to - from - 2 * (SIDE + 4); // between the way's own ends
  g.font = `400 11px ${font}`;
  const many = nbytes ? `, ${bytes(nbytes)}` : "";
  const all = `parameters to actors${many}`;
  const words = g.measureText(all).width > room ? `parameters${many}` : all;
  const wide = g.measureText(words).width;
  const x = Math.max(replay.x, replay.x + (replay.w - wide) / 2);
  pen.write(words, Math.min(x, to - SIDE - 4 - wide), place.bus + 14);
}

/**
 * The way that a message has come.
 * @param {Pen} pen
 * @param {{x: number, y: number}[]} way
 * @param {{share: number, kind: string}} comet
 */
function drawTail(pen, way, { share, kind }) {
  const { g, ink } = pen;
  if (ASKS.has(kind)) return;
  g.strokeStyle = kind === "parameters" ? ink["age-0"] : ink.comm;
  g.lineWidth = 2.5;
  g.globalAlpha = 0.4;
  trace(pen, pointsUntil(way, share));
  g.globalAlpha = 1;
}

/**
 * A message on its way: each kind has a shape of its own.
 * @param {Pen} pen
 * @param {{x: number, y: number, turn: number}} at
 * @param {string} kind
 * @param {number} behind  updates that have been made since its sender's parameters
 * @param {{step: number}} frame
 */
export function drawMessage(pen, { x, y, turn }, kind, behind, { step }) {
  const { g, ink } = pen;
  const path = (/** @type {[number, number][]} */ points) => {
    g.beginPath();
    for (const [a, b] of points)
      g.lineTo(
        x + a * Math.cos(turn) - b * Math.sin(turn),
        y + a * Math.sin(turn) + b * Math.cos(turn),
      );
    g.closePath();
  };
  g.setLineDash([]);
  g.lineWidth = 1;
  g.strokeStyle = ink.ground;
  g.fillStyle = ink.comm;
  if (kind === "experience") {
    g.beginPath();
    g.arc(x, y, 5.5, 0, 7);
    g.fillStyle = ageInk(ink, Math.max(0, behind), step);
    g.strokeStyle = ink.comm;
    g.lineWidth = 2;
  } else if (kind === "minibatch") {
    g.beginPath();
    g.roundRect(x - 5.5, y - 5.5, 11, 11, 2);
  } else if (kind === "priorities") {
    path([
      [-6, 0],
      [0, -6],
      [6, 0],
      [0, 6],
    ]);
    g.fillStyle = ink.ground;
    g.strokeStyle = ink.comm;
    g.lineWidth = 2;
  } else if (ASKS.has(kind)) {
    g.beginPath();
    g.arc(x, y, 3, 0, 7);
    g.fillStyle = ink.ground;
    g.strokeStyle = ink["ink-2"];
    g.lineWidth = 1.5;
  } else {
    path([
      [-6.5, -5.5],
      [6.5, 0],
      [-6.5, 5.5],
    ]);
    if (kind === "parameters") g.fillStyle = ink["age-0"];
  }
  g.fill();
  g.stroke();
}

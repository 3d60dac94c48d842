// @ts-check
/**
 * Draws a model and its cut: bands of stages with their layers, values between them, and what
 * crosses from band to band.
 *
 * @typedef {import("./fold.js").Model} Model
 * @typedef {import("./fold.js").GraphNode} GraphNode
 * @typedef {import("./place.js").GraphPlace} GraphPlace
 * @typedef {import("./place.js").Point} Point
 * @typedef {import("./place.js").NodeBox} NodeBox
 * @typedef {import("./traffic.js").Traffic} Traffic
 * @typedef {import("./traffic.js").Crossed} Crossed
 * @typedef
 *   {{node: number} | {fold: string} | {wire: import("./fold.js").Wire} | {cut: number} | {stage:
 *     number} | null}
 *   GraphHit
 * @typedef {{model: Model, nodes: GraphNode[], wires: import("./fold.js").Wire[],
 *   place: GraphPlace, slowest: number, timed: boolean, ranks: number[], crossed: Crossed | null,
 *   comets: (import("./traffic.js").Parcel & {share: number, x: number, y: number})[],
 *   chosen: {stages: Set<number>, cut: number, node: string}, pointed: GraphHit}} GraphSeen
 *   slowest: ms (bytes where nothing is timed) of the longest bar; ranks: in the pipeline, of each
 *   stage
 */
import { Pen } from "../../drawing/pen.js";
import { drawParts, shardingOf } from "./shards.js";
import { cutWords, layersWord } from "./captions.js";
import { pointAlong } from "./hits.js";
import { bytes, counted, duration } from "../../engine/format.js";

const COMET_R = 8;
const BAR_HIGH = 5;
const SHEETS = 3;
const SQUARE = 16;

/** Identity of a rank. @param {Record<string, string>} ink @param {number} rank */
export const inkOfRank = (ink, rank) => ink[`s${((rank % 8) + 8) & 7}`];

/**
 * What a layer's bar is as long as: its time, or its parameters where nothing is timed.
 * @param {GraphNode | import("./fold.js").Layer} node
 * @param {boolean} timed
 */
export const weightOf = (node, timed) => (timed ? node.forward + node.backward : node.parameters);

/**
 * A text that fits, its end left out if need be.
 * @param {Pen} pen
 * @param {string} text
 * @param {number} room
 */
export function fitted(pen, text, room) {
  const { g } = pen;
  if (g.measureText(text).width <= room) return text;
  let n = text.length;
  while (n > 1 && g.measureText(`${text.slice(0, n)}…`).width > room) n--;
  return `${text.slice(0, n)}…`;
}

/**
 * A layer's name in the room there is: its last parts, which say most.
 * @param {Pen} pen
 * @param {string} name
 * @param {number} room
 */
export function nameThatFits(pen, name, room) {
  const { g } = pen;
  const parts = name.split(".");
  for (let i = 0; i < parts.length; i++) {
    const some = parts.slice(i).join(".");
    if (g.measureText(some).width <= room) return some;
  }
  return fitted(pen, parts[parts.length - 1], room);
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {import("../../chrome/stage.js").Look} look
 * @param {GraphSeen} seen
 */
export function drawPicture(g, look, seen) {
  const pen = new Pen(g, look);
  const { place } = seen;
  for (const band of place.bands) drawBand(pen, seen, band);
  g.setLineDash([]);
  for (const points of place.returns) drawWay(pen, points, look.ink.edge, 1.2, true);
  for (const { lines } of place.bands)
    for (const { paths } of lines) for (const path of paths) drawWire(pen, seen, path);
  for (const cut of place.cuts) drawCut(pen, seen, cut);
  for (const { lines } of place.bands)
    for (const { boxes } of lines) for (const box of boxes) drawNode(pen, seen, box);
  for (const fold of place.folds) drawFold(pen, fold);
  for (const comet of seen.comets) drawComet(pen, comet);
}

/**
 * @param {Pen} pen
 * @param {GraphSeen} seen
 * @param {import("./place.js").Band} band
 */
function drawBand(pen, { model, place, ranks, chosen }, { stage, x: edge, top, height }) {
  const { g, ink, font } = pen;
  const sharding = shardingOf(model);
  const colour = sharding ? ink.edge : inkOfRank(ink, ranks[stage]);
  const layers = model.layers.filter((l) => l.stage === stage);
  const x = edge + 14;
  const room = place.left - 14 - 4;
  g.globalAlpha = 0.09;
  pen.box(edge, top, place.width, height, colour);
  g.globalAlpha = 1;
  g.fillRect(edge, top, 6, height);
  if (chosen.stages.has(stage))
    pen.outline(edge + 1, top + 1, place.width - 2, height - 2, "focus", 2);
  const ms = layers.reduce((sum, l) => sum + l.forward + l.backward, 0);
  const size = layers.reduce((sum, l) => sum + l.parameters, 0);
  const name =
    model.stages > 1 ? `stage ${stage}` : sharding ? counted(sharding.ranks, "rank") : "not cut";
  let y = top + height / 2 - 16;
  pen.write(name, x, y, "ink", "left", true, 13);
  const wide = g.measureText(name).width;
  if (model.stages > 1)
    pen.write(`rank ${ranks[stage]}`, x + wide + 8, y, "ink-2", "left", false, 12);
  for (const words of [
    `${layersWord(layers.length)}${ms ? `, ${duration(ms * 1e6)}` : ""}`,
    `${bytes(size)} parameters`,
  ]) {
    y += 16;
    g.font = `400 11px ${font}`;
    pen.write(fitted(pen, words, room), x, y);
  }
}

/**
 * A way with rounded corners.
 * @param {Pen} pen
 * @param {Point[]} points
 * @param {string} colour
 * @param {number} width
 * @param {boolean} arrow
 */
function drawWay(pen, points, colour, width, arrow) {
  const { g } = pen;
  g.strokeStyle = g.fillStyle = colour;
  g.lineWidth = width;
  g.beginPath();
  g.moveTo(points[0].x, points[0].y);
  for (let i = 1; i < points.length; i++) g.lineTo(points[i].x, points[i].y);
  g.stroke();
  if (!arrow) return;
  const b = points[points.length - 1];
  const a = points[points.length - 2];
  const long = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const dx = (b.x - a.x) / long;
  const dy = (b.y - a.y) / long;
  const size = 4 + width;
  g.beginPath();
  g.moveTo(b.x + dx, b.y + dy);
  g.lineTo(b.x - dx * size - (dy * size) / 2, b.y - dy * size + (dx * size) / 2);
  g.lineTo(b.x - dx * size + (dy * size) / 2, b.y - dy * size - (dx * size) / 2);
  g.closePath();
  g.fill();
}

/**
 * @param {Pen} pen
 * @param {GraphSeen} seen
 * @param {import("./place.js").WirePath} path
 */
function drawWire(pen, { pointed, nodes, chosen }, { wire, points, reaches }) {
  const { ink } = pen;
  const lit =
    (!!pointed &&
      (("wire" in pointed && pointed.wire === wire) ||
        ("node" in pointed && (wire.from === pointed.node || wire.to === pointed.node)))) ||
    (chosen.node !== "" &&
      (nodes[wire.from]?.key === chosen.node || nodes[wire.to]?.key === chosen.node));
  drawWay(pen, points, lit ? ink.focus : ink.edge, lit ? 2 : 1.2, reaches);
}

/**
 * @param {Pen} pen
 * @param {GraphSeen} seen
 * @param {NodeBox} box
 */
function drawNode(
  pen,
  { model, nodes, slowest, timed, ranks, pointed, chosen },
  { node: n, x, y, w, h },
) {
  const { g, ink, font } = pen;
  const node = nodes[n];
  const hit = pointed && "node" in pointed && pointed.node === n;
  const isChosen = chosen.node === node.key;
  g.strokeStyle = ink.edge;
  g.lineWidth = 1;
  for (let i = node.folded ? SHEETS - 1 : 0; i >= 0; i--) {
    g.fillStyle = ink.ground;
    g.beginPath();
    g.roundRect(x + i * 2.5, y - i * 2.5, w - (node.folded ? 5 : 0), h, 4);
    g.fill();
    g.stroke();
  }
  if (hit || isChosen) {
    g.strokeStyle = ink.focus;
    g.lineWidth = 2;
    g.beginPath();
    g.roundRect(x, y, w - (node.folded ? 5 : 0), h, 4);
    g.stroke();
  }
  const wide = w - (node.folded ? 5 : 0);
  const room = wide - 12;
  const parts = node.folded ? undefined : shardingOf(model)?.layers.get(node.layers[0].index);
  const side = parts ? SQUARE + 3 : 0;
  if (parts) {
    drawParts(pen, parts, x + wide - SQUARE - 5, y + 5, SQUARE);
    g.fillStyle = ink.comm;
    if (parts.exchanges.some((e) => e.pass === "forward"))
      g.fillRect(x + wide - 2, y - 2, 4, h + 4);
    if (parts.exchanges.some((e) => e.pass === "backward"))
      for (const dy of [0, 0.4, 0.8]) g.fillRect(x - 2, y - 2 + dy * (h + 4), 4, 0.2 * (h + 4));
  } else {
    pen.box(
      x + 1,
      y + 5,
      2.5,
      h - 10,
      shardingOf(model) ? "edge" : inkOfRank(ink, ranks[node.stage]),
    );
  }
  g.font = `700 11px ${font}`;
  pen.write(nameThatFits(pen, node.name, room - side), x + 7, y + 9.5, "ink", "left", true);
  g.font = `400 11px ${font}`;
  pen.write(
    fitted(
      pen,
      node.folded && g.measureText(node.op).width > room
        ? node.op.replace(/ layers$/, "")
        : node.op,
      room - side,
    ),
    x + 7,
    y + 22,
  );
  const full = room;
  const long = (/** @type {number} */ v) => (slowest > 0 ? (v / slowest) * full : 0);
  const top = y + h - BAR_HIGH - 2.5;
  pen.box(x + 7, top + BAR_HIGH - 1, full, 1, "track");
  if (!timed) {
    pen.box(x + 7, top, long(node.parameters), BAR_HIGH, "done");
    return;
  }
  pen.box(x + 7, top, long(node.forward), BAR_HIGH, "forward");
  pen.hatch(x + 7 + long(node.forward), top, long(node.backward), BAR_HIGH, "backward");
}

/**
 * The handle that folds a block again.
 * @param {Pen} pen
 * @param {import("./place.js").Box & {block: string}} fold
 */
function drawFold(pen, { block, x, y, w, h }) {
  const { g, ink, font } = pen;
  g.font = `400 11px ${font}`;
  const words = fitted(pen, `− ${block}`, w);
  const wide = g.measureText(words).width;
  pen.write(words, x, y + h / 2);
  g.fillStyle = ink.edge;
  if (w - wide > 12) g.fillRect(x + wide + 5, y + h / 2, w - wide - 5, 1);
}

/**
 * @param {Pen} pen
 * @param {GraphSeen} seen
 * @param {import("./place.js").CutLane} cut
 */
function drawCut(
  pen,
  { model, place, crossed, chosen, pointed },
  { border, x, top, height, from, width },
) {
  const { g, ink, font } = pen;
  if (chosen.cut === border || (pointed && "cut" in pointed && pointed.cut === border))
    pen.outline(
      x + 1,
      top + 1,
      place.width - 2,
      height - 2,
      "focus",
      chosen.cut === border ? 2 : 1,
    );
  drawWay(pen, from, ink.comm, width, true);
  const { name, plan, seen } = cutWords(model, border, crossed);
  const room = x + place.right - 8;
  pen.write(name, x + 14, top + 12, "ink", "left", true, 12);
  const after = x + 14 + g.measureText(name).width + 8;
  g.font = `400 11px ${font}`;
  const caption = seen.find((words) => g.measureText(words).width < (room - after) * 0.62) ?? "";
  const left = room - after - (caption ? g.measureText(caption).width + 16 : 0);
  const planned = plan.find((words) => g.measureText(words).width <= left) ?? "";
  pen.write(planned, after, top + 12);
  pen.write(caption, room, top + 12, "ink", "right");
}

/**
 * @param {Pen} pen
 * @param {GraphSeen["comets"][0]} comet
 */
function drawComet(pen, { x, y, gradient, microbatch }) {
  const { g, ink } = pen;
  g.fillStyle = gradient ? ink.ground : ink.comm;
  g.strokeStyle = ink.comm;
  g.lineWidth = 2;
  g.beginPath();
  g.arc(x, y, COMET_R, 0, 7);
  g.fill();
  g.stroke();
  pen.write(String(microbatch), x, y + 0.5, gradient ? "ink" : "on-s1", "center", true);
}

/**
 * Where a message is on the lane of its cut: activations go from right to left, gradients back.
 * @param {GraphPlace} place
 * @param {{cut: number, gradient: boolean, share: number}} parcel
 * @returns {Point}
 */
export function cometSpot(place, { cut, gradient, share }) {
  const lane = place.cuts[cut];
  const edge = COMET_R + 2;
  const way = [
    { x: lane.x + place.right - edge, y: lane.y },
    { x: lane.x + place.left + edge, y: lane.y },
  ];
  return pointAlong(way, gradient ? 1 - share : share);
}

// @ts-check
/**
 * A sharded model drawn: each rank's own part of each layer, and the others' while they are here.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./frame.js").ShardsFrame} ShardsFrame
 * @typedef {import("./frame.js").LayerNow} LayerNow
 * @typedef {import("./place.js").ShardsPlace} ShardsPlace
 * @typedef {{frame: ShardsFrame, place: ShardsPlace, scale: number}} ShardsSeen  scale: bytes at
 *   the end of the bars
 */
import { Pen } from "../../drawing/pen.js";
import { huesOf } from "../../drawing/glyph.js";
import { partOf, topOf } from "./place.js";
import { bytes } from "../../engine/format.js";

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {ShardsSeen} seen
 * @param {number[]} gone  ranks that are no more
 */
export function drawPicture(g, look, { frame, place, scale }, gone) {
  const pen = new Pen(g, look);
  const { ink, choice } = look;
  const ranks = frame.holders.length;
  const hues = huesOf(
    ink,
    Array.from({ length: ranks }, (_, r) => r),
    ranks,
  );
  drawHeads(pen, frame, place);
  for (const holder of frame.holders) {
    const y = topOf(place, holder.rank);
    const middle = y + place.cell / 2;
    if (place.row >= 11)
      pen.write(`rank ${holder.rank}`, 0, middle, "ink", "left", choice?.rank === holder.rank);
    holder.layers.forEach((layer, l) => drawCell(pen, frame, place, hues, holder.rank, l, layer));
    drawHolding(pen, place, holder, scale, middle);
    if (holder.copy && place.row >= 11)
      drawCopy(pen, ranks > 8 ? ink.edge : hues[holder.copy.of], place.left - 9, y, place.cell);
    if (choice?.rank === holder.rank)
      frameOf(
        pen,
        "focus",
        2,
        place.left - 3,
        y - 3,
        place.memory.x - place.left - 8,
        place.cell + 6,
      );
    if (gone.includes(holder.rank)) pen.cross(place.left - 10, middle, 4);
  }
  drawUnsharded(pen, frame, place, scale);
}

/**
 * The copy of another rank's part that a rank keeps: a strip before its layers, in that rank's
 * colour and a dashed frame.
 * @param {Pen} pen
 * @param {string} colour
 * @param {number} x
 * @param {number} y
 * @param {number} h
 */
export function drawCopy(pen, colour, x, y, h) {
  const { g } = pen;
  g.globalAlpha = 0.62;
  pen.box(x, y, 6, h, colour);
  g.globalAlpha = 1;
  frameOf(pen, "ink-2", 1, x, y, 6, h, [2, 2]);
}

/**
 * @param {Pen} pen
 * @param {ShardsFrame} frame
 * @param {ShardsPlace} place
 */
function drawHeads(pen, { layers }, place) {
  const { g, font } = pen;
  g.font = `700 11px ${font}`;
  layers.forEach(({ name, kind, bytes: size }, l) => {
    const { x, w } = place.columns[l];
    const fits = (/** @type {string} */ text) => g.measureText(text).width <= w + 2;
    const short = name.split(".").at(-1) ?? name;
    const first = [`${name} ${kind}`.trim(), name, short].find(fits);
    if (first) pen.write(first, x, 12, "ink", "left", true);
    g.font = `400 11px ${font}`;
    if (size && fits(bytes(size))) pen.write(bytes(size), x, 27, "ink-3");
    g.font = `700 11px ${font}`;
  });
  pen.write("held now", place.memory.x, 12, "ink", "left", true);
}

/**
 * @param {Pen} pen
 * @param {ShardsFrame} frame
 * @param {ShardsPlace} place
 * @param {string[]} hues
 * @param {number} rank
 * @param {number} l
 * @param {LayerNow} layer
 */
function drawCell(pen, frame, place, hues, rank, l, layer) {
  const { g } = pen;
  const column = place.columns[l];
  const y = topOf(place, rank);
  const h = place.cell;
  const ranks = hues.length;
  const layout = frame.layers[l];
  const gathered = layer.state === "whole" || layer.held > 0;
  pen.box(column.x, y, column.w, h, "track");
  for (let r = 0; r < ranks; r++) {
    const part = partOf(column, layout, r, ranks);
    if (part.w <= 0) continue;
    const isOwner = r === rank;
    const arrived =
      layer.state === "gathering" || layer.state === "there" ? (layer.arrived[r] ?? 0) : 0;
    if (isOwner || gathered) {
      g.globalAlpha = isOwner || ranks > 8 ? 1 : 0.62;
      pen.box(part.x, y, part.w, h, ranks > 8 ? (isOwner ? "ink" : "edge") : hues[r]);
      g.globalAlpha = 1;
    } else if (arrived > 0) {
      g.globalAlpha = ranks > 8 ? 1 : 0.62;
      pen.box(part.x, y + h * (1 - arrived), part.w, h * arrived, ranks > 8 ? "edge" : hues[r]);
      g.globalAlpha = 1;
    }
    if (place.level === "slots" && r) pen.box(part.x - 0.5, y, 1, h, "ground");
    if (place.level === "slots" && part.w >= 13 && h >= 16 && (isOwner || gathered))
      pen.write(
        String(r),
        part.x + part.w / 2,
        y + h / 2 + 0.5,
        isOwner ? `on-s${r}` : "ink",
        "center",
        isOwner,
      );
  }
  if (layer.state === "reducing") {
    const each = column.w / ranks;
    const tall = Math.max(2, Math.min(6, h / 4));
    layer.arrived.forEach(
      (share, r) =>
        share > 0 && pen.box(column.x + r * each, y + h - tall, each * share, tall, "comm"),
    );
    frameOf(pen, "comm", 2, column.x, y, column.w, h);
  } else if (layer.state === "gathering" || layer.state === "there") {
    frameOf(pen, "comm", 2.5, column.x, y, column.w, h, layer.state === "there" ? [4, 3] : []);
  } else if (gathered) frameOf(pen, "ink", 1.5, column.x, y, column.w, h);
  else if (place.row > 8) frameOf(pen, "edge", 0.75, column.x, y, column.w, h);
  if (layout.bytes && !layout.parts[rank] && !gathered && place.row > 8)
    pen.hatch(column.x, y, Math.min(6, column.w), h, "ink-3"); // it keeps nothing of this layer
}

/**
 * What a rank holds: the model's part of it solid, activations open; a tick at the most so far.
 * @param {Pen} pen
 * @param {ShardsPlace} place
 * @param {import("./frame.js").HolderNow} holder
 * @param {number} scale
 * @param {number} middle
 */
function drawHolding(pen, place, { held, active, peak }, scale, middle) {
  const { x, w } = place.memory;
  const words = place.row >= 11 ? 62 : 0;
  const room = w - words;
  const X = (/** @type {number} */ n) => (n / scale) * room;
  const tall = Math.max(2, Math.min(14, place.cell - 2));
  const y = middle - tall / 2;
  pen.box(x, y, room, tall, "track");
  pen.box(x, y, X(held - active), tall, "done");
  if (active > 0) frameOf(pen, "done", 1, x + X(held - active), y + 0.5, X(active), tall - 1);
  if (peak > 0 && tall >= 5) pen.box(x + X(peak) - 0.75, y - 2, 1.5, tall + 4, "ink-2");
  if (words && held) pen.write(bytes(held), x + w, middle, "ink", "right");
}

/**
 * The theory: what a rank that keeps all would hold, without activations.
 * @param {Pen} pen
 * @param {ShardsFrame} frame
 * @param {ShardsPlace} place
 * @param {number} scale
 */
function drawUnsharded(pen, { unsharded, holders }, place, scale) {
  const { g, font } = pen;
  if (!unsharded) return;
  const { x, w } = place.memory;
  const room = w - (place.row >= 11 ? 62 : 0);
  const at = x + (unsharded / scale) * room;
  pen.box(at - 0.5, place.top - 4, 1, holders.length * place.row + 8, "ideal");
  g.font = `400 11px ${font}`;
  const full = `unsharded, no activations: ${bytes(unsharded)}`;
  const words = g.measureText(full).width <= w ? full : `unsharded ${bytes(unsharded)}`;
  const half = g.measureText(words).width / 2;
  pen.write(
    words,
    Math.max(x + half, Math.min(x + w - half, at)),
    place.top + holders.length * place.row + 13,
    "ink-2",
    "center",
  );
}

/**
 * @param {Pen} pen
 * @param {string} colour
 * @param {number} width
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {number[]} [dash]
 */
export function frameOf(pen, colour, width, x, y, w, h, dash = []) {
  pen.outline(
    x + width / 2,
    y + width / 2,
    Math.max(0, w - width),
    Math.max(0, h - width),
    colour,
    width,
    dash,
  );
}

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
import { cross, huesOf } from "../../drawing/glyph.js";
import { hatched } from "../../drawing/hatch.js";
import { writeAt } from "../../drawing/colors.js";
import { partOf, topOf } from "./place.js";
import { bytes } from "../../engine/format.js";

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {ShardsSeen} seen
 * @param {number[]} gone  ranks that are no more
 */
export function drawPicture(g, look, { frame, place, scale }, gone) {
  const { ink, font, choice } = look;
  const ranks = frame.holders.length;
  const hues = huesOf(
    ink,
    Array.from({ length: ranks }, (_, r) => r),
    ranks,
  );
  drawHeads(g, look, frame, place);
  for (const holder of frame.holders) {
    const y = topOf(place, holder.rank);
    const middle = y + place.cell / 2;
    if (place.row >= 11)
      writeAt(
        g,
        font,
        `rank ${holder.rank}`,
        0,
        middle,
        ink.ink,
        "left",
        choice?.rank === holder.rank,
      );
    holder.layers.forEach((layer, l) =>
      drawCell(g, look, frame, place, hues, holder.rank, l, layer),
    );
    drawHolding(g, look, place, holder, scale, middle);
    if (holder.copy && place.row >= 11)
      drawCopy(g, ink, ranks > 8 ? ink.edge : hues[holder.copy.of], place.left - 9, y, place.cell);
    if (choice?.rank === holder.rank)
      frameOf(
        g,
        ink.focus,
        2,
        place.left - 3,
        y - 3,
        place.memory.x - place.left - 8,
        place.cell + 6,
      );
    if (gone.includes(holder.rank)) {
      g.strokeStyle = ink.fault;
      g.lineWidth = 2.5;
      cross(g, place.left - 10, middle, 4);
    }
  }
  drawUnsharded(g, look, frame, place, scale);
}

/**
 * The copy of another rank's part that a rank keeps: a strip before its layers, in that rank's
 * colour and a dashed frame.
 * @param {CanvasRenderingContext2D} g
 * @param {Look["ink"]} ink
 * @param {string} colour
 * @param {number} x
 * @param {number} y
 * @param {number} h
 */
export function drawCopy(g, ink, colour, x, y, h) {
  g.globalAlpha = 0.62;
  g.fillStyle = colour;
  g.fillRect(x, y, 6, h);
  g.globalAlpha = 1;
  frameOf(g, ink["ink-2"], 1, x, y, 6, h, [2, 2]);
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {ShardsFrame} frame
 * @param {ShardsPlace} place
 */
function drawHeads(g, { ink, font }, { layers }, place) {
  g.font = `700 11px ${font}`;
  layers.forEach(({ name, kind, bytes: size }, l) => {
    const { x, w } = place.columns[l];
    const fits = (/** @type {string} */ text) => g.measureText(text).width <= w + 2;
    const short = name.split(".").at(-1) ?? name;
    const first = [`${name} ${kind}`.trim(), name, short].find(fits);
    if (first) writeAt(g, font, first, x, 12, ink.ink, "left", true);
    g.font = `400 11px ${font}`;
    if (size && fits(bytes(size))) writeAt(g, font, bytes(size), x, 27, ink["ink-3"]);
    g.font = `700 11px ${font}`;
  });
  writeAt(g, font, "held now", place.memory.x, 12, ink.ink, "left", true);
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {ShardsFrame} frame
 * @param {ShardsPlace} place
 * @param {string[]} hues
 * @param {number} rank
 * @param {number} l
 * @param {LayerNow} layer
 */
function drawCell(g, { ink, font, ratio }, frame, place, hues, rank, l, layer) {
  const column = place.columns[l];
  const y = topOf(place, rank);
  const h = place.cell;
  const ranks = hues.length;
  const layout = frame.layers[l];
  const gathered = layer.state === "whole" || layer.held > 0;
  g.fillStyle = ink.track;
  g.fillRect(column.x, y, column.w, h);
  for (let r = 0; r < ranks; r++) {
    const part = partOf(column, layout, r, ranks);
    if (part.w <= 0) continue;
    const isOwner = r === rank;
    const arrived =
      layer.state === "gathering" || layer.state === "there" ? (layer.arrived[r] ?? 0) : 0;
    if (isOwner || gathered) {
      g.globalAlpha = isOwner || ranks > 8 ? 1 : 0.62;
      g.fillStyle = ranks > 8 ? (isOwner ? ink.ink : ink.edge) : hues[r];
      g.fillRect(part.x, y, part.w, h);
      g.globalAlpha = 1;
    } else if (arrived > 0) {
      g.globalAlpha = ranks > 8 ? 1 : 0.62;
      g.fillStyle = ranks > 8 ? ink.edge : hues[r];
      g.fillRect(part.x, y + h * (1 - arrived), part.w, h * arrived);
      g.globalAlpha = 1;
    }
    if (place.level === "slots" && r)
      ((g.fillStyle = ink.ground), g.fillRect(part.x - 0.5, y, 1, h));
    if (place.level === "slots" && part.w >= 13 && h >= 16 && (isOwner || gathered))
      writeAt(
        g,
        font,
        String(r),
        part.x + part.w / 2,
        y + h / 2 + 0.5,
        isOwner ? ink[`on-s${r}`] : ink.ink,
        "center",
        isOwner,
      );
  }
  if (layer.state === "reducing") {
    const each = column.w / ranks;
    const tall = Math.max(2, Math.min(6, h / 4));
    layer.arrived.forEach(
      (share, r) =>
        share > 0 &&
        ((g.fillStyle = ink.comm),
        g.fillRect(column.x + r * each, y + h - tall, each * share, tall)),
    );
    frameOf(g, ink.comm, 2, column.x, y, column.w, h);
  } else if (layer.state === "gathering" || layer.state === "there") {
    frameOf(g, ink.comm, 2.5, column.x, y, column.w, h, layer.state === "there" ? [4, 3] : []);
  } else if (gathered) frameOf(g, ink.ink, 1.5, column.x, y, column.w, h);
  else if (place.row > 8) frameOf(g, ink.edge, 0.75, column.x, y, column.w, h);
  if (layout.bytes && !layout.parts[rank] && !gathered && place.row > 8) {
    g.fillStyle = hatched(ink["ink-3"], ratio); // it keeps nothing of this layer
    g.fillRect(column.x, y, Math.min(6, column.w), h);
  }
}

/**
 * What a rank holds: the model's part of it solid, activations open; a tick at the most so far.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {ShardsPlace} place
 * @param {import("./frame.js").HolderNow} holder
 * @param {number} scale
 * @param {number} middle
 */
function drawHolding(g, { ink, font }, place, { held, active, peak }, scale, middle) {
  const { x, w } = place.memory;
  const words = place.row >= 11 ? 62 : 0;
  const room = w - words;
  const X = (/** @type {number} */ n) => (n / scale) * room;
  const tall = Math.max(2, Math.min(14, place.cell - 2));
  const y = middle - tall / 2;
  g.fillStyle = ink.track;
  g.fillRect(x, y, room, tall);
  g.fillStyle = ink.done;
  g.fillRect(x, y, X(held - active), tall);
  if (active > 0) frameOf(g, ink.done, 1, x + X(held - active), y + 0.5, X(active), tall - 1);
  if (peak > 0 && tall >= 5)
    ((g.fillStyle = ink["ink-2"]), g.fillRect(x + X(peak) - 0.75, y - 2, 1.5, tall + 4));
  if (words && held) writeAt(g, font, bytes(held), x + w, middle, ink.ink, "right");
}

/**
 * The theory: what a rank that keeps all would hold, without activations.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {ShardsFrame} frame
 * @param {ShardsPlace} place
 * @param {number} scale
 */
function drawUnsharded(g, { ink, font }, { unsharded, holders }, place, scale) {
  if (!unsharded) return;
  const { x, w } = place.memory;
  const room = w - (place.row >= 11 ? 62 : 0);
  const at = x + (unsharded / scale) * room;
  g.fillStyle = ink.ideal;
  g.fillRect(at - 0.5, place.top - 4, 1, holders.length * place.row + 8);
  g.font = `400 11px ${font}`;
  const full = `unsharded, no activations: ${bytes(unsharded)}`;
  const words = g.measureText(full).width <= w ? full : `unsharded ${bytes(unsharded)}`;
  const half = g.measureText(words).width / 2;
  writeAt(
    g,
    font,
    words,
    Math.max(x + half, Math.min(x + w - half, at)),
    place.top + holders.length * place.row + 13,
    ink["ink-2"],
    "center",
  );
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {string} colour
 * @param {number} width
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {number[]} [dash]
 */
export function frameOf(g, colour, width, x, y, w, h, dash = []) {
  g.strokeStyle = colour;
  g.lineWidth = width;
  g.setLineDash(dash);
  g.strokeRect(x + width / 2, y + width / 2, Math.max(0, w - width), Math.max(0, h - width));
  g.setLineDash([]);
}

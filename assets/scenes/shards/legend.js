// @ts-check
/**
 * The keys of the sharded model's picture, drawn as the picture draws them.
 *
 * @typedef {import("../../drawing/key_row.js").KeyItem} KeyItem
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../drawing/pen.js").Pen} Pen
 */
import { keyItems } from "../../drawing/key_row.js";
import { drawCopy, frameOf } from "./draw.js";

/**
 * @param {Look} _
 * @param {import("./draw.js").ShardsSeen} seen
 * @param {boolean} lost
 * @returns {KeyItem[]}
 */
export function keysOf(_, { frame, place }, lost) {
  const { items, put: putWide } = keyItems(place.level);
  const many = frame.holders.length > 8;
  const ours = many ? "ink" : "s0";
  const other = many ? "edge" : "s1";
  const put = (
    /** @type {string} */ name,
    /** @type {string} */ words,
    /** @type {KeyItem["draw"]} */ draw,
  ) => putWide(name, 26, words, draw);
  const cell = (/** @type {Pen} */ pen, /** @type {string} */ line, /** @type {number} */ width) =>
    frameOf(pen, line, width, 0, 1, 26, 14);
  const fill = (
    /** @type {Pen} */ pen,
    /** @type {string} */ colour,
    /** @type {number} */ x,
    /** @type {number} */ w,
    alpha = 1,
    /** @type {number} */ y = 1,
    h = 14,
  ) => {
    pen.g.globalAlpha = alpha;
    pen.box(x, y, w, h, colour);
    pen.g.globalAlpha = 1;
  };
  put(
    "part",
    "a layer: its own part of it",
    (pen) => (fill(pen, "track", 0, 26), fill(pen, ours, 0, 9), cell(pen, "edge", 0.75)),
  );
  put(
    "gathering",
    "the others' parts arrive",
    (pen) => (
      fill(pen, "track", 0, 26),
      fill(pen, ours, 0, 9),
      fill(pen, other, 9, 9, many ? 1 : 0.62, 7, 8),
      cell(pen, "comm", 2.5)
    ),
  );
  put(
    "whole",
    "whole here",
    (pen) => (
      fill(pen, ours, 0, 9),
      fill(pen, other, 9, 17, many ? 1 : 0.62),
      cell(pen, "ink", 1.5)
    ),
  );
  put(
    "reducing",
    "gradients are added up, each keeps its part",
    (pen) => (
      fill(pen, "track", 0, 26),
      fill(pen, ours, 0, 9),
      fill(pen, "comm", 0, 17, 1, 11, 4),
      cell(pen, "comm", 2)
    ),
  );
  if (frame.holders.some(({ copy }) => copy))
    put("copy", "a copy of another rank's part, for its loss", (pen) =>
      drawCopy(pen, other, 10, 1, 14),
    );
  if (frame.layers.some(({ parts, bytes }) => bytes && parts.includes(0)))
    put(
      "none",
      "keeps nothing of it",
      (pen) => (
        fill(pen, "track", 0, 26),
        pen.hatch(0, 1, 6, 14, "ink-3"),
        cell(pen, "edge", 0.75)
      ),
    );
  put(
    "held",
    "held: the model's, and activations",
    (pen) => (fill(pen, "done", 0, 14, 1, 3, 10), frameOf(pen, "done", 1, 14, 3, 11, 10)),
  );
  put("peak", "most so far", (pen) => fill(pen, "ink-2", 12, 1.5));
  put("unsharded", "theory: parameters, gradients and optimiser's state on one rank", (pen) =>
    fill(pen, "ideal", 12, 1),
  );
  if (lost) put("lost", "gone", (pen) => pen.cross(13, 8, 5));
  return items;
}

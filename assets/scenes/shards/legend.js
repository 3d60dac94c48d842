// @ts-check
/**
 * The keys of the sharded model's picture, drawn as the picture draws them.
 *
 * @typedef {import("../../drawing/key_row.js").KeyItem} KeyItem
 * @typedef {import("../../chrome/stage.js").Look} Look
 */
import { cross } from "../../drawing/glyph.js";
import { drawCopy, frameOf } from "./draw.js";
import { hatched } from "../../drawing/hatch.js";

/**
 * @param {Look} look
 * @param {import("./draw.js").ShardsSeen} seen
 * @param {boolean} lost
 * @returns {KeyItem[]}
 */
export function keysOf({ ink, ratio }, { frame, place }, lost) {
  const items = /** @type {KeyItem[]} */ ([]);
  const many = frame.holders.length > 8;
  const ours = many ? ink.ink : ink.s0;
  const other = many ? ink.edge : ink.s1;
  const put = (
    /** @type {string} */ name,
    /** @type {string} */ words,
    /** @type {KeyItem["draw"]} */ draw,
  ) => items.push({ name: `${name} ${place.level}`, words, width: 26, draw });
  const cell = (
    /** @type {CanvasRenderingContext2D} */ g,
    /** @type {string} */ line,
    /** @type {number} */ width,
    /** @type {number[]} */ dash = [],
  ) => frameOf(g, line, width, 0, 1, 26, 14, dash);
  const fill = (
    /** @type {CanvasRenderingContext2D} */ g,
    /** @type {string} */ colour,
    /** @type {number} */ x,
    /** @type {number} */ w,
    alpha = 1,
    /** @type {number} */ y = 1,
    h = 14,
  ) => {
    g.globalAlpha = alpha;
    g.fillStyle = colour;
    g.fillRect(x, y, w, h);
    g.globalAlpha = 1;
  };
  put(
    "part",
    "a layer: its own part of it",
    (g) => (fill(g, ink.track, 0, 26), fill(g, ours, 0, 9), cell(g, ink.edge, 0.75)),
  );
  put(
    "gathering",
    "the others' parts arrive",
    (g) => (
      fill(g, ink.track, 0, 26),
      fill(g, ours, 0, 9),
      fill(g, other, 9, 9, many ? 1 : 0.62, 7, 8),
      cell(g, ink.comm, 2.5)
    ),
  );
  put(
    "whole",
    "whole here",
    (g) => (fill(g, ours, 0, 9), fill(g, other, 9, 17, many ? 1 : 0.62), cell(g, ink.ink, 1.5)),
  );
  put(
    "reducing",
    "gradients are added up, each keeps its part",
    (g) => (
      fill(g, ink.track, 0, 26),
      fill(g, ours, 0, 9),
      fill(g, ink.comm, 0, 17, 1, 11, 4),
      cell(g, ink.comm, 2)
    ),
  );
  if (frame.holders.some(({ copy }) => copy))
    put("copy", "a copy of another rank's part, for its loss", (g) =>
      drawCopy(g, ink, other, 10, 1, 14),
    );
  if (frame.layers.some(({ parts, bytes }) => bytes && parts.includes(0)))
    put(
      "none",
      "keeps nothing of it",
      (g) => (
        fill(g, ink.track, 0, 26),
        (g.fillStyle = hatched(ink["ink-3"], ratio)),
        g.fillRect(0, 1, 6, 14),
        cell(g, ink.edge, 0.75)
      ),
    );
  put(
    "held",
    "held: the model's, and activations",
    (g) => (fill(g, ink.done, 0, 14, 1, 3, 10), frameOf(g, ink.done, 1, 14, 3, 11, 10)),
  );
  put("peak", "most so far", (g) => fill(g, ink["ink-2"], 12, 1.5));
  put("unsharded", "theory: parameters, gradients and optimiser's state on one rank", (g) =>
    fill(g, ink.ideal, 12, 1),
  );
  if (lost)
    put("lost", "gone", (g) => {
      g.strokeStyle = ink.fault;
      g.lineWidth = 2.5;
      cross(g, 13, 8, 5);
    });
  return items;
}

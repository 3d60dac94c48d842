// @ts-check
/**
 * The keys of a model's picture: every mark that it shows, drawn as the picture draws it.
 *
 * @typedef {import("../../drawing/key_row.js").KeyItem} KeyItem
 * @typedef {import("./draw.js").GraphSeen} GraphSeen
 */
import { keyItems } from "../../drawing/key_row.js";
import { drawParts, shardingOf } from "./shards.js";
import { hatched } from "../../drawing/hatch.js";
import { inkOfRank } from "./draw.js";
import { bytes, duration } from "../../engine/format.js";

/**
 * @param {import("../../chrome/stage.js").Look} look
 * @param {GraphSeen} seen
 * @param {boolean} moves  messages have been sent
 * @param {boolean} held  memory was measured
 * @returns {KeyItem[]}
 */
export function keysOf({ ink, ratio }, { model, nodes, ranks, timed, slowest }, moves, held) {
  const { items, put } = keyItems();
  const bar =
    (/** @type {() => string | CanvasPattern} */ fill) =>
    (/** @type {import("../../drawing/pen.js").Pen} */ pen) =>
      pen.box(0, 5, 20, 6, fill());
  const sharding = shardingOf(model);
  const stripes = (/** @type {string} */ how) => ({
    how,
    words: "",
    exchanges: [],
    shares: Array(sharding?.ranks ?? 1).fill(1 / (sharding?.ranks ?? 1)),
  });
  if (sharding) {
    put(
      `column ${sharding.ranks}`,
      16,
      `outputs split over ranks 0 to ${sharding.ranks - 1}`,
      (pen) => drawParts(pen, stripes("column"), 0, 0, 15),
    );
    put(`row ${sharding.ranks}`, 16, "inputs split, rank 0 on top", (pen) =>
      drawParts(pen, stripes("row"), 0, 0, 15),
    );
    put("whole", 16, "whole on every rank", (pen) => drawParts(pen, stripes("whole"), 0, 0, 15));
    put("forward exchange", 6, "exchanges bytes forward", (pen) => pen.box(1, 0, 4, 16, "comm"));
    put(
      "backward exchange",
      6,
      "backward",
      ({ g }) => (
        (g.fillStyle = ink.comm),
        [0, 0.4, 0.8].forEach((dy) => g.fillRect(1, dy * 16, 4, 3.2))
      ),
    );
  } else
    put(`band ${ranks.join()}`, 22, "colour: the rank that has the layer", (pen) =>
      [0, 1].forEach((r) => pen.box(r * 11, 3, 10, 10, inkOfRank(ink, r))),
    );
  if (nodes.some((n) => n.folded))
    put("folded", 24, "folded block: click to open", ({ g }) => {
      g.strokeStyle = ink.edge;
      g.fillStyle = ink.ground;
      for (let i = 2; i >= 0; i--)
        (g.beginPath(),
          g.roundRect(1 + i * 2.5, 5 - i * 2.5 + 0.5, 16, 9, 2),
          g.fill(),
          g.stroke());
    });
  if (timed) {
    put(
      "forward",
      20,
      "forward",
      bar(() => ink.forward),
    );
    put(
      "backward",
      20,
      `backward; the longest bar is ${duration(slowest * 1e6)}`,
      bar(() => hatched(ink.backward, ratio)),
    );
  } else if (slowest > 0)
    put(
      "size",
      20,
      `parameters; the longest bar is ${bytes(slowest)}`,
      bar(() => ink.done),
    );
  if (model.stages > 1) {
    put("crosses", 22, "bytes that cross a cut: width", (pen) =>
      [0, 1].forEach((k) => pen.box(k * 11, 8 - (1.5 + 4.5 * k) / 2, 11, 1.5 + 4.5 * k, "comm")),
    );
    put(
      "equal",
      10,
      "above: the cuts; small ticks: all stages alike",
      (pen) => (pen.box(1, 1, 1.5, 14, "ideal"), pen.g.fillRect(7, 12, 1, 3)),
    );
  }
  if (moves)
    for (const gradient of [false, true])
      put(
        `comet ${gradient}`,
        17,
        gradient
          ? "gradient of microbatch 3 on its way, back"
          : "activations of microbatch 3 on their way",
        (pen) => {
          pen.g.fillStyle = gradient ? ink.ground : ink.comm;
          pen.g.strokeStyle = ink.comm;
          pen.g.lineWidth = 2;
          pen.g.beginPath();
          pen.g.arc(8, 8, 6.5, 0, 7);
          pen.g.fill();
          pen.g.stroke();
          pen.write("3", 8, 8.5, gradient ? "ink" : "on-s1", "center", true);
        },
      );
  if (held)
    put(
      "most",
      20,
      "most memory so far, measured; ✕ beyond the limit",
      bar(() => inkOfRank(ink, 0)),
    );
  put(
    "parameters",
    20,
    `${held ? "planned: " : ""}parameters`,
    bar(() => ink.done),
  );
  put(
    "activations",
    20,
    sharding
      ? ""
      : model.memory
        ? "gradients, the optimizer's state, activations at most"
        : held
          ? "and activations at the schedule's most"
          : "activations kept for backward",
    bar(() => hatched(ink.done, ratio)),
  );
  return items.filter((item) => item.words);
}

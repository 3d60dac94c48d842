// @ts-check
/**
 * The keys of a partition's picture: every mark that it shows, drawn as the picture draws it.
 *
 * @typedef {import("../../drawing/key_row.js").KeyItem} KeyItem
 * @typedef {import("./draw.js").DealSeen} DealSeen
 */
import { keyItems } from "../../drawing/key_row.js";
import { dealInk, drawHere } from "./draw.js";

/**
 * @param {import("../../chrome/stage.js").Look} look
 * @param {DealSeen} seen
 * @returns {KeyItem[]}
 */
export function keysOf(look, { deal, place, runs, rank }) {
  const { ink } = look;
  const { items, put } = keyItems();
  const batches = place.panels.map((p) => deal.batches[p.index]);
  put(
    `alone ${place.plain}`,
    16,
    place.plain
      ? "one process's sample, in its order"
      : "one process's sample, in its order; below it who takes it",
    (pen) => {
      pen.box(0, 1, 16, 14, "track");
      if (place.plain) return;
      pen.box(0, 12.5, 16, 2.5, dealInk(ink, deal, 0, rank));
    },
  );
  put(
    `taken ${rank} ${deal.ranks.length}`,
    16,
    `taken by a rank${deal.ranks.length > 8 ? "" : ", its colour"}`,
    (pen) => pen.box(0, 1, 16, 14, dealInk(ink, deal, 0, rank)),
  );
  if (batches.some((b) => b.again))
    put("again", 16, "taken again: this epoch has had it", (pen) => {
      pen.hatch(0, 1, 16, 14, dealInk(ink, deal, 0, rank));
      pen.outline(0.75, 1.75, 14.5, 12.5, dealInk(ink, deal, 0, rank), 1.5);
    });
  if (batches.some((b) => b.lack))
    put("lack", 16, "not taken in this minibatch", ({ g }) => {
      g.strokeStyle = ink.ink;
      g.setLineDash([2, 2]);
      g.strokeRect(0.5, 1.5, 15, 13);
      g.setLineDash([]);
    });
  if (batches.some((b) => b.columns.length > b.wide && b.wide))
    put("extra", 3, "right of the line: not in one process's minibatch", (pen) =>
      pen.box(1, 0, 1, 16, "edge"),
    );
  put("same", 0, "✓ the ranks together take what one process takes; ≠ they do not", () => {});
  if (runs) {
    put("here", 10, "in this minibatch at the playhead", (pen) => drawHere(pen, 10, 8, 4));
    put("later", 16, "pale: still to come", (pen) => {
      pen.g.globalAlpha = 0.35;
      pen.box(0, 1, 16, 14, dealInk(ink, deal, 0, rank));
    });
  }
  return items;
}

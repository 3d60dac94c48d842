// @ts-check
/**
 * The keys of the recovery's picture, drawn as the picture draws them.
 *
 * @typedef {import("../../drawing/key_row.js").KeyItem} KeyItem
 */
import { RECOVERY_PHASES } from "../../engine/recoveries.js";
import { cross } from "../../drawing/glyph.js";
import { PHASE_WORDS } from "./captions.js";
import { drawPhase } from "./draw.js";

/** @type {Record<string, string>} */
const KEY_WORDS = {
  detect: "detect: until the driver has noticed",
  abort: "abort: survivors leave",
  rebuild: "rebuild: the next group forms",
  restore: "restore: kept, or from a file",
  first: "first iteration that all have finished",
};

/**
 * @param {import("../../chrome/stage.js").Look} look
 * @returns {KeyItem[]}
 */
export function keysOf(look) {
  const unchosen = { ...look, chosen: -1 };
  /** @type {KeyItem[]} */
  const items = RECOVERY_PHASES.map((phase) => ({
    name: phase,
    words: KEY_WORDS[phase] ?? PHASE_WORDS[phase][0],
    width: 22,
    draw: (/** @type {CanvasRenderingContext2D} */ g) =>
      drawPhase(g, unchosen, phase, 0, 3, 22, 10),
  }));
  items.splice(RECOVERY_PHASES.indexOf("first"), 0, {
    name: "received",
    words: "restore: received",
    width: 22,
    draw: (g) => drawPhase(g, unchosen, "restore", 0, 3, 22, 10, true),
  });
  return [
    ...items,
    {
      name: "lost",
      words: "a rank ends",
      width: 14,
      draw: (g) => {
        g.strokeStyle = look.ink.fault;
        g.lineWidth = 2.5;
        cross(g, 7, 8, 4.5);
      },
    },
  ];
}

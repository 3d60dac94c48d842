// @ts-check
/**
 * The keys of the recovery's picture, drawn as the picture draws them.
 *
 * @typedef {import("../../drawing/key_row.js").KeyItem} KeyItem
 */
import { RECOVERY_PHASES } from "../../engine/recoveries.js";
import { keyItems } from "../../drawing/key_row.js";
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

/** @returns {KeyItem[]} */
export function keysOf() {
  const { items, put } = keyItems();
  for (const phase of RECOVERY_PHASES) {
    if (phase === "first")
      put("received", 22, "restore: received", (pen) =>
        drawPhase(pen, "restore", 0, 3, 22, 10, true),
      );
    put(phase, 22, KEY_WORDS[phase] ?? PHASE_WORDS[phase][0], (pen) =>
      drawPhase(pen, phase, 0, 3, 22, 10),
    );
  }
  put("lost", 14, "a rank ends", (pen) => pen.cross(7, 8, 4.5));
  return items;
}

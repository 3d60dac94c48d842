// @ts-check
/**
 * The row that opens the menu of a rank or a link without a pointer.
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("./stage.js").Look} Look
 */
import { whyNot } from "../engine/actions.js";
import { openRankMenu } from "./rank_menu.js";
import { fillTargets, piece, targetOf } from "./targets.js";

/**
 * A row with a menu of ranks and links, for who does not click the picture.
 * @param {HTMLElement} body @param {Stage} stage
 */
export function rankMenuBar(body, stage) {
  const label = piece("label", "wb-rank-menu-bar");
  const menu = document.createElement("select");
  const open = /** @type {HTMLButtonElement} */ (piece("button", "", "Change …"));
  label.append(piece("span", "wb-sr", "Rank or link"), menu);
  body.append(label, open);
  open.onclick = () => openRankMenu(stage, targetOf(menu.value));
  return {
    /** @param {Look} look */
    say({ known }) {
      const why = whyNot(known);
      if (!why) fillTargets(menu, stage, menu.value);
      if (!menu.options.length) menu.append(new Option("a rank or a link", ""));
      label.hidden = open.hidden = !!why || !menu.value; // what cannot be done is not offered
      return why;
    },
  };
}

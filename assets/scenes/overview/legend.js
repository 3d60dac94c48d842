// @ts-check
/**
 * The key to the overview's circle and list.
 *
 * @typedef {import("../../engine/rank_activity.js").DoingMark} DoingMark
 */
import { MARKS, markIcon } from "../../drawing/rank_circle.js";

/** Fill the row of keys: they are all there from the start. @param {HTMLElement} key */
export function fillOverviewKey(key) {
  for (const mark of /** @type {DoingMark[]} */ ([
    "compute",
    "move",
    "wait",
    "serve",
    "held",
    "frozen",
    "ended",
    "killed",
  ])) {
    const item = key.appendChild(document.createElement("span"));
    item.append(markIcon(mark), MARKS[mark].words);
    item.hidden = mark === "serve"; // shown where ranks serve examples
    item.dataset.mark = mark;
  }
  key
    .appendChild(document.createElement("span"))
    .append(markIcon("compute", true), "computes while a message waits");
  key
    .appendChild(document.createElement("span"))
    .append(
      Object.assign(document.createElement("i"), { className: "link" }),
      "link made slower by us",
    );
}

// @ts-check
/**
 * The key to the overview's circle and list.
 *
 * @typedef {import("../../engine/rank_activity.js").DoingMark} DoingMark
 */
import { MARKS, markIcon } from "../../drawing/rank_circle.js";

/** Which keys are shown only where there is something of the kind. */
const SOMETIMES = ["serve", "server", "away"];
/** Of what we do to ranks: not where a page only watches. */
export const OURS = ["held", "frozen", "link"];

/** Fill the row of keys: they are all there from the start. @param {HTMLElement} key */
export function fillOverviewKey(key) {
  for (const mark of /** @type {DoingMark[]} */ ([
    "compute",
    "move",
    "wait",
    "serve",
    "held",
    "frozen",
    "away",
    "ended",
    "killed",
  ])) {
    const item = key.appendChild(document.createElement("span"));
    item.append(markIcon(mark), MARKS[mark].words);
    item.dataset.mark = mark;
  }
  const server = key.appendChild(document.createElement("span"));
  server.append(markIcon("none", false, true), "server");
  server.dataset.mark = "server";
  key
    .appendChild(document.createElement("span"))
    .append(markIcon("compute", true), "computes while a message waits");
  const link = key.appendChild(document.createElement("span"));
  link.append(
    Object.assign(document.createElement("i"), { className: "link" }),
    "emulated link: made by us",
  );
  link.dataset.mark = "link";
  showKeys(key, Object.fromEntries(OURS.map((mark) => [mark, true])));
}

/**
 * Show these of the keys that are not always there.
 * @param {HTMLElement} key
 * @param {Record<string, boolean>} shown  by their marks
 */
export function showKeys(key, shown) {
  for (const mark of [...SOMETIMES, ...OURS]) {
    const item = /** @type {HTMLElement} */ (key.querySelector(`[data-mark=${mark}]`));
    if (item.hidden !== !shown[mark]) item.hidden = !shown[mark];
  }
}

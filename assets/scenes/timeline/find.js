// @ts-check
/**
 * A search among what the lanes show: collectives and computing by name. Enter goes to the next one after
 * the playhead, Shift-Enter to the one before.
 *
 * @typedef {import("./scene.js").TimelineView} TimelineView
 * @typedef {import("./index.js").TimelineIndex} TimelineIndex
 */
import { chooseInLanes } from "./pointer.js";
import { grouped } from "../../engine/format.js";

/**
 * The rows whose name, kind or collective holds a text, in the order of their start.
 * @param {TimelineIndex} index @param {string} text @param {number[]} ranks
 * @returns {{rank: number, row: number, t: number}[]}
 */
export function rowsFound(index, text, ranks) {
  const { table } = index;
  const plain = (/** @type {string} */ one) => one.toLowerCase().replaceAll(/[_-]/g, " ");
  const sought = plain(text.trim());
  if (!sought) return [];
  const having = table.strings.map((one) => plain(one).includes(sought));
  const kinds = table.kinds.map((one) => plain(one).includes(sought));
  const found = [];
  for (const rank of ranks) {
    const lines = index.ranks.get(rank);
    for (const list of lines ? [lines.calls, lines.computed] : [])
      for (let i = 0; i < list.length; i++) {
        const row = list.rows[i] - table.forgotten;
        const is = table.passages.collective[table.passage[row]];
        if (having[table.name[row]] || having[is] || kinds[table.kind[row]])
          found.push({ rank, row, t: table.start[row] });
      }
  }
  return found.sort((a, b) => a.t - b.t);
}

/** @param {TimelineView} view */
export function listenFind(view) {
  const input = view.$("[data-rows=find]");
  const answer = view.$(".wb-tl-found");
  const { stage } = view;
  let at = NaN; // where the last one was: of those that start at once each has its turn
  input.oninput = () => {
    at = NaN;
    answer.textContent = "";
  };
  input.onkeydown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") stage.root.focus({ preventScroll: true });
    if (event.key !== "Enter" || !view.index) return;
    event.preventDefault();
    const found = rowsFound(view.index, input.value, view.ranks);
    const { t } = stage.look(performance.now());
    const after = found.findIndex((one) => one.t > t);
    const next = event.shiftKey
      ? (Number.isNaN(at) ? (after < 0 ? found.length : after) : at) - 1
      : Number.isNaN(at)
        ? Math.max(0, after)
        : at + 1;
    at = found.length ? (next + found.length) % found.length : NaN;
    answer.textContent = found.length ? `${grouped(at + 1)} of ${grouped(found.length)}` : "none";
    const one = found[at];
    if (!one) return;
    stage.playback.goto(one.t);
    if (stage.choice) stage.choose(null); // chosen twice, it would be let go
    chooseInLanes(view, one.rank, one.row, one.t);
  };
}

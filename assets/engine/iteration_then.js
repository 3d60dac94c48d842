// @ts-check
/** The iteration of a moment: what a page's header says of it, wherever the playhead is. Pure. */
import { lossesOf, newestIsWhole, trainers } from "./losses.js";
import { isOver } from "./player.js";

/**
 * The iteration in which a moment lies, and the loss by then; null at the newest moment, and where
 * no loss tells iterations. That of the call on show; between calls the newest that a rank computes.
 * A rank tells its loss before it communicates: an iteration whose loss is known may be under way.
 * @param {import("./page_state.js").Look} look
 * @returns {{iteration: number, loss: number} | null}
 */
export function iterationThen({ known, table, current, t, live, held }) {
  const losses = lossesOf(table);
  const newest = losses.newest(trainers(known.run), newestIsWhole(known));
  if (newest < 0 || (live && !held && !isOver(known))) return null; // a replay plays the past
  const done = Math.min(newest, losses.until(t));
  const loss = done < 0 ? NaN : losses.at(done);
  if (current && current.iteration >= 0 && t <= current.end)
    return { iteration: current.iteration, loss };
  const computed = losses.begun.findLastIndex((start) => start <= t);
  return { iteration: computed < 0 ? Math.min(done + 1, newest) : Math.max(computed, done), loss };
}

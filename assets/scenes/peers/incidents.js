// @ts-check
/**
 * Incidents of ranks that mix, as the picture says them.
 *
 * @typedef {import("../../engine/page_state.js").Look} Look
 * @typedef {import("../../engine/rank_activity.js").Doing} Doing
 * @typedef {import("../../engine/rank_activity.js").DoingMark} DoingMark
 */
import { lostRanks } from "../../engine/lost_ranks.js";
import { awayWords } from "../../engine/does_words.js";
import { nowOf } from "../../engine/player.js";
import { forLong } from "../../engine/standing.js";
import { standsForMessages } from "../../engine/waits.js";

/**
 * Return ranks to which something is done now, or that have waited for long and wait still, where the
 * picture is now.
 * @param {Look} look
 * @returns {Map<number, Doing>}
 */
export function incidentsOf({ known, live, t, table, at }) {
  const { control, lanesNow } = known;
  const now = live || t >= table.to - 1;
  const incidents = new Map();
  if (!now) return incidents;
  for (const rank of new Set(lanesNow.map((lane) => lane.rank))) {
    // such a wait has no row yet
    const lanes = lanesNow.filter((lane) => lane.rank === rank);
    const long = forLong(table, lanes, nowOf(known, at), standsForMessages(known.run, rank));
    if (
      long?.mark === "wait" &&
      long.forWhom >= 0 &&
      lanes.every((lane) => lane.lane !== "compute")
    )
      incidents.set(rank, long);
  }
  const put = (
    /** @type {number} */ rank,
    /** @type {DoingMark} */ mark,
    /** @type {string} */ words,
  ) => incidents.set(rank, { rank, mark, halo: false, words, waits: 0, forWhom: -1, long: true });
  for (const rank of control?.frozen ?? []) put(rank, "frozen", "frozen: its process is stopped");
  for (const [rank, host] of Object.entries(control?.cut_off ?? {}))
    put(Number(rank), "away", awayWords(host));
  for (const [rank, words] of Object.entries(control?.ended ?? {}))
    if (control?.how?.[rank] === "ended") put(Number(rank), "ended", words);
  for (const [rank, { words }] of lostRanks(known)) put(rank, "killed", words);
  return incidents;
}

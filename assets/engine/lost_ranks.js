// @ts-check
/**
 * Ranks that are lost, and for whom others wait longest: from a run's failure, its control state
 * and its rows. Pure functions.
 *
 * @typedef {import("./player.js").Known} Known
 * @typedef {import("./rank_activity.js").Doing} Doing
 */
import { badEnds, killedByHand } from "./deaths.js";
import { generationsOf, lostAt } from "./generations.js";
import { plain } from "./does_words.js";
import { isOver } from "./player.js";

/**
 * The last report of each rank of a run that failed.
 * @param {Known["failure"]} failure
 * @returns {Map<number, import("./player.js").LastReport>}
 */
export const underWay = (failure) =>
  new Map((failure?.under_way ?? []).map((report) => [report.rank, report]));

/**
 * What a rank reported when it stopped, shorter where it is the usual.
 * @param {import("./player.js").LastReport} report
 */
function reportWords({ rank, words, error }) {
  if (error?.kind !== "PeerLost" || error.rank < 0 || !error.doing) return `: ${words}`;
  const lost = `rank ${error.rank} ${error.how === "left" ? "left the group" : "ended"}`;
  return error.found_by === rank
    ? ` in ${error.doing}: ${lost}`
    : `: ${lost}, told by rank ${error.found_by}`;
}

/** Ways in which a rank fails that is lost then. */
const LOST_CODES = ["killed", "exited", "raised", "ended"];

/**
 * The rank that failed and is lost, by what the run's error says; -1 none.
 * @param {Known["failure"]} failure
 */
export const lostByError = (failure) =>
  failure && LOST_CODES.includes(failure.how) ? failure.rank : -1;

/**
 * Ranks that were lost, and how.
 * @param {Known} known
 * @returns {Map<number, import("./deaths.js").End>}
 */
export function lostRanks(known) {
  const { state, failure, control, table } = known;
  const lost = badEnds(control);
  const rank = state === "failed" && !lost.size ? lostByError(failure) : -1;
  if (failure && rank >= 0) lost.set(rank, { how: failure.how, words: failure.end });
  if (state === "failed")
    // whatever a survivor took it for
    for (const [killed, t] of killedByHand(table))
      if (!replaced(known, killed, t)) lost.set(killed, { how: "killed", words: "killed by you" });
  for (const [rank, { how }] of lostAt(known, Infinity))
    if (!lost.has(rank)) lost.set(rank, { how, words: how });
  return lost;
}

/**
 * Ranks that are gone at the playhead: those that no process has replaced by then; where the picture
 * is now, also those whose process has just ended: not while the end of a run is still to come in it.
 * @param {{known: Known, live: boolean, t: number, table: import("./table.js").Table}} look
 * @returns {number[]}
 */
export const goneInPicture = ({ known, live, t, table }) => [
  ...new Set([
    ...lostAt(known, t).keys(),
    ...((live && !isOver(known)) || t >= table.to - 1 ? lostRanks(known).keys() : []),
  ]),
];

/**
 * Whether another process has taken a rank's place since.
 * @param {Known} known @param {number} rank @param {number} t
 */
function replaced(known, rank, t) {
  const newest = generationsOf(known).at(-1);
  return !!newest && newest.began > t && newest.members.includes(rank);
}

/**
 * A rank that has ended.
 * @param {Known} known
 * @param {number} rank
 * @param {Map<number, import("./deaths.js").End>} lost
 * @returns {Doing | null}
 */
export function endOf({ state, failure, control }, rank, lost) {
  const end = lost.get(rank);
  const was = state === "failed" ? underWay(failure).get(rank) : undefined;
  if (end) return plain(rank, "killed", was ? `${end.words}, ${was.words}` : end.words);
  if (state === "failed")
    return plain(rank, "stopped", was ? `stopped${reportWords(was)}` : "stopped");
  return state === "finished" || state === "replay" || control?.ended?.[rank]
    ? plain(rank, "ended", "ended")
    : null;
}

/**
 * Whose wait tells most: at the end of a chain, for a rank that does not wait itself; then the
 * longest share.
 * @param {Doing[]} doings
 * @param {number} least  share of its time that a rank must wait
 * @param {number} [first]  ranks before this one do not count
 */
export function worstWait(doings, least, first = 0) {
  const free = (/** @type {Doing} */ d) => Number(!((doings[d.forWhom]?.waits ?? 1) >= least));
  return doings
    .filter((d) => d.rank >= first && d.waits >= least && d.forWhom >= 0)
    .sort((a, b) => free(b) - free(a) || b.waits - a.waits)[0];
}

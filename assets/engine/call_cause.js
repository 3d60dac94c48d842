// @ts-check
/**
 * Why a call lasted as long as it did: the page's one place that decides, for whichever scene words
 * it. Pure functions of the table.
 *
 * @typedef {import("./lateness.js").LastRank} LastRank
 * @typedef {{cause: "slow link" | "late rank" | "late ranks" | "call before" | "",
 *   ranks: number[], last: LastRank | null}} CallCause  ranks: whose doing it is, of a link its two
 *   ends; call before: ranks came out of it one after another; last: the rank that joined last, null
 *   unknown
 */
import { lastToJoin } from "./lateness.js";

const LATE = 0.2; // of a call: a rank that could have joined so much earlier is late

/**
 * @param {import("./player.js").Known} known
 * @param {import("./model.js").Call} call
 * @param {import("./rates.js").Reading} reading
 * @returns {CallCause}
 */
export function callCause({ table }, call, { slowest }) {
  const span = call.end - call.start;
  const last = lastToJoin(table, call);
  if (slowest && (last?.late ?? 0) < span / 2)
    return { cause: "slow link", ranks: [slowest.from, slowest.to], last };
  if (last && last.late > LATE * span) return { cause: "late rank", ranks: [last.rank], last };
  if (last && last.together.ranks.length > 1 && last.together.late > LATE * span)
    return { cause: "late ranks", ranks: last.together.ranks, last };
  const cause = last && last.after > LATE * span ? "call before" : "";
  return { cause, ranks: [], last };
}

// @ts-check
/**
 * A run that failed, in one sentence: who, how it ended, what was under way. Who and how are data
 * of the run's error; its message is only shown.
 */
import { killedByHand } from "./deaths.js";
import { lostRanks, underWay } from "./lost_ranks.js";

const LONGEST = 120; // characters of what was under way

/**
 * Why the run failed, without a full stop.
 * @param {import("./player.js").Known} known
 */
export function headline({ words, failure }) {
  const reason = failure?.summary || words || "The run failed";
  return (reason.charAt(0).toUpperCase() + reason.slice(1)).replace(/\.$/, "");
}

/**
 * The same; of a rank that the reader killed, that he did.
 * @param {import("./player.js").Known} known
 */
export function failedHead(known) {
  const { failure, table } = known;
  const { rank = -1, peer = -1, doing = "", how = "" } = failure ?? {};
  if (!doing || !killedByHand(table).has(rank)) return headline(known);
  if (peer >= 0 && how === "ended")
    return `You killed rank ${rank}; rank ${peer} noticed it in ${doing}`;
  return peer < 0 && how === "killed" ? `You killed rank ${rank} in ${doing}` : headline(known);
}

/** @param {import("./player.js").Known} known */
export function failedWords(known) {
  const { failure } = known;
  const head = failedHead(known);
  const reports = underWay(failure);
  const lost = [...lostRanks(known).keys()][0] ?? -1;
  const report = reports.get(lost);
  const noticed = [...reports.values()].flatMap(({ rank, error }) =>
    error?.kind === "PeerLost" && error.doing && error.peer === rank && error.found_by === rank
      ? [{ rank, doing: error.doing }]
      : [],
  );
  const [first] = noticed;
  const others = noticed.length - 1;
  const elsewhere =
    others > 0 ? `, ${others === 1 ? "another" : `${others} others`} elsewhere` : "";
  const parts = [
    report?.doing ? `it was ${report.words.replace("waiting in a wait", "waiting")}` : "",
    first ? `rank ${first.rank} noticed it in ${first.doing}${elsewhere}` : "",
  ].filter(Boolean);
  const other = [...reports.values()].find(({ rank }) => rank !== lost);
  const details = parts.join("; ") || (other ? `rank ${other.rank}: ${other.said}` : "");
  if (!details) return `${head}.`;
  const short = `${details.slice(0, LONGEST).replace(/[ ,;]+$/, "")} …`;
  return `${head}; ${details.length > LONGEST ? short : details}.`;
}

/**
 * Why the run failed, where the picture shows its end; "" elsewhere.
 * @param {{known: import("./player.js").Known, live: boolean, t: number,
 *   table: import("./table.js").Table}} look
 */
export const failedHere = ({ known, live, t, table }) =>
  known.state === "failed" && known.words && (live || t >= table.to - 1) ? failedWords(known) : "";

// @ts-check
/**
 * What the picture of replicas that mix says: one sentence, the last moments, every mark under the
 * pointer. Pure functions; no claim that the picture does not show. Distances are estimated, and
 * are said to be.
 *
 * @typedef {import("../../engine/player.js").Known} Known
 * @typedef {import("./frame.js").PeersFrame} PeersFrame
 * @typedef {import("./index.js").PeerFacts} PeerFacts
 * @typedef {import("./index.js").PeersIndex} PeersIndex
 */
import { worstWait } from "../../engine/lost_ranks.js";
import { isOver } from "../../engine/player.js";
import { distanceWords } from "./draw.js";
import { isNone } from "./frame.js";
import { arrivedAt } from "./index.js";
import { countUntil } from "../../engine/search.js";
import { failedWords } from "../../engine/failure_caption.js";
import { bytes, counted, duration, grouped, percent, sentence } from "../../engine/format.js";
import { heldByReader } from "../../engine/run_words.js";

/**
 * How sure an estimate from so many numbers is: one standard deviation of a distance.
 * @param {number} numbers
 */
export const sureWords = (numbers) =>
  numbers > 0
    ? `estimated from ${numbers} random projections, give or take ` +
      `${Math.round(50 * Math.sqrt(2 / numbers))} %`
    : "estimated";

/**
 * Whether all mix with all: then they take their mean.
 * @param {PeerFacts | null | undefined} facts
 */
const averages = (facts) => facts?.kind === "all";

/**
 * When the replicas mix next.
 * @param {PeersFrame} frame
 * @param {PeerFacts | null | undefined} facts
 */
export function nextWords({ next }, facts) {
  if (!facts || !Number.isFinite(next)) return "";
  const what = averages(facts) ? "averaging" : "mixing";
  if (facts.every <= 1 && next <= 1) return `${what} in every iteration`;
  return next <= 1
    ? `${what} at the end of this iteration`
    : `next ${what} in ${counted(next, "iteration")}`;
}

/** How far the replicas are apart. @param {PeersFrame} frame */
function apartWords({ peers, far, length, rms }) {
  const known = peers.filter((p) => !p.lost && Number.isFinite(p.distance));
  if (known.length < 2) return "One replica is left";
  if (known.every((p) => isNone(p.distance, length))) return "All replicas are alike";
  if (known.length === 2 || far.length !== 1)
    return `The replicas are ≈ ${distanceWords(rms)} from their mean`;
  const distance = distanceWords(known.find((p) => p.rank === far[0])?.distance ?? NaN);
  const others = known.filter((p) => p.rank !== far[0]).map((p) => p.distance);
  const [least, most] = [Math.min(...others), Math.max(...others)].map(distanceWords);
  if (distance === most)
    return `The replicas are ≈ ${least === most ? "" : `${least} to `}${most} from their mean`;
  return (
    `Rank ${far[0]} is ≈ ${distance} from the mean, the others ` +
    `${least === most ? "" : `${least} to `}${most}`
  );
}

/**
 * @param {Known} known
 * @param {PeersFrame | null} frame
 * @param {PeerFacts | null | undefined} facts
 * @param {import("../../engine/rank_activity.js").Doing[]} doings
 * @param {boolean} live
 */
export function sentenceOf(known, frame, facts, doings, live) {
  if (known.state === "failed" && known.words && live) return failedWords(known);
  if (!frame || (!frame.at && !frame.links.some((l) => l.nbytes))) {
    if (known.state === "running")
      return `The ranks run. Waiting for the first iteration that all of them have done.`;
    return isOver(known) && known.state !== "failed"
      ? known.words || "The run is over, and its replicas recorded nothing."
      : sentence(known);
  }
  const worst = worstWait(doings, Number.EPSILON);
  const whom = worst ? `; rank ${worst.rank} waits for rank ${worst.forWhom}` : "";
  if (frame.averaging)
    return `Averaging ${frame.averaging.number}: all take the mean of their replicas${whom}.`;
  if (!frame.at) {
    const none = frame.peers.filter((p) => !p.done && !p.lost).map((p) => p.rank);
    const most = Math.max(...frame.peers.map((p) => p.done));
    if (!most || !none.length) return `No rank has done an iteration yet${whom}.`;
    return (
      `${none.length === 1 ? `Rank ${none[0]} has` : `${none.length} ranks have`} not done ` +
      `an iteration yet, while another has done ${grouped(most)}${whom}.`
    );
  }
  const next = nextWords(frame, facts);
  const over = !Number.isFinite(frame.next) && facts ? "all iterations are done" : "";
  return `${heldByReader(known, live)}${apartWords(frame)}${next || over ? `; ${next || over}` : ""}${facts && !averages(facts) && !over ? whom : ""}.`;
}

/**
 * Below the picture: what the plan is, and how sure distances are.
 * @param {PeersFrame} frame
 * @param {PeerFacts | null | undefined} facts
 * @param {PeersIndex} index
 */
export function factWords(frame, facts, index) {
  const of =
    frame.iteration >= 0
      ? `after iteration ${grouped(frame.iteration + 1)}`
      : frame.at
        ? "each as last recorded"
        : "";
  const gone = frame.peers.filter((p) => p.lost).length;
  return [
    facts?.words ?? "",
    frame.at ? `Distances from the mean, ${of}: ${sureWords(index.numbers)}.` : "",
    gone ? `${counted(gone, "rank")} lost.` : "",
  ]
    .filter(Boolean)
    .join(" ");
}

/**
 * @param {PeersFrame} frame
 * @param {number} rank
 * @param {PeersIndex} index
 * @param {import("../../engine/rank_activity.js").Doing | undefined} doing
 * @param {PeerFacts | null | undefined} facts
 * @param {string} incident
 * @returns {string[]}
 */
export function peerWords(frame, rank, index, doing, facts, incident) {
  const peer = frame.peers[rank];
  if (!peer) return [];
  const lines = [
    `rank ${rank}: ${incident || (peer.lost ? "lost" : `${counted(peer.done, "iteration")} ` + `done${doing ? `, ${doing.words}` : ""}`)}`,
  ];
  if (Number.isFinite(peer.distance) && !peer.lost) {
    lines.push(
      `≈ ${distanceWords(peer.distance)} from the mean of the ` +
        `replicas${frame.length > 0 ? `: ${percent(peer.distance / frame.length)} of its length` : ""}`,
      sureWords(index.numbers),
    );
  }
  const others = (facts?.edges ?? []).filter(([from]) => from === rank).map(([, to]) => to);
  const listed =
    others.length > 6
      ? `${others.length} others`
      : `rank${others.length === 1 ? "" : "s"} ${others.join(", ")}`;
  if (others.length) lines.push(`mixes with ${listed}`);
  lines.push(`sent ${bytes(Math.round(peer.sent))}`);
  return lines;
}

/** @param {PeersFrame} frame @param {{from: number, to: number}} link @returns {string[]} */
export function linkWords(frame, { from, to }) {
  const link = frame.links.find((l) => l.from === from && l.to === to);
  if (!link) return [];
  const share =
    link.planned && link.weight > 0
      ? [
          `rank ${from} counts ${percent(link.weight).replace(/\.00 %$/, " %")} in the ` +
            `mixing of rank ${to}`,
        ]
      : [];
  return [
    `link ${from} → ${to}: ` +
      `${link.nbytes ? `${bytes(link.nbytes)}, ${counted(link.many, "message")}` : "nothing yet"}`,
    ...share,
  ];
}

/** @param {PeersFrame["comets"][0]} comet @param {number} t @returns {string[]} */
export function cometWords({ from, to, share, nbytes, name, message, start, iteration }, t) {
  const what = message
    ? `${name || "message"} of rank ${from}`
    : `chunk of ${name || "an all-reduce"} from rank ${from}`;
  return [
    `${what} on the way to rank ${to}: ${Math.round(share * 100)} %`,
    `${bytes(nbytes)}, for ${duration(Math.max(0, t - start))} ` +
      `now${iteration >= 0 ? `, in iteration ${grouped(iteration + 1)}` : ""}`,
  ];
}

/**
 * The last moments up to t: what arrived, which iteration all had done.
 * @param {PeersIndex} index
 * @param {number} t
 * @param {number} most
 * @returns {[string, string][]} when, what
 */
export function lastMixed(index, t, most) {
  const lines = /** @type {[number, string][]} */ ([]);
  const at = countUntil(index.spreads, t, (one) => one.t);
  for (const { iteration, t: when, rms, length } of index.spreads.slice(Math.max(0, at - most), at))
    lines.push([
      when,
      `iteration ${grouped(iteration + 1)} done by all: replicas ` +
        `${isNone(rms, length) ? "alike" : `≈ ${distanceWords(rms)} from their mean`}`,
    ]);
  for (const { from, to, flown } of index.ways.values()) {
    for (
      let i = countUntil(flown, t, (one) => one.start) - 1, seen = 0;
      i >= 0 && seen < most;
      i--
    ) {
      const arrived = arrivedAt(flown[i]);
      if (!(arrived <= t) || !flown[i].message) continue;
      lines.push([
        arrived,
        `rank ${to} has the ${flown[i].name || "message"} of rank ` +
          `${from}${flown[i].iteration >= 0 ? `, of its iteration ${grouped(flown[i].iteration + 1)}` : ""}`,
      ]);
      seen += 1;
    }
  }
  return lines
    .sort((a, b) => a[0] - b[0])
    .slice(-most)
    .map(([when, what]) => [duration(when), what]);
}

/** The picture in words. @param {PeersFrame} frame @param {PeerFacts | null | undefined} facts */
export function spokenWords(frame, facts) {
  const ranks = frame.peers.map(
    (p) =>
      `rank ${p.rank} ` +
      `${p.lost ? "is lost" : Number.isFinite(p.distance) ? `is about ${distanceWords(p.distance)} from the mean` : "has recorded nothing yet"}`,
  );
  return [
    facts?.words ?? "",
    frame.peers.length > 16
      ? `${frame.peers.length} ranks; ${apartWords(frame)}`
      : ranks.join(", "),
    `${counted(frame.comets.length, frame.comets.some((c) => c.message) ? "message" : "chunk")} ` +
      "on the way",
  ]
    .filter(Boolean)
    .join(". ");
}

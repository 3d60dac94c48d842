// @ts-check
/**
 * A loss of ranks in words: who was lost, with whom the run went on, what it cost.
 *
 * @typedef {import("../../engine/recoveries.js").LossOfRanks} LossOfRanks
 * @typedef {import("../../engine/recoveries.js").Phase} Phase
 * @typedef {import("../../engine/player.js").Known} Known
 */
import { RECOVERY_PHASES, RESTARTED } from "../../engine/recoveries.js";
import { bytes, counted, duration, grouped, lastedWords } from "../../engine/format.js";
import { failedWords } from "../../engine/failure_caption.js";
import { isOver } from "../../engine/player.js";
import { sourceWords, updatesLostWords } from "../../engine/regained_words.js";

const MOST_NAMED = 6; // ranks
const MOST_SOURCES = 3; // of keys

/** What each phase is, and what is done in it. @type {Record<Phase, [string, string]>} */
export const PHASE_WORDS = {
  detect: ["detect", "the driver has not noticed yet that it ended"],
  abort: ["abort", "the survivors leave the group"],
  rebuild: ["rebuild", "the members form the next group"],
  restore: ["restore", "the members take over what is trained"],
  first: ["first iteration", "the first iteration of the new group"],
};

/** "rank 2", "ranks 0, 1 and 3", "15 ranks" @param {number[]} ranks */
export function someRanks(ranks) {
  if (ranks.length > MOST_NAMED) return counted(ranks.length, "rank");
  const last = ranks[ranks.length - 1];
  return ranks.length === 1 ? `rank ${last}` : `ranks ${ranks.slice(0, -1).join(", ")} and ${last}`;
}

/** @param {string} words */
const upper = (words) => words.charAt(0).toUpperCase() + words.slice(1);

/** "was killed" @param {LossOfRanks} loss */
function howRanksEnded({ lost }) {
  const hows = new Set(lost.map(({ how }) => how));
  const [how] = hows;
  const words = {
    killed: "killed",
    evicted: "evicted",
    corrupt: "corrupt",
    late: "late",
    removed: "taken away",
    exited: "lost: it exited",
    raised: "lost: it raised",
  };
  const one = hows.size === 1 && lost.length === 1 ? /** @type {any} */ (words)[how] : "";
  return `${lost.length === 1 ? "was" : "were"} ${one || (how === "killed" && hows.size === 1 ? "killed" : "lost")}`;
}

/** The heading of a loss. @param {LossOfRanks} loss */
export function headOf(loss) {
  const joined = loss.joined.length ? `${someRanks(loss.joined)} joined` : "";
  const lost = loss.lost.length
    ? `${someRanks(loss.lost.map(({ rank }) => rank))} ${howRanksEnded(loss)}`
    : joined || "no rank was lost";
  const who = upper(loss.lost.length && joined ? `${lost} and ${joined}` : lost);
  const where = loss.failedIn >= 0 ? ` in iteration ${grouped(loss.failedIn + 1)}` : "";
  const after = loss.after ? `generation ${loss.before} → ${loss.after.number}` : "";
  return [`${who}${where}`, after];
}

/** @param {LossOfRanks["after"]} after */
const regainedIn = (after) => after?.fact?.regained ?? [];

/**
 * From where the keys of lost servers came; "" where none was lost.
 * @param {LossOfRanks} loss
 */
function keysWords({ after }) {
  const keys = regainedIn(after).filter(({ source }) => source !== "buddy");
  const each = keys.map((one) => {
    const whose = one.server >= 0 ? ` of rank ${one.server}` : "";
    const owner = one.owner === one.server ? "" : ` went to rank ${one.owner}`;
    const how = owner ? `${owner}, ${sourceWords(one)}` : ` came ${sourceWords(one)}`;
    return `${grouped(one.elements)} keys${whose}${how}: ${updatesLostWords(one)}`;
  });
  return each.length > MOST_SOURCES
    ? `${each.slice(0, MOST_SOURCES).join("; ")}; and ${each.length - MOST_SOURCES} more.`
    : each.length
      ? `${each.join("; ")}.`
      : "";
}

/** From where its members took what is trained. @param {LossOfRanks} loss */
function takenFrom({ after, lost, failedIn, iteration }) {
  const state = after?.fact?.state;
  if (state === "checkpoint")
    return `, back at the checkpoint before iteration ${grouped(iteration + 1)}`;
  if (state === "beginning") return ", from the beginning";
  const buddies = regainedIn(after).filter(({ source }) => source === "buddy");
  if (buddies.length)
    return `, ${sourceWords(buddies[0])}${buddies.length > 1 ? " and so on" : ""}, with iteration ${grouped(iteration + 1)}`;
  return iteration === failedIn && lost.length
    ? `, and tried iteration ${grouped(iteration + 1)} again`
    : ` with iteration ${grouped(iteration + 1)}`;
}

/**
 * With whom the run went on, and what was lost.
 * @param {LossOfRanks} loss
 * @param {Known} known
 */
export function recoveryCost(loss, known) {
  const { after } = loss;
  if (!after)
    return known.state === "failed"
      ? "No other group followed: the run ended."
      : isOver(known)
        ? "No other group followed."
        : "The survivors leave their group.";
  if (after.fact?.state === RESTARTED)
    return (
      `torchrun started ${someRanks(after.members)} anew` +
      (loss.ends.first >= 0
        ? `: the last of them was there ${duration(loss.ends.first - loss.origin)} after the ` +
          (loss.lost.length ? "last row of the rank that failed." : "end of the attempt before.")
        : ".")
    );
  const before = loss.lanes.length;
  const all = after.members.length === before && !after.fresh.length;
  const fresh = after.fresh.length
    ? `, ${someRanks(after.fresh)} in ${after.fresh.length > 1 ? "new processes" : "a new process"}`
    : all
      ? ""
      : `, without ${someRanks(loss.lost.map(({ rank }) => rank))}`;
  const sentences = [`${upper(someRanks(after.members))} went on${fresh}${takenFrom(loss)}.`];
  const lostIterations = Math.max(0, loss.failedIn - loss.iteration);
  sentences.push(
    `${upper(lostIterations ? counted(lostIterations, "iteration") : "no iteration")} lost, ` +
      `${loss.repeated ? counted(loss.repeated, "sample") : "no sample"} repeated, ` +
      `${loss.received ? bytes(loss.received) : "nothing"} received.`,
  );
  const keys = keysWords(loss);
  if (keys) sentences.push(keys);
  if (loss.ends.first >= 0)
    sentences.push(
      `Its first iteration ended ${duration(loss.ends.first - loss.origin)} after ` +
        `${loss.since === "fault" ? "the fault" : "the driver noticed"}.`,
    );
  return sentences.join(" ");
}

/** "Goodput 80.5 %" @param {number} share */
export const goodputWords = (share) =>
  share >= 0 ? `Goodput ${(share * 100).toFixed(1)} %: time in iterations that count.` : "";

/**
 * The phase that a loss is in at a moment; null: before it, or after all of them.
 * @param {LossOfRanks} loss @param {number} t
 */
export function phaseAt({ origin, ends }, t) {
  if (!(t >= origin)) return null;
  return RECOVERY_PHASES.find((phase) => !(ends[phase] <= t)) ?? null;
}

/** @param {Known} known @param {boolean} newest */
const trainWords = (known, newest) => (newest && isOver(known) ? "trained" : "train");

/** Where a run that is over ended before its last iteration. @param {Known} known @param {boolean} newest */
function endWords({ state, run, counters }, newest) {
  const done = (counters?.iteration ?? -1) + 1;
  const all = run?.iterations ?? -1;
  return newest && isOver({ state }) && done > 0 && done < all
    ? `, until the run ended after ${grouped(done)} of ${counted(all, "iteration")}`
    : "";
}

/**
 * One sentence of the moment.
 * @param {Known} known
 * @param {LossOfRanks[]} losses
 * @param {number} t
 * @param {boolean} newest
 * @param {number} goodput
 */
export function sentenceOf(known, losses, t, newest, goodput) {
  if (known.state === "failed" && newest)
    return known.words ? failedWords(known) : "The run failed.";
  const begun = losses.filter(({ origin }) => origin <= t);
  const now = begun[begun.length - 1];
  if (!now) {
    if (!losses.length) return "No rank was lost.";
    const [next] = losses;
    const [head] = headOf(next);
    return (
      `At the playhead all ranks train. ${head}, ${duration(next.origin - t)} later` +
      `${losses.length > 1 ? `; ${losses.length - 1} more followed` : ""}.`
    );
  }
  const phase = phaseAt(now, t);
  const [who] = headOf(now);
  if (phase && !(phase === "rebuild" && !now.after && isOver(known)))
    return `${who}: ${PHASE_WORDS[phase][1]}, ${lastedWords(Math.max(0, t - now.origin), known)}.`;
  const many = begun.length > 1 ? `after ${begun.length} recoveries` : "again";
  const goesOn = now.after
    ? `${upper(someRanks(now.after.members))} ${trainWords(known, newest)} ${many}${endWords(known, newest)}`
    : who;
  return `${goesOn}. ${goodputWords(goodput)}`;
}

/**
 * What lies under the pointer.
 * @param {LossOfRanks} loss
 * @param {number | null} at  the lane, -1: all
 * @param {number} ns  since the loss
 * @returns {string[]}
 */
export function linesOf(loss, at, ns) {
  const t = loss.origin + ns;
  if (at === null) return [];
  if (at < 0) {
    const phase = phaseAt(loss, t);
    const i = phase ? RECOVERY_PHASES.indexOf(phase) : -1;
    const from = i > 0 ? loss.ends[RECOVERY_PHASES[i - 1]] : loss.origin;
    if (!phase || !(loss.ends[phase] >= 0)) return [];
    return [
      `${PHASE_WORDS[phase][0]}: ${duration(Math.max(0, loss.ends[phase] - from))}`,
      PHASE_WORDS[phase][1],
      `over ${duration(loss.ends[phase] - loss.origin)} after the ${loss.since === "fault" ? "fault" : "notice"}`,
    ];
  }
  const lane = loss.lanes[at];
  const bar = lane?.bars.find(({ start, end }) => start <= t && t < end);
  const who = `rank ${lane?.rank}`;
  if (!lane) return [];
  if (!bar) return lane.role === "lost" && t >= lane.ended ? [`${who} has ended`] : [];
  const size = bar.nbytes > 0 ? `, ${bytes(bar.nbytes)}` : "";
  const copied = regainedIn(loss.after).find(
    ({ owner, holder }) => owner === lane.rank && holder !== lane.rank,
  );
  const restored =
    bar.name === "received" && copied ? `received ${sourceWords(copied)}` : RESTORED[bar.name];
  const more = bar.name ? ` (${restored ?? bar.name}${size})` : "";
  return [`${who}, ${PHASE_WORDS[bar.phase][0]}${more}: ${duration(bar.end - bar.start)}`];
}
/** @type {Record<string, string>} */
const RESTORED = {
  received: "received from a survivor",
  kept: "kept its own",
  checkpoint: "read from the checkpoint",
};

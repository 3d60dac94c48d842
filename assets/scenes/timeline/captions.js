// @ts-check
/**
 * What the timeline says: who holds up whom, what an iteration was made of, what a mark is. Pure
 * functions of numbers.
 *
 * A rank is called the straggler only if it is sure: its own computing is longer than that of all
 * others in most of the last iterations, even if every moment in which it waited for a core is
 * taken from it and nothing from the others.
 *
 * @typedef {import("./step_facts.js").StepFacts} StepFacts
 * @typedef {{rank: number, kind: number, more: number, excess: number, lasts: number,
 *   waits: number, since: number, before: number}} Straggler
 *   kind: the class of computing that makes the difference, -1: all of it; more: 0.31 is 31 %
 *   longer; excess: ns; lasts: of an iteration; waits: of the others, ns an iteration; since: the
 *   iteration from which on, -1 unknown; before: how long an iteration lasted until then, NaN
 *   unknown
 */
import { scriptWords } from "./script_steps.js";
import { spentParts } from "./step_facts.js";
import { SPANS } from "./density.js";
import { bytes, counted, duration, grouped, parameterLabel } from "../../engine/format.js";

export const RECENT = 8; // iterations that are judged
const SURE = { least: 3, most: 0.75, longer: 1.1, ahead: 1.05 };
const OF_THE_TRANSPORT = ["fused", "slots full"]; // names of rows that say nothing of a message
const DOING = ["forward", "backward", "weight gradient", "optimizer step", "loading of samples"];

/** @param {number[]} values */
export function medianOf(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** "31 %". @param {number} share */
export const asPercent = (share) => `${Math.round(100 * share)} %`;
/**
 * How long an iteration took: from the first rank's start to the last one's end.
 * @param {StepFacts[]} facts
 */
export const lengthOf = (facts) =>
  Math.max(...facts.map((f) => f.end)) - Math.min(...facts.map((f) => f.start));
/** Milliseconds without a unit, for bars that share one. @param {number} ns */
export const inMs = (ns) =>
  ns >= 99.5e6
    ? (ns / 1e6).toFixed(0)
    : ns >= 0.95e6
      ? (ns / 1e6).toFixed(1)
      : (ns / 1e6).toFixed(2);

/**
 * How much longer each rank computes than the one that comes next, in one iteration: over 1 for one
 * rank at most.
 * @param {StepFacts[]} facts
 */
function leads(facts) {
  return facts.map(
    (f) =>
      (f.computing - (f.queued || 0)) /
      Math.max(1, ...facts.filter((g) => g.rank !== f.rank).map((g) => g.computing)),
  );
}

/**
 * Whether one rank holds up the others by its own computing.
 * @param {StepFacts[][]} recent  the last iterations, oldest first; each by rank
 * @param {number} cores
 * @returns {Straggler | null}
 */
export function stragglerOf(recent, cores) {
  const ranks = recent.at(-1)?.length ?? 0;
  if (ranks < 2 || recent.length < SURE.least || recent.some((facts) => facts.length !== ranks))
    return null;
  const unknown = recent.some((facts) => facts.some((f) => !Number.isFinite(f.queued)));
  if (unknown && ranks > cores) return null; // who had to wait for a core is unknown
  const typical = recent[0].map((_, r) =>
    medianOf(recent.map((facts) => facts[r].computing - (facts[r].queued || 0))),
  );
  const slowest = typical.indexOf(Math.max(...typical));
  const { rank } = recent[0][slowest];
  const others = (/** @type {StepFacts[]} */ facts) => facts.filter((_, r) => r !== slowest);
  const theirs = medianOf(recent.map((facts) => medianOf(others(facts).map((f) => f.computing))));
  const steady = recent.filter((facts) => leads(facts)[slowest] > SURE.ahead).length;
  if (
    !(theirs > 0) ||
    typical[slowest] < SURE.longer * theirs ||
    steady < SURE.most * recent.length
  )
    return null;
  const excess = typical[slowest] - theirs;
  const lasts = medianOf(recent.map(lengthOf));
  const sure = Math.min(
    1,
    excess / (medianOf(recent.map((facts) => facts[slowest].computing)) - theirs),
  ); // the part that no core is to blame for
  const parts = DOING.map((_, kind) => {
    const usual = medianOf(
      recent.map((facts) => medianOf(others(facts).map((f) => f.byKind[kind]))),
    );
    const longer = sure * (medianOf(recent.map((facts) => facts[slowest].byKind[kind])) - usual);
    return { kind, more: usual > 0 ? longer / usual : Infinity, excess: longer };
  });
  const main = parts.reduce((a, b) => (b.excess > a.excess ? b : a));
  const waits = medianOf(recent.map((facts) => medianOf(others(facts).map((f) => f.waiting))));
  const clear =
    main.excess >= 0.6 * excess &&
    Number.isFinite(main.more) &&
    recent.every(
      (facts) => facts[slowest].queued < 0.02 * facts[slowest].computing || facts[slowest].measured,
    );
  return {
    rank,
    kind: clear ? main.kind : -1,
    more: clear ? main.more : excess / theirs,
    excess,
    lasts,
    waits,
    since: -1,
    before: NaN,
  };
}

/**
 * Return whether this rank delays no other in an iteration.
 * @param {StepFacts[]} facts
 * @param {number} rank
 */
export function isEven(facts, rank) {
  const factsOfRank = facts.find((f) => f.rank === rank);
  const others = facts.filter((f) => f.rank !== rank);
  return (
    !!factsOfRank &&
    others.length > 0 &&
    factsOfRank.computing < SURE.ahead * medianOf(others.map((f) => f.computing))
  );
}

/**
 * From which iteration on a rank is the straggler, and how long iterations lasted before. Looks
 * back in growing steps, then between the last two: iterations in which it was even are found in
 * O(log n).
 * @param {(iteration: number) => StepFacts[]} factsOf
 * @param {number} rank
 * @param {number} iteration  in which it is
 * @param {number} first  that is known
 * @returns {{since: number, before: number}} -1 and NaN if it always was
 */
export function beginningOf(factsOf, rank, iteration, first) {
  const evenAt = (/** @type {number} */ at) => {
    const few = [at, at - 1, at - 2].map(factsOf).filter((facts) => facts.length);
    return few.length === 3 && few.every((facts) => isEven(facts, rank)) ? few : null;
  };
  let late = iteration;
  let early = -1;
  for (let back = 1; early < 0; back *= 2) {
    const at = iteration - back;
    if (at < first + 2) break;
    if (evenAt(at)) early = at;
    else late = at;
  }
  if (early < 0 && late > first + 2 && evenAt(first + 2)) early = first + 2;
  if (early < 0) return { since: -1, before: NaN };
  while (late - early > 1) {
    const middle = (late + early) >> 1;
    if (evenAt(middle)) early = middle;
    else late = middle;
  }
  const lengths = Array.from({ length: RECENT }, (_, k) => factsOf(early - k))
    .filter((facts) => facts.length && isEven(facts, rank))
    .map(lengthOf);
  return { since: early + 1, before: medianOf(lengths) };
}

/** @param {Straggler} found */
export function stragglerWords({ rank, kind, more, lasts, waits, before, excess }) {
  const who =
    `Rank ${rank} is the straggler: its ${kind < 0 ? "computing" : DOING[kind]} takes ` +
    `${asPercent(more)} longer`;
  if (before > 0 && lasts > 1.03 * before)
    return `${who}, so every iteration lasts ${duration(lasts)} instead of ${duration(before)}.`;
  return waits > 0.25 * excess
    ? `${who}, and the others wait ${duration(waits)} in every iteration.`
    : `${who}.`;
}

const meanOver = (/** @type {StepFacts[]} */ facts, /** @type {(f: StepFacts) => number} */ of) =>
  facts.reduce((sum, f) => sum + (of(f) || 0), 0) / facts.length;

/**
 * What an iteration was made of, for all ranks together.
 * @param {StepFacts[]} facts @param {number} cores @param {boolean} [script]
 */
export function iterationWords(facts, cores, script = false) {
  if (!facts.length) return "";
  if (script) return scriptWords(facts);
  const lasts = lengthOf(facts);
  const queue = meanOver(facts, (f) => f.queue);
  const what = `Iteration ${grouped(facts[0].iteration + 1)} took ${duration(lasts)}`;
  const spent = spentParts(facts);
  const most = facts.some((f) => !f.spent) ? 0 : Math.max(...spent.map(([ns]) => ns));
  if (facts.length > cores && queue > 0.2 * lasts && queue >= most)
    return (
      `${what}; ${counted(facts.length, "rank")} share ${counted(cores, "core")}, and ` +
      `each waited ${duration(queue)} of it for one.`
    );
  const parts = spent
    .filter(([ns]) => ns >= 0.01 * lasts)
    .map(([ns, words]) => `${duration(ns)} ${words}`);
  return `${what}${parts.length ? `; ${facts.length > 1 ? "the mean rank" : "the rank"} spent ${parts.join(", ").replace(/, ([^,]*)$/, " and $1")}` : ""}.`;
}

/**
 * How much communication is hidden behind computing: by rank where they differ.
 * @param {StepFacts[]} facts
 * @param {boolean} [script]
 */
export function overlapWords(facts, script = false) {
  if (script) return "not known: the job's computing is not recorded";
  const busy = facts.filter((f) => f.hidden + f.exposed > 0);
  const share = (/** @type {StepFacts} */ f) => f.hidden / (f.hidden + f.exposed);
  if (!busy.length) return "no communication in this iteration";
  const shares = busy.map(share);
  const most = Math.max(...shares);
  const least = Math.min(...shares);
  if (most < 0.005) return "none: no rank computes while it communicates";
  const best = busy[shares.indexOf(most)];
  const rest = busy.filter((f) => f !== best);
  const usual = rest.length ? meanOver(rest, share) : most;
  if (most - usual >= 0.15)
    return (
      `rank ${best.rank} hides ${asPercent(most)} of its communication behind computing, the ` +
      `others ${asPercent(usual)}`
    );
  return (
    `${asPercent(meanOver(busy, share))} of the communication is hidden behind ` +
    `computing${most - least < 0.1 ? "" : `, from ${asPercent(least)} to ${asPercent(most)} by rank`}`
  );
}

/**
 * What an iteration costs beyond computing.
 * @param {StepFacts[]} facts
 * @param {Straggler | null} straggler
 * @param {boolean} [script]  its computing is not recorded
 */
export function costWords(facts, straggler, script = false) {
  if (straggler && straggler.before > 0 && straggler.lasts > 1.03 * straggler.before)
    return (
      `${duration(straggler.lasts - straggler.before)} an iteration, on all ranks, since iteration ` +
      `${grouped(straggler.since + 1)}`
    );
  const cost = meanOver(facts, (f) => f.exposed + f.waiting);
  const lasts = lengthOf(facts);
  return lasts > 0
    ? `${duration(cost)} of ${duration(lasts)} (${asPercent(cost / lasts)}): communication ` +
        `and waiting${script ? "" : " that no computing hides"}, mean of ` +
        `${facts.length === 1 ? "the rank" : counted(facts.length, "rank")}`
    : "";
}

/**
 * Waiting for a core, apart from waiting for a rank.
 * @param {StepFacts[]} facts
 * @param {number} cores
 */
export function coreWords(facts, cores) {
  const known = facts.filter((f) => Number.isFinite(f.queue));
  if (!known.length) return "";
  const worst = known.reduce((a, b) => (b.queue > a.queue ? b : a));
  const ranks = ranksOnCores(facts.length, cores);
  if (worst.queue < 0.005 * lengthOf(facts)) return `${ranks}: no rank had to wait for one`;
  return (
    `${ranks}: rank ${worst.rank} waited ${duration(worst.queue)} for ` +
    `one${worst.measured && worst.queued >= 0.01 * worst.queue ? `, ${duration(worst.queued)} of it while computing` : ""}; ` +
    `mean ${duration(meanOver(known, (f) => f.queue))}`
  );
}

/** "4 ranks on 2 cores" @param {number} ranks @param {number} cores */
const ranksOnCores = (ranks, cores) => `${counted(ranks, "rank")} on ${counted(cores, "core")}`;

/** The badge where ranks are more than cores. @param {number} ranks @param {number} cores */
export const crowdBadge = (ranks, cores) =>
  cores > 0 && ranks > cores ? ranksOnCores(ranks, cores) : "";

/**
 * A collective as people say it: "the all-reduce of bucket 1".
 * @param {string} collective
 * @param {string} name
 */
export const callName = (collective, name) =>
  `${collective.replaceAll("_", "-") || "collective"}${name ? ` of ${name}` : ""}`;

/**
 * A row in words.
 * @param {import("../../engine/table.js").Table} table @param {number} row @param {string} [more]
 */
export function rowWords(table, row, more = "") {
  const p = table.passage[row];
  const { passages } = table;
  const who = `rank ${passages.rank[p]}`;
  const took = duration(table.end[row] - table.start[row]);
  const kind = table.kindName(table.kind[row]);
  const name = table.text(table.name[row]);
  const peer = table.peer[row];
  const iteration = passages.iteration[p];
  const named = table.text(passages.collective[p]) === "p2p" && kind !== "collective" ? name : "";
  const what =
    named && !OF_THE_TRANSPORT.includes(named)
      ? `a message (${named})`
      : table.chunk[row] >= 0
        ? `chunk ${table.chunk[row]}`
        : "a message";
  const size = table.nbytes[row] > 0 ? `, ${bytes(table.nbytes[row])}` : "";
  const step =
    table.step[row] >= 0
      ? " (step " +
        `${table.step[row]}${table.phase[row] ? `, ${table.text(table.phase[row]).replaceAll("_", "-")}` : ""})`
      : "";
  if (kind === "send") return `${who} sent ${what} to rank ${peer} in ${took}${size}${step}${more}`;
  if (kind === "recv")
    return (
      `${who} ${name === "fused" ? "added" : "took"} ${what} from rank ${peer} in ` +
      `${took}${size}${step}${more}`
    );
  if (kind === "wait")
    return (
      `${who} waited ${took} for ` +
      `${name === "slots full" ? `room at rank ${peer}` : `${what} from rank ${peer}`}${more}`
    );
  if (kind === "collective")
    return (
      `${who}: ${callName(table.text(passages.collective[p]), name)} took ` +
      `${took}${size}${more}`
    );
  const in_ = iteration >= 0 ? ` of iteration ${grouped(iteration + 1)}` : "";
  if (kind === "metric") return `${who}: measuring ${name}${in_} took ${took}${more}`;
  const queued =
    table.value[row] >= 1e4 &&
    DOING.some((word) => word.startsWith(kind.replaceAll("_", " ").slice(0, 4)))
      ? `, ${duration(table.value[row])} of it waiting for a core`
      : "";
  return `${who}: ${kind.replaceAll("_", " ")}${in_} took ${took}${queued}${more}`;
}

/**
 * What a column of density holds.
 * @param {string} who
 * @param {Float64Array} sums  by class
 * @param {number} from
 * @param {number} to
 * @param {string} unit  what a share is of
 */
export function densityWords(who, sums, from, to, unit) {
  const span = to - from;
  const parts = SPANS.map((name, kind) => [
    name === "comm" ? "communicating" : name === "wait" ? "waiting" : name,
    sums[kind] / span,
  ])
    .filter(([, share]) => /** @type {number} */ (share) >= 0.005)
    .sort((a, b) => Number(b[1]) - Number(a[1]));
  return (
    `${who}, ${duration(span)} ${unit}: ` +
    `${parts.map(([name, share]) => `${name} ${asPercent(Number(share))}`).join(", ") || "nothing recorded"}`
  );
}

/**
 * What is selected, in words: who came first to a collective and who last.
 * @param {import("../../engine/table.js").Table} table
 * @param {import("../../engine/table.js").CallHead} head
 * @param {number} t0  from which times are counted
 * @param {string} [within]  what it holds
 */
export function chosenWords(table, head, t0, within = "") {
  const came = /** @type {Map<number, number>} */ (new Map());
  for (const p of head.passages) {
    const rank = table.passages.rank[p];
    for (
      let r = table.passages.first[p];
      r < table.passages.first[p] + table.passages.count[p];
      r++
    )
      if (table.kind[r] === table.code.collective) came.set(rank, table.start[r]);
  }
  const order = [...came].sort((a, b) => a[1] - b[1]);
  const size = head.nbytes > 0 ? `, ${bytes(head.nbytes)}` : "";
  const moment = (/** @type {number} */ t) => duration(Math.max(0, t - t0));
  const what =
    `${parameterLabel(head.name) || callName(head.collective, "")} (${within ? `${within}; ` : ""}number ` +
    `${grouped(head.op)}${size})`;
  if (order.length < 2) return `${what} took ${duration(head.end - head.start)}`;
  const [first, begin] = order[0];
  const [last, late] = order[order.length - 1];
  return (
    `${what}: rank ${first} came at ${moment(begin)} of the iteration, rank ${last} at ` +
    `${moment(late)}; all had it at ${moment(head.end)}`
  );
}

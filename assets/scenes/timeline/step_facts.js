// @ts-check
/**
 * What an iteration of a rank was made of: computing, communication that it hid and that it did not,
 * waiting for peers and for a core.
 *
 * @typedef {import("./index.js").TimelineIndex} TimelineIndex
 * @typedef {import("./index.js").RankLines} RankLines
 * @typedef {import("./index.js").Step} Step
 * @typedef {{rank: number, iteration: number, start: number, end: number, byKind: number[],
 *   computing: number, hidden: number, exposed: number, waiting: number, held: number,
 *   queue: number, queued: number, measured: boolean,
 *   spent?: import("../../engine/time_spent.js").Spent}} StepFacts what an iteration of a rank was
 *   made of, in ns. byKind: computing by class; hidden: communication while it computed; exposed:
 *   while it did not; waiting: blocked with nothing to compute; held: by the reader, which is in no
 *   other of these; queue: for a core, in all; queued: for a core, while computing
 */
import { duration, grouped } from "../../engine/format.js";
import { freeWithin, heldWithin } from "../../engine/holds.js";
import { SPAN, SPANS, isComputing } from "./density.js";

/**
 * Return what an iteration of a rank was made of; kept with the iteration once all its rows are there.
 * @param {TimelineIndex} index
 * @param {RankLines} rank
 * @param {Step} step
 * @returns {StepFacts}
 */
export function stepFacts(index, rank, step) {
  if (step.facts) return step.facts;
  const { start, end } = step;
  const { table } = index;
  const free = freeWithin(table, start, end);
  const all = sumWithin(rank.all, free);
  const talk = sumWithin(rank.talk, free);
  const byKind = SPANS.map((_, kind) => (isComputing(kind) ? all[kind] : 0));
  const exposed = all[SPAN.comm] + all[SPAN.reduce];
  let queued = 0;
  let measured = false;
  for (const row of index.within(rank.computed, start, end) ?? []) {
    if (table.kind[row] === table.code.metric || !Number.isFinite(table.value[row])) continue;
    queued += table.value[row];
    measured = true;
  }
  const facts = {
    rank: rank.rank,
    iteration: step.iteration,
    start,
    end,
    byKind,
    computing: byKind.reduce((a, b) => a + b, 0) - byKind[SPAN.upkeep],
    hidden: talk[SPAN.comm] + talk[SPAN.reduce] - exposed,
    exposed,
    waiting: all[SPAN.wait],
    held: heldWithin(table, start, end),
    queue: step.queue,
    queued: measured ? queued : step.queue,
    measured,
  };
  const { steps } = rank; // kept once its rows are surely all there
  if (steps.length > 4 && steps[steps.length - 4].start > step.start) step.facts = facts;
  return facts;
}

/**
 * How long each kind lasted within these stretches.
 * @param {import("./density.js").Line} spans
 * @param {[number, number][]} stretches
 */
const sumWithin = (spans, stretches) =>
  stretches
    .map(([from, to]) => spans.within(from, to))
    .reduce(
      (sum, ns) => sum.map((n, kind) => n + ns[kind]),
      SPANS.map(() => 0),
    );

/**
 * That the reader held the ranks in an iteration, for more than a tenth of it: all else that it was
 * made of says nothing of them then. "" otherwise.
 * @param {import("../../engine/table.js").Table} table
 * @param {StepFacts[]} facts
 */
export function heldIterationWords(table, facts) {
  if (!facts.length) return "";
  const from = Math.min(...facts.map((f) => f.start));
  const to = Math.max(...facts.map((f) => f.end));
  const held = heldWithin(table, from, to);
  return held > 0.1 * (to - from)
    ? `Iteration ${grouped(facts[0].iteration + 1)} took ${duration(to - from)}: you held the ranks ${duration(held)} of it.`
    : "";
}

/**
 * What the mean rank spent an iteration on, in ns and words: as the box that says why a run was slow.
 * @param {StepFacts[]} facts
 * @returns {[number, string][]}
 */
export function spentParts(facts) {
  const mean = (/** @type {(f: StepFacts) => number} */ of) =>
    facts.reduce((sum, f) => sum + (of(f) || 0), 0) / facts.length;
  if (facts.some((f) => !f.spent))
    return [
      [mean((f) => f.computing), "computing"],
      [mean((f) => f.exposed), "communicating with nothing to hide it"],
      [mean((f) => f.waiting), "waiting for others"],
    ];
  const of = (/** @type {"compute" | "data" | "link" | "wait" | "core"} */ part) =>
    mean((f) => f.spent?.[part] ?? 0);
  return [
    [of("compute"), "computing"],
    [of("data"), "waiting for samples"],
    [of("link"), "waiting for bytes on their way"],
    [of("wait"), "waiting for others"],
    [of("core"), "waiting for a core"],
  ];
}

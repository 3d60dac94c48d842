// @ts-check
/**
 * The iterations of a job that is not ours: its rows say which they belong to, and come in the order
 * of their lanes. Of its computing only the optimizer is recorded, so an iteration begins where the
 * one before it ended. Pure functions.
 *
 * @typedef {import("./index.js").Step} Step
 * @typedef {import("./step_facts.js").StepFacts} StepFacts
 */
import { duration, grouped } from "../../engine/format.js";

/** Whether this is a job of somebody else's, or cells. @param {import("../../engine/player.js").Known} known */
export const isScript = ({ run }) => !!run && !run.strategy;

/**
 * Take a row into the iterations of its rank, which stay in their order within a generation.
 * @param {Step[]} steps
 * @param {number} iteration
 * @param {number} generation
 * @param {number} from
 * @param {number} to
 */
export function scriptStep(steps, iteration, generation, from, to) {
  let i = steps.length;
  while (i && steps[i - 1].generation === generation && steps[i - 1].iteration > iteration) i--;
  let step = steps[i - 1];
  if (step?.generation !== generation || step.iteration !== iteration) {
    step = { iteration, generation, start: from, end: to, queue: NaN, done: false, facts: null };
    steps.splice(i, 0, step);
  } else i--;
  step.end = Math.max(step.end, to);
  const before = steps[i - 1];
  if (before) before.done = true;
  const follows = before?.generation === generation && before.iteration === iteration - 1;
  step.start = follows ? before.end : Math.min(step.start, from);
  const next = steps[i + 1];
  if (!next) return;
  step.done = true;
  if (next.generation === generation && next.iteration === iteration + 1) next.start = step.end;
}

/** Whether no wait is known: an operation lasts as long as its rank waits in it. @param {StepFacts[]} facts */
export const waitsNowhere = (facts) => facts.every((f) => f.waiting === 0);

/**
 * What an iteration of such a job was made of.
 * @param {StepFacts[]} facts
 */
export function scriptWords(facts) {
  const mean = (/** @type {(f: StepFacts) => number} */ of) =>
    duration(facts.reduce((sum, f) => sum + of(f), 0) / facts.length);
  const lasts = Math.max(...facts.map((f) => f.end)) - Math.min(...facts.map((f) => f.start));
  const which = facts.length > 1 ? "the mean rank" : "the rank";
  const talks = mean((f) => f.hidden + f.exposed);
  const does = waitsNowhere(facts)
    ? `was in operations for ${talks} of it`
    : `communicated for ${talks} of it and waited for others ${mean((f) => f.waiting)}`;
  return (
    `Iteration ${grouped(facts[0].iteration + 1)} took ${duration(lasts)}: ` +
    `${which} ${does}; the rest is the script's own.`
  );
}

// @ts-check
/**
 * The same experiment with another number of ranks, or with another link: what a page can run beside
 * its run, and what it then shows. Pure functions.
 *
 * @typedef {{ranks: number, words: string}} Offer  how many ranks the next run can have, 0 none; why
 *   not one more, or one less, "" where it can
 * @typedef {{names: string[], at: 0 | 1 | "both", starting: string, words: string,
 *   refused: boolean, more?: Offer, fewer?: Offer, links?: boolean, knobs?: Knob[]}} Trials  names: of the run before
 *   and the one after; at: which is shown; starting: the name of one that is about to start, "" none;
 *   links: whether it can run with another link
 * @typedef {{name: string, label: string, now: string | number, values: (string | number)[]}} Knob
 * @typedef {{name: string, losses: [number, number][]}} Ghost  of the run before: iteration, loss
 * @typedef {import("./player.js").Known} Known
 * @typedef {import("./actions.js").Target} Target
 */
import { isOver } from "./player.js";

/** @param {number} ranks */
export const rankCount = (ranks) => `${ranks} rank${ranks === 1 ? "" : "s"}`;

/**
 * The offer of a page for one rank more or less; null where it has none.
 * @param {Known} known
 * @param {"more" | "fewer"} way
 */
export const offerOf = ({ run }, way) => run?.trials?.[way] ?? null;

/**
 * What a run with another number of ranks does, before it is started.
 * @param {Known} known
 * @param {Offer} offer
 */
export function offerWords(known, { ranks, words }) {
  if (!ranks) return words;
  const next = words ? `${words} The next that can: ${rankCount(ranks)}. ` : "";
  const ends = isOver(known) ? "" : "This run ends after its iteration; its record stays. ";
  return (
    `${next}${ends}The same experiment runs with ${rankCount(ranks)}, then both are side by side ` +
    "on one axis."
  );
}

/** What can be turned for the next run. @param {Known} known @returns {Knob[]} */
export const knobsOf = ({ run }) => run?.trials?.knobs ?? [];

/** Whether the next run is about to start: until then nothing can be turned. @param {Known} known */
export const isStarting = ({ run }) => !!run?.trials?.starting;

/** What a knob of the next run does, before it is turned. @param {Known} known */
export const knobDoes = (known) =>
  `Starts the same experiment with this value${isOver(known) ? "" : "; this run ends after its iteration, its record stays"}.`;

/** A value as people write it. @param {string | number} value */
export const knobWords = (value) => String(value).replaceAll("_", "-");

/** The losses of the run before, drawn behind those of this one. @param {Known} known @returns {Ghost | null} */
export const ghostOf = ({ run }) => run?.ghost ?? null;

/** Whether the run can be run again with another link. @param {Known} known */
export const offersLinks = ({ run }) => !!run?.trials?.links;

/**
 * Whether a change is for the next run alone: this one is over.
 * @param {Known} known @param {Target} target
 */
export const isForNextRun = (known, target) =>
  "from" in target && isOver(known) && offersLinks(known);

/** What running again with another link does, before it is started. @param {Known} known */
export const againWords = (known) =>
  `${isOver(known) ? "" : "This run ends after its iteration; its record stays. "}The same ` +
  "experiment runs with this link, then both are side by side on one axis.";

/** What becomes of a run that was asked for, in words; "" nothing yet. @param {Known} known */
export function trialWords({ run }) {
  const trials = run?.trials;
  if (!trials) return "";
  return trials.starting ? `The run with ${trials.starting} starts …` : trials.words;
}

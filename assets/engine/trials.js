// @ts-check
/**
 * The same experiment with another number of ranks: what a page can run beside its run, and what it
 * then shows. Pure functions.
 *
 * @typedef {{ranks: number, words: string}} Offer  how many ranks the next run can have, 0 none; why
 *   not one more, or one less, "" where it can
 * @typedef {{names: string[], at: 0 | 1 | "both", starting: number, words: string,
 *   refused: boolean, more?: Offer, fewer?: Offer}} Trials  names: of the run before and the one
 *   after; at: which is shown; starting: with how many ranks one is about to start, 0 none
 * @typedef {import("./player.js").Known} Known
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

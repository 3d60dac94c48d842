// @ts-check
/**
 * Words for the ranks of a run that several scenes use: how many, the share of each, what averages.
 *
 * @typedef {import("./player.js").RunFacts} RunFacts
 * @typedef {[string, string]} Meaning  what training together means: a sentence, and how
 */

const SHARE_WORDS = ["", "all", "half", "a third", "a quarter"];
const NUMBER_WORDS = ["", "", "", "three", "four"];

/**
 * Whether this is a job whose operations were recorded, and no message of them.
 * @param {import("./player.js").Known} known
 */
export const onlyOperations = ({ run, table }) =>
  !!run?.notes?.some((note) => note.startsWith("operations only")) && table.completed === 0;

/** "4 processes" @param {number} n */
export const processes = (n) => (n === 1 ? "one process" : `${n} processes`);

/** "4 processes are training one model together." @param {number} n */
export const togetherWords = (n) =>
  n === 1 ? "One process trains one model." : `${processes(n)} are training one model together.`;

/**
 * What stands before a scene's sentence while the reader holds the ranks.
 * @param {import("./player.js").Known} known
 * @param {boolean} live  the picture is where the run is
 */
export const heldByReader = (known, live) =>
  live && known.control?.held && known.state === "running" ? "You hold the ranks. " : "";

/** What each of n takes: "half", "1/16". @param {number} n */
export const shareOfEach = (n) => SHARE_WORDS[n] ?? `1/${n}`;

/** "both", "all four", "all 16" @param {number} n */
export const allOf = (n) => (n === 2 ? "both" : `all ${NUMBER_WORDS[n] ?? n}`);

/**
 * A strategy's sentence about its ranks (workbench/experiment/traits.py), its braces filled in.
 * @param {string} sentence @param {RunFacts} run
 */
export const filled = (sentence, run) =>
  sentence
    .replaceAll("{share}", shareOfEach(run.ranks))
    .replaceAll("{averages}", averagesWords(run))
    .replaceAll("{all}", allOf(run.ranks));

/** "a ring averages", "an all-reduce (one shot) averages" @param {RunFacts} run */
export function averagesWords({ algorithm, auto }) {
  if (!algorithm || algorithm === "ring") return "a ring averages";
  const choice = algorithm === "auto" && auto ? [auto] : [];
  return `an all-reduce (${[algorithm, ...choice].join(": ").replaceAll("_", " ")}) averages`;
}

// @ts-check
/**
 * DDP's buckets by identity: which parameters travel in which, in words. Pure.
 * @typedef {{cap_mb: number, first: string[][], rebuilt: string[][] | null, rebuilt_at: number,
 *   bytes: number[]}} Buckets
 */
import { bytes, grouped } from "../../engine/format.js";

const NAMED_PARAMETERS = 6; // in words; more are counted

/**
 * The buckets of a run, as its ranks have reported them.
 * @param {import("../../engine/player.js").Known["run"]} run
 * @returns {Buckets | null}
 */
export const bucketFacts = (run) => run?.buckets ?? null;

/** The number in a collective's name, "bucket 3"; -1 if it is none. @param {string} name */
export function bucketNumber(name) {
  const found = /^bucket (\d+)$/.exec(name);
  return found ? Number(found[1]) : -1;
}

/**
 * The parameters of a bucket in an iteration; none where nobody said.
 * @param {Buckets | null | undefined} told
 * @param {number} bucket
 * @param {number} iteration
 * @returns {string[]}
 */
export function bucketNames(told, bucket, iteration) {
  if (!told || bucket < 0) return [];
  const now = told.rebuilt && iteration >= told.rebuilt_at ? told.rebuilt : told.first;
  return now[bucket] ?? [];
}

/** "fc2.bias, fc2.weight and 4 more": of few parameters all. @param {string[]} names */
export function parameterWords(names) {
  const most = names.length === NAMED_PARAMETERS + 1 ? NAMED_PARAMETERS + 1 : NAMED_PARAMETERS;
  const more = names.length - most;
  return more > 0
    ? `${names.slice(0, most).join(", ")} and ${grouped(more)} more`
    : names.join(", ");
}

/**
 * What is in a bucket, to follow what is said of it; "" where nobody knows.
 * @param {Buckets | null | undefined} told
 * @param {number} bucket
 * @param {number} iteration
 */
export function bucketWords(told, bucket, iteration) {
  const names = bucketNames(told, bucket, iteration);
  return names.length ? `; bucket ${bucket} holds ${parameterWords(names)}` : "";
}

/**
 * What it means that buckets are built anew.
 * @param {number} rank
 * @param {Buckets | null | undefined} told
 * @param {number} iteration
 */
export function rebuiltWords(rank, told, iteration) {
  const what =
    `rank ${rank} rebuilt its buckets in iteration ${grouped(iteration + 1)}: from now on in the ` +
    "order in which gradients came";
  if (!told?.rebuilt) return what;
  const count = told.rebuilt.length;
  const were = told.first.length;
  const sizes = told.bytes;
  return (
    `${what}, ${grouped(count)} of them instead of ${grouped(were)}, at most ` +
    `${bytes(Math.max(...sizes))} each`
  );
}

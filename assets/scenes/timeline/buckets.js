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
  const match = /^bucket (\d+)$/.exec(name);
  return match ? Number(match[1]) : -1;
}

/**
 * Return the parameters of a bucket in an iteration; none if they are unknown.
 * @param {Buckets | null | undefined} buckets
 * @param {number} bucket
 * @param {number} iteration
 * @returns {string[]}
 */
export function bucketNames(buckets, bucket, iteration) {
  if (!buckets || bucket < 0) return [];
  const now = buckets.rebuilt && iteration >= buckets.rebuilt_at ? buckets.rebuilt : buckets.first;
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
 * Return what is in a bucket, to follow its caption; "" if unknown.
 * @param {Buckets | null | undefined} buckets
 * @param {number} bucket
 * @param {number} iteration
 */
export function bucketWords(buckets, bucket, iteration) {
  const names = bucketNames(buckets, bucket, iteration);
  return names.length ? `; bucket ${bucket} holds ${parameterWords(names)}` : "";
}

/**
 * What it means that buckets are built anew.
 * @param {number} rank
 * @param {Buckets | null | undefined} buckets
 * @param {number} iteration
 */
export function rebuiltWords(rank, buckets, iteration) {
  const what =
    `rank ${rank} rebuilt its buckets in iteration ${grouped(iteration + 1)}: from now on in the ` +
    "order in which gradients came";
  if (!buckets?.rebuilt) return what;
  const count = buckets.rebuilt.length;
  const were = buckets.first.length;
  const sizes = buckets.bytes;
  return (
    `${what}, ${grouped(count)} of them instead of ${grouped(were)}, at most ` +
    `${bytes(Math.max(...sizes))} each`
  );
}

// @ts-check
/**
 * A parameter server's workers, pushes and versions at a moment, looked up in its index.
 *
 * @typedef {import("./index.js").Push} Push
 * @typedef {import("./index.js").Pair} Pair
 * @typedef {import("./index.js").Worker} Worker
 * @typedef {import("./index.js").Server} Server
 */
import { countUntil } from "../../engine/search.js";

/** A worker's turn at t, or undefined before its first. @param {Worker} worker @param {number} t */
export const turnAt = (worker, t) =>
  worker.granted[countUntil(worker.granted, t, (turn) => turn.granted) - 1];

/**
 * A push of which nothing else is known yet.
 * @param {number} worker @param {number} server @param {number} iteration @param {number} generation
 * @returns {Push}
 */
export const newPush = (worker, server, iteration, generation) => ({
  worker,
  server,
  iteration,
  generation,
  op: iteration,
  start: NaN,
  left: NaN,
  arrive: NaN,
  taken: NaN,
  begin: NaN,
  end: NaN,
  on: -1,
  version: -1,
  stale: 0,
  dropped: 0,
  nbytes: 0,
});

/**
 * The first iteration whose push the server has neither applied nor counted by t.
 * @param {Pair} pair
 * @param {number} t
 * @param {number} stride  iterations from a push to the next
 */
export function acceptedBy({ pushes, iterations }, t, stride) {
  let low = 0;
  let high = iterations.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (pushes[iterations[middle]].end <= t) low = middle + 1;
    else high = middle;
  }
  return iterations[low] ?? (low ? iterations[low - 1] + stride : 0);
}

/**
 * What a server did for one of several models.
 * @param {Server} server
 * @param {number} team  of workers
 * @param {(worker: number) => number} teamOf
 * @returns {Push[]}
 */
export function doneFor(server, team, teamOf) {
  let pushes = server.teams.get(team);
  if (!pushes) server.teams.set(team, (pushes = { read: 0, done: [] }));
  for (; pushes.read < server.done.length; pushes.read++)
    if (teamOf(server.done[pushes.read].worker) === team)
      pushes.done.push(server.done[pushes.read]);
  return pushes.done;
}

/** A shard's version at t, after these updates. @param {{done: Push[]}} server @param {number} t */
export function versionAt({ done }, t) {
  const last = done[countUntil(done, t, (push) => push.end) - 1];
  return last
    ? last.version
    : done.length
      ? Math.max(0, done[0].version - (done[0].dropped ? 0 : 1))
      : 0;
}

/**
 * Count a server's keys in a generation, those of each model in turn.
 * @param {Server} server @param {number} generation @param {number} t @param {number} count
 */
export function addKeys({ keys }, generation, t, count) {
  const last = keys[keys.length - 1];
  if (last?.generation === generation) last.count += count;
  else keys.push({ generation, t, count });
}

/**
 * Each shard's part of the keys at t: as its server counted them, else as bytes have travelled.
 * @param {import("./index.js").ServerIndex} index
 * @param {number} t
 */
export function sharesAt({ servers, pairs }, t) {
  const all = [...servers.values()];
  const begun = all.flatMap(({ keys }) => keys.filter((one) => one.t <= t));
  const newest = Math.max(0, ...begun.map(({ generation }) => generation));
  const had = all.map(
    ({ keys }) => keys.find(({ generation }) => generation === newest)?.count ?? 0,
  );
  const counted = newest > 0 ? had.some((n) => n > 0) : had.every((n) => n > 0);
  const parts = counted
    ? had
    : all.map(({ rank }) =>
        Math.max(0, ...[...pairs.values()].filter((p) => p.server === rank).map((p) => p.bytes)),
      );
  const sum = parts.reduce((a, b) => a + b, 0);
  return parts.map((n) => (sum ? n / sum : 1 / parts.length));
}

// @ts-check
/**
 * Where a worker's time went, from its turns: computing, pulling, pushing, stopped by the bound,
 * waiting for a server.
 *
 * @typedef {import("./index.js").ServerIndex} ServerIndex
 * @typedef {import("./index.js").Worker} Worker
 * @typedef {import("./index.js").Turn} Turn
 * @typedef {import("./index.js").Bound} Bound
 */
import { countUntil } from "../../engine/search.js";

export const TURN_PARTS = /** @type {const} */ ([
  "compute",
  "pull",
  "push",
  "blocked",
  "waits for a server",
]);

/**
 * Since when the bound lets a worker start an iteration: when the slowest's push was in that it has
 * to wait for, at the last server; -Infinity where there is no bound, NaN as long as it does not.
 * @param {ServerIndex} index @param {Worker} worker @param {number} iteration @param {Bound} bound
 */
export function allowedSince(index, worker, iteration, { low, teamOf }) {
  if (low === null || iteration <= low) return -Infinity;
  let since = -Infinity;
  for (const [server] of index.servers) {
    let allowed = -Infinity;
    for (const { worker: other, server: at, pushes } of index.pairs.values()) {
      if (at !== server || teamOf(other) !== teamOf(worker.rank)) continue;
      const end = pushes[iteration - low - 1]?.end ?? NaN;
      const lost = index.goneAt(other, Infinity);
      // who has gone is not waited for
      allowed = Math.max(allowed, Number.isNaN(lost) || end <= lost ? end : lost);
    }
    const granted =
      worker.slack.find((s) => s.server === server && s.limit >= iteration)?.t ?? Infinity;
    since = Math.max(
      since,
      Number.isNaN(allowed) && granted < Infinity ? granted : Math.min(allowed, granted),
    );
  }
  return since;
}

/**
 * How a worker spent the time up to t, by part, in ns. After its pushes it is blocked until the
 * bound lets it start the next iteration, then it waits for the servers' answer; the parts add up
 * to the whole.
 * @param {ServerIndex} index @param {Worker} worker @param {number} t @param {Bound} bound
 */
export function partsUntil(index, worker, t, bound) {
  const { granted, sums } = worker;
  const count = countUntil(granted, t, (turn) => turn.granted);
  for (let i = sums.length; i < count; i++) {
    const before = sums[i - 1];
    const sum = new Float64Array(5);
    if (before) {
      sum.set(before);
      addTurn(sum, index, worker, granted[i - 1], granted[i].granted, bound);
    }
    sums.push(sum);
  }
  const parts = Float64Array.from(count ? sums[count - 1] : [0, 0, 0, 0, 0]);
  if (count) addTurn(parts, index, worker, granted[count - 1], t, bound);
  return parts;
}

/**
 * @param {Float64Array} sum
 * @param {ServerIndex} index
 * @param {Worker} worker
 * @param {Turn} turn
 * @param {number} until
 * @param {Bound} bound
 */
function addTurn(sum, index, worker, turn, until, bound) {
  const within = (/** @type {number} */ x) =>
    Math.min(until, Number.isNaN(x) ? until : Math.max(turn.granted, x));
  const pulled = within(turn.pulled);
  const pushing = Math.max(pulled, within(turn.pushing));
  const pushed = Math.max(pushing, within(turn.pushed));
  sum[1] += pulled - turn.granted;
  sum[0] += pushing - pulled;
  sum[2] += pushed - pushing;
  // no more is asked for
  if (bound.iterations > 0 && turn.iteration + 1 >= bound.iterations) return;
  const free = Math.max(pushed, within(allowedSince(index, worker, turn.iteration + 1, bound)));
  sum[3] += free - pushed;
  sum[4] += until - free;
}

// @ts-check
/**
 * One frame of a parameter server at a playhead: where each worker is, what it holds, who is
 * stopped by the bound, what waits at each shard, what is on its way. Pure functions of the index
 * and t: "w at time t" is `held` and `version`.
 *
 * @typedef {import("./index.js").ServerIndex} ServerIndex
 * @typedef {import("./index.js").Push} Push
 * @typedef {import("./index.js").Worker} Worker
 * @typedef {import("./call_source.js").Flight} Flight
 * @typedef {{servers: number, models: number, consistency: string, low: number | null,
 *   high: number | null, together: boolean, waits: boolean, drop_above: number | null,
 *   words: string, replicas?: number,
 *   pushes?: string, mode?: string, once_per?: string}} Rule  mode, once_per: of Elephas
 *   replicas: servers that have each key; pushes: what a push is, where it is no gradient;
 *   how far a worker may lead the slowest: low of everybody, high with what a controller grants
 *   beyond; null: no bound, or none that is known; together: the gradients of a clock make one
 *   update; waits: false where no worker waits for another
 * @typedef {"start" | "pull" | "compute" | "push" | "blocked" | "waits" | "ended" | "lost"}
 *   WorkerDoing  blocked: by the bound; waits: for a server's answer
 * @typedef {{rank: number, iteration: number, doing: WorkerDoing, since: number, held: number[],
 *   behind: number[], worst: number, limit: number | null, slack: number, ahead: number}} WorkerNow
 *   held: version of each shard, -1 before the first pull; worst: updates that it lacks of the
 *   shard where it lacks most; limit: the last iteration that it may start now; slack: how much of
 *   the bound is left, 0 to 1
 * @typedef {{rank: number, version: number, versions: number[], queue: Push[], applying: Push[],
 *   share: number, keys: number, kept: boolean, gone: number, copies: number[],
 *   regained: import("./keys.js").Regained[]}} ShardNow
 *   gone: since when, NaN if it is there; copies: servers whose keys it has a copy of; regained: keys
 *   of lost servers that it has taken over; versions: one a model; kept: the gradients that are here wait for the others of their clock, as
 *   in bulk synchronous training
 * @typedef {{t: number, workers: WorkerNow[], shards: ShardNow[], min: number, slowest: number[],
 *   most: number, pushes: string, stride: number, comets: (Flight & {share: number})[], moves: (import("./keys.js").Regained &
 *   {share: number})[]}} ServerFrame
 *   moves: keys of lost servers on their way to others;
 *   min: iterations that every shard has taken in of every live worker; slowest: who is there;
 *   most: the furthest iteration that anybody is in; pushes: what a push is: "gradient"; stride:
 *   iterations from a push to the next
 */
import { countUntil } from "../../engine/search.js";
import { copiesOn, regainedBy } from "./keys.js";
import { acceptedBy, doneFor, sharesAt, turnAt, versionAt } from "./lookups.js";
import { flightsBetween } from "./call_source.js";

/** @type {Rule} */
const UNKNOWN = {
  servers: 0,
  models: 1,
  consistency: "",
  low: null,
  high: null,
  together: false,
  waits: true,
  drop_above: null,
  words: "",
};

/**
 * What the experiment asked for.
 * @param {import("../../engine/player.js").Known} known
 * @returns {Rule}
 */
export const ruleOf = (known) => known.run?.server ?? UNKNOWN;

/**
 * What a worker's time is divided by.
 * @param {Rule} rule
 * @param {number} iterations
 * @returns {import("./index.js").Bound}
 */
export const boundOf = (rule, iterations) => ({ low: rule.low, iterations, teamOf: teamOf(rule) });

/**
 * Which of several models a worker trains.
 * @param {Rule} rule
 * @returns {(rank: number) => number}
 */
const teamOf =
  ({ models, servers }) =>
  (rank) =>
    models > 1 ? (rank - servers) % models : 0;

/**
 * The version that a worker held of each shard at t, -1 before its first pull.
 * @param {ServerIndex} index
 * @param {number} rank
 * @param {number} t
 */
export function heldAt(index, rank, t) {
  return [...index.servers.keys()].map((server) => {
    const pulls = index.pairs.get(rank * 65_536 + server)?.pulls ?? [];
    const last = pulls[countUntil(pulls, t, (pull) => pull.end) - 1];
    return last ? last.version : -1;
  });
}

/**
 * Up to which iteration a worker may start at t.
 * @param {number[]} living  servers
 * @param {Worker} worker
 * @param {(server: number) => number} least  the slowest of its own model there
 * @param {Rule} rule
 * @param {number} t
 */
function limitOf(living, worker, least, rule, t) {
  if (rule.low === null) return null;
  let limit = Infinity;
  for (const server of living) {
    const granted = worker.slack.findLast((s) => s.server === server && s.t <= t)?.limit ?? -1;
    limit = Math.min(limit, Math.max(least(server) + rule.low, granted));
  }
  return Number.isFinite(limit) ? limit : null;
}

/**
 * @param {ServerIndex} index
 * @param {Rule} rule
 * @param {number} t
 * @param {number} iterations  of each worker; -1: not known
 * @param {import("./keys.js").RecoveryFact[]} [recoveries]
 * @returns {ServerFrame}
 */
export function frameOf(index, rule, t, iterations, recoveries = []) {
  const lost = new Map(
    [...index.workers.keys(), ...index.servers.keys()].map((rank) => [rank, index.goneAt(rank, t)]),
  );
  const gone = (/** @type {number} */ rank) => (lost.get(rank) ?? NaN) <= t;
  const pairs = [...index.pairs.values()].filter(({ server }) => !gone(server));
  const { stride } = index;
  const least = new Map();
  const team = teamOf(rule);
  for (const pair of pairs) {
    const key = team(pair.worker) * 65_536 + pair.server;
    if (!gone(pair.worker))
      least.set(key, Math.min(least.get(key) ?? Infinity, acceptedBy(pair, t, stride)));
  }
  const min = least.size ? Math.min(...least.values()) : 0;
  const shares = sharesAt(index, t);
  const servers = [...index.servers.values()];
  const living = servers.map(({ rank }) => rank).filter((rank) => !gone(rank));
  const copies = copiesOn(living, rule.replicas ?? 1);
  const regained = regainedBy(index, recoveries, t);
  const teams = Array.from({ length: Math.max(1, rule.models) }, (_, i) => i);
  const versions = servers.map((server) =>
    teams.map((i) => versionAt(rule.models > 1 ? { done: doneFor(server, i, team) } : server, t)),
  );
  const workers = [...index.workers.values()].map((worker) => {
    const mine = team(worker.rank);
    const slowest = (/** @type {number} */ server) => least.get(mine * 65_536 + server) ?? 0;
    return workerNow(index, rule, worker, t, {
      min,
      least: slowest,
      versions: versions.map((all) => all[mine]),
      iterations,
      gone: lost.get(worker.rank) ?? NaN,
      living,
    });
  });
  const slowest = workers
    .filter(
      (w) =>
        !gone(w.rank) && pairs.some((p) => p.worker === w.rank && acceptedBy(p, t, stride) === min),
    )
    .map((w) => w.rank);
  const shards = servers.map((server, i) => ({
    ...shardNow(pairs, server.rank, t, versions[i], shares[i], rule.together),
    gone: lost.get(server.rank) ?? NaN,
    keys: server.keys.findLast((one) => one.t <= t)?.count ?? 0,
    copies: copies.get(server.rank) ?? [],
    regained: regained.filter((one) => one.owner === server.rank && one.end <= t),
  }));
  const comets = flightsBetween(index, t, t)
    .filter((f) => f.start <= t && t < f.end && !gone(f.from) && !gone(f.to))
    .map((f) => ({ ...f, share: (t - f.start) / (f.end - f.start) }));
  return {
    t,
    workers,
    shards,
    min,
    slowest,
    most: Math.max(min, ...workers.map((w) => w.iteration)),
    pushes: rule.pushes ?? "gradient",
    stride,
    comets,
    moves: regained
      .filter((one) => t < one.end)
      .map((one) => ({ ...one, share: (t - one.start) / (one.end - one.start) })),
  };
}

/**
 * @param {ServerIndex} index
 * @param {Rule} rule
 * @param {Worker} worker
 * @param {number} t
 * @param {{min: number, least: (server: number) => number, versions: number[], iterations: number,
 *   gone: number, living: number[]}} all
 * @returns {WorkerNow}
 */
function workerNow(index, rule, worker, t, { min, least, versions, iterations, gone, living }) {
  const turn = turnAt(worker, t);
  const servers = [...index.servers.keys()];
  const held = heldAt(index, worker.rank, t).map((v, i) => (living.includes(servers[i]) ? v : -1));
  const behind = held.map((v, i) => (v < 0 ? 0 : Math.max(0, versions[i] - v)));
  const limit = limitOf(living, worker, least, rule, t);
  const iteration = turn?.iteration ?? min;
  const worst = Math.max(0, ...behind);
  const [doing, since] = doingOf(turn, t, iterations, limit, gone, index.stride);
  const asks = doing === "blocked" ? iteration + 1 : iteration;
  const room = Math.max(1, (rule.high ?? rule.low ?? 1) || 1);
  const slack =
    limit === null ? 1 : doing === "blocked" ? 0 : Math.max(0, Math.min(1, (limit - asks) / room));
  return {
    rank: worker.rank,
    iteration,
    doing,
    since,
    held,
    behind,
    worst,
    limit,
    slack,
    ahead: iteration - min,
  };
}

/**
 * @param {import("./index.js").Turn | undefined} turn
 * @param {number} t
 * @param {number} iterations
 * @param {number | null} limit
 * @param {number} lost
 * @param {number} stride
 * @returns {[WorkerDoing, number]}
 */
function doingOf(turn, t, iterations, limit, lost, stride) {
  if (lost <= t) return ["lost", lost];
  if (!turn) return ["start", 0];
  if (t < turn.pulled || (Number.isNaN(turn.pulled) && Number.isNaN(turn.pushing)))
    return ["pull", turn.granted];
  if (!(turn.pushing <= t))
    return ["compute", Number.isNaN(turn.pulled) ? turn.granted : turn.pulled];
  if (t < turn.pushed) return ["push", turn.pushing];
  if (iterations > 0 && turn.iteration + stride >= iterations) return ["ended", turn.pushed];
  return [limit !== null && turn.iteration + 1 > limit ? "blocked" : "waits", turn.pushed];
}

/**
 * @param {import("./index.js").Pair[]} pairs
 * @param {number} rank
 * @param {number} t
 * @param {number[]} versions
 * @param {number} share
 * @param {boolean} synchronous
 */
function shardNow(pairs, rank, t, versions, share, synchronous) {
  const arrived = [];
  for (const pair of pairs) {
    if (pair.server !== rank) continue;
    const next = pair.iterations.indexOf(acceptedBy(pair, t, 1));
    if (next < 0) continue;
    for (const iteration of pair.iterations.slice(next, next + 4)) {
      const push = pair.pushes[iteration];
      if (push.arrive <= t && !(push.end <= t)) arrived.push(push);
    }
  }
  arrived.sort((a, b) => a.arrive - b.arrive || a.worker - b.worker);
  const applying = arrived.filter((push) => push.begin <= t);
  const queue = arrived.filter((push) => !(push.begin <= t));
  return {
    rank,
    version: versions[0],
    versions,
    queue,
    applying,
    share,
    kept: synchronous && queue.length > 0,
  };
}

/**
 * What became of a push by t.
 * @param {Push | undefined} push
 * @param {number} t
 * @returns {"" | "flying" | "there" | "applied" | "dropped"}
 */
export function fateOf(push, t) {
  if (!push || !(Math.min(push.start, Number.isNaN(push.end) ? Infinity : push.end) <= t))
    return "";
  if (push.end <= t) return push.dropped ? "dropped" : "applied";
  return push.arrive <= t ? "there" : "flying";
}

// @ts-check
/**
 * One frame of replicas that mix, at a playhead: how far each is from their mean, what each has
 * sent, what is on its way, when they mix next. Pure functions of the index and t.
 *
 * @typedef {import("./index.js").PeersIndex} PeersIndex
 * @typedef {import("./index.js").PeerFacts} PeerFacts
 * @typedef {import("./index.js").Flown} Flown
 * @typedef {{rank: number, done: number, distance: number, sent: number, lost: boolean}} PeerNow
 *   done: iterations that it has done; distance: from the mean of the replicas, NaN unknown; sent:
 *   bytes
 * @typedef {{from: number, to: number, nbytes: number, many: number, planned: boolean,
 *   weight: number}} LinkNow  many: messages, or chunks
 * @typedef {{number: string, start: number, end: number}} Averaging
 * @typedef {{t: number, peers: PeerNow[], at: number, iteration: number, rms: number,
 *   length: number, far: number[], comets: (Flown & {share: number})[], links: LinkNow[],
 *   averaging: Averaging | null, next: number, done: number, most: number}} PeersFrame
 *   at: how many points of the disagreement there are by then; iteration: the one that distances
 *   are of, -1: none, or each rank's own; far: who is furthest;
 *   next: iterations until the replicas mix, this one included, NaN unknown; done: iterations that
 *   all have done; most: the greatest distance of late
 */
import { firstMixing } from "./call_source.js";
import { arrivedAt } from "./index.js";
import { goneSince } from "../../engine/generations.js";
import { countUntil } from "../../engine/search.js";

const LATELY = 6; // iterations that the scale of distances goes by

/**
 * What counts as no distance at all: rounding of the estimate.
 * @param {number} distance
 * @param {number} length
 */
export const isNone = (distance, length) => distance <= 1e-6 * Math.max(length, 1e-30);

/**
 * Iterations until the replicas mix next, this one included.
 * @param {PeerFacts | null | undefined} facts
 * @param {number} done
 */
export function nextMixing(facts, done) {
  if (!facts) return NaN;
  const first = firstMixing(facts);
  const every = Math.max(1, facts.every);
  return done <= first ? first - done + 1 : every - ((done - first - 1) % every);
}

/**
 * An averaging of all that was under way at t.
 * @param {import("../../engine/table.js").Table} table
 * @param {number} t
 * @returns {Averaging | null}
 */
function averagingAt({ calls }, t) {
  for (
    let i = countUntil(calls, t, (call) => call.start) - 1, seen = 0;
    i >= 0 && seen < 8;
    i--, seen++
  ) {
    const { start, end, name, complete } = calls[i];
    const match = name.match(/^average (\d+)/);
    if (match && (t < end || !complete)) return { number: match[1], start, end };
  }
  return null;
}

/**
 * @param {PeersIndex} index
 * @param {PeerFacts | null | undefined} facts
 * @param {number} t
 * @param {number} ranks
 * @param {number} iterations  of each; -1: not known
 * @returns {PeersFrame}
 */
export function frameOf(index, facts, t, ranks, iterations = -1) {
  const { spreads, replicas } = index;
  const at = countUntil(spreads, t, (one) => one.t);
  const shown = spreads[at - 1];
  const spread = index.synchronous ? shown : index.spreadAt(t);
  const lostAt = (/** @type {number} */ rank) =>
    goneSince(index.table, rank, t, replicas.get(rank)?.lost) <= t;
  const sent = new Map(/** @type {[number, number][]} */ ([]));
  const planned = new Map((facts?.edges ?? []).map(([a, b, w]) => [a * 65_536 + b, w]));
  const links = /** @type {LinkNow[]} */ ([]);
  for (const [number, way] of index.ways) {
    const over = index.sentOver(way, t);
    sent.set(way.from, (sent.get(way.from) ?? 0) + over.nbytes);
    links.push({
      from: way.from,
      to: way.to,
      ...over,
      planned: planned.has(number),
      weight: planned.get(number) ?? 0,
    });
  }
  for (const [number, weight] of planned)
    if (!index.ways.has(number))
      links.push({
        from: Math.floor(number / 65_536),
        to: number % 65_536,
        nbytes: 0,
        many: 0,
        planned: true,
        weight,
      });
  const peers = Array.from({ length: ranks }, (_, rank) => {
    const done = replicas.get(rank)?.done ?? [];
    const last = done[countUntil(done, t, (one) => one.t) - 1];
    return {
      rank,
      done: last ? last.iteration + 1 : 0,
      distance: spread?.of.get(rank) ?? NaN,
      sent: sent.get(rank) ?? 0,
      lost: lostAt(rank),
    };
  });
  const alive = peers.filter((p) => !p.lost);
  const done = alive.length ? Math.min(...alive.map((p) => p.done)) : 0;
  const known = alive.filter((p) => Number.isFinite(p.distance));
  const worst = Math.max(...known.map((p) => p.distance));
  const comets = index
    .flyingAt(t)
    .filter((f) => !lostAt(f.from) && !lostAt(f.to))
    .map((f) => ({ ...f, share: (t - f.start) / (arrivedAt(f) - f.start) }));
  return {
    t,
    peers,
    at,
    iteration: index.synchronous && shown ? shown.iteration : -1,
    rms: spread?.rms ?? NaN,
    length: spread?.length ?? NaN,
    far: known.filter((p) => p.distance === worst).map((p) => p.rank),
    comets,
    links,
    averaging: averagingAt(index.table, t),
    next: iterations > 0 && done >= iterations ? NaN : nextMixing(facts, done),
    done,
    most: Math.max(0, mostOfLate(index, at, facts), ...known.map((p) => p.distance)),
  };
}

/**
 * The greatest distance of any replica in the last points: over two mixings, and six iterations.
 * @param {PeersIndex} index
 * @param {number} at
 * @param {PeerFacts | null | undefined} facts
 */
function mostOfLate({ spreads }, at, facts) {
  let most = 0;
  for (let i = Math.max(0, at - Math.max(LATELY, 2 * (facts?.every ?? 1))); i < at; i++)
    for (const d of spreads[i].of.values()) if (d > most) most = d;
  return most;
}

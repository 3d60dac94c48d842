// @ts-check
/**
 * What each rank does, as a mark and in words: at this moment, over the last second, or at a moment
 * of the record. Pure functions.
 *
 * A rank that changes what it does faster than one can read is shown by shares of the last second;
 * one that has done the same for a while, by what it does.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {import("./player.js").Known} Known
 * @typedef {import("./player.js").LaneNow} LaneNow
 * @typedef
 *   {"compute" | "move" | "wait" | "serve" | "held" | "frozen" | "ended" | "killed" | "stopped" |
 *     "away" | "none"}
 *   DoingMark
 * @typedef {{rank: number, mark: DoingMark, halo: boolean, words: string, waits: number,
 *   forWhom: number, long: boolean}} Doing
 *   halo: its messages wait while it computes; waits: share of the last second in which it stood
 *   still for others, 0 to 1; forWhom: the rank mostly waited for, or -1;
 *   long: it has been in the same for a while
 * @typedef {{compute: number, wait: number, move: number, free: number, inside: number,
 *   kinds: Map<number, number>, loads: string, peers: Map<number, number>}} Shares
 *   free: waiting that cost nothing (waits.js); inside: computing or in a collective; loads: what its last row of loading is called
 */
import {
  busySpans,
  isMessage,
  joined,
  placeInLane,
  servesExamples,
  standsForMessages,
  waitPieces,
} from "./waits.js";
import {
  EXAMPLES,
  INSTANTS,
  collectiveWords,
  awayWords,
  doesWords,
  plain,
  sortOf,
} from "./does_words.js";
import { lostAt, recoveringAt } from "./generations.js";
import { endOf, lostRanks } from "./lost_ranks.js";
import { onlyOperations } from "./run_words.js";
import { LONG, forLong } from "./standing.js";

const WINDOW = 1e9; // ns
const BUDGET = 2500; // rows of a lane that are looked at for a second's shares
const MARGIN = 0.1; // a mark gives way when another's share is so much larger: no flicker

/** The lanes of each rank. @param {Table} table @param {number} ranks */
function lanesOfRanks(table, ranks) {
  const lanes = Array.from(
    { length: ranks },
    () => /** @type {import("./table.js").Lane[]} */ ([]),
  );
  for (const lane of table.lanes.values()) lanes[lane.rank]?.push(lane);
  return lanes;
}

/**
 * The row that a lane is in at t, the innermost; or that it comes to next, with `next`.
 * @param {Table} table @param {import("./table.js").Lane} lane @param {number} t
 * @returns {{row: number, next: boolean} | null}
 */
export function rowInLane(table, lane, t) {
  let coming = -1;
  for (
    let i = placeInLane(table, lane, t), seen = 0;
    i < lane.length && seen < BUDGET;
    i++, seen++
  ) {
    const row = lane.rows[i];
    if (INSTANTS.has(table.kindName(table.kind[row]))) continue;
    if (table.start[row] <= t) return { row, next: false };
    if (coming < 0 || table.start[row] < table.start[coming]) coming = row;
    if (table.start[row] - t > WINDOW) break;
  }
  return coming < 0 ? null : { row: coming, next: true };
}

/**
 * What a rank was in at a moment of the record.
 * @param {Table} table
 * @param {number} rank
 * @param {import("./table.js").Lane[]} lanes
 * @param {number} t
 * @param {boolean} past
 * @param {Known["run"]} run
 * @returns {Doing}
 */
function atMoment(table, rank, lanes, t, past, run) {
  const serves = servesExamples(run, rank);
  const stands = !serves && standsForMessages(run, rank);
  const flights = lanes
    .flatMap((lane) => rowInLane(table, lane, t) ?? [])
    .flatMap((f) => {
      const kind = table.kindName(table.kind[f.row]);
      const collective = table.text(table.passages.collective[table.passage[f.row]]);
      const name = table.text(table.name[f.row]);
      if (kind === "wait" && !stands && isMessage(table, f.row)) return [];
      return {
        ...f,
        kind,
        sort: name === EXAMPLES ? /** @type {const} */ ("wait") : sortOf(kind),
        say: {
          peer: table.peer[f.row],
          chunk: collective === "p2p" ? -1 : table.chunk[f.row],
          collective,
          name,
        },
      };
    })
    // a receive that was posted ahead is what it waits for last
    .sort((a, b) => Number(a.say.collective === "p2p") - Number(b.say.collective === "p2p"));
  const doing = plain(rank, "none", past ? "had nothing under way" : "nothing under way");
  const inside = flights.filter((f) => !f.next);
  const compute = inside.find((f) => f.sort === "compute");
  const other = inside.find((f) => f.sort !== "compute");
  if (compute) {
    const halo = other?.sort === "wait";
    const also = !other
      ? ""
      : halo && other.say.collective === "p2p"
        ? `; ${past ? "what it was to receive from" : "what it is to receive from"} rank ` +
          `${other.say.peer} ${past ? "was" : "is"} not there yet`
        : halo
          ? `; ${past ? "a message waited" : "a message waits"} for rank ${other.say.peer}`
          : `; ${past ? "chunks moved" : "chunks move"} meanwhile`;
    return {
      ...doing,
      mark: "compute",
      halo,
      words: doesWords(compute.kind, compute.say, past) + also,
    };
  }
  if (other)
    return {
      ...doing,
      mark: other.sort,
      words: doesWords(other.kind, other.say, past),
      ...(other.sort === "wait" ? { waits: 1, forWhom: other.say.peer } : {}),
    };
  if (serves)
    return { ...doing, mark: "serve", words: past ? "served examples" : "serves examples" };
  return flights.length
    ? { ...doing, words: past ? "was between two things" : "between two things" }
    : doing;
}

/**
 * What every rank was in at t.
 * @param {Table} table
 * @param {number} ranks
 * @param {number} t
 * @param {boolean} past
 * @param {Known["run"]} [run]
 * @returns {Doing[]}
 */
export function doingAt(table, ranks, t, past, run = null) {
  const lost = lostAt({ table, run }, t);
  return lanesOfRanks(table, ranks).map(
    (lanes, rank) =>
      inRecovery(table, rank, t, past, lost.get(rank)) ??
      atMoment(table, rank, lanes, t, past, run),
  );
}

const RECOVERS = {
  abort: ["leaves its group", "was leaving its group"],
  rebuild: ["joins the next group", "was joining the next group"],
  restore: ["takes over what is trained", "was taking over what is trained"],
};

/**
 * A rank that is lost, or takes part in a recovery; null: neither.
 * @param {Table} table
 * @param {number} rank
 * @param {number} t
 * @param {boolean} past
 * @param {import("./generations.js").Loss | undefined} lost
 * @returns {Doing | null}
 */
function inRecovery(table, rank, t, past, lost) {
  if (lost) return plain(rank, "killed", lost.how);
  const recovery = recoveringAt(table, rank, t);
  if (!recovery) return null;
  const received = recovery.act.name === "received";
  const words = received
    ? ["receives parameters from a survivor", "was receiving parameters from a survivor"]
    : RECOVERS[recovery.kind];
  return plain(rank, received ? "move" : "wait", words[past ? 1 : 0]);
}

/**
 * How a rank has spent the time from t0 to t1, as far as its rows tell: parts of it, which may
 * overlap.
 * @param {Table} table
 * @param {import("./table.js").Lane[]} lanes
 * @param {number} t0
 * @param {number} t1
 * @param {boolean} [stands]  whether it does for messages
 * @returns {Shares}
 */
export function sharesOf(table, lanes, t0, t1, stands = true) {
  const shares = {
    compute: 0,
    wait: 0,
    move: 0,
    free: 0,
    kinds: new Map(),
    loads: "",
    peers: new Map(),
  };
  const computing = busySpans(table, lanes, t0, t1, false);
  const busy = busySpans(table, lanes, t0, t1, true);
  const stood = /** @type {import("./waits.js").Span[]} */ ([]);
  const free = /** @type {import("./waits.js").Span[]} */ ([]);
  let waitsFrom = t0;
  for (const lane of lanes) {
    const time = { compute: 0, move: 0 };
    let from = t0;
    let i = Math.min(lane.length, placeInLane(table, lane, t1) + 1) - 1;
    for (let seen = 0; i >= 0 && seen < BUDGET; i--, seen++) {
      const row = lane.rows[i];
      const kind = table.kindName(table.kind[row]);
      if (table.end[row] <= t0) break;
      if (seen === BUDGET - 1) from = table.start[row];
      if (INSTANTS.has(kind) || kind === "collective" || kind === "push" || kind === "pull")
        continue; // outer spans
      const span = Math.min(t1, table.end[row]) - Math.max(t0, table.start[row]);
      if (span <= 0) continue;
      const sort = sortOf(kind);
      if (sort !== "wait") time[sort] += span;
      else
        for (const piece of waitPieces(table, row, computing, busy, stands)) {
          const a = Math.max(t0, piece.start);
          const b = Math.min(t1, piece.end);
          if (b <= a) continue;
          (piece.free ? free : stood).push([a, b]);
          if (!piece.free && table.peer[row] >= 0)
            shares.peers.set(table.peer[row], (shares.peers.get(table.peer[row]) ?? 0) + b - a);
        }
      if (kind === "load") shares.loads ||= table.text(table.name[row]);
      if (sort === "compute")
        shares.kinds.set(table.kind[row], (shares.kinds.get(table.kind[row]) ?? 0) + span);
    }
    for (const sort of /** @type {const} */ (["compute", "move"]))
      shares[sort] += time[sort] / Math.max(1, t1 - from);
    waitsFrom = Math.max(waitsFrom, from);
  }
  const length = (/** @type {import("./waits.js").Span[]} */ spans) =>
    joined(spans).reduce((sum, [a, b]) => sum + Math.max(0, b - Math.max(a, waitsFrom)), 0) /
    Math.max(1, t1 - waitsFrom);
  return Object.assign(shares, {
    wait: length(stood),
    free: stands ? length(free) : 0,
    inside: length(busy),
  });
}

/** @template K @param {Map<K, number>} map @param {K} none */
const largestOf = (map, none) =>
  [...map].reduce(
    (best, [key, n]) => (n > best[1] ? [key, n] : best),
    /** @type {[K, number]} */ ([none, 0]),
  )[0];

/** Shares in steps of five per cent, so that words stand still. @param {number} share */
const fives = (share) => `${Math.min(100, Math.round(share * 20) * 5)} %`;

/**
 * @param {Known} known
 * @param {number} rank
 * @param {Shares} shares
 * @param {DoingMark | undefined} before
 * @returns {Doing}
 */
function overSecond(known, rank, shares, before) {
  if (onlyOperations(known))
    return plain(rank, "move", `in its operations ${fives(shares.inside)} of the time`);
  const parts = /** @type {const} */ (["compute", "wait", "move"]);
  const peer = largestOf(shares.peers, -1);
  const whom = peer >= 0 ? `, for rank ${peer}` : "";
  let mark = parts.reduce((a, b) => (shares[b] > shares[a] ? b : a));
  const had = parts.find((part) => part === before);
  if (had && had !== mark && shares[had] > 0 && shares[had] + MARGIN > shares[mark]) mark = had;
  const halo = mark === "compute" && shares.free >= 0.25;
  const kind = known.table.kindName(largestOf(shares.kinds, known.table.code.backward));
  const does =
    known.run?.strategy === "" && (kind === "optimizer" || !shares.kinds.size)
      ? "runs its own code" // little of it is recorded
      : doesWords(kind, { peer: -1, chunk: -1, collective: "", name: shares.loads }, false);
  const waits = `waits ${fives(shares.wait)}`;
  const words =
    mark === "wait"
      ? `${waits}${whom}`
      : mark === "move"
        ? `passes chunks on, ${fives(shares.move)}`
        : shares.wait >= 0.1
          ? `${does}, ${waits}`
          : does;
  return { ...plain(rank, mark, words), halo, waits: shares.wait, forWhom: peer };
}

/**
 * A rank that serves examples: what it does for whom changes faster than one can read.
 * @param {number} rank
 * @param {Shares} shares
 * @returns {Doing}
 */
const servesNow = (rank, { compute, move }) => ({
  ...plain(
    rank,
    "serve",
    compute + move >= 0.1
      ? `serves examples, busy ${fives(Math.min(1, compute + move))}`
      : "serves examples",
  ),
});

/**
 * What every rank does now.
 * @param {Known} known
 * @param {number} ranks
 * @param {number} now  the ranks' own time
 * @param {DoingMark[]} [before]  their marks of the last time
 * @returns {Doing[]}
 */
export function doingNow(known, ranks, now, before = []) {
  const { table, control, lanesNow } = known;
  const t1 = now - table.to > LONG ? now : table.to;
  const lost = lostRanks(known);
  const openOf = /** @type {Map<number, LaneNow[]>} */ (new Map());
  for (const lane of lanesNow) openOf.set(lane.rank, [...(openOf.get(lane.rank) ?? []), lane]);
  return lanesOfRanks(table, ranks).map((lanes, rank) => {
    const open = openOf.get(rank) ?? [];
    const slow = control?.slow?.[rank];
    const serves = servesExamples(known.run, rank);
    const stands = !serves && standsForMessages(known.run, rank);
    const shares = () => {
      const all = sharesOf(table, lanes, t1 - WINDOW, t1, stands);
      for (const gone of lost.keys()) all.peers.delete(gone); // no rank waits for it any more
      return all;
    };
    const doing =
      endOf(known, rank, lost) ??
      standsAt(known, rank, open) ??
      forLong(table, open, now, stands) ??
      (!lanes.some((lane) => lane.length)
        ? notYet(known, rank, open)
        : serves
          ? servesNow(rank, shares())
          : overSecond(known, rank, shares(), before[rank]));
    return slow && slow > 1 && doing.mark === "compute"
      ? { ...doing, words: `${doing.words}, slowed ×${slow}` }
      : doing;
  });
}

/** @param {Known} known @param {number} rank @param {LaneNow[]} lanes @returns {Doing} */
function notYet(known, rank, lanes) {
  const pid = known.control?.pids?.[rank];
  const words = lanes.length
    ? "begins"
    : !known.run
      ? "not known yet"
      : known.state === "empty"
        ? "not started"
        : pid
          ? `starts (process ${pid})`
          : "starts";
  return plain(rank, "none", words);
}

/**
 * A rank that stands still because of us, or of which nothing comes.
 * @param {Known} known
 * @param {number} rank
 * @param {LaneNow[]} lanes
 * @returns {Doing | null}
 */
function standsAt({ control, table }, rank, lanes) {
  const host = control?.cut_off?.[rank];
  if (host !== undefined) return { ...plain(rank, "away", awayWords(host)), long: true };
  if (control?.frozen.includes(rank))
    return { ...plain(rank, "frozen", "frozen: its process is stopped"), long: true };
  if (!control?.held || !control.standing.includes(rank)) return null;
  const comm = lanes.find((lane) => lane.op >= 0);
  // a wait does not say of what
  const call = comm && table.calls.findLast((c) => c.op === comm.op && c.group === comm.group);
  return plain(
    rank,
    "held",
    comm
      ? `before a chunk of ${collectiveWords(comm.collective || (call?.collective ?? ""))}`
      : "before its next iteration",
  );
}

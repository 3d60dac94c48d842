// @ts-check
/**
 * What each rank does, as a mark and in words: at this moment, over the last second, or at a moment of the record. Pure functions.
 *
 * A rank that changes what it does faster than one can read is told by shares of the last second; one that has been in
 * the same for a while is told as it is.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {import("./player.js").Known} Known
 * @typedef {import("./player.js").LaneNow} LaneNow
 * @typedef {"compute" | "move" | "wait" | "serve" | "held" | "frozen" | "ended" | "killed" | "stopped" | "none"} DoingMark
 * @typedef {{rank: number, mark: DoingMark, halo: boolean, words: string, waits: number, forWhom: number, long: boolean}} Doing
 *   halo: its messages wait while it computes; waits: share of the last second in which it stood still for others, 0 to 1; forWhom: the rank mostly waited for, or -1;
 *   long: it has been in the same for a while
 * @typedef {{compute: number, wait: number, move: number, free: number, kinds: Map<number, number>, peers: Map<number, number>}} Shares
 *   free: waiting that cost nothing (waits.js)
 */
import { COMPUTES, busySpans, isMessage, joined, placeInLane, servesExamples, standsForMessages, waitPieces } from "./waits.js";
import { duration } from "./words.js";

const LONG = 0.3e9; // ns: what lasts longer is told as it is
const WINDOW = 1e9; // ns
const BUDGET = 2500; // rows of a lane that are looked at for a second's shares
const MARGIN = 0.1; // a mark gives way when another's share is so much larger: no flicker

/** What a rank does in a kind of row, now and then. @type {Record<string, [string, string]>} */
const DOES = {
  forward: ["computes the loss", "was computing the loss"], backward: ["computes gradients", "was computing gradients"],
  weight_grad: ["computes weight gradients", "was computing weight gradients"], optimizer: ["updates its parameters", "was updating its parameters"],
  load: ["loads its samples", "was loading its samples"], apply: ["applies a push", "was applying a push"], wait: ["waits", "was waiting"],
  send: ["sends", "was sending"], recv: ["receives", "was receiving"], reduce: ["adds", "was adding"], copy: ["copies", "was copying"],
  push: ["pushes gradients", "was pushing gradients"], pull: ["pulls parameters", "was pulling parameters"], collective: ["takes part in", "was taking part in"],
};
const EXAMPLES = "examples"; // a worker's wait for what servers of examples send
const INSTANTS = new Set(["metric", "fault", "detect", "abort", "rebuild", "restore", "checkpoint", "clock"]);

/** @param {string} kind @returns {"compute" | "wait" | "move"} */
const sortOf = (kind) => (COMPUTES.has(kind) ? "compute" : kind === "wait" ? "wait" : "move");

/** "all_reduce" is the all-reduce. @param {string} collective */
export const collectiveWords = (collective) => (collective === "p2p" || !collective ? "a message" : `the ${collective.replaceAll("_", "-")}`);

/**
 * @param {string} kind @param {{peer: number, chunk: number, collective: string, name?: string}} row @param {boolean} past
 */
export function doesWords(kind, { peer, chunk, collective, name }, past) {
  const does = (DOES[kind] ?? [`is in ${kind}`, `was in ${kind}`])[past ? 1 : 0], what = chunk >= 0 ? ` chunk ${chunk}` : "";
  if (kind === "pull" && name === EXAMPLES) return `${past ? "was waiting" : "waits"} for its examples${peer >= 0 ? ` from rank ${peer}` : ""}`;
  if (kind === "wait") return peer >= 0 ? `${does} for rank ${peer}` : does;
  if (kind === "send") return `${does}${what || " a message"}${peer >= 0 ? ` to rank ${peer}` : ""}`;
  if (kind === "recv" || kind === "reduce") return `${does}${what || " a message"}${peer >= 0 ? ` from rank ${peer}` : ""}`;
  return kind === "collective" ? `${does} ${collectiveWords(collective)}` : does;
}

/** The lanes of each rank. @param {Table} table @param {number} ranks */
function lanesOfRanks(table, ranks) {
  const lanes = Array.from({ length: ranks }, () => /** @type {import("./table.js").Lane[]} */ ([]));
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
  for (let i = placeInLane(table, lane, t), seen = 0; i < lane.length && seen < BUDGET; i++, seen++) {
    const row = lane.rows[i];
    if (INSTANTS.has(table.kindName(table.kind[row]))) continue;
    if (table.start[row] <= t) return { row, next: false };
    if (coming < 0 || table.start[row] < table.start[coming]) coming = row;
    if (table.start[row] - t > WINDOW) break;
  }
  return coming < 0 ? null : { row: coming, next: true };
}

/** @param {number} rank @param {DoingMark} mark @param {string} words @returns {Doing} */
const plain = (rank, mark, words) => ({ rank, mark, halo: false, words, waits: 0, forWhom: -1, long: false });

/**
 * What a rank was in at a moment of the record.
 * @param {Table} table @param {number} rank @param {import("./table.js").Lane[]} lanes @param {number} t @param {boolean} past @param {Known["run"]} run
 * @returns {Doing}
 */
function atMoment(table, rank, lanes, t, past, run) {
  const serves = servesExamples(run, rank), stands = !serves && standsForMessages(run, rank);
  const found = lanes.flatMap((lane) => rowInLane(table, lane, t) ?? []).flatMap((f) => {
    const kind = table.kindName(table.kind[f.row]), collective = table.text(table.passages.collective[table.passage[f.row]]), name = table.text(table.name[f.row]);
    if (kind === "wait" && !stands && isMessage(table, f.row)) return [];
    return { ...f, kind, sort: name === EXAMPLES ? /** @type {const} */ ("wait") : sortOf(kind), say: { peer: table.peer[f.row], chunk: collective === "p2p" ? -1 : table.chunk[f.row], collective, name } };
  }).sort((a, b) => Number(a.say.collective === "p2p") - Number(b.say.collective === "p2p")); // a receive that was posted ahead is what it waits for last
  const doing = plain(rank, "none", past ? "had nothing under way" : "nothing under way");
  const inside = found.filter((f) => !f.next), compute = inside.find((f) => f.sort === "compute"), other = inside.find((f) => f.sort !== "compute");
  if (compute) {
    const halo = other?.sort === "wait";
    const also = !other ? "" : halo && other.say.collective === "p2p" ? `; ${past ? "what it was to receive from" : "what it is to receive from"} rank ${other.say.peer} ${past ? "was" : "is"} not there yet` : halo ? `; ${past ? "a message waited" : "a message waits"} for rank ${other.say.peer}` : `; ${past ? "chunks moved" : "chunks move"} meanwhile`;
    return { ...doing, mark: "compute", halo, words: doesWords(compute.kind, compute.say, past) + also };
  }
  if (other) return { ...doing, mark: other.sort, words: doesWords(other.kind, other.say, past), ...(other.sort === "wait" ? { waits: 1, forWhom: other.say.peer } : {}) };
  if (serves) return { ...doing, mark: "serve", words: past ? "served examples" : "serves examples" };
  return found.length ? { ...doing, words: past ? "was between two things" : "between two things" } : doing;
}

/** What every rank was in at t. @param {Table} table @param {number} ranks @param {number} t @param {boolean} past @param {Known["run"]} [run] @returns {Doing[]} */
export function doingAt(table, ranks, t, past, run = null) {
  return lanesOfRanks(table, ranks).map((lanes, rank) => atMoment(table, rank, lanes, t, past, run));
}

/**
 * How a rank has spent the time from t0 to t1, as far as its rows tell: parts of it, which may overlap.
 * @param {Table} table @param {import("./table.js").Lane[]} lanes @param {number} t0 @param {number} t1 @param {boolean} [stands]  whether it does for messages @returns {Shares}
 */
export function sharesOf(table, lanes, t0, t1, stands = true) {
  const shares = { compute: 0, wait: 0, move: 0, free: 0, kinds: new Map(), peers: new Map() };
  const computing = busySpans(table, lanes, t0, t1, false), busy = busySpans(table, lanes, t0, t1, true), stood = /** @type {import("./waits.js").Span[]} */ ([]), free = /** @type {import("./waits.js").Span[]} */ ([]);
  let waitsFrom = t0;
  for (const lane of lanes) {
    const own = { compute: 0, move: 0 };
    let from = t0, i = Math.min(lane.length, placeInLane(table, lane, t1) + 1) - 1;
    for (let seen = 0; i >= 0 && seen < BUDGET; i--, seen++) {
      const row = lane.rows[i], kind = table.kindName(table.kind[row]);
      if (table.end[row] <= t0) break;
      if (seen === BUDGET - 1) from = table.start[row];
      if (INSTANTS.has(kind) || kind === "collective" || kind === "push" || kind === "pull") continue; // outer spans
      const span = Math.min(t1, table.end[row]) - Math.max(t0, table.start[row]);
      if (span <= 0) continue;
      const sort = sortOf(kind);
      if (sort !== "wait") own[sort] += span;
      else for (const piece of waitPieces(table, row, computing, busy, stands)) {
        const a = Math.max(t0, piece.start), b = Math.min(t1, piece.end);
        if (b <= a) continue;
        (piece.free ? free : stood).push([a, b]);
        if (!piece.free && table.peer[row] >= 0) shares.peers.set(table.peer[row], (shares.peers.get(table.peer[row]) ?? 0) + b - a);
      }
      if (sort === "compute") shares.kinds.set(table.kind[row], (shares.kinds.get(table.kind[row]) ?? 0) + span);
    }
    for (const sort of /** @type {const} */ (["compute", "move"])) shares[sort] += own[sort] / Math.max(1, t1 - from);
    waitsFrom = Math.max(waitsFrom, from);
  }
  const length = (/** @type {import("./waits.js").Span[]} */ spans) => joined(spans).reduce((sum, [a, b]) => sum + Math.max(0, b - Math.max(a, waitsFrom)), 0) / Math.max(1, t1 - waitsFrom);
  return Object.assign(shares, { wait: length(stood), free: stands ? length(free) : 0 });
}

/** @template K @param {Map<K, number>} map @param {K} none */
const largestOf = (map, none) => [...map].reduce((best, [key, n]) => (n > best[1] ? [key, n] : best), /** @type {[K, number]} */ ([none, 0]))[0];

/** Shares in steps of five per cent, so that words stand still. @param {number} share */
const fives = (share) => `${Math.min(100, Math.round(share * 20) * 5)} %`;

/**
 * @param {Table} table @param {number} rank @param {Shares} shares @param {DoingMark | undefined} before @returns {Doing}
 */
function overSecond(table, rank, shares, before) {
  const parts = /** @type {const} */ (["compute", "wait", "move"]), peer = largestOf(shares.peers, -1), whom = peer >= 0 ? `, for rank ${peer}` : "";
  let mark = parts.reduce((a, b) => (shares[b] > shares[a] ? b : a));
  const had = parts.find((part) => part === before);
  if (had && had !== mark && shares[had] + MARGIN > shares[mark]) mark = had;
  const halo = mark === "compute" && shares.free >= 0.25;
  const does = doesWords(table.kindName(largestOf(shares.kinds, table.code.backward)), { peer: -1, chunk: -1, collective: "" }, false);
  const waits = `waits ${fives(shares.wait)}`;
  const words = mark === "wait" ? `${waits}${whom}` : mark === "move" ? `passes chunks on, ${fives(shares.move)}` : shares.wait >= 0.1 ? `${does}, ${waits}` : does;
  return { ...plain(rank, mark, words), halo, waits: shares.wait, forWhom: peer };
}

/** A rank that serves examples: what it does for whom changes faster than one can read. @param {number} rank @param {Shares} shares @returns {Doing} */
const servesNow = (rank, { compute, move }) => ({ ...plain(rank, "serve", compute + move >= 0.1 ? `serves examples, busy ${fives(Math.min(1, compute + move))}` : "serves examples") });

/** Whether what a lane says that it waits for is over: its wait row has come since. @param {Table} table @param {LaneNow} now */
function isPast(table, now) {
  const lane = table.lanes.get(`${now.rank} ${now.lane}`);
  let i = (lane?.length ?? 0) - 1;
  while (lane && i >= 0 && INSTANTS.has(table.kindName(table.kind[lane.rows[i]]))) i--; // that it stalls is said within a wait
  return now.kind === "wait" && !!lane && i >= 0 && table.end[lane.rows[i]] > now.since;
}

/** A wait for a message begins when its rank has nothing else to do: its receive may have been posted long before. @param {Table} table @param {LaneNow} lane @param {boolean} stands @returns {LaneNow} */
function openReceive(table, lane, stands) {
  if (lane.kind !== "wait" || lane.lane === "comm") return lane;
  if (!stands) return { ...lane, since: Infinity };
  const ends = ["compute", "comm"].map((name) => table.lanes.get(`${lane.rank} ${name}`)).map((own) => (own?.length ? table.end[own.rows[own.length - 1]] : -Infinity));
  return { ...lane, since: Math.max(lane.since, ...ends) };
}

/**
 * What a rank's lanes have been in for a while, the one that tells most, and whether it computes meanwhile; or null.
 * @param {Table} table @param {LaneNow[]} lanes @param {number} now @param {boolean} [stands]  whether it does for messages @returns {{told: LaneNow, computes: boolean} | null}
 */
export function standing(table, lanes, now, stands = true) {
  const long = lanes.map((lane) => (isPast(table, lane) ? { ...lane, kind: "collective" } : openReceive(table, lane, stands))).filter((lane) => now - lane.since >= LONG);
  const compute = long.find((lane) => COMPUTES.has(lane.kind)), other = long.find((lane) => !COMPUTES.has(lane.kind));
  const told = other?.kind === "wait" || !compute ? other : compute;
  return told ? { told, computes: !!compute } : null;
}

/**
 * What a rank has been in for a while, or null.
 * @param {Table} table @param {LaneNow[]} lanes @param {number} now @param {boolean} [stands]  whether it does for messages @returns {Doing | null}
 */
export function forLong(table, lanes, now, stands = true) {
  const found = standing(table, lanes, now, stands);
  if (!found) return null;
  const { told, computes } = found, lasts = duration(Math.floor((now - told.since) / 1e8) * 1e8), { rank, peer, kind } = told, mark = sortOf(kind);
  if (mark === "wait") return { ...plain(rank, computes ? "compute" : "wait", `waits${peer >= 0 ? ` for rank ${peer}` : ""}, ${lasts} so far`), halo: computes, waits: 1, forWhom: peer, long: true };
  const does = kind === "collective" ? `in ${collectiveWords(told.collective)}` : doesWords(kind, told, false);
  return { ...plain(rank, mark, `${does}, ${lasts} so far`), long: true };
}

/**
 * What every rank does now.
 * @param {Known} known @param {number} ranks @param {number} now  the ranks' own time @param {DoingMark[]} [before]  their marks of the last time
 * @returns {Doing[]}
 */
export function doingNow(known, ranks, now, before = []) {
  const { table, control, lanesNow } = known, t1 = now - table.to > LONG ? now : table.to, lost = lostRanks(known);
  return lanesOfRanks(table, ranks).map((lanes, rank) => {
    const own = lanesNow.filter((lane) => lane.rank === rank), slow = control?.slow?.[rank];
    const serves = servesExamples(known.run, rank), stands = !serves && standsForMessages(known.run, rank), shares = () => sharesOf(table, lanes, t1 - WINDOW, t1, stands);
    const doing = endOf(known, rank, lost) ?? standsAt(known, rank, own) ?? forLong(table, own, now, stands)
      ?? (!lanes.some((lane) => lane.length) ? notYet(known, rank, own) : serves ? servesNow(rank, shares()) : overSecond(table, rank, shares(), before[rank]));
    return slow && slow > 1 && doing.mark === "compute" ? { ...doing, words: `${doing.words}, slowed ×${slow}` } : doing;
  });
}

/** @param {Known} known @param {number} rank @param {LaneNow[]} lanes @returns {Doing} */
function notYet(known, rank, lanes) {
  const pid = known.control?.pids?.[rank];
  const words = lanes.length ? "begins" : known.state === "empty" ? "not started" : pid ? `starts (process ${pid})` : "starts";
  return plain(rank, "none", words);
}

/** A rank that stands still because of us. @param {Known} known @param {number} rank @param {LaneNow[]} lanes @returns {Doing | null} */
function standsAt({ control, table }, rank, lanes) {
  if (control?.frozen.includes(rank)) return { ...plain(rank, "frozen", "frozen: its process is stopped"), long: true };
  if (!control?.held || !control.standing.includes(rank)) return null;
  const comm = lanes.find((lane) => lane.op >= 0), call = comm && table.calls.findLast((c) => c.op === comm.op && c.group === comm.group); // a wait does not say of what
  return plain(rank, "held", comm ? `before a chunk of ${collectiveWords(comm.collective || (call?.collective ?? ""))}` : "before its next iteration");
}

/** What the run's last words say that each rank was in. @param {string} words @returns {Map<number, string>} */
export function underWay(words) {
  const [, told = ""] = words.split(/Under way: /);
  return new Map(told.split(/; (?=rank \d+: )/).flatMap((part) => {
    const found = part.match(/^rank (\d+): (.*)$/s);
    return found ? [[Number(found[1]), found[2]]] : [];
  }));
}

/** What a rank said when it stopped, shorter where it is the usual. @param {string} was */
function foundWords(was) {
  const found = was.match(/^rank (\d+)(?: \(process \d+\))? (ended|left the group) while rank (\d+) was in (.*?)(?: \(found by rank (\d+)\))?$/);
  if (!found) return `: ${was}`;
  const [, lost, how, , where, by] = found;
  return by === undefined ? ` in ${where}: rank ${lost} ${how}` : `: rank ${lost} ${how}, told by rank ${by}`;
}

/** Ranks that were lost, and how. @param {Known} known @returns {Map<number, string>} */
export function lostRanks({ state, words, control }) {
  const lost = new Map(Object.entries(control?.ended ?? {}).filter(([, how]) => how !== "ended").map(([rank, how]) => [Number(rank), how]));
  const found = state === "failed" && !lost.size ? words.match(/^rank (\d+)(?: \(process \d+\))? (?:was )?(killed by \w+|exited with code \d+|raised)/) : null;
  if (found) lost.set(Number(found[1]), found[2] === "raised" ? "raised an error" : found[2]);
  return lost;
}

/** A rank that has ended. @param {Known} known @param {number} rank @param {Map<number, string>} lost @returns {Doing | null} */
function endOf({ state, words, control }, rank, lost) {
  const how = lost.get(rank), was = state === "failed" ? underWay(words).get(rank) : undefined;
  if (how) return plain(rank, "killed", was ? `${how}, ${was}` : how);
  if (state === "failed") return plain(rank, "stopped", was ? `stopped${foundWords(was)}` : "stopped");
  return state === "finished" || state === "replay" || control?.ended?.[rank] ? plain(rank, "ended", "ended") : null;
}

/**
 * Whose wait tells most: at the end of a chain, for a rank that does not wait itself; then the longest share.
 * @param {Doing[]} doings @param {number} least  share of its time that a rank must wait @param {number} [first]  ranks before this one do not count
 */
export function worstWait(doings, least, first = 0) {
  const free = (/** @type {Doing} */ d) => Number(!((doings[d.forWhom]?.waits ?? 1) >= least));
  return doings.filter((d) => d.rank >= first && d.waits >= least && d.forWhom >= 0).sort((a, b) => free(b) - free(a) || b.waits - a.waits)[0];
}

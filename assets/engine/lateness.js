// @ts-check
/**
 * The rank that comes last to a call, and by how much it is late by its own doing: by the rule of
 * analysis/arrivals.py. A rank whose previous call has just ended was kept by that call, and ranks
 * that leave one call one after another come to the next one so too: none of them is late. Pure
 * functions of the table.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {{rank: number, first: number, at: number, after: number, late: number, core: number,
 *   inside: boolean, together: {ranks: number[], late: number}}}
 *   LastRank  at: when it joined, ns from the call's start; after: since the first rank did; late: how
 *   much longer than the others it took since its call before, and others waited for it alone; core:
 *   of that it waited for a core; inside: it was still in its call before when the first rank joined;
 *   together: all ranks that took about as much longer than the others, and how long the others
 *   waited for these alone
 */
import { median } from "./rates.js";
import { COMPUTES, placeInLane } from "./waits.js";

const LOOKED_AT = 400; // rows of a lane before the call

/** @type {WeakMap<import("./model.js").Call, LastRank | null>} */
const lastRanks = new WeakMap();

/**
 * @param {Table} table
 * @param {import("./model.js").Call} call
 * @returns {LastRank | null}  null: fewer than two ranks have joined
 */
export function lastToJoin(table, call) {
  const known = lastRanks.get(call);
  if (known !== undefined) return known;
  const came = [...call.came].sort((a, b) => a[1] - b[1]);
  const last = came.length < 2 ? null : lastOf(table, call, came);
  lastRanks.set(call, last);
  return last;
}

/**
 * @param {Table} table
 * @param {import("./model.js").Call} call
 * @param {[number, number][]} came  each rank and when it joined, the first one first
 * @returns {LastRank}
 */
function lastOf(table, call, came) {
  const [first, begin] = came[0];
  const [rank, at] = came[came.length - 1];
  const joined = call.start + at;
  const alone = at - came[came.length - 2][1]; // for so long all others wait for it alone
  const since = came.map(([one, start]) => freeSince(table, call, one, call.start + start));
  const free = came.map(([, start], i) => call.start + start - since[i]);
  const took = [...free];
  const own = free.pop() ?? Infinity;
  const others = free.filter(Number.isFinite);
  const usual = others.length ? median(others) : NaN;
  const late = Number.isFinite(own - usual) ? Math.max(0, Math.min(alone, own - usual)) : alone;
  return {
    rank,
    first,
    at,
    after: at - begin,
    late,
    core: coreWait(table, rank, joined - late, joined),
    inside: since[came.length - 1] > call.start + begin,
    together: lateTogether(came, took, usual, own - usual),
  };
}

/**
 * The ranks that took at least half as much longer than usual as the last one did.
 * @param {[number, number][]} came
 * @param {number[]} took  each rank since its call before
 * @param {number} usual
 * @param {number} longer  than usual, the last one
 */
function lateTogether(came, took, usual, longer) {
  const isSlow = took.map((ns) => longer > 0 && ns - usual >= longer / 2);
  const slow = came.filter((_, i) => isSlow[i]);
  const others = came.filter((_, i) => !isSlow[i]);
  const alone = slow.length && others.length ? slow[0][1] - others[others.length - 1][1] : 0;
  const ranks = slow.map(([rank]) => rank).sort((a, b) => a - b);
  return { ranks, late: Math.max(0, Math.min(alone, longer)) };
}

/**
 * The rows of a rank that ended by a moment, the newest of each lane first.
 * @param {Table} table
 * @param {number} rank
 * @param {number} t
 */
function* rowsBefore(table, rank, t) {
  for (const lane of table.lanes.values()) {
    if (lane.rank !== rank) continue;
    const end = placeInLane(table, lane, t);
    for (let i = end - 1; i >= Math.max(0, end - LOOKED_AT); i--) yield lane.rows[i];
  }
}

/**
 * Since when a rank was free as it joined a call: since its call before began or its last row of
 * communication ended, whichever was later; -Infinity before the first one.
 * @param {Table} table
 * @param {import("./model.js").Call} call
 * @param {number} rank
 * @param {number} joined
 */
function freeSince(table, call, rank, joined) {
  const { code, passages } = table;
  const calls = new Set([code.collective, code.wait, code.send, code.recv]);
  const isOther = (/** @type {number} */ row) =>
    passages.op[table.passage[row]] !== call.op ||
    table.text(passages.group[table.passage[row]]) !== call.group;
  let since = -Infinity;
  for (const lane of table.lanes.values()) {
    if (lane.rank !== rank) continue;
    const end = placeInLane(table, lane, joined);
    for (let i = end - 1; i >= Math.max(0, end - LOOKED_AT); i--) {
      const row = lane.rows[i];
      if (!calls.has(table.kind[row]) || !isOther(row)) continue;
      since = Math.max(since, table.end[row]);
      break; // rows of a lane stand in the order of their ends
    }
    for (let i = end; i < Math.min(lane.length, end + LOOKED_AT); i++) {
      const row = lane.rows[i];
      if (table.kind[row] === code.collective && table.start[row] < joined && isOther(row))
        since = Math.max(since, table.start[row]); // it goes on
    }
  }
  return since;
}

/**
 * How long a rank waited for a core between two moments, as far as its computing tells.
 * @param {Table} table
 * @param {number} rank
 * @param {number} from
 * @param {number} to
 */
function coreWait(table, rank, from, to) {
  let sum = 0;
  for (const row of rowsBefore(table, rank, to))
    if (COMPUTES.has(table.kindName(table.kind[row])) && table.value[row] > 0)
      sum += Math.min(
        table.value[row],
        Math.max(0, table.end[row] - Math.max(from, table.start[row])),
      );
  return sum;
}

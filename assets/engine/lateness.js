// @ts-check
/**
 * The rank that comes last to a call, and by how much it is late: a rank is late only if it had time
 * to be there. Ranks that leave one call one after another come to the next one so too, and none of
 * them is late. Pure functions of the table.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {{rank: number, first: number, at: number, after: number, late: number, core: number}}
 *   LastRank  at: when it joined, ns from the call's start; after: since the first rank did; late: so
 *   much earlier it could have joined; core: of that it waited for a core
 */
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
  const [first, begin] = came[0] ?? [-1, 0];
  const [rank, at] = came[came.length - 1] ?? [-1, 0];
  const joined = call.start + at;
  const free = Math.max(call.start + begin, freeSince(table, call, rank, joined));
  const last =
    came.length < 2
      ? null
      : {
          rank,
          first,
          at,
          after: at - begin,
          late: joined - free,
          core: coreWait(table, rank, free, joined),
        };
  lastRanks.set(call, last);
  return last;
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
 * When a rank was last in another call, or waited for a message, before it joined this one.
 * @param {Table} table
 * @param {import("./model.js").Call} call
 * @param {number} rank
 * @param {number} joined
 */
function freeSince(table, call, rank, joined) {
  let since = -Infinity;
  for (const row of rowsBefore(table, rank, joined)) {
    const kind = table.kind[row];
    if (kind !== table.code.collective && kind !== table.code.wait) continue;
    const passage = table.passage[row];
    const own =
      table.passages.op[passage] === call.op &&
      table.text(table.passages.group[passage]) === call.group;
    if (!own) since = Math.max(since, table.end[row]);
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

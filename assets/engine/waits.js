// @ts-check
/**
 * Which waiting costs something. A receive is often posted ahead: what is recorded as its wait is
 * then, in part, time in which its rank computes or takes part in a collective; that part is free.
 * And some ranks never stand still for a message, whatever receives are open: of theirs nothing
 * costs anything. Pure functions.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {import("./table.js").Lane} Lane
 * @typedef {[number, number]} Span  from, to
 */
export const COMPUTES = new Set([
  "forward",
  "backward",
  "weight_grad",
  "optimizer",
  "load",
  "apply",
]);

const MOST_SPANS = 2500; // rows of a lane that are looked at
const BETWEEN = 1e5; // ns between two computations that are taken for one

/**
 * The first row of a lane that ends after t, as a place in it.
 * @param {Table} table
 * @param {Lane} lane
 * @param {number} t
 */
export function placeInLane(table, lane, t) {
  let low = 0;
  let high = lane.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (table.end[lane.rows[middle]] > t) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * Whether a rank stands still for messages at all: a replay's takes whichever comes next.
 * @param {import("./player.js").RunFacts | null | undefined} run
 * @param {number} rank
 */
export const standsForMessages = (run, rank) =>
  ((run?.peers?.stands ?? null)?.includes(rank) ?? true) && !onlyReplays(run, rank);

/**
 * Whether a rank holds a shard of replay, and is nothing else.
 * @param {import("./player.js").RunFacts | null | undefined} run
 * @param {number} rank
 */
const onlyReplays = (run, rank) =>
  !!run?.roles && !run.roles.options.bundle && run.roles.replays.includes(rank);

/**
 * Return whether this rank serves examples: it waits for requests, not for a certain rank.
 * @param {import("./player.js").RunFacts | null | undefined} run
 * @param {number} rank
 */
export const servesExamples = (run, rank) => rank < (run?.inputs?.servers ?? 0);

/**
 * Spans in order, none of which touches another.
 * @param {Span[]} spans
 * @param {number} [slack] ns between two that count as one
 * @returns {Span[]}
 */
export function joined(spans, slack = 0) {
  const merged = /** @type {Span[]} */ ([]);
  for (const [a, b] of spans.sort((x, y) => x[0] - y[0])) {
    const last = merged[merged.length - 1];
    if (last && a <= last[1] + slack) last[1] = Math.max(last[1], b);
    else merged.push([a, b]);
  }
  return merged;
}

/**
 * When a rank computed between two moments; with `calls` also when it was in a collective.
 * @param {Table} table
 * @param {Lane[]} lanes  its own
 * @param {number} from
 * @param {number} to
 * @param {boolean} calls
 * @returns {Span[]}
 */
export function busySpans(table, lanes, from, to, calls) {
  const spans = /** @type {Span[]} */ ([]);
  for (const lane of lanes) {
    for (
      let i = placeInLane(table, lane, from), seen = 0;
      i < lane.length && seen < MOST_SPANS;
      i++, seen++
    ) {
      const row = lane.rows[i];
      const kind = table.kindName(table.kind[row]);
      if (table.start[row] < to && (COMPUTES.has(kind) || (calls && kind === "collective")))
        spans.push([table.start[row], table.end[row]]);
    }
  }
  return joined(spans, BETWEEN);
}

/**
 * A wait in pieces: those that cost something, and those that are free.
 * @param {Table} table
 * @param {number} row  of a wait
 * @param {Span[]} computing
 * @param {Span[]} busy  computing, or in a collective
 * @param {boolean} stands  its rank does for messages
 * @returns {{start: number, end: number, free: boolean}[]}
 */
export function waitPieces(table, row, computing, busy, stands) {
  const start = table.start[row];
  const end = table.end[row];
  const message = isMessage(table, row);
  if (message && !stands) return [{ start, end, free: true }];
  const spans = message ? busy : computing;
  const pieces = [];
  let low = 0;
  let high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle][1] > start) high = middle;
    else low = middle + 1;
  }
  let at = start;
  for (; low < spans.length && spans[low][0] < end; low++) {
    const [a, b] = spans[low];
    if (a > at) pieces.push({ start: at, end: a, free: false });
    pieces.push({ start: Math.max(at, a), end: Math.min(end, b), free: true });
    at = Math.min(end, b);
  }
  if (at < end || !pieces.length) pieces.push({ start: at, end, free: false });
  return pieces;
}

/**
 * Whether a row is of a message between two ranks, not of a collective.
 * @param {Table} table
 * @param {number} row
 */
export const isMessage = (table, row) =>
  table.text(table.passages.collective[table.passage[row]]) === "p2p";

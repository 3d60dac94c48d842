// @ts-check
/**
 * When the reader held the ranks, as this page saw it: what a rank has under way lasts that long
 * then, and the record says no more of it.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {{from: number, to: number, noted?: number}} Hold  ns since the run's origin; to: Infinity
 *   while it lasts; noted: when the page heard of it, after the last row of a rank that then stood
 */

const SHORTEST = 2e8; // ns: a glance is no hold
const STILL = 2 ** 61; // ns: a stored end from there on is none yet
const HEARD_LATE = 1e9; // ns: later a page does not hear of it, and what came before is the ranks' own

/** @type {WeakMap<Table, Hold[]>} */
const seen = new WeakMap();

/** The holds so far, oldest first. @param {Table} table @returns {Hold[]} */
export const holdsOf = (table) => seen.get(table) ?? [];

/** How much of a stretch of time the ranks were held, ns. @param {Table} table @param {number} from @param {number} to */
export const heldWithin = (table, from, to) =>
  holdsOf(table).reduce(
    (sum, hold) => sum + Math.max(0, Math.min(to, hold.to) - Math.max(from, hold.from)),
    0,
  );

/**
 * The stretches of a time in which the ranks were not held.
 * @param {Table} table @param {number} from @param {number} to @returns {[number, number][]}
 */
export function freeWithin(table, from, to) {
  const free = /** @type {[number, number][]} */ ([]);
  for (const hold of holdsOf(table)) {
    if (hold.to <= from || hold.from >= to) continue;
    if (hold.from > from) free.push([from, hold.from]);
    from = hold.to;
  }
  return from < to ? [...free, [from, to]] : free;
}

/**
 * Take the holds that are stored with a run, of which a page that was loaded later has seen none.
 * @param {Table} table @param {[number, number][] | undefined} stored  ns since the origin
 */
export function keepStoredHolds(table, stored) {
  if (!stored?.length || seen.has(table)) return;
  const lasts = (/** @type {number} */ to) => (to > STILL ? Infinity : to);
  const holds = stored.map(([from, to]) => ({ from, to: lasts(to) }));
  seen.set(
    table,
    holds.filter(({ from, to }) => to - from >= SHORTEST),
  );
}

/** What is said at a hold's begin or end. @param {boolean} held */
export const holdWords = (held) => (held ? "The ranks are held" : "The ranks run again");

/** The holds so far as lines of what happened. @param {Table} table */
export const holdLines = (table) =>
  holdsOf(table).flatMap(({ from, to }) => [
    { t: from, words: holdWords(true) },
    ...(to < Infinity ? [{ t: to, words: holdWords(false) }] : []),
  ]);

/** Note whether the ranks are held now. @param {Table} table @param {boolean} held @param {number} now */
export function noteHold(table, held, now) {
  const holds = holdsOf(table);
  const last = holds.at(-1);
  const lasts = last?.to === Infinity;
  if (held && last && lasts) last.from = Math.max(last.from, Math.min(table.to, last.noted ?? 0));
  if (held === lasts) return;
  if (held)
    seen.set(table, [
      ...holds,
      { from: Math.max(Math.min(now, table.to), now - HEARD_LATE), to: Infinity, noted: now },
    ]);
  else if (last) {
    last.to = now;
    if (last.to - last.from < SHORTEST) holds.pop();
  }
}

// @ts-check
/**
 * Ranks that the reader has killed: the driver records it in the moment of the click, whatever the
 * survivors say of it later.
 * @typedef {import("./table.js").Table} Table
 */

/** @type {WeakMap<Table, {next: number, killed: Map<number, number>}>} */
const foundIn = new WeakMap();

/**
 * Ranks that were killed by hand, and when: ns since the run's origin.
 * @param {Table | null | undefined} table
 * @returns {Map<number, number>}
 */
export function killedByHand(table) {
  if (!table) return new Map();
  const deaths = foundIn.get(table) ?? { next: 0, killed: new Map() };
  const kill = table.strings.indexOf("kill");
  const from = Math.max(0, deaths.next - table.forgotten);
  foundIn.set(table, deaths);
  if (kill > 0 && from < table.rows) {
    for (let p = table.passage[from]; p < table.count; p++) {
      if (table.passages.rank[p] >= 0) continue; // the driver's lane alone says what the reader did
      for (
        let r = Math.max(from, table.passages.first[p]);
        r < table.passages.first[p] + table.passages.count[p];
        r++
      )
        if (table.kind[r] === table.code.fault && table.name[r] === kill)
          deaths.killed.set(table.peer[r], table.end[r]);
    }
  }
  deaths.next = table.forgotten + table.rows;
  return deaths.killed;
}

/**
 * How a process ended, as a code ("killed", "exited", "raised", "ended": in good order) and in
 * words.
 * @typedef {{how: string, words: string}} End
 */

/**
 * Processes that have ended by themselves, but for those that ended in good order.
 * @param {import("./player.js").Control | null | undefined} control
 * @returns {Map<number, End>}
 */
export function badEnds(control) {
  const ends = Object.entries(control?.ended ?? {}).map(([rank, words]) => ({
    rank: Number(rank),
    words,
    how: control?.how?.[rank] ?? "",
  }));
  return new Map(ends.filter(({ how }) => how !== "ended").map(({ rank, ...end }) => [rank, end]));
}

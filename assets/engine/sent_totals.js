// @ts-check
/**
 * How many bytes each rank has sent and how long it has waited, since the page began to read: what
 * is known even of a job that marks neither iterations nor losses.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {{rank: number, sent: number, waited: number, messages: number, handed: number, inside: number}} RankTotal
 *   bytes, ns; handed: to operations; inside: how long these lasted, all together
 */

export class SentTotals {
  /** @param {Table} table */
  constructor(table) {
    this.table = table;
    this.next = 0; // the next row to read, counted over the whole run
    this.of = /** @type {Map<number, RankTotal>} */ (new Map());
  }

  /** Take in the rows that are new. @returns {RankTotal[]} by rank */
  read() {
    const { table } = this;
    const { code, kind, passage, passages } = table;
    const from = Math.max(0, this.next - table.forgotten);
    this.next = table.forgotten + table.rows;
    for (let r = from; r < table.rows; r++) {
      if (kind[r] !== code.send && kind[r] !== code.wait && kind[r] !== code.collective) continue;
      const rank = passages.rank[passage[r]];
      let total = this.of.get(rank);
      if (!total)
        this.of.set(
          rank,
          (total = { rank, sent: 0, waited: 0, messages: 0, handed: 0, inside: 0 }),
        );
      if (kind[r] === code.send) {
        total.sent += Math.max(0, table.nbytes[r]);
        total.messages += 1;
      } else if (kind[r] === code.wait) total.waited += table.end[r] - table.start[r];
      else {
        total.handed += Math.max(0, table.nbytes[r]);
        total.inside += table.end[r] - table.start[r];
      }
    }
    return [...this.of.values()].sort((a, b) => a.rank - b.rank);
  }
}

const totalsOfTables = /** @type {WeakMap<Table, SentTotals>} */ (new WeakMap());

/** The totals of a table, brought up to date. @param {Table} table */
export function sentTotals(table) {
  let totals = totalsOfTables.get(table);
  if (!totals) totalsOfTables.set(table, (totals = new SentTotals(table)));
  return totals.read();
}

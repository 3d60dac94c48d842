// @ts-check
/**
 * Rows of one kind in the order of their times.
 */

/** Row numbers that grow at the end and are let go at the start. */
export class RowList {
  constructor() {
    this.rows = new Float64Array(64);
    this.length = 0;
  }

  /** @param {number} row */
  push(row) {
    if (this.length === this.rows.length) {
      const more = new Float64Array(2 * this.length);
      more.set(this.rows);
      this.rows = more;
    }
    this.rows[this.length++] = row;
  }

  /** @param {number} row  rows before it go */
  drop(row) {
    let gone = 0;
    while (gone < this.length && this.rows[gone] < row) gone++;
    this.rows.copyWithin(0, gone, this.length);
    this.length -= gone;
  }
}

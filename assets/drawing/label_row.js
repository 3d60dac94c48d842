// @ts-check
/** Labels in a row, none over another: the first one stands. */
export class LabelRow {
  /** @param {number} left @param {number} right */
  constructor(left, right) {
    this.left = left;
    this.right = right;
    this.taken = /** @type {[number, number][]} */ ([]);
  }

  /** Whether [from, to) is free; then it is taken. @param {number} from @param {number} to */
  take(from, to) {
    if (
      from < this.left ||
      to > this.right ||
      this.taken.some(([a, b]) => from < b + 6 && to > a - 6)
    )
      return false;
    this.taken.push([from, to]);
    return true;
  }

  /**
   * A place for a text of this width: beside `x` to its right or left, or centred on it; null if
   * there is none.
   * @param {number} x
   * @param {number} width
   * @param {("middle" | "right" | "left")[]} ways in order of liking
   */
  place(x, width, ways) {
    for (const way of ways) {
      const from = way === "middle" ? x - width / 2 : way === "right" ? x + 5 : x - 5 - width;
      if (this.take(from, from + width)) return from;
    }
    return null;
  }
}

// @ts-check
/**
 * The number of the first of a sorted list that comes after t.
 * @template T
 * @param {ArrayLike<T>} list
 * @param {number} t
 * @param {(item: T) => number} time
 */
export function countUntil(list, t, time) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (time(list[middle]) <= t)
      low = middle + 1; // NaN comes last
    else high = middle;
  }
  return low;
}

// @ts-check
/**
 * Changes of links, as the driver records them in rows of kind fault: "link", or "cut" for a link
 * that lets nothing through; the direction as the row's group ("0->1"), latency in seconds as its
 * value, bandwidth in bytes per second as its nbytes (below 0: unlimited). Pure functions.
 *
 * @typedef {{name: string, rank: number, value: number, group: string, nbytes: number}} Fault
 *   a fault's row; rank: whom it strikes
 * @typedef {{from: number, to: number, cut: boolean, latency: number, rate: number}} LinkChange
 *   what a link is like since; latency: seconds, NaN not known; rate: bytes per second, below 0
 *   unlimited
 */
const TOGETHER_NS = 2e7; // from one link that is changed to the next, where one act changes them
const DIRECTION = /^(\d+)->(\d+)$/;
const LINK_TIMES = /** @type {[string, number][]} */ ([
  ["s", 1],
  ["ms", 1e-3],
  ["µs", 1e-6],
  ["ns", 1e-9],
]);
const RATES = /** @type {[string, number][]} */ ([
  ["Tbit/s", 1e12],
  ["Gbit/s", 1e9],
  ["Mbit/s", 1e6],
  ["kbit/s", 1e3],
  ["bit/s", 1],
]);

/** What a fault's row says of a link; null of another fault. @param {Fault} fault */
export function linkChange({ name, group, value, nbytes }) {
  const [whole, from, to] = DIRECTION.exec(group) ?? [];
  if (!whole || (name !== "link" && name !== "cut")) return null;
  return { from: +from, to: +to, cut: name === "cut", latency: value, rate: nbytes };
}

/** The number in the largest unit that leaves at least 1. @param {number} x @param {typeof LINK_TIMES} units */
function inUnit(x, units) {
  const [unit, size] = units.find(([, one]) => x >= one * (1 - 1e-9)) ?? units[units.length - 1];
  return `${Number((x / size).toPrecision(4))} ${unit}`;
}

/** What was done to a link, in words. @param {LinkChange} change @param {string} arrow */
export function linkFaultWords({ from, to, cut, latency, rate }, arrow) {
  const link = `link ${from} ${arrow} ${to}`;
  if (cut) return `You cut ${link}`;
  if (Number.isNaN(latency)) return `You changed ${link}`;
  const parts = [
    latency > 0 ? inUnit(latency, LINK_TIMES) : "",
    rate >= 0 ? inUnit(8 * rate, RATES) : "",
  ].filter(Boolean);
  return parts.length ? `${link} now ${parts.join(", ")}` : `You restored ${link}`;
}

/**
 * Whether two links were made the same.
 * @param {LinkChange} a @param {LinkChange | undefined} b
 */
const areAlike = (a, b) =>
  !!b && a.cut === b.cut && Object.is(a.latency, b.latency) && a.rate === b.rate;

/**
 * The line of links that were just made the same, if there is one: one act changed them all.
 * @param {import("./feed_lines.js").Line[]} lines @param {LinkChange} link @param {number} t
 */
export const lineBefore = (lines, link, t) =>
  lines.findLast(
    (line) => (line.until ?? -Infinity) >= t - TOGETHER_NS && areAlike(link, line.links?.[0]),
  );

/**
 * What was done to several links at once, in words: to the two directions of one, or to many.
 * @param {LinkChange} change  of the newest
 * @param {LinkChange[]} all
 */
export function linksFaultWords(change, all) {
  const [{ from, to }] = all;
  if (all.every((one) => [one.from, one.to].every((end) => end === from || end === to)))
    return linkFaultWords(all[0], "↔");
  return linkFaultWords(change, "→").replace(/link \d+ → \d+/, `${all.length} links`);
}

// @ts-check
/**
 * Ranks in hosts, and hosts in larger groups, as levels from inside a host outwards: [4, 2] is two
 * hosts of four ranks. Pure functions.
 */

const LEVELS_SAID = /^levels (\d+(?:,\d+)*)$/;

/**
 * The levels that a call went by, as its rows say; none of most algorithms.
 * @param {{kind: string, phase: string}[]} rows
 * @returns {number[]}
 */
export function levelsSaid(rows) {
  for (const row of rows) {
    const found = row.kind === "collective" && LEVELS_SAID.exec(row.phase);
    if (found) return found[1].split(",").map(Number);
  }
  return [];
}

/**
 * The outermost level at which two ranks differ: 0 in one host, and where nothing is known of
 * hosts.
 * @param {number[]} levels
 * @param {number} a
 * @param {number} b
 */
export function hostLevel(levels, a, b) {
  let width = 1;
  let level = 0;
  levels.forEach((many, at) => {
    if (Math.floor(a / width) % many !== Math.floor(b / width) % many) level = at;
    width *= many;
  });
  return level;
}

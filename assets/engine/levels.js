// @ts-check
/**
 * Ranks in hosts, and hosts in larger groups, as levels from inside a host outwards: [4, 2] is two
 * hosts of four ranks. Pure functions.
 */

const LEVELS_IN_PHASE = /^levels (\d+(?:,\d+)*)( in turn)?$/;

/**
 * The levels that a call went by, as its rows say; none of most algorithms. In turn: ranks were
 * dealt to their hosts like cards; else a host has a block of neighbours.
 * @param {{kind: string, phase: string}[]} rows
 * @returns {{levels: number[], inTurn: boolean}}
 */
export function levelsOfCall(rows) {
  for (const row of rows) {
    const match = row.kind === "collective" && LEVELS_IN_PHASE.exec(row.phase);
    if (match) return { levels: match[1].split(",").map(Number), inTurn: Boolean(match[2]) };
  }
  return { levels: [], inTurn: false };
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

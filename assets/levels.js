// @ts-check
/** Ranks in hosts, and hosts in larger groups, as levels from inside a host outwards: [4, 2] is two hosts of four ranks. Pure functions. */

const LEVELS_SAID = /^levels (\d+(?:,\d+)*)$/;
const LINKS_NOTED = /^(all links|links inside hosts|links between (?:hosts|racks|groups)) (cut|emulated.*)$/;
const LINKS_NAMED = ["links inside hosts", "links between hosts", "links between racks", "links between groups"];

/** The levels that a call went by, as its rows say; none of most algorithms. @param {{kind: string, phase: string}[]} rows @returns {number[]} */
export function levelsSaid(rows) {
  for (const row of rows) {
    const found = row.kind === "collective" && LEVELS_SAID.exec(row.phase);
    if (found) return found[1].split(",").map(Number);
  }
  return [];
}

/** The outermost level at which two ranks differ: 0 in one host, and where nothing is known of hosts. @param {number[]} levels @param {number} a @param {number} b */
export function hostLevel(levels, a, b) {
  let width = 1, level = 0;
  levels.forEach((many, at) => {
    if (Math.floor(a / width) % many !== Math.floor(b / width) % many) level = at;
    width *= many;
  });
  return level;
}

/**
 * What notes say of all links, or of those inside hosts, between hosts, and so on.
 * @param {string[]} notes @param {number[]} levels
 * @returns {(a: number, b: number) => string}  of the link between two ranks: "emulated: 1 ms", "" nothing
 */
export function linkNotes(notes, levels) {
  const said = /** @type {string[]} */ ([]);
  let all = "";
  for (const note of notes) {
    const found = LINKS_NOTED.exec(note), first = found ? LINKS_NAMED.indexOf(found[1]) : -1;
    if (!found) continue;
    if (first < 0) all = found[2];
    else said[first === LINKS_NAMED.length - 1 ? Math.max(first, said.length) : first] = found[2]; // further out they follow each other
  }
  return (a, b) => said[hostLevel(levels, a, b)] ?? all;
}

// @ts-check
/**
 * Lines of what happened in the order of their times, the newest of them kept.
 *
 * @typedef {{t: number, words: string, kind: string, rank: number,
 *   links?: import("./link_faults.js").LinkChange[], until?: number}} Line  t: ns since the origin; kind: of the row,
 *   or "milestone", "state", "over": was an alarm; links: what a line
 *   on links says of each, until: when the newest of them was changed
 */
import { isOver } from "./player.js";

const MOST_LINES = 400;

/** What stands where there is no line. @param {{state: string}} known */
export const quietWords = (known) =>
  isOver(known)
    ? "No fault, late rank or milestone was recorded."
    : "Faults, late ranks and milestones appear here.";

export class FeedLines {
  constructor() {
    this.lines = /** @type {Line[]} */ ([]);
    this.version = 0; // grows with every change of the lines
    this.keys = new Set(); // of lines that are put once
    this.end = /** @type {Line | null} */ (null); // of the run
  }

  /**
   * @param {number} t
   * @param {string} words
   * @param {string} kind
   * @param {number} rank
   * @returns {Line}
   */
  put(t, words, kind, rank) {
    // lanes are read one after the other: a line may belong before others
    let at = this.lines.length;
    while (at > 0 && this.lines[at - 1].t > t) at--;
    const line = { t, words, kind, rank };
    this.lines.splice(at, 0, line);
    this.version += 1;
    return line;
  }

  /**
   * Put a line unless one of that key has been put; null: one has.
   * @param {string} key
   * @param {number} t
   * @param {string} words
   * @param {string} kind
   * @param {number} rank
   */
  once(key, t, words, kind, rank) {
    if (this.keys.has(key)) return null;
    this.keys.add(key);
    return this.put(t, words, kind, rank);
  }

  /** A line has other words, or is of another kind, than before. */
  changed() {
    this.version += 1;
  }

  /** @param {Line | null | undefined} line */
  remove(line) {
    if (line && this.lines.includes(line)) this.lines.splice(this.lines.indexOf(line), 1);
  }

  /**
   * The last line of a run that is over: a long history comes in parts, and what was its end may be
   * so no longer.
   * @param {number} t
   * @param {string} words
   */
  finish(t, words) {
    if (this.end?.t === t && this.end.words === words) return;
    this.remove(this.end);
    this.end = this.put(t, words, "state", -1);
  }

  /** Let the oldest go. */
  trim() {
    if (this.lines.length > MOST_LINES) this.lines.splice(0, this.lines.length - MOST_LINES);
  }
}

// @ts-check
/**
 * Alarms of what happened: who makes no progress (red while it lasts), who waited for one that is
 * late. Similar ones share a line: those of one moment, and those that follow each other while
 * nothing else happens.
 *
 * @typedef {import("./feed_lines.js").Line} Line
 * @typedef {import("./feed_lines.js").FeedLines} FeedLines
 * @typedef {{rank: number, seconds: number, words: string, stopped: boolean}} Alarm  of one lane;
 *   stopped: it waits for a process that is stopped, which says most
 * @typedef {{line: Line, ranks: Set<number>, most: number, times: number, last: number,
 *   end: number}} Waits  last: when the last one was noticed; end: when it was over
 */
import { duration, grouped } from "./format.js";

const MOMENT_NS = 1e9; // ranks that are late together
/** Lines between which the same alarm stays one line. */
const BETWEEN_ALARMS = new Set(["waited", "milestone", "metric"]);
/** Why a rank is late that does not stall: it works, or would, or waits for one that does. */
const WHY_LATE = /** @type {Record<string, string>} */ ({
  "late: computes": "computes",
  "late: waits for a core": "waits for a core",
  "late: waits itself": "",
});

/** @param {string} name  of a row */
export const isLate = (name) => name in WHY_LATE;

/** @param {Set<number>} ranks */
const alarmedRanks = (ranks) => (ranks.size > 1 ? `${ranks.size} ranks` : `rank ${[...ranks][0]}`);

/** Why ranks are late: "rank 1 computes, ranks 2, 3: each waits for a core". @param {Map<number, string>} why */
function lateWords(why) {
  const reasons = [...new Set(why.values())].map((reason) => {
    const late = [...why.keys()].filter((rank) => why.get(rank) === reason).sort((a, b) => a - b);
    return late.length > 1
      ? `ranks ${late.join(", ")}: each ${reason}`
      : `rank ${late[0]} ${reason}`;
  });
  return reasons.sort().join("; ");
}

/** How often, and when last. @param {Waits} waits */
const howOften = ({ times, last }) =>
  times > 1 ? `, ${grouped(times)} times, last at ${duration(last)}` : "";

export class Alarms {
  #feed;
  // alarms that hold, those of a moment together; and in which of them a lane is
  #held = /** @type {{line: Line, lanes: Map<string, Alarm>}[]} */ ([]);
  #past = /** @type {Waits | null} */ (null); // those that are over
  #late = /** @type {(Waits & {why: Map<number, string>}) | null} */ (null);

  /** @param {FeedLines} feed */
  constructor(feed) {
    this.#feed = feed;
  }

  /** Whether any holds. */
  get any() {
    return this.#held.length > 0;
  }

  /** Whether this line is of alarms that hold. @param {Line} line */
  holds(line) {
    return this.#held.some((group) => group.line === line);
  }

  /**
   * A rank makes no progress: with others of that moment in one line.
   * @param {string} lane  of the rank, in which its wait is
   * @param {number} t
   * @param {Alarm} alarm
   */
  raise(lane, t, alarm) {
    this.#drop(lane); // a longer wait, or a new one
    let group = this.#held.find(({ line }) => Math.abs(line.t - t) < MOMENT_NS);
    if (!group) {
      group = { line: this.#feed.put(t, "", "detect", alarm.rank), lanes: new Map() };
      this.#held.push(group);
    }
    group.lanes.set(lane, alarm);
    this.#say(group);
  }

  /**
   * A wait is over: what was noticed in it is no alarm any more.
   * @param {string} lane
   * @param {number} start  of the wait
   * @param {number} end
   */
  over(lane, start, end) {
    const group = this.#held.find(({ lanes }) => lanes.has(lane));
    if (!group || start > group.line.t) return;
    const { rank, seconds, words } = /** @type {Alarm} */ (group.lanes.get(lane));
    const { t } = group.line;
    this.#drop(lane);
    this.#past = this.#joined(this.#past, t, rank);
    const past = this.#past;
    past.ranks.add(rank);
    past.most = Math.max(past.most, seconds);
    past.end = Math.max(past.end, end);
    if (past.times > 1 || past.ranks.size > 1) this.#sayPast(past, true);
    else past.line.words = words;
    this.#feed.changed();
  }

  /** The run hung until it ended: what was over only then never went on. @param {number} t */
  hung(t) {
    const past = this.#past;
    if (!past || t - past.end > MOMENT_NS || (past.times < 2 && past.ranks.size < 2)) return;
    this.#sayPast(past, false);
    this.#feed.changed();
  }

  /** @param {Waits} past @param {boolean} wentOn */
  #sayPast(past, wentOn) {
    const { line, ranks, times } = past;
    const most = `${past.most.toFixed(1)} s`;
    const howLong = times > 1 ? `for up to ${most}${howOften(past)};` : `for ${most},`;
    const end = wentOn ? "until it went on" : "and none went on";
    const ends = wentOn ? "each went on" : "the last time none went on";
    line.words = `${alarmedRanks(ranks)}: no progress ${howLong} ${times > 1 ? ends : end}`;
  }

  /**
   * A rank has waited for one that is late.
   * @param {number} t
   * @param {number} rank
   * @param {number} peer
   * @param {string} name  of the row
   */
  late(t, rank, peer, name) {
    const waits = this.#joined(this.#late, t, peer);
    const { why } = (this.#late = {
      ...waits,
      why: this.#late?.line === waits.line ? this.#late.why : new Map(),
    });
    waits.ranks.add(rank);
    if (WHY_LATE[name]) why.set(peer, WHY_LATE[name]);
    const words = lateWords(why);
    const before = waits.line.t < 1e9 ? ", from before the first event on" : ""; // a moment is its end
    waits.line.words = `${alarmedRanks(waits.ranks)} waited over 1 s${words ? "" : " for others"}${before}${howOften(waits)}${words ? `: ${words}` : ""}`;
    this.#feed.changed();
  }

  /**
   * The waits that this one belongs to: of its moment, or those after which nothing else happened.
   * @param {Waits | null} waits
   * @param {number} t
   * @param {number} rank
   * @returns {Waits}
   */
  #joined(waits, t, rank) {
    if (waits && this.#feed.lines.includes(waits.line)) {
      if (Math.abs(t - waits.last) < MOMENT_NS) return waits;
      const { line } = waits;
      const between = this.#feed.lines.filter((one) => one.t > line.t && one.t < t);
      if (t > waits.last && between.every((one) => BETWEEN_ALARMS.has(one.kind)))
        return Object.assign(waits, { times: waits.times + 1, last: t });
    }
    const line = this.#feed.put(t, "", "waited", rank);
    return { line, ranks: new Set(), most: 0, times: 1, last: t, end: -Infinity };
  }

  /** @param {string} lane */
  #drop(lane) {
    const at = this.#held.findIndex(({ lanes }) => lanes.has(lane));
    if (at < 0) return;
    const group = this.#held[at];
    group.lanes.delete(lane);
    if (group.lanes.size) this.#say(group);
    else {
      this.#feed.remove(group.line);
      this.#held.splice(at, 1);
    }
    this.#feed.changed();
  }

  /** @param {{line: Line, lanes: Map<string, Alarm>}} group */
  #say({ line, lanes }) {
    const alarms = [...lanes.values()];
    const cause = alarms.find(({ stopped }) => stopped) ?? alarms[0];
    const ranks = new Set(alarms.map(({ rank }) => rank));
    line.rank = cause.rank;
    line.words =
      ranks.size > 1
        ? `${ranks.size} ranks make no progress: ${cause.words.replace(": no progress", "")}`
        : cause.words;
    this.#feed.changed();
  }
}

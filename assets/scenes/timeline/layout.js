// @ts-check
/**
 * Where things are in the timeline, in CSS pixels, and which stretch of time its window shows. Pure
 * functions.
 *
 * The window shows the iteration under the playhead. Its width is one of round steps: it grows to
 * the next when an iteration does not fit, shrinks when one fills less than half, and says so;
 * between, nothing moves.
 *
 * @typedef {{from: number, to: number, iteration: number, follows: boolean, chosen: boolean,
 *   change: string}} Window
 *   follows: it goes where the playhead goes; chosen: its width is the reader's; change: what changed
 *   its width, in words
 * @typedef {{left: number, right: number, room: number, ranks: number, labels: boolean,
 *   band: number, rows: number,
 *   level: "full" | "slim" | "density", map: {top: number, lane: number, gap: number,
 *   bottom: number, height: number}, lanes: {top: number, row: number, compute: number,
 *   ownHeight: number, talk: number, talkHeight: number, under: number, core: number,
 *   bottom: number, height: number}}} TimelinePlace
 */
import { duration } from "../../engine/format.js";

const ROUND_STEPS = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];
const MOST_LANE_ROWS = 64; // of more ranks than twice as many, neighbours share a row
const NARROWEST = 200; // ns in the window
/**
 * Of so many ranks: px of a row, of its computing, of its communication. Eight, with what is below,
 * are one screen; as long as it has the room, a chunk's number stands in half of its lane.
 * @type {Record<number, [number, number, number]>}
 */
const ROWS = { 4: [58, 20, 20], 5: [56, 20, 18], 6: [50, 14, 18], 7: [43, 14, 11], 8: [38, 12, 8] };

/** How many neighbours share a row, which shows their mean. @param {number} ranks */
const bandOf = (ranks) =>
  ranks <= 2 * MOST_LANE_ROWS ? 1 : 2 ** Math.ceil(Math.log2(ranks / MOST_LANE_ROWS));

/**
 * The ranks of each row.
 * @param {TimelinePlace} place
 * @param {number[]} ranks
 * @returns {number[][]}
 */
export const rowsOfRanks = ({ band, rows }, ranks) =>
  Array.from({ length: rows }, (_, i) => ranks.slice(i * band, (i + 1) * band));

/** "rank 3", or "0 to 15" of a row. @param {number[]} members */
export const nameOfRow = (members) =>
  members.length === 1
    ? `rank ${members[0]}`
    : members.every((rank, i) => rank === members[0] + i)
      ? `${members[0]} to ${members[members.length - 1]}`
      : `${members.length} ranks`;

const ROW_LEAST = { full: 38, slim: 11, density: 2 };
const MAP_FOOT = 18; // px below the map's lanes
const LANES_TOP = 32; // px above the window's lanes
const LANES_FOOT = 4;

/** The height of a lane of the map, and the gap below it. @param {number} ranks */
const mapLane = (ranks) =>
  ranks <= 4
    ? [20, 3]
    : ranks <= 8
      ? [6, 2]
      : [ranks <= 12 ? 8 : ranks <= 24 ? 5 : ranks <= 40 ? 3 : 2, ranks <= 40 ? 1 : 0];

/**
 * @param {number} ranks @param {number} width
 * @param {number} [banded]  px above the map's lanes, for the generations
 * @param {number} [room]  px that the map and the lanes may take: as many of them as there are
 * @returns {TimelinePlace}
 */
export function placeOf(ranks, width, banded = 0, room = Infinity) {
  const left = 66;
  const right = width - 6;
  const level = ranks <= 8 ? "full" : ranks <= 24 ? "slim" : "density";
  const top = 16 + banded;
  const band = bandOf(ranks);
  const rows = Math.ceil(ranks / band);
  const below = top + MAP_FOOT + LANES_TOP + LANES_FOOT;
  /** @param {number} like  the rows are as high as those of so many ranks */
  const heights = (like) => {
    const [lane, gap] = mapLane(like);
    const [row, own, talk] =
      level === "full"
        ? ROWS[like <= 4 ? 4 : Math.max(5, like)]
        : level === "slim"
          ? ranks <= 12
            ? [20, 10, 7]
            : [17, 8, 6]
          : [Math.max(2, Math.min(band > 1 ? 8 : 4, Math.floor(512 / rows))), 0, 0];
    return { lane, gap, row, own, talk, all: below + rows * (lane + gap + row) };
  };
  let like = ranks;
  while (level === "full" && like < 8 && heights(like).all > room) like = Math.max(4, like) + 1;
  const { lane, gap, row: most, own, talk, all } = heights(like);
  const row = Math.max(ROW_LEAST[level], Math.min(most, Math.floor((room - all) / rows) + most));
  const bottom = top + rows * (lane + gap);
  const [ownHeight, talkHeight] = [own, talk].map((h) => Math.floor((h * row) / most));
  const lanesBottom = LANES_TOP + rows * row;
  return {
    left,
    right,
    room: right - left,
    ranks,
    band,
    rows,
    labels: level === "full",
    level,
    map: { top, lane, gap, bottom, height: bottom + MAP_FOOT },
    lanes: {
      top: LANES_TOP,
      row,
      compute: 0,
      ownHeight,
      talk: ownHeight + 1,
      talkHeight,
      under: ownHeight + talkHeight + 2,
      core: ownHeight + talkHeight + 10,
      bottom: lanesBottom,
      height: lanesBottom + LANES_FOOT,
    },
  };
}

/**
 * Where a moment lies.
 * @param {{from: number, to: number}} win
 * @param {TimelinePlace} place
 * @param {number} t
 */
export const windowX = (win, place, t) =>
  place.left + ((t - win.from) / (win.to - win.from)) * place.room;
/**
 * The moment at a place.
 * @param {{from: number, to: number}} win
 * @param {TimelinePlace} place
 * @param {number} x
 */
export const windowT = (win, place, x) =>
  win.from + ((x - place.left) / place.room) * (win.to - win.from);

/** The next round length that is at least this. @param {number} span */
export function roundedSpan(span) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(1, span)) + 1e-9);
  return unit * (ROUND_STEPS.find((k) => k * unit >= span * (1 - 1e-9)) ?? 10);
}

/**
 * The window for an iteration, or around a moment where there are no iterations.
 * @param {Window | null} before
 * @param {{iteration: number, from: number, to: number, done: boolean}} extent
 * @param {number} t the playhead
 * @returns {Window}
 */
export function windowFor(before, extent, t) {
  const span = Math.max(NARROWEST, extent.to - extent.from);
  const had = before ? before.to - before.from : 0;
  if (before?.chosen) {
    // the reader's own width: like a page of a score, turned when the playhead leaves it
    if (had >= span)
      return { ...before, from: extent.from, to: extent.from + had, iteration: extent.iteration };
    if (t >= before.from && t < before.to) return { ...before, iteration: extent.iteration };
    const from = Math.max(extent.from, t - had / 10);
    return { ...before, from, to: from + had, iteration: extent.iteration };
  }
  const fits = had >= span && (had < 2.2 * span || !extent.done);
  const width = fits ? had : roundedSpan(span * 1.01);
  const change =
    !before || width === had
      ? before?.iteration === extent.iteration
        ? before.change
        : ""
      : `the scale ${width > had ? "grew" : "shrank"} from ${duration(had)} to ${duration(width)}`;
  return {
    from: extent.from,
    to: extent.from + width,
    iteration: extent.iteration,
    follows: true,
    chosen: false,
    change,
  };
}

/**
 * Wider or narrower, the moment `t` staying where it is.
 * @param {Window} win
 * @param {number} factor
 * @param {number} t
 * @param {{from: number, to: number}} run
 * @returns {Window}
 */
export function zoomWindow(win, factor, t, run) {
  const had = win.to - win.from;
  const span = Math.max(
    NARROWEST,
    Math.min(had * factor, Math.max(had, 1.05 * (run.to - run.from))),
  );
  const at = Math.min(win.to, Math.max(win.from, t));
  const from = at - ((at - win.from) / had) * span;
  return { ...win, from, to: from + span, chosen: true, change: "" };
}

/**
 * Elsewhere: it does not follow any more.
 * @param {Window} win
 * @param {number} by ns
 * @param {{from: number, to: number}} run
 * @returns {Window}
 */
export function panWindow(win, by, run) {
  const span = win.to - win.from;
  const from = Math.max(run.from - span / 2, Math.min(win.from + by, run.to - span / 2));
  return { ...win, from, to: from + span, follows: false, chosen: true, change: "" };
}

/**
 * "bucket 3" is shortened to its number, then left out.
 * @param {string} text
 * @param {number} room
 * @param {(text: string) => number} measure
 */
export function fitting(text, room, measure) {
  if (!text || room < 12) return "";
  if (measure(text) + 8 <= room) return text;
  const short = text.match(/^[A-Za-z _-]*?(\d+)$/)?.[1] ?? "";
  return short && measure(short) + 6 <= room ? short : "";
}

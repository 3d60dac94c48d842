// @ts-check
/**
 * What the pointer says over the lanes.
 *
 * @typedef {import("./scene.js").TimelineView} TimelineView
 * @typedef {import("./draw.js").Hit} Hit
 */
import { densityWords } from "./captions.js";
import { hitWords } from "./hit_words.js";
import { SPAN_COUNT, addMean } from "./paint.js";
import { nameOfRow, rowsOfRanks, windowT } from "./layout.js";
import { clockWords } from "./uncertainty.js";
import { duration, grouped } from "../../engine/format.js";

/**
 * Return the mark at a place of the lanes: of several, the one drawn last.
 * @param {Hit[]} hits
 * @param {number} x
 * @param {number} y
 */
export function hitAt(hits, x, y) {
  return hits.findLast(
    (hit) => x >= hit.x - 1 && x <= hit.x + hit.w + 1 && y >= hit.y && y <= hit.y + hit.h,
  );
}

/**
 * Show what lies under the pointer, beside it; null: nothing.
 * @param {TimelineView} view
 * @param {{x: number, y: number} | null} point
 */
export function showLaneTip(view, point) {
  const tip = view.$(".wb-tl-tip");
  const words = point ? laneWordsAt(view, point.x, point.y) : "";
  tip.hidden = !words;
  if (!words || !point) return;
  if (tip.textContent !== words) tip.textContent = words;
  const canvas = view.$(".wb-tl-lanes");
  const wide = tip.offsetWidth;
  const high = tip.offsetHeight;
  tip.style.left = `${Math.max(0, Math.min(canvas.clientWidth - wide, point.x + 14))}px`;
  tip.style.top = `${canvas.offsetTop + (point.y - high - 12 < 0 ? point.y + 18 : point.y - high - 12)}px`;
}

/**
 * Return the time of each class in an interval, of several ranks their mean.
 * @param {import("./index.js").TimelineIndex} index
 * @param {number[]} members
 * @param {number} from
 * @param {number} to
 */
function meanWithin(index, members, from, to) {
  const mean = new Float64Array(SPAN_COUNT);
  for (const number of members) {
    const rank = index.ranks.get(number);
    if (rank) addMean(mean, rank.all.within(from, to), SPAN_COUNT, members.length);
  }
  return mean;
}

/**
 * Return in words what lies at a place of the lanes.
 * @param {TimelineView} view
 * @param {number} x
 * @param {number} y
 */
function laneWordsAt({ index, ranks, place, lanes, window, buckets }, x, y) {
  const hit = hitAt(lanes.hits, x, y);
  const { win } = window;
  if (!index || !win) return "";
  if (hit) return hitWords(index.table, hit, buckets) + clockWords(index.bounds, hit.rank);
  const members =
    rowsOfRanks(place, ranks)[Math.floor((y - place.lanes.top) / place.lanes.row)] ?? [];
  const rank = index.ranks.get(members[0] ?? -1);
  const dt = (win.to - win.from) / place.room;
  if (!rank || x < place.left || x > place.right) return "";
  const t = windowT(win, place, x);
  const step = rank.steps[index.stepAt(rank, t)];
  if (place.level === "density")
    return densityWords(
      members.length > 1 ? `ranks ${nameOfRow(members)}, mean` : `rank ${rank.rank}`,
      meanWithin(index, members, t - dt, t + dt),
      t - dt,
      t + dt,
      `around ${duration(t - win.from)}`,
    );
  return step && t < step.end
    ? `rank ${rank.rank}, iteration ${grouped(step.iteration + 1)}: nothing is recorded here`
    : "";
}

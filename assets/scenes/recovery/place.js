// @ts-check
/**
 * Where the marks of one loss stand: a bar for all, phase after phase, and below it a lane for each
 * rank, on one axis of milliseconds for all losses. Pure functions.
 *
 * @typedef {import("../../engine/recoveries.js").LossOfRanks} LossOfRanks
 * @typedef {{left: number, right: number, top: number, bar: number, lanes: number, lane: number,
 *   count: number, axis: number, height: number, span: number, named: boolean}} RecoveryPlace
 *   top: of the bar for all; lanes: where those of the ranks begin; span: ns from left to right
 */
import { ticks } from "../../engine/format.js";

const BAR = 18;
const ROOM_FOR_ALL = 420; // px of lanes of all losses together: where they are more, lanes get low
const TALLEST = 24; // px of a lane

/**
 * How long the axis is: a round time that has all of them.
 * @param {LossOfRanks[]} losses
 * @param {number} now  ns: as far as is known, where one goes on
 */
export function spanOf(losses, now) {
  const most = Math.max(1e6, ...losses.map((one) => endOf(one, now) - one.origin || 0));
  const [, one] = ticks(most, 8);
  return one ? Math.ceil((most * 1.08) / one.t) * one.t : most * 1.08;
}

/**
 * When the last thing that is known of it ended.
 * @param {LossOfRanks} loss
 * @param {number} now
 */
export function endOf({ ends, lanes, after }, now) {
  if (ends.first >= 0) return ends.first;
  const last = Math.max(0, ...lanes.flatMap(({ bars }) => bars.map((bar) => bar.end)));
  return after ? last : Math.max(last, Math.min(now, last + 5e9));
}

/**
 * @param {LossOfRanks} loss
 * @param {number} width
 * @param {number} span
 * @param {number} all  lanes of all losses together
 * @returns {RecoveryPlace}
 */
export function placeOf({ lanes }, width, span, all) {
  const lane = Math.max(4, Math.min(TALLEST, Math.floor(ROOM_FOR_ALL / Math.max(1, all))));
  const top = 2;
  const first = top + BAR + 6;
  const axis = first + lanes.length * lane + 4;
  return {
    left: 104,
    right: width - 62,
    top,
    bar: BAR,
    lanes: first,
    lane,
    count: lanes.length,
    axis,
    height: axis + 20,
    span,
    named: lane >= 12,
  };
}

/** @param {RecoveryPlace} place @param {number} ns  since the loss */
export const recoveryX = ({ left, right, span }, ns) =>
  left + Math.min(1, Math.max(0, ns / span)) * (right - left);

/** The time since the loss at a place. @param {RecoveryPlace} place @param {number} x */
export const recoveryT = ({ left, right, span }, x) =>
  Math.min(1, Math.max(0, (x - left) / (right - left))) * span;

/**
 * The lane under a place; -1: the bar for all; null: neither.
 * @param {RecoveryPlace} place @param {number} y
 */
export function laneUnder({ top, bar, lanes, lane, count }, y) {
  if (y >= top && y < top + bar) return -1;
  const i = Math.floor((y - lanes) / lane);
  return i >= 0 && i < count ? i : null;
}

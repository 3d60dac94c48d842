// @ts-check
/**
 * A loss of ranks drawn: the phases one after the other, and what each rank did in them.
 *
 * @typedef {import("../../engine/recoveries.js").LossOfRanks} LossOfRanks
 * @typedef {import("../../engine/recoveries.js").Phase} Phase
 * @typedef {import("./place.js").RecoveryPlace} RecoveryPlace
 * @typedef {{ink: Record<string, string>, font: string, ratio: number, t: number,
 *   chosen: number}} RecoveryLook  t: the playhead, ns since the origin of the run
 */
import { Pen } from "../../drawing/pen.js";
import { RECOVERY_PHASES } from "../../engine/recoveries.js";
import { hatched } from "../../drawing/hatch.js";
import { duration, ticks } from "../../engine/format.js";
import { PHASE_WORDS } from "./captions.js";
import { endOf, recoveryX } from "./place.js";

/** The ink of each phase; detect is hatched: all wait. @type {Record<Phase, string>} */
const PHASE_INKS = {
  detect: "wait",
  abort: "fault",
  rebuild: "load",
  restore: "optimizer",
  first: "forward",
};

/**
 * @param {Pen} pen
 * @param {Phase} phase
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {boolean} [received]  bytes were on their way in it
 */
export function drawPhase(pen, phase, x, y, w, h, received = false) {
  const { ink, ratio } = pen;
  const solid = received ? ink.comm : ink[PHASE_INKS[phase]];
  pen.box(x, y, w, h, phase === "detect" ? hatched(ink.wait, ratio) : solid);
  if (phase === "detect" && w > 2 && h > 4) pen.outline(x + 0.5, y + 0.5, w - 1, h - 1, "wait");
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {RecoveryLook} look
 * @param {LossOfRanks} loss
 * @param {RecoveryPlace} place
 * @param {number} now
 */
export function drawWaterfall(g, look, loss, place, now) {
  const pen = new Pen(g, look);
  drawAxis(pen, place);
  pen.write("all", place.left - 14, place.top + place.bar / 2, "ink", "right", true);
  drawPhases(pen, loss, place, now);
  loss.lanes.forEach((lane, i) => drawLane(pen, look, loss, place, lane, i));
  const x = recoveryX(place, look.t - loss.origin);
  if (look.t < loss.origin || look.t > loss.origin + place.span) return;
  pen.box(x - 1, 0, 2, place.axis, "focus");
}

/**
 * The phases of all: each from the end of the one before to its own, with how long it took where
 * there is room.
 * @param {Pen} pen
 * @param {LossOfRanks} loss
 * @param {RecoveryPlace} place
 * @param {number} now
 */
function drawPhases(pen, loss, place, now) {
  let from = loss.origin;
  for (const phase of RECOVERY_PHASES) {
    const end = loss.ends[phase];
    if (!(end >= from)) {
      if (!(end >= 0)) break;
      continue;
    }
    const x = recoveryX(place, from - loss.origin);
    const w = Math.max(0.75, recoveryX(place, end - loss.origin) - x);
    const received = phase === "restore" && loss.received > 0;
    drawPhase(pen, phase, x, place.top, w, place.bar, received);
    const took = duration(end - from);
    const words = [`${PHASE_WORDS[phase][0]} ${took}`, took].find(
      (text) => pen.wide(text, true) + 10 <= w,
    );
    if (words) {
      const half = pen.wide(words, true) / 2 + 3;
      // the words stand on the ground: legible on every phase
      pen.box(x + w / 2 - half, place.top + 3, 2 * half, place.bar - 6, "ground");
      pen.write(words, x + w / 2, place.top + place.bar / 2 + 0.5, "ink", "center", true);
    }
    from = end;
  }
  const end = endOf(loss, now);
  const words = loss.ends.first >= 0 ? duration(loss.ends.first - loss.origin) : "…";
  const x = recoveryX(place, end - loss.origin);
  pen.write(words, x + 6, place.top + place.bar / 2 + 0.5, "ink", "left", true);
}

/**
 * @param {Pen} pen
 * @param {RecoveryLook} look
 * @param {LossOfRanks} loss
 * @param {RecoveryPlace} place
 * @param {import("../../engine/recoveries.js").RecoveryLane} lane
 * @param {number} i
 */
function drawLane(pen, look, loss, place, { rank, role, ended, bars }, i) {
  const { ink } = pen;
  const { chosen } = look;
  const y = place.lanes + i * place.lane;
  const h = Math.max(2, place.lane - (place.lane > 8 ? 4 : 1));
  const middle = y + h / 2;
  const words = role === "fresh" ? `rank ${rank}, new` : `rank ${rank}`;
  const every = Math.ceil(13 / place.lane);
  const pale = role === "lost" ? ink["ink-3"] : ink["ink-2"];
  if (place.named || i % every === 0 || role !== "survivor")
    if (place.named || role !== "survivor" || !crowdedBy(loss, i, every))
      pen.write(
        words,
        place.left - 14,
        middle,
        rank === chosen ? "ink" : pale,
        "right",
        rank === chosen,
      );
  pen.box(place.left, middle - 0.5, place.right - place.left, 1, "track");
  for (const { phase, start, end, name } of bars) {
    const x = recoveryX(place, start - loss.origin);
    const w = Math.max(0.75, recoveryX(place, end - loss.origin) - x);
    drawPhase(pen, phase, x, y, w, h, name === "received");
  }
  if (!(ended >= loss.origin - 1)) return;
  pen.cross(
    recoveryX(place, ended - loss.origin),
    middle,
    Math.min(4.5, place.lane / 2),
    place.lane > 8 ? 2.5 : 1.5,
  );
}

/**
 * Whether the name of a rank that is not a survivor stands so near that this one finds no room.
 * @param {LossOfRanks} loss @param {number} i @param {number} every
 */
const crowdedBy = ({ lanes }, i, every) =>
  lanes.slice(Math.max(0, i - every + 1), i + every).some(({ role }) => role !== "survivor");

/**
 * @param {Pen} pen
 * @param {RecoveryPlace} place
 */
function drawAxis(pen, place) {
  const { left, right, axis, span } = place;
  pen.box(left, axis, right - left, 1, "rule");
  for (const { t, label } of ticks(span, Math.max(2, Math.floor((right - left) / 90)))) {
    const x = recoveryX(place, t);
    pen.box(x, axis, 1, 4, "rule");
    pen.write(t ? label : "0", x, axis + 12, "ink-3", "center");
  }
}

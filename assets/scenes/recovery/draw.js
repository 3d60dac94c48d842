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
import { RECOVERY_PHASES } from "../../engine/recoveries.js";
import { cross } from "../../drawing/glyph.js";
import { hatched } from "../../drawing/hatch.js";
import { writeAt } from "../../drawing/colors.js";
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
 * @param {CanvasRenderingContext2D} g
 * @param {RecoveryLook} look
 * @param {Phase} phase
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {boolean} [received]  bytes were on their way in it
 */
export function drawPhase(g, { ink, ratio }, phase, x, y, w, h, received = false) {
  const solid = received ? ink.comm : ink[PHASE_INKS[phase]];
  g.fillStyle = phase === "detect" ? hatched(ink.wait, ratio) : solid;
  g.fillRect(x, y, w, h);
  if (phase !== "detect") return;
  g.strokeStyle = ink.wait;
  g.lineWidth = 1;
  if (w > 2 && h > 4) g.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {RecoveryLook} look
 * @param {LossOfRanks} loss
 * @param {RecoveryPlace} place
 * @param {number} now
 */
export function drawWaterfall(g, look, loss, place, now) {
  const { ink, font } = look;
  drawAxis(g, look, place);
  writeAt(g, font, "all", place.left - 14, place.top + place.bar / 2, ink.ink, "right", true);
  drawPhases(g, look, loss, place, now);
  loss.lanes.forEach((lane, i) => drawLane(g, look, loss, place, lane, i));
  const x = recoveryX(place, look.t - loss.origin);
  if (look.t < loss.origin || look.t > loss.origin + place.span) return;
  g.fillStyle = ink.focus;
  g.fillRect(x - 1, 0, 2, place.axis);
}

/**
 * The phases of all: each from the end of the one before to its own, with how long it took where
 * there is room.
 * @param {CanvasRenderingContext2D} g
 * @param {RecoveryLook} look
 * @param {LossOfRanks} loss
 * @param {RecoveryPlace} place
 * @param {number} now
 */
function drawPhases(g, look, loss, place, now) {
  const { ink, font } = look;
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
    drawPhase(g, look, phase, x, place.top, w, place.bar, received);
    const took = duration(end - from);
    g.font = `700 11px ${font}`;
    const words = [`${PHASE_WORDS[phase][0]} ${took}`, took].find(
      (text) => g.measureText(text).width + 10 <= w,
    );
    if (words) {
      const half = g.measureText(words).width / 2 + 3;
      g.fillStyle = ink.ground; // the words stand on the ground: legible on every phase
      g.fillRect(x + w / 2 - half, place.top + 3, 2 * half, place.bar - 6);
      writeAt(g, font, words, x + w / 2, place.top + place.bar / 2 + 0.5, ink.ink, "center", true);
    }
    from = end;
  }
  const end = endOf(loss, now);
  const words = loss.ends.first >= 0 ? duration(loss.ends.first - loss.origin) : "…";
  const x = recoveryX(place, end - loss.origin);
  writeAt(g, font, words, x + 6, place.top + place.bar / 2 + 0.5, ink.ink, "left", true);
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {RecoveryLook} look
 * @param {LossOfRanks} loss
 * @param {RecoveryPlace} place
 * @param {import("../../engine/recoveries.js").RecoveryLane} lane
 * @param {number} i
 */
function drawLane(g, look, loss, place, { rank, role, ended, bars }, i) {
  const { ink, font, chosen } = look;
  const y = place.lanes + i * place.lane;
  const h = Math.max(2, place.lane - (place.lane > 8 ? 4 : 1));
  const middle = y + h / 2;
  const words = role === "fresh" ? `rank ${rank}, new` : `rank ${rank}`;
  const every = Math.ceil(13 / place.lane);
  const pale = role === "lost" ? ink["ink-3"] : ink["ink-2"];
  if (place.named || i % every === 0 || role !== "survivor")
    if (place.named || role !== "survivor" || !crowdedBy(loss, i, every))
      writeAt(
        g,
        font,
        words,
        place.left - 14,
        middle,
        rank === chosen ? ink.ink : pale,
        "right",
        rank === chosen,
      );
  g.fillStyle = ink.track;
  g.fillRect(place.left, middle - 0.5, place.right - place.left, 1);
  for (const { phase, start, end, name } of bars) {
    const x = recoveryX(place, start - loss.origin);
    const w = Math.max(0.75, recoveryX(place, end - loss.origin) - x);
    drawPhase(g, look, phase, x, y, w, h, name === "received");
  }
  if (!(ended >= loss.origin - 1)) return;
  g.strokeStyle = ink.fault;
  g.lineWidth = place.lane > 8 ? 2.5 : 1.5;
  cross(g, recoveryX(place, ended - loss.origin), middle, Math.min(4.5, place.lane / 2));
}

/**
 * Whether the name of a rank that is not a survivor stands so near that this one finds no room.
 * @param {LossOfRanks} loss @param {number} i @param {number} every
 */
const crowdedBy = ({ lanes }, i, every) =>
  lanes.slice(Math.max(0, i - every + 1), i + every).some(({ role }) => role !== "survivor");

/**
 * @param {CanvasRenderingContext2D} g
 * @param {RecoveryLook} look
 * @param {RecoveryPlace} place
 */
function drawAxis(g, { ink, font }, place) {
  const { left, right, axis, span } = place;
  g.fillStyle = ink.rule;
  g.fillRect(left, axis, right - left, 1);
  for (const { t, label } of ticks(span, Math.max(2, Math.floor((right - left) / 90)))) {
    const x = recoveryX(place, t);
    g.fillStyle = ink.rule;
    g.fillRect(x, axis, 1, 4);
    writeAt(g, font, t ? label : "0", x, axis + 12, ink["ink-3"], "center");
  }
}

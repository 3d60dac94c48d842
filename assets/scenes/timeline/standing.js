// @ts-check
/**
 * Waits that go on, in the lanes: they have no row before they end, and may never end.
 * @typedef {import("../../engine/page_state.js").Look} Look
 * @typedef {import("./draw.js").Canvas} Canvas
 */
import { stuckNow } from "../../engine/blocked.js";
import { nowOf } from "../../engine/player.js";
import { windowX } from "./layout.js";

/** The moment until which ranks wait that are not done with it; -Infinity: none does. @param {Look} look */
export const waitsUntil = (look) => (stuckNow(look).size ? nowOf(look.known, look.at) : -Infinity);

/**
 * Where the waits lie that go on, in CSS pixels.
 * @param {Look} look
 * @param {Pick<Canvas, "win" | "place">} canvas
 * @param {number[]} ranks
 */
export function standingBars(look, { win, place }, ranks) {
  const { lanes, level, band } = place;
  const [down, high] = level === "density" ? [0, lanes.row] : [lanes.talk, lanes.talkHeight];
  const now = nowOf(look.known, look.at);
  return [...stuckNow(look).values()].flatMap(({ rank, since }) => {
    const x = Math.max(place.left, windowX(win, place, since));
    const w = Math.min(place.right, windowX(win, place, now)) - x;
    const row = Math.floor(ranks.indexOf(rank) / band);
    return w > 0 && row >= 0
      ? [{ rank, x, y: lanes.top + row * lanes.row + down, w, h: high }]
      : [];
  });
}

/** @param {CanvasRenderingContext2D} g @param {Look} look @param {Canvas} canvas @param {number[]} ranks */
export function drawStanding(g, look, canvas, ranks) {
  g.fillStyle = canvas.waiting;
  for (const { x, y, w, h } of standingBars(look, canvas, ranks)) g.fillRect(x, y, w, h);
}

// @ts-check
/**
 * Beside the pipeline's picture: how much of each rank's time is idle and why, against the plan;
 * below it the history of the iterations, to see and to scrub.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./selection.js").Pass} Pass
 * @typedef {import("./idle.js").Shares} Shares
 * @typedef {{iteration: number, start: number, end: number, idle: number, parts: Shares}} Past
 */
import { idleShare, WHYS } from "./idle.js";
import { formulaOf } from "./plan.js";
import { rowName } from "./draw.js";
import { drawIdle } from "./texture.js";
import { writeAt } from "../../drawing/colors.js";
import { placesFor } from "../../chrome/call_strip.js";
import { isOver } from "../../engine/player.js";

const BUBBLE_LEFT = 76;
const BUBBLE_RIGHT = 50;
const HISTORY = { left: 92, right: 8, top: 4, bars: 28, height: 54 };

/** A share as people read it. @param {number} share @param {number} [places] */
export const share100 = (share, places = 1) => `${(100 * share).toFixed(places)} %`;
/** @param {number} rows */
const bubbleRow = (rows) => (rows <= 4 ? 19 : rows <= 8 ? 16 : rows <= 16 ? 13 : 8);
/** @param {number} rows */
export const bubbleHeight = (rows) => rows * bubbleRow(rows) + 48;
/** The end of the scale: round, and never less than what is shown. @param {number} most */
export const bubbleScale = (most) =>
  [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1].find((end) => end >= most - 1e-9) ?? 1;

/**
 * @param {{g: CanvasRenderingContext2D, ink: Record<string, string>, font: string, ratio: number,
 *   width: number}} chart
 * @param {Pass} pass
 */
export function drawBubble({ g, ink, font, ratio, width }, pass) {
  const { shares, all, plan, facts } = pass;
  const planned = plan?.idle ?? facts.bubble ?? NaN;
  const rows = shares.length;
  const pitch = bubbleRow(rows);
  const tall = Math.max(3, pitch - (pitch > 9 ? 6 : 2));
  const every = pitch >= 13 ? 1 : 2;
  const end = bubbleScale(
    Math.max(idleShare(all), Number.isNaN(planned) ? 0 : planned, ...shares.map(idleShare)),
  );
  const X = (/** @type {number} */ part) =>
    BUBBLE_LEFT + (part / end) * (width - BUBBLE_LEFT - BUBBLE_RIGHT);
  const line = (/** @type {Shares} */ share, /** @type {number} */ y, /** @type {number} */ h) => {
    let at = 0;
    for (const why of WHYS) {
      const part = share.whole > 0 ? share[why] / share.whole : 0;
      const x = X(at);
      const w = X((at += part)) - x;
      if (w <= 0.1) continue;
      drawIdle(g, ink, ratio, why, x, y, w, h);
      g.strokeStyle = ink.rule;
      g.lineWidth = 1;
      g.strokeRect(x, y, w, h);
    }
  };
  shares.forEach((share, row) => {
    const y = 2 + row * pitch;
    line(share, y, tall);
    if (row % every) return;
    writeAt(g, font, rowName(pass.lanes, row), 0, y + tall / 2, ink["ink-2"]);
    writeAt(g, font, share100(idleShare(share), 0), width - 4, y + tall / 2, ink["ink-2"], "right");
  });
  const y = 6 + rows * pitch;
  line(all, y, 18);
  writeAt(g, font, "all", 0, y + 9, ink.ink, "left", true, 12);
  writeAt(g, font, share100(idleShare(all)), width - 4, y + 9, ink.ink, "right", true, 12);
  if (Number.isNaN(planned)) return;
  g.fillStyle = ink.ink;
  g.fillRect(X(planned) - 0.75, 0, 1.5, y + 22);
  const words = `${formulaOf(facts, planned).name} = ${share100(planned)}`;
  g.font = `400 11px ${font}`;
  const half = g.measureText(words).width / 2;
  writeAt(
    g,
    font,
    words,
    Math.min(width - 4 - half, Math.max(half, X(planned))),
    y + 31,
    ink["ink-2"],
    "center",
  );
}

/**
 * One bar an iteration, or one a few of them where there are more than pixels.
 * @param {Past[]} past @param {number} width @param {boolean} over  no more will come
 */
export function historyBars(past, width, over) {
  const room = width - HISTORY.left - HISTORY.right;
  const places = placesFor(past.length, over);
  const each = Math.max(1, Math.ceil(places / (room / 3)));
  const w = over ? (room * each) / places : Math.min(30, (room * each) / places);
  const bars = [];
  for (let first = 0; first < past.length; first += each) {
    const some = past.slice(first, first + each);
    const idle = some.reduce((sum, one) => sum + one.idle, 0) / some.length;
    bars.push({
      x: HISTORY.left + (first / each) * w,
      w: Math.max(0.5, (w * some.length) / each - (w > 3 ? 1 : 0)),
      idle,
      first: some[0],
      last: some[some.length - 1],
    });
  }
  return bars;
}

/**
 * The moment at a place of the history; null where there is none.
 * @param {Past[]} past
 * @param {number} width
 * @param {boolean} over
 * @param {number} x
 */
export function historyAt(past, width, over, x) {
  const bars = historyBars(past, width, over);
  const pitch = bars.length > 1 ? bars[1].x - bars[0].x : (bars[0]?.w ?? 1) + 1;
  const bar = bars[Math.max(0, Math.min(bars.length - 1, Math.floor((x - HISTORY.left) / pitch)))];
  if (!bar) return null;
  return (
    bar.first.start +
    Math.min(1, Math.max(0, (x - bar.x) / pitch)) * (bar.last.end - bar.first.start - 1)
  );
}

export const historyHeight = () => HISTORY.height;

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {Past[]} past
 * @param {number} planned  the plan's share, NaN if unknown
 * @param {string} name  what that is
 */
export function drawHistory(g, { ink, font, width, current, t, known }, past, planned, name) {
  const { left, right, top, bars: tall } = HISTORY;
  const base = top + tall;
  const bars = historyBars(past, width, isOver(known));
  const end =
    Math.max(0.1, Number.isNaN(planned) ? 0 : planned, ...bars.map((bar) => bar.idle)) * 1.15;
  writeAt(g, font, "idle, each", 0, top + 8, ink["ink-3"]);
  writeAt(
    g,
    font,
    Number.isNaN(planned) ? "iteration" : `dotted: ${name}`,
    0,
    top + 22,
    ink["ink-3"],
  );
  let shown = null;
  for (const bar of bars) {
    const on =
      !!current &&
      current.iteration >= bar.first.iteration &&
      current.iteration <= bar.last.iteration;
    const h = Math.max(1, (bar.idle / end) * tall);
    if (on) shown = bar;
    g.globalAlpha = on ? 1 : 0.5;
    g.fillStyle = on ? ink.focus : ink.edge;
    g.fillRect(bar.x, base - h, bar.w, h);
  }
  g.globalAlpha = 1;
  g.fillStyle = ink.rule;
  g.fillRect(left, base, width - left - right, 1);
  if (!Number.isNaN(planned)) {
    g.strokeStyle = ink.ink;
    g.lineWidth = 1;
    g.setLineDash([2, 2]);
    g.beginPath();
    g.moveTo(left, base - (planned / end) * tall);
    g.lineTo(width - right, base - (planned / end) * tall);
    g.stroke();
    g.setLineDash([]);
  }
  const taken = /** @type {[number, number][]} */ ([]);
  const put = (
    /** @type {string} */ text,
    /** @type {number} */ x,
    /** @type {boolean} */ bold,
  ) => {
    g.font = `${bold ? 700 : 400} 11px ${font}`;
    const w = g.measureText(text).width;
    const at = Math.max(left, Math.min(width - right - w, x - w / 2));
    if (taken.some(([a, b]) => at < b + 6 && a - 6 < at + w)) return;
    taken.push([at, at + w]);
    writeAt(g, font, text, at, base + 14, bold ? ink.ink : ink["ink-3"], "left", bold);
  };
  if (shown && current) {
    const x =
      shown.x +
      Math.min(
        1,
        Math.max(0, (t - shown.first.start) / Math.max(1, shown.last.end - shown.first.start)),
      ) *
        shown.w;
    g.fillStyle = ink.focus;
    g.fillRect(x - 1, 0, 2, base + 4);
    put(`iteration ${current.iteration + 1}`, shown.x + shown.w / 2, true);
  }
  if (bars.length) {
    put(String(bars[0].first.iteration + 1), bars[0].x + bars[0].w / 2, false);
    put(
      String(bars[bars.length - 1].last.iteration + 1),
      bars[bars.length - 1].x + bars[bars.length - 1].w / 2,
      false,
    );
  }
}

/** The bubble in words. @param {Pass} pass */
export const bubbleWords = (pass) =>
  pass.shares
    .map(
      (its, row) =>
        `${rowName(pass.lanes, row)} idle ${share100(idleShare(its), 0)}: ` +
        `${WHYS.map((why) => `${why} ${share100(its.whole ? its[why] / its.whole : 0, 0)}`).join(", ")}`,
    )
    .join("; ");

// @ts-check
/**
 * Beside the pipeline's picture: how much of each rank's time is idle and why, against the plan;
 * below it the history of the iterations, to see and to scrub.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../drawing/chart.js").Chart} Chart
 * @typedef {import("./selection.js").Pass} Pass
 * @typedef {import("./idle.js").Shares} Shares
 * @typedef {{iteration: number, start: number, end: number, idle: number, parts: Shares}} Past
 */
import { idleShare, WHYS } from "./idle.js";
import { formulaOf } from "./plan.js";
import { rowName } from "./draw.js";
import { drawIdle } from "./texture.js";
import { scale } from "../../drawing/chart.js";
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

/** @param {Chart} chart @param {Pass} pass */
export function drawBubble(chart, pass) {
  const { width } = chart;
  const { shares, all, plan, facts } = pass;
  const planned = plan?.idle ?? facts.bubble ?? NaN;
  const pitch = bubbleRow(shares.length);
  const tall = Math.max(3, pitch - (pitch > 9 ? 6 : 2));
  const every = pitch >= 13 ? 1 : 2;
  const end = bubbleScale(
    Math.max(idleShare(all), Number.isNaN(planned) ? 0 : planned, ...shares.map(idleShare)),
  );
  const { px } = scale(0, end, BUBBLE_LEFT, width - BUBBLE_RIGHT);
  const line = (/** @type {Shares} */ share, /** @type {number} */ y, /** @type {number} */ h) => {
    let at = 0;
    for (const why of WHYS) {
      const x = px(at);
      const w = px((at += share.whole > 0 ? share[why] / share.whole : 0)) - x;
      if (w <= 0.1) continue;
      drawIdle(chart, why, x, y, w, h);
      chart.outline(x, y, w, h, "rule");
    }
  };
  shares.forEach((share, row) => {
    const y = 2 + row * pitch;
    line(share, y, tall);
    if (row % every) return;
    chart.write(rowName(pass.lanes, row), 0, y + tall / 2);
    chart.write(share100(idleShare(share), 0), width - 4, y + tall / 2, "ink-2", "right");
  });
  const y = 6 + shares.length * pitch;
  line(all, y, 18);
  chart.write("all", 0, y + 9, "ink", "left", true, 12);
  chart.write(share100(idleShare(all)), width - 4, y + 9, "ink", "right", true, 12);
  if (Number.isNaN(planned)) return;
  chart.box(px(planned) - 0.75, 0, 1.5, y + 22, "ink");
  const words = `${formulaOf(facts, planned).name} = ${share100(planned)}`;
  const half = chart.wide(words) / 2;
  const middle = Math.min(width - 4 - half, Math.max(half, px(planned)));
  chart.write(words, middle, y + 31, "ink-2", "center");
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
 * @param {Chart} chart
 * @param {Look} look
 * @param {Past[]} past
 * @param {number} planned  the plan's share, NaN if unknown
 * @param {string} name  what that is
 */
export function drawHistory(chart, { current, t, known }, past, planned, name) {
  const { g, width } = chart;
  const { left, right, top, bars: tall } = HISTORY;
  const base = top + tall;
  const bars = historyBars(past, width, isOver(known));
  const end =
    Math.max(0.1, Number.isNaN(planned) ? 0 : planned, ...bars.map((bar) => bar.idle)) * 1.15;
  chart.write("idle, each", 0, top + 8, "ink-3");
  chart.write(Number.isNaN(planned) ? "iteration" : `dotted: ${name}`, 0, top + 22, "ink-3");
  const shown = bars.findLast(
    ({ first, last }) =>
      current && current.iteration >= first.iteration && current.iteration <= last.iteration,
  );
  for (const bar of bars) {
    const h = Math.max(1, (bar.idle / end) * tall);
    g.globalAlpha = bar === shown ? 1 : 0.5;
    chart.box(bar.x, base - h, bar.w, h, bar === shown ? "focus" : "edge");
  }
  g.globalAlpha = 1;
  chart.box(left, base, width - left - right, 1, "rule");
  if (!Number.isNaN(planned)) {
    const y = base - (planned / end) * tall;
    chart.line(
      [
        [left, y],
        [width - right, y],
      ],
      "ink",
      { dash: [2, 2] },
    );
  }
  const taken = /** @type {[number, number][]} */ ([]);
  const put = (
    /** @type {string} */ text,
    /** @type {{x: number, w: number}} */ bar,
    bold = false,
  ) => {
    const w = chart.wide(text, bold);
    const at = Math.max(left, Math.min(width - right - w, bar.x + bar.w / 2 - w / 2));
    if (taken.some(([a, b]) => at < b + 6 && a - 6 < at + w)) return;
    taken.push([at, at + w]);
    chart.write(text, at, base + 14, bold ? "ink" : "ink-3", "left", bold);
  };
  if (shown && current) {
    const { start } = shown.first;
    const { px } = scale(start, Math.max(shown.last.end, start + 1), shown.x, shown.x + shown.w, {
      within: true,
    });
    chart.playhead(px(t), 0, base + 4);
    put(`iteration ${current.iteration + 1}`, shown, true);
  }
  for (const [bar, one] of bars.length
    ? /** @type {const} */ ([
        [bars[0], bars[0].first],
        [bars[bars.length - 1], bars[bars.length - 1].last],
      ])
    : [])
    put(String(one.iteration + 1), bar);
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

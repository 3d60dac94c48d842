// @ts-check
/**
 * The strip of the time bar: every call of the run, a bar each.
 * @typedef {import("../engine/table.js").CallHead} CallHead
 */
import { duration } from "../engine/format.js";
import { isOver } from "../engine/player.js";
import { countUntil } from "../engine/search.js";
import { bandsOf } from "../drawing/generation_bands.js";

export const STRIP = { left: 58, right: 8, height: 34, bars: 22 };
/**
 * How many places the strip has: while calls come it grows in steps, so that bars do not creep.
 * @param {number} calls
 * @param {boolean} over
 */
export const placesFor = (calls, over) =>
  over ? Math.max(1, calls) : 2 ** Math.max(6, Math.ceil(Math.log2(Math.max(1, calls))));

const CUT_FROM = 4; // times the scale: from there on a bar is cut, and drawn broken

/**
 * The time that the highest bar stands for: the longest, or, where few calls last many times as long
 * as all others, that of the 98th percentile. A minute in which the ranks were held then leaves the
 * others to be seen.
 * @param {number[]} spans  ns
 */
export function stripScale(spans) {
  const sorted = [...spans].sort((a, b) => a - b);
  const longest = sorted.at(-1) ?? 0;
  const most = sorted[Math.floor(0.98 * (sorted.length - 1))] ?? 0;
  return most > 0 && longest > CUT_FROM * most ? most : longest;
}

/**
 * The strip's bars: one a call, or one a few calls (the longest of them) where there are more than
 * pixels.
 * @param {CallHead[]} calls @param {number} width @param {boolean} over  no more will come
 * @param {number} [now]  ns: the newest call goes on until then; 0: it does not
 * @returns {{x: number, w: number, h: number, first: number, last: number, cut: boolean,
 *   top: number}[]} h from 0 to 1, the scale's (stripScale); cut: it lasts longer than that; top: ns
 *   of the scale
 */
export function callBars(calls, width, over, now = 0) {
  const room = width - STRIP.left - STRIP.right;
  const places = placesFor(calls.length, over);
  const each = Math.max(1, Math.ceil(places / (room / 3)));
  const w = (room * each) / places;
  const bars = [];
  for (let first = 0; first < calls.length; first += each) {
    let span = 0;
    for (let i = first; i < Math.min(first + each, calls.length); i++) {
      const end = i === calls.length - 1 ? Math.max(now, calls[i].end) : calls[i].end;
      span = Math.max(span, end - calls[i].start);
    }
    bars.push({
      x: STRIP.left + (first / places) * room,
      w: Math.max(0.5, w - (w > 3 ? 1 : 0)),
      h: span,
      first,
      last: Math.min(first + each, calls.length) - 1,
      cut: false,
      top: 0,
    });
  }
  const scale = stripScale(bars.map((bar) => bar.h));
  for (const bar of bars) {
    bar.cut = bar.h > scale;
    bar.top = scale;
    bar.h = scale ? Math.max(0.06, Math.sqrt(Math.min(1, bar.h / scale))) : 0.06;
  }
  return bars;
}

/**
 * Where the generations lie on the strip, in px: each from its first call on.
 * @param {import("../engine/player.js").Known} known
 * @param {CallHead[]} calls @param {number} width
 * @returns {import("../drawing/generation_bands.js").Band[]}
 */
export function callBands(known, calls, width) {
  const room = width - STRIP.left - STRIP.right;
  const places = placesFor(calls.length, isOver(known));
  const x = (/** @type {number} */ i) => STRIP.left + (i / places) * room;
  const bands = bandsOf(known, -Infinity, known.table.to).map(({ number, from }) => ({
    number,
    from: x(countUntil(calls, from, (call) => call.start)),
    to: x(calls.length),
  }));
  bands.forEach((band, i) => (band.to = bands[i + 1]?.from ?? band.to));
  return bands.filter(({ from, to }) => to > from);
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {CallHead[]} calls
 * @param {number} index
 * @param {number} width
 * @param {boolean} over
 * @param {string} words
 * @param {number} now  ns: the newest call goes on until then; 0: it does not
 */
export function drawStrip(g, ink, font, calls, index, width, over, words, now) {
  const bars = callBars(calls, width, over, now);
  const top = duration(bars[0]?.top ?? 0);
  g.font = `11px ${font}`;
  g.textBaseline = "middle";
  g.textAlign = "right";
  g.fillStyle = ink["ink-3"];
  g.fillText(words, STRIP.left - 8, bars.length ? 20 : STRIP.bars / 2 + 4);
  if (bars.length) g.fillText(top, STRIP.left - 8, 6);
  g.fillStyle = ink.rule;
  g.fillRect(STRIP.left, STRIP.bars + 3, width - STRIP.left - STRIP.right, 1);
  let shown = null;
  for (const bar of bars) {
    const on = index >= bar.first && index <= bar.last;
    const h = Math.round(bar.h * STRIP.bars);
    if (on) shown = bar;
    g.fillStyle = on ? ink.focus : ink.edge;
    g.fillRect(bar.x, STRIP.bars + 3 - h, Math.max(on ? 2 : 0.5, bar.w), h);
    if (bar.cut) g.clearRect(bar.x, STRIP.bars + 8 - h, Math.max(2, bar.w), 2); // it is broken: longer
  }
  if (!shown) return;
  const x = shown.x + shown.w / 2; // the funnel: this call is what lies below
  g.fillStyle = ink.track ?? ink.rule;
  g.beginPath();
  g.moveTo(x - 2, STRIP.bars + 5);
  g.lineTo(x + 2, STRIP.bars + 5);
  g.lineTo(width - STRIP.right, STRIP.height);
  g.lineTo(STRIP.left, STRIP.height);
  g.fill();
}

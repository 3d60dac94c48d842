// @ts-check
/**
 * The strip of the time bar: every call of the run, a bar each; ticks of iterations below, marks of
 * what was done to the ranks and of what was noticed above.
 * @typedef {import("../engine/table.js").CallHead} CallHead
 * @typedef {import("../engine/feed_lines.js").Line} Line
 */
import { burstNumber } from "../engine/bursts_of_run.js";
import { callNumber, duration, grouped, numberWords } from "../engine/format.js";
import { lossWords, lossesOf } from "../engine/losses.js";
import { isOver } from "../engine/player.js";
import { countUntil } from "../engine/search.js";
import { bandsOf } from "../drawing/generation_bands.js";

export const STRIP = { left: 58, right: 8, height: 34, bars: 18 };
const TICK_APART = 56; // px, at least, from one tick with a number to the next
/** What a line of the feed is on the strip, by its kind. @type {Record<string, string>} */
const MARKS = { fault: "hold", state: "hold", detect: "fault", abort: "fault" };

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
 * Where a moment of the run lies on the strip, in px: within its call, or where the next one begins.
 * @param {CallHead[]} calls @param {number} t @param {number} width @param {boolean} over
 */
export function placeOfMoment(calls, t, width, over) {
  const room = width - STRIP.left - STRIP.right;
  const at = countUntil(calls, t, (call) => call.start) - 1;
  const call = calls[at];
  const share = call ? Math.min(1, (t - call.start) / Math.max(1, call.end - call.start)) : 1;
  return STRIP.left + ((at + share) / placesFor(calls.length, over)) * room;
}

/** The iteration of a call, from 0; -1: it has none. @param {CallHead} call */
const iterationOf = ({ iteration = -1, words }) => (words && !words.ofIterations ? -1 : iteration);

/**
 * The ticks of the strip: the first call of every k-th iteration, with k of 1, 2, 5, 10 ... such that
 * their numbers have room.
 * @param {CallHead[]} calls @param {number} width @param {boolean} over
 * @returns {{x: number, iteration: number}[]}  iteration: counted from 1
 */
export function iterationTicks(calls, width, over) {
  const first = /** @type {Map<number, number>} */ (new Map());
  calls.forEach((call, i) => {
    const iteration = iterationOf(call);
    if (iteration >= 0 && !first.has(iteration)) first.set(iteration, i);
  });
  const pitch = (width - STRIP.left - STRIP.right) / placesFor(calls.length, over);
  const least = (TICK_APART * first.size) / Math.max(1, pitch * calls.length); // iterations
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(least)));
  const every = [1, 2, 5, 10].map((k) => k * unit).find((k) => k >= least) ?? 10 * unit;
  return [...first]
    .filter(([iteration]) => (iteration + 1) % every === 0)
    .map(([iteration, i]) => ({ x: STRIP.left + i * pitch, iteration: iteration + 1 }))
    .filter(({ x }, i, all) => !i || x - all[i - 1].x >= TICK_APART / 2);
}

/**
 * Which call it is, or which round, pass or burst of messages: of how many.
 * @param {import("../engine/player.js").Known} known @param {CallHead} call
 */
export function placeWords(known, call) {
  if (call.words) return `${call.words.where} ${numberWords(call)}`;
  if (call.collective !== "p2p") return callNumber(known, { number: call.op + 1 });
  const numbers = burstNumber(known, call).map(grouped).join(" of ");
  return `${call.name ? `${call.name}, ` : ""}messages ${numbers}`;
}

/**
 * What a place of the strip stands for, in words.
 * @param {import("../engine/player.js").Known} known @param {CallHead} call
 */
export function previewOf(known, call) {
  const iteration = iterationOf(call);
  const loss = iteration >= 0 ? lossesOf(known.table).at(iteration) : NaN;
  return [
    placeWords(known, call),
    iteration >= 0 && !call.words ? `iteration ${grouped(iteration + 1)}` : "",
    `${duration(call.start)} after the start`,
    `lasts ${duration(call.end - call.start)}`,
    Number.isFinite(loss) ? `loss ${lossWords(loss)}` : "",
  ]
    .filter(Boolean)
    .join(" · ");
}

/**
 * Marks of what was done to the ranks (amber, pointing down) and of what was noticed (a red cross).
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {CallHead[]} calls @param {Line[]} lines @param {number} width @param {boolean} over
 */
export function drawStripMarks(g, ink, calls, lines, width, over) {
  for (const { t, kind } of lines) {
    const colour = MARKS[kind];
    if (!colour || !calls.length || (kind === "state" && t >= calls[calls.length - 1].end))
      continue; // or its end
    const x = placeOfMoment(calls, t, width, over);
    g.fillStyle = g.strokeStyle = ink[colour];
    g.lineWidth = 1.6;
    g.beginPath();
    if (colour === "hold") {
      g.moveTo(x - 4, 0);
      g.lineTo(x + 4, 0);
      g.lineTo(x, 7);
      g.fill();
    } else {
      g.moveTo(x - 3, 1);
      g.lineTo(x + 3, 7);
      g.moveTo(x - 3, 7);
      g.lineTo(x + 3, 1);
      g.stroke();
    }
  }
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
  const ticks = iterationTicks(calls, width, over);
  const base = STRIP.bars + 3;
  g.font = `11px ${font}`;
  g.textBaseline = "middle";
  g.textAlign = "right";
  g.fillStyle = ink["ink-3"];
  g.fillText(words, STRIP.left - 8, bars.length ? 17 : base);
  if (bars.length) g.fillText(top, STRIP.left - 8, 6);
  if (ticks.length) g.fillText("iteration", STRIP.left - 8, 28);
  g.textAlign = "center";
  for (const { x, iteration } of ticks) {
    g.fillRect(x, base, 1, 3);
    const number = grouped(iteration);
    g.fillText(number, Math.min(x, width - 3.5 * number.length), 28);
  }
  g.fillStyle = ink.rule;
  g.fillRect(STRIP.left, base, width - STRIP.left - STRIP.right, 1);
  for (const bar of bars) {
    const on = index >= bar.first && index <= bar.last;
    const h = Math.round(bar.h * STRIP.bars);
    g.fillStyle = on ? ink.focus : ink.edge;
    g.fillRect(bar.x, base - h, Math.max(on ? 2 : 0.5, bar.w), h);
    if (bar.cut) g.clearRect(bar.x, base + 5 - h, Math.max(2, bar.w), 2); // it is broken: longer
  }
}

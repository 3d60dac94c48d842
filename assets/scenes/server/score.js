// @ts-check
/**
 * One round of a parameter server in time, above the line of time: a lane a rank. Servers: the updates
 * that they make. Workers: pull, compute, push, blocked. The future is pale.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./index.js").ServerIndex} ServerIndex
 */
import { Pen } from "../../drawing/pen.js";
import { drawAxis, drawNames, scoreHeight, scoreLane, xOf } from "../../drawing/lanes.js";
import { countUntil } from "../../engine/search.js";
import { allowedSince } from "./worker_time.js";
import { drawPart } from "./shares_chart.js";

const TOP_EDGE = 12;
const SCORE_KEYS = ["compute", "pull", "push", "blocked by the bound", "waits for a server"];

/**
 * What each rank did between two moments: bars by part (as TURN_PARTS), -1 an update.
 * @param {ServerIndex} index
 * @param {number} from
 * @param {number} to
 * @param {import("./index.js").Bound} bound
 * @returns {{rank: number, part: number, start: number, end: number}[]}
 */
export function roundBars(index, from, to, bound) {
  const bars = /** @type {{rank: number, part: number, start: number, end: number}[]} */ ([]);
  const put = (
    /** @type {number} */ rank,
    /** @type {number} */ part,
    /** @type {number} */ start,
    /** @type {number} */ end,
  ) => {
    if (end > start && end > from && start < to)
      bars.push({ rank, part, start: Math.max(from, start), end: Math.min(to, end) });
  };
  for (const { rank, done } of index.servers.values()) {
    for (
      let i = countUntil(done, from, (push) => push.end);
      i < done.length && done[i].begin < to;
      i++
    )
      if (!i || done[i - 1].end !== done[i].end) put(rank, -1, done[i].begin, done[i].end);
  }
  for (const worker of index.workers.values()) {
    const { rank, granted, lost } = worker;
    const last = Number.isNaN(lost) ? to : Math.min(to, lost);
    for (
      let i = Math.max(0, countUntil(granted, from, (turn) => turn.granted) - 1);
      i < granted.length;
      i++
    ) {
      const turn = granted[i];
      const next = granted[i + 1]?.granted ?? Infinity;
      const known = (/** @type {number} */ x) => (Number.isNaN(x) ? last : Math.min(last, x));
      if (!(turn.granted < last)) break;
      put(rank, 1, turn.granted, known(turn.pulled));
      put(rank, 0, known(turn.pulled), known(turn.pushing));
      put(rank, 2, known(turn.pushing), known(turn.pushed));
      if (bound.iterations > 0 && turn.iteration + 1 >= bound.iterations) continue;
      const pushed = known(turn.pushed);
      const until = Math.min(next, last);
      const since = allowedSince(index, worker, turn.iteration + 1, bound);
      const free = Math.max(pushed, Math.min(until, Number.isNaN(since) ? until : since));
      put(rank, 3, pushed, free);
      put(rank, 4, free, until);
    }
  }
  return bars;
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {ServerIndex} index
 * @param {import("./index.js").Bound} bound
 */
export function drawScore(g, look, index, bound) {
  const pen = new Pen(g, look);
  const { ink, current, ranks, width, font } = look;
  const lane = scoreLane(ranks);
  drawNames(g, look);
  if (!current) return;
  const span = current.end - current.start;
  const t = Math.min(span, Math.max(0, look.t - current.start));
  const head = xOf(t, span, width);
  const draw = (
    /** @type {{rank: number, part: number, start: number, end: number}} */ bar,
    /** @type {number} */ a,
    /** @type {number} */ b,
  ) => {
    const y = TOP_EDGE + bar.rank * lane + 0.5;
    const tall = Math.max(1, lane - (lane > 8 ? 2 : 1));
    if (bar.part >= 0) return drawPart(pen, bar.part, a, y, b - a, tall);
    pen.box(a, y, b - a, tall, "reduce");
  };
  for (const bar of roundBars(index, current.start, current.end, bound)) {
    const a = xOf(bar.start - current.start, span, width);
    const b = Math.max(a + 1, xOf(bar.end - current.start, span, width));
    if (a < head) draw(bar, a, Math.min(b, Math.max(head, a + 1)));
    if (b <= head) continue;
    g.globalAlpha = 0.35;
    draw(bar, Math.max(a, head), b);
    g.globalAlpha = 1;
  }
  drawAxis(g, look, current, t, null);
  let x = xOf(0, span, width);
  const y = scoreHeight(ranks) - 8;
  const key = (/** @type {string} */ words, /** @type {(x: number) => void} */ mark) => {
    g.font = `400 11px ${font}`;
    const room = 20 + g.measureText(words).width;
    if (x + room > width) return;
    mark(x);
    g.textAlign = "left";
    g.textBaseline = "middle";
    g.fillStyle = ink["ink-2"];
    g.fillText(words, x + 19, y + 0.5);
    x += room + 14;
  };
  SCORE_KEYS.forEach((words, part) => key(words, (at) => drawPart(pen, part, at, y - 3.5, 14, 7)));
  key("update of a shard", (at) => pen.box(at, y - 3.5, 14, 7, "reduce"));
}

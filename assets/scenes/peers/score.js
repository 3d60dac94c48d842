// @ts-check
/**
 * One mixing in time, above the line of time: a lane a rank, above what it computes, below what it
 * sends, receives and waits for; a tick where it had done an iteration. The future is pale; so, and
 * thin, is waiting that costs nothing (waits.js).
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {{rank: number, part: "compute" | "mix" | "move" | "wait" | "open", start: number,
 *   end: number}} Bar
 */
import { Pen } from "../../drawing/pen.js";
import { hatched } from "../../drawing/hatch.js";
import { drawAxis, drawNames, scoreHeight, scoreLane, xOf } from "../../drawing/lanes.js";
import { indexOf } from "./index.js";
import { countUntil } from "../../engine/search.js";
import { busySpans, placeInLane, standsForMessages, waitPieces } from "../../engine/waits.js";

const SCORE_TOP = 12;
const MOST_BARS = 6000;
const OPEN_PALE = 0.5;
const OPEN_THIN = 0.4; // of waiting that costs nothing
const TICKED = 5; // px of a lane that has room for what is thin
/** @type {Record<string, Bar["part"]>} */
const MIXING_PARTS = {
  forward: "compute",
  backward: "compute",
  weight_grad: "compute",
  load: "compute",
  optimizer: "compute",
  send: "move",
  recv: "move",
  wait: "wait",
};

/**
 * What each rank did between two moments.
 * @param {import("../../engine/table.js").Table} table
 * @param {number} from
 * @param {number} to
 * @param {import("../../engine/player.js").RunFacts | null} [run]
 * @returns {Bar[]}
 */
export function mixingBars(table, from, to, run = null) {
  const bars = /** @type {Bar[]} */ ([]);
  const lanes = [...table.lanes.values()];
  const spans = /** @type {Map<number, [number, number][][]>} */ (new Map());
  const spansOf = (/** @type {number} */ rank) => {
    const lanesOfRank = lanes.filter((lane) => lane.rank === rank);
    const busy =
      spans.get(rank) ??
      [false, true].map((calls) => busySpans(table, lanesOfRank, from, to, calls));
    spans.set(rank, busy);
    return busy;
  };
  for (const lane of lanes) {
    for (let i = placeInLane(table, lane, from); i < lane.length && bars.length < MOST_BARS; i++) {
      const row = lane.rows[i];
      const kind = table.kindName(table.kind[row]);
      const part =
        kind === "optimizer" && table.text(table.name[row]) === "mix" ? "mix" : MIXING_PARTS[kind];
      if (table.start[row] >= to && lane.name === "compute") break;
      if (table.start[row] >= to + 1e9) break; // rows lie in the order of their ends
      if (!part || table.end[row] <= table.start[row] || table.start[row] >= to) continue;
      const pieces =
        part === "wait"
          ? waitPieces(
              table,
              row,
              spansOf(lane.rank)[0],
              spansOf(lane.rank)[1],
              standsForMessages(run, lane.rank),
            )
          : [{ start: table.start[row], end: table.end[row], free: false }];
      for (const { start, end, free } of pieces)
        if (end > from && start < to)
          bars.push({
            rank: lane.rank,
            part: free ? "open" : part,
            start: Math.max(from, start),
            end: Math.min(to, end),
          });
    }
  }
  return bars;
}

/**
 * The bars of a mixing that does not change any more.
 * @type {WeakMap<object, {key: string, bars: Bar[]}>}
 */
const kept = new WeakMap();

/** @param {Look} look @returns {Bar[]} */
function barsNow({ table, current, known }) {
  if (!current) return [];
  const key = `${current.key} ${current.start} ${current.end} ${current.complete ? "" : table.rows}`;
  const had = kept.get(table);
  if (had?.key === key) return had.bars;
  const bars = mixingBars(table, current.start, current.end, known.run);
  kept.set(table, { key, bars });
  return bars;
}

/** @param {CanvasRenderingContext2D} g @param {Look} look */
export function drawScore(g, look) {
  const pen = new Pen(g, look);
  const { ink, current, ranks, width, ratio, known } = look;
  const lane = scoreLane(ranks);
  const split = lane > 8 ? Math.round(lane * 0.5) : lane / 2;
  drawNames(g, look);
  if (!current) return;
  const span = current.end - current.start;
  const t = Math.min(span, Math.max(0, look.t - current.start));
  const head = xOf(t, span, width);
  const gap = lane > 8 ? 1 : 0;
  const fill = {
    compute: ink.forward,
    mix: ink.reduce,
    move: ink.comm,
    wait: hatched(ink.wait, ratio),
    open: hatched(ink.wait, ratio),
  };
  for (const bar of barsNow(look)) {
    const a = xOf(bar.start - current.start, span, width);
    const b = Math.max(a + 1, xOf(bar.end - current.start, span, width));
    const top = SCORE_TOP + bar.rank * lane;
    const above = bar.part === "compute" || bar.part === "mix";
    const half = Math.max(0.5, above ? split - gap : lane - split - gap);
    const open = bar.part === "open";
    const tall = open ? Math.max(1, half * OPEN_THIN) : half;
    const y = above ? top + gap : top + split + half - tall;
    const faint = open ? OPEN_PALE : 1;
    if (open && lane < TICKED) continue;
    g.fillStyle = fill[bar.part];
    g.globalAlpha = faint;
    if (a < head) g.fillRect(a, y, Math.min(b, Math.max(head, a + 1)) - a, tall);
    if (b <= head) continue;
    g.globalAlpha = 0.35 * faint;
    g.fillRect(Math.max(a, head), y, b - Math.max(a, head), tall);
    g.globalAlpha = 1;
  }
  g.globalAlpha = 1;
  if (lane >= TICKED)
    for (const { rank, done } of indexOf(known).replicas.values()) {
      g.fillStyle = ink.ink;
      for (
        let i = countUntil(done, current.start, (one) => one.t);
        i < done.length && done[i].t <= current.end;
        i++
      )
        g.fillRect(
          xOf(done[i].t - current.start, span, width) - 0.5,
          SCORE_TOP + rank * lane,
          1,
          lane,
        );
    }
  drawAxis(g, look, /** @type {any} */ (current), t, null);
  drawScoreKey(pen, look, fill);
}

/**
 * @param {Pen} pen
 * @param {Look} look
 * @param {Record<string, string | CanvasPattern>} fill
 */
function drawScoreKey(pen, look, fill) {
  const { g, ink, font } = pen;
  const { ranks, width } = look;
  let x = xOf(0, 1, width);
  const y = scoreHeight(ranks) - 8;
  for (const [part, words] of [
    ["compute", "above: computes"],
    ["mix", "mixes"],
    ["move", "below: sends, receives"],
    ["wait", "waits"],
    ...(scoreLane(ranks) >= TICKED && barsNow(look).some((bar) => bar.part === "open")
      ? [["open", "thin: a receive is open, costs nothing"]]
      : []),
    ...(scoreLane(ranks) >= TICKED ? [["done", "an iteration done"]] : []),
    ["later", "pale: still to come"],
  ]) {
    g.font = `400 11px ${font}`;
    const wide = part === "done" ? 4 : 14;
    const room = wide + 6 + g.measureText(words).width;
    if (x + room > width) return;
    g.globalAlpha = part === "later" ? 0.35 : part === "open" ? OPEN_PALE : 1;
    g.fillStyle = part === "later" ? ink.forward : part === "done" ? ink.ink : fill[part];
    if (part === "done") g.fillRect(x + 1, y - 5, 1, 10);
    else if (part === "open") g.fillRect(x, y + 0.5, wide, 3);
    else g.fillRect(x, y - 3.5, wide, 7);
    g.globalAlpha = 1;
    g.textAlign = "left";
    g.textBaseline = "middle";
    g.fillStyle = ink["ink-2"];
    g.fillText(words, x + wide + 5, y + 0.5);
    x += room + 14;
  }
}

// @ts-check
/**
 * The score: one call in time, above the line of time. A lane a rank, its upper half sending, its lower
 * half receiving and waiting (hatched, open); hairlines where the steps would end if every hop were
 * as fast as the fastest, and under each rank, thin, when it would send then: the plan is the
 * shadow of what was measured; the future pale.
 *
 * @typedef {import("../engine/model.js").Call} Call
 * @typedef {import("../engine/page_state.js").Look} Look
 */
import { hatched } from "./hatch.js";
import { isOver, nowOf } from "../engine/player.js";
import { readingOf } from "../engine/rates.js";
import { duration, ticks } from "../engine/format.js";

const LEFT = 58;
const RIGHT = 8;
const TOP = 12;
const AXIS = 22;
const KEY = 17;
const LEAST_APART = 5;
// px; lanes below have no shadow; px; hairlines nearer to each other are left out
const SHADOWED = 6;
const ALL_SHOWN = 64; // of more ranks, those that take part in the call

/**
 * A look at the lanes of those who take part in a call alone, where there are many others.
 * @param {Look} look
 * @returns {Look}
 */
export function atParties(look) {
  const { call, ranks } = look;
  if (ranks <= ALL_SHOWN || !call?.rows.length) return look;
  let [first, last] = [ranks, 0];
  for (const { rank } of call.rows) [first, last] = [Math.min(first, rank), Math.max(last, rank)];
  return { ...look, first, ranks: last - first + 1 };
}

/** Height of a rank's lane. @param {number} ranks */
export const scoreLane = (ranks) =>
  ranks > 64 ? 160 / ranks : ranks > 32 ? 3 : ranks > 12 ? 5 : ranks > 8 ? 6 : ranks > 4 ? 11 : 16;
/** Height of the score in CSS pixels; it depends on the ranks only. @param {number} ranks */
export const scoreHeight = (ranks) => Math.ceil(TOP + ranks * scoreLane(ranks) + AXIS + KEY);
/**
 * Where a moment of the call lies.
 * @param {number} t ns from its start
 * @param {number} span ns
 * @param {number} width px
 */
export const xOf = (t, span, width) => LEFT + (span > 0 ? t / span : 0) * (width - LEFT - RIGHT);
/**
 * The moment of the call at a place, from 0 to its end.
 * @param {number} x px
 * @param {number} span ns
 * @param {number} width px
 */
export const timeAt = (x, span, width) =>
  Math.min(1, Math.max(0, (x - LEFT) / (width - LEFT - RIGHT))) * span;

/**
 * Waits of a call that go on: they have no row before they end.
 * @param {Look} look
 * @param {Call} call
 * @returns {{rank: number, start: number}[]}  start: ns from the call's
 */
export const openWaits = ({ known }, call) =>
  call.complete || isOver(known) || known.control?.held
    ? []
    : known.lanesNow
        .filter((l) => l.kind === "wait" && l.op === call.op && l.group === call.group)
        .map((l) => ({ rank: l.rank, start: Math.max(0, l.since - call.start) }));

/**
 * How long the axis of a call is, ns: while ranks wait in it, it goes on to now, and grows in steps.
 * @param {Look} look
 * @param {Call} call
 */
export function spanOf(look, call) {
  const lasts = call.end - call.start;
  const now = openWaits(look, call).length ? nowOf(look.known, look.at) - call.start : 0;
  return now > 1.1 * lasts ? 2 ** (Math.ceil(2 * Math.log2(now)) / 2) : lasts;
}

/**
 * The bars of a call in CSS pixels; what is too short to see is one pixel wide, never left out.
 * @param {Call} call
 * @param {number} width
 * @param {number} ranks  lanes of the score
 * @param {number} [span] ns of the axis
 * @param {number} [first]  the rank of the first lane
 */
export function barsOf(call, width, ranks, span = call.end - call.start, first = 0) {
  const lane = scoreLane(ranks);
  const gap = lane > 8 ? 1 : lane > 4 ? 0.5 : 0;
  const half = Math.max(0.5, lane / 2 - gap);
  return call.rows
    .filter((r) => r.kind === "send" || r.kind === "recv" || r.kind === "wait")
    .map((r) => {
      const x = xOf(r.start, span, width);
      const y = TOP + (r.rank - first) * lane + (r.kind === "send" ? gap / 2 : lane / 2);
      return {
        kind: r.kind,
        x,
        y,
        w: Math.max(1, xOf(r.end, span, width) - x - (half > 3 ? 0.5 : 0)),
        h: half,
      };
    });
}

/**
 * Where the ideal steps end, in CSS pixels; none where theory is unknown or the call was faster.
 * @param {{edges: number[], ideal: number, call: Call}} reading
 * @param {number} width
 * @param {number} [span] of the axis
 */
export function idealLines({ edges, ideal, call }, width, span = call.end - call.start) {
  if (!(ideal > 0) || ideal > (call.end - call.start) * (1 + 1e-9)) return [];
  let before = -Infinity;
  return edges.flatMap((end, k) => {
    const x = xOf(end, span, width);
    const last = k === edges.length - 1;
    if (!last && (x - before < LEAST_APART || xOf(ideal, span, width) - x < LEAST_APART)) return [];
    before = x;
    return [{ x, last }];
  });
}

/**
 * When each rank would send if the steps were ideal: thin bars under its lane, in CSS pixels.
 * @param {{edges: number[], ideal: number, call: Call}} reading
 * @param {number} width
 * @param {number} ranks
 * @param {number} [span]
 */
export function shadowsOf(
  { edges, ideal, call },
  width,
  ranks,
  span = call.end - call.start,
  first = 0,
) {
  const lane = scoreLane(ranks);
  const sends = new Set(
    call.rows
      .filter((r) => r.kind === "send" && r.step >= 0 && r.step < edges.length)
      .map((r) => `${r.rank} ${r.step}`),
  );
  if (!(ideal > 0) || ideal > (call.end - call.start) * (1 + 1e-9) || lane < SHADOWED) return [];
  return [...sends].map((key) => {
    const [rank, step] = key.split(" ").map(Number);
    const x = xOf(edges[step - 1] ?? 0, span, width);
    return {
      x,
      y: TOP + (rank - first + 1) * lane - 2.5,
      w: Math.max(1, xOf(edges[step], span, width) - x - 1),
      h: 1.5,
    };
  });
}

/**
 * What does not move of a call's score, and what it was drawn for: two stages on a page have a call
 * each.
 */
const stills = /** @type {WeakMap<Call, {key: string, canvas: HTMLCanvasElement}>} */ (
  new WeakMap()
);

/**
 * All bars, drawn once a call, then shown twice: the past in full, the future pale.
 * @param {Look} look
 * @param {Call} call
 * @param {number} [span] ns of the axis
 */
function barsDrawn({ ink, width, ratio, ranks, first = 0 }, call, span = call.end - call.start) {
  const key = [width, ratio, ranks, first, span, ink.comm, ink.wait].join();
  const still = stills.get(call);
  if (still?.key === key) return still.canvas;
  const canvas = still?.canvas ?? document.createElement("canvas");
  stills.set(call, { key, canvas });
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(scoreHeight(ranks) * ratio);
  const g = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const waiting = hatched(ink.wait, ratio);
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  for (const bar of barsOf(call, width, ranks, span, first)) {
    g.fillStyle = bar.kind === "wait" ? waiting : ink.comm;
    g.fillRect(bar.x, bar.y, bar.w, bar.h);
  }
  return canvas;
}

/**
 * The ranks' names and the ground line, there before anything happens.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 */
export function drawNames(g, { ink, font, ranks, width, choice, first = 0 }) {
  const lane = scoreLane(ranks);
  const every = Math.ceil(13 / lane); // names never lie on one another
  g.font = `11px ${font}`;
  g.textBaseline = "middle";
  g.textAlign = "right";
  for (let r = 0; r < ranks; r += every) {
    g.fillStyle = choice?.rank === first + r ? ink.focus : ink["ink-3"];
    g.fillText(`rank ${first + r}`, LEFT - 8, TOP + (r + 0.5) * lane);
  }
  g.fillStyle = ink.rule;
  g.fillRect(LEFT, TOP + ranks * lane, width - LEFT - RIGHT, 1);
}

/**
 * The key, in the picture: marks with their words, as many as there is room for.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {boolean} ideal
 */
export function drawScoreKey(g, { ink, font, width, ranks, ratio }, ideal) {
  const y = scoreHeight(ranks) - KEY / 2;
  const items = /** @type {[string, string][]} */ ([
    ["move", "above: sends · below: receives"],
    ["wait", "waits"],
    ...(ideal
      ? [
          [
            "ideal",
            width > 700
              ? "ideal steps, and when a rank would send in them: every hop as fast as the " +
                "fastest"
              : "ideal: every hop as the fastest",
          ],
        ]
      : []),
    ["later", "pale: still to come"],
  ]);
  let x = LEFT;
  g.font = `11px ${font}`;
  g.textAlign = "left";
  g.textBaseline = "middle";
  for (const [mark, words] of items) {
    const wide = mark === "ideal" ? 4 : 16;
    const room = wide + 6 + g.measureText(words).width;
    if (x + room > width) break;
    g.globalAlpha = mark === "later" ? 0.35 : 1;
    g.fillStyle =
      mark === "wait" ? hatched(ink.wait, ratio) : mark === "ideal" ? ink.ideal : ink.comm;
    if (mark === "ideal") g.fillRect(x + 1, y - 6, 0.75, 12);
    else g.fillRect(x, y - 3.5, wide, 7);
    g.globalAlpha = 1;
    g.fillStyle = ink["ink-2"];
    g.fillText(words, x + wide + 5, y + 0.5);
    x += room + 14;
  }
}

/**
 * The axis, and the playhead with its time.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {Call} call
 * @param {number} t
 * @param {{x: number, time: number} | null} ideal
 * @param {number} [above]  px above the lanes through which the playhead goes too
 * @param {number} [span]  ns of the axis
 */
export function drawAxis(
  g,
  { ink, font, width, ranks },
  call,
  t,
  ideal,
  above = 0,
  span = call.end - call.start,
) {
  const bottom = TOP + ranks * scoreLane(ranks);
  const x = xOf(t, span, width);
  const taken = /** @type {[number, number][]} */ ([]);
  const write = (
    /** @type {string} */ text,
    /** @type {number} */ at,
    /** @type {boolean} */ bold,
  ) => {
    g.font = `${bold ? 700 : 400} 11px ${font}`;
    const w = g.measureText(text).width;
    const left = Math.min(width - w, Math.max(LEFT, at - w / 2));
    if (taken.some(([a, b]) => left < b + 8 && a - 8 < left + w)) return;
    taken.push([left, left + w]);
    g.textAlign = "left";
    g.fillStyle = bold ? ink.ink : ink["ink-3"];
    g.fillText(text, left, bottom + 13);
  };
  g.textBaseline = "middle";
  write(duration(t), x, true);
  if (ideal) write(`ideal ${duration(ideal.time)}`, ideal.x, false);
  g.strokeStyle = ink.rule;
  g.lineWidth = 1;
  for (const tick of ticks(span, width > 700 ? 8 : 4)) {
    const at = Math.round(xOf(tick.t, span, width)) + 0.5;
    g.beginPath();
    g.moveTo(at, bottom);
    g.lineTo(at, bottom + 4);
    g.stroke();
    write(tick.label, at, false);
  }
  g.fillStyle = ink.focus;
  g.fillRect(x - 1, 6 - above, 2, bottom - 2 + above);
  g.beginPath();
  g.moveTo(x - 5, 2 - above);
  g.lineTo(x + 5, 2 - above);
  g.lineTo(x, 8 - above);
  g.fill();
}

/**
 * The whole score at the playhead.
 * @param {CanvasRenderingContext2D} g  cleared, scaled to CSS pixels, look.width ×
 *   scoreHeight(look.ranks)
 * @param {Look} look
 */
export function drawScore(g, look) {
  const { call, known, width } = look;
  drawNames(g, look);
  if (!call || width <= LEFT + RIGHT) return;
  const span = spanOf(look, call);
  const reading = readingOf(call, known);
  const lines = drawCallBars(g, look, reading, span);
  const last = lines[lines.length - 1];
  drawAxis(
    g,
    look,
    call,
    Math.min(span, Math.max(0, look.t - call.start)),
    last ? { x: last.x, time: reading.ideal } : null,
    0,
    span,
  );
  drawOpenWaits(g, look, call, span);
  drawScoreKey(g, look, lines.length > 0);
}

/**
 * Waits that go on, up to now: in full, with nothing at their end.
 * @param {CanvasRenderingContext2D} g @param {Look} look @param {Call} call @param {number} span
 */
function drawOpenWaits(g, look, call, span) {
  const { ink, ratio, known, at, width, ranks, first = 0 } = look;
  const lane = scoreLane(ranks);
  const end = xOf(Math.min(span, nowOf(known, at) - call.start), span, width);
  g.fillStyle = hatched(ink.wait, ratio);
  for (const { rank, start } of openWaits(look, call)) {
    const x = xOf(Math.min(span, start), span, width);
    g.fillRect(
      x,
      TOP + (rank - first) * lane + lane / 2,
      Math.max(1, end - x),
      Math.max(0.5, lane / 2 - 1),
    );
  }
}

/**
 * All that a call's ranks did, on an axis of this many ns, the future pale; and what was ideal.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {import("../engine/rates.js").Reading} reading
 * @param {number} span
 * @returns {{x: number, last: boolean}[]} the ideal steps' ends
 */
export function drawCallBars(g, look, reading, span) {
  const { ink, width, ranks, first } = look;
  const { call } = reading;
  const t = Math.min(span, Math.max(0, look.t - call.start));
  const x = xOf(t, span, width);
  const bars = barsDrawn(look, call, span);
  const lines = idealLines(reading, width, span);
  const bottom = ranks * scoreLane(ranks);
  const tall = scoreHeight(ranks);
  g.globalAlpha = 0.35; // the future is pale
  g.drawImage(bars, 0, 0, width, tall);
  g.globalAlpha = 1;
  g.save();
  g.beginPath();
  g.rect(0, 0, x, tall);
  g.clip();
  g.clearRect(LEFT, TOP, x - LEFT, bottom);
  g.drawImage(bars, 0, 0, width, tall);
  g.restore();
  g.fillStyle = ink.ideal;
  g.globalAlpha = 0.55;
  if (lines.length)
    for (const shadow of shadowsOf(reading, width, ranks, span, first))
      g.fillRect(shadow.x, shadow.y, shadow.w, shadow.h);
  for (const { x: at, last } of lines) {
    g.globalAlpha = last ? 1 : 0.6;
    g.fillRect(at - 0.4, TOP - 3, last ? 1.25 : 0.75, bottom + 3);
  }
  g.globalAlpha = 1;
  return lines;
}

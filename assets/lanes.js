// @ts-check
/**
 * One call in time: a lane a rank, its upper half sending, its lower half waiting (hatched, open) and receiving.
 * @typedef {import("./model.js").Call} Call
 */
import { duration, ticks } from "./words.js";

const LEFT = 58, RIGHT = 8, TOP = 12, AXIS = 22;

/** @param {number} ranks */
const laneHeight = (ranks) => (ranks > 32 ? 4 : ranks > 8 ? 10 : ranks > 4 ? 14 : 18);
/** Height of the strip in CSS pixels. @param {number} ranks */
export const lanesHeight = (ranks) => TOP + ranks * laneHeight(ranks) + AXIS;
/** Where a moment of the call lies, and back again. @param {number} t @param {number} span @param {number} width */
export const xOf = (t, span, width) => LEFT + (span > 0 ? t / span : 0) * (width - LEFT - RIGHT);
/** @param {number} x @param {number} span @param {number} width */
export const timeAt = (x, span, width) => Math.min(1, Math.max(0, (x - LEFT) / (width - LEFT - RIGHT))) * span;

/**
 * The bars of a call in CSS pixels; what is too short to see is one pixel wide, never left out.
 * @param {Call} call @param {number} width
 */
export function barsOf(call, width) {
  const span = call.end - call.start, lane = laneHeight(call.ranks), half = lane / 2 - 1;
  return call.rows.filter((r) => r.kind === "send" || r.kind === "recv" || r.kind === "wait").map((r) => {
    const x = xOf(r.start, span, width), y = TOP + r.rank * lane + (r.kind === "send" ? 0.5 : lane / 2);
    return { kind: r.kind, x, y, w: Math.max(1, xOf(r.end, span, width) - x - 0.5), h: half };
  });
}

/** Diagonal lines: waiting is never a solid. @param {CanvasRenderingContext2D} g @param {string} color @param {number} ratio */
function hatch(g, color, ratio) {
  const tile = document.createElement("canvas"), size = 4;
  tile.width = tile.height = size * ratio;
  const t = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
  t.scale(ratio, ratio);
  t.strokeStyle = color;
  t.lineWidth = 1.1;
  for (const shift of [-size, 0, size]) {
    t.beginPath();
    t.moveTo(shift - 1, size + 1);
    t.lineTo(shift + size + 1, -1);
    t.stroke();
  }
  const pattern = /** @type {CanvasPattern} */ (g.createPattern(tile, "repeat"));
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

/**
 * Everything of the strip that does not move. Drawn once a call, then shown twice: the past in full, the future pale.
 * @param {CanvasRenderingContext2D} g  scaled to CSS pixels
 * @param {Record<string, string>} ink @param {Call} call @param {number} width @param {number} ratio
 */
export function drawBars(g, ink, call, width, ratio) {
  const waiting = hatch(g, ink.wait, ratio);
  for (const bar of barsOf(call, width)) {
    g.fillStyle = bar.kind === "wait" ? waiting : ink.comm;
    g.fillRect(bar.x, bar.y, bar.w, bar.h);
  }
}

/** The ranks' names and the ground line, there before anything happens. @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {string} font @param {number} ranks @param {number} width */
export function drawLabels(g, ink, font, ranks, width) {
  const lane = laneHeight(ranks), every = ranks > 8 ? Math.ceil(ranks / 4) : 1;
  g.font = `11px ${font}`;
  g.textBaseline = "middle";
  g.textAlign = "right";
  g.fillStyle = ink["ink-3"];
  for (let r = 0; r < ranks; r += every) g.fillText(`rank ${r}`, LEFT - 8, TOP + (r + 0.5) * lane);
  g.fillStyle = ink.rule;
  g.fillRect(LEFT, TOP + ranks * lane, width - LEFT - RIGHT, 1);
}

/** The axis, and the playhead with its time. @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {string} font @param {Call} call @param {number} width @param {number} t */
export function drawAxis(g, ink, font, call, width, t) {
  const span = call.end - call.start, bottom = TOP + call.ranks * laneHeight(call.ranks), x = xOf(t, span, width);
  g.textBaseline = "alphabetic";
  g.lineWidth = 1;
  g.strokeStyle = ink.rule;
  const now = duration(t), room = 34;
  for (const tick of ticks(span, width > 700 ? 8 : 4)) {
    const at = Math.round(xOf(tick.t, span, width)) + 0.5;
    g.beginPath();
    g.moveTo(at, bottom);
    g.lineTo(at, bottom + 4);
    g.stroke();
    if (Math.abs(at - x) < room * 1.6) continue; // the playhead's own time stands there
    g.font = `11px ${font}`;
    g.fillStyle = ink["ink-3"];
    g.textAlign = at > width - room ? "right" : at < LEFT + 4 ? "left" : "center";
    g.fillText(tick.label, g.textAlign === "right" ? width - RIGHT : at, bottom + 16);
  }
  g.fillStyle = g.strokeStyle = ink.focus;
  g.lineWidth = 2;
  g.beginPath();
  g.moveTo(x, 6);
  g.lineTo(x, bottom + 4);
  g.stroke();
  g.beginPath();
  g.moveTo(x - 5, 2);
  g.lineTo(x + 5, 2);
  g.lineTo(x, 8);
  g.fill();
  g.font = `700 11px ${font}`;
  g.fillStyle = ink.ink;
  g.textAlign = x > width - room ? "right" : x < LEFT + room ? "left" : "center";
  g.fillText(now, g.textAlign === "center" ? x : g.textAlign === "left" ? Math.max(LEFT, x - 4) : width - RIGHT, bottom + 16);
}

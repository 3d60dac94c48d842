// @ts-check
/**
 * The pipeline's axis and playhead, what is chosen in the picture, and what happened to ranks.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./selection.js").Pass} Pass
 * @typedef {import("./place.js").PipelinePlace} PipelinePlace
 * @typedef {import("./index.js").Task} Task
 */
import { Pen } from "../../drawing/pen.js";
import { cross } from "../../drawing/glyph.js";
import { barTop, momentX } from "./place.js";
import { inputTo, usersOf } from "./selection.js";
import { LabelRow } from "../../drawing/label_row.js";
import { duration, ticks } from "../../engine/format.js";
import { boxOf } from "./draw.js";

/**
 * The axis above: how long it took, when the plan ends, round numbers where there is room.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {Pass} pass
 * @param {PipelinePlace} place
 * @param {number} scale
 */
export function drawAxis(g, { ink, font }, pass, place, scale) {
  const pen = new Pen(g, { ink, font });
  const labels = new LabelRow(place.left, place.right + 4);
  const y = place.top - 11;
  const X = (/** @type {number} */ t) => momentX(place, t, scale);
  let before = Infinity; // where the first label begins
  const put = (
    /** @type {string} */ text,
    /** @type {number} */ x,
    /** @type {("middle" | "right" | "left")[]} */ ways,
    /** @type {string} */ colour,
    /** @type {boolean} */ bold,
  ) => {
    g.font = `${bold ? 700 : 400} 11px ${font}`;
    const at = labels.place(x, g.measureText(text).width, ways);
    if (at !== null) pen.write(text, at, y, colour, "left", bold);
    if (at !== null && bold) before = at;
    return at !== null;
  };
  const end = X(pass.to - pass.from);
  const span = duration(pass.to - pass.from);
  if (pass.complete && pass.facts.flush) {
    put(`measured ${span}`, Math.min(end, place.right) + 5, ["left"], ink.ink, true);
    pen.box(end - 0.75, place.top - 4, 1.5, place.bottom - place.top, "ink");
  }
  if (pass.plan) {
    const x = X(pass.plan.span);
    const words = `plan ends ${duration(pass.plan.span)}`;
    if (!put(words, x, ["middle"], ink.ink, false))
      put(words, Math.min(x, before - 4), ["left", "right"], ink.ink, false);
    g.strokeStyle = ink.ideal;
    g.lineWidth = 1;
    g.setLineDash([2, 2]);
    g.beginPath();
    g.moveTo(x, place.top - 4);
    g.lineTo(x, place.bottom - 4);
    g.stroke();
    g.setLineDash([]);
  }
  for (const { t, label } of ticks(scale, place.width > 700 ? 10 : 6))
    put(t ? label : "0 ms", X(t), t ? ["middle"] : ["right", "middle"], ink["ink-3"], false);
}

/**
 * The playhead.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {Pass} pass
 * @param {PipelinePlace} place
 * @param {number} scale
 */
export function drawHead(g, { ink, t }, pass, place, scale) {
  const pen = new Pen(g, { ink });
  const x = Math.min(place.right, Math.max(place.left, momentX(place, t - pass.from, scale)));
  pen.box(x - 1, place.top - 3, 2, place.bottom - place.top, "focus");
  g.beginPath();
  g.moveTo(x - 5, place.top - 5);
  g.lineTo(x + 5, place.top - 5);
  g.lineTo(x, place.top + 1);
  g.fill();
}

/**
 * What is chosen: a frame around it, arrows from what it needed and to what needed it.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {Pass} pass
 * @param {PipelinePlace} place
 * @param {number} scale
 * @param {Task} task
 */
export function drawChosen(g, { ink }, pass, place, scale, task) {
  const box = boxOf(pass, place, scale, task);
  const producer = inputTo(pass, task)?.producer;
  const links = /** @type {[Task, Task][]} */ ([
    ...(producer ? [[producer, task]] : []),
    ...usersOf(pass, task).map((next) => [task, next]),
  ]);
  g.strokeStyle = g.fillStyle = ink.focus;
  g.setLineDash([]);
  g.lineWidth = 1.75;
  for (const [from, to] of links) {
    const a = boxOf(pass, place, scale, from);
    const b = boxOf(pass, place, scale, to);
    const down = b.y > a.y ? 1 : -1;
    if (a.y === b.y) continue;
    const xa = a.x + a.w;
    const xb = b.x + 2;
    const ya = down > 0 ? a.y + a.h : a.y;
    const yb = down > 0 ? b.y - 6 : b.y + b.h + 6;
    g.beginPath();
    g.moveTo(xa, ya);
    g.bezierCurveTo(xa, (ya + yb) / 2, xb, (ya + yb) / 2, xb, yb);
    g.stroke();
    g.beginPath();
    g.moveTo(xb - 4, yb);
    g.lineTo(xb + 4, yb);
    g.lineTo(xb, yb + 6 * down);
    g.fill();
  }
  g.lineWidth = 2.25;
  g.beginPath();
  g.roundRect(box.x - 1.5, box.y - 1.5, box.w + 3, box.h + 3, 3);
  g.stroke();
}

/**
 * Who stood still, amber and dashed: made by us; who is gone, a red cross at its last action.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {Pass} pass
 * @param {PipelinePlace} place
 * @param {number} scale
 * @param {number[]} gone  ranks
 */
export function drawBefallen(g, { ink }, pass, place, scale, gone) {
  const pen = new Pen(g, { ink });
  const first = pass.replica * pass.facts.ranks;
  for (const { rank, from, to } of pass.passes.index.frozen) {
    const row = rank - first;
    const a = Math.max(place.left, momentX(place, from - pass.from, scale));
    const b = Math.min(place.right, momentX(place, Math.min(to, pass.to) - pass.from, scale));
    if (row < 0 || row >= place.rows || b <= a) continue;
    pen.outline(a, barTop(place, row) - 2, b - a, place.bar + 4, "hold", 1.5, [4, 2]);
  }
  for (const rank of gone) {
    const row = rank - first;
    const last = pass.rows[row]?.[pass.rows[row].length - 1];
    if (row < 0 || row >= place.rows) continue;
    g.strokeStyle = ink.fault;
    g.lineWidth = 2.5;
    cross(
      g,
      Math.min(
        place.right - 6,
        (last ? momentX(place, last.end - pass.from, scale) : place.left) + 9,
      ),
      barTop(place, row) + place.bar / 2,
      Math.min(6, place.bar / 3),
    );
  }
}

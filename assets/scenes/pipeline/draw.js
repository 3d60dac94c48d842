// @ts-check
/**
 * One iteration of a pipeline, drawn: the plan as a shadow below the bars, idle time in its
 * textures, what each rank holds as a ribbon. What does not move is drawn once (drawBars,
 * drawPlan); names, axis, playhead and selection lie over it.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./selection.js").Pass} Pass
 * @typedef {import("./place.js").PipelinePlace} PipelinePlace
 * @typedef {import("./index.js").Task} Task
 */
import { Pen } from "../../drawing/pen.js";
import { WHYS } from "./idle.js";
import { ownTimes } from "./plan.js";
import { barTop, momentX, planTop, ribbonBase } from "./place.js";
import { bytesOf, heldOf, joinsHere, slowStage } from "./selection.js";
import { drawAction, drawIdle } from "./texture.js";
import { counted, duration, ticks } from "../../engine/format.js";

/**
 * Which lane of its rank's row a stage has.
 * @param {Pass} pass
 * @param {number} place
 * @param {number} stage
 */
export const stageLane = (pass, place, stage) =>
  Math.max(0, pass.lanes[place]?.indexOf(stage) ?? 0);

/**
 * Where a task's bar is.
 * @param {Pass} pass
 * @param {PipelinePlace} place
 * @param {number} scale
 * @param {Task} task
 */
export function boxOf(pass, place, scale, task) {
  const row = task.rank - pass.replica * pass.facts.ranks;
  const x = Math.max(place.left, momentX(place, task.start - pass.from, scale));
  const end = Math.min(
    place.right,
    momentX(place, (pass.facts.flush ? task.end : Math.min(task.end, pass.to)) - pass.from, scale),
  ); // without a flush the next iteration goes on
  return {
    row,
    x,
    y: barTop(place, row, stageLane(pass, row, task.stage)),
    w: Math.max(1, end - x - (end - x > 3 ? 1 : 0)),
    h: Math.max(1, place.lane - (place.lanes > 1 && place.lane > 4 ? 1 : 0)),
  };
}

/**
 * Hairlines of time and the plan's bars: the same hues, pale.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {Pass} pass
 * @param {PipelinePlace} place
 * @param {number} scale
 */
export function drawPlan(g, { ink, ratio, font }, pass, place, scale) {
  const pen = new Pen(g, { ink, font, ratio });
  g.fillStyle = ink.rule;
  for (const { t } of ticks(scale, place.width > 700 ? 10 : 6))
    g.fillRect(Math.round(momentX(place, t, scale)), place.top - 4, 1, place.bottom - place.top);
  if (!pass.plan || !place.plan) return;
  const each = place.plan / place.lanes;
  for (const task of pass.plan.tasks) {
    const x = momentX(place, task.start, scale);
    const w = Math.max(1, momentX(place, task.end, scale) - x - 1);
    const y = planTop(place, task.place) + stageLane(pass, task.place, task.stage) * each;
    g.globalAlpha = 0.4;
    // too low for a number
    drawAction(pen, task, x, y, w, Math.max(1, each - (place.lanes > 1 ? 1 : 0)));
  }
  g.globalAlpha = 1;
}

/**
 * Idle time, actions, all-reduces, updates, what is held.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {Pass} pass
 * @param {PipelinePlace} place
 * @param {number} scale
 */
export function drawBars(g, { ink, ratio, font }, pass, place, scale) {
  const pen = new Pen(g, { ink, font, ratio });
  const X = (/** @type {number} */ t) =>
    Math.min(place.right, Math.max(place.left, momentX(place, t - pass.from, scale)));
  for (const { place: row, why, from, to } of pass.idle)
    if (X(to) - X(from) > 0.2)
      drawIdle(pen, why, X(from), barTop(place, row), X(to) - X(from), place.bar);
  for (const task of pass.rows.flat()) {
    const { x, y, w, h } = boxOf(pass, place, scale, task);
    drawAction(pen, task, x, y, w, h);
  }
  g.fillStyle = ink.comm;
  for (const { rank, start, end } of joinsHere(pass))
    if (X(start) < place.right)
      g.fillRect(
        X(start),
        barTop(place, rank - pass.replica * pass.facts.ranks) + place.bar / 4,
        Math.max(1, X(end) - X(start)),
        place.bar / 2,
      );
  g.fillStyle = ink.optimizer;
  for (const { rank, start, end } of pass.updates) {
    const row = rank - pass.replica * pass.facts.ranks;
    const x = X(start);
    const w = Math.max(1, X(end) - x);
    if (x < place.right) g.fillRect(x, barTop(place, row) + place.bar / 4, w, place.bar / 2);
  }
  if (!pass.plan && place.plan >= 6) drawVersions(pen, pass, place, scale);
  if (place.ribbon) {
    const held = pass.rows.map((_, row) => heldOf(pass, row));
    // one unit for all ranks
    const top = Math.max(1, ...pass.most, ...held.flat().map(([, n]) => n));
    held.forEach((steps, row) =>
      drawRibbon(pen, pass, place, scale, row, steps, place.ribbon / top),
    );
  }
}

/**
 * Which version of the parameters each action used, where there is room; there is no plan in its
 * place.
 * @param {Pen} pen
 * @param {Pass} pass
 * @param {PipelinePlace} place
 * @param {number} scale
 */
function drawVersions(pen, pass, place, scale) {
  const { g, font } = pen;
  for (const task of pass.rows.flat()) {
    const { row, x, w } = boxOf(pass, place, scale, task);
    const text = `v${task.version}`;
    g.font = `400 11px ${font}`;
    if (task.version < 0 || place.lanes > 1 || g.measureText(text).width > w + 1) continue;
    pen.write(text, x + w / 2, planTop(place, row) + 5.5, "ink-3", "center");
  }
}

/**
 * @param {Pen} pen
 * @param {Pass} pass
 * @param {PipelinePlace} place
 * @param {number} scale
 * @param {number} row
 * @param {[number, number][]} held
 * @param {number} one  px a microbatch
 */
function drawRibbon(pen, pass, place, scale, row, held, one) {
  const { g, ink } = pen;
  const base = ribbonBase(place, row);
  const last = pass.complete
    ? pass.to
    : Math.max(...pass.rows[row].map((task) => task.end), pass.from);
  const X = (/** @type {number} */ t) =>
    Math.min(place.right, momentX(place, t - pass.from, scale));
  const [, first] = held[0];
  g.beginPath();
  g.moveTo(X(pass.from), base);
  g.lineTo(X(pass.from), base - first * one);
  held.forEach(([t, n], i) => {
    g.lineTo(X(t), base - (held[i - 1]?.[1] ?? 0) * one);
    g.lineTo(X(t), base - n * one);
  });
  g.lineTo(X(last), base - held[held.length - 1][1] * one);
  g.lineTo(X(last), base);
  g.closePath();
  g.fillStyle = ink.track;
  g.fill();
  g.strokeStyle = ink.edge;
  g.lineWidth = 0.75;
  g.setLineDash([]);
  g.stroke();
  if (!pass.most[row]) return;
  g.strokeStyle = ink.ink;
  g.setLineDash([2, 3]);
  g.beginPath();
  g.moveTo(place.left, base - pass.most[row] * one);
  g.lineTo(place.right, base - pass.most[row] * one);
  g.stroke();
  g.setLineDash([]);
}

/** Milliseconds as short as they can be. @param {number} ns */
export const shortMs = (ns) =>
  ns >= 9.95e6
    ? (ns / 1e6).toFixed(0)
    : ns >= 0.995e6
      ? (ns / 1e6).toFixed(1)
      : (ns / 1e6).toFixed(2);

/** "F 10, B 20 ms" of a rank's stages. @param {Pass} pass @param {number} row */
export function timesWords(pass, row) {
  const { F, B, I, W } = ownTimes(pass.rows[row]);
  if (I) return `F ${shortMs(F)} I ${shortMs(I)} W ${shortMs(W)} ms`;
  return `F ${shortMs(F)}${B ? `, B ${shortMs(B)}` : ""} ms`; // there may be no backward yet
}

/**
 * Without its unit where there is no room for it.
 * @param {Pen} pen
 * @param {string} words
 * @param {boolean} bold
 */
function fittingTimes(pen, words, bold) {
  const { g, font } = pen;
  g.font = `${bold ? 700 : 400} 11px ${font}`;
  return g.measureText(words).width > 88 ? words.replace(" ms", "") : words;
}

/**
 * What a row is called: its stage, or a rank with several.
 * @param {Pass["lanes"]} lanes
 * @param {number} row
 */
export const rowName = (lanes, row) =>
  lanes[row].length === 1 ? `stage ${lanes[row][0]}` : `rank ${row}`;

/**
 * Names, and what there is to say of each row at its left.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {Pass} pass
 * @param {PipelinePlace} place
 */
export function drawRowNames(g, { ink, font, choice }, pass, place) {
  const pen = new Pen(g, { ink, font });
  const slow = pass.complete ? slowStage(pass) : null;
  const { level, lanes, rows } = place;
  const every = level === "lines" ? Math.ceil(13 / place.pitch) : 1;
  for (let row = 0; row < rows; row += every) {
    const y = barTop(place, row);
    const chosen = choice?.rank === pass.replica * pass.facts.ranks + row;
    const late = !!slow && pass.lanes[row].includes(slow.stage);
    const name = rowName(pass.lanes, row);
    pen.write(
      name,
      0,
      level === "lines" ? y + place.bar / 2 : y + 6,
      chosen ? "focus" : "ink",
      "left",
      true,
      12,
    );
    if (level === "lines" || level === "tight") continue;
    g.font = `700 12px ${font}`;
    if (late && lanes === 1)
      pen.write("slow", g.measureText(name).width + 5, y + 6, "wait", "left", true);
    if (lanes > 1 && place.lane >= 11)
      pass.lanes[row].forEach((stage, i) =>
        pen.write(
          `${i ? "" : "stage "}${stage}`,
          place.left - 5,
          y + i * place.lane + place.lane / 2,
          slow?.stage === stage ? "wait" : "ink-2",
          "right",
          slow?.stage === stage,
        ),
      );
    if (level === "full") {
      if (lanes === 1 && pass.rows[row].length)
        pen.write(
          fittingTimes(pen, timesWords(pass, row), late),
          0,
          y + 19.5,
          late ? "wait" : "ink-3",
          "left",
          late,
        );
      pen.write(
        pass.plan ? "plan" : pass.facts.flush ? "" : "version",
        0,
        planTop(place, row) + 8,
        "ink-3",
      );
      pen.write(heldWords(pass, row), 0, ribbonBase(place, row) - 5, "ink-3");
    } else
      pen.write(
        heldWords(pass, row).replace("activations", "holds"),
        0,
        y + Math.max(19, place.bar * (lanes > 1 ? 1 : 0) + 4),
        "ink-3",
      );
  }
}

/** "activations 4/4" @param {Pass} pass @param {number} row */
export function heldWords(pass, row) {
  const most = Math.max(...heldOf(pass, row).map(([, n]) => n));
  return `activations ${most}${pass.most[row] ? `/${pass.most[row]}` : ""}`;
}

/** The picture in words, for who cannot see it. @param {Pass} pass */
export function spokenPass(pass) {
  return pass.shares
    .map(
      (shares, row) =>
        `${rowName(pass.lanes, row)}: ${counted(pass.rows[row].length, "action")}, idle ` +
        `${WHYS.map((why) => `${why} ${duration(shares[why])}`).join(", ")}${Number.isFinite(bytesOf(pass, row)) ? `, ${heldWords(pass, row)}` : ""}`,
    )
    .join("; ");
}

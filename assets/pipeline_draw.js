// @ts-check
/**
 * One iteration of a pipeline, drawn: the plan as a shadow below the bars, idle time in its textures, what each rank holds as
 * a ribbon. What does not move is drawn once (drawBars, drawPlan); names, axis, playhead and selection lie over it.
 *
 * @typedef {import("./stage.js").Look} Look
 * @typedef {import("./pipeline_seen.js").Pass} Pass
 * @typedef {import("./pipeline_place.js").PipelinePlace} PipelinePlace
 * @typedef {import("./pipeline_index.js").Task} Task
 */
import { cross } from "./glyph.js";
import { WHYS } from "./pipeline_idle.js";
import { ownTimes } from "./pipeline_plan.js";
import { barTop, momentX, planTop, ribbonBase } from "./pipeline_place.js";
import { bytesOf, heldOf, inputTo, joinsHere, slowStage, usersOf } from "./pipeline_seen.js";
import { drawAction, drawIdle } from "./pipeline_texture.js";
import { LabelRow } from "./timeline_layout.js";
import { writeAt } from "./server_ink.js";
import { counted, duration, ticks } from "./words.js";

/** Which lane of its rank's row a stage has. @param {Pass} pass @param {number} place @param {number} stage */
export const stageLane = (pass, place, stage) => Math.max(0, pass.lanes[place]?.indexOf(stage) ?? 0);

/** Where a task's bar is. @param {Pass} pass @param {PipelinePlace} place @param {number} scale @param {Task} task */
export function boxOf(pass, place, scale, task) {
  const row = task.rank - pass.replica * pass.facts.ranks, x = Math.max(place.left, momentX(place, task.start - pass.from, scale)), end = Math.min(place.right, momentX(place, (pass.facts.flush ? task.end : Math.min(task.end, pass.to)) - pass.from, scale)); // without a flush the next iteration goes on
  return { row, x, y: barTop(place, row, stageLane(pass, row, task.stage)), w: Math.max(1, end - x - (end - x > 3 ? 1 : 0)), h: Math.max(1, place.lane - (place.lanes > 1 && place.lane > 4 ? 1 : 0)) };
}

/** Hairlines of time and the plan's bars: the same hues, pale. @param {CanvasRenderingContext2D} g @param {Look} look @param {Pass} pass @param {PipelinePlace} place @param {number} scale */
export function drawPlan(g, { ink, ratio, font }, pass, place, scale) {
  g.fillStyle = ink.rule;
  for (const { t } of ticks(scale, place.width > 700 ? 10 : 6)) g.fillRect(Math.round(momentX(place, t, scale)), place.top - 4, 1, place.bottom - place.top);
  if (!pass.plan || !place.plan) return;
  const each = place.plan / place.lanes;
  for (const task of pass.plan.tasks) {
    const x = momentX(place, task.start, scale), w = Math.max(1, momentX(place, task.end, scale) - x - 1), y = planTop(place, task.place) + stageLane(pass, task.place, task.stage) * each;
    g.globalAlpha = 0.4;
    drawAction(g, ink, font, ratio, task, x, y, w, Math.max(1, each - (place.lanes > 1 ? 1 : 0))); // too low for a number
  }
  g.globalAlpha = 1;
}

/** Idle time, actions, all-reduces, updates, what is held. @param {CanvasRenderingContext2D} g @param {Look} look @param {Pass} pass @param {PipelinePlace} place @param {number} scale */
export function drawBars(g, { ink, ratio, font }, pass, place, scale) {
  const X = (/** @type {number} */ t) => Math.min(place.right, Math.max(place.left, momentX(place, t - pass.from, scale)));
  for (const { place: row, why, from, to } of pass.idle) if (X(to) - X(from) > 0.2) drawIdle(g, ink, ratio, why, X(from), barTop(place, row), X(to) - X(from), place.bar);
  for (const task of pass.rows.flat()) {
    const { x, y, w, h } = boxOf(pass, place, scale, task);
    drawAction(g, ink, font, ratio, task, x, y, w, h);
  }
  g.fillStyle = ink.comm;
  for (const { rank, start, end } of joinsHere(pass)) if (X(start) < place.right) g.fillRect(X(start), barTop(place, rank - pass.replica * pass.facts.ranks) + place.bar / 4, Math.max(1, X(end) - X(start)), place.bar / 2);
  g.fillStyle = ink.optimizer;
  for (const { rank, start, end } of pass.updates) {
    const row = rank - pass.replica * pass.facts.ranks, x = X(start), w = Math.max(1, X(end) - x);
    if (x < place.right) g.fillRect(x, barTop(place, row) + place.bar / 4, w, place.bar / 2);
  }
  if (!pass.plan && place.plan >= 6) drawVersions(g, ink, font, pass, place, scale);
  if (place.ribbon) {
    const held = pass.rows.map((_, row) => heldOf(pass, row)), top = Math.max(1, ...pass.most, ...held.flat().map(([, n]) => n)); // one unit for all ranks
    held.forEach((steps, row) => drawRibbon(g, ink, pass, place, scale, row, steps, place.ribbon / top));
  }
}

/** Which version of the parameters each action used, where there is room; there is no plan in its place. @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {string} font @param {Pass} pass @param {PipelinePlace} place @param {number} scale */
function drawVersions(g, ink, font, pass, place, scale) {
  for (const task of pass.rows.flat()) {
    const { row, x, w } = boxOf(pass, place, scale, task), text = `v${task.version}`;
    g.font = `400 11px ${font}`;
    if (task.version < 0 || place.lanes > 1 || g.measureText(text).width > w + 1) continue;
    writeAt(g, font, text, x + w / 2, planTop(place, row) + 5.5, ink["ink-3"], "center");
  }
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {Pass} pass @param {PipelinePlace} place @param {number} scale @param {number} row @param {[number, number][]} held @param {number} one  px a microbatch */
function drawRibbon(g, ink, pass, place, scale, row, held, one) {
  const base = ribbonBase(place, row), last = pass.complete ? pass.to : Math.max(...pass.rows[row].map((task) => task.end), pass.from);
  const X = (/** @type {number} */ t) => Math.min(place.right, momentX(place, t - pass.from, scale)), [, first] = held[0];
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
export const shortMs = (ns) => (ns >= 9.95e6 ? (ns / 1e6).toFixed(0) : ns >= 0.995e6 ? (ns / 1e6).toFixed(1) : (ns / 1e6).toFixed(2));

/** "F 10, B 20 ms" of a rank's stages. @param {Pass} pass @param {number} row */
export function timesWords(pass, row) {
  const { F, B, I, W } = ownTimes(pass.rows[row]);
  return `${I ? `F ${shortMs(F)} I ${shortMs(I)} W ${shortMs(W)}` : `F ${shortMs(F)}, B ${shortMs(B)}`} ms`;
}

/** Without its unit where there is no room for it. @param {CanvasRenderingContext2D} g @param {string} font @param {string} words @param {boolean} bold */
function fittingTimes(g, font, words, bold) {
  g.font = `${bold ? 700 : 400} 11px ${font}`;
  return g.measureText(words).width > 88 ? words.replace(" ms", "") : words;
}

/** What a row is called: its stage, or a rank with several. @param {Pass["lanes"]} lanes @param {number} row */
export const rowName = (lanes, row) => (lanes[row].length === 1 ? `stage ${lanes[row][0]}` : `rank ${row}`);

/** Names, and what there is to say of each row at its left. @param {CanvasRenderingContext2D} g @param {Look} look @param {Pass} pass @param {PipelinePlace} place */
export function drawRowNames(g, { ink, font, choice }, pass, place) {
  const slow = pass.complete ? slowStage(pass) : null, { level, lanes, rows } = place, every = level === "lines" ? Math.ceil(13 / place.pitch) : 1;
  for (let row = 0; row < rows; row += every) {
    const y = barTop(place, row), chosen = choice?.rank === pass.replica * pass.facts.ranks + row, late = !!slow && pass.lanes[row].includes(slow.stage), name = rowName(pass.lanes, row);
    writeAt(g, font, name, 0, level === "lines" ? y + place.bar / 2 : y + 6, chosen ? ink.focus : ink.ink, "left", true, 12);
    if (level === "lines" || level === "tight") continue;
    g.font = `700 12px ${font}`;
    if (late && lanes === 1) writeAt(g, font, "slow", g.measureText(name).width + 5, y + 6, ink.wait, "left", true);
    if (lanes > 1 && place.lane >= 11) pass.lanes[row].forEach((stage, i) => writeAt(g, font, `${i ? "" : "stage "}${stage}`, place.left - 5, y + i * place.lane + place.lane / 2, slow?.stage === stage ? ink.wait : ink["ink-2"], "right", slow?.stage === stage));
    if (level === "full") {
      if (lanes === 1 && pass.rows[row].length) writeAt(g, font, fittingTimes(g, font, timesWords(pass, row), late), 0, y + 19.5, late ? ink.wait : ink["ink-3"], "left", late);
      writeAt(g, font, pass.plan ? "plan" : pass.facts.flush ? "" : "version", 0, planTop(place, row) + 8, ink["ink-3"]);
      writeAt(g, font, heldWords(pass, row), 0, ribbonBase(place, row) - 5, ink["ink-3"]);
    } else writeAt(g, font, heldWords(pass, row).replace("activations", "holds"), 0, y + Math.max(19, place.bar * (lanes > 1 ? 1 : 0) + 4), ink["ink-3"]);
  }
}

/** "activations 4/4" @param {Pass} pass @param {number} row */
export function heldWords(pass, row) {
  const most = Math.max(...heldOf(pass, row).map(([, n]) => n));
  return `activations ${most}${pass.most[row] ? `/${pass.most[row]}` : ""}`;
}

/** The axis above: how long it took, when the plan ends, round numbers where there is room. @param {CanvasRenderingContext2D} g @param {Look} look @param {Pass} pass @param {PipelinePlace} place @param {number} scale */
export function drawPipelineAxis(g, { ink, font }, pass, place, scale) {
  const labels = new LabelRow(place.left, place.right + 4), y = place.top - 11, X = (/** @type {number} */ t) => momentX(place, t, scale);
  let before = Infinity; // where the first label begins
  const put = (/** @type {string} */ text, /** @type {number} */ x, /** @type {("middle" | "right" | "left")[]} */ ways, /** @type {string} */ colour, /** @type {boolean} */ bold) => {
    g.font = `${bold ? 700 : 400} 11px ${font}`;
    const at = labels.place(x, g.measureText(text).width, ways);
    if (at !== null) writeAt(g, font, text, at, y, colour, "left", bold);
    if (at !== null && bold) before = at;
    return at !== null;
  };
  const end = X(pass.to - pass.from), span = duration(pass.to - pass.from);
  if (pass.complete && pass.facts.flush) {
    put(`measured ${span}`, Math.min(end, place.right) + 5, ["left"], ink.ink, true);
    g.fillStyle = ink.ink;
    g.fillRect(end - 0.75, place.top - 4, 1.5, place.bottom - place.top);
  }
  if (pass.plan) {
    const x = X(pass.plan.span);
    const words = `plan ends ${duration(pass.plan.span)}`;
    if (!put(words, x, ["middle"], ink.ink, false)) put(words, Math.min(x, before - 4), ["left", "right"], ink.ink, false);
    g.strokeStyle = ink.ideal;
    g.lineWidth = 1;
    g.setLineDash([2, 2]);
    g.beginPath();
    g.moveTo(x, place.top - 4);
    g.lineTo(x, place.bottom - 4);
    g.stroke();
    g.setLineDash([]);
  }
  for (const { t, label } of ticks(scale, place.width > 700 ? 10 : 6)) put(t ? label : "0 ms", X(t), t ? ["middle"] : ["right", "middle"], ink["ink-3"], false);
}

/** The playhead. @param {CanvasRenderingContext2D} g @param {Look} look @param {Pass} pass @param {PipelinePlace} place @param {number} scale */
export function drawPipelineHead(g, { ink, t }, pass, place, scale) {
  const x = Math.min(place.right, Math.max(place.left, momentX(place, t - pass.from, scale)));
  g.fillStyle = ink.focus;
  g.fillRect(x - 1, place.top - 3, 2, place.bottom - place.top);
  g.beginPath();
  g.moveTo(x - 5, place.top - 5);
  g.lineTo(x + 5, place.top - 5);
  g.lineTo(x, place.top + 1);
  g.fill();
}

/** What is chosen: a frame around it, arrows from what it needed and to what needed it. @param {CanvasRenderingContext2D} g @param {Look} look @param {Pass} pass @param {PipelinePlace} place @param {number} scale @param {Task} task */
export function drawChosen(g, { ink }, pass, place, scale, task) {
  const own = boxOf(pass, place, scale, task), made = inputTo(pass, task)?.made, links = /** @type {[Task, Task][]} */ ([...(made ? [[made, task]] : []), ...usersOf(pass, task).map((next) => [task, next])]);
  g.strokeStyle = g.fillStyle = ink.focus;
  g.setLineDash([]);
  g.lineWidth = 1.75;
  for (const [from, to] of links) {
    const a = boxOf(pass, place, scale, from), b = boxOf(pass, place, scale, to), down = b.y > a.y ? 1 : -1;
    if (a.y === b.y) continue;
    const xa = a.x + a.w, xb = b.x + 2, ya = down > 0 ? a.y + a.h : a.y, yb = down > 0 ? b.y - 6 : b.y + b.h + 6;
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
  g.roundRect(own.x - 1.5, own.y - 1.5, own.w + 3, own.h + 3, 3);
  g.stroke();
}

/** Who stood still, amber and dashed: made by us; who is gone, a red cross at its last action. @param {CanvasRenderingContext2D} g @param {Look} look @param {Pass} pass @param {PipelinePlace} place @param {number} scale @param {number[]} gone  ranks */
export function drawBefallen(g, { ink }, pass, place, scale, gone) {
  const first = pass.replica * pass.facts.ranks;
  for (const { rank, from, to } of pass.passes.index.frozen) {
    const row = rank - first, a = Math.max(place.left, momentX(place, from - pass.from, scale)), b = Math.min(place.right, momentX(place, Math.min(to, pass.to) - pass.from, scale));
    if (row < 0 || row >= place.rows || b <= a) continue;
    g.strokeStyle = ink.hold;
    g.lineWidth = 1.5;
    g.setLineDash([4, 2]);
    g.strokeRect(a, barTop(place, row) - 2, b - a, place.bar + 4);
    g.setLineDash([]);
  }
  for (const rank of gone) {
    const row = rank - first, last = pass.rows[row]?.[pass.rows[row].length - 1];
    if (row < 0 || row >= place.rows) continue;
    g.strokeStyle = ink.fault;
    g.lineWidth = 2.5;
    cross(g, Math.min(place.right - 6, (last ? momentX(place, last.end - pass.from, scale) : place.left) + 9), barTop(place, row) + place.bar / 2, Math.min(6, place.bar / 3));
  }
}

/** The picture in words, for who cannot see it. @param {Pass} pass */
export function spokenPass(pass) {
  return pass.shares.map((own, row) => `${rowName(pass.lanes, row)}: ${counted(pass.rows[row].length, "action")}, idle ${WHYS.map((why) => `${why} ${duration(own[why])}`).join(", ")}${Number.isFinite(bytesOf(pass, row)) ? `, ${heldWords(pass, row)}` : ""}`).join("; ");
}

// @ts-check
/**
 * What an iteration's communication was made of, rank by rank: hidden behind computing, exposed,
 * waiting; how long the reader held the ranks stands beside, no part of the bar. Geometry, then
 * drawing.
 * @typedef {import("./step_facts.js").StepFacts} StepFacts
 * @typedef {{x: number, w: number, label: string, kind: "hidden" | "exposed" | "moving" | "waiting"}} Part
 * @typedef {{rank: number, y: number, parts: Part[], core: {x: number, w: number} | null,
 *   text: string, held: string}} SplitRow
 */
import { roundedSpan } from "./layout.js";
import { drawWait, inkOn } from "./paint.js";
import { waitsNowhere } from "./script_steps.js";
import { inMs } from "./captions.js";
import { grouped } from "../../engine/format.js";

const SPLIT = { left: 52, most: 6, many: 8, hatch: 14 };

/** @param {number} ranks */
const splitRow = (ranks) => (ranks <= 4 ? 21 : ranks <= SPLIT.many ? 12 : 14);
/** How high it is. @param {number} ranks */
export const splitHeight = (ranks) =>
  (ranks > SPLIT.many ? SPLIT.most : ranks) * splitRow(ranks) + 20;
/** How far its axis reaches: in round steps. @param {number} before @param {StepFacts[]} facts */
export function splitReach(before, facts) {
  const most = Math.max(1, ...facts.map((f) => f.hidden + f.exposed + f.waiting));
  return before >= most && before < 2.2 * most ? before : roundedSpan(most);
}

/**
 * The rows: each part with its figure where there is room for it, the other figures beside the bar.
 * @param {StepFacts[]} facts
 * @param {number} reach ns
 * @param {number} width
 * @param {(text: string) => number} measure
 * @param {boolean} [script]  of a job whose computing is not recorded: nothing is known to be exposed
 * @returns {SplitRow[]}
 */
export function splitRows(facts, reach, width, measure, script = false) {
  const beside = Math.max(112, Math.min(206, width * 0.4));
  const room = width - SPLIT.left - beside;
  const x = (/** @type {number} */ ns) => SPLIT.left + (ns / reach) * room;
  const many = facts.length > SPLIT.many;
  const talk = script ? (waitsNowhere(facts) ? "in operations" : "sent") : undefined;
  const cost = (/** @type {StepFacts} */ f) => f.exposed + f.waiting;
  const shown = many ? [...facts].sort((a, b) => cost(b) - cost(a)).slice(0, SPLIT.most) : facts;
  return shown.map((f, i) => {
    const ns = script ? { ...f, hidden: 0, exposed: f.hidden + f.exposed } : f;
    const moving = Math.min(f.waiting, f.spent?.moving ?? 0); // blocked, and its bytes on their way
    const lengths = { hidden: ns.hidden, exposed: ns.exposed, moving, waiting: f.waiting - moving };
    const labels = [];
    let reached = 0;
    const parts = /** @type {Part["kind"][]} */ (Object.keys(lengths)).map((kind) => {
      const from = x(reached);
      reached += lengths[kind];
      const w = Math.max(0, x(reached) - from - 1);
      const words = `${inMs(lengths[kind])} ${talk ?? kind}`;
      const blocked = kind === "waiting" || kind === "moving";
      const fits = !blocked && splitRow(facts.length) > 14 && measure(words) + 8 <= w;
      if (!fits && lengths[kind] > 0 && !blocked) labels.push(words);
      return { x: from, w, label: fits ? words : "", kind };
    });
    const core = Number.isFinite(f.queue)
      ? Math.min(f.waiting, Math.max(0, f.queue - (f.queued || 0)))
      : 0; // while it did not compute
    const far = x(reached);
    if (f.waiting > 0)
      labels.push(
        `waits ${inMs(f.waiting)}${core > 0.02 * reach ? ` (${inMs(core)} for a core)` : moving > 0.02 * reach ? ` (${inMs(moving)} for bytes under way)` : ""}`,
      );
    while (labels.length > 1 && far + 6 + measure(labels.join(" · ")) > width) labels.shift();
    let text = labels.join(" · ");
    const held = f.held > 0 ? `you held it ${inMs(f.held)}` : "";
    const besides = held ? SPLIT.hatch + 12 + measure(held) : 0;
    if (far + 6 + besides + measure(text) > width) text = "";
    return {
      rank: f.rank,
      y: 2 + i * splitRow(facts.length),
      parts,
      core:
        core > 0.02 * reach
          ? { x: far - (core / reach) * room, w: (core / reach) * room - 1 }
          : null,
      text,
      held: far + 6 + besides <= width ? held : "",
    };
  });
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {any} waiting
 * @param {any} holding  the fill of what the reader held
 * @param {boolean} script
 * @param {StepFacts[]} facts
 * @param {number} reach
 * @param {number} width
 * @param {number} straggler
 */
export function drawSplit(g, ink, font, waiting, holding, script, facts, reach, width, straggler) {
  const h = facts.length <= 4 ? 15 : facts.length <= SPLIT.many ? 8 : 10;
  g.textBaseline = "middle";
  g.font = `700 11px ${font}`;
  const measure = (/** @type {string} */ text) => g.measureText(text).width;
  for (const row of splitRows(facts, reach, width, measure, script)) {
    g.font = `${row.rank === straggler ? "700 " : ""}11px ${font}`;
    g.fillStyle = row.rank === straggler ? ink.ink : ink["ink-2"];
    g.textAlign = "left";
    g.fillText(`rank ${row.rank}`, 0, row.y + h / 2 + 0.5);
    g.font = `700 11px ${font}`;
    let far = SPLIT.left;
    for (const { x, w, label, kind } of row.parts) {
      if (w <= 0) continue;
      far = x + w + 1;
      if (kind === "waiting") drawWait(g, ink, waiting, x, row.y, w, h, false);
      else if (kind === "moving") {
        g.strokeStyle = g.fillStyle = ink.comm; // an outline with dots: chunks under way, none late
        g.lineWidth = 1;
        g.strokeRect(x + 0.5, row.y + 0.5, Math.max(0, w - 1), h - 1);
        for (let dot = x + 4; dot < x + w - 3; dot += 6) g.fillRect(dot, row.y + h / 2 - 1, 2, 2);
      } else {
        g.globalAlpha = kind === "hidden" ? 0.45 : 1;
        g.fillStyle = ink.comm;
        g.fillRect(x, row.y, w, h);
        g.globalAlpha = 1;
        if (kind === "exposed" && !script) {
          g.fillStyle = ink.ink;
          g.fillRect(x, row.y + h + 1, w, 2);
        }
      }
      if (!label) continue;
      g.fillStyle = kind === "hidden" ? ink.ink : inkOn(ink, "comm");
      g.fillText(label, x + 5, row.y + h / 2 + 0.5);
    }
    if (row.core) {
      g.fillStyle = ink.edge;
      for (let x = row.core.x; x < row.core.x + row.core.w - 1; x += 4)
        g.fillRect(x, row.y + h + 1, 2, 2);
    }
    g.fillStyle = ink.wait;
    if (row.text) g.fillText(row.text, far + 5, row.y + h / 2 + 0.5);
    if (!row.held) continue;
    const x = far + 5 + (row.text ? g.measureText(row.text).width + 8 : 0);
    g.fillStyle = holding;
    g.fillRect(x, row.y, SPLIT.hatch, h);
    g.fillStyle = ink.hold;
    g.fillText(row.held, x + SPLIT.hatch + 4, row.y + h / 2 + 0.5);
  }
  if (!facts.length) return;
  g.font = `11px ${font}`;
  g.fillStyle = ink["ink-3"];
  const words =
    "ms in iteration " +
    `${grouped(facts[0].iteration + 1)}${facts.length > SPLIT.many ? `, the ${SPLIT.most} costliest of ${grouped(facts.length)} ranks` : ""}`;
  g.fillText(words, SPLIT.left, splitHeight(facts.length) - 8);
}

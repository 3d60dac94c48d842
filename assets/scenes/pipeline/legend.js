// @ts-check
/**
 * The keys of the pipeline's picture: every mark that this run can show, drawn by the code that
 * draws the picture.
 *
 * @typedef {import("../../drawing/key_row.js").KeyItem} KeyItem
 */
import { cross } from "../../drawing/glyph.js";
import { WHYS, WHY_WORDS } from "./idle.js";
import { drawAction, drawIdle } from "./texture.js";

/**
 * @param {import("../../chrome/stage.js").Look} look
 * @param {import("./selection.js").Pass} pass
 * @param {{ribbon: number, lanes: number, plan: number}} place
 * @param {{frozen: boolean, gone: boolean}} befell
 * @returns {KeyItem[]}
 */
export function keysOf({ ink, font, ratio }, pass, place, befell) {
  const items = /** @type {KeyItem[]} */ ([]);
  const kinds = new Set([
    ...pass.facts.rows.flat().map((text) => text.replace(/\d/g, "")),
    ...pass.rows.flat().map((task) => task.kind),
  ]);
  const put = (
    /** @type {string} */ name,
    /** @type {number} */ width,
    /** @type {string} */ words,
    /** @type {KeyItem["draw"]} */ draw,
  ) => items.push({ name, words, width, draw });
  const action = (/** @type {string} */ kind) => (/** @type {CanvasRenderingContext2D} */ g) =>
    drawAction(g, ink, font, ratio, { kind, microbatch: 0 }, 0, 3, 20, 11); // too low for a number
  put("F", 20, "forward", action("F"));
  if (kinds.has("B")) put("B", 20, "backward", action("B"));
  if (kinds.has("I"))
    put("I", 20, kinds.has("B") ? "or input gradient" : "input gradient", action("I"));
  if (kinds.has("W")) put("W", 20, "weight gradient", action("W"));
  put("number", 0, "number and hue: microbatch", () => {});
  if (place.lanes > 1)
    put("lanes", 20, "a rank's stages, below each other", (g) =>
      [0, 1].forEach((k) =>
        drawAction(g, ink, font, ratio, { kind: "F", microbatch: k }, k * 10, 2 + k * 6, 9, 5),
      ),
    );
  if (pass.plan && place.plan)
    put("plan", 20, "plan", (g) => {
      g.globalAlpha = 0.4;
      drawAction(g, ink, font, ratio, { kind: "F", microbatch: 0 }, 0, 5, 20, 7);
    });
  if (pass.joins.length)
    put("joined", 20, "all-reduce over the replicas", (g) => {
      g.fillStyle = ink.comm;
      g.fillRect(0, 5, 20, 6);
    });
  if (pass.updates.length)
    put("update", 20, "update of the parameters", (g) => {
      g.fillStyle = ink.optimizer;
      g.fillRect(0, 5, 20, 6);
    });
  for (const why of WHYS)
    if (why !== "fault" || pass.all.fault > 0)
      put(why, 20, `idle: ${WHY_WORDS[why]}`, (g) => {
        drawIdle(g, ink, ratio, why, 0, 2, 20, 12);
        g.strokeStyle = ink.rule;
        g.strokeRect(0.5, 2.5, 19, 11);
      });
  if (place.ribbon)
    put(
      `held ${pass.most.length > 0}`,
      22,
      pass.most.length ? "activations held, and the schedule's most" : "activations held",
      (g) => {
        g.fillStyle = ink.track;
        g.strokeStyle = ink.edge;
        g.lineWidth = 0.75;
        g.fillRect(0, 7, 22, 7);
        g.strokeRect(0.5, 7, 21, 7);
        if (!pass.most.length) return;
        g.strokeStyle = ink.ink;
        g.setLineDash([2, 3]);
        g.beginPath();
        g.moveTo(0, 3.5);
        g.lineTo(22, 3.5);
        g.stroke();
        g.setLineDash([]);
      },
    );
  if (!pass.plan && place.plan >= 6 && place.lanes === 1)
    put("version", 0, "v3: version of the parameters that it used", () => {});
  put("chosen", 20, "chosen: what it needed, what needed it", (g) => {
    g.strokeStyle = ink.focus;
    g.lineWidth = 2;
    g.strokeRect(3, 3, 14, 10);
  });
  if (befell.frozen)
    put("frozen", 20, "stood still: made by us", (g) => {
      g.strokeStyle = ink.hold;
      g.lineWidth = 1.5;
      g.setLineDash([4, 2]);
      g.strokeRect(1, 2, 18, 12);
      g.setLineDash([]);
    });
  if (befell.gone)
    put("gone", 16, "gone", (g) => {
      g.strokeStyle = ink.fault;
      g.lineWidth = 2.5;
      cross(g, 8, 8, 5);
    });
  put("later", 20, "pale: still to come", (g) => {
    g.globalAlpha = 0.35;
    drawAction(g, ink, font, ratio, { kind: "F", microbatch: 0 }, 0, 2, 20, 11);
  });
  return items;
}

// @ts-check
/**
 * The keys of the pipeline's picture: every mark that this run can show, drawn by the code that
 * draws the picture.
 *
 * @typedef {import("../../drawing/key_row.js").KeyItem} KeyItem
 */
import { keyItems } from "../../drawing/key_row.js";
import { WHYS, WHY_WORDS } from "./idle.js";
import { drawAction, drawIdle } from "./texture.js";

/**
 * @param {import("../../chrome/stage.js").Look} look
 * @param {import("./selection.js").Pass} pass
 * @param {{ribbon: number, lanes: number, plan: number}} place
 * @param {{frozen: boolean, gone: boolean}} incidents
 * @returns {KeyItem[]}
 */
export function keysOf({ ink }, pass, place, incidents) {
  const { items, put } = keyItems();
  const kinds = new Set([
    ...pass.facts.rows.flat().map((text) => text.replace(/\d/g, "")),
    ...pass.rows.flat().map((task) => task.kind),
  ]);
  const action =
    (/** @type {string} */ kind) => (/** @type {import("../../drawing/pen.js").Pen} */ pen) =>
      drawAction(pen, { kind, microbatch: 0 }, 0, 3, 20, 11); // too low for a number
  put("F", 20, "forward", action("F"));
  if (kinds.has("B")) put("B", 20, "backward", action("B"));
  if (kinds.has("I"))
    put("I", 20, kinds.has("B") ? "or input gradient" : "input gradient", action("I"));
  if (kinds.has("W")) put("W", 20, "weight gradient", action("W"));
  put("number", 0, "number and hue: microbatch", () => {});
  if (place.lanes > 1)
    put("lanes", 20, "a rank's stages, below each other", (pen) =>
      [0, 1].forEach((k) => drawAction(pen, { kind: "F", microbatch: k }, k * 10, 2 + k * 6, 9, 5)),
    );
  if (pass.plan && place.plan)
    put("plan", 20, "plan", (pen) => {
      pen.g.globalAlpha = 0.4;
      drawAction(pen, { kind: "F", microbatch: 0 }, 0, 5, 20, 7);
    });
  if (pass.joins.length)
    put("joined", 20, "all-reduce over the replicas", (pen) => pen.box(0, 5, 20, 6, "comm"));
  if (pass.updates.length)
    put("update", 20, "update of the parameters", (pen) => pen.box(0, 5, 20, 6, "optimizer"));
  for (const why of WHYS)
    if (why !== "fault" || pass.all.fault > 0)
      put(why, 20, `idle: ${WHY_WORDS[why]}`, (pen) => {
        drawIdle(pen, why, 0, 2, 20, 12);
        pen.g.strokeStyle = ink.rule;
        pen.g.strokeRect(0.5, 2.5, 19, 11);
      });
  if (place.ribbon)
    put(
      `held ${pass.most.length > 0}`,
      22,
      pass.most.length ? "activations held, and the schedule's most" : "activations held",
      ({ g }) => {
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
  put("chosen", 20, "chosen: what it needed, what needed it", (pen) =>
    pen.outline(3, 3, 14, 10, "focus", 2),
  );
  if (incidents.frozen)
    put("frozen", 20, "stood still: made by us", (pen) =>
      pen.outline(1, 2, 18, 12, "hold", 1.5, [4, 2]),
    );
  if (incidents.gone) put("gone", 16, "gone", (pen) => pen.cross(8, 8, 5));
  put("later", 20, "pale: still to come", (pen) => {
    pen.g.globalAlpha = 0.35;
    drawAction(pen, { kind: "F", microbatch: 0 }, 0, 2, 20, 11);
  });
  return items;
}

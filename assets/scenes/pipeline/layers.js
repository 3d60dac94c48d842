// @ts-check
/**
 * The plan and the bars of an iteration: drawn once and kept, pale after the playhead.
 *
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("../../engine/page_state.js").Look} Look
 * @typedef {import("./selection.js").Pass} Pass
 * @typedef {import("./place.js").PipelinePlace} PipelinePlace
 */
import { drawBars, drawPlan } from "./draw.js";
import { momentX } from "./place.js";

export class PipelineLayers {
  /** @param {Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.key = "";
    this.plan = document.createElement("canvas");
    this.bars = document.createElement("canvas");
  }

  /**
   * Draw both onto `g`, anew where something of them has changed.
   * @param {CanvasRenderingContext2D} g
   * @param {Look} look
   * @param {Pass} pass
   * @param {PipelinePlace} place
   * @param {number} scale
   */
  draw(g, look, pass, place, scale) {
    const { plan, bars } = this;
    const { ink } = look;
    const key = [
      pass.key,
      pass.complete ? 0 : pass.passes.index.version,
      place.key,
      scale,
      ink.ground,
      ink.wait,
      look.ratio,
      look.font,
    ].join();
    if (key !== this.key) {
      this.key = key;
      drawPlan(this.stage.paper(plan, look.width, place.height), look, pass, place, scale);
      drawBars(this.stage.paper(bars, look.width, place.height), look, pass, place, scale);
    }
    const x = Math.min(
      place.right + 4,
      Math.max(place.left, momentX(place, look.t - pass.from, scale)),
    );
    const through = Math.round(x * look.ratio);
    g.drawImage(plan, 0, 0, look.width, place.height);
    if (through < bars.width) {
      g.globalAlpha = 0.35; // the future is pale
      g.drawImage(
        bars,
        through,
        0,
        bars.width - through,
        bars.height,
        through / look.ratio,
        0,
        (bars.width - through) / look.ratio,
        place.height,
      );
      g.globalAlpha = 1;
    }
    if (through > 0)
      g.drawImage(bars, 0, 0, through, bars.height, 0, 0, through / look.ratio, place.height);
  }
}

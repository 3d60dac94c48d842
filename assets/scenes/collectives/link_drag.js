// @ts-check
/**
 * Drag a link of the ring: outwards it is slower, inwards faster, a bandwidth each few pixels. The
 * dialog beside the picture opens with what was done, takes it back, and runs the experiment again so.
 * In a run that is over it is what the next one will be like.
 *
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {{x: number, y: number}} Point
 * @typedef {{from: number, to: number}} Link
 */
import { doInRankMenu } from "../../chrome/rank_menu.js";
import { BANDWIDTHS, linkNow, onlyWatches, whyNotThis } from "../../engine/actions.js";
import { isForNextRun } from "../../engine/trials.js";

const FIRST = 12; // px until it is a drag
const EACH = 24; // px for one bandwidth

/**
 * Return the bandwidth that a drag of so many pixels outwards makes of another.
 * @param {string} was
 * @param {number} px
 */
export function draggedBandwidth(was, px) {
  const at = Math.max(0, BANDWIDTHS.indexOf(was));
  const steps = Math.sign(px) * Math.ceil(Math.max(0, Math.abs(px) - FIRST) / EACH);
  return BANDWIDTHS[Math.max(0, Math.min(BANDWIDTHS.length - 1, at + steps))];
}

/** Whether a link can be changed on this page: now, or for the next run. @param {Stage} stage @param {Link} link */
export const canDrag = (stage, link) =>
  !onlyWatches(stage) && (isForNextRun(stage.known, link) || !whyNotThis(stage.known, link));

export class LinkDrag {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {Stage} stage
   * @param {(x: number, y: number) => Link | null} linkAt
   * @param {() => Point[]} nodes  of the ring
   */
  constructor(canvas, stage, linkAt, nodes) {
    this.stage = stage;
    this.nodes = nodes;
    this.link = /** @type {Link | null} */ (null); // that is held
    this.from = { x: 0, y: 0 };
    this.bandwidth = ""; // that it would have; "": it is not dragged
    this.over = false; // a drag has just ended: the click that follows is none
    canvas.addEventListener("pointerdown", (event) => {
      const link = event.button ? null : linkAt(event.offsetX, event.offsetY);
      this.over = false;
      this.link = link && canDrag(stage, link) ? link : null;
      this.from = { x: event.offsetX, y: event.offsetY };
      if (this.link) canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", ({ offsetX: x, offsetY: y }) => this.#move({ x, y }));
    canvas.addEventListener("pointerup", () => this.#end(true));
    canvas.addEventListener("pointercancel", () => this.#end(false));
  }

  /** What is being done, in words. @returns {string[] | null} */
  get lines() {
    const { link, bandwidth } = this;
    if (!link || !bandwidth) return null;
    const next = isForNextRun(this.stage.known, link);
    const was = linkNow(this.stage.known.control, link.from, link.to).bandwidth;
    const limit = (/** @type {string} */ value) => (value === "unlimited" ? "no limit" : value);
    return [
      `link ${link.from} → ${link.to}: ${limit(bandwidth)}`,
      bandwidth === was
        ? "as it is"
        : `it was: ${limit(was)}; let go to ${next ? "choose it for the next run" : "set it"}`,
    ];
  }

  /** @param {Point} to */
  #move(to) {
    const { link, from, stage } = this;
    if (!link) return;
    const nodes = this.nodes();
    const x = nodes.reduce((sum, n) => sum + n.x, 0) / nodes.length;
    const y = nodes.reduce((sum, n) => sum + n.y, 0) / nodes.length;
    const px = Math.hypot(to.x - x, to.y - y) - Math.hypot(from.x - x, from.y - y);
    if (Math.abs(px) < FIRST && !this.bandwidth) return;
    const was = linkNow(stage.known.control, link.from, link.to).bandwidth;
    this.bandwidth = draggedBandwidth(was, px);
    stage.touch();
  }

  /** @param {boolean} isSet */
  #end(isSet) {
    const { link, bandwidth, stage } = this;
    this.link = null;
    this.bandwidth = "";
    if (!link || !bandwidth) return;
    this.over = true;
    const was = linkNow(stage.known.control, link.from, link.to).bandwidth;
    if (!isSet || bandwidth === was) return;
    const args = { source: link.from, target: link.to, bandwidth };
    doInRankMenu(stage, link, { verb: "link", args });
  }
}

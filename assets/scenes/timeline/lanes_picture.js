// @ts-check
/**
 * The lanes as they are on screen: drawn once for a window and kept, pale after the playhead. It
 * knows which mark is where.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("./draw.js").Canvas} Canvas
 * @typedef {import("./draw.js").Hit} Hit
 */
import { drawLanes } from "./draw.js";
import { holdsOf } from "../../engine/holds.js";
import { drawHolds } from "./paint.js";
import { windowX } from "./layout.js";

export class LanesPicture {
  /** @param {Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.canvas = document.createElement("canvas");
    this.key = "";
    this.hits = /** @type {Hit[]} */ ([]);
    this.single = false;
  }

  /**
   * Draw the lanes onto what is seen, and again into what is kept if anything of them has changed.
   * @param {HTMLCanvasElement} seen
   * @param {Look} look
   * @param {Canvas} canvas
   * @param {number[]} ranks
   * @param {number} changed  from when on something is new
   * @param {string} theme
   * @returns {CanvasRenderingContext2D} of what is seen
   */
  draw(seen, look, canvas, ranks, changed, theme) {
    const { stage, canvas: kept } = this;
    const { index, win, place } = canvas;
    const key = [
      win.from,
      win.to,
      look.width,
      String(ranks),
      place.lanes.row,
      theme,
      index.forgotten,
      look.font,
    ].join();
    const all = key !== this.key;
    if (all || changed < win.to) {
      this.key = key;
      if (all || place.level !== "density" || !(changed > win.from)) {
        const g = stage.paper(kept, look.width, place.lanes.height);
        Object.assign(this, drawLanes(g, canvas, ranks));
      } else this.#addTo(kept, look, canvas, ranks, changed);
    }
    const g = stage.paper(seen, look.width, place.lanes.height);
    const x = windowX(win, place, look.t);
    const tall = place.lanes.height;
    const box = { left: place.left, right: place.right, ...place.lanes };
    const pale = !look.live && x < place.right;
    if (pale) g.globalAlpha = 0.4; // what comes after the playhead
    g.drawImage(kept, 0, 0, look.width, tall);
    g.globalAlpha = 1;
    if (pale && x > 0) {
      g.clearRect(0, 0, x, tall);
      g.drawImage(
        kept,
        0,
        0,
        Math.round(x * look.ratio),
        kept.height,
        0,
        0,
        Math.round(x * look.ratio) / look.ratio,
        tall,
      );
    }
    drawHolds(g, canvas, holdsOf(look.table), (t) => windowX(win, place, t), box);
    return g;
  }

  /**
   * Draw what is new of rows of density, from this moment on.
   * @param {HTMLCanvasElement} kept
   * @param {Look} look
   * @param {Canvas} canvas
   * @param {number[]} ranks
   * @param {number} changed
   */
  #addTo(kept, look, canvas, ranks, changed) {
    const { place, win } = canvas;
    const first = Math.max(0, Math.floor(windowX(win, place, changed)) - place.left - 1);
    const g = /** @type {CanvasRenderingContext2D} */ (kept.getContext("2d"));
    g.save();
    g.setTransform(look.ratio, 0, 0, look.ratio, 0, 0);
    g.beginPath();
    g.rect(place.left + first, 0, look.width, place.lanes.height);
    g.clip();
    g.clearRect(0, 0, look.width, place.lanes.height);
    Object.assign(this, drawLanes(g, canvas, ranks, first));
    g.restore();
  }

  /**
   * Return what moves: single chunks, with how much of each is done at a moment.
   * @param {import("../../engine/table.js").Table} table
   * @param {number} t
   */
  marks(table, t) {
    const marks = [];
    for (const hit of this.hits) {
      const kind = hit.row < 0 ? "" : table.kindName(table.kind[hit.row]);
      if (kind !== "send" && kind !== "recv") continue;
      const r = hit.row;
      const p = table.passage[r];
      const { passages } = table;
      const share = Math.max(
        0,
        Math.min(1, (t - table.start[r]) / Math.max(1, table.end[r] - table.start[r])),
      );
      marks.push({
        rank: hit.rank,
        peer: table.peer[r],
        generation: passages.generation[p],
        group: table.text(passages.group[p]),
        op: passages.op[p],
        step: table.step[r],
        chunk: table.chunk[r],
        slot: table.slot[r],
        share,
        x: hit.x + hit.w / 2,
        y: hit.y + hit.h / 2,
      });
    }
    return marks;
  }
}

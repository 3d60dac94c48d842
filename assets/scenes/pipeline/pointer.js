// @ts-check
/**
 * The pipeline's picture under the pointer and the keyboard: the tooltip describes the place, an action
 * or a rank is chosen, the axis is scrubbed; each row has a button over its name for readers
 * without a pointer.
 *
 * @typedef {import("./selection.js").Pass} Pass
 * @typedef {import("./place.js").PipelinePlace} PipelinePlace
 * @typedef {import("./index.js").Task} Task
 * @typedef {{pass: Pass, place: PipelinePlace, scale: number}} OnShow
 */
import { openRankMenu } from "../../chrome/rank_menu.js";
import { boxOf, rowName } from "./draw.js";
import { barTop, hitUnder } from "./place.js";
import { taskAt } from "./selection.js";
import { wordsUnder } from "./captions.js";
import { PointedPlace } from "../../drawing/pointed_place.js";
import { walkWithArrows } from "../../drawing/tooltip.js";

export class PipelinePointer {
  /**
   * @param {HTMLElement} body
   * @param {import("../../chrome/stage.js").Stage} stage
   * @param {() => OnShow | null} shown
   */
  constructor(body, stage, shown) {
    const find = (/** @type {string} */ selector) =>
      /** @type {HTMLElement} */ (body.querySelector(selector));
    this.body = body;
    this.stage = stage;
    this.shown = shown;
    this.canvas = /** @type {HTMLCanvasElement} */ (find("canvas.wb-pl"));
    this.spots = find(".wb-co-spots");
    this.pointed = new PointedPlace(body, this.canvas, ({ x, y }) => this.#linesUnder(x, y), {
      cursor: ({ x, y }, lines) =>
        this.#under(x, y)?.part === "axis" ? "ew-resize" : lines.length ? "pointer" : "default",
    });
    this.#listen();
  }

  /** Place buttons over the rows, for readers without a pointer; arrows go from one to the next. */
  place() {
    const now = this.shown();
    if (!now) return;
    const { pass, place } = now;
    const key = place.key + pass.replica;
    if (this.spots.dataset.key === key) return;
    this.spots.dataset.key = key;
    this.spots.replaceChildren(
      ...pass.rows.map((_, row) => {
        const y = barTop(place, row) - 3;
        const button = this.pointed.spot(
          { x: 0, y, w: place.left - 4, h: place.pitch - 2 },
          `${rowName(pass.lanes, row)}: Enter chooses what it does at the playhead`,
          { x: 40, y: y + 12 },
          (event) => {
            const now = this.shown();
            const task = now
              ? taskAt(now.pass.rows[row], this.stage.look(performance.now()).t)
              : undefined;
            // a pointer on a name means the rank
            this.#take(row, event.detail ? undefined : task);
          },
        );
        button.style.borderRadius = "3px";
        button.dataset.row = String(row);
        return button;
      }),
    );
  }

  #listen() {
    const { canvas, spots } = this;
    const scrub = (/** @type {PointerEvent} */ event) => {
      const now = this.shown();
      const under =
        now &&
        hitUnder(now.place, event.offsetX, Math.min(event.offsetY, now.place.top - 1), now.scale);
      if (now && under)
        this.stage.playback.goto(
          Math.min(now.pass.to, Math.max(now.pass.from, now.pass.from + under.t)),
        );
    };
    let scrubs = false;
    canvas.onpointermove = (event) =>
      scrubs && event.buttons & 1
        ? scrub(event)
        : this.pointed.point({ x: event.offsetX, y: event.offsetY });
    canvas.onpointerleave = () => this.pointed.point(null);
    canvas.onpointerdown = (event) => {
      event.preventDefault(); // the stage's keys go on working
      this.stage.root.focus({ preventScroll: true });
      const now = this.shown();
      scrubs = !!now && event.offsetY < now.place.top;
      if (!scrubs) return;
      canvas.setPointerCapture(event.pointerId);
      scrub(event);
    };
    canvas.onclick = (event) => {
      const under = this.#under(event.offsetX, event.offsetY);
      if (scrubs) return;
      if (!under || under.row < 0) return this.stage.choose(null);
      this.#take(
        under.row,
        under.part === "name" ? undefined : this.#taskAt(event.offsetX, event.offsetY),
      );
    };
    walkWithArrows(spots);
  }

  /**
   * Choose an action, or a rank; the same rank once more: what can be done to it.
   * @param {number} row
   * @param {Task | undefined} task
   */
  #take(row, task) {
    const now = this.shown();
    const before = this.stage.choice;
    if (!now) return;
    const rank = now.pass.replica * now.pass.facts.ranks + row;
    if (task) {
      const same =
        before?.microbatch === task.microbatch &&
        before.stage === task.stage &&
        before.action === task.kind;
      return this.stage.choose(
        same
          ? null
          : {
              rank,
              iteration: task.iteration,
              stage: task.stage,
              microbatch: task.microbatch,
              action: task.kind,
            },
      );
    }
    const again = before?.rank === rank && before.microbatch === undefined;
    this.stage.choose({ rank });
    if (!again) return;
    this.pointed.point(null);
    openRankMenu(this.stage, { rank });
  }

  /** @param {number} x @param {number} y */
  #under(x, y) {
    const now = this.shown();
    return now && hitUnder(now.place, x, y, now.scale);
  }

  /** @param {number} x @param {number} y @returns {Task | undefined} */
  #taskAt(x, y) {
    const { pass, place, scale } = /** @type {OnShow} */ (this.shown());
    const under = this.#under(x, y);
    if (!under || under.part !== "bar") return undefined;
    return pass.rows[under.row].find((task) => {
      const box = boxOf(pass, place, scale, task);
      return x >= box.x - 0.5 && x <= box.x + box.w + 0.5 && y >= box.y && y <= box.y + box.h + 1;
    });
  }

  /** @param {number} x @param {number} y @returns {string[]} */
  #linesUnder(x, y) {
    const now = this.shown();
    const under = this.#under(x, y);
    if (!now || !under) return [];
    return wordsUnder(
      now.pass,
      under,
      this.#taskAt(x, y),
      this.stage.choice?.rank === now.pass.replica * now.pass.facts.ranks + under.row,
    );
  }
}

// @ts-check
/**
 * The picture of a run with actors under the pointer and the keyboard: the tooltip describes the place,
 * a rank or a message is chosen. Ranks have a button over them for readers without a pointer.
 *
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("./draw.js").RlSeen} RlSeen
 */
import { rlCometWords, rlSpotWords } from "./captions.js";
import { underRl } from "./place.js";
import { takeRank } from "../../chrome/rank_menu.js";
import { PointedPlace } from "../../drawing/pointed_place.js";
import { walkWithArrows } from "../../drawing/tooltip.js";

export class RlPointer {
  /**
   * @param {HTMLElement} body
   * @param {Stage} stage
   * @param {() => RlSeen | null} shown  what is on screen
   */
  constructor(body, stage, shown) {
    this.stage = stage;
    this.shown = shown;
    this.canvas = /** @type {HTMLCanvasElement} */ (body.querySelector(".wb-rl"));
    this.spots = /** @type {HTMLElement} */ (body.querySelector(".wb-co-spots"));
    this.pointed = new PointedPlace(body, this.canvas, ({ x, y }) => this.#linesUnder(x, y));
    this.#listen();
  }

  /**
   * Place buttons over ranks, for readers without a pointer; arrows go from one to the next.
   * @param {RlSeen} seen
   */
  placeSpots({ place }) {
    if (this.spots.dataset.key === place.key) return;
    this.spots.dataset.key = place.key;
    this.spots.replaceChildren(
      ...place.spots.map(({ x, y, w, h, rank, role }) => {
        const middle = { x: x + w / 2, y: y + h / 2 };
        const button = this.pointed.spot({ x, y, w, h }, `${role} ${rank}`, middle, () =>
          this.#take(rank),
        );
        button.dataset.rank = String(rank);
        return button;
      }),
    );
  }

  #listen() {
    const { canvas, stage } = this;
    this.pointed.follow(stage.root, (place) => place);
    canvas.onclick = (event) => {
      const hit = /** @type {any} */ (this.#under(event.offsetX, event.offsetY));
      if (!hit) return stage.choose(null);
      if (hit.comet)
        return stage.choose({
          rank: hit.comet.from,
          peer: hit.comet.to,
          op: hit.comet.op,
          group: "default",
        });
      this.#take(hit.spot.rank);
    };
    walkWithArrows(this.spots);
  }

  /**
   * Choose a rank; once more: what can be done to it.
   * @param {number} rank
   */
  #take(rank) {
    takeRank(this.stage, rank, () => this.pointed.point(null));
  }

  /** @param {number} x @param {number} y */
  #under(x, y) {
    const seen = this.shown();
    return seen ? underRl(seen.place, seen.frame.comets, x, y) : null;
  }

  /** @param {number} x @param {number} y @returns {string[]} */
  #linesUnder(x, y) {
    const seen = this.shown();
    const hit = /** @type {any} */ (this.#under(x, y));
    if (!seen || !hit) return [];
    if (hit.comet) return rlCometWords(hit.comet, seen.frame);
    const words = rlSpotWords(seen.frame, hit.spot);
    return this.stage.choice?.rank === hit.spot.rank
      ? [...words, "once more: freeze it, slow it, kill it"]
      : words;
  }
}

// @ts-check
/**
 * The picture of replicas under the pointer and the keyboard: the tooltip describes the place, a rank, a
 * link or a message is chosen. Ranks have a button over them for readers without a pointer.
 *
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("./draw.js").PeersSeen} PeersSeen
 */
import { peerCometWords, peerLinkWords, peerWords } from "./captions.js";
import { underPeers } from "./place.js";
import { takeRank } from "../../chrome/rank_menu.js";
import { PointedPlace } from "../../drawing/pointed_place.js";
import { walkWithArrows } from "../../drawing/tooltip.js";

export class PeersPointer {
  /**
   * @param {HTMLElement} body
   * @param {Stage} stage
   * @param {() => PeersSeen | null} shown  what is on screen
   */
  constructor(body, stage, shown) {
    this.stage = stage;
    this.shown = shown;
    this.canvas = /** @type {HTMLCanvasElement} */ (body.querySelector(".wb-pe"));
    this.spots = /** @type {HTMLElement} */ (body.querySelector(".wb-co-spots"));
    this.pointed = new PointedPlace(body, this.canvas, ({ x, y }) => this.#linesUnder(x, y));
    this.#listen();
  }

  /**
   * Place buttons over ranks, for readers without a pointer; arrows go from one to the next.
   * @param {PeersSeen} seen
   */
  placeSpots({ place }) {
    if (this.spots.dataset.key === place.key) return;
    this.spots.dataset.key = place.key;
    const r = place.circle.node + 4;
    this.spots.replaceChildren(
      ...place.circle.nodes.map(({ x, y }, rank) => {
        const box = { x: x - r, y: y - r, w: 2 * r, h: 2 * r };
        const button = this.pointed.spot(box, `rank ${rank}`, { x, y }, () => this.#take(rank));
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
          iteration: hit.comet.iteration,
        });
      if (hit.link) return stage.choose({ rank: hit.link.from, peer: hit.link.to });
      this.#take(hit.rank);
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
    return seen ? underPeers(seen.place, seen.frame.comets, seen.frame.links, x, y) : null;
  }

  /** @param {number} x @param {number} y @returns {string[]} */
  #linesUnder(x, y) {
    const seen = this.shown();
    const hit = /** @type {any} */ (this.#under(x, y));
    if (!seen || !hit) return [];
    const { frame, index, doings, facts } = seen;
    if (hit.comet) return peerCometWords(hit.comet, frame.t);
    if (hit.link) return peerLinkWords(frame, hit.link);
    const words = peerWords(frame, hit.rank, index, doings[hit.rank], facts, "");
    return this.stage.choice?.rank === hit.rank
      ? [...words, "once more: freeze it, slow it, kill it"]
      : words;
  }
}

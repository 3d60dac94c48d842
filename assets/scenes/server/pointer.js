// @ts-check
/**
 * The parameter server's picture under the pointer and the keyboard: the tooltip describes the place, a
 * worker, a shard or a message is chosen. Workers and shards have a button over them for readers
 * without a pointer.
 *
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("./draw.js").ServerSeen} ServerSeen
 */
import { cometWords, logWords, shardWords, versionsAt, workerWords } from "./captions.js";
import { underServer, workerSpot } from "./place.js";
import { takeRank } from "../../chrome/rank_menu.js";
import { PointedPlace } from "../../drawing/pointed_place.js";
import { walkWithArrows } from "../../drawing/tooltip.js";

export class ServerPointer {
  /**
   * @param {HTMLElement} body
   * @param {Stage} stage
   * @param {() => ServerSeen | null} shown  what is on screen
   */
  constructor(body, stage, shown) {
    this.stage = stage;
    this.shown = shown;
    this.canvas = /** @type {HTMLCanvasElement} */ (body.querySelector(".wb-ps"));
    this.spots = /** @type {HTMLElement} */ (body.querySelector(".wb-co-spots"));
    this.pointed = new PointedPlace(body, this.canvas, ({ x, y }) => this.#linesUnder(x, y));
    this.#listen();
  }

  /**
   * Place buttons over workers and shards, for readers without a pointer; arrows go from one to the
   * next.
   * @param {ServerSeen} seen
   */
  placeSpots({ place, frame }) {
    const key = place.key + frame.workers.map((w) => w.rank).join();
    if (this.spots.dataset.key === key) return;
    this.spots.dataset.key = key;
    const spot = (
      /** @type {number} */ rank,
      /** @type {string} */ name,
      /** @type {number} */ x,
      /** @type {number} */ y,
      /** @type {number} */ w,
      /** @type {number} */ h,
    ) => {
      const middle = { x: x + w / 2, y: y + h / 2 };
      const button = this.pointed.spot({ x, y, w, h }, name, middle, () => this.#take(rank));
      button.dataset.rank = String(rank);
      return button;
    };
    this.spots.replaceChildren(
      ...frame.workers.map((w, i) =>
        spot(w.rank, `worker ${w.rank}`, 0, place.top + i * place.lane, place.left - 4, place.lane),
      ),
      ...frame.shards.map((s, k) =>
        spot(
          s.rank,
          `shard ${s.rank}`,
          place.bins[k].x,
          place.bins[k].y,
          place.bins[k].w,
          place.bins[k].h,
        ),
      ),
    );
  }

  #listen() {
    const { canvas, spots } = this;
    this.pointed.follow(this.stage.root, (place) => place);
    canvas.onclick = (event) => {
      const hit = /** @type {any} */ (this.#under(event.offsetX, event.offsetY));
      const frame = this.shown()?.frame;
      if (!hit || !frame) return this.stage.choose(null);
      if (hit.comet)
        return this.stage.choose({
          rank: hit.comet.from,
          peer: hit.comet.to,
          op: hit.comet.op,
          group: "default",
          iteration: hit.comet.iteration,
        });
      this.#take("shard" in hit ? frame.shards[hit.shard].rank : frame.workers[hit.worker].rank);
    };
    walkWithArrows(spots);
  }

  /**
   * Choose a worker or a shard: everything is then shown as seen from it. Once more: what can be
   * done to it.
   * @param {number} rank
   */
  #take(rank) {
    takeRank(this.stage, rank, () => this.pointed.point(null));
  }

  /** @param {number} x @param {number} y */
  #under(x, y) {
    const seen = this.shown();
    return seen ? underServer(seen.place, seen.frame.workers.length, seen.comets, x, y) : null;
  }

  /** @param {number} x @param {number} y @returns {string[]} */
  #linesUnder(x, y) {
    const seen = this.shown();
    const hit = /** @type {any} */ (this.#under(x, y));
    if (!seen) return [];
    const { frame, index, rule, place, befell } = seen;
    if (!hit) return y < place.top && x > place.left ? versionsAt(frame) : [];
    if (hit.comet) return cometWords(hit.comet, frame.pushes);
    if ("shard" in hit)
      return [
        ...shardWords(frame, hit.shard, index),
        "once more: freeze it, slow it, kill it",
      ].slice(0, this.stage.choice?.rank === frame.shards[hit.shard].rank ? undefined : -1);
    const worker = frame.workers[hit.worker];
    const spot = workerSpot(place, hit.worker, worker, frame.min);
    const near = Math.hypot(spot.x - x, spot.y - y) <= place.ring + 2;
    const log =
      x > place.left && !near
        ? logWords(index, worker.rank, frame.min + hit.column, frame.t, frame.pushes)
        : [];
    return log.length
      ? log
      : workerWords(frame, hit.worker, rule, befell.get(worker.rank)?.words ?? "");
  }
}

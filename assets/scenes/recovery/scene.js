// @ts-check
/**
 * Recovery: for each loss of ranks how long it took until the run went on, phase after phase, for
 * all and rank by rank, and what it cost in words. A click moves the playhead there.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("../../engine/recoveries.js").LossOfRanks} LossOfRanks
 * @typedef {import("./place.js").RecoveryPlace} RecoveryPlace
 * @typedef {{root: HTMLElement, head: HTMLButtonElement, canvas: HTMLCanvasElement,
 *   words: HTMLElement}} LossBox
 * @typedef {{loss: LossOfRanks, place: RecoveryPlace}} LossSeen
 */
import { KeyRow } from "../../drawing/key_row.js";
import { PointedPlace } from "../../drawing/pointed_place.js";
import {
  RECOVERY_PHASES,
  goodputOf,
  hasRecoveries,
  lossesOfRanks,
} from "../../engine/recoveries.js";
import { nowOf } from "../../engine/player.js";
import { goodputWords, headOf, recoveryCost, linesOf, sentenceOf } from "./captions.js";
import { drawWaterfall } from "./draw.js";
import { keysOf } from "./legend.js";
import { laneUnder, placeOf, spanOf, recoveryT, recoveryX } from "./place.js";

const BODY = `<p class="wb-key"></p><div class="wb-mg-scroll"><div class="wb-rc-list"></div></div>
  <p class="wb-rc-good"></p><div class="wb-co-tip" hidden></div><p class="wb-sr" role="status"></p>`;

class RecoveryView {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.body = body;
    this.stage = stage;
    body.innerHTML = BODY;
    this.list = /** @type {HTMLElement} */ (body.querySelector(".wb-rc-list"));
    this.good = /** @type {HTMLElement} */ (body.querySelector(".wb-rc-good"));
    this.keys = new KeyRow(/** @type {HTMLElement} */ (body.querySelector(".wb-key")));
    this.boxes = /** @type {LossBox[]} */ ([]);
    this.seen = /** @type {LossSeen[]} */ ([]);
    this.pointed = new PointedPlace(body, document.createElement("canvas"), (place) =>
      this.#linesUnder(place),
    );
  }

  /** @param {Look} look @returns {LossSeen[]} */
  #see({ known, width, at }) {
    const losses = lossesOfRanks(known).filter(({ origin }) => Number.isFinite(origin));
    const span = spanOf(losses, nowOf(known, at));
    const all = losses.reduce((sum, { lanes }) => sum + lanes.length, 0);
    return losses.map((loss) => ({ loss, place: placeOf(loss, width, span, all) }));
  }

  // ---- drawing

  /** @param {Look} look */
  draw(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look));
    this.#fit(seen.length);
    const chosen = { ...look, chosen: look.choice?.rank ?? -1 };
    seen.forEach(({ loss, place }, i) =>
      drawWaterfall(
        this.stage.paper(this.boxes[i].canvas, look.width, place.height),
        chosen,
        loss,
        place,
        nowOf(look.known, look.at),
      ),
    );
  }

  /** As many boxes as there are losses. @param {number} count */
  #fit(count) {
    while (this.boxes.length > count) this.boxes.pop()?.root.remove();
    while (this.boxes.length < count) this.boxes.push(this.#box(this.boxes.length));
  }

  /** @param {number} i @returns {LossBox} */
  #box(i) {
    const root = document.createElement("section");
    root.className = "wb-rc-one";
    root.innerHTML =
      '<button class="wb-rc-head"><b></b> <small></small></button><canvas role="img"></canvas><p></p>';
    const find = (/** @type {string} */ selector) =>
      /** @type {any} */ (root.querySelector(selector));
    const canvas = /** @type {HTMLCanvasElement} */ (find("canvas"));
    this.pointed.follow(this.stage.root, ({ x, y }) => ({ x, y, over: canvas }), canvas);
    canvas.onclick = (event) => this.#goto(i, event.offsetX);
    find("button").onclick = () => this.#goto(i);
    this.list.append(root);
    return { root, head: find("button"), canvas, words: find("p") };
  }

  /** Move the playhead to a loss, or to a moment of it. @param {number} i @param {number} [x] */
  #goto(i, x) {
    const { loss, place } = this.seen[i] ?? {};
    if (loss && place)
      this.stage.playback.goto(loss.origin + (x === undefined ? 0 : recoveryT(place, x)));
  }

  // ---- words

  /** @param {Look} look */
  say(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look));
    this.#fit(seen.length);
    this.keys.show(keysOf(), look);
    const put = (/** @type {HTMLElement | null} */ node, /** @type {string} */ text) => {
      if (node && node.textContent !== text) node.textContent = text;
    };
    seen.forEach(({ loss }, i) => {
      const { head, canvas, words, root } = this.boxes[i];
      const [who, after] = headOf(loss);
      const sentences = recoveryCost(loss, look.known);
      put(head.querySelector("b"), who);
      put(head.querySelector("small"), after);
      put(words, sentences);
      head.title = "shows this moment";
      canvas.setAttribute("aria-label", `${who}. ${sentences}`);
      root.dataset.generation = String(loss.before);
    });
    const wentOn = seen.some(({ loss }) => loss.after); // else nothing was regained
    const good = wentOn ? goodputWords(goodputOf(look.known)) : "";
    put(this.good, seen.length ? good : "No rank was lost.");
    this.pointed.say();
  }

  /** @param {Look} look */
  title({ known }) {
    return [known.run?.title || "Recovery", policyWords(known.run?.recovery)]
      .filter(Boolean)
      .join(" · ");
  }

  /** @param {Look} look */
  sentence(look) {
    const { known, t, live, table } = look;
    const losses = this.#see(look).map(({ loss }) => loss);
    return sentenceOf(known, losses, t, live || t >= table.to - 1, goodputOf(known));
  }

  /** @param {Look} look */
  marks(look) {
    return this.#see(look).flatMap(({ loss, place }) =>
      loss.lanes.flatMap(({ rank, role, ended, bars }) => [
        ...bars.map(({ phase, start, end }) => ({
          mark: "phase",
          generation: loss.before,
          rank,
          role,
          phase,
          start,
          end,
          x: recoveryX(place, start - loss.origin),
        })),
        ...(Number.isFinite(ended)
          ? [{ mark: "lost", generation: loss.before, rank, role, start: ended, end: ended }]
          : []),
      ]),
    );
  }

  /** The next end of a phase. @param {Look} look @param {string} _ @param {number} way */
  step(look, _, way) {
    const times = this.#see(look)
      .flatMap(({ loss }) => [loss.origin, ...RECOVERY_PHASES.map((phase) => loss.ends[phase])])
      .filter(Number.isFinite)
      .sort((a, b) => a - b);
    const next =
      way > 0 ? times.find((v) => v > look.t + 0.5) : times.findLast((v) => v < look.t - 0.5);
    return next ?? look.t;
  }

  // ---- under the pointer

  /** @param {{x: number, y: number, over?: HTMLElement}} place */
  #linesUnder({ x, y, over }) {
    const seen = this.seen[this.boxes.findIndex(({ canvas }) => canvas === over)];
    if (!seen || x < seen.place.left || x > seen.place.right) return [];
    return linesOf(seen.loss, laneUnder(seen.place, y), recoveryT(seen.place, x));
  }

  end() {
    this.pointed.point(null);
  }
}

/** @param {unknown} policy */
const policyWords = (policy) => (typeof policy === "string" && policy ? `recovery: ${policy}` : "");

/** @type {import("../../chrome/scene_host.js").SceneModule} */
export const recoveryScene = {
  offered: hasRecoveries,
  lookNext: (known) =>
    hasRecoveries(known)
      ? { title: "See the recovery", what: "how long the run took to go on", final: true }
      : null,
  build: (body, stage) => new RecoveryView(body, stage),
};

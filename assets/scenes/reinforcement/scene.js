// @ts-check
/**
 * A run with actors: who plays, what replay holds, who learns, and what goes from one to the other;
 * below it returns, ages, and the bytes of each kind of message.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("./draw.js").RlSeen} RlSeen
 */
import { KeyRow } from "../../drawing/key_row.js";
import { countUntil } from "../../engine/search.js";
import { updatesOf } from "./call_source.js";
import { lastLearned, rlMeaning, rlSentence, spokenRl } from "./captions.js";
import {
  binsOf,
  binsWords,
  drawKinds,
  drawOld,
  drawReturns,
  kindsHigh,
  kindsWords,
  RL_CHART,
} from "./charts.js";
import { drawRl } from "./draw.js";
import { rlFrame } from "./frame.js";
import { rlArrived, rlIndexOf, rlRoles } from "./index.js";
import { rlKeys } from "./legend.js";
import { rlMarks } from "./marks.js";
import { rlPlace } from "./place.js";
import { RlPointer } from "./pointer.js";

const LEARNED = 2; // lines of what happened last
const BESIDE = 760; // px of width from which all charts stand beside each other (theme.css)

const RL_BODY = `<div class="wb-ps-picture"><canvas class="wb-rl" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Ranks"></div></div>
  <p class="wb-key"></p>
  <div class="wb-rl-charts">
    <section><h3>Return <small>mean of 20 episodes; lowest to highest</small></h3><canvas class="wb-rl-return" role="img"></canvas></section>
    <section><h3>How old <small>updates since it was the newest</small></h3><canvas class="wb-rl-old" role="img"></canvas></section>
    <section><h3>Sent <small>up to the playhead, by kind</small></h3><canvas class="wb-rl-kinds" role="img"></canvas></section>
  </div>
  <ol class="wb-story wb-co-story" aria-label="The last moments up to the playhead"></ol><div class="wb-co-tip" hidden></div><p class="wb-sr" role="status"></p>`;

class RlView {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.body = body;
    this.stage = stage;
    body.innerHTML = RL_BODY;
    const $ = (/** @type {string} */ selector) => /** @type {any} */ (body.querySelector(selector));
    this.canvas = /** @type {HTMLCanvasElement} */ ($(".wb-rl"));
    this.charts = /** @type {HTMLCanvasElement[]} */ (
      [".wb-rl-return", ".wb-rl-old", ".wb-rl-kinds"].map($)
    );
    this.story = /** @type {HTMLElement} */ ($(".wb-story"));
    this.keys = new KeyRow($(".wb-key"));
    this.story.append(
      ...Array.from({ length: LEARNED }, () =>
        Object.assign(document.createElement("li"), { innerHTML: "<span></span><em></em>" }),
      ),
    );
    this.seen = /** @type {RlSeen | null} */ (null);
    this.pointer = new RlPointer(body, stage, () => this.seen);
    this.charted = "";
  }

  /** What is on screen at this look. @param {Look} look @returns {RlSeen | null} */
  #see({ known, table, t, width }) {
    const roles = rlRoles(known.run);
    if (!roles || !(width > 0)) return null;
    const index = rlIndexOf(table);
    const frame = rlFrame(index, roles, t, known.run?.iterations ?? -1);
    return { place: rlPlace(roles, width), frame, index, roles };
  }

  // ---- drawing

  /** @param {Look} look */
  draw(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look));
    if (!seen) return;
    drawRl(this.stage.paper(this.canvas, look.width, seen.place.height), look, seen);
    this.pointer.placeSpots(seen);
  }

  /** The charts, at the pace of the texts. @param {Look} look @param {RlSeen} seen */
  #drawCharts({ ink, font, ratio, t, width }, { index, roles }) {
    const key = [index.version, t, width, ratio, ink.ground, ink.wait].join();
    if (key === this.charted) return;
    this.charted = key;
    const [returns, old, kinds] = this.charts.map((canvas, i) => {
      const wide = canvas.clientWidth || 300;
      const height = i === 2 && width < BESIDE ? kindsHigh(roles) : RL_CHART;
      return { g: this.stage.paper(canvas, wide, height), ink, font, width: wide, height };
    });
    drawReturns(returns, index, roles, t);
    drawOld(old, index, roles, t);
    drawKinds(kinds, index, roles, t);
    const words = [
      binsWords(binsOf(index, roles.actors, "return", t), "Mean return"),
      binsWords(binsOf(index, roles.learners, "sample age", t), "Age of samples in updates"),
      kindsWords(index, t),
    ];
    this.charts.forEach((canvas, i) => canvas.setAttribute("aria-label", words[i]));
  }

  // ---- words

  /** @param {Look} look */
  say(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look));
    if (!seen) return;
    const put = (/** @type {Element} */ node, /** @type {string} */ text) =>
      node.textContent !== text && (node.textContent = text);
    const lines = lastLearned(seen.index, seen.roles, look.t, LEARNED);
    [...this.story.children].forEach((item, i) => {
      const [when, what] = lines[i - LEARNED + lines.length] ?? ["", ""];
      item.classList.toggle("newest", i === LEARNED - 1);
      put(item.children[0], when);
      put(item.children[1], what);
    });
    this.keys.show(rlKeys(look, seen), look);
    this.#drawCharts(look, seen);
    this.canvas.setAttribute("aria-label", spokenRl(seen.frame));
    this.pointer.pointed.say();
  }

  /** @param {Look} look */
  title({ known }) {
    return known.run?.title || "Reinforcement learning";
  }

  /** @param {Look} look */
  sentence(look) {
    const seen = this.#see(look);
    const newest = look.live || look.t >= look.table.to - 1;
    return rlSentence(
      look.known,
      seen?.frame ?? null,
      seen?.index ?? null,
      seen?.roles ?? null,
      newest,
    );
  }

  /** @param {Look} look */
  marks(look) {
    const seen = this.#see(look);
    return seen ? rlMarks(look, seen) : [];
  }

  /**
   * The next message that arrives, or update.
   * @param {Look} look
   * @param {string} unit
   * @param {number} way
   */
  step(look, unit, way) {
    const roles = rlRoles(look.known.run);
    if (!roles || unit === "chunk") return null;
    const index = rlIndexOf(look.table);
    const times =
      unit === "iteration"
        ? roles.learners.flatMap((rank) => around(index.of(rank, "loss").t, look.t))
        : [...index.ways.values()].flatMap(({ list }) =>
            around(
              list
                .slice(Math.max(0, countUntil(list, look.t, (one) => one.start) - 8))
                .slice(0, 16)
                .map(rlArrived),
              look.t,
            ),
          );
    times.sort((a, b) => a - b);
    return (
      (way > 0 ? times.find((v) => v > look.t + 0.5) : times.findLast((v) => v < look.t - 0.5)) ??
      look.t
    );
  }

  end() {
    this.pointer.pointed.place = null;
  }
}

/** Some of the times before and after t. @param {number[]} times @param {number} t */
function around(times, t) {
  const known = times.filter(Number.isFinite);
  const at = countUntil(known, t, Number);
  return known.slice(Math.max(0, at - 3), at + 3);
}

/** @type {import("../../chrome/scene_host.js").SceneModule} */
export const reinforcementScene = {
  offered: ({ run }) => rlRoles(run) !== null,
  source: updatesOf,
  tellsRun: true,
  meaning: (run) => {
    const roles = rlRoles(run);
    return roles && rlMeaning(run, roles);
  },
  lookNext: ({ run }) =>
    rlRoles(run)
      ? { title: "See who plays and who learns", what: "how old experience and parameters are" }
      : null,
  build: (body, stage) => new RlView(body, stage),
};

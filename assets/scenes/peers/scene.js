// @ts-check
/**
 * Replicas that differ and mix: who mixes with whom, what is on its way, how far each is from the
 * mean of all; beside it how that went, iteration by iteration, and what each rank has sent for it.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("./draw.js").PeersSeen} PeersSeen
 */
import { KeyRow } from "../../drawing/key_row.js";
import { doingAt } from "../../engine/rank_activity.js";
import { scoreHeight } from "../../drawing/lanes.js";
import { drawSent, drawSpread, sentOf, sentWords, spreadAtX, spreadAxes } from "./charts.js";
import { drawPeers } from "./draw.js";
import { peersFrame } from "./frame.js";
import { mixedIn, mixes, peerFacts, peersIndexOf } from "./index.js";
import { peersBefell } from "./befell.js";
import { peersKeys, spreadKeys } from "./legend.js";
import { peersMarks } from "./marks.js";
import { PeersPointer } from "./pointer.js";
import { peersPlace } from "./place.js";
import { mixingsOf } from "./call_source.js";
import { drawPeersScore } from "./score.js";
import { countUntil } from "../../engine/search.js";
import { factWords, lastMixed, peersSentence, spokenPeers } from "./captions.js";
import { togetherWords } from "../../engine/run_words.js";

const MOMENTS = 2; // lines of what happened last
const SPREAD_HIGH = 232;

const PEERS_BODY = `<div class="wb-pe-grid">
  <div><h3>Who mixes with whom <small>and how far each is from the mean</small></h3><div class="wb-pe-picture"><canvas class="wb-pe" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Ranks"></div></div></div>
  <div><section><h3>Disagreement <small class="wb-pe-of"></small></h3><canvas class="wb-pe-spread" role="img"></canvas><p class="wb-key"></p></section>
    <section><h3>Sent by each rank <small class="wb-pe-bound"></small></h3><canvas class="wb-pe-sent" role="img"></canvas></section></div></div>
  <p class="wb-key wb-pe-key"></p><p class="wb-co-fact wb-pe-fact"></p>
  <ol class="wb-story wb-co-story" aria-label="The last moments up to the playhead"></ol><div class="wb-co-tip" hidden></div><p class="wb-sr" role="status"></p>`;

class PeersView {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.body = body;
    this.stage = stage;
    body.innerHTML = PEERS_BODY;
    const $ = (/** @type {string} */ selector) => /** @type {any} */ (body.querySelector(selector));
    this.canvas = /** @type {HTMLCanvasElement} */ ($(".wb-pe"));
    this.spread = /** @type {HTMLCanvasElement} */ ($(".wb-pe-spread"));
    this.sent = /** @type {HTMLCanvasElement} */ ($(".wb-pe-sent"));
    this.grid = /** @type {HTMLElement} */ ($(".wb-pe-grid"));
    this.fact = /** @type {HTMLElement} */ ($(".wb-pe-fact"));
    this.bound = /** @type {HTMLElement} */ ($(".wb-pe-bound"));
    this.story = /** @type {HTMLElement} */ ($(".wb-story"));
    this.keys = [new KeyRow($(".wb-pe-key")), new KeyRow($("section .wb-key"))];
    this.story.append(
      ...Array.from({ length: MOMENTS }, () =>
        Object.assign(document.createElement("li"), { innerHTML: "<span></span><em></em>" }),
      ),
    );
    this.seen = /** @type {PeersSeen | null} */ (null);
    this.pointer = new PeersPointer(body, stage, () => this.seen);
    this.charted = "";
    this.averaged = { key: "", all: /** @type {number[]} */ ([]) };
    this.score = {
      height: (/** @type {Look} */ look) => scoreHeight(look.ranks),
      draw: (/** @type {CanvasRenderingContext2D} */ g, /** @type {Look} */ look) =>
        drawPeersScore(g, look),
    };
    this.spread.onclick = ({ offsetX }) => this.#goToSpread(offsetX);
  }

  /** Width of the picture: beside the charts, or above them. @param {number} width */
  #width = (width) => (width >= 728 ? Math.round(width * 0.48) : width);

  /** What is on screen at this look. @param {Look} look @returns {PeersSeen} */
  #see(look) {
    const { known, table, ranks, t } = look;
    const iterations = known.run?.iterations ?? -1;
    const index = peersIndexOf(known);
    const facts = peerFacts(known.run);
    const frame = peersFrame(index, facts, t, ranks, iterations);
    const befell = peersBefell(look);
    const doings = doingAt(table, ranks, t, false, known.run)
      .map((doing) => ({ ...doing, halo: false }))
      .map((doing) =>
        frame.peers[doing.rank].lost
          ? { ...doing, mark: /** @type {const} */ ("killed"), waits: 0, words: "lost" }
          : (befell.get(doing.rank) ??
            (iterations > 0 && frame.peers[doing.rank].done >= iterations
              ? {
                  ...doing,
                  mark: /** @type {const} */ ("ended"),
                  halo: false,
                  waits: 0,
                  words: "all done",
                }
              : doing)),
      );
    const place = peersPlace(ranks, this.#width(look.width));
    const columns = place.width < look.width ? `${place.width}px minmax(0, 1fr)` : "minmax(0, 1fr)";
    if (this.grid.style.gridTemplateColumns !== columns)
      this.grid.style.gridTemplateColumns = columns; // before a chart asks how wide it is
    return { place, frame, index, facts, doings };
  }

  // ---- drawing

  /** @param {Look} look */
  draw(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look));
    const { place } = seen;
    drawPeers(this.stage.paper(this.canvas, place.width, place.height), look, seen);
    this.pointer.placeSpots(seen);
  }

  /** The charts, at the pace of the texts. @param {Look} look @param {PeersSeen} seen */
  #drawCharts(look, { index, frame, facts }) {
    const { ink, font, ratio, known, choice, t, held } = look;
    const iterations = known.run?.iterations ?? -1;
    const chosen = choice?.rank ?? -1;
    const key = [
      index.version,
      t,
      look.width,
      ratio,
      ink.ground,
      ink.wait,
      chosen,
      iterations,
      held,
    ].join();
    if (key === this.charted) return;
    this.charted = key;
    const chart = (/** @type {HTMLCanvasElement} */ canvas, /** @type {number} */ height) => {
      const width = canvas.clientWidth || 300;
      return { g: this.stage.paper(canvas, width, height), ink, font, ratio, width, height };
    };
    const theory =
      known.run?.theory?.[`all_reduce/${known.run.algorithm}`] ??
      known.run?.theory?.["all_reduce/ring"];
    const sent = sentOf(index, frame, theory?.share ?? 0);
    drawSpread(
      chart(this.spread, SPREAD_HIGH),
      index,
      frame,
      facts,
      iterations,
      chosen,
      held,
      (facts?.every ?? 1) > 1 ? this.#averaged(look, index) : [],
    );
    drawSent(
      chart(this.sent, frame.peers.length > 8 ? 128 : Math.max(34, 4 + 17 * frame.peers.length)),
      sent,
      chosen,
    );
    this.bound.textContent = sent.some((one) => one.bound > 0)
      ? "hairline: with an all-reduce in every iteration"
      : "up to the playhead";
    this.spread.setAttribute(
      "aria-label",
      frame.at
        ? "Root mean square of the distances from the mean, after iteration " +
            `${index.spreads[frame.at - 1].iteration + 1}: about ` +
            `${index.spreads[frame.at - 1].rms.toPrecision(2)}`
        : "Disagreement: nothing yet",
    );
    this.sent.setAttribute("aria-label", sentWords(sent));
  }

  /**
   * Iterations in which replicas mixed: all took their mean, or sent each other something.
   * @param {Look} look
   * @param {import("./index.js").PeersIndex} index
   */
  #averaged({ table }, index) {
    const key = `${table.life} ${table.calls.length} ${index.version}`;
    if (this.averaged.key !== key) this.averaged = { key, all: [...mixedIn(table, index)] };
    return this.averaged.all;
  }

  /** Go to the iteration at a place of the chart of disagreement. @param {number} x */
  #goToSpread(x) {
    const { known, playback } = this.stage;
    const { spreads } = peersIndexOf(known);
    const axes = spreadAxes(
      this.spread.clientWidth,
      SPREAD_HIGH,
      known.run?.iterations ?? -1,
      spreads,
      peerFacts(known.run),
    );
    const spread = spreads[countUntil(spreads, spreadAtX(axes, x), (one) => one.iteration) - 1];
    if (spread) playback.goto(spread.t);
  }

  // ---- words

  /** @param {Look} look */
  say(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look));
    const { frame, index, facts } = seen;
    const put = (/** @type {Element} */ node, /** @type {string} */ text) =>
      node.textContent !== text && (node.textContent = text);
    const lines = lastMixed(index, look.t, MOMENTS);
    [...this.story.children].forEach((item, i) => {
      const [when, what] = lines[i - MOMENTS + lines.length] ?? ["", ""];
      item.classList.toggle("newest", i === MOMENTS - 1);
      put(item.children[0], when);
      put(item.children[1], what);
    });
    put(
      /** @type {Element} */ (this.body.querySelector(".wb-pe-of")),
      facts?.synchronous === false
        ? "distance from the mean, when the slowest had done an iteration"
        : "distance from the mean of the replicas, by iteration",
    );
    put(this.fact, factWords(frame, facts, index));
    this.keys[0].show(peersKeys(look, seen), look);
    this.keys[1].show(spreadKeys(look, seen, (facts?.every ?? 1) > 1), look);
    this.#drawCharts(look, seen);
    this.canvas.setAttribute("aria-label", spokenPeers(frame, facts));
    this.pointer.pointed.say();
  }

  /** @param {Look} look */
  title({ known }) {
    return known.run?.title || "Replicas that mix";
  }

  /** @param {Look} look */
  sentence(look) {
    const { frame, facts, doings, index } = this.#see(look);
    return peersSentence(
      look.known,
      index.present ? frame : null,
      facts,
      doings,
      look.live || look.t >= look.table.to - 1,
    );
  }

  /** @param {Look} look */
  marks(look) {
    return peersMarks(look, this.#see(look));
  }

  /**
   * The next message that arrives, iteration that all have done, or mixing.
   * @param {Look} look
   * @param {string} unit
   * @param {number} way
   */
  step(look, unit, way) {
    const mixings = mixingsOf(look.known);
    if (!mixings || unit === "chunk") return null;
    const { spreads } = peersIndexOf(look.known);
    const at = countUntil(spreads, look.t, (one) => one.t);
    const times =
      unit === "iteration"
        ? mixings.calls.map((mixing) => mixing.start)
        : spreads.slice(Math.max(0, at - 3), at + 3).map((one) => one.t);
    return (
      (way > 0 ? times.find((v) => v > look.t + 0.5) : times.findLast((v) => v < look.t - 0.5)) ??
      look.t
    );
  }

  end() {
    this.pointer.pointed.place = null;
  }
}

/** @type {import("../../chrome/scene_host.js").SceneModule} */
export const peersScene = {
  offered: mixes,
  source: mixingsOf,
  meaning: (run) => {
    const words = peerFacts(run)?.words;
    return words ? [togetherWords(run.ranks), words] : null;
  },
  tellsRun: true,
  lookNext: ({ run }) =>
    run?.peers
      ? { title: "See who mixes with whom", what: "how far each replica is from the mean of all" }
      : null,
  build: (body, stage) => new PeersView(body, stage),
};

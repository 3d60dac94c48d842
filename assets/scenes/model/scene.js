// @ts-check
/**
 * The model in parts: its layers in bands of stages, what crosses each cut as it was planned and as
 * it was measured, the time of each stage and the memory of each rank. Long models show folded
 * blocks; the line above shows the whole cut always.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("./draw.js").GraphSeen} GraphSeen
 */
import { Chart } from "../../drawing/chart.js";
import { KeyRow } from "../../drawing/key_row.js";
import {
  STRIP_HIGH,
  drawMemory,
  drawStageTimes,
  drawModelLine,
  chartHeight,
  memoryOf,
} from "./charts.js";
import { cometSpot, drawPicture, weightOf } from "./draw.js";
import { blocksOf, foldedWords, isFolded, modelOf, placeOfStage } from "./fold.js";
import { FoldedLayout } from "./folded_layout.js";
import { keysOf } from "./legend.js";
import { marksOf } from "./marks.js";
import { GraphPointer } from "./pointer.js";
import { shardingOf } from "./shards.js";
import { trafficOf } from "./traffic.js";
import { failedHere } from "../../engine/failure_caption.js";
import { isOver } from "../../engine/player.js";
import { sentenceOf, layersWord } from "./captions.js";

const BODY = `<canvas class="wb-mg-strip" role="img"></canvas>
  <p class="wb-mg-bar"><span></span><button>Fold blocks</button><button>Open blocks</button></p>
  <div class="wb-mg-scroll"><div class="wb-mg-picture"><canvas class="wb-mg" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Stages, layers and cuts"></div></div></div>
  <p class="wb-key"></p>
  <div class="wb-mg-charts">
    <section><h3>Time by stage <small>of a microbatch, as measured before the cut</small></h3><canvas class="wb-mg-times" role="img"></canvas></section>
    <section><h3><span>Memory by rank</span> <small></small></h3><canvas class="wb-mg-memory" role="img"></canvas></section>
  </div><div class="wb-co-tip" hidden></div><p class="wb-sr" role="status"></p>`;

class ModelView {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.body = body;
    this.stage = stage;
    body.innerHTML = BODY;
    const $ = (/** @type {string} */ selector) => /** @type {any} */ (body.querySelector(selector));
    this.canvas = /** @type {HTMLCanvasElement} */ ($(".wb-mg"));
    this.strip = /** @type {HTMLCanvasElement} */ ($(".wb-mg-strip"));
    this.times = /** @type {HTMLCanvasElement} */ ($(".wb-mg-times"));
    this.memory = /** @type {HTMLCanvasElement} */ ($(".wb-mg-memory"));
    this.scroll = /** @type {HTMLElement} */ ($(".wb-mg-scroll"));
    this.bar = /** @type {HTMLElement} */ ($(".wb-mg-bar"));
    this.keys = new KeyRow($(".wb-key"));
    this.seen = /** @type {GraphSeen | null} */ (null);
    this.folded = new FoldedLayout();
    this.pointer = new GraphPointer(
      body,
      stage,
      this.folded,
      () => this.seen,
      () => this.draw(stage.look(performance.now())),
    );
    this.charted = "";
  }

  // ---- what is on screen

  /** @param {Look} look @returns {GraphSeen | null} */
  #see(look) {
    const { run } = look.known;
    const model = modelOf(run);
    if (!model || !(look.width > 0)) return null;
    const laid = this.folded.of(model, look.width);
    const traffic = trafficOf(look.table);
    const timed = model.layers.some((l) => l.forward + l.backward > 0);
    const ranks = Array.from({ length: model.stages }, (_, s) => placeOfStage(run, s));
    const comets = traffic
      .flying(look.t)
      .filter((p) => laid.place.cuts[p.cut])
      .map((p) => ({ ...p, ...cometSpot(laid.place, p) }));
    const rank = look.choice?.rank;
    const places = 1 + Math.max(...ranks);
    const chosen = {
      stages: new Set(
        rank === undefined || this.pointer.choice.cut >= 0
          ? []
          : ranks.flatMap((r, s) => (r === rank % places ? [s] : [])),
      ),
      ...this.pointer.choice,
    };
    return {
      model,
      ...laid,
      slowest: Math.max(...laid.nodes.map((n) => weightOf(n, timed))),
      timed,
      ranks,
      crossed: traffic.iterationAt(look.t, isOver(look.known)),
      comets,
      chosen,
      pointed: this.pointer.pointed.place?.hit ?? null,
    };
  }

  /** @param {Look} look */
  draw(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look));
    if (!seen) return void this.stage.paper(this.canvas, look.width, 120);
    drawPicture(this.stage.paper(this.canvas, look.width, seen.place.height), look, seen);
    const picked =
      seen.nodes.find((n) => n.key === this.pointer.choice.node)?.layers[0].index ?? -1;
    const { clientHeight: high, scrollTop: top, scrollHeight: whole } = this.scroll;
    const inSight =
      whole > high + 4
        ? seen.place.bands.filter((b) => b.top + b.height > top + 8 && b.top < top + high - 8)
        : [];
    drawModelLine(
      new Chart({
        ...look,
        g: this.stage.paper(this.strip, look.width, STRIP_HIGH),
        height: STRIP_HIGH,
      }),
      seen.model,
      seen.ranks,
      seen.timed,
      inSight.length ? [inSight[0].stage, inSight[inSight.length - 1].stage] : null,
      picked,
    );
    this.pointer.placeSpots(seen);
  }

  /** The charts, at the pace of the texts. @param {Look} look @param {GraphSeen} seen */
  #drawCharts(look, { model, ranks, timed }) {
    const { ink, font, ratio, known, t } = look;
    const traffic = trafficOf(look.table);
    const limit = known.run?.memory_limit ?? null;
    const holdings = memoryOf(model, ranks, known.run, traffic, t);
    const key = [
      model.key.length,
      ranks,
      look.width,
      ratio,
      ink.ground,
      ink.wait,
      limit,
      JSON.stringify(holdings),
    ].join();
    if (key === this.charted) return;
    this.charted = key;
    const chart = (/** @type {HTMLCanvasElement} */ canvas, /** @type {number} */ rows) => {
      const width = canvas.clientWidth || 300;
      const height = chartHeight(rows);
      return new Chart({
        g: this.stage.paper(canvas, width, height),
        ink,
        font,
        ratio,
        width,
        height,
      });
    };
    /** @type {HTMLElement} */ (this.times.parentElement).hidden = !timed || model.stages < 2;
    if (timed && model.stages > 1) drawStageTimes(chart(this.times, model.stages), model, ranks);
    drawMemory(chart(this.memory, holdings.length), holdings, limit);
    const held = holdings.filter((h) => Number.isFinite(h.most));
    const small = /** @type {HTMLElement} */ (this.memory.parentElement?.querySelector("small"));
    small.textContent = held.length
      ? "most so far, above what is planned"
      : shardingOf(model)
        ? "parameters of its parts"
        : model.memory
          ? "planned"
          : known.run?.pipeline
            ? "planned, without gradients and the optimizer's state"
            : "parameters, and activations of one microbatch";
    this.times.setAttribute("aria-label", sentenceOf(model, null));
    this.memory.setAttribute(
      "aria-label",
      held.length
        ? held
            .map((h) => `rank ${h.rank}: ${h.most} bytes${limit ? ` of ${limit}` : ""}`)
            .join("; ")
        : "no memory measured yet",
    );
  }

  /** @param {Look} look */
  say(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look));
    const [fold, open] = this.bar.querySelectorAll("button");
    const words = /** @type {HTMLElement} */ (this.bar.firstElementChild);
    if (!seen) return;
    const blocks = blocksOf(seen.model);
    const folded = blocks.filter((b) => isFolded(seen.model, this.folded.shown, b));
    const caption =
      foldedWords(seen.nodes) ||
      (blocks.length
        ? `${layersWord(seen.model.layers.length)}, ` +
          `${blocks.length === 1 ? "one block" : `${blocks.length} blocks`}, none folded`
        : "");
    this.bar.hidden = !blocks.length;
    if (words.textContent !== caption) words.textContent = caption;
    /** @type {HTMLButtonElement} */ (fold).disabled = folded.length === blocks.length;
    /** @type {HTMLButtonElement} */ (open).disabled = !folded.length;
    const traffic = trafficOf(look.table);
    this.keys.show(keysOf(look, seen, traffic.parcels.length > 0, traffic.memory.size > 0), look);
    this.#drawCharts(look, seen);
    this.canvas.setAttribute("aria-label", sentenceOf(seen.model, seen.crossed));
    this.strip.setAttribute(
      "aria-label",
      "The layers in a line, as wide as they take time: " +
        `${layersWord(seen.model.layers.length)} in ${seen.model.stages} stages`,
    );
    this.pointer.pointed.say();
  }

  /** @param {Look} look */
  title({ known }) {
    return known.run?.title || "Model";
  }

  /** @param {Look} look */
  sentence(look) {
    const model = modelOf(look.known.run);
    const failed = failedHere(look);
    if (failed) return failed;
    return model
      ? sentenceOf(
          model,
          trafficOf(look.table).iterationAt(look.t, isOver(look.known)),
          look.known.run?.padded,
        )
      : "The model is not known yet.";
  }

  /** @param {Look} look */
  marks(look) {
    const seen = this.#see(look);
    return seen ? marksOf(look, seen) : [];
  }

  end() {
    this.pointer.pointed.place = null;
  }
}

/** @type {import("../../chrome/scene_host.js").SceneModule} */
export const modelScene = {
  offered: (known) => modelOf(known.run) !== null,
  build: (body, stage) => new ModelView(body, stage),
};

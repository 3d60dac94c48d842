// @ts-check
/**
 * A sharded model: which layer each rank has whole at the playhead, which parts are on their way,
 * what each rank holds; below it one iteration in true time: the bytes held by rank, and when a
 * rank had which layer whole.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("./draw.js").ShardsSeen} ShardsSeen
 */
import { goneInPicture } from "../../engine/lost_ranks.js";
import { KeyRow } from "../../drawing/key_row.js";
import { takeRank } from "../../chrome/rank_menu.js";
import { drawHeld, drawWhen, shardsHeldWords, shardChartHeight, shardMoment } from "./charts.js";
import { drawShards, frameOf } from "./draw.js";
import { shareOfEach, togetherWords } from "../../engine/run_words.js";
import { shardFacts, shardsFrame } from "./frame.js";
import { shardsIndexOf } from "./index.js";
import { shardKeys } from "./legend.js";
import { bytesScale, shardTop, shardsPlace, underShards } from "./place.js";
import { shardingsOf } from "./call_source.js";
import {
  shardCellWords,
  holderWords,
  shardFactsWords,
  shardsSentence,
  spokenShards,
} from "./captions.js";
import { PointedPlace } from "../../drawing/pointed_place.js";
import { walkWithArrows } from "../../drawing/tooltip.js";

const SHARDS_BODY = `<div class="wb-ps-picture"><canvas class="wb-sh" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Ranks"></div></div>
  <p class="wb-key"></p>
  <div class="wb-pl-below">
    <section><h3>Held of the model <small>by rank; hairline: unsharded</small></h3><canvas class="wb-sh-held" role="img"></canvas></section>
    <section><h3><span>When it has which layer whole</span> <small>upper: arrives; lower: gradients</small></h3><canvas class="wb-sh-when" role="img"></canvas></section>
  </div>
  <div class="wb-co-tip" hidden></div><p class="wb-sr" role="status"></p>`;

/**
 * Whether layers are sharded in what is known.
 * @param {import("../../engine/player.js").Known} known
 */
export const shards = (known) =>
  known.run?.strategy === "fsdp" || !!known.run?.shards || shardsIndexOf(known.table).present;

class ShardsView {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.body = body;
    this.stage = stage;
    body.innerHTML = SHARDS_BODY;
    this.canvas = /** @type {HTMLCanvasElement} */ (this.$("canvas.wb-sh"));
    this.held = /** @type {HTMLCanvasElement} */ (this.$(".wb-sh-held"));
    this.when = /** @type {HTMLCanvasElement} */ (this.$(".wb-sh-when"));
    this.spots = /** @type {HTMLElement} */ (this.$(".wb-co-spots"));
    this.keys = new KeyRow(this.$(".wb-key"));
    this.seen = /** @type {ShardsSeen | null} */ (null);
    this.span = { start: 0, end: 1 };
    this.pointed = new PointedPlace(body, this.canvas, ({ x, y }) => this.#linesUnder(x, y));
    this.charted = "";
    this.#listen();
  }

  /** @param {string} selector @returns {any} */
  $(selector) {
    return this.body.querySelector(selector);
  }

  /** @param {Look} look @returns {ShardsSeen | null} */
  #see({ known, table, t, width }) {
    const index = shardsIndexOf(table);
    const ranks = known.run?.ranks || index.holders.size;
    const facts = shardFacts(known.run);
    if (!(width > 0) || !ranks || (!facts && !index.present)) return null;
    const frame = shardsFrame(index, facts, ranks, t);
    const place = shardsPlace(width, ranks, frame.layers);
    return {
      frame,
      place,
      scale: bytesScale(
        Math.max(
          1,
          frame.unsharded,
          ...[...index.holders.values()].map((holder) => mostHeldIn(holder.held.bytes)),
        ),
      ),
    };
  }

  // ---- drawing

  /** @param {Look} look */
  draw(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look));
    if (seen) {
      drawShards(
        this.stage.paper(this.canvas, look.width, seen.place.height),
        look,
        seen,
        goneInPicture(look),
      );
      this.#placeSpots(seen);
      return;
    }
    const ranks = look.known.run?.ranks || 4;
    const place = shardsPlace(
      look.width,
      ranks,
      Array.from({ length: 5 }, () => ({ name: "", kind: "", bytes: 1, parts: [] })),
    );
    const g = this.stage.paper(this.canvas, look.width, place.height);
    for (let rank = 0; rank < ranks; rank++)
      // the places are there before anything happens
      for (const { x, w } of place.columns)
        frameOf(g, look.ink.rule, 1, x, shardTop(place, rank), w, place.cell);
  }

  /** The charts, at the pace of the texts. @param {Look} look @param {ShardsSeen} seen */
  #drawCharts(look, { frame }) {
    const { ink, font, ratio, known, choice, t, table } = look;
    const shardings = shardingsOf(known);
    const head = shardings?.callAt(t);
    const index = shardsIndexOf(table);
    if (!head) return;
    this.span = { start: head.start, end: head.end };
    const chosen =
      choice?.rank !== undefined && choice.rank < frame.holders.length ? choice.rank : -1;
    const key = [index.version, t, look.width, ratio, ink.ground, chosen].join();
    if (key === this.charted) return;
    this.charted = key;
    const height = shardChartHeight(frame.layers.length);
    const chart = (/** @type {HTMLCanvasElement} */ canvas) => {
      const width = canvas.clientWidth || 400;
      return { g: this.stage.paper(canvas, width, height), ink, font, ratio, width, height };
    };
    drawHeld(chart(this.held), index, frame, this.span, t, chosen);
    drawWhen(chart(this.when), index, frame, this.span, t, Math.max(0, chosen));
    this.held.setAttribute("aria-label", shardsHeldWords(index, frame, this.span));
    this.when.setAttribute(
      "aria-label",
      `Iteration ${head.iteration + 1} of rank ${Math.max(0, chosen)}: when it has which layer whole`,
    );
    this.$("h3 span").textContent = `When rank ${Math.max(0, chosen)} has which layer whole`;
  }

  /** Place buttons over the ranks, for readers without a pointer. @param {ShardsSeen} seen */
  #placeSpots({ place, frame }) {
    if (this.spots.dataset.key === place.key) return;
    this.spots.dataset.key = place.key;
    this.spots.replaceChildren(
      ...frame.holders.map(({ rank }) => {
        const y = place.top + rank * place.row;
        const box = { x: 0, y, w: place.left - 4, h: place.row };
        const middle = { x: place.left / 2, y: y + place.row / 2 };
        const button = this.pointed.spot(box, `rank ${rank}`, middle, () => this.#take(rank));
        button.style.borderRadius = "3px";
        button.dataset.rank = String(rank);
        return button;
      }),
    );
  }

  // ---- words

  /** @param {Look} look */
  say(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look));
    if (seen) {
      this.keys.show(shardKeys(look, seen, goneInPicture(look).length > 0), look);
      this.#drawCharts(look, seen);
    }
    this.canvas.setAttribute(
      "aria-label",
      seen ? spokenShards(seen.frame) : "Ranks and layers; nothing has been gathered yet",
    );
    this.pointed.say();
  }

  /** @param {Look} look */
  title({ known }) {
    return [known.run?.title || "FSDP", shardFactsWords(shardFacts(known.run))]
      .filter(Boolean)
      .join(" · ");
  }

  /** @param {Look} look */
  sentence(look) {
    return shardsSentence(
      look.known,
      this.#see(look)?.frame ?? null,
      look.choice?.rank ?? -1,
      look.live || look.t >= look.table.to - 1,
    );
  }

  /** @param {Look} look */
  marks(look) {
    const seen = this.#see(look);
    const playhead = look.t + look.known.origin;
    if (!seen) return [];
    const { frame, place } = seen;
    return frame.holders.flatMap(({ rank, layers, held, active, peak }) => [
      ...layers.map((layer, l) => ({
        mark: "layer",
        rank,
        layer: layer.name,
        state: layer.state,
        held: layer.held,
        arrived: layer.arrived,
        x: place.columns[l].x,
        y: shardTop(place, rank),
        playhead,
      })),
      {
        mark: "held",
        rank,
        held,
        active,
        peak,
        unsharded: frame.unsharded,
        x: place.memory.x,
        y: shardTop(place, rank),
        playhead,
      },
    ]);
  }

  /**
   * The next moment at which some layer is gathered or freed, or iteration.
   * @param {Look} look
   * @param {string} unit
   * @param {number} way
   */
  step(look, unit, way) {
    const shardings = shardingsOf(look.known);
    const head = shardings?.callAt(look.t);
    if (!shardings || !head) return null;
    const near = shardings.calls.slice(
      Math.max(0, shardings.indexOf(head) - 1),
      shardings.indexOf(head) + 2,
    );
    const times =
      unit === "iteration"
        ? near.map((one) => one.start)
        : near.flatMap((one) => shardings.open(one.key)?.moments.map((t) => one.start + t) ?? []);
    return (
      (way > 0 ? times.find((v) => v > look.t + 0.5) : times.findLast((v) => v < look.t - 0.5)) ??
      look.t
    );
  }

  // ---- under the pointer, or the keyboard

  #listen() {
    const { canvas } = this;
    this.pointed.follow(this.stage.root, (place) => place);
    canvas.onclick = (event) => {
      const hit = this.#under(event.offsetX, event.offsetY);
      if (!hit) return this.stage.choose(null);
      this.#take(hit.rank);
    };
    for (const chart of [this.held, this.when])
      chart.onclick = (event) =>
        this.stage.playback.goto(shardMoment(this.span, chart.clientWidth, event.offsetX));
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
    return this.seen ? underShards(this.seen.place, this.seen.frame.holders.length, x, y) : null;
  }

  /** @param {number} x @param {number} y @returns {string[]} */
  #linesUnder(x, y) {
    const { seen } = this;
    const hit = this.#under(x, y);
    if (!seen || !hit) return [];
    return hit.layer < 0
      ? holderWords(seen.frame, hit.rank)
      : shardCellWords(seen.frame, hit.rank, hit.layer);
  }

  end() {
    this.pointed.point(null);
  }
}

/** @param {number[]} numbers */
const mostHeldIn = (numbers) => numbers.reduce((a, b) => Math.max(a, b), 0);

/** @type {import("../../chrome/scene_host.js").SceneModule} */
export const shardsScene = {
  offered: shards,
  source: shardingsOf,
  meaning: ({ strategy, ranks }) =>
    strategy === "fsdp"
      ? [
          togetherWords(ranks),
          `Each keeps ${shareOfEach(ranks)} of every layer, and gathers the rest of a layer when ` +
            "it computes with it.",
        ]
      : null,
  lookNext: ({ run }) =>
    run?.shards
      ? { title: "See the shards", what: "which layer is whole where, and what each rank holds" }
      : null,
  build: (body, stage) => new ShardsView(body, stage),
};

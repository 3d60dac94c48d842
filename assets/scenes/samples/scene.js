// @ts-check
/**
 * Samples: which goes to which rank in which minibatch, beside the minibatch of one process; of a
 * run those that its ranks have loaded, up to the playhead, else those that samplers deal out. A
 * page of minibatches at a time.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("./draw.js").DealSeen} DealSeen
 * @typedef {{index: number, row: number, column: number} | null} DealHit
 */
import { KeyRow } from "../../drawing/key_row.js";
import { failedHere } from "../../engine/failure_caption.js";
import { isOver } from "../../engine/player.js";
import { dealOf, dealsSame, iterationsAt, momentOf } from "./deal.js";
import { drawDeal } from "./draw.js";
import { sampleKeys } from "./legend.js";
import { columnAt, dealPlace, pageOf, rowAt, underDeal } from "./place.js";
import {
  chosenSampleWords,
  dealSentence,
  partLinesOf,
  sampleLines,
  shownWords,
} from "./captions.js";
import { PointedPlace } from "../../drawing/pointed_place.js";
import { walkWithArrows } from "../../drawing/tooltip.js";

const SAMPLES_BODY = `<p class="wb-sm-bar"><span></span><button>◂ Earlier</button><button>Later ▸</button><button>To the playhead</button></p>
  <div class="wb-sm-picture"><canvas class="wb-sm" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Minibatches, rank by rank"></div></div>
  <p class="wb-key"></p>
  <dl class="wb-sm-chosen"><dt>selected</dt><dd></dd></dl>
  <table class="wb-sm-laws"><tbody></tbody></table><div class="wb-co-tip" hidden></div><p class="wb-sr" role="status"></p>`;

class SamplesView {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.body = body;
    this.stage = stage;
    body.innerHTML = SAMPLES_BODY;
    const $ = (/** @type {string} */ selector) => /** @type {any} */ (body.querySelector(selector));
    this.canvas = /** @type {HTMLCanvasElement} */ ($(".wb-sm"));
    this.bar = /** @type {HTMLElement} */ ($(".wb-sm-bar"));
    this.spots = /** @type {HTMLElement} */ ($(".wb-co-spots"));
    this.laws = /** @type {HTMLElement} */ ($(".wb-sm-laws tbody"));
    this.keys = new KeyRow($(".wb-key"));
    this.page = /** @type {number | null} */ (null); // the reader's own; null follows the playhead
    this.sample = -1;
    this.seen = /** @type {DealSeen | null} */ (null);
    this.pointed = new PointedPlace(
      body,
      this.canvas,
      (/** @type {{x: number, y: number, hit: DealHit}} */ { hit }) => this.#lines(hit),
    );
    this.#listen();
  }

  /** @param {Look} look @returns {DealSeen | null} */
  #see(look) {
    const deal = dealOf(look.known.run);
    if (!deal || !(look.width > 0)) return null;
    const runs = !look.known.run?.alone;
    const at = runs ? iterationsAt(look.table, deal.ranks, look.t) : deal.ranks.map(() => -1);
    const first = dealPlace(deal, look.width, 0);
    const current = Math.max(
      0,
      Math.min(deal.batches.length - 1, Math.min(...at.filter((i) => i >= 0), Infinity)),
    );
    const page = this.page ?? (runs ? pageOf(first, at.some((i) => i >= 0) ? current : 0) : 0);
    return {
      deal,
      at,
      runs,
      sample: this.sample,
      rank: look.choice?.rank ?? -1,
      place: page === first.page ? first : dealPlace(deal, look.width, page),
    };
  }

  /** @param {Look} look */
  draw(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look));
    if (!seen) return this.#drawEmpty(look);
    drawDeal(this.stage.paper(this.canvas, look.width, seen.place.height), look, seen);
    this.#placeSpots(seen);
  }

  /** The places are there before anything is known. @param {Look} look */
  #drawEmpty(look) {
    const g = this.stage.paper(this.canvas, look.width, 40 + look.ranks * 21);
    g.fillStyle = look.ink.track;
    for (let row = 0; row <= Math.min(64, look.ranks); row++)
      g.fillRect(78, 20 + row * 21, look.width - 80, 2);
  }

  /** @param {Look} look */
  say(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look));
    const [words, earlier, later, follow] = /** @type {any} */ (this.bar.children);
    const put = (/** @type {Element} */ node, /** @type {string} */ text) =>
      node.textContent !== text && (node.textContent = text);
    this.canvas.setAttribute("aria-label", this.sentence(look));
    if (!seen) return;
    const { deal, place, runs } = seen;
    const { panels } = place;
    put(words, shownWords(deal, panels[0].index, panels[panels.length - 1].index));
    earlier.hidden = later.hidden = place.pages < 2;
    earlier.disabled = place.page === 0;
    later.disabled = place.page === place.pages - 1;
    follow.hidden = !runs || place.pages < 2;
    follow.disabled = this.page === null;
    this.keys.show(sampleKeys(look, seen), look);
    put(
      /** @type {Element} */ (this.body.querySelector(".wb-sm-chosen dd")),
      this.sample < 0
        ? "click a sample to see where it is taken; ↑ ↓ lead from part to part"
        : chosenSampleWords(deal, this.sample),
    );
    const laws = deal.facts.laws ?? [];
    const key = JSON.stringify(laws);
    if (this.laws.dataset.key !== key) {
      this.laws.dataset.key = key;
      this.laws.replaceChildren(
        ...laws.map(({ name, holds, words: why }) => {
          const line = document.createElement("tr");
          line.append(
            ...[holds ? "✓" : "≠", name, why].map((text) =>
              Object.assign(document.createElement("td"), { textContent: text }),
            ),
          );
          line.className = holds ? "holds" : "";
          line.children[0].setAttribute("aria-label", holds ? "holds" : "does not hold");
          return line;
        }),
      );
    }
    this.pointed.say();
  }

  /** @param {Look} look */
  title({ known }) {
    return known.run?.title || "Samples";
  }

  /** @param {Look} look */
  sentence(look) {
    const deal = dealOf(look.known.run);
    const runs = !look.known.run?.alone;
    const failed = failedHere(look);
    if (failed) return failed;
    if (!deal && isOver(look.known))
      return "This record does not say which samples its ranks took.";
    return dealSentence(
      deal,
      deal && runs ? iterationsAt(look.table, deal.ranks, look.t) : [],
      runs,
    );
  }

  /** The next minibatch. @param {Look} look @param {string} unit @param {number} way */
  step(look, unit, way) {
    const deal = dealOf(look.known.run);
    if (!deal || unit !== "iteration") return null;
    return momentOf(look.table, Math.max(...iterationsAt(look.table, deal.ranks, look.t)) + way);
  }

  /** @param {Look} look */
  marks(look) {
    const seen = this.#see(look);
    const marks = /** @type {any[]} */ ([]);
    if (!seen) return marks;
    const { deal, place, at, runs } = seen;
    for (const { index, x, y } of place.panels) {
      const batch = deal.batches[index];
      marks.push({
        mark: "minibatch",
        minibatch: index,
        epoch: batch.epoch,
        number: batch.number,
        same: dealsSame(batch),
        x,
        y,
        w: place.panel,
      });
      batch.columns.forEach(({ sample, alone, takers }, k) => {
        const left = columnAt(place, x, k, batch.wide);
        if (alone)
          marks.push({
            mark: "alone",
            minibatch: index,
            sample,
            taken: takers.length > 0,
            x: left,
            y,
            w: place.cell,
            h: place.head,
          });
        for (const { row, place: number, again } of takers)
          marks.push({
            mark: "sample",
            minibatch: index,
            rank: deal.ranks[row],
            sample,
            number,
            again,
            extra: !alone,
            later: runs && index > at[row],
            x: left,
            y: rowAt(place, y, row),
            w: place.cell,
            h: place.row,
          });
      });
      if (runs)
        at.forEach(
          (i, row) =>
            i === index &&
            marks.push({
              mark: "here",
              rank: deal.ranks[row],
              minibatch: index,
              x,
              y: rowAt(place, y, row),
            }),
        );
    }
    return marks;
  }

  // ---- under the pointer, or the keyboard

  #listen() {
    const { canvas, bar, stage } = this;
    const [earlier, later, follow] = /** @type {any} */ (bar.querySelectorAll("button"));
    const turn = (/** @type {number} */ way) => {
      this.page = Math.max(
        0,
        Math.min((this.seen?.place.pages ?? 1) - 1, (this.seen?.place.page ?? 0) + way),
      );
      stage.touch();
    };
    earlier.onclick = () => turn(-1);
    later.onclick = () => turn(1);
    follow.onclick = () => {
      this.page = null;
      stage.touch();
    };
    this.pointed.follow(stage.root, ({ x, y }) => ({ x, y, hit: this.#under(x, y) }));
    canvas.onclick = ({ offsetX: x, offsetY: y }) => this.#take(this.#under(x, y));
    walkWithArrows(this.spots);
  }

  /** Choose the sample, and the rank: every other view shows it too. @param {DealHit} hit */
  #take(hit) {
    const { seen, stage } = this;
    const column =
      hit && hit.column >= 0 ? seen?.deal.batches[hit.index].columns[hit.column] : undefined;
    this.sample = column && column.sample !== this.sample ? column.sample : -1;
    stage.choose(hit && seen && hit.row >= 0 ? { rank: seen.deal.ranks[hit.row] } : null);
  }

  /** @param {number} x @param {number} y @returns {DealHit} */
  #under(x, y) {
    return this.seen ? underDeal(this.seen.place, this.seen.deal, x, y) : null;
  }

  /** @param {DealHit} hit @returns {string[]} */
  #lines(hit) {
    const { seen } = this;
    const batch = hit && seen?.deal.batches[hit.index];
    if (!hit || !seen || !batch) return [];
    return hit.column >= 0 &&
      (hit.row < 0 || batch.columns[hit.column].takers.some((t) => t.row === hit.row))
      ? sampleLines(seen.deal, batch, hit.column, hit.row)
      : partLinesOf(seen.deal, batch, hit.row);
  }

  /**
   * Place buttons over each part, for readers without a pointer; arrows go from one to the next.
   * @param {DealSeen} seen
   */
  #placeSpots({ place, deal }) {
    const key = `${place.key} ${deal.facts.sampler} ${deal.ranks.join()}`;
    if (this.spots.dataset.key === key) return;
    this.spots.dataset.key = key;
    const buttons = /** @type {HTMLElement[]} */ ([]);
    for (const { index, x, y } of place.panels)
      for (let row = -1; row < place.rows; row++) {
        const hit = { index, row, column: -1 };
        const top = rowAt(place, y, row);
        const tall = row < 0 ? place.head : place.row;
        const button = this.pointed.spot(
          { x, y: top, w: place.panel, h: tall },
          `minibatch ${index}, ${row < 0 ? "one process" : `rank ${deal.ranks[row]}`}`,
          { x: x + 20, y: top + tall, hit },
          () => this.#take(hit),
        );
        button.tabIndex = buttons.length ? -1 : 0;
        buttons.push(button);
      }
    this.spots.replaceChildren(...buttons);
  }

  end() {
    this.pointed.place = null;
  }
}

/** @type {import("../../chrome/scene_host.js").SceneModule} */
export const samplesScene = {
  offered: (known) => dealOf(known.run) !== null,
  build: (body, stage) => new SamplesView(body, stage),
};

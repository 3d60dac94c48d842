// @ts-check
/**
 * A scene whose picture is a canvas, from its own parts: `build: canvasView({...})`. The kit has
 * what all of them share: the body, canvases in device pixels, the place under the pointer, buttons
 * for the keyboard, the tooltip, keys, charts below, the last moments in words, steps in time.
 *
 * @typedef {import("./stage.js").Look} Look
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("./stage.js").View} View
 * @typedef {import("../engine/page_state.js").Choice} Choice
 * @typedef {import("../drawing/key_row.js").KeyItem} KeyItem
 * @typedef {{x: number, y: number, w: number, h: number, name: string, rank?: number, hit?: any,
 *   at?: {x?: number, y?: number}, radius?: string}} Spot
 *   a place that the keyboard comes to, by its name; rank: or hit: what is chosen there; at: where
 *   the tooltip points, else its middle
 * @typedef {{x: number, y: number, hit?: any}} Place
 */
/**
 * @template Seen
 * @typedef {{
 *   see(look: Look, view: CanvasView<Seen>): Seen | null,
 *   draw(g: CanvasRenderingContext2D, look: Look, seen: Seen): void,
 *   title(look: Look): string,
 *   sentence(look: Look, seen: Seen | null): string,
 *   marks?(look: Look, seen: Seen): any[],
 *   size?(look: Look, seen: Seen): {width: number, height: number},
 *   empty?(look: Look): {height: number, draw(g: CanvasRenderingContext2D): void},
 *   body?: string, spotsOf?: string, state?(): any,
 *   keys?: Record<string, (look: Look, seen: Seen) => KeyItem[]>,
 *   spots?(seen: Seen): {key: string, all: Spot[]},
 *   under?(seen: Seen, x: number, y: number): any,
 *   lines?(hit: any, seen: Seen, stage: Stage, place: Place): string[],
 *   choose?(hit: any, seen: Seen, view: CanvasView<Seen>): Choice | number | null,
 *   charts?: Record<string, {height: number | ((seen: Seen, look: Look) => number),
 *     draw(chart: Chart, seen: Seen, look: Look): void, words(seen: Seen, look: Look): string,
 *     momentAt?(x: number, width: number, seen: Seen, stage: Stage): number | undefined}>,
 *   chartsKey?(seen: Seen, look: Look): unknown,
 *   story?: (seen: Seen, look: Look, most: number) => string[][], storyOf?: string,
 *   spoken(seen: Seen | null, look: Look): string,
 *   say?(view: CanvasView<Seen>, look: Look, seen: Seen | null): void,
 *   times?(look: Look, unit: string): number[] | null,
 *   step?: View["step"], score?: View["score"], badges?: View["badges"],
 *   listen?(view: CanvasView<Seen>): void
 * }} CanvasPicture
 *   see: what is on screen at a look, null: nothing yet; it has a `place` with `height`, if `size`
 *   does not say it. empty: drawn before there is anything. body: the HTML, if it is not a picture
 *   with keys below; spotsOf: what the buttons over it lead to; state: the view's own. keys,
 *   charts: by selector; where there is no body, charts by their title. under:
 *   what lies at a place; lines: its tooltip; choose: what a click on it, or on nothing, chooses: a
 *   number is a rank, null nothing. momentAt: where a click on a chart leads. story: the last
 *   moments, time and words. times: to which the step keys lead; undefined `step` and `times`: to
 *   those of the calls
 */
import { takeRank } from "./rank_menu.js";
import { Chart } from "../drawing/chart.js";
import { KeyRow } from "../drawing/key_row.js";
import { PointedPlace } from "../drawing/pointed_place.js";
import { walkWithArrows } from "../drawing/tooltip.js";

const MOMENTS = 2; // lines of the last moments
const PICTURE = `<div class="wb-ps-picture"><canvas role="img"></canvas><div class="wb-co-spots" role="group"></div></div>
  <p class="wb-key"></p>`;
const STORY = `<ol class="wb-story wb-co-story" aria-label="The last moments up to the playhead"></ol>`;
const WORDS = `<div class="wb-co-tip" hidden></div><p class="wb-sr" role="status"></p>`;

/** Write a text where it is not there already. @param {Element} node @param {string} text */
export function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * The moment before or after t; t itself where there is none.
 * @param {number[]} times  in order @param {number} t @param {number} way
 */
export const nextMoment = (times, t, way) =>
  (way > 0 ? times.find((v) => v > t + 0.5) : times.findLast((v) => v < t - 0.5)) ?? t;

/**
 * Spots over the names at the left of rows.
 * @param {{top: number, left: number}} place  of the rows
 * @param {number} high  px of a row
 * @param {{rank: number, name: string, at?: Spot["at"], radius?: string}[]} rows
 * @returns {Spot[]}
 */
export const nameSpots = ({ top, left }, high, rows) =>
  rows.map((row, i) => ({ ...row, x: 0, y: top + i * high, w: left - 4, h: high }));

/** The line of a tooltip that tells what a second click does. @param {Stage} stage @param {number} rank */
export const onceMore = (stage, rank) =>
  stage.choice?.rank === rank ? ["once more: freeze it, slow it, kill it"] : [];

/** The last moments in words: their time and what happened, the newest last. */
export class Story {
  /** @param {HTMLElement} list @param {number} [most] */
  constructor(list, most = MOMENTS) {
    this.list = list;
    this.most = most;
    list.append(
      ...Array.from({ length: most }, () =>
        Object.assign(document.createElement("li"), { innerHTML: "<span></span><em></em>" }),
      ),
    );
  }

  /** @param {string[][]} lines */
  say(lines) {
    [...this.list.children].forEach((item, i) => {
      const [when, what] = lines[i - this.most + lines.length] ?? ["", ""];
      item.classList.toggle("newest", i === this.most - 1);
      put(item.children[0], when);
      put(item.children[1], what);
    });
  }
}

/** @template Seen @implements {View} */
export class CanvasView {
  /** @param {HTMLElement} body @param {Stage} stage @param {CanvasPicture<Seen>} how */
  constructor(body, stage, how) {
    this.stage = stage;
    this.how = how;
    this.body = body;
    const BODY = (how.body ?? PICTURE) + (how.story ? STORY : "") + WORDS;
    body.innerHTML = BODY;
    this.spots = this.$(".wb-co-spots");
    if (how.spotsOf) this.spots.setAttribute("aria-label", how.spotsOf);
    if (how.storyOf) this.$(".wb-story").setAttribute("aria-label", how.storyOf);
    this.canvas = /** @type {HTMLCanvasElement} */ (this.spots.previousElementSibling);
    this.keys = Object.entries(how.keys ?? {}).map(
      ([selector, of]) => /** @type {const} */ ([new KeyRow(this.$(selector)), of]),
    );
    this.charts = Object.entries(how.charts ?? {}).map(([name, chart]) => ({
      canvas: /** @type {HTMLCanvasElement} */ (how.body ? this.$(name) : this.#section(name)),
      ...chart,
    }));
    this.story = how.story ? new Story(this.$(".wb-story")) : null;
    this.seen = /** @type {Seen | null} */ (null);
    this.charted = "";
    this.state = how.state?.();
    this.pointed = new PointedPlace(body, this.canvas, (/** @type {Place} */ place) =>
      this.#lines(place),
    );
    if (how.score) this.score = how.score;
    if (how.badges) this.badges = how.badges;
    if (how.step || how.times) this.step = how.step ?? this.#step;
    this.#listen();
  }

  /** @param {string} selector @returns {any} */
  $(selector) {
    return this.body.querySelector(selector);
  }

  /** A chart below the picture, under its name. @param {string} name */
  #section(name) {
    const section = document.createElement("section");
    const canvas = document.createElement("canvas");
    canvas.setAttribute("role", "img");
    const title = Object.assign(document.createElement("h3"), { textContent: name });
    section.append(title, canvas);
    this.$(".wb-key").after(section);
    return canvas;
  }

  /** @param {Look} look */
  draw(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const { how, stage } = this;
    const seen = (this.seen = how.see(look, this));
    if (!seen) {
      const empty = how.empty?.(look);
      if (empty) empty.draw(stage.paper(this.canvas, look.width, empty.height));
      return;
    }
    const { width, height } = how.size?.(look, seen) ?? {
      width: look.width,
      height: /** @type {any} */ (seen).place.height,
    };
    how.draw(stage.paper(this.canvas, width, height), look, seen);
    this.#placeSpots(seen);
  }

  /** Buttons over places, for readers without a pointer; arrows go on to the next. @param {Seen} seen */
  #placeSpots(seen) {
    const { key, all } = this.how.spots?.(seen) ?? { key: "", all: [] };
    if (this.spots.dataset.key === key) return;
    this.spots.dataset.key = key;
    this.spots.replaceChildren(
      ...all.map(({ name, rank, hit = rank, at, radius = "", ...box }) => {
        const place = { x: box.x + box.w / 2, y: box.y + box.h / 2, ...at };
        const button = this.pointed.spot(
          box,
          name,
          rank === undefined ? { ...place, hit } : place,
          () => this.#take(rank === undefined ? hit : null, rank),
        );
        button.style.borderRadius = radius;
        if (rank !== undefined) button.dataset.rank = String(rank);
        return button;
      }),
    );
  }

  /** The charts, at the pace of the texts. @param {Look} look @param {Seen} seen */
  #drawCharts(look, seen) {
    const { ink, font, ratio, t, choice } = look;
    const own = this.how.chartsKey?.(seen, look) ?? "";
    const key = [own, t, look.width, ratio, ink.ground, ink.wait, choice?.rank].join();
    if (key === this.charted) return;
    this.charted = key;
    for (const { canvas, height: high, draw, words } of this.charts) {
      const width = canvas.clientWidth || 300;
      const height = typeof high === "number" ? high : high(seen, look);
      const g = this.stage.paper(canvas, width, height);
      draw(new Chart({ g, ink, font, ratio, width, height }), seen, look);
      canvas.setAttribute("aria-label", words(seen, look));
    }
  }

  /** @param {Look} look */
  say(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const { how } = this;
    const seen = (this.seen = how.see(look, this));
    this.story?.say(seen ? (how.story?.(seen, look, MOMENTS) ?? []) : []);
    how.say?.(this, look, seen);
    if (seen) {
      for (const [row, of] of this.keys) row.show(of(look, seen), look);
      if (this.charts.length) this.#drawCharts(look, seen);
    }
    this.canvas.setAttribute("aria-label", how.spoken(seen, look));
    this.pointed.say();
  }

  /** @param {Look} look */
  title(look) {
    return this.how.title(look);
  }

  /** @param {Look} look */
  sentence(look) {
    return this.how.sentence(look, this.how.see(look, this));
  }

  /** @param {Look} look */
  marks(look) {
    const seen = this.how.see(look, this);
    return (seen && this.how.marks?.(look, seen)) || [];
  }

  /** @param {Look} look @param {string} unit @param {number} way */
  #step(look, unit, way) {
    const times = this.how.times?.(look, unit);
    return times ? nextMoment(times, look.t, way) : null;
  }

  // ---- under the pointer, and the keyboard

  #listen() {
    this.pointed.follow(this.stage.root, (place) => place);
    this.canvas.onclick = ({ offsetX: x, offsetY: y }) => this.#take(this.#under({ x, y }));
    for (const { canvas, momentAt } of this.charts)
      if (momentAt)
        canvas.onclick = ({ offsetX }) => {
          const t = this.seen && momentAt(offsetX, canvas.clientWidth, this.seen, this.stage);
          if (typeof t === "number") this.stage.playback.goto(t);
        };
    walkWithArrows(this.spots);
    this.how.listen?.(this);
  }

  /** @param {any} hit @param {number} [rank] */
  #take(hit, rank) {
    const chosen = rank ?? (this.seen && this.how.choose?.(hit, this.seen, this));
    if (typeof chosen !== "number") return this.stage.choose(chosen ?? null);
    takeRank(this.stage, chosen, () => this.pointed.point(null));
  }

  /** @param {Place} place */
  #under({ x, y, hit }) {
    return hit ?? (this.seen && this.how.under?.(this.seen, x, y));
  }

  /** @param {Place} place */
  #lines(place) {
    const hit = this.#under(place);
    return hit && this.seen ? (this.how.lines?.(hit, this.seen, this.stage, place) ?? []) : [];
  }

  end() {
    this.pointed.place = null;
  }
}

/**
 * What a scene's `build` is.
 * @template Seen
 * @param {CanvasPicture<Seen>} how
 * @returns {(body: HTMLElement, stage: Stage) => View}
 */
export const canvasView = (how) => (body, stage) => new CanvasView(body, stage, how);

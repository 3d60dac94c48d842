// @ts-check
/**
 * A guided walk through the picture: a card at the mark that a step tells of, the rest dimmed, the
 * playhead where the step says. What a step tells is worked out in engine/walk_steps.js; here it is
 * shown, and gone through.
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("./stage.js").Look} Look
 * @typedef {import("../engine/walk_steps.js").Step} Step
 * @typedef {import("../engine/walk_steps.js").Span} Span
 * @typedef {import("../engine/walk_steps.js").Box} Box
 */
import { onlyWatches, whyNotThis } from "../engine/actions.js";
import { isForNextRun } from "../engine/trials.js";
import { cardPlace, filled, markOf, momentsOf, numberOf } from "../engine/walk_steps.js";
import { put } from "./canvas_scene.js";
import { openRankMenu } from "./rank_menu.js";

const SPOT = 34; // px: the light on a mark that has a place and no size
const ROUND = 6; // px that the light is larger than its mark
const AGAIN_MS = 1000; // a mark that is not drawn is looked for at a hundred moments, no sooner again

const CARD = `<i class="wb-walk-light"></i>
  <section class="wb-walk-card" role="group" tabindex="-1" aria-keyshortcuts="ArrowLeft ArrowRight Escape">
  <p class="wb-walk-at"></p><div aria-live="polite"><h4></h4><p class="wb-walk-text"></p><p class="wb-walk-number"></p><p class="wb-walk-why"></p></div>
  <p class="wb-walk-keys"><button data-go="back">← Back</button><button data-go="on">On →</button><button data-go="knob"></button><button data-go="end" title="ends the walk: Escape">End</button></p></section>`;

export class Walk {
  /** @param {Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.at = -1; // the step; -1: no walk is open
    this.own =
      /** @type {{key: string, at: number, scene: string, steps: Step[] | null} | null} */ (null); // a lecturer's
    this.steps = /** @type {Step[]} */ ([]);
    this.before = stage.playback.player; // where the picture goes on in the end
    this.callKey = ""; // the key of the call that the steps tell of
    this.epoch = -1; // of the table for which a step was placed
    this.looked = -Infinity; // when that was, ms
    this.drawn = false; // whether the mark is on screen
    this.button = Object.assign(document.createElement("button"), {
      className: "wb-walk-open",
      textContent: "Walk me through",
      title: "a guided walk through this picture, step by step: W",
    });
    this.button.setAttribute("aria-keyshortcuts", "W");
    this.button.onclick = () => (this.isOpen ? this.close() : this.open());
    this.body = document.createElement("div");
    this.body.className = "wb-walk";
    this.body.hidden = true;
    this.body.innerHTML = CARD;
    stage.$(".wb-main").append(this.body);
    this.light = this.#find(".wb-walk-light");
    this.card = this.#find(".wb-walk-card");
    const acts = /** @type {Record<string, () => void>} */ ({
      back: () => this.go(-1),
      on: () => this.go(1),
      knob: () => this.#handOver(),
      end: () => this.close(),
    });
    for (const button of this.body.querySelectorAll("button"))
      button.onclick = acts[button.dataset.go ?? ""];
  }

  get isOpen() {
    return this.at >= 0;
  }

  /** The number of the step in a link to it; 0: none, or the steps are not the scene's. */
  get link() {
    return this.own?.steps ? 0 : this.at + 1;
  }

  /** @param {string} selector @returns {any} */
  #find(selector) {
    return this.body.querySelector(selector);
  }

  get #ofScene() {
    return this.stage.scenes.current?.walk?.steps ?? [];
  }

  /** Open the walk of the scene, or a lecturer's own, at a step. @param {number} [at] */
  open(at = 0) {
    this.#begin(at);
    if (this.isOpen) this.card.focus({ preventScroll: true });
  }

  /** @param {number} at */
  #begin(at) {
    const { stage } = this;
    const steps = this.own?.steps ?? this.#ofScene;
    if (!steps.length || !stage.known.table) return;
    if (!this.isOpen) this.before = stage.playback.player;
    this.drawn = false;
    this.steps = steps;
    this.callKey = this.#callNow()?.key ?? "";
    this.body.hidden = false;
    this.#show(Math.max(0, Math.min(at, steps.length - 1)));
  }

  /** @param {number} way */
  go(way) {
    const next = this.at + way;
    if (this.isOpen && next >= 0 && next < this.steps.length) this.#show(next);
  }

  /** End the walk: the picture goes on as before. */
  close() {
    const { stage } = this;
    if (!this.isOpen) return;
    this.at = -1;
    this.body.hidden = true;
    stage.point(null);
    stage.playback.resume(this.before);
    stage.root.focus({ preventScroll: true });
  }

  /** What the steps tell of: the call on show, or if nothing moves in it one with messages. */
  #callNow() {
    const { current, source } = this.stage.playback;
    if (current?.flights.length) return current;
    return source.calls.find((one) => one.sends) ?? current ?? source.calls[0];
  }

  /** That call, with the rows that have come meanwhile; where there is none, the run. @returns {Span} */
  get span() {
    const { playback, known } = this.stage;
    const { from, to, rows } = known.table;
    const call = this.callKey ? playback.open(this.callKey) : null;
    return call ?? (rows ? { start: from, end: to } : { start: 0, end: 0 });
  }

  /** @param {number} at */
  #show(at) {
    const { stage } = this;
    const { playback, scenes, known } = stage;
    const step = this.steps[at];
    this.at = at;
    if (step.scene && step.scene !== scenes.current?.name) {
      scenes.open(step.scene, false);
      this.callKey = this.#callNow()?.key ?? "";
    }
    const { from, to, rows, epoch } = known.table;
    this.epoch = epoch;
    this.looked = performance.now();
    const span = step.of === "run" ? { start: from, end: to } : this.span;
    if (rows) {
      const [wanted, ...near] = momentsOf(step, span);
      const isThere = (/** @type {number} */ t) => {
        playback.goto(t);
        return this.#isDrawn(step);
      };
      if (!isThere(wanted) && !near.some(isThere)) playback.goto(wanted);
    }
    stage.point(step.rank === undefined ? null : { rank: step.rank });
    stage.touch();
    // the picture has its spots once it is drawn
    requestAnimationFrame(() => requestAnimationFrame(() => this.#place(true)));
  }

  /** The selectors of a step's mark; none: it is found among those that the scene draws. @param {Step} step */
  #selectors({ mark }) {
    const marks = this.stage.scenes.current?.walk?.marks;
    return [mark].flat().flatMap((name) => marks?.[name] || []);
  }

  /** @param {Look} look */
  #marks(look) {
    const { view } = this.stage;
    return [...view.marks(look), ...(view.places?.(look) ?? [])];
  }

  /** Whether a step's mark is drawn at this moment. @param {Step} step */
  #isDrawn(step) {
    if (this.#selectors(step).length) return true;
    return !!markOf(step, this.#marks(this.stage.look(performance.now())));
  }

  /**
   * Where a step's mark is, in the overlay's own px, and what it is; null: it is not on screen.
   * @param {Step} step @param {Look} look
   * @returns {{box: Box, who: Record<string, any>} | null}
   */
  #found(step, look) {
    const { stage } = this;
    const mark = markOf(step, this.#marks(look));
    const { rank = mark?.rank ?? 0, peer = mark?.peer } = step;
    const who = { ...mark, rank, peer, ranks: look.ranks };
    const scene = stage.$(".wb-scenes > :not([hidden])");
    const selectors = this.#selectors(step);
    const home = this.body.getBoundingClientRect();
    const scale = home.width / this.body.offsetWidth || 1;
    const boxOf = (/** @type {DOMRect} */ r) => ({
      x: (r.left - home.left) / scale,
      y: (r.top - home.top) / scale,
      w: r.width / scale,
      h: r.height / scale,
    });
    for (const selector of selectors) {
      const element = /** @type {HTMLElement | null} */ (
        scene.querySelector(filled(selector, who))
      );
      const rect = element?.getBoundingClientRect();
      if (!element || !rect?.width || !rect.height) continue;
      const [from, to] = (element.dataset.code ?? "").split(">");
      return { box: boxOf(rect), who: to ? { ...who, rank: Number(from), peer: Number(to) } : who };
    }
    const over =
      mark?.over ??
      scene.querySelector(".wb-co-spots")?.previousElementSibling ??
      scene.querySelector("canvas");
    if (selectors.length || !mark || !over || !Number.isFinite(mark.x + mark.y)) return null;
    const { x, y } = boxOf(over.getBoundingClientRect());
    const { w = 0, h = 0 } = mark;
    return {
      box: w
        ? { x: x + mark.x, y: y + mark.y, w, h: h || w }
        : { x: x + mark.x - SPOT / 2, y: y + mark.y - SPOT / 2, w: SPOT, h: SPOT },
      who,
    };
  }

  /** The button; and the card, where it stands now. Called with the stage's texts. @param {Look} look */
  say(look) {
    const { known } = look;
    const own = (this.own = /** @type {any} */ (known.run)?.walk ?? null);
    if (own && own.key !== this.stage.wire.kept.walk && known.table.rows) {
      this.stage.wire.kept.walk = own.key; // opened once
      this.stage.scenes.open(own.scene, false);
      this.open(own.at);
    }
    const home = this.stage.$(".wb-scenes > :not([hidden]) .wb-ov-head") ?? this.stage.$(".wb-say");
    if (this.button.parentElement !== home) home.append(this.button);
    this.button.hidden = !this.isOpen && (!this.#ofScene.length || !known.run);
    this.button.setAttribute("aria-pressed", String(this.isOpen));
    if (!this.isOpen) return;
    const { start, end } = this.span;
    const lacked = !this.drawn || end <= start; // rows that had not come yet
    const again = known.table.epoch !== this.epoch && look.at - this.looked > AGAIN_MS;
    if (lacked && again) this.#begin(this.at);
    else this.#place(false);
  }

  /** @param {boolean} reveal */
  #place(reveal) {
    if (!this.isOpen) return;
    const { stage, steps, at } = this;
    const step = steps[at];
    const look = stage.look(performance.now());
    const found = this.#found(step, look);
    this.drawn = !!found;
    const who = found?.who ?? { rank: step.rank ?? 0, peer: step.peer, ranks: look.ranks };
    this.#words(step, look, who);
    const { offsetWidth: w, clientHeight: h } = this.body;
    const box = found?.box ?? { x: w / 2, y: 0, w: 0, h: 0 };
    this.light.hidden = !found;
    Object.assign(this.light.style, {
      left: `${box.x - ROUND}px`,
      top: `${box.y - ROUND}px`,
      width: `${box.w + 2 * ROUND}px`,
      height: `${box.h + 2 * ROUND}px`,
    });
    const size = { w: this.card.offsetWidth, h: this.card.offsetHeight };
    const { x, y } = cardPlace(box, size, { w, h });
    this.card.style.left = `${x}px`;
    this.card.style.top = `${y}px`;
    if (reveal) this.card.scrollIntoView({ block: "nearest" });
  }

  /** @param {Step} step @param {Look} look @param {Record<string, any>} who */
  #words(step, look, who) {
    const { steps, at } = this;
    const last = at === steps.length - 1;
    const key = [at, look.t, look.table.epoch, who.rank, who.peer, who.chunk].join();
    if (this.card.dataset.key === key) return;
    this.card.dataset.key = key;
    this.card.setAttribute("aria-label", `Walk, step ${at + 1} of ${steps.length}`);
    put(this.#find(".wb-walk-at"), `${at + 1} of ${steps.length}`);
    put(this.#find("h4"), filled(step.title, who));
    put(this.#find(".wb-walk-text"), filled(step.text, who));
    const n = step.number ? numberOf(step.number, look, this.span, who, this.#marks(look)) : "";
    const [before, after] = n ? filled(step.number?.say ?? "", who).split("{n}") : ["", ""];
    const bold = Object.assign(document.createElement("b"), { textContent: n });
    this.#find(".wb-walk-number").replaceChildren(before, ...(n ? [bold] : []), after);
    this.#find("[data-go=back]").disabled = at === 0;
    this.#find("[data-go=on]").hidden = last;
    const knob = this.#find("[data-go=knob]");
    const why = step.knob ? this.#whyNot(step, who) : "";
    knob.hidden = !step.knob;
    knob.disabled = !!why;
    put(knob, step.knob?.words ?? "");
    put(this.#find(".wb-walk-why"), why);
    this.who = who;
  }

  /** @param {Step} step @param {Record<string, any>} who @returns {any} */
  #target({ knob }, who) {
    return knob?.target === "link" ? { from: who.rank, to: who.peer } : { rank: who.rank };
  }

  /** Why the last step's knob cannot be turned, or "". @param {Step} step @param {Record<string, any>} who */
  #whyNot(step, who) {
    const { stage } = this;
    const target = this.#target(step, who);
    if (onlyWatches(stage)) return "This page only watches: it cannot change the ranks.";
    return isForNextRun(stage.known, target) ? "" : whyNotThis(stage.known, target);
  }

  /** End the walk, and open what its last step hands over. */
  #handOver() {
    const target = this.#target(this.steps[this.at], this.who ?? {});
    this.close();
    openRankMenu(this.stage, target);
  }

  /** What is on show, for tests. */
  state() {
    const { at, drawn, steps } = this;
    if (!this.isOpen) return null;
    const text = (/** @type {string} */ s) => this.#find(s).textContent;
    const [title, number] = [text("h4"), text(".wb-walk-number")];
    return { at, of: steps.length, drawn, title, text: text(".wb-walk-text"), number };
  }
}

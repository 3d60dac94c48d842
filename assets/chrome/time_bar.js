// @ts-check
/**
 * The time bar under every scene, one line: the reader's own time (hold, play, step), which changes
 * nothing but the picture; every call of the run, to see and to scrub; at its right, in amber, the
 * ranks' time (ranks_control.js). While the pointer or the focus is in it, it grows upward: what is
 * chosen more rarely, and the lanes of the call, come to lie over the foot of the scene. The line itself
 * stays where it is.
 * @typedef {import("../engine/table.js").CallHead} CallHead
 * @typedef {import("../engine/call_choice.js").CallChoice} CallChoice
 */
import { duration, grouped, speed, stateOf } from "../engine/format.js";
import { isOver, nowOf } from "../engine/player.js";
import { EACH_CALL, LARGEST_CALL, choiceWords } from "../engine/call_choice.js";
import { label } from "./targets.js";
import { unitsOf } from "../engine/call_source.js";
import { ranksControl } from "./ranks_control.js";
import { BAND_HEIGHT, drawBands, hasBands } from "../drawing/generation_bands.js";
import {
  STRIP,
  callBands,
  drawStrip,
  drawStripMarks,
  placeWords,
  placesFor,
  previewOf,
} from "./call_strip.js";
import { chunkInScore, drawWayInScore } from "../drawing/chunk_way.js";
import { atParties, drawScore, openWaits, scoreHeight, spanOf, timeAt } from "../drawing/lanes.js";

// run time per page time; 0: each call in about four seconds
const PACES = [0, 1e-4, 1e-3, 1e-2, 0.1, 1];
const GROWS_EVERY = 2.5e8; // ns: so often the bar of a call in which ranks wait grows

const BAR = `<span class="wb-group"><button class="wb-back" title="one step back: ←"></button><button class="wb-toggle" title="holds the picture, not the ranks: space"></button><button class="wb-next" title="one step on: →"></button><button class="wb-live" title="the newest: L"></button></span><span class="wb-state"></span>
  <canvas class="wb-strip" tabindex="0"></canvas><span class="wb-peek" hidden></span><span class="wb-ranks"></span>`;
const MORE = `<label class="wb-pick"><span class="wb-sr">Step by</span><select class="wb-unit"><option value="chunk">by chunk</option><option value="step">by step</option><option value="iteration">by iteration</option></select></label>
  <label class="wb-pick"><span class="wb-sr">Speed of the picture</span><span class="wb-of" aria-hidden="true">view</span><select class="wb-pace"></select></label>
  <label class="wb-pick"><span class="wb-sr">Calls that are shown</span><span class="wb-of" aria-hidden="true">show</span><select class="wb-calls" title="which calls the picture shows one after another; S goes to the slowest of the run"></select></label>
  <span class="wb-where"></span><span class="wb-ranks-more"></span>`;

export class TimeBar {
  /** @param {HTMLElement} body @param {import("./stage.js").Stage} stage */
  constructor(body, stage) {
    this.stage = stage;
    this.body = body;
    this.grow = stage.$(".wb-grow");
    this.grow.innerHTML = `<div><div class="wb-bar wb-more">${MORE}</div><canvas class="wb-score" tabindex="0"></canvas></div>`;
    body.innerHTML = `<div class="wb-bar">${BAR}</div>`;
    /** @type {HTMLCanvasElement} */
    this.strip = this.$(".wb-strip");
    /** @type {HTMLCanvasElement} */
    this.score = this.$(".wb-score");
    this.peek = this.$(".wb-peek");
    this.width = 0; // of the strip, px
    for (const canvas of [this.strip, this.score]) {
      canvas.setAttribute("role", "slider");
      canvas.setAttribute("aria-valuemin", "0");
    }
    this.strip.setAttribute("aria-label", "the run, call by call");
    this.strip.title =
      "the height of a bar: how long it lasted, up to the time that stands beside it; a broken one lasted longer";
    this.score.setAttribute("aria-label", "time within this call");
    this.ranks = ranksControl(this.$(".wb-ranks"), this.$(".wb-ranks-more"), stage);
    /** @type {HTMLSelectElement} */
    this.unit = this.$("select.wb-unit");
    /** @type {HTMLSelectElement} */
    this.pace = this.$("select.wb-pace");
    this.pace.append(
      ...PACES.map((pace) => new Option(pace ? speed(1 / pace) : "a call in 4 s", String(pace))),
    );
    /** @type {HTMLSelectElement} */
    this.choices = this.$("select.wb-calls");
    this.drawn = "";
    this.#listen();
  }

  /** @param {string} selector @returns {any} */
  $(selector) {
    return this.body.querySelector(selector) ?? this.grow.querySelector(selector);
  }

  /** Grow while the pointer or the keyboard's focus is in the bar, or a list of it is open. */
  #touch() {
    const parts = [this.body, this.grow];
    const has = parts.some((one) => one.querySelector(":focus-visible, select:focus"));
    const { classList } = this.stage.root;
    const stays = classList.contains("touched") && this.grow.matches(":hover");
    classList.toggle("touched", has || stays || this.body.matches(":hover"));
  }

  #listen() {
    const { stage } = this;
    for (const part of [this.body, this.grow])
      for (const event of ["pointerenter", "pointerleave", "focusin", "focusout"])
        part.addEventListener(event, () => requestAnimationFrame(() => this.#touch()));
    this.$(".wb-toggle").onclick = () => stage.playback.toggle();
    this.$(".wb-live").onclick = () => stage.playback.live();
    this.$(".wb-back").onclick = () => stage.playback.step(-1);
    this.$(".wb-next").onclick = () => stage.playback.step(1);
    this.$(".wb-back").textContent = "◂";
    this.$(".wb-next").textContent = "▸";
    this.choices.onchange = () => {
      const [by, name = ""] = this.choices.value.split(/ (.*)/s);
      stage.playback.choose({ by: /** @type {any} */ (by), name });
    };
    this.pace.onchange = () => stage.playback.setPace(Number(this.pace.value));
    const drag = (
      /** @type {HTMLCanvasElement} */ canvas,
      /** @type {(x: number) => void} */ to,
    ) => {
      canvas.onpointerdown = (event) => {
        canvas.setPointerCapture(event.pointerId);
        to(event.offsetX);
      };
      canvas.onpointermove = (event) => event.buttons & 1 && to(event.offsetX);
    };
    drag(this.strip, (x) => this.#scrubRun(x));
    this.strip.addEventListener("pointermove", ({ offsetX }) => this.#preview(offsetX));
    this.strip.onpointerleave = () => (this.peek.hidden = true);
    this.score.onpointermove = ({ offsetX: x, offsetY: y }) => {
      const look = stage.look(performance.now());
      stage.point(stage.view.score === true ? chunkInScore(atParties(look), x, y) : null);
    };
    this.score.onpointerleave = () => stage.point(null);
    drag(this.score, (x) => {
      const call = stage.playback.current;
      const score = stage.view.score;
      const handled =
        // of the whole run
        typeof score === "object"
          ? score.at?.(x, { ...stage.look(performance.now()), width: stage.wide })
          : undefined;
      if (handled !== undefined) {
        if (handled !== null) stage.playback.goto(handled);
      } else if (call)
        stage.playback.goto(
          call.start + timeAt(x, spanOf(stage.look(performance.now()), call), stage.wide),
        );
    });
  }

  /** The call at a place of the strip, and how far in it. @param {number} x */
  #callAt(x) {
    const calls = this.calls();
    const room = this.width - STRIP.left - STRIP.right;
    const place = ((x - STRIP.left) / room) * placesFor(calls.length, isOver(this.stage.known));
    const call = calls[Math.min(calls.length - 1, Math.max(0, Math.floor(place)))];
    return { call, share: Math.min(1, Math.max(0, place % 1)) };
  }

  /** @param {number} x */
  #scrubRun(x) {
    const { call, share } = this.#callAt(x);
    if (call) this.stage.playback.goto(call.start + share * (call.end - call.start));
  }

  /** Say what a place of the strip stands for, above it. @param {number} x */
  #preview(x) {
    const { peek, strip } = this;
    const { call } = this.#callAt(x);
    peek.hidden = !call;
    if (!call) return;
    peek.textContent = previewOf(this.stage.known, call);
    const most = this.body.clientWidth - peek.offsetWidth;
    peek.style.left = `${Math.max(0, Math.min(most, strip.offsetLeft + x - peek.offsetWidth / 2))}px`;
  }

  /** The calls on the strip. */
  calls() {
    return this.stage.playback.source.calls;
  }

  /** @param {any} look */
  say(look) {
    const { known, held, current: call } = look;
    const { stage } = this;
    this.width = this.strip.clientWidth;
    stage.root.style.setProperty("--line", `${this.body.offsetHeight}px`);
    const over = isOver(known);
    const put = (/** @type {string} */ selector, /** @type {string} */ text) => {
      const node = this.$(selector);
      if (node.textContent !== text) node.textContent = text;
    };
    const [words, name] = stateOf(known, held);
    put(".wb-state", words);
    this.$(".wb-state").className = `wb-state ${name}`;
    const [play, live] = [
      held ? "▶ Play" : "❚❚ Hold the view",
      over ? "To the newest" : "Back to live",
    ];
    label(this.$(".wb-toggle"), held ? play : "❚❚ Hold", play);
    label(this.$(".wb-live"), over ? "Newest" : "Live", live);
    const unit = this.unit.value;
    const units = unitsOf(call);
    for (const option of this.unit.options) {
      const name = units?.[option.value] ?? option.value;
      if (option.text !== `by ${name}`) option.text = `by ${name}`;
    }
    this.$(".wb-back").setAttribute("aria-label", `one ${units?.[unit] ?? unit} back`);
    this.$(".wb-next").setAttribute("aria-label", `one ${units?.[unit] ?? unit} on`);
    const buttons = /** @type {NodeListOf<HTMLButtonElement>} */ (
      this.body.querySelectorAll(".wb-group button")
    );
    for (const button of buttons) button.disabled = !known.table.rows;
    const where = this.#where(look);
    put(".wb-where", where);
    const lasts = call ? `${where}, ${duration(call.end - call.start)}` : where;
    this.strip.setAttribute("aria-valuetext", lasts);
    this.#offerCalls(look);
    this.ranks.say(look);
    this.strip.setAttribute("aria-valuemax", String(this.calls().length));
    const at = call ? this.stage.playback.source.indexOf(call) + 1 : 0;
    this.strip.setAttribute("aria-valuenow", String(at));
    this.score.setAttribute("aria-valuemax", String(call ? Math.round(call.end - call.start) : 0));
    this.score.setAttribute("aria-valuenow", String(call ? Math.round(look.t - call.start) : 0));
    this.score.setAttribute("aria-valuetext", call ? duration(look.t - call.start) : "");
  }

  /** What can be chosen among the calls: that of the call on show, too. @param {any} look */
  #offerCalls({ current: call, known }) {
    const { choice, source } = this.stage.playback;
    const offered = source === known.table && known.table.calls.length > 0;
    /** @type {HTMLElement} */ (this.choices.parentElement).hidden = !offered;
    if (!offered) return;
    const name = choice.name || call?.name;
    const options = [
      LARGEST_CALL,
      EACH_CALL,
      { by: /** @type {const} */ ("slowest"), name: "" },
      ...(name ? [{ by: /** @type {const} */ ("name"), name }] : []),
    ];
    const valueOf = (/** @type {CallChoice} */ one) => `${one.by} ${one.name}`;
    if ([...this.choices.options].map((o) => o.value).join() !== options.map(valueOf).join())
      this.choices.replaceChildren(
        ...options.map((one) => new Option(choiceWords(one), valueOf(one))),
      );
    const on = valueOf(choice);
    if (this.choices.value !== on) this.choices.value = on;
  }

  /** @param {any} look */
  #where({ known, current: call, t, at }) {
    if (!call) return "";
    const behind = isOver(known)
      ? ""
      : `, ${Math.max(0, (nowOf(known, at) - t) / 1e9).toFixed(1)} s behind the ranks`;
    const of = call.words?.numbered ? ` of ${grouped(this.calls().length)}` : behind;
    return placeWords(known, call) + of;
  }

  /** @param {any} look @param {boolean | import("./stage.js").Score} score */
  draw(look, score) {
    const { stage, strip } = this;
    const { ink, font, current: call, width, known } = look;
    const { source } = stage.playback;
    const { calls } = source;
    this.strip.hidden = (!calls.length && !score) || (typeof score === "object" && !!score.whole);
    this.score.hidden = !score;
    if (!this.strip.hidden && this.width > 0) {
      const { feed } = stage;
      const index = call ? stage.playback.source.indexOf(call) : -1;
      const last = source.calls.at(-1);
      const open = last && source === known.table ? known.table.open(last.key) : null;
      const now = open && openWaits(look, open).length ? nowOf(known, look.at) : 0;
      const key = [
        known.table.epoch,
        index,
        this.width,
        feed.version,
        look.ratio,
        ink.focus,
        isOver(known),
        Math.floor(now / GROWS_EVERY),
      ].join();
      if (key !== this.drawn) {
        this.drawn = key;
        const above = hasBands(known) ? BAND_HEIGHT + 3 : 0;
        const over = isOver(known);
        const what = call?.words?.strip ?? "each call";
        const g = stage.paper(strip, this.width, STRIP.height + above);
        if (above) drawBands(g, ink, font, callBands(known, calls, this.width), 0);
        g.translate(0, above);
        drawStrip(g, ink, font, calls, index, this.width, over, what, now);
        drawStripMarks(g, ink, calls, feed.lines, this.width, over);
      }
    }
    if (score === true) {
      const ofCall = atParties(look);
      const g = stage.paper(this.score, width, scoreHeight(ofCall.ranks));
      drawScore(g, ofCall);
      drawWayInScore(g, ofCall);
    } else if (score) score.draw(stage.paper(this.score, width, score.height(look)), look);
  }
}

// @ts-check
/**
 * The stage: one module for three hosts (anywidget in Jupyter, AnyWidgetComponent in Panel, a saved
 * page). It holds what every scene shares: the run, the playhead, the reader's selection, the time
 * bar and the keyboard. A scene (scene_host.js) draws `frame = f(events, playhead)` and nothing
 * else. `root.stage.frame()` tells what is on screen, mark by mark.
 * @typedef {import("../engine/model.js").Call} Call
 * @typedef {import("../engine/player.js").Known} Known
 * @typedef {import("../engine/page_state.js").Choice} Choice
 * @typedef {import("../engine/page_state.js").Look} Look
 * @typedef {{height(look: Look): number, draw(g: CanvasRenderingContext2D, look: Look): void,
 *   whole?: boolean, at?(x: number, look: Look): number | null}} Score
 *   a scene's own, above the line of time; whole: it shows the whole run, in place of the strip; at:
 *   the moment of the run at a place of it
 * @typedef {{say(look: Look): void, draw(look: Look): void, marks(look: Look): any[],
 *   title(look: Look): string, sentence(look: Look): string, badges?(look: Look): string[],
 *   places?(look: Look): any[], step?(look: Look, unit: string, way: number): number | null, score?: boolean | Score,
 *   end(): void}} View
 */
import { Acts } from "./acts.js";
import { feedView } from "./feed.js";
import { hostIsDark, inksOf, newToken, wireOf } from "./host.js";
import { KeySheet } from "./key_sheet.js";
import { Knobs } from "./knobs.js";
import { listenToKeys } from "./keyboard.js";
import { Playback } from "./playback.js";
import { SceneHost } from "./scene_host.js";
import { Screen } from "./screen.js";
import { refreshTexts } from "./texts.js";
import { RankTrials } from "./rank_trials.js";
import { TimeBar } from "./time_bar.js";
import { Tools } from "./tools.js";
import { Walk } from "./walk.js";
import { atStuck } from "../engine/blocked.js";
import { isCall } from "../engine/call_source.js";
import { momentOfText, momentOfAddress } from "../engine/moment.js";
import { isOver } from "../engine/player.js";

let stages = 0; // on this page
const TEXT_MS = 250; // text changes at most four times a second
const TAKEN_OVER_MS = 1000; // a host that draws a picture anew does it at once
const [STACKED_BELOW, BESIDE_FROM] = [760, 1180]; // px: below, one column; from, the news beside the scene
const LAST_OPENED = 1; // the iteration after which a scene is not opened any more for the first time
const ANSWER_MS = 10_000; // to a command; then the page says that none came
const FRAME = `
  <div class="wb-top"><b></b><span class="wb-facts"></span><span class="wb-badge wb-real"></span><span class="wb-made"></span></div>
  <div class="wb-head"><nav class="wb-tabs" role="tablist" aria-label="Views of this run"></nav><div class="wb-tools" role="toolbar" aria-label="Tools of this picture"></div></div>
  <p class="wb-question" hidden></p>
  <div class="wb-trials" role="group" aria-label="Before and after" hidden></div><div class="wb-trials wb-knobs" role="group" aria-label="All links" hidden></div>
  <p class="wb-say"><span role="status"></span></p>
  <div class="wb-main">
    <div class="wb-scenes"></div>
    <aside class="wb-side" aria-label="Beside the view"><div><div class="wb-menu-place"></div><div class="wb-feed"></div><section class="wb-why" aria-label="Why was it this slow?" hidden></section></div></aside>
  </div>
  <div class="wb-grow"></div><div class="wb-time"></div>
  <p class="wb-foot"><span class="wb-hint">space holds the view · ← → one step · L live · 1 to 9 views<span class="wb-hold-hint"> · H holds the ranks</span> · W walks you through · F full screen · ? all keys</span><span class="wb-meter"></span></p>`;

export class Stage {
  /**
   * @param {any} model
   * @param {HTMLElement} el
   * @param {any} view
   * @param {import("./scene_host.js").Scene[]} scenes
   */
  constructor(model, el, view, scenes) {
    this.id = stages += 1;
    this.root = document.createElement("div");
    this.root.className = "wb-stage";
    this.root.tabIndex = 0;
    this.root.dataset.lmSuppressShortcuts = "true"; // JupyterLab must not act on keys meant for us
    this.root.setAttribute("role", "group");
    this.root.setAttribute("aria-label", "Distributed training, drawn from its events");
    this.root.innerHTML = FRAME;
    this.wire = wireOf(model, view);
    this.screen = new Screen(this, el);
    this.ratio = 0; // device pixels for one of the page; 0: the screen's
    this.choice = /** @type {Choice | null} */ (null);
    this.pointed = /** @type {Choice | null} */ (null); // shown in place of the choice
    this.width = 0; // of the scene
    this.wide = 0; // of all that is above and below the scene
    this.texts = -Infinity;
    this.dirty = this.alive = this.visible = true;
    this.introduced = false; // the run's own first scene has been opened
    this.opened = ""; // opened in its place, as long as it has nothing to show
    this.drawn = /** @type {Record<string, any>} */ ({ epoch: -1 });
    this.asked = new Map();
    this.scenes = new SceneHost(this, scenes);
    this.playback = new Playback(this);
    this.feed = feedView(this.$(".wb-feed"), this);
    this.bar = new TimeBar(this.$(".wb-time"), this);
    this.tools = new Tools(this, model.openTab);
    this.trials = new RankTrials(this);
    this.acts = new Acts(this);
    this.knobs = new Knobs(this);
    this.walk = new Walk(this);
    this.sheet = new KeySheet(this);
    this.moment = momentOfAddress(location.hash); // that the page was opened at
    this.ends = [this.wire.join((m) => this.take(m)), ...this.watchHost(), listenToKeys(this)];
    const { scenes: host, playback } = this;
    /** @type {any} */ (this.root).stage = {
      frame: () => this.frame(),
      known: () => this.known,
      open: (/** @type {string} */ name) => host.open(name),
      show: (/** @type {string} */ key) => playback.show(key),
      goto: (/** @type {number} */ t) => playback.goto(t),
      player: () => playback.player,
      walk: this.walk,
    };
    if (!host.current) host.open(this.wire.kept.scene || model.get?.("opens") || "", false);
    const again = performance.now() - (this.wire.kept.focused ?? -1e9) < TAKEN_OVER_MS;
    const alone = (!model.get || view?.model_proxy) && !document.body.dataset.jpThemeLight;
    if (again || (alone && document.activeElement === document.body))
      this.root.focus({ preventScroll: true }); // its keys act at once
    requestAnimationFrame((at) => this.loop(at));
  }

  /** @template {Element} [T=HTMLElement] @param {string} selector @returns {T} */
  $(selector) {
    return /** @type {T} */ (/** @type {unknown} */ (this.root.querySelector(selector)));
  }

  /** @returns {Known} */
  get known() {
    return this.wire.known;
  }

  /** The picture of the scene that is on show. */
  get view() {
    return this.scenes.view;
  }

  /** A message that is not a batch of rows: those the wire has taken in. @param {any} message */
  take(message) {
    if (message.type === "said") {
      this.asked.get(message.id)?.({ ok: message.ok, words: message.words ?? "" });
      this.asked.delete(message.id);
    }
    if (message.type === "batch") {
      if (message.other) this.playback.begin(); // another run
      if (message.other) [this.introduced, this.opened] = [false, ""];
      if (!this.introduced) this.#introduce(message.run);
      if (message.turn) this.texts = -Infinity; // a new state is shown at once
      this.moment ??= momentOfText(message.run?.moment ?? "");
      this.#goToMoment();
      this.screen.reveal();
    }
    this.dirty = true;
  }

  /** Open the moment that the page's address tells, once its rows are there. */
  #goToMoment() {
    const { moment, playback, known } = this;
    const { kept } = this.wire;
    const { player } = playback;
    if (!moment || kept.moment === moment.t || !known.table.rows) return;
    if (known.table.to < moment.t && !isOver(known)) return;
    if (this.placed !== undefined && player.held !== this.placed) return; // the reader went elsewhere
    this.scenes.open(moment.scene);
    playback.goto(moment.t);
    this.choose(moment.choice);
    this.placed = playback.player.held ?? undefined; // rows may still come: an earlier one
    if (this.placed === moment.t) kept.moment = moment.t; // a picture drawn anew stays where it is
    if (this.placed === moment.t && moment.walk) this.walk.open(moment.walk - 1);
  }

  /**
   * Open the scene that the reader had chosen, or the run's own; as long as there is nothing to see
   * in it yet, another one.
   * @param {import("../engine/player.js").RunFacts} run
   */
  #introduce(run) {
    const { kept } = this.wire;
    const { scenes, opened } = this;
    // the reader has gone elsewhere meanwhile
    if (opened && scenes.current?.name !== opened) this.introduced = true;
    else {
      // a comparison has its one scene; the reader's choice is for the runs
      const name = (run.trials?.at !== "both" && kept.scene) || (run.scene ?? "");
      scenes.open(name, false);
      this.opened = scenes.current?.name ?? "";
      const { counters } = this.known;
      this.introduced =
        this.opened === name || isOver(this.known) || (counters?.iteration ?? -1) > LAST_OPENED;
    }
  }

  /**
   * Follow the host's ground, and style sheets that come late. Looked at with the texts: hosts tell
   * nobody.
   */
  theme() {
    const scheme = hostIsDark(this.root) ? "dark" : "light";
    const token = getComputedStyle(this.root).getPropertyValue("--comm");
    if (this.themed === scheme + token) return;
    this.themed = scheme + token;
    this.root.style.colorScheme = scheme;
    this.root.dataset.theme = scheme;
    this.ink = inksOf(this.root);
    this.font = getComputedStyle(this.root).fontFamily;
    this.dirty = true;
  }

  watchHost() {
    const scenes = this.$(".wb-scenes");
    const size = new ResizeObserver(() => {
      this.wide = this.root.clientWidth - 32;
      this.root.classList.toggle("narrow", this.wide < STACKED_BELOW);
      this.root.classList.toggle("wide", this.wide >= BESIDE_FROM);
      this.width = scenes.clientWidth; // what lies beside it takes some of the width
      this.dirty = true;
    });
    size.observe(this.root);
    size.observe(scenes);
    const seen = new IntersectionObserver((entries) => {
      this.visible = entries[entries.length - 1].isIntersecting;
      this.dirty = true;
    });
    seen.observe(this.root);
    const turn = () => {
      this.moment = momentOfAddress(location.hash) ?? this.moment;
      this.wire.kept.moment = this.placed = undefined;
      this.#goToMoment();
    };
    addEventListener("hashchange", turn);
    return [
      () => size.disconnect(),
      () => seen.disconnect(),
      () => removeEventListener("hashchange", turn),
    ];
  }

  // ---- the ranks, and what is chosen

  /**
   * Ask the run for something; the answer says whether it was done.
   * @param {string} verb
   * @param {Record<string, any>} args
   * @returns {Promise<{ok: boolean, words: string}>}
   */
  act(verb, args) {
    const id = newToken();
    return new Promise((answer) => {
      this.asked.set(id, answer);
      setTimeout(
        () =>
          this.asked.delete(id) &&
          answer({
            ok: false,
            words: "No answer: the notebook's kernel or the server is busy, or gone.",
          }),
        ANSWER_MS,
      );
      this.wire.order({ type: "do", id, verb, args });
    });
  }

  /** Light up what the pointer is on, in every picture. @param {Choice | null} pointed */
  point(pointed) {
    if (JSON.stringify(pointed) !== JSON.stringify(this.pointed)) this.dirty = true;
    this.pointed = pointed;
  }

  /** @param {Choice | null} choice */
  choose(choice) {
    this.choice = choice;
    this.touch();
  }

  touch() {
    [this.dirty, this.texts] = [true, -Infinity];
  }

  // ---- drawing

  /** @param {number} at @returns {Look} */
  look(at) {
    const { known, playback } = this;
    const { player, current } = playback;
    const call = isCall(current) ? current : null;
    const look = {
      table: known.table,
      known,
      call,
      current,
      t: playback.playhead(at),
      live: player.live && player.held === null,
      held: player.held !== null,
      ranks: Math.max(known.run?.ranks ?? 0, call?.ranks ?? 0) || 4,
      ink: this.ink ?? {},
      font: this.font ?? "sans-serif",
      width: this.width,
      room: this.screen.room,
      ratio: this.#ratio,
      at,
      choice: this.pointed ?? this.choice,
    };
    return this.scenes.current?.calls ? atStuck(look) : look;
  }

  /** @param {number} at */
  loop(at) {
    if (!this.alive) return;
    requestAnimationFrame((next) => this.loop(next));
    if (!this.visible || this.width <= 0 || !this.scenes.current) return;
    const began = performance.now();
    if (this.playback.advance(at)) this.texts = -Infinity;
    const look = this.look(at);
    const { drawn } = this;
    const { t, table, room } = look; // the room is measured with the texts, once they are there
    const now = { t, epoch: table.epoch, key: look.current?.key ?? "", room };
    const moved = this.dirty || Object.entries(now).some(([name, one]) => one !== drawn[name]);
    // words and canvas are of one call, always; in a view that is held also of one moment
    if (at - this.texts >= TEXT_MS || now.key !== drawn.key || (moved && look.held)) this.say(look);
    if (!moved) return; // nothing moves that is not an event
    this.dirty = false;
    this.drawn = now;
    this.view.draw(look);
    this.bar.draw({ ...look, width: this.wide }, this.view.score ?? false);
    this.cost = performance.now() - began;
  }

  /** @param {Look} look */
  say(look) {
    this.texts = look.at;
    this.theme();
    look.ink = this.ink ?? {};
    look.font = this.font ?? "sans-serif";
    this.scenes.say();
    refreshTexts(this, look);
    this.view.say(look);
    this.feed.say(look);
    this.bar.say(look);
    this.screen.measure();
  }

  get #ratio() {
    return this.ratio || (devicePixelRatio || 1) * this.screen.scale;
  }

  /** Draw what is on screen at once, words and picture. */
  drawNow() {
    const look = this.look(performance.now());
    this.say(look);
    this.view.draw(look);
  }

  /**
   * A canvas of this size, cleared and scaled to CSS pixels.
   * @param {HTMLCanvasElement} canvas
   * @param {number} width @param {number} height
   */
  paper(canvas, width, height) {
    const ratio = this.#ratio;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== w || canvas.height !== h) {
      [canvas.width, canvas.height] = [w, h];
      canvas.style.height = `${height}px`;
    }
    const g = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    return g;
  }

  /** What is on screen: every mark with the row that it is. */
  frame() {
    const look = this.look(performance.now());
    const { generation, group, op, number } = /** @type {any} */ (look.call ?? {});
    return {
      scene: this.scenes.current?.name,
      call: look.call && { generation, group, op, number },
      playhead: look.t + this.known.origin,
      t: look.t,
      cost: this.cost ?? 0,
      marks: this.width > 0 ? this.view.marks(look) : [],
    };
  }

  end() {
    const focused = /** @type {Document | ShadowRoot} */ (this.root.getRootNode()).activeElement;
    // a picture drawn anew takes it over
    if (focused && this.root.contains(focused)) this.wire.kept.focused = performance.now();
    this.alive = false;
    this.scenes.end();
    for (const end of this.ends) end();
    this.screen.end();
  }
}

/**
 * What a host renders: a stage with these scenes.
 * @param {import("./scene_host.js").Scene[]} scenes
 */
export const hostOf = (scenes) => ({
  /** @param {{model: any, el: HTMLElement, view?: any}} host */
  render({ model, el, view }) {
    const stage = new Stage(model, el, view, scenes);
    return () => stage.end();
  },
});

// @ts-check
/**
 * The stage: one module for three hosts (anywidget in Jupyter, AnyWidgetComponent in Panel, a saved page).
 * It holds what every scene shares: the run, the playhead, the reader's selection, the time bar and the keyboard.
 * A scene is one file: it draws `frame = f(events, playhead)` and nothing else.
 * `root.stage.frame()` tells what is on screen, mark by mark.
 * @typedef {import("./model.js").Call} Call
 * @typedef {import("./player.js").Known} Known
 * @typedef {import("./player.js").Player} Player
 * @typedef {{rank?: number, peer?: number, group?: string, op?: number, step?: number, chunk?: number, iteration?: number, stage?: number, microbatch?: number, action?: string}} Choice
 * @typedef {{height(look: Look): number, draw(g: CanvasRenderingContext2D, look: Look): void, whole?: boolean, at?(x: number, look: Look): number | null}} Score
 *   a scene's own, under the time bar; whole: it shows the whole run, in place of the strip; at: the moment of the run at a place of it
 * @typedef {{table: import("./table.js").Table, known: Known, call: Call | null, told: Call | null, t: number, live: boolean, held: boolean, ranks: number,
 *   ink: Record<string, string>, font: string, width: number, ratio: number, at: number, choice: Choice | null, fastest?: number}} Look
 * @typedef {{say(look: Look): void, draw(look: Look): void, marks(look: Look): any[], title(look: Look): string, sentence(look: Look): string,
 *   badges?(look: Look): string[], step?(look: Look, unit: string, way: number): number | null, score?: boolean | Score, end(): void}} View
 *   fastest: bytes/s of the widest link that is drawn elsewhere on the same scale; told: what the picture tells, a call, a parameter server's round or a pipeline's pass; call: the same if it is a call
 * @typedef {{name: string, label: string, key: string, calls?: boolean, offered?(known: Known): boolean, tale?(known: Known): any, build(body: HTMLElement, stage: Stage): View}} Scene
 *   offered: whether there is something of this run to see in it; tale: pieces of its own that it is told in; calls: it shows single calls, also of a run that is told in something else
 */
import { feedView } from "./feed.js";
import { hostIsDark, inksOf, wireOf } from "./host.js";
import { busiest, openCall } from "./model.js";
import { AT_START, advance, backToLive, holdAt, isOver, nowOf, playOn, playedAt, playheadOf, stepped, tell } from "./player.js";
import { collectivesScene } from "./scene_collectives.js";
import { modelScene } from "./scene_model.js";
import { overviewScene } from "./scene_overview.js";
import { pairOf } from "./pairs.js";
import { pairScene } from "./scene_pair.js";
import { mixes } from "./peers_index.js";
import { peersScene } from "./scene_peers.js";
import { pipelineScene, pipes } from "./scene_pipeline.js";
import { samplesScene } from "./scene_samples.js";
import { serverScene, serves } from "./scene_server.js";
import { shardsScene } from "./scene_shards.js";
import { timelineScene } from "./scene_timeline.js";
import { atStuck } from "./stuck.js";
import { isCall, openTold, taleOf } from "./tale.js";
import { talkOf } from "./talk.js";
import { TimeBar } from "./timebar.js";
import { badge, factsOf, meter } from "./words.js";

/** @type {Scene[]} */
const RUN_SCENES = [overviewScene, { ...collectivesScene, calls: true, offered: (known) => !(serves(known) || pipes(known) || mixes(known)) || known.table.calls.length > 0 }, timelineScene, serverScene, pipelineScene, modelScene, peersScene, samplesScene, shardsScene];
/** A page that compares two calls shows nothing else: their rows are not one run's. @type {Scene[]} */
const SCENES = [...RUN_SCENES.map((scene) => ({ ...scene, offered: (/** @type {Known} */ known) => !pairOf(known) && (scene.offered?.(known) ?? true) })), pairScene];
const TEXT_MS = 250; // text changes at most four times a second
const OPEN_CALLS = 8; // that are kept opened
const TAKEN_OVER_MS = 1000; // a host that draws a picture anew does it at once
const ANSWER_MS = 10_000; // to a command; then it is said that none came

const FRAME = `
  <div class="wb-top"><b></b><span class="wb-facts"></span><span class="wb-badge wb-real"></span><span class="wb-made"></span><span class="wb-meter"></span></div>
  <nav class="wb-tabs" role="tablist" aria-label="Views of this run"></nav>
  <p class="wb-say" role="status"></p>
  <div class="wb-scenes"></div>
  <div class="wb-feed"></div>
  <div class="wb-time"></div>
  <p class="wb-hint">space holds the view · ← → one step · L live · + − speed · 1 to 9 views · H holds the ranks</p>`;

export class Stage {
  /** @param {any} model @param {HTMLElement} el @param {any} view */
  constructor(model, el, view) {
    this.root = document.createElement("div");
    this.root.className = "wb-stage";
    this.root.tabIndex = 0;
    this.root.dataset.lmSuppressShortcuts = "true"; // JupyterLab must not act on keys meant for us
    this.root.setAttribute("role", "group");
    this.root.setAttribute("aria-label", "Distributed training, drawn from its events");
    this.root.innerHTML = FRAME;
    el.append(this.root);
    this.wire = wireOf(model, view);
    this.player = /** @type {Player} */ (this.wire.kept.player ?? AT_START);
    this.choice = /** @type {Choice | null} */ (null);
    this.scene = /** @type {Scene | null} */ (null);
    this.width = 0;
    this.texts = -Infinity;
    this.dirty = this.alive = this.visible = true;
    this.introduced = false; // the run's own first scene has been opened
    this.drawn = { t: NaN, epoch: -1, key: "" };
    this.opened = /** @type {Map<string, {call: Call, rows: number, table: any}>} */ (new Map());
    this.asked = new Map();
    this.commands = 0;
    this.views = /** @type {Map<string, {body: HTMLElement, view: View}>} */ (new Map());
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.feed = feedView(this.$(".wb-feed"), this);
    this.bar = new TimeBar(this.$(".wb-time"), this);
    this.#tabs();
    this.ends = [this.wire.join((m) => this.take(m)), ...this.watchHost(), ...this.watchReader()];
    /** @type {any} */ (this.root).stage = { frame: () => this.frame(), known: () => this.known, open: (/** @type {string} */ name) => this.open(name),
      show: (/** @type {string} */ key) => this.show(key), goto: (/** @type {number} */ t) => this.goto(t), player: () => this.player };
    if (!this.scene) this.open(this.wire.kept.scene ?? "", false);
    if (performance.now() - (this.wire.kept.focused ?? -Infinity) < TAKEN_OVER_MS) this.root.focus({ preventScroll: true });
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

  /** The run as the player tells it: by its calls, the rounds of a parameter server or a pipeline's passes; where calls are what is shown, by those. @returns {Known} */
  get tale() {
    const own = this.scene?.tale?.(this.known);
    if (own) return { ...this.known, table: /** @type {any} */ (own) };
    return this.scene?.calls && this.known.table.calls.length && !talkOf(this.known) ? this.known : taleOf(this.known);
  }

  /** The call, or round, that the playhead is in. @returns {Call | null} */
  get told() {
    const { table } = this.tale, head = this.player.key && this.player.held === null ? table.callOf.get(this.player.key) : table.callAt(this.player.t);
    return head ? this.openKey(head.key) : null;
  }

  /** A call by its key, opened; kept until it has more rows. @param {string} key @returns {Call | null} */
  openKey(key) {
    const table = this.known.table, head = table.callOf.get(key), had = this.opened.get(key);
    if (!head) return openTold(this.known, key);
    if (had && had.rows === head.rows && had.table === table) return had.call;
    const call = openCall(table, head);
    this.opened.delete(key);
    this.opened.set(key, { call, rows: head.rows, table });
    if (this.opened.size > OPEN_CALLS) this.opened.delete(/** @type {string} */ (this.opened.keys().next().value));
    return call;
  }

  #open = (/** @type {string} */ key) => this.openKey(key);

  /** A message that is not a batch of rows: those the wire has taken in. @param {any} message */
  take(message) {
    if (message.type === "said") {
      this.asked.get(message.id)?.({ ok: message.ok, words: message.words ?? "" });
      this.asked.delete(message.id);
    }
    if (message.type === "batch") {
      if (message.other) this.player = AT_START; // another run than before
      if (message.other || !this.introduced) this.open(this.wire.kept.scene ?? message.run.scene ?? "", false);
      this.introduced = true;
      if (message.turn) this.texts = -Infinity; // a new state is said at once
    }
    this.dirty = true;
  }

  /** Tell the same moment in what this scene shows: a call, or the pass that it is in. */
  #retell() {
    const head = this.tale.table.callAt(this.player.t), call = head && this.openKey(head.key);
    if (call) this.player = { ...tell(this.player, call.key, performance.now()), held: this.player.held, at0: playedAt(call, Math.max(0, this.player.t - call.start)) };
  }

  #tabs() {
    const tabs = this.$(".wb-tabs");
    for (const scene of SCENES) {
      const tab = document.createElement("button");
      tab.setAttribute("role", "tab");
      tab.dataset.scene = scene.name;
      tab.textContent = scene.label;
      tab.title = `${scene.label}: ${scene.key}`;
      tab.onclick = () => this.open(scene.name);
      tabs.append(tab);
    }
  }

  /** Show a scene; "" is the first. @param {string} name @param {boolean} [chosen] by the reader: it is kept */
  open(name, chosen = true) {
    const scene = SCENES.find((s) => s.name === name && (s.offered?.(this.known) ?? true)) ?? SCENES.find((s) => s.offered?.(this.known) ?? true) ?? SCENES[0];
    if (chosen) this.wire.kept.scene = scene.name;
    if (this.scene === scene) return;
    const before = this.tale.table;
    this.scene = scene;
    if (this.player.key && this.tale.table !== before) this.#retell();
    if (!this.views.has(scene.name)) {
      const body = document.createElement("section");
      body.className = `wb-scene wb-scene-${scene.name}`;
      body.setAttribute("role", "tabpanel");
      this.$(".wb-scenes").append(body);
      this.views.set(scene.name, { body, view: scene.build(body, this) });
    }
    for (const [other, { body }] of this.views) body.hidden = other !== scene.name;
    for (const tab of this.root.querySelectorAll(".wb-tabs button")) {
      const on = /** @type {HTMLElement} */ (tab).dataset.scene === scene.name;
      tab.setAttribute("aria-selected", String(on));
    }
    this.root.dataset.scene = scene.name;
    this.texts = -Infinity;
    this.dirty = true;
  }

  /** @returns {View} */
  get view() {
    return /** @type {any} */ (this.views.get(/** @type {Scene} */ (this.scene).name)).view;
  }

  /** Follow the host's ground, and style sheets that come late. Looked at with the texts: hosts tell nobody. */
  theme() {
    const scheme = hostIsDark(this.root) ? "dark" : "light", token = getComputedStyle(this.root).getPropertyValue("--comm");
    if (this.themed === scheme + token) return;
    this.themed = scheme + token;
    this.root.style.colorScheme = scheme;
    this.root.dataset.theme = scheme;
    this.ink = inksOf(this.root);
    this.font = getComputedStyle(this.root).fontFamily;
    this.dirty = true;
  }

  watchHost() {
    const size = new ResizeObserver(() => {
      this.width = this.root.clientWidth - 32;
      this.root.classList.toggle("narrow", this.width < 760);
      this.dirty = true;
    });
    size.observe(this.root);
    const seen = new IntersectionObserver((entries) => {
      this.visible = entries[entries.length - 1].isIntersecting;
      this.dirty = true;
    });
    seen.observe(this.root);
    return [() => size.disconnect(), () => seen.disconnect()];
  }

  watchReader() {
    const keys = (/** @type {KeyboardEvent} */ event) => {
      const target = /** @type {HTMLElement} */ (event.composedPath()[0]);
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (target.closest("input, textarea, select, [role=dialog]")) return; // keys are theirs
      if (event.key === " " && target.closest("button, [role=button], a")) return; // a button's own key
      const scene = SCENES.find((s) => s.key === event.key && (s.offered?.(this.known) ?? true));
      const act = scene ? () => this.open(scene.name) : { " ": () => this.toggle(), l: () => this.live(), L: () => this.live(),
        ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1), "+": () => this.faster(1), "=": () => this.faster(1), "-": () => this.faster(-1),
        h: () => this.holdRanks(), H: () => this.holdRanks(), Home: () => this.goto(this.known.table.from) }[event.key];
      if (!act) return;
      event.preventDefault();
      event.stopPropagation();
      act();
    };
    this.root.addEventListener("keydown", keys);
    return [() => this.root.removeEventListener("keydown", keys)];
  }

  // ---- time, the reader's own

  /** @param {number} at */
  playhead(at) {
    const call = this.still.matches && this.player.held === null ? this.told : null; // no motion is wanted: the moment that tells most
    return call ? call.start + busiest(call) : playheadOf(this.player, this.tale, at, this.#open);
  }

  /** @param {Player} player */
  #play(player) {
    this.player = this.wire.kept.player = player;
    this.texts = -Infinity;
    this.dirty = true;
  }

  /** Hold the view at a moment of the run. @param {number} t ns since the origin */
  goto(t) {
    this.#play(holdAt(this.player, Math.max(0, Math.min(t, this.known.table.to))));
  }

  toggle() {
    const at = performance.now();
    if (this.player.held === null) this.goto(this.playhead(at));
    else this.#play(playOn(this.player, this.tale, at, Number(this.bar.pace.value), this.#open));
  }

  /** @param {number} way */
  step(way) {
    const at = performance.now(), look = this.look(at), unit = this.bar.unit.value;
    const t = this.view.step?.(look, unit, way) ?? stepped(this.tale, look.t, unit, way, this.#open);
    this.goto(t);
  }

  live() {
    this.bar.pace.value = "0";
    this.#play(backToLive(this.player, this.tale, performance.now()));
  }

  /** Tell a call from its start. @param {string} key */
  show(key) {
    const head = this.tale.table.callOf.get(key);
    if (head) this.#play({ ...tell(this.player, key, performance.now()), live: false, t: head.start });
  }

  /** The picture's speed: run ns per page ms, as a share of real time; 0 tells call after call. @param {number} pace */
  setPace(pace) {
    const at = performance.now(), t = this.playhead(at);
    if (!pace && this.player.live) return;
    if (this.player.held === null) this.#play(playOn({ ...this.player, held: t }, this.tale, at, pace * 1e6, this.#open));
  }

  /** @param {number} way */
  faster(way) {
    const { pace } = this.bar, next = pace.selectedIndex + way;
    if (next < 0 || next >= pace.options.length) return;
    pace.selectedIndex = next;
    this.setPace(Number(pace.value));
  }

  // ---- the ranks, and what is chosen

  holdRanks() {
    if (!this.known.run || this.known.run.readonly || isOver(this.known)) return;
    this.act(this.known.control?.held ? "resume" : "pause", {});
  }

  /** Ask the run for something; the answer says whether it was done. @param {string} verb @param {Record<string, any>} args @returns {Promise<{ok: boolean, words: string}>} */
  act(verb, args) {
    const id = ++this.commands;
    return new Promise((answer) => {
      this.asked.set(id, answer);
      setTimeout(() => this.asked.delete(id) && answer({ ok: false, words: "No answer: the notebook's kernel or the server is busy, or gone." }), ANSWER_MS);
      this.wire.send({ type: "do", id, verb, args });
    });
  }

  /** @param {Choice | null} choice */
  choose(choice) {
    this.choice = choice;
    this.touch();
  }

  touch() {
    this.dirty = true;
    this.texts = -Infinity;
  }

  // ---- drawing

  /** @param {number} at @returns {Look} */
  look(at) {
    const { known, player, told } = this, call = isCall(told) ? told : null;
    const look = { table: known.table, known, call, told, t: this.playhead(at), live: player.live && player.held === null, held: player.held !== null,
      ranks: Math.max(known.run?.ranks ?? 0, call?.ranks ?? 0) || 4, ink: this.ink ?? {}, font: this.font ?? "sans-serif", width: this.width,
      ratio: devicePixelRatio || 1, at, choice: this.choice };
    return this.scene?.calls ? atStuck(look) : look;
  }

  /** @param {number} at */
  loop(at) {
    if (!this.alive) return;
    requestAnimationFrame((next) => this.loop(next));
    if (!this.visible || this.width <= 0 || !this.scene) return;
    const began = performance.now(), before = this.player.key;
    this.player = advance(this.player, this.tale, at, this.#open);
    const t = this.playhead(at);
    if (this.player.t !== t) this.player = { ...this.player, t };
    this.wire.kept.player = this.player;
    const look = this.look(at);
    if (this.player.key !== before) this.texts = -Infinity;
    if (at - this.texts >= TEXT_MS) this.say(look);
    const { epoch } = this.known.table, key = look.told?.key ?? "";
    if (!this.dirty && t === this.drawn.t && epoch === this.drawn.epoch && key === this.drawn.key) return; // nothing moves that is not an event
    this.dirty = false;
    this.drawn = { t, epoch, key };
    this.view.draw(look);
    this.bar.draw(look, this.view.score ?? false);
    this.cost = performance.now() - began;
  }

  /** @param {Look} look */
  say(look) {
    this.texts = look.at;
    this.theme();
    look.ink = this.ink ?? {};
    look.font = this.font ?? "sans-serif";
    const { known } = look, { view } = this;
    for (const tab of /** @type {NodeListOf<HTMLElement>} */ (this.root.querySelectorAll(".wb-tabs button"))) {
      const scene = SCENES.find((s) => s.name === tab.dataset.scene);
      tab.hidden = scene !== this.scene && !(scene?.offered?.(known) ?? true);
    }
    const put = (/** @type {string} */ selector, /** @type {string} */ text) => {
      const node = this.$(selector);
      if (node.textContent !== text) node.textContent = text;
    };
    put(".wb-top b", view.title(look));
    this.root.classList.toggle("alone", !!known.run?.alone); // a picture without a run: there is no time to go through
    put(".wb-facts", factsOf(known));
    const behind = nowOf(known, look.at) - look.t;
    put(".wb-real", known.table.rows ? badge(look, behind, this.player) : "");
    const made = [...(known.run?.emulated.map((link) => link.words) ?? []), ...(known.run?.notes ?? []), ...(view.badges?.(look) ?? [])];
    const chips = this.$(".wb-made");
    if (chips.dataset.words !== made.join("\n")) {
      chips.dataset.words = made.join("\n");
      chips.replaceChildren(...made.map((words) => Object.assign(document.createElement("span"), { className: "wb-badge made", textContent: words })));
    }
    put(".wb-meter", meter(known));
    this.$(".wb-meter").classList.toggle("lossy", !!known.counters?.dropped);
    put(".wb-say", view.sentence(look));
    view.say(look);
    this.feed.say(look);
    this.bar.say(look);
  }

  /** A canvas of this size, cleared and scaled to CSS pixels. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
  paper(canvas, width, height) {
    const ratio = devicePixelRatio || 1, w = Math.round(width * ratio), h = Math.round(height * ratio);
    if (canvas.width !== w || canvas.height !== h) {
      canvas.width = w;
      canvas.height = h;
      canvas.style.height = `${height}px`;
    }
    const g = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    return g;
  }

  /** What is on screen: every mark with the row that it is. */
  frame() {
    const look = this.look(performance.now()), { call } = look;
    const on = call && { generation: call.generation, group: call.group, op: call.op, number: call.number };
    return { scene: this.scene?.name, call: on, playhead: look.t + this.known.origin, t: look.t, cost: this.cost ?? 0,
      marks: this.width > 0 ? this.view.marks(look) : [] };
  }

  end() {
    const focused = /** @type {Document | ShadowRoot} */ (this.root.getRootNode()).activeElement;
    if (focused && this.root.contains(focused)) this.wire.kept.focused = performance.now(); // a picture drawn anew takes it over
    this.alive = false;
    for (const { view } of this.views.values()) view.end();
    for (const end of this.ends) end();
    this.root.remove();
  }
}

/** @param {{model: any, el: HTMLElement, view?: any}} host */
function render({ model, el, view }) {
  const stage = new Stage(model, el, view);
  return () => stage.end();
}

export default { render };

// @ts-check
/**
 * The stage: one module for three hosts (anywidget in Jupyter, AnyWidgetComponent in Panel, a saved page).
 * It draws `frame = f(events, playhead)` and nothing else; space holds the view, L goes back to live.
 * `root.stage.frame()` tells what is on screen, mark by mark.
 * @typedef {import("./model.js").Call} Call
 * @typedef {import("./model.js").Known} Known
 * @typedef {import("./model.js").Player} Player
 */
import { busOf, hostIsDark, inksOf } from "./host.js";
import { NOTHING, advance, busiest, frameAt, playedAt, playheadOf, receive, stepFrom } from "./model.js";
import { drawAxis, drawBars, drawLabels, lanesHeight, timeAt, xOf } from "./lanes.js";
import { drawRing, marksOf, placesOf, ringHeight, wordsAt } from "./ring.js";
import { awaited, badge, factsOf, grouped, sentence, stateOf, story, titleOf } from "./words.js";

const STORY_LINES = 11, TEXT_MS = 250; // text changes at most four times a second

const FRAME = `
  <div class="wb-top"><b></b><span class="wb-facts"></span><span class="wb-meter"></span></div>
  <div class="wb-top wb-badges"><span class="wb-badge wb-real"></span><span class="wb-made"></span></div>
  <p class="wb-say" role="status"></p>
  <div class="wb-grid">
    <section><h3>Where the chunks are</h3><canvas class="wb-ring" role="img"></canvas>
      <p class="wb-key"><span><i class="cell">3</i>chunk 3 on its way</span><span><i class="halo"></i>waits</span><span><i class="away"></i>has not joined in yet</span><span class="wb-slowed" hidden><i class="link"></i>emulated link</span></p></section>
    <section><h3>What happened</h3><ol class="wb-story" aria-label="What happened up to the playhead"></ol></section>
  </div>
  <div class="wb-bar"><span class="wb-state"></span>
    <span class="wb-group"><button class="wb-back" aria-label="one chunk back" title="one chunk back: ←">◂</button><button class="wb-toggle" title="space: holds the picture, not the ranks"></button><button class="wb-next" aria-label="one chunk on" title="one chunk on: →">▸</button></span>
    <button class="wb-live" title="L">Back to live</button><span class="wb-hint">space holds the view · ← → one chunk · L live</span></div>
  <canvas class="wb-lanes" role="slider" tabindex="0" aria-label="time within this call"></canvas>
  <p class="wb-key"><span><i class="solid"></i>above: sending, below: receiving</span><span><i class="open"></i>below: waiting for a rank</span></p>`;

class Stage {
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
    this.known = /** @type {Known} */ (NOTHING);
    this.player = /** @type {Player | null} */ (null);
    this.width = 0;
    this.texts = -Infinity;
    this.dirty = this.alive = this.visible = true;
    this.bars = { key: "", canvas: document.createElement("canvas") };
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.bus = busOf(model, view);
    this.ends = [this.bus.listen((m, buffers) => this.take(m, buffers)), ...this.watchHost(), ...this.watchReader()];
    /** @type {any} */ (this.root).stage = { frame: () => this.frame(), known: () => this.known, show: (/** @type {string} */ key) => this.show(key) };
    this.bus.send({ type: "hello" });
    requestAnimationFrame((at) => this.loop(at));
  }

  /** @template {HTMLElement} [T=HTMLElement] @param {string} selector @returns {T} */
  $(selector) {
    return /** @type {T} */ (this.root.querySelector(selector));
  }

  /** The call on show. @returns {Call | null} */
  get call() {
    return this.known.calls.find((call) => call.key === this.player?.key) ?? null;
  }

  /** @param {any} message @param {any[]} buffers */
  take(message, buffers) {
    const before = this.known;
    this.known = receive(before, message, buffers, performance.now());
    if (this.known.run?.id !== before.run?.id) this.player = null;
    if (this.known.missed > before.missed) this.bus.send({ type: "hello" }); // Python answers with what was missed
    if (this.known.state !== before.state) this.texts = -Infinity;
    this.dirty = true;
  }

  /** Follow the host's ground, and style sheets that come late. Looked at with the texts: hosts tell nobody. */
  theme() {
    const scheme = hostIsDark(this.root) ? "dark" : "light", token = getComputedStyle(this.root).getPropertyValue("--comm");
    if (this.themed === scheme + token) return;
    this.themed = scheme + token;
    this.root.style.colorScheme = scheme;
    this.ink = inksOf(this.root);
    this.font = getComputedStyle(this.root).fontFamily;
    this.bars.key = "";
    this.dirty = true;
  }

  watchHost() {
    const size = new ResizeObserver(() => {
      this.width = this.root.clientWidth - 32;
      this.root.classList.toggle("narrow", this.width < 640);
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
    this.$(".wb-toggle").onclick = () => this.toggle();
    this.$(".wb-live").onclick = () => this.live();
    this.$(".wb-back").onclick = () => this.step(-1);
    this.$(".wb-next").onclick = () => this.step(1);
    const keys = (/** @type {KeyboardEvent} */ event) => {
      const act = { " ": () => this.toggle(), l: () => this.live(), L: () => this.live(), ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1) }[event.key];
      const onButton = event.key === " " && event.target instanceof HTMLButtonElement; // a button's own key
      if (!act || onButton || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      act();
    };
    this.root.addEventListener("keydown", keys);
    const lanes = this.$(".wb-lanes"), ring = this.$(".wb-ring");
    lanes.onpointerdown = (event) => {
      lanes.setPointerCapture(event.pointerId);
      this.scrub(event);
    };
    lanes.onpointermove = (event) => event.buttons & 1 && this.scrub(event);
    ring.onpointermove = (event) => {
      const call = this.call;
      if (call && this.place) ring.title = wordsAt(frameAt(call, this.playhead(performance.now())), this.place, event.offsetX, event.offsetY);
    };
    return [() => this.root.removeEventListener("keydown", keys)];
  }

  /** @param {number} at */
  playhead(at) {
    const { call, player } = this;
    if (!call || !player) return 0;
    return this.still.matches && player.held === null ? busiest(call) : playheadOf(player, call, at);
  }

  /** @param {number | null} t nanoseconds into the call; null lets it play on from where it is */
  hold(t) {
    const { call, player } = this, at = performance.now();
    if (!call || !player) return;
    const began = t === null && player.held !== null ? at - playedAt(call, player.held) : player.began;
    this.player = { key: player.key, began, held: t };
    this.texts = -Infinity;
    this.dirty = true;
  }

  toggle() {
    this.hold(this.player?.held === null ? this.playhead(performance.now()) : null);
  }

  /** @param {number} way */
  step(way) {
    if (this.call) this.hold(stepFrom(this.call, this.playhead(performance.now()), way));
  }

  live() {
    this.show(this.known.calls.at(-1)?.key ?? "");
  }

  /** Play a call from its start. @param {string} key */
  show(key) {
    if (this.known.calls.some((call) => call.key === key)) this.player = { key, began: performance.now(), held: null };
    this.texts = -Infinity;
    this.dirty = true;
  }

  /** @param {PointerEvent} event */
  scrub(event) {
    if (this.call) this.hold(timeAt(event.offsetX, this.call.end - this.call.start, this.width));
  }

  /** @param {number} at */
  loop(at) {
    if (!this.alive) return;
    requestAnimationFrame((next) => this.loop(next));
    if (!this.visible || !this.width) return;
    const player = advance(this.player, this.known, at), moved = player !== this.player;
    this.player = player;
    const call = this.call, t = this.playhead(at);
    if (moved) this.texts = -Infinity;
    if (at - this.texts >= TEXT_MS) this.say(call, t, at);
    if (!this.dirty && !moved && t === this.drawn) return; // nothing moves that is not an event
    this.draw(call, t);
    this.drawn = t;
    this.dirty = false;
  }

  /** @param {Call | null} call @param {number} t @param {number} at */
  say(call, t, at) {
    this.texts = at;
    this.theme();
    const { known } = this, held = this.player?.held != null, over = known.state !== "running";
    const put = (/** @type {string} */ selector, /** @type {string} */ text) => {
      const node = this.$(selector);
      if (node.textContent !== text) node.textContent = text;
    };
    put(".wb-top b", call ? titleOf(call) : known.run?.title ?? "Distributed training");
    put(".wb-facts", factsOf(known));
    const behind = call ? known.clock + at * 1e6 - (call.start + t) : NaN;
    put(".wb-real", call ? badge(call, known, behind) : "");
    const made = [...(known.run?.emulated.map((link) => link.words) ?? []), ...(known.run?.notes ?? [])];
    const chips = this.$(".wb-made");
    if (chips.dataset.words !== made.join("\n")) {
      chips.dataset.words = made.join("\n");
      chips.replaceChildren(...made.map((words) => Object.assign(document.createElement("span"), { className: "wb-badge made", textContent: words })));
    }
    this.$(".wb-slowed").hidden = !known.run?.emulated.length;
    const counters = known.counters;
    put(".wb-meter", counters ? `${grouped(counters.events)} events · ${grouped(counters.dropped)} dropped` : "");
    this.$(".wb-meter").classList.toggle("lossy", !!counters?.dropped);
    put(".wb-say", sentence(known, call));
    const [words, name] = stateOf(known, held);
    put(".wb-state", words);
    this.$(".wb-state").className = `wb-state ${name}`;
    put(".wb-toggle", held ? "▶ Play" : "❚❚ Hold the view");
    put(".wb-live", over ? "To the newest" : "Back to live");
    for (const button of this.root.querySelectorAll("button")) button.disabled = !call;
    this.tell(call ? story(call, t, STORY_LINES) : []);
    const slider = this.$(".wb-lanes"), span = call ? call.end - call.start : 0;
    slider.setAttribute("aria-valuemin", "0");
    slider.setAttribute("aria-valuemax", String(Math.round(span)));
    slider.setAttribute("aria-valuenow", String(Math.round(t)));
    this.$(".wb-ring").setAttribute("aria-label", call ? this.spoken(call, t) : "The ring of ranks; nothing moves yet");
  }

  /** The picture in words, for a screen reader. @param {Call} call @param {number} t */
  spoken(call, t) {
    const frame = frameAt(call, t);
    const moving = frame.comets.map((c) => `chunk ${c.chunk} from rank ${c.from} to rank ${c.to}`);
    const waiting = [...frame.waiting.values()].map((w) => `rank ${w.rank} waits for ${awaited(w)}`);
    return [...moving, ...waiting].join("; ") || "nothing is on its way at this moment";
  }

  /** @param {[string, string][]} lines */
  tell(lines) {
    const list = this.$(".wb-story");
    while (list.children.length < STORY_LINES) list.append(Object.assign(document.createElement("li"), { innerHTML: "<span></span><em></em>" }));
    [...list.children].forEach((item, i) => {
      const [when, what] = lines[i] ?? ["", ""];
      item.classList.toggle("newest", i === lines.length - 1);
      if (item.children[0].textContent !== when) item.children[0].textContent = when;
      if (item.children[1].textContent !== what) item.children[1].textContent = what;
    });
  }

  /** A canvas of this height, cleared and scaled to CSS pixels. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
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

  /** @param {Call | null} call @param {number} t */
  draw(call, t) {
    const ink = /** @type {Record<string, string>} */ (this.ink), font = this.font ?? "sans-serif";
    const ranks = call?.ranks ?? this.known.run?.ranks ?? 4, ring = this.$("canvas.wb-ring"), height = ringHeight(ranks);
    this.place = placesOf(ranks, ring.clientWidth, height, call?.flights ?? []);
    const emulated = new Set(this.known.run?.emulated.map((link) => `${link.from}>${link.to}`));
    const frame = call && frameAt(call, t);
    drawRing(this.paper(/** @type {HTMLCanvasElement} */ (ring), ring.clientWidth, height), ink, font, ranks, this.place, call, frame, emulated);
    const g = this.paper(this.$("canvas.wb-lanes"), this.width, lanesHeight(ranks));
    drawLabels(g, ink, font, ranks, this.width);
    if (!call) return;
    const bars = this.barsOf(call, ink), x = xOf(t, call.end - call.start, this.width), tall = lanesHeight(ranks);
    g.globalAlpha = 0.35; // the future is pale
    g.drawImage(bars, 0, 0, this.width, tall);
    g.globalAlpha = 1;
    g.save();
    g.beginPath();
    g.rect(0, 0, x, tall);
    g.clip();
    g.drawImage(bars, 0, 0, this.width, tall);
    g.restore();
    drawAxis(g, ink, font, call, this.width, t);
  }

  /** The strip's bars, drawn once a call. @param {Call} call @param {Record<string, string>} ink */
  barsOf(call, ink) {
    const ratio = devicePixelRatio || 1, key = `${call.key} ${this.width} ${ratio}`;
    if (this.bars.key !== key) {
      drawBars(this.paper(this.bars.canvas, this.width, lanesHeight(call.ranks)), ink, call, this.width, ratio);
      this.bars.key = key;
    }
    return this.bars.canvas;
  }

  /** What is on screen: every mark with the row that it is. */
  frame() {
    const call = this.call, playhead = this.playhead(performance.now());
    if (!call || !this.place) return { call: null, playhead: 0, marks: [] };
    const { generation, group, op } = call;
    const marks = marksOf(frameAt(call, playhead), this.place).map((m) => ({ rank: m.from, peer: m.to, generation, group, op, step: m.step,
      chunk: m.chunk, slot: m.slot, share: m.share, x: m.x, y: m.y }));
    return { call: { generation, group, op, number: call.number }, playhead: call.start + playhead, marks };
  }

  end() {
    this.alive = false;
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

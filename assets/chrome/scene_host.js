// @ts-check
/**
 * The scenes of a stage: which of them a run offers, their tabs, and the one that is on show. A scene
 * is a folder, scenes/<name>/, with its manifest (scene.json: its label, its place among the tabs)
 * and a module (scene.js); the list of them is made where the stage is put together, by listing
 * folders. See workbench/front_end/assets.py.
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("./stage.js").View} View
 * @typedef {import("../engine/player.js").Known} Known
 * @typedef {import("../engine/call_source.js").CallSource} CallSource
 * @typedef {{title: string, what: string, failed?: boolean, final?: boolean,
 *   scene?: string}} LookNext
 *   where to look next: a title, and what one finds there; failed: also of a run that failed; final:
 *   stays the caption, whichever rank waits
 * @typedef {{build(body: HTMLElement, stage: Stage): View, offered?(known: Known): boolean,
 *   source?(known: Known): CallSource | null, tellsRun?: boolean, calls?: boolean,
 *   alone?: boolean, lookNext?(known: Known): LookNext | null,
 *   meaning?(run: import("../engine/player.js").RunFacts): import("../engine/run_words.js").Meaning |
 *   null}} SceneModule
 *   what scene.js exports as <name>Scene. offered: whether there is something of this run to see in
 *   it; source: units of its own that it shows; tellsRun: all scenes show them; calls:
 *   it shows single calls, also of a run with other units; alone: where it is offered
 *   no other scene is; lookNext: why the overview sends a reader there;
 *   meaning: what training together means in a run whose picture it is
 * @typedef {SceneModule & {name: string, label: string, order: number,
 *   walk?: {marks: Record<string, string | string[]>,
 *   steps: import("../engine/walk_steps.js").Step[]}}} Scene
 *   walk: what is in its walk.json, the marks that steps may name, by selector or "" if it is drawn
 */
import { ledByArrow } from "./arrow_keys.js";
import { sourceOf } from "../engine/call_source.js";
import { burstsOf } from "../engine/bursts_of_run.js";
import { SceneList } from "./scene_list.js";

const DIGITS = 9; // scenes that have a key of their own

export class SceneHost {
  /** @param {Stage} stage @param {Scene[]} scenes */
  constructor(stage, scenes) {
    this.stage = stage;
    this.all = scenes;
    this.current = /** @type {Scene | null} */ (null);
    this.derived = this.#derived();
    this.views = /** @type {Map<string, {body: HTMLElement, view: View}>} */ (new Map());
    this.ofRun = this.all.flatMap(({ source, tellsRun }) => (source && tellsRun ? [source] : []));
    this.list = new SceneList(this);
    this.room = ""; // that the row of tabs has, and needs
    this.run = ""; // whose tabs these are
    this.#tabs();
  }

  /** Whether there is something of this run to see in a scene. @param {Scene} scene @param {Known} known */
  offers(scene, known) {
    const alone = this.all.find((one) => one.alone && one.offered?.(known));
    if (alone || scene.alone) return scene === alone;
    const { offered = () => true } = scene;
    if (!scene.calls) return offered(known);
    const hasRunScene = this.all.some((one) => one.tellsRun && one.offered?.(known));
    return offered(known) && (!hasRunScene || known.table.calls.length > 0);
  }

  /** The scenes that this run offers, in their order. @returns {Scene[]} */
  offered() {
    return this.all.filter((scene) => this.offers(scene, this.stage.known));
  }

  /** The digit that opens a scene, "" none. @param {Scene} scene */
  digitOf(scene) {
    const at = this.all.indexOf(scene);
    return at < DIGITS ? String(at + 1) : "";
  }

  /** @param {string} key */
  ofDigit(key) {
    return this.offered().find((scene) => this.digitOf(scene) === key);
  }

  /** What derives calls, as the scenes say: the source for the whole run first. */
  #derived() {
    const sources = this.all.filter((scene) => scene.source);
    const sorted = [
      ...sources.filter((one) => one.tellsRun),
      ...sources.filter((one) => !one.tellsRun),
    ];
    return sorted.map((scene) => /** @type {NonNullable<Scene["source"]>} */ (scene.source));
  }

  /**
   * Return the units that this scene shows the run in: its calls, the rounds of a parameter server or a
   * pipeline's passes; where calls are what is shown, those.
   * @param {Known} known
   * @returns {CallSource}
   */
  source(known) {
    const { current: scene } = this;
    const calls = scene?.tellsRun ? null : scene?.source?.(known);
    if (calls) return calls;
    if (scene?.calls && known.table.calls.length && !burstsOf(known)) return known.table;
    return sourceOf(known, this.ofRun);
  }

  /** A scene that shows what is special in this run; null: there is none. @returns {LookNext | null} */
  lookNext() {
    for (const { name, lookNext } of this.all) {
      const look = lookNext?.(this.stage.known);
      if (look) return { ...look, scene: name };
    }
    return null;
  }

  #tabs() {
    const tabs = this.stage.$(".wb-tabs");
    tabs.onkeydown = (event) => this.#walk(event);
    tabs.onscroll = () => tabs.classList.toggle("scrolled", tabs.scrollLeft > 0);
    for (const scene of this.all) {
      const tab = document.createElement("button");
      const digit = this.digitOf(scene);
      tab.setAttribute("role", "tab");
      tab.dataset.scene = scene.name;
      tab.textContent = scene.label;
      if (digit) tab.setAttribute("aria-keyshortcuts", digit); // which the tab shows, too
      tab.title = digit ? `${scene.label}: ${digit}` : scene.label;
      tab.onclick = () => this.open(scene.name);
      tab.id = this.#idOf("tab", scene);
      tab.setAttribute("aria-controls", this.#idOf("panel", scene));
      tabs.append(tab);
    }
  }

  /** @param {"tab" | "panel"} what @param {Scene} scene */
  #idOf(what, scene) {
    return `wb-${this.stage.id}-${what}-${scene.name}`;
  }

  /** From tab to tab by arrows; the view follows. @param {KeyboardEvent} event */
  #walk(event) {
    const tab = ledByArrow(
      event,
      [...this.#buttons()].filter((one) => !one.hidden),
    );
    if (!tab) return;
    this.open(tab.dataset.scene ?? "");
    tab.focus();
  }

  /**
   * Show a scene; "" is the first.
   * @param {string} name
   * @param {boolean} [chosen] by the reader: it is kept
   */
  open(name, chosen = true) {
    const { stage } = this;
    const offered = this.offered();
    const { run } = stage.known; // until it is known, what comes has the shape that it was opened for
    const scene =
      (run ? offered : this.all).find((one) => one.name === name) ?? offered[0] ?? this.all[0];
    if (chosen) stage.wire.kept.scene = scene.name;
    if (this.current === scene) return;
    const before = stage.playback.source;
    stage.point(null);
    this.current = scene;
    if (stage.playback.source !== before) stage.playback.retell();
    if (!this.views.has(scene.name)) {
      const body = document.createElement("section");
      body.className = `wb-scene wb-scene-${scene.name}`;
      body.setAttribute("role", "tabpanel");
      body.id = this.#idOf("panel", scene);
      body.setAttribute("aria-labelledby", this.#idOf("tab", scene));
      stage.$(".wb-scenes").append(body);
      this.views.set(scene.name, { body, view: scene.build(body, stage) });
    }
    for (const [other, { body }] of this.views) body.hidden = other !== scene.name;
    for (const tab of this.#buttons()) {
      tab.setAttribute("aria-selected", String(tab.dataset.scene === scene.name));
      tab.tabIndex = tab.dataset.scene === scene.name ? 0 : -1;
    }
    this.#reveal();
    stage.root.dataset.scene = scene.name;
    stage.touch();
  }

  /** Scroll the row of tabs, where it is wider than the stage, to the chosen one. */
  #reveal() {
    const row = this.stage.$(".wb-tabs");
    const tab = [...this.#buttons()].find((one) => one.tabIndex === 0);
    if (!tab) return;
    const left = tab.offsetLeft - row.offsetLeft;
    const faded = parseFloat(getComputedStyle(row).paddingRight);
    const least = left + tab.offsetWidth + faded - row.clientWidth;
    row.scrollLeft = Math.min(Math.max(row.scrollLeft, least), Math.max(0, left - faded));
  }

  #buttons() {
    return /** @type {NodeListOf<HTMLElement>} */ (
      this.stage.root.querySelectorAll(".wb-tabs button")
    );
  }

  /** @returns {View} */
  get view() {
    const { name } = /** @type {Scene} */ (this.current);
    return /** @type {{view: View}} */ (this.views.get(name)).view;
  }

  /**
   * Show the tabs of the scenes that the run offers: one that is offered later comes when the pointer
   * has left the row, so that none moves away from under it. Called with the stage's texts.
   */
  say() {
    const offered = this.offered();
    const row = this.stage.$(".wb-tabs");
    const run = this.stage.known.run?.id ?? "";
    const isAimedAt = run === this.run && row.matches(":hover");
    this.run = run;
    for (const tab of this.#buttons()) {
      const scene = /** @type {Scene} */ (this.all.find((one) => one.name === tab.dataset.scene));
      const waits = isAimedAt && tab.hidden && scene !== this.current;
      tab.hidden = waits || (scene !== this.current && !offered.includes(scene));
    }
    const { clientWidth, scrollWidth } = row;
    const room = `${clientWidth} ${scrollWidth}`;
    if (room !== this.room) this.#reveal();
    this.room = room;
  }

  end() {
    for (const { view } of this.views.values()) view.end();
  }
}

// @ts-check
/**
 * The timeline: what every rank does when. Above, the whole run as density with a window on it;
 * below, the window's lanes as they were; then what an iteration's communication was made of, and
 * who holds up whom, in words.
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("./layout.js").Window} Window
 */
import { stuckNow, stuckWords } from "../../engine/blocked.js";
import { isScript } from "./script_steps.js";
import { heldIterationWords } from "./step_facts.js";
import { crowdBadge, iterationWords, overlapWords, stragglerWords } from "./captions.js";
import { BelowLanes } from "./below.js";
import { bucketFacts } from "./buckets.js";
import { foldedTimeWords } from "./folded_words.js";
import { IterationReport, goneRanks } from "./iteration_report.js";
import { LanesPicture } from "./lanes_picture.js";
import { TimelineIndex } from "./index.js";
import { TimelineMap } from "./map.js";
import { WindowControl, hasFoldedTime } from "./window_control.js";
import { drawKeys, keysOf } from "./legend.js";
import { drawOver, neighbourEdge } from "./overlay.js";
import { drawStanding } from "./standing.js";
import { listenFind } from "./find.js";
import { listenTimeline, timelineKey } from "./pointer.js";
import { RankRows } from "./rank_rows.js";
import { placeOf } from "./layout.js";
import { BAND_HEIGHT, hasBands } from "../../drawing/generation_bands.js";
import { hatched } from "../../drawing/hatch.js";
import { generationsOf } from "../../engine/generations.js";
import { failedHere } from "../../engine/failure_caption.js";
import { duration, grouped, sentence } from "../../engine/format.js";
import { isOver } from "../../engine/player.js";

const BELOW = 20; // px between the key and what is below it
const BODY = `
  <div class="wb-tl-bar"><span class="wb-tl-where"></span>
    <span class="wb-tl-rows" hidden><input class="wb-typed" data-rows="only" placeholder="ranks: 0-7, 12" aria-label="Show these ranks only" title="show these ranks only: 0-7, 12"><button data-rows="sort" aria-pressed="false" title="the ranks that have waited longest so far, first">Most waiting first</button><button data-rows="pin" title="keep the chosen rank at the top">Pin</button></span>
    <span><input class="wb-typed" type="search" data-rows="find" placeholder="find: fc1" aria-label="Find in the lanes: a parameter, a collective, a kind of computing" title="Enter: the next one; Shift-Enter: the one before"> <output class="wb-tl-found"></output></span>
    <span class="wb-tl-group"><button data-do="wider" title="show more time: [">Wider</button><button data-do="narrower" title="show less time: ]">Narrower</button></span>
    <span class="wb-tl-group"><button data-do="earlier" title="{" aria-label="the window earlier">◂</button><button data-do="later" title="}" aria-label="the window later">▸</button></span>
    <button data-do="follow" title="the window goes where the playhead is: O" aria-pressed="true">Follow the playhead</button></div>
  <canvas class="wb-tl-map" tabindex="0" role="slider" aria-label="the window on the whole run"></canvas>
  <canvas class="wb-tl-lanes" tabindex="0" role="img"></canvas>
  <div class="wb-tl-tip" hidden></div>
  <p class="wb-key wb-tl-key"></p>
  <div class="wb-tl-below">
    <section><h3>Communication <small class="wb-tl-made">hidden behind computing, exposed, waiting</small></h3><canvas class="wb-tl-split" role="img"></canvas></section>
    <section><h3>In words</h3><dl class="wb-tl-words"></dl></section>
  </div>
  <p class="wb-hint wb-tl-hint">[ ] wider, narrower · { } earlier, later · O follows · shift-wheel or pinch zooms · drag moves · click selects · ↑ ↓ choose a rank in the lanes</p>`;

export class TimelineView {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.body = body;
    this.stage = stage;
    body.innerHTML = BODY;
    this.map = new TimelineMap();
    this.index = /** @type {TimelineIndex | null} */ (null);
    this.window = new WindowControl(stage, (look) => this.#take(look));
    this.lanes = new LanesPicture(stage);
    this.report = new IterationReport();
    this.below = new BelowLanes(this);
    this.has = /** @type {Set<string>} */ (new Set()); // keys that were shown: they stay
    this.keyed = 0; // how many of them are drawn
    this.theme = "";
    this.ranks = /** @type {number[]} */ ([]);
    this.place = placeOf(4, 900);
    this.rest = 0; // px that what stands around the map and the lanes takes
    this.root = /** @type {HTMLElement | null} */ (null);
    this.buckets = /** @type {import("./buckets.js").Buckets | null} */ (null);
    this.keys = (/** @type {KeyboardEvent} */ event) => timelineKey(this, event);
    this.rows = new RankRows(this);
    listenTimeline(this);
    listenFind(this);
  }

  /** @param {string} selector @returns {any} */
  $(selector) {
    return this.body.querySelector(selector);
  }

  // ---- what is known

  /** @param {Look} look */
  #take(look) {
    if (this.index?.table !== look.table) {
      this.index = new TimelineIndex(look.table, isScript(look.known));
      this.window.win = null;
      this.map = new TimelineMap();
      this.report.key = this.lanes.key = "";
      this.has.clear();
      this.below.reach = 0;
    }
    this.index.update();
    this.index.gone = goneRanks(look.known);
    this.index.bounds = look.known.run?.clock_bounds ?? {};
    this.index.generations = generationsOf(look.known).slice(1);
    return this.index;
  }

  /** @param {Look} look */
  #ranks(look) {
    const seen = [...(this.index?.ranks.keys() ?? [])];
    return Array.from(
      { length: Math.max(look.ranks, (seen[seen.length - 1] ?? -1) + 1) },
      (_, rank) => rank,
    );
  }

  // ---- the picture

  /**
   * Where things are: in the height that the window leaves to the map and the lanes.
   * @param {Look} look @param {number} ranks
   */
  #place(look, ranks) {
    const { left } = this.stage.screen;
    const room = left > this.rest ? left - this.rest : Infinity;
    return (this.place = placeOf(
      ranks,
      look.width,
      hasBands(look.known) ? BAND_HEIGHT + 3 : 0,
      room,
    ));
  }

  /** Measure what stands around the map and the lanes; what is below them may be scrolled to. */
  #measure() {
    const high = (/** @type {string} */ one) => this.$(one).offsetHeight;
    const below = this.stage.screen.full ? 0 : high(".wb-tl-below") + high(".wb-tl-hint") + BELOW;
    const rest = this.body.offsetHeight - high(".wb-tl-map") - high(".wb-tl-lanes") - below;
    if (rest !== this.rest) this.stage.dirty = true;
    this.rest = rest;
  }

  /** @param {Look} look @param {Window} win */
  #canvas(look, win) {
    this.theme = look.ink.ground + look.ink.wait + look.ratio;
    const cores = look.known.run?.cores ?? 0;
    const ranks = (this.ranks = this.rows.of(this.#ranks(look)));
    this.buckets = bucketFacts(look.known.run);
    return {
      index: /** @type {TimelineIndex} */ (this.index),
      win,
      place: this.#place(look, ranks.length),
      ink: look.ink,
      font: look.font,
      waiting: hatched(look.ink.wait, look.ratio),
      holding: hatched(look.ink.hold, look.ratio),
      cores,
      crowded: cores > 0 && ranks.length > cores,
    };
  }

  /** @param {Look} look */
  draw(look) {
    const index = this.#take(look);
    const win = this.window.at(look);
    const canvas = this.#canvas(look, win);
    const { place } = canvas;
    const { ranks, stage } = this;
    const changed = index.changedFrom;
    const theme = this.theme;
    const straggler = ranks.includes(this.report.straggler?.rank ?? -1)
      ? this.report.straggler
      : null;
    index.changedFrom = Infinity;
    this.map.update(
      index,
      place,
      ranks,
      {
        ink: look.ink,
        waiting: canvas.waiting,
        ratio: look.ratio,
        over: isOver(look.known),
        folded: hasFoldedTime(look),
        theme,
      },
      changed,
    );
    this.map.draw(
      stage.paper(this.$(".wb-tl-map"), look.width, place.map.height),
      { ...look, holding: canvas.holding },
      index,
      place,
      ranks,
      win,
      straggler?.rank ?? -1,
    );
    const g = this.lanes.draw(this.$(".wb-tl-lanes"), look, canvas, ranks, changed, theme);
    drawStanding(g, look, canvas, ranks);
    drawOver(g, canvas, ranks, look, straggler, this.lanes.hits);
  }

  /** @param {Look} look */
  say(look) {
    const index = this.#take(look);
    const report = this.report.update(look, index);
    const win = this.window.at(look);
    const canvas = this.#canvas(look, win);
    const cores = look.known.run?.cores ?? 0;
    const { facts, straggler } = report;
    if (this.root !== this.stage.root) {
      this.root = this.stage.root;
      this.root.addEventListener("keydown", this.keys);
    }
    const put = (/** @type {string} */ selector, /** @type {string} */ text) => {
      const node = this.$(selector);
      if (node.textContent !== text) node.textContent = text;
    };
    const span = duration(win.to - win.from);
    const at = win.iteration >= 0 ? `iteration ${grouped(win.iteration + 1)}` : "the run";
    put(
      ".wb-tl-where",
      !look.table.rows
        ? ""
        : `${win.follows ? at : `from ${duration(Math.max(0, win.from))}`} · ${span} in the ` +
            `window${win.change ? ` (${win.change})` : ""}` +
            (canvas.place.band > 1 ? ` · ${canvas.place.band} ranks a row, their mean` : ""),
    );
    this.rows.say(this.#ranks(look).length);
    this.$("[data-do=follow]").setAttribute("aria-pressed", String(win.follows));
    this.#sayKeys(look, canvas);
    put(
      ".wb-tl-made",
      index.script ? "sent, waiting" : "hidden behind computing, exposed, waiting",
    );
    this.$(".wb-tl-below").hidden =
      hasFoldedTime(look) || (!look.known.run?.strategy && !facts.length);
    this.below.say(look, report, canvas);
    const map = this.$(".wb-tl-map");
    const run = { from: look.table.rows ? look.table.from : 0, to: Math.max(1, look.table.to) };
    for (const [name, value] of [
      ["min", run.from],
      ["max", run.to],
      ["now", win.from],
    ])
      map.setAttribute(`aria-value${name}`, String(Math.round(Number(value))));
    map.setAttribute("aria-valuetext", `${at}, ${span} wide`);
    this.#measure();
    this.$(".wb-tl-lanes").setAttribute(
      "aria-label",
      `What each rank does in ${span}. ${iterationWords(facts, cores, index.script)} ` +
        `${overlapWords(facts, index.script)}. ${straggler ? stragglerWords(straggler) : ""}`,
    );
  }

  /**
   * Show the keys to what has been on show so far.
   * @param {Look} look
   * @param {import("./draw.js").Canvas} canvas
   */
  #sayKeys({ choice, known }, { index, place }) {
    const trains = !index.script;
    const chosen = choice?.op !== undefined;
    for (const name of keysOf(index, place.level, this.lanes.single, chosen, trains))
      this.has.add(name);
    if (this.keyed !== this.has.size) drawKeys(this.$(".wb-tl-key"), this.has);
    this.keyed = this.has.size;
  }

  /** What moves. @param {Look} look */
  marks(look) {
    return this.index ? this.lanes.marks(this.index.table, look.t) : [];
  }

  /** @param {Look} look */
  title(look) {
    const run = look.known.run;
    return run?.title || "Timeline";
  }

  /** @param {Look} look */
  sentence(look) {
    const { known } = look;
    const failed = failedHere(look);
    if (failed) return failed;
    if (
      (known.state === "failed" && !known.words) ||
      known.state === "empty" ||
      known.state === "starting"
    )
      return sentence(known);
    const stuck = known.control?.held || isOver(known) ? "" : stuckWords(stuckNow(look), look);
    if (stuck) return stuck;
    if (hasFoldedTime(look)) return foldedTimeWords(this.#take(look), this.window.at(look));
    const { facts, straggler } = this.report.update(look, this.#take(look));
    const held = heldIterationWords(look.table, facts);
    if (held) return held;
    if (straggler) return stragglerWords(straggler);
    return (
      iterationWords(facts, known.run?.cores ?? 0, isScript(known)) ||
      (isOver(known)
        ? known.words || "The run is over, and no iteration of it was recorded."
        : known.run?.strategy
          ? "The ranks run. Waiting for the first iteration that all of them complete."
          : "The ranks run. The job has marked no iteration; the lanes show what it does.")
    );
  }

  /** @param {Look} look */
  badges({ known, ranks }) {
    const crowd = crowdBadge(known.run?.ranks ?? ranks, known.run?.cores ?? 0);
    return crowd ? [crowd] : [];
  }

  /** @param {Look} look @param {string} unit @param {number} way */
  step(look, unit, way) {
    return neighbourEdge(this.#take(look), look, unit, way);
  }

  end() {
    this.root?.removeEventListener("keydown", this.keys);
  }
}

/** @type {import("../../chrome/scene_host.js").SceneModule} */
export const timelineScene = {
  build: (/** @type {HTMLElement} */ body, /** @type {Stage} */ stage) =>
    new TimelineView(body, stage),
};

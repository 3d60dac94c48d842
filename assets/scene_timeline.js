// @ts-check
/**
 * The timeline: what every rank does when. Above, the whole run as density with a window on it; below, the window's
 * lanes as they were; then what an iteration's communication was made of, and who holds up whom, in words.
 * @typedef {import("./stage.js").Look} Look
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("./timeline_layout.js").Window} Window
 * @typedef {import("./timeline_draw.js").Hit} Hit
 */
import { densityWords, RECENT, beginningOf, chosenWords, coreWords, costWords, crowdBadge, iterationWords, overlapWords, stragglerOf, stragglerWords } from "./timeline_words.js";
import { hatched } from "./hatch.js";
import { drawLanes, hitWords } from "./timeline_draw.js";
import { drawOver, neighbourEdge } from "./timeline_over.js";
import { isOver } from "./player.js";
import { bucketNames, bucketNumber, parameterWords } from "./timeline_buckets.js";
import { drawKeys, keysOf } from "./timeline_keys.js";
import { listenTimeline, timelineKey } from "./timeline_hands.js";
import { panWindow, timelinePlace, windowFor, windowT, windowX, zoomWindow } from "./timeline_layout.js";
import { TimelineIndex } from "./timeline_index.js";
import { TimelineMap } from "./timeline_map.js";
import { drawSplit, splitHeight, splitReach } from "./timeline_split.js";
import { failedWords } from "./tell_failed.js";
import { duration, grouped, sentence } from "./words.js";

const ZOOM = 1.5;
/** @type {Window} */
const EMPTY = { from: 0, to: 5e7, iteration: -1, follows: true, chosen: false, said: "" };

const BODY = `
  <div class="wb-tl-bar"><span class="wb-tl-where"></span>
    <span class="wb-tl-group"><button data-do="wider" title="show more time: [">Wider</button><button data-do="narrower" title="show less time: ]">Narrower</button></span>
    <span class="wb-tl-group"><button data-do="earlier" title="{" aria-label="the window earlier">◂</button><button data-do="later" title="}" aria-label="the window later">▸</button></span>
    <button data-do="follow" title="the window goes where the playhead is: F" aria-pressed="true">Follow the playhead</button></div>
  <canvas class="wb-tl-map" tabindex="0" role="slider" aria-label="the window on the whole run"></canvas>
  <canvas class="wb-tl-lanes" tabindex="0" role="img"></canvas>
  <div class="wb-tl-tip" hidden></div>
  <p class="wb-key wb-tl-key"></p>
  <div class="wb-tl-below">
    <section><h3>Communication <small>hidden behind computing, exposed, waiting</small></h3><canvas class="wb-tl-split" role="img"></canvas></section>
    <section><h3>In words</h3><dl class="wb-tl-words"></dl></section>
  </div>
  <p class="wb-hint wb-tl-hint">[ ] wider, narrower · { } earlier, later · F follow · shift-wheel or pinch zooms · drag moves · click selects · ↑ ↓ choose a rank in the lanes</p>`;

export class TimelineView {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.body = body;
    this.stage = stage;
    body.innerHTML = BODY;
    this.map = new TimelineMap();
    this.index = /** @type {TimelineIndex | null} */ (null);
    this.win = /** @type {Window | null} */ (null);
    this.lanes = { canvas: document.createElement("canvas"), key: "", hits: /** @type {Hit[]} */ ([]), single: false };
    this.has = /** @type {Set<string>} */ (new Set()); // keys that were shown: they stay
    this.theme = "";
    this.told = { key: "", iteration: -1, facts: /** @type {any[]} */ ([]), straggler: /** @type {any} */ (null) };
    this.reach = 0; // of the split
    this.ranks = /** @type {number[]} */ ([]);
    this.width = 900;
    this.root = /** @type {HTMLElement | null} */ (null);
    this.buckets = /** @type {import("./timeline_buckets.js").Buckets | null} */ (null);
    this.said = { words: "", keys: "", split: "" };
    this.keys = (/** @type {KeyboardEvent} */ event) => timelineKey(this, event);
    listenTimeline(this);
  }

  /** @param {string} selector @returns {any} */
  $(selector) {
    return this.body.querySelector(selector);
  }

  // ---- what is known

  /** @param {Look} look */
  #take(look) {
    if (this.index?.table !== look.table) {
      this.index = new TimelineIndex(look.table);
      this.win = null;
      this.map = new TimelineMap();
      this.told.key = this.lanes.key = "";
      this.has.clear();
      this.reach = 0;
    }
    this.index.update();
    return this.index;
  }

  /** @param {Look} look */
  #ranks(look) {
    const seen = [...(this.index?.ranks.keys() ?? [])];
    return Array.from({ length: Math.max(look.ranks, (seen[seen.length - 1] ?? -1) + 1) }, (_, rank) => rank);
  }

  /** Who holds up whom around the playhead: worked out once an iteration. @param {Look} look */
  #tell(look) {
    const index = this.#take(look), gone = new Set(Object.keys(look.known.control?.ended ?? {}).map(Number)), around = index.around(look.t, gone), newest = index.newestDone(gone);
    const iteration = around ? Math.min(around.done ? around.iteration : around.iteration - 1, newest) : -1, key = [iteration, look.table.life].join();
    if (key === this.told.key) return this.told;
    const factsOf = (/** @type {number} */ i) => (i < 0 ? [] : index.factsOf(i, look.t)), facts = factsOf(iteration), cores = look.known.run?.cores ?? 0;
    const recent = Array.from({ length: RECENT }, (_, k) => factsOf(iteration - RECENT + 1 + k)).filter((f) => f.length), straggler = stragglerOf(recent, cores);
    const first = Math.min(...[...index.ranks.values()].map((rank) => rank.steps[0]?.iteration ?? Infinity));
    if (straggler) Object.assign(straggler, beginningOf(factsOf, straggler.rank, iteration, Math.max(0, first)));
    this.told = { key: facts.length ? key : "", iteration, facts, straggler };
    return this.told;
  }

  /** Where the window is for this frame. @param {Look} look @returns {Window} */
  #window(look) {
    const index = this.#take(look), { win } = this, { told } = look, rounds = told?.group === "rounds"; // workers of a parameter server are in iterations of their own
    const around = rounds ? { iteration: told.iteration, from: told.start, to: told.end, done: told.complete } : index.around(look.t);
    if (win && !win.follows) return win;
    const extent = around ?? (look.call ? { iteration: -1, from: look.call.start, to: look.call.end, done: true } : null);
    if (!extent) return this.shown;
    const inside = win && look.t >= win.from && look.t < win.to && extent.iteration === win.iteration;
    if (inside && extent.to <= win.to && (around || extent.from >= win.from)) return win;
    return (this.win = windowFor(win, { ...extent, done: extent.done || isOver(look.known) }, look.t));
  }

  /** Give the window to the reader. @param {(win: Window, run: {from: number, to: number}, t: number) => Window} how */
  change(how) {
    const look = this.stage.look(performance.now()), { table } = look, run = { from: table.rows ? table.from : 0, to: Math.max(table.to, 1) };
    this.win = how(this.#window(look), run, look.t);
    this.stage.touch();
  }

  /** The window as it is. @returns {Window} */
  get shown() {
    return this.win ?? EMPTY;
  }

  // ---- the reader's hands

  /** @param {string} what  wider | narrower | earlier | later | follow */
  do(what) {
    if (what === "wider" || what === "narrower") this.change((win, run, t) => zoomWindow(win, what === "wider" ? ZOOM : 1 / ZOOM, win.follows && t >= win.from && t < win.to ? t : (win.from + win.to) / 2, run));
    if (what === "earlier" || what === "later") this.change((win, run) => panWindow(win, ((what === "later" ? 1 : -1) * (win.to - win.from)) / 4, run));
    if (what !== "follow") return;
    this.win = null; // as it was in the beginning
    this.stage.touch();
  }

  /** Everybody shows what is selected: a rank, and of a row its collective, chunk and iteration. @param {number} rank @param {number} row -1: none @param {number} t */
  choose(rank, row, t) {
    const { index } = this;
    if (!index) return;
    const lines = index.ranks.get(rank), step = lines?.steps[index.stepAt(lines, t)], choice = /** @type {any} */ ({ rank });
    if (step) choice.iteration = step.iteration;
    if (row >= 0) {
      const { table } = index, p = table.passage[row], op = table.passages.op[p];
      if (table.passages.iteration[p] >= 0) choice.iteration = table.passages.iteration[p];
      if (op >= 0) Object.assign(choice, { op, group: table.text(table.passages.group[p]) });
      if (table.chunk[row] >= 0) choice.chunk = table.chunk[row];
      if (table.step[row] >= 0) choice.step = table.step[row];
      if (table.peer[row] >= 0) choice.peer = table.peer[row];
    }
    const same = JSON.stringify(choice) === JSON.stringify(this.stage.choice);
    this.stage.choose(same && row >= 0 ? null : choice);
  }

  /** @param {number} x @param {number} y @returns {Hit | undefined} */
  hitAt(x, y) {
    return this.lanes.hits.findLast((hit) => x >= hit.x - 1 && x <= hit.x + hit.w + 1 && y >= hit.y && y <= hit.y + hit.h);
  }

  /** @param {{x: number, y: number} | null} point */
  tip(point) {
    const tip = this.$(".wb-tl-tip"), words = point ? this.wordsAt(point.x, point.y) : "";
    tip.hidden = !words;
    if (!words || !point) return;
    if (tip.textContent !== words) tip.textContent = words;
    const canvas = this.$(".wb-tl-lanes"), wide = tip.offsetWidth, high = tip.offsetHeight;
    tip.style.left = `${Math.max(0, Math.min(canvas.clientWidth - wide, point.x + 14))}px`;
    tip.style.top = `${canvas.offsetTop + (point.y - high - 12 < 0 ? point.y + 18 : point.y - high - 12)}px`;
  }

  /** What lies there, in words. @param {number} x @param {number} y of the lanes */
  wordsAt(x, y) {
    const { index, win, ranks } = this, place = timelinePlace(ranks.length || 4, this.width), hit = this.hitAt(x, y);
    if (!index || !win) return "";
    if (hit) return hitWords(index.table, hit, this.buckets);
    const rank = index.ranks.get(ranks[Math.floor((y - place.lanes.top) / place.lanes.row)] ?? -1), dt = (win.to - win.from) / place.room;
    if (!rank || x < place.left || x > place.right) return "";
    const t = windowT(win, place, x), step = rank.steps[index.stepAt(rank, t)];
    if (place.level === "density") return densityWords(rank.rank, rank.all.within(t - dt, t + dt), t - dt, t + dt, `around ${duration(t - win.from)}`);
    return step && t < step.end ? `rank ${rank.rank}, iteration ${grouped(step.iteration)}: nothing is recorded here` : "";
  }

  // ---- the picture

  /** @param {Look} look @param {Window} win */
  #canvas(look, win) {
    this.theme = look.ink.ground + look.ink.wait + look.ratio;
    const cores = look.known.run?.cores ?? 0, ranks = (this.ranks = this.#ranks(look));
    this.width = look.width;
    this.buckets = look.known.run?.buckets ?? null;
    return { index: /** @type {TimelineIndex} */ (this.index), win, place: timelinePlace(ranks.length, look.width), ink: look.ink, font: look.font, waiting: hatched(look.ink.wait, look.ratio), cores,
      crowded: cores > 0 && ranks.length > cores };
  }

  /** @param {Look} look */
  draw(look) {
    const index = this.#take(look), win = this.#window(look), canvas = this.#canvas(look, win), { place } = canvas, { ranks, stage } = this;
    const changed = index.changedFrom, theme = this.theme, straggler = this.told.straggler?.rank ?? -1;
    index.changedFrom = Infinity;
    this.map.update(index, place, ranks, { ink: look.ink, waiting: canvas.waiting, ratio: look.ratio, over: isOver(look.known), theme }, changed);
    this.map.draw(stage.paper(this.$(".wb-tl-map"), look.width, place.map.height), look, index, place, ranks, win, straggler);
    const key = [win.from, win.to, look.width, ranks.length, theme, index.forgotten, look.font].join();
    if (key !== this.lanes.key || changed < win.to) {
      this.lanes.key = key;
      Object.assign(this.lanes, drawLanes(stage.paper(this.lanes.canvas, look.width, place.lanes.height), canvas, ranks));
    }
    const g = stage.paper(this.$(".wb-tl-lanes"), look.width, place.lanes.height), x = windowX(win, place, look.t), tall = place.lanes.height;
    const kept = this.lanes.canvas, pale = !look.live && x < place.right;
    if (pale) g.globalAlpha = 0.4; // what comes after the playhead
    g.drawImage(kept, 0, 0, look.width, tall);
    g.globalAlpha = 1;
    if (pale && x > 0) {
      g.clearRect(0, 0, x, tall);
      g.drawImage(kept, 0, 0, Math.round(x * look.ratio), kept.height, 0, 0, Math.round(x * look.ratio) / look.ratio, tall);
    }
    drawOver(g, canvas, ranks, look, this.told.straggler, this.lanes.hits);
  }

  /** @param {Look} look */
  say(look) {
    const index = this.#take(look), told = this.#tell(look), win = this.#window(look), canvas = this.#canvas(look, win), cores = look.known.run?.cores ?? 0, { facts } = told;
    if (this.root !== this.stage.root) {
      this.root = this.stage.root;
      this.root.addEventListener("keydown", this.keys);
    }
    const put = (/** @type {string} */ selector, /** @type {string} */ text) => {
      const node = this.$(selector);
      if (node.textContent !== text) node.textContent = text;
    };
    const span = duration(win.to - win.from), at = win.iteration >= 0 ? `iteration ${grouped(win.iteration)}` : "the run";
    put(".wb-tl-where", !look.table.rows ? "" : `${win.follows ? at : `from ${duration(Math.max(0, win.from))}`} · ${span} in the window${win.said ? ` (${win.said})` : ""}`);
    this.$("[data-do=follow]").setAttribute("aria-pressed", String(win.follows));
    this.#say(look, told, canvas, index);
    for (const name of keysOf(index, canvas.place.level, this.lanes.single, look.choice?.op !== undefined)) this.has.add(name);
    if (this.said.keys !== String(this.has.size)) drawKeys(this.$(".wb-tl-key"), this.has);
    this.said.keys = String(this.has.size);
    const split = this.$(".wb-tl-split"), wide = split.clientWidth || look.width;
    if (facts.length) this.reach = splitReach(this.reach, facts);
    const key = [told.key, wide, this.theme, look.ratio].join();
    if (key !== this.said.split) {
      this.said.split = key;
      drawSplit(this.stage.paper(split, wide, splitHeight(Math.max(1, facts.length || look.ranks))), look.ink, look.font, canvas.waiting, facts, this.reach, wide, told.straggler?.rank ?? -1);
      split.setAttribute("aria-label", facts.map((f) => `rank ${f.rank}: ${duration(f.hidden)} hidden, ${duration(f.exposed)} exposed, ${duration(f.waiting)} waiting`).join("; ") || "nothing yet");
    }
    const map = this.$(".wb-tl-map"), run = { from: look.table.rows ? look.table.from : 0, to: Math.max(1, look.table.to) };
    for (const [name, value] of [["min", run.from], ["max", run.to], ["now", win.from]]) map.setAttribute(`aria-value${name}`, String(Math.round(Number(value))));
    map.setAttribute("aria-valuetext", `${at}, ${span} wide`);
    this.$(".wb-tl-lanes").setAttribute("aria-label", `What each rank does in ${span}. ${iterationWords(facts, cores)} ${overlapWords(facts)}. ${told.straggler ? stragglerWords(told.straggler) : ""}`);
  }

  /** @param {Look} look @param {any} told @param {any} canvas @param {TimelineIndex} index */
  #say(look, { facts, straggler, iteration }, canvas, index) {
    const { choice, table } = look, cores = canvas.cores, lines = /** @type {[string, string][]} */ ([]);
    if (facts.length) {
      lines.push(["overlap", overlapWords(facts)], ["cost", costWords(facts, straggler)]);
      const core = coreWords(facts, cores);
      if (core) lines.push(["cores", core]);
    }
    const head = choice?.op !== undefined ? table.calls.findLast((call) => call.op === choice.op && (choice.group === undefined || call.group === choice.group)) : undefined;
    const mine = choice?.rank === undefined ? undefined : facts.find((/** @type {any} */ f) => f.rank === choice.rank);
    if (head) lines.push(["selected", chosenWords(table, head, index.extent(head.iteration, head.start)?.from ?? head.start,
      parameterWords(bucketNames(this.buckets, bucketNumber(head.name), head.iteration)))]);
    else if (mine) lines.push(["selected", `rank ${mine.rank} in iteration ${grouped(iteration)}: ${duration(mine.computing)} computing, ${duration(mine.hidden + mine.exposed)} communicating, ${duration(mine.waiting)} waiting${
      Number.isFinite(mine.queue) ? `, ${duration(mine.queue)} for a core` : ""}`]);
    const list = this.$(".wb-tl-words"), text = JSON.stringify(lines);
    if (this.said.words === text) return;
    this.said.words = text;
    list.replaceChildren(...lines.flatMap(([name, words]) => [Object.assign(document.createElement("dt"), { textContent: name }), Object.assign(document.createElement("dd"), { textContent: words })]));
  }

  /** What moves: single chunks on the lanes, with how much of each is done at the playhead. @param {Look} look */
  marks(look) {
    const { index } = this;
    if (!index) return [];
    const { table } = index, marks = [];
    for (const hit of this.lanes.hits) {
      const kind = hit.row < 0 ? "" : table.kindName(table.kind[hit.row]);
      if (kind !== "send" && kind !== "recv") continue;
      const r = hit.row, p = table.passage[r], { passages } = table, share = Math.max(0, Math.min(1, (look.t - table.start[r]) / Math.max(1, table.end[r] - table.start[r])));
      marks.push({ rank: hit.rank, peer: table.peer[r], generation: passages.generation[p], group: table.text(passages.group[p]), op: passages.op[p], step: table.step[r],
        chunk: table.chunk[r], slot: table.slot[r], share, x: hit.x + hit.w / 2, y: hit.y + hit.h / 2 });
    }
    return marks;
  }

  /** @param {Look} look */
  title(look) {
    const run = look.known.run;
    return run?.title || "Timeline";
  }

  /** @param {Look} look */
  sentence(look) {
    const { known } = look;
    if (known.state === "failed" && known.words) return failedWords(known);
    if (known.state === "failed" || known.state === "empty" || known.state === "starting") return sentence(known);
    const { facts, straggler } = this.#tell(look);
    if (straggler) return stragglerWords(straggler);
    return iterationWords(facts, known.run?.cores ?? 0) || (isOver(known) ? known.words || "The run is over, and no iteration of it was recorded." : "The ranks run. Waiting for the first iteration that all of them complete.");
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

export const timelineScene = { name: "timeline", label: "Timeline", key: "3", build: (/** @type {HTMLElement} */ body, /** @type {Stage} */ stage) => new TimelineView(body, stage) };

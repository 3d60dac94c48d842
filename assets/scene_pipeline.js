// @ts-check
/**
 * The pipeline: one iteration in true time, a row a rank, the plan as its shadow; why each rank is idle, what it holds; beside
 * it the bubble against the plan and where the time went in words; below it the iterations, to see and to scrub.
 *
 * Pictures on the same page can share one time scale (pipeline_scale.js): two schedules compared by eye.
 *
 * @typedef {import("./stage.js").Look} Look
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("./pipeline_seen.js").Pass} Pass
 * @typedef {import("./pipeline_place.js").PipelinePlace} PipelinePlace
 * @typedef {import("./pipeline_index.js").Task} Task
 */
import { KeyRow } from "./collective_keys.js";
import { PipelineHand } from "./pipeline_hand.js";
import { PipelineMesh } from "./pipeline_mesh.js";
import { PageScale } from "./pipeline_scale.js";
import { bubbleHeight, bubbleWords, drawBubble, drawHistory, historyAt, historyHeight } from "./pipeline_charts.js";
import { drawBars, drawBefallen, drawChosen, drawPipelineAxis, drawPipelineHead, drawPlan, drawRowNames, rowName, spokenPass } from "./pipeline_draw.js";
import { pipelineKeys } from "./pipeline_keys.js";
import { PipelinePast, pipelineMarks, pipelineStep } from "./pipeline_past.js";
import { barTop, momentX, pipelinePlace } from "./pipeline_place.js";
import { formulaOf } from "./pipeline_plan.js";
import { joinsHere, lanesOf, passOf } from "./pipeline_seen.js";
import { passesOf, pipelineOf } from "./pipeline_rounds.js";
import { isOver } from "./player.js";
import { pipelineFactsWords, pipelineLines, pipelineSentence, stageRowWords, taskWords } from "./tell_pipeline.js";

const PIPELINE_BODY = `<div class="wb-pl-mesh" hidden></div><div class="wb-pl-bar" hidden><button class="wb-pl-one" aria-pressed="false">One time scale for all pipelines on this page</button></div>
  <div class="wb-ps-picture"><canvas class="wb-pl" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Stages"></div></div>
  <p class="wb-key"></p>
  <div class="wb-pl-below">
    <section><h3>Bubble <small>share of each rank's time, by reason</small></h3><canvas class="wb-pl-bubble" role="img"></canvas></section>
    <section><h3>In words</h3><table class="wb-pl-words"></table></section>
  </div>
  <dl class="wb-pl-chosen"><dt></dt><dd></dd></dl><div class="wb-co-tip" hidden></div><p class="wb-sr" role="status"></p>`;
const KEPT_PASSES = 4; // iterations that are kept worked out

/** Whether there is a pipeline in what is known. @param {import("./player.js").Known} known */
export const pipes = (known) => known.run?.strategy === "pipeline" || !!known.run?.pipeline || passesOf(known) !== null;

class PipelineView {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.body = body;
    this.stage = stage;
    body.innerHTML = PIPELINE_BODY;
    this.canvas = /** @type {HTMLCanvasElement} */ (this.$("canvas.wb-pl"));
    this.keys = new KeyRow(this.$(".wb-key"));
    this.replica = 0;
    this.scale = new PageScale(body, () => stage.touch());
    this.kept = /** @type {Map<string, Pass>} */ (new Map());
    this.past = new PipelinePast();
    this.layers = { key: "", plan: document.createElement("canvas"), bars: document.createElement("canvas") };
    this.drawn = { words: "", bubble: "" };
    this.shown = /** @type {{pass: Pass, place: PipelinePlace} | null} */ (null);
    this.hand = new PipelineHand(body, stage, () => this.shown && { ...this.shown, scale: this.scale.now });
    this.mesh = new PipelineMesh(this.$(".wb-pl-mesh"), (replica, rank) => {
      this.replica = replica;
      stage.choose(rank === null ? null : { rank });
    });
    this.score = { whole: true, height: historyHeight, draw: (/** @type {CanvasRenderingContext2D} */ g, /** @type {Look} */ look) => this.#drawHistory(g, look),
      at: (/** @type {number} */ x, /** @type {Look} */ look) => historyAt(this.#history(look), look.width, isOver(look.known), x) };
    this.$(".wb-pl-one").onclick = () => this.scale.share(!this.scale.shared);
  }

  /** @param {string} selector @returns {any} */
  $(selector) {
    return this.body.querySelector(selector);
  }

  // ---- what is on show

  /** The iteration that is told, worked out; kept until it has more rows. @param {Look} look @returns {Pass | null} */
  #pass({ known, told }) {
    const passes = passesOf(known), facts = pipelineOf(known), head = passes && told && passes.callOf.get(told.key);
    if (!passes || !facts || !head) return null;
    this.replica = Math.min(this.replica, Math.max(0, facts.replicas - 1));
    const key = `${head.key} ${head.rows} ${head.end} ${this.replica} ${passes.life} ${known.run?.id} ${head.complete ? passes.index.faults : passes.index.version}`, had = this.kept.get(key);
    if (had) return had;
    const pass = passOf(passes, facts, head, this.replica);
    if (pass) this.kept.set(key, pass);
    if (this.kept.size > KEPT_PASSES) this.kept.delete(/** @type {string} */ (this.kept.keys().next().value));
    return pass;
  }

  /** @param {Look} look */
  #see(look) {
    const pass = look.width > 0 ? this.#pass(look) : null;
    if (!pass) return (this.shown = null);
    const place = pipelinePlace(look.width, pass.facts.ranks, Math.max(1, ...pass.lanes.map((stages) => stages.length)));
    this.scale.fit(Math.max(pass.to - pass.from, pass.plan?.span ?? 0, ...[...pass.updates, ...joinsHere(pass)].map(({ end }) => Math.min(end - pass.from, 1.15 * (pass.to - pass.from)))));
    return (this.shown = { pass, place });
  }

  /** How idle each iteration was. @param {Look} look */
  #history({ known }) {
    const passes = passesOf(known), facts = pipelineOf(known);
    if (!passes || !facts) return [];
    const { list, more } = this.past.read(passes, facts, this.replica, known.run?.id ?? "");
    if (more) requestAnimationFrame(() => this.stage.touch());
    return list;
  }

  /** The action that is chosen, where it is on show. @param {Look} look @param {Pass} pass @returns {Task | undefined} */
  #chosen({ choice }, pass) {
    if (choice?.microbatch === undefined) return undefined;
    return pass.rows.flat().find((task) => task.stage === choice.stage && task.microbatch === choice.microbatch && task.kind === choice.action && task.iteration === (pass.facts.flush ? pass.iteration : choice.iteration));
  }

  // ---- drawing

  /** @param {Look} look */
  draw(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = this.#see(look), { ink } = look;
    if (!seen) return this.#drawEmpty(look);
    const { pass, place } = seen, scale = this.scale.now, g = this.stage.paper(this.canvas, look.width, place.height), { layers } = this;
    const key = [pass.key, pass.complete ? 0 : pass.passes.index.version, place.key, scale, ink.ground, ink.wait, look.ratio, look.font].join();
    if (key !== layers.key) {
      layers.key = key;
      drawPlan(this.stage.paper(layers.plan, look.width, place.height), look, pass, place, scale);
      drawBars(this.stage.paper(layers.bars, look.width, place.height), look, pass, place, scale);
    }
    const x = Math.min(place.right + 4, Math.max(place.left, momentX(place, look.t - pass.from, scale))), through = Math.round(x * look.ratio);
    g.drawImage(layers.plan, 0, 0, look.width, place.height);
    if (through < layers.bars.width) {
      g.globalAlpha = 0.35; // the future is pale
      g.drawImage(layers.bars, through, 0, layers.bars.width - through, layers.bars.height, through / look.ratio, 0, (layers.bars.width - through) / look.ratio, place.height);
      g.globalAlpha = 1;
    }
    if (through > 0) g.drawImage(layers.bars, 0, 0, through, layers.bars.height, 0, 0, through / look.ratio, place.height);
    drawRowNames(g, look, pass, place);
    drawPipelineAxis(g, look, pass, place, scale);
    drawBefallen(g, look, pass, place, scale, this.#gone(look));
    const task = this.#chosen(look, pass);
    if (task) drawChosen(g, look, pass, place, scale, task);
    drawPipelineHead(g, look, pass, place, scale);
    this.hand.place();
  }

  /** The places are there before anything happens. @param {Look} look */
  #drawEmpty(look) {
    const facts = pipelineOf(look.known), ranks = facts?.ranks ?? look.ranks, lanes = facts ? lanesOf(facts) : Array.from({ length: ranks }, (_, stage) => [stage]), place = pipelinePlace(look.width, ranks, Math.max(1, ...lanes.map((l) => l.length)));
    const g = this.stage.paper(this.canvas, look.width, place.height);
    g.font = `700 12px ${look.font}`;
    g.textBaseline = "middle";
    lanes.forEach((stages, row) => {
      g.fillStyle = look.ink.track;
      g.fillRect(place.left, barTop(place, row), place.right - place.left, place.bar);
      g.fillStyle = look.ink["ink-3"];
      if (place.level !== "lines" && stages.length) g.fillText(rowName(lanes, row), 0, barTop(place, row) + 6);
    });
  }

  /** @param {CanvasRenderingContext2D} g @param {Look} look */
  #drawHistory(g, look) {
    const pass = this.shown?.pass, planned = pass?.plan?.idle ?? pipelineOf(look.known)?.bubble ?? NaN;
    drawHistory(g, look, this.#history(look), planned, pass ? formulaOf(pass.facts, planned).short : "plan");
  }

  /** Ranks that are gone, where the picture is now. @param {Look} look */
  #gone({ known, live, t, table }) {
    return live || t >= table.to - 1 ? Object.entries(known.control?.ended ?? {}).filter(([, how]) => how && how !== "ended").map(([rank]) => Number(rank)) : [];
  }

  // ---- words

  /** @param {Look} look */
  say(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = this.#see(look), facts = pipelineOf(look.known);
    this.mesh.show(facts, this.replica, seen?.pass ?? null, look.choice?.rank ?? -1);
    this.$(".wb-pl-bar").hidden = !this.scale.others.length;
    this.$(".wb-pl-one").setAttribute("aria-pressed", String(this.scale.shared));
    this.canvas.setAttribute("aria-label", seen ? `Iteration ${seen.pass.iteration}. ${spokenPass(seen.pass)}` : "Stages of a pipeline; nothing has been computed yet");
    if (seen) {
      const { pass, place } = seen;
      this.keys.show(pipelineKeys(look, pass, place, { frozen: pass.passes.index.frozen.length > 0, gone: this.#gone(look).length > 0 }), look);
      this.#sayBubble(look, pass);
    }
    this.#sayWords(seen?.pass ?? null);
    const task = seen && this.#chosen(look, seen.pass), row = seen && look.choice?.rank !== undefined ? look.choice.rank - this.replica * seen.pass.facts.ranks : -1;
    const chosen = seen && task ? taskWords(seen.pass, task).join("; ") : seen && seen.pass.rows[row] ? stageRowWords(seen.pass, row).join("; ") : "";
    this.#put(".wb-pl-chosen dt", "selected");
    this.#put(".wb-pl-chosen dd", chosen || "click an action to see what it needed; ↑ ↓ choose a stage, Enter what it does at the playhead");
    this.hand.tell();
  }

  /** @param {string} selector @param {string} text */
  #put(selector, text) {
    const node = this.$(selector);
    if (node.textContent !== text) node.textContent = text;
  }

  /** @param {Look} look @param {Pass} pass */
  #sayBubble(look, pass) {
    const canvas = this.$(".wb-pl-bubble"), width = canvas.clientWidth || 400, key = [pass.key, pass.complete ? 0 : pass.passes.index.version, width, look.ink.ground, look.ink.wait, look.ratio].join();
    if (key === this.drawn.bubble) return;
    this.drawn.bubble = key;
    drawBubble({ g: this.stage.paper(canvas, width, bubbleHeight(pass.rows.length)), ink: look.ink, font: look.font, ratio: look.ratio, width }, pass);
    canvas.setAttribute("aria-label", bubbleWords(pass));
  }

  /** @param {Pass | null} pass */
  #sayWords(pass) {
    const lines = pass?.all.whole ? pipelineLines(pass) : [], text = JSON.stringify(lines);
    if (text === this.drawn.words) return;
    this.drawn.words = text;
    this.$(".wb-pl-words").replaceChildren(...lines.map((line) => {
      const row = document.createElement("tr");
      row.append(...line.map((words) => Object.assign(document.createElement("td"), { textContent: words })));
      return row;
    }));
  }

  /** @param {Look} look */
  title({ known }) {
    const facts = pipelineOf(known);
    return [known.run?.title || "Pipeline", facts ? pipelineFactsWords(facts) : ""].filter(Boolean).join(" · ");
  }

  /** @param {Look} look */
  sentence(look) {
    return pipelineSentence(look.known, this.#pass(look), look.live || look.t >= look.table.to - 1);
  }

  /** @param {Look} look */
  marks(look) {
    const seen = this.#see(look);
    if (!seen) return [];
    return pipelineMarks(look, seen.pass, seen.place, this.scale.now);
  }

  /** The next action that starts or ends, microbatch that is through, or iteration. @param {Look} look @param {string} unit @param {number} way */
  step(look, unit, way) {
    const passes = passesOf(look.known), pass = this.#pass(look);
    if (!passes || !pass) return null;
    return pipelineStep(passes, pass, look.t, unit, way);
  }

  end() {
    this.hand.point(null);
    this.scale.leave();
  }
}

/** @type {import("./stage.js").Scene} */
export const pipelineScene = { name: "pipeline", label: "Pipeline", key: "5", offered: pipes, build: (body, stage) => new PipelineView(body, stage) };

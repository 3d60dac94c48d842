// @ts-check
/**
 * The pipeline: one iteration in true time, a row a rank, the plan as its shadow; why each rank is
 * idle, what it holds; beside it the bubble against the plan and where the time went in words;
 * below it the iterations, to see and to scrub.
 *
 * Pictures on the same page can share one time scale (scale.js): two schedules compared by
 * eye.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("./selection.js").Pass} Pass
 * @typedef {import("./place.js").PipelinePlace} PipelinePlace
 * @typedef {import("./index.js").Task} Task
 */
import { goneInPicture } from "../../engine/lost_ranks.js";
import { BelowPipeline } from "./below.js";
import { Chart } from "../../drawing/chart.js";
import { KeyRow } from "../../drawing/key_row.js";
import { PipelinePointer } from "./pointer.js";
import { PipelineMesh } from "./mesh.js";
import { PageScale } from "./scale.js";
import { drawHistory, historyAt, historyHeight } from "./charts.js";
import { drawRowNames, rowName, spokenPass } from "./draw.js";
import { drawBefallen, drawChosen, drawAxis, drawHead } from "./draw_axis.js";
import { PipelineLayers } from "./layers.js";
import { keysOf } from "./legend.js";
import { PipelinePast, marksOf, stepOf } from "./past.js";
import { barTop, placeOf } from "./place.js";
import { formulaOf } from "./plan.js";
import { joinsHere, lanesOf, passOf } from "./selection.js";
import { passesOf, pipelineOf } from "./call_source.js";
import { isOver } from "../../engine/player.js";
import { factsWords, sentenceOf } from "./captions.js";

const BODY = `<div class="wb-pl-mesh" hidden></div><div class="wb-pl-bar" hidden><button class="wb-pl-one" aria-pressed="false">One time scale for all pipelines on this page</button></div>
  <div class="wb-ps-picture"><canvas class="wb-pl" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Stages"></div></div>
  <p class="wb-key"></p>
  <div class="wb-pl-below">
    <section><h3>Bubble <small>share of each rank's time, by reason</small></h3><canvas class="wb-pl-bubble" role="img"></canvas></section>
    <section><h3>In words</h3><table class="wb-pl-words"></table></section>
  </div>
  <dl class="wb-pl-chosen"><dt></dt><dd></dd></dl><div class="wb-co-tip" hidden></div><p class="wb-sr" role="status"></p>`;
const KEPT_PASSES = 4; // iterations that are kept worked out

/**
 * Whether there is a pipeline in what is known.
 * @param {import("../../engine/player.js").Known} known
 */
export const pipes = (known) => !!known.run?.pipeline || passesOf(known) !== null;

class PipelineView {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.body = body;
    this.stage = stage;
    body.innerHTML = BODY;
    this.canvas = /** @type {HTMLCanvasElement} */ (this.$("canvas.wb-pl"));
    this.keys = new KeyRow(this.$(".wb-key"));
    this.replica = 0;
    this.scale = new PageScale(body, () => stage.touch());
    this.kept = /** @type {Map<string, Pass>} */ (new Map());
    this.past = new PipelinePast();
    this.layers = new PipelineLayers(stage);
    this.below = new BelowPipeline(body, stage);
    this.shown = /** @type {{pass: Pass, place: PipelinePlace} | null} */ (null);
    this.pointer = new PipelinePointer(
      body,
      stage,
      () => this.shown && { ...this.shown, scale: this.scale.now },
    );
    this.mesh = new PipelineMesh(this.$(".wb-pl-mesh"), (replica, rank) => {
      this.replica = replica;
      stage.choose(rank === null ? null : { rank });
    });
    this.score = {
      whole: true,
      height: historyHeight,
      draw: (/** @type {CanvasRenderingContext2D} */ g, /** @type {Look} */ look) =>
        this.#drawHistory(g, look),
      at: (/** @type {number} */ x, /** @type {Look} */ look) =>
        historyAt(this.#history(look), look.width, isOver(look.known), x),
    };
    this.$(".wb-pl-one").onclick = () => this.scale.share(!this.scale.shared);
  }

  /** @param {string} selector @returns {any} */
  $(selector) {
    return this.body.querySelector(selector);
  }

  // ---- what is on show

  /**
   * Return the current iteration, worked out; kept until it has more rows.
   * @param {Look} look
   * @returns {Pass | null}
   */
  #pass({ known, current }) {
    const passes = passesOf(known);
    const facts = pipelineOf(known);
    const head = passes && current && passes.callOf.get(current.key);
    if (!passes || !facts || !head) return null;
    this.replica = Math.min(this.replica, Math.max(0, facts.replicas - 1));
    const key =
      `${head.key} ${head.rows} ${head.end} ${this.replica} ${passes.life} ${known.run?.id} ` +
      `${head.complete ? passes.index.faults : passes.index.version}`;
    const had = this.kept.get(key);
    if (had) return had;
    const pass = passOf(passes, facts, head, this.replica);
    if (pass) this.kept.set(key, pass);
    if (this.kept.size > KEPT_PASSES)
      this.kept.delete(/** @type {string} */ (this.kept.keys().next().value));
    return pass;
  }

  /** @param {Look} look */
  #see(look) {
    const pass = look.width > 0 ? this.#pass(look) : null;
    if (!pass) return (this.shown = null);
    const place = placeOf(
      look.width,
      pass.facts.ranks,
      Math.max(1, ...pass.lanes.map((stages) => stages.length)),
    );
    this.scale.fit(
      Math.max(
        pass.to - pass.from,
        pass.plan?.span ?? 0,
        ...[...pass.updates, ...joinsHere(pass)].map(({ end }) =>
          Math.min(end - pass.from, 1.15 * (pass.to - pass.from)),
        ),
      ),
      look.held || isOver(look.known),
    );
    return (this.shown = { pass, place });
  }

  /** How idle each iteration was. @param {Look} look */
  #history({ known }) {
    const passes = passesOf(known);
    const facts = pipelineOf(known);
    if (!passes || !facts) return [];
    const { list, more } = this.past.read(passes, facts, this.replica, known.run?.id ?? "");
    if (more) requestAnimationFrame(() => this.stage.touch());
    return list;
  }

  /**
   * The action that is chosen, where it is on show.
   * @param {Look} look
   * @param {Pass} pass
   * @returns {Task | undefined}
   */
  #chosen({ choice }, pass) {
    if (choice?.microbatch === undefined) return undefined;
    return pass.rows
      .flat()
      .find(
        (task) =>
          task.stage === choice.stage &&
          task.microbatch === choice.microbatch &&
          task.kind === choice.action &&
          task.iteration === (pass.facts.flush ? pass.iteration : choice.iteration),
      );
  }

  // ---- drawing

  /** @param {Look} look */
  draw(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = this.#see(look);
    if (!seen) return this.#drawEmpty(look);
    const { pass, place } = seen;
    const scale = this.scale.now;
    const g = this.stage.paper(this.canvas, look.width, place.height);
    this.layers.draw(g, look, pass, place, scale);
    drawRowNames(g, look, pass, place);
    drawAxis(g, look, pass, place, scale);
    drawBefallen(g, look, pass, place, scale, goneInPicture(look));
    const task = this.#chosen(look, pass);
    if (task) drawChosen(g, look, pass, place, scale, task);
    drawHead(g, look, pass, place, scale);
    this.pointer.place();
  }

  /** The places are there before anything happens. @param {Look} look */
  #drawEmpty(look) {
    const facts = pipelineOf(look.known);
    const ranks = facts?.ranks ?? look.ranks;
    const lanes = facts ? lanesOf(facts) : Array.from({ length: ranks }, (_, stage) => [stage]);
    const place = placeOf(look.width, ranks, Math.max(1, ...lanes.map((l) => l.length)));
    const g = this.stage.paper(this.canvas, look.width, place.height);
    g.font = `700 12px ${look.font}`;
    g.textBaseline = "middle";
    lanes.forEach((stages, row) => {
      g.fillStyle = look.ink.track;
      g.fillRect(place.left, barTop(place, row), place.right - place.left, place.bar);
      g.fillStyle = look.ink["ink-3"];
      if (place.level !== "lines" && stages.length)
        g.fillText(rowName(lanes, row), 0, barTop(place, row) + 6);
    });
  }

  /** @param {CanvasRenderingContext2D} g @param {Look} look */
  #drawHistory(g, look) {
    const pass = this.shown?.pass;
    const planned = pass?.plan?.idle ?? pipelineOf(look.known)?.bubble ?? NaN;
    drawHistory(
      new Chart({ ...look, g, height: historyHeight() }),
      look,
      this.#history(look),
      planned,
      pass ? formulaOf(pass.facts, planned).short : "plan",
    );
  }

  // ---- words

  /** @param {Look} look */
  say(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = this.#see(look);
    const facts = pipelineOf(look.known);
    this.mesh.show(facts, this.replica, seen?.pass ?? null, look.choice?.rank ?? -1);
    this.$(".wb-pl-bar").hidden = !this.scale.others.length;
    this.$(".wb-pl-one").setAttribute("aria-pressed", String(this.scale.shared));
    this.canvas.setAttribute(
      "aria-label",
      seen
        ? `Iteration ${seen.pass.iteration + 1}. ${spokenPass(seen.pass)}`
        : "Stages of a pipeline; nothing has been computed yet",
    );
    if (seen) {
      const { pass, place } = seen;
      this.keys.show(
        keysOf(look, pass, place, {
          frozen: pass.passes.index.frozen.length > 0,
          gone: goneInPicture(look).length > 0,
        }),
        look,
      );
    }
    this.below.say(look, seen?.pass ?? null, seen && this.#chosen(look, seen.pass));
    this.pointer.pointed.say();
  }

  /** @param {Look} look */
  title({ known }) {
    const facts = pipelineOf(known);
    return [known.run?.title || "Pipeline", facts ? factsWords(facts) : ""]
      .filter(Boolean)
      .join(" · ");
  }

  /** @param {Look} look */
  sentence(look) {
    return sentenceOf(look.known, this.#pass(look), look.live || look.t >= look.table.to - 1);
  }

  /** @param {Look} look */
  marks(look) {
    const seen = this.#see(look);
    if (!seen) return [];
    return marksOf(look, seen.pass, seen.place, this.scale.now);
  }

  /**
   * The next action that starts or ends, microbatch that is through, or iteration.
   * @param {Look} look
   * @param {string} unit
   * @param {number} way
   */
  step(look, unit, way) {
    const passes = passesOf(look.known);
    const pass = this.#pass(look);
    if (!passes || !pass) return null;
    return stepOf(passes, pass, look.t, unit, way);
  }

  end() {
    this.pointer.pointed.point(null);
    this.scale.leave();
  }
}

/** @type {import("../../chrome/scene_host.js").SceneModule} */
export const pipelineScene = {
  offered: pipes,
  source: passesOf,
  tellsRun: true,
  lookNext: (known) =>
    pipes(known)
      ? { title: "See the stages", what: "which microbatch each computes, and why it is idle" }
      : null,
  build: (body, stage) => new PipelineView(body, stage),
};

// @ts-check
/**
 * The model in parts: its layers in bands of stages, what crosses each cut as it was planned and as it was measured, the
 * time of each stage and the memory of each rank. Long models show folded blocks; the line above shows the whole cut always.
 *
 * @typedef {import("./stage.js").Look} Look
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("./graph_draw.js").GraphSeen} GraphSeen
 * @typedef {import("./graph_draw.js").GraphHit} GraphHit
 */
import { KeyRow } from "./collective_keys.js";
import { STRIP_HIGH, drawMemory, drawStageTimes, drawModelLine, graphChartHeight, memoryOf, stripOf } from "./graph_charts.js";
import { cometSpot, drawGraph, weightOf } from "./graph_draw.js";
import { MANY_LAYERS, blocksOf, foldGraph, foldedWords, isFolded, modelOf, placeOfStage } from "./graph_fold.js";
import { graphKeys } from "./graph_keys.js";
import { graphPlace, underGraph } from "./graph_place.js";
import { partLines, shardingOf } from "./graph_shards.js";
import { perMicrobatch, trafficOf } from "./graph_traffic.js";
import { isOver } from "./player.js";
import { cutLines, graphSentence, layersWord, nodeLines, rateOf, stageLines, wireLines } from "./tell_graph.js";
import { showTip, walkWithArrows } from "./tip.js";

const IN_SIGHT = 920; // px of a picture that are seen without scrolling: theme.css

const MODEL_BODY = `<canvas class="wb-mg-strip" role="img"></canvas>
  <p class="wb-mg-bar"><span></span><button>Fold blocks</button><button>Open blocks</button></p>
  <div class="wb-mg-scroll"><div class="wb-mg-picture"><canvas class="wb-mg" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Stages, layers and cuts"></div></div></div>
  <p class="wb-key"></p>
  <div class="wb-mg-charts">
    <section><h3>Time by stage <small>of a microbatch, as measured before the cut</small></h3><canvas class="wb-mg-times" role="img"></canvas></section>
    <section><h3><span>Memory by rank</span> <small></small></h3><canvas class="wb-mg-memory" role="img"></canvas></section>
  </div><div class="wb-co-tip" hidden></div><p class="wb-sr" role="status"></p>`;

class ModelView {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.body = body;
    this.stage = stage;
    body.innerHTML = MODEL_BODY;
    const $ = (/** @type {string} */ selector) => /** @type {any} */ (body.querySelector(selector));
    this.canvas = /** @type {HTMLCanvasElement} */ ($(".wb-mg"));
    this.strip = /** @type {HTMLCanvasElement} */ ($(".wb-mg-strip"));
    this.times = /** @type {HTMLCanvasElement} */ ($(".wb-mg-times"));
    this.memory = /** @type {HTMLCanvasElement} */ ($(".wb-mg-memory"));
    this.scroll = /** @type {HTMLElement} */ ($(".wb-mg-scroll"));
    this.bar = /** @type {HTMLElement} */ ($(".wb-mg-bar"));
    this.spots = /** @type {HTMLElement} */ ($(".wb-co-spots"));
    this.tip = /** @type {HTMLElement} */ ($(".wb-co-tip"));
    this.heard = /** @type {HTMLElement} */ ($(".wb-sr"));
    this.keys = new KeyRow($(".wb-key"));
    this.seen = /** @type {GraphSeen | null} */ (null);
    this.folding = /** @type {import("./graph_fold.js").Folding} */ ({ all: null, turned: new Set() });
    this.shown = this.folding; // with what the size decides
    this.laid = /** @type {{key: string, seen: Pick<GraphSeen, "nodes" | "wires" | "place">} | null} */ (null);
    this.pointed = /** @type {GraphHit} */ (null);
    this.at = { x: 0, y: 0, over: /** @type {HTMLElement} */ (this.canvas) };
    this.own = { node: "", cut: -1 }; // the reader's choice within the picture
    this.charted = "";
    this.#listen();
  }

  // ---- what is on screen

  /** Folded and laid out; kept until something of it changes. @param {import("./graph_fold.js").Model} model @param {number} width */
  #lay(model, width) {
    const key = `${width} ${this.folding.all} ${[...this.folding.turned].join()} ${model.key}`;
    if (this.laid?.key !== key) {
      const lay = (/** @type {import("./graph_fold.js").Folding} */ folding) => {
        const { nodes, wires } = foldGraph(model, folding);
        return { nodes, wires, place: graphPlace(model, nodes, wires, width) };
      };
      const { all, turned } = this.folding, whole = all === null && model.layers.length < MANY_LAYERS && blocksOf(model).length ? lay({ all, turned: new Set() }) : null;
      this.shown = whole && whole.place.height > IN_SIGHT ? { all: true, turned } : this.folding; // what does not fit is folded
      this.laid = { key, seen: whole && this.shown === this.folding && !turned.size ? whole : lay(this.shown) };
    }
    return this.laid.seen;
  }

  /** @param {Look} look @returns {GraphSeen | null} */
  #see(look) {
    const { run } = look.known, model = modelOf(run);
    if (!model || !(look.width > 0)) return null;
    const laid = this.#lay(model, look.width), traffic = trafficOf(look.table), timed = model.layers.some((l) => l.forward + l.backward > 0), ranks = Array.from({ length: model.stages }, (_, s) => placeOfStage(run, s));
    const comets = traffic.flying(look.t).filter((p) => laid.place.cuts[p.cut]).map((p) => ({ ...p, ...cometSpot(laid.place, p) })), rank = look.choice?.rank, places = 1 + Math.max(...ranks);
    const chosen = { stages: new Set(rank === undefined || this.own.cut >= 0 ? [] : ranks.flatMap((r, s) => (r === rank % places ? [s] : []))), ...this.own };
    return { model, ...laid, slowest: Math.max(...laid.nodes.map((n) => weightOf(n, timed))), timed, ranks, crossed: traffic.iterationAt(look.t, isOver(look.known)), comets, chosen, pointed: this.pointed };
  }

  /** @param {Look} look */
  draw(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look));
    if (!seen) return void this.stage.paper(this.canvas, look.width, 120);
    drawGraph(this.stage.paper(this.canvas, look.width, seen.place.height), look, seen);
    const picked = seen.nodes.find((n) => n.key === this.own.node)?.layers[0].index ?? -1, { clientHeight: high, scrollTop: top, scrollHeight: whole } = this.scroll;
    const inSight = whole > high + 4 ? seen.place.bands.filter((b) => b.top + b.height > top + 8 && b.top < top + high - 8) : [];
    drawModelLine({ g: this.stage.paper(this.strip, look.width, STRIP_HIGH), ...look, height: STRIP_HIGH }, seen.model, seen.ranks, seen.timed, inSight.length ? [inSight[0].stage, inSight[inSight.length - 1].stage] : null, picked);
    this.#placeSpots(seen);
  }

  /** The charts, at the pace of the texts. @param {Look} look @param {GraphSeen} seen */
  #drawCharts(look, { model, ranks, timed }) {
    const { ink, font, ratio, known, t } = look, traffic = trafficOf(look.table), limit = known.run?.memory_limit ?? null, holdings = memoryOf(model, ranks, known.run, traffic, t);
    const key = [model.key.length, ranks, look.width, ratio, ink.ground, ink.wait, limit, JSON.stringify(holdings)].join();
    if (key === this.charted) return;
    this.charted = key;
    const chart = (/** @type {HTMLCanvasElement} */ canvas, /** @type {number} */ rows) => {
      const width = canvas.clientWidth || 300, height = graphChartHeight(rows);
      return { g: this.stage.paper(canvas, width, height), ink, font, ratio, width, height };
    };
    /** @type {HTMLElement} */ (this.times.parentElement).hidden = !timed || model.stages < 2;
    if (timed && model.stages > 1) drawStageTimes(chart(this.times, model.stages), model, ranks);
    drawMemory(chart(this.memory, holdings.length), holdings, limit);
    const held = holdings.filter((h) => Number.isFinite(h.most)), small = /** @type {HTMLElement} */ (this.memory.parentElement?.querySelector("small"));
    small.textContent = held.length ? "most so far, above what is planned" : shardingOf(model) ? "parameters of its parts" : model.memory ? "planned" : known.run?.pipeline ? "planned, without gradients and the optimizer's state" : "parameters, and activations of one microbatch";
    this.times.setAttribute("aria-label", graphSentence(model, null));
    this.memory.setAttribute("aria-label", held.length ? held.map((h) => `rank ${h.rank}: ${h.most} bytes${limit ? ` of ${limit}` : ""}`).join("; ") : "no memory measured yet");
  }

  /** @param {Look} look */
  say(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look)), [fold, open] = this.bar.querySelectorAll("button"), words = /** @type {HTMLElement} */ (this.bar.firstElementChild);
    if (!seen) return;
    const blocks = blocksOf(seen.model), folded = blocks.filter((b) => isFolded(seen.model, this.shown, b)), said = foldedWords(seen.nodes) || (blocks.length ? `${layersWord(seen.model.layers.length)}, ${blocks.length === 1 ? "one block" : `${blocks.length} blocks`}, none folded` : "");
    this.bar.hidden = !blocks.length;
    if (words.textContent !== said) words.textContent = said;
    /** @type {HTMLButtonElement} */ (fold).disabled = folded.length === blocks.length;
    /** @type {HTMLButtonElement} */ (open).disabled = !folded.length;
    const traffic = trafficOf(look.table);
    this.keys.show(graphKeys(look, seen, traffic.parcels.length > 0, traffic.memory.size > 0), look);
    this.#drawCharts(look, seen);
    this.canvas.setAttribute("aria-label", graphSentence(seen.model, seen.crossed));
    this.strip.setAttribute("aria-label", `The layers in a line, as wide as they take time: ${layersWord(seen.model.layers.length)} in ${seen.model.stages} stages`);
    this.#tell();
  }

  /** @param {Look} look */
  title({ known }) {
    return known.run?.title || "Model";
  }

  /** @param {Look} look */
  sentence(look) {
    const model = modelOf(look.known.run);
    return model ? graphSentence(model, trafficOf(look.table).iterationAt(look.t, isOver(look.known))) : "The model is not known yet.";
  }

  /** @param {Look} look */
  marks(look) {
    const seen = this.#see(look);
    if (!seen) return [];
    const { place, nodes, model, ranks, crossed } = seen, marks = /** @type {any[]} */ ([]);
    for (const band of place.bands) {
      marks.push({ mark: "stage", stage: band.stage, rank: ranks[band.stage], x: 0, y: band.top, w: place.width, h: band.height });
      for (const { boxes } of band.lines) for (const { node, x, y, w, h } of boxes)
        marks.push({ mark: "layer", name: nodes[node].name, stage: band.stage, rank: ranks[band.stage], folded: nodes[node].folded, layers: nodes[node].layers.map((l) => l.index), x, y, w, h });
    }
    for (const { border, top, y } of place.cuts) {
      const cut = crossed?.cuts[border];
      marks.push({ mark: "cut", cut: border, after: model.borders[border].after, planned: model.borders[border].bytes, iteration: crossed?.iteration ?? -1, activation: cut?.activation.bytes ?? 0, gradient: cut?.gradient.bytes ?? 0,
        each: perMicrobatch(cut?.activation), rate: crossed ? rateOf(crossed, border) : NaN, x: place.left, y, top });
    }
    for (const c of seen.comets) marks.push({ mark: "comet", rank: c.from, peer: c.to, op: c.op, group: "default", cut: c.cut, gradient: c.gradient, microbatch: c.microbatch, iteration: c.iteration, share: c.share, x: c.x, y: c.y });
    for (const h of memoryOf(model, ranks, look.known.run, trafficOf(look.table), look.t)) marks.push({ mark: "memory", ...h, limit: look.known.run?.memory_limit ?? null });
    return marks;
  }

  // ---- folding

  /** @param {string} block */
  #turn(block) {
    const { turned } = this.folding, inside = this.spots.contains(/** @type {any} */ (this.spots.getRootNode()).activeElement);
    if (!turned.delete(block)) turned.add(block);
    this.own.node = "";
    this.#changed();
    if (inside) /** @type {HTMLElement | null} */ (this.spots.querySelector(`[data-block="${CSS.escape(block)}"]`))?.focus({ preventScroll: true });
  }

  #changed() {
    this.#point(null, this.at);
    this.draw(this.stage.look(performance.now()));
    this.stage.touch();
  }

  // ---- under the pointer, or the keyboard

  #listen() {
    const { canvas, strip, spots, scroll } = this, [fold, open] = this.bar.querySelectorAll("button");
    for (const [button, all] of /** @type {const} */ ([[fold, true], [open, false]])) /** @type {HTMLElement} */ (button).onclick = () => {
      this.folding = { all, turned: new Set() };
      this.#changed();
    };
    canvas.onpointermove = ({ offsetX: x, offsetY: y }) => this.#point(this.seen ? underGraph(this.seen.place, x, y) : null, { x, y, over: canvas });
    strip.onpointermove = ({ offsetX: x, offsetY: y }) => this.#point(this.#onStrip(x), { x, y, over: strip });
    canvas.onpointerleave = strip.onpointerleave = () => this.#point(null, this.at);
    canvas.onpointerdown = strip.onpointerdown = (event) => {
      event.preventDefault(); // the stage's keys go on working
      this.stage.root.focus({ preventScroll: true });
    };
    canvas.onclick = ({ offsetX: x, offsetY: y }) => this.#take(this.seen ? underGraph(this.seen.place, x, y) : null);
    strip.onclick = ({ offsetX: x }) => {
      const hit = this.#onStrip(x), band = hit && "node" in hit ? this.seen?.place.bands.find((b) => b.lines.some((l) => l.boxes.some((n) => n.node === hit.node))) : null;
      if (band) scroll.scrollTop = band.top - 20;
      if (hit && "node" in hit && !this.seen?.nodes[hit.node].folded) this.#take(hit);
    };
    scroll.onscroll = () => (this.stage.dirty = true);
    walkWithArrows(spots);
    spots.addEventListener("focusin", (event) => { // one of them is in the order of the Tab key
      for (const spot of /** @type {any} */ (spots.children)) spot.tabIndex = spot === event.target ? 0 : -1;
    });
  }

  /** The node under a place of the line. @param {number} x @returns {GraphHit} */
  #onStrip(x) {
    const { seen } = this;
    if (!seen) return null;
    const layer = stripOf(seen.model, seen.timed, seen.place.width).findIndex((s) => x >= s.x && x < s.x + s.w), node = seen.nodes.findIndex((n) => n.layers.some((l) => l.index === layer));
    return node < 0 ? null : { node };
  }

  /** Choose what was hit: every other view shows its rank too. A folded block opens. @param {GraphHit} hit */
  #take(hit) {
    const { seen, stage } = this;
    if (!seen || !hit || "wire" in hit) {
      this.own = { node: "", cut: -1 };
      return stage.choose(null);
    }
    if ("fold" in hit) return this.#turn(hit.fold);
    const node = "node" in hit ? seen.nodes[hit.node] : null;
    if (node?.folded) return this.#turn(node.block);
    this.own = { node: node && node.key !== this.own.node ? node.key : "", cut: "cut" in hit ? hit.cut : -1 };
    stage.choose("cut" in hit ? { rank: seen.ranks[hit.cut], peer: seen.ranks[hit.cut + 1] } : { rank: seen.ranks[node ? node.stage : /** @type {{stage: number}} */ (hit).stage] });
  }

  /** @param {GraphHit} hit @param {{x: number, y: number, over: HTMLElement}} at */
  #point(hit, at) {
    if (JSON.stringify(hit) !== JSON.stringify(this.pointed)) this.stage.dirty = true;
    this.pointed = hit;
    this.at = at;
    this.#tell();
  }

  /** Buttons over stages, layers and cuts, for who has no pointer; arrows go from one to the next. @param {GraphSeen} seen */
  #placeSpots({ place, nodes, model }) {
    const key = place.key + place.height;
    if (this.spots.dataset.key === key) return;
    this.spots.dataset.key = key;
    const made = /** @type {HTMLElement[]} */ ([]);
    const spot = (/** @type {GraphHit} */ hit, /** @type {string} */ name, /** @type {import("./graph_place.js").Box} */ { x, y, w, h }, /** @type {string} */ block = "") => {
      const button = document.createElement("button");
      Object.assign(button.style, { left: `${x}px`, top: `${y}px`, width: `${w}px`, height: `${h}px` });
      button.tabIndex = made.length ? -1 : 0;
      if (block) button.dataset.block = block;
      button.setAttribute("aria-label", name);
      button.onclick = () => this.#take(hit);
      button.onfocus = () => {
        this.#point(hit, { x: x + w / 2, y: y + h / 2, over: this.canvas });
        this.heard.textContent = this.tip.textContent;
      };
      button.onblur = () => this.#point(null, this.at);
      made.push(button);
    };
    for (const band of place.bands) {
      spot({ stage: band.stage }, `stage ${band.stage}`, { x: 0, y: band.top, w: place.left - 10, h: band.height });
      for (const { boxes, first, end } of band.lines) {
        for (const { block, x, y, w, h } of place.folds.filter((f) => boxes.some((b) => b.x === f.x && b.y >= f.y && b.y - f.y < 200 && b.node >= first && b.node < end && nodes[b.node].block === f.block)))
          spot({ fold: block }, `${block}, open: fold it`, { x, y, w, h }, block);
        for (const box of boxes) spot({ node: box.node }, nodes[box.node].name, box, nodes[box.node].folded ? nodes[box.node].block : "");
      }
      const cut = place.cuts[band.stage];
      if (cut) spot({ cut: cut.border }, `cut ${cut.border + 1} of ${model.borders.length}`, { x: 0, y: cut.top, w: place.width, h: cut.height });
    }
    this.spots.replaceChildren(...made);
  }

  #tell() {
    const { pointed, tip, at } = this, lines = this.#lines(pointed);
    this.canvas.style.cursor = this.strip.style.cursor = lines.length && pointed && !("wire" in pointed) ? "pointer" : "default";
    showTip(tip, this.body, at.over, at, lines);
  }

  /** @param {GraphHit} hit @returns {string[]} */
  #lines(hit) {
    const { seen, stage } = this;
    if (!seen || !hit) return [];
    const { model, nodes, ranks, crossed } = seen, { known } = stage;
    if ("fold" in hit) return [`fold ${hit.fold}: click`];
    if ("node" in hit) {
      const node = nodes[hit.node], parts = node && !node.folded ? shardingOf(model)?.layers.get(node.layers[0].index) : undefined;
      return node ? [...nodeLines(node, model, ranks), ...(parts ? partLines(parts, trafficOf(known.table), stage.player.t) : [])] : [];
    }
    if ("cut" in hit) return cutLines(model, hit.cut, crossed);
    if ("wire" in hit) return wireLines(hit.wire, nodes);
    const holding = memoryOf(model, ranks, known.run, trafficOf(known.table), stage.player.t)[ranks[hit.stage]];
    return stageLines(model, hit.stage, ranks[hit.stage], holding?.most ?? NaN, known.run?.memory_limit ?? null, known.run?.pipeline?.peaks?.[hit.stage] ?? 0);
  }

  end() {
    this.pointed = null;
  }
}

/** @type {import("./stage.js").Scene} */
export const modelScene = { name: "model", label: "Model", key: "6", offered: (known) => modelOf(known.run) !== null, build: (body, stage) => new ModelView(body, stage) };

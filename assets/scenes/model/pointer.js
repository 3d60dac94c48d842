// @ts-check
/**
 * The model's picture under the pointer and the keyboard: the tooltip describes the place, a stage, a
 * layer or a cut is chosen, a block is folded or opened. Each has a button over it for readers
 * without a pointer.
 *
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("./draw.js").GraphSeen} GraphSeen
 * @typedef {import("./draw.js").GraphHit} GraphHit
 * @typedef {{x: number, y: number, hit: GraphHit, over?: HTMLElement}} GraphPlace
 */
import { memoryOf, stripOf } from "./charts.js";
import { cutLines, nodeLines, stageLines, wireLines } from "./captions.js";
import { hitUnder } from "./hits.js";
import { partLines, shardingOf } from "./shards.js";
import { trafficOf } from "./traffic.js";
import { PointedPlace } from "../../drawing/pointed_place.js";
import { walkWithArrows } from "../../drawing/tooltip.js";

export class GraphPointer {
  /**
   * @param {HTMLElement} body
   * @param {Stage} stage
   * @param {import("./folded_layout.js").FoldedLayout} folded
   * @param {() => GraphSeen | null} shown  what is on screen
   * @param {() => void} redraw  draws at once, so that the buttons are where the boxes are
   */
  constructor(body, stage, folded, shown, redraw) {
    const find = (/** @type {string} */ selector) =>
      /** @type {any} */ (body.querySelector(selector));
    this.stage = stage;
    this.folded = folded;
    this.shown = shown;
    this.redraw = redraw;
    this.canvas = /** @type {HTMLCanvasElement} */ (find(".wb-mg"));
    this.strip = /** @type {HTMLCanvasElement} */ (find(".wb-mg-strip"));
    this.scroll = /** @type {HTMLElement} */ (find(".wb-mg-scroll"));
    this.bar = /** @type {HTMLElement} */ (find(".wb-mg-bar"));
    this.spots = /** @type {HTMLElement} */ (find(".wb-co-spots"));
    this.choice = { node: "", cut: -1 }; // the reader's choice within the picture
    this.pointed = new PointedPlace(
      body,
      this.canvas,
      (/** @type {GraphPlace} */ { hit }) => this.#lines(hit),
      {
        cursor: ({ hit }, lines) =>
          lines.length && hit && !("wire" in hit) ? "pointer" : "default",
        moved: (from, to) => {
          if (JSON.stringify(from?.hit) !== JSON.stringify(to?.hit)) stage.dirty = true;
        },
      },
    );
    this.#listen();
  }

  /** @param {string} block */
  #turn(block) {
    const inside = this.spots.contains(/** @type {any} */ (this.spots.getRootNode()).activeElement);
    this.folded.turn(block);
    this.choice.node = "";
    this.#changed();
    if (inside)
      /** @type {HTMLElement | null} */ (
        this.spots.querySelector(`[data-block="${CSS.escape(block)}"]`)
      )?.focus({ preventScroll: true });
  }

  #changed() {
    this.pointed.point(null);
    this.redraw();
    this.stage.touch();
  }

  /**
   * Place buttons over stages, layers and cuts, for readers without a pointer; arrows go from one
   * to the next.
   * @param {GraphSeen} seen
   */
  placeSpots({ place, nodes, model }) {
    const key = place.key + place.height;
    if (this.spots.dataset.key === key) return;
    this.spots.dataset.key = key;
    const buttons = /** @type {HTMLElement[]} */ ([]);
    const spot = (
      /** @type {GraphHit} */ hit,
      /** @type {string} */ name,
      /** @type {import("./place.js").Box} */ { x, y, w, h },
      /** @type {string} */ block = "",
    ) => {
      const middle = { x: x + w / 2, y: y + h / 2, hit };
      const button = this.pointed.spot({ x, y, w, h }, name, middle, () => this.#take(hit));
      button.tabIndex = buttons.length ? -1 : 0;
      if (block) button.dataset.block = block;
      buttons.push(button);
    };
    for (const band of place.bands) {
      spot({ stage: band.stage }, `stage ${band.stage}`, {
        x: band.x,
        y: band.top,
        w: place.left - 10,
        h: band.height,
      });
      for (const { boxes, first, end } of band.lines) {
        for (const { block, x, y, w, h } of place.folds.filter((f) =>
          boxes.some(
            (b) =>
              b.x === f.x &&
              b.y >= f.y &&
              b.y - f.y < 200 &&
              b.node >= first &&
              b.node < end &&
              nodes[b.node].block === f.block,
          ),
        ))
          spot({ fold: block }, `${block}, open: fold it`, { x, y, w, h }, block);
        for (const box of boxes)
          spot(
            { node: box.node },
            nodes[box.node].name,
            box,
            nodes[box.node].folded ? nodes[box.node].block : "",
          );
      }
      const cut = place.cuts[band.stage];
      if (cut)
        spot({ cut: cut.border }, `cut ${cut.border + 1} of ${model.borders.length}`, {
          x: cut.x,
          y: cut.top,
          w: place.width,
          h: cut.height,
        });
    }
    this.spots.replaceChildren(...buttons);
  }

  #listen() {
    const { canvas, strip, spots, scroll } = this;
    const [fold, open] = this.bar.querySelectorAll("button");
    /** @type {HTMLElement} */ for (const [button, all] of /** @type {const} */ ([
      [fold, true],
      [open, false],
    ]))
      button.onclick = () => {
        this.folded.fold(all);
        this.#changed();
      };
    this.pointed.follow(this.stage.root, ({ x, y }) => ({ x, y, hit: this.#under(x, y) }));
    this.pointed.follow(
      this.stage.root,
      ({ x, y }) => ({ x, y, hit: this.#onStrip(x), over: strip }),
      strip,
    );
    canvas.onclick = ({ offsetX: x, offsetY: y }) => this.#take(this.#under(x, y));
    strip.onclick = ({ offsetX: x }) => {
      const hit = this.#onStrip(x);
      const band =
        hit && "node" in hit
          ? this.shown()?.place.bands.find((b) =>
              b.lines.some((l) => l.boxes.some((n) => n.node === hit.node)),
            )
          : null;
      if (band) scroll.scrollTop = band.top - 20;
      if (hit && "node" in hit && !this.shown()?.nodes[hit.node].folded) this.#take(hit);
    };
    scroll.onscroll = () => (this.stage.dirty = true);
    walkWithArrows(spots);
  }

  /** The node under a place of the line. @param {number} x @returns {GraphHit} */
  #onStrip(x) {
    const seen = this.shown();
    if (!seen) return null;
    const layer = stripOf(seen.model, seen.timed, this.strip.clientWidth).findIndex(
      (s) => x >= s.x && x < s.x + s.w,
    );
    const node = seen.nodes.findIndex((n) => n.layers.some((l) => l.index === layer));
    return node < 0 ? null : { node };
  }

  /**
   * Choose what was hit: every other view shows its rank too. A folded block opens.
   * @param {GraphHit} hit
   */
  #take(hit) {
    const { stage } = this;
    const seen = this.shown();
    if (!seen || !hit || "wire" in hit) {
      this.choice = { node: "", cut: -1 };
      return stage.choose(null);
    }
    if ("fold" in hit) return this.#turn(hit.fold);
    const node = "node" in hit ? seen.nodes[hit.node] : null;
    if (node?.folded) return this.#turn(node.block);
    this.choice = {
      node: node && node.key !== this.choice.node ? node.key : "",
      cut: "cut" in hit ? hit.cut : -1,
    };
    stage.choose(
      "cut" in hit
        ? { rank: seen.ranks[hit.cut], peer: seen.ranks[hit.cut + 1] }
        : { rank: seen.ranks[node ? node.stage : /** @type {{stage: number}} */ (hit).stage] },
    );
  }

  /** @param {number} x @param {number} y @returns {GraphHit} */
  #under(x, y) {
    const seen = this.shown();
    return seen ? hitUnder(seen.place, x, y) : null;
  }

  /** @param {GraphHit} hit @returns {string[]} */
  #lines(hit) {
    const { stage } = this;
    const seen = this.shown();
    if (!seen || !hit) return [];
    const { model, nodes, ranks, crossed } = seen;
    const { known } = stage;
    if ("fold" in hit) return [`fold ${hit.fold}: click`];
    if ("node" in hit) {
      const node = nodes[hit.node];
      const parts =
        node && !node.folded ? shardingOf(model)?.layers.get(node.layers[0].index) : undefined;
      return node
        ? [
            ...nodeLines(node, model, ranks),
            ...(parts ? partLines(parts, trafficOf(known.table), stage.playback.player.t) : []),
          ]
        : [];
    }
    if ("cut" in hit) return cutLines(model, hit.cut, crossed);
    if ("wire" in hit) return wireLines(hit.wire, nodes);
    const holding = memoryOf(
      model,
      ranks,
      known.run,
      trafficOf(known.table),
      stage.playback.player.t,
    )[ranks[hit.stage]];
    return stageLines(
      model,
      hit.stage,
      ranks[hit.stage],
      holding?.most ?? NaN,
      known.run?.memory_limit ?? null,
      known.run?.pipeline?.peaks?.[hit.stage] ?? 0,
    );
  }
}

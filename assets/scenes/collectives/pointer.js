// @ts-check
/**
 * The collectives' two pictures under the pointer and the keyboard: the tooltip describes the place, a
 * rank, a link, a chunk or a cell is chosen. Ranks and links have a button over them for readers
 * without a pointer; arrow keys go from cell to cell of the matrix.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("../../engine/actions.js").Target} Target
 * @typedef {import("./frame.js").Prepared} Prepared
 * @typedef {import("./scene.js").CollectivesView} CollectivesView
 * @typedef {{part: "ring" | "matrix", x: number, y: number, over: HTMLElement}} CollectivesPlace
 */
import { counterWords } from "./counters.js";
import { LinkDrag, canDrag } from "./link_drag.js";
import { pairWords, pairsGrid, underPairs } from "./link_matrix.js";
import { cellWords, chunkWords, linkWords, rankWords, valueWords } from "./mark_captions.js";
import { cellBox, cellUnder } from "./matrix.js";
import { underRing } from "./ring.js";
import { openRankMenu } from "../../chrome/rank_menu.js";
import { chunkWay, wayWords } from "../../drawing/chunk_way.js";
import { PointedPlace } from "../../drawing/pointed_place.js";
import { walkWithArrows } from "../../drawing/tooltip.js";
import { pieceName } from "../../engine/format.js";

export class CollectivesPointer {
  /** @param {HTMLElement} body @param {Stage} stage @param {CollectivesView} view */
  constructor(body, stage, view) {
    this.stage = stage;
    this.view = view;
    this.spots = /** @type {HTMLElement} */ (body.querySelector(".wb-co-spots"));
    this.pointed = new PointedPlace(
      body,
      view.ring,
      (/** @type {CollectivesPlace} */ place) => this.#linesUnder(place),
      {
        cursor: ({ part }, lines) => (lines.length && part === "ring" ? "pointer" : "default"),
        moved: (_, place) => stage.point(place && this.#chunkUnder(place)),
      },
    );
    this.cursor = { row: -1, column: 0 }; // the keyboard's cell
    this.drag = new LinkDrag(
      view.ring,
      stage,
      (x, y) => (!view.pairs && /** @type {any} */ (this.#under("ring", x, y))?.link) || null,
      () => view.seen?.place.nodes ?? [],
    );
    this.#listen();
  }

  /** Place buttons over ranks and links, for readers without a pointer. @param {Prepared} seen */
  placeSpots({ place, placeKey, reading }) {
    const key = placeKey + this.view.pairs;
    if (this.spots.dataset.key === key) return;
    this.spots.dataset.key = key;
    if (this.view.pairs) return this.spots.replaceChildren();
    const { nodes, links } = place;
    const many = links.length > 2 * nodes.length;
    const spot = (
      /** @type {Target} */ target,
      /** @type {number} */ x,
      /** @type {number} */ y,
      /** @type {number} */ r,
    ) => {
      const name = "rank" in target ? `rank ${target.rank}` : `link ${target.from} → ${target.to}`;
      const box = { x: x - r, y: y - r, w: 2 * r, h: 2 * r };
      const button = this.pointed.spot(box, name, this.#placed("ring", x, y), () =>
        this.#openMenu(target),
      );
      button.dataset.code = "rank" in target ? String(target.rank) : `${target.from}>${target.to}`;
      return button;
    };
    this.spots.replaceChildren(
      ...nodes.map(({ x, y }, rank) =>
        spot(
          { rank },
          x,
          y,
          place.outside && !reading?.holdings.place.has(rank) ? place.outside + 2 : place.node + 4,
        ),
      ),
      ...(many || !reading
        ? []
        : links.map(([from, to]) =>
            spot(
              { from, to },
              (nodes[from].x + nodes[to].x) / 2,
              (nodes[from].y + nodes[to].y) / 2,
              8,
            ),
          )),
    );
  }

  #listen() {
    this.view.toggle.onclick = () => {
      this.view.pairs = !this.view.pairs;
      this.view.toggle.setAttribute("aria-pressed", String(this.view.pairs));
      this.pointed.point(null);
      this.stage.touch();
    };
    walkWithArrows(this.spots);
    for (const part of /** @type {const} */ (["ring", "matrix"])) {
      const canvas = this.view[part];
      this.pointed.follow(this.stage.root, ({ x, y }) => this.#placed(part, x, y), canvas);
      canvas.onclick = (event) => this.#click(part, event);
    }
    this.view.matrix.onkeydown = (event) => this.#walk(event);
    this.view.matrix.onfocus = () =>
      this.view.matrix.matches(":focus-visible") &&
      this.#cursor(Math.max(0, this.cursor.row), this.cursor.column);
    this.view.matrix.onblur = () => this.#cursor(-1, this.cursor.column);
  }

  /** @param {"ring" | "matrix"} part @param {number} x @param {number} y @returns {CollectivesPlace} */
  #placed(part, x, y) {
    return { part, x, y, over: this.view[part] };
  }

  /** @param {number} row @param {number} column */
  #cursor(row, column) {
    this.cursor = { row, column };
    const grid = this.view.seen?.grid;
    if (row >= 0 && grid) {
      const { x, y, w, h } = cellBox(
        grid,
        Math.min(row, grid.rows - 1),
        Math.min(column, grid.columns - 1),
      );
      this.pointed.point(this.#placed("matrix", x + w / 2, y + h / 2));
      this.pointed.speak();
    } else this.pointed.point(null);
    this.stage.touch();
  }

  /** @param {KeyboardEvent} event */
  #walk(event) {
    const way = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[
      event.key
    ];
    const grid = this.view.seen?.grid;
    if (!grid || this.cursor.row < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter")
      this.#choose(
        Math.min(this.cursor.row, grid.rows - 1),
        Math.min(this.cursor.column, grid.columns - 1),
      );
    else if (way)
      this.#cursor(
        Math.min(grid.rows - 1, Math.max(0, this.cursor.row + way[0])),
        Math.min(grid.columns - 1, Math.max(0, this.cursor.column + way[1])),
      );
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {"ring" | "matrix"} part @param {number} x @param {number} y */
  #under(part, x, y) {
    const seen = this.view.seen;
    if (!seen) return null;
    if (part === "ring" && this.view.pairs) {
      const link = underPairs(pairsGrid(seen.place.ranks, seen.left, seen.height), x, y);
      return link && { link };
    }
    if (part === "ring") return underRing(seen.marks, seen.place, x, y);
    const row = Math.floor((y - seen.grid.top) / seen.grid.rh);
    const cell = cellUnder(seen.grid, x, y);
    if (cell) return { cell };
    return row >= 0 && row < seen.grid.rows && (x < seen.grid.left || x >= seen.grid.tail)
      ? { row }
      : null;
  }

  /** The chunk that lies at a place, as a choice. @param {CollectivesPlace} place */
  #chunkUnder({ part, x, y }) {
    const reading = this.view.seen?.reading;
    const hit = /** @type {any} */ (this.#under(part, x, y));
    if (!reading || !hit) return null;
    const { call, holdings } = reading;
    const chunk = hit.chunk ? hit.chunk.chunk : hit.cell && holdings.chunks[hit.cell.column];
    if (chunk === undefined || chunk === null) return null;
    const rank = hit.chunk ? {} : { rank: holdings.ranks[hit.cell.row] };
    return { ...rank, group: call.group, op: call.op, chunk, iteration: call.iteration };
  }

  /** The way of the chunk at this place, in words. @param {CollectivesPlace} place */
  #wayUnder(place) {
    return wayWords(chunkWay(this.view.seen?.reading?.call ?? null, this.#chunkUnder(place)));
  }

  /** @param {CollectivesPlace} place @returns {string[]} */
  #linesUnder(place) {
    const { part, x, y } = place;
    if (!this.view.seen) return [];
    const { reading, frame, states, t, ranks, poison } = this.view.seen;
    const hit = /** @type {any} */ (this.#under(part, x, y));
    const { known } = this.stage;
    const look = this.stage.look(performance.now());
    const dragged = this.drag.lines;
    if (dragged) return dragged;
    if (!hit) return [];
    if ("rank" in hit)
      return ranks[hit.rank]
        ? rankWords(ranks[hit.rank], frame, known.lanesNow, pieceName(reading?.call))
        : [];
    if (!reading || !frame) return [];
    if (hit.chunk)
      return [
        ...chunkWords(reading, hit.chunk, poison),
        ...this.#wayUnder(place),
        ...this.#valuesNow(look, hit.chunk.from, hit.chunk.chunk),
      ];
    if (hit.link && this.view.pairs) return pairWords(reading, hit.link.from, hit.link.to, t);
    if (hit.link)
      return [
        ...linkWords(reading, known, hit.link.from, hit.link.to, t),
        ...(canDrag(this.stage, hit.link) ? ["click or drag outwards: slower, and run again"] : []),
      ];
    if (hit.cell) {
      const cell = hit.cell.row * reading.holdings.chunks.length + hit.cell.column;
      const { ranks: who, chunks } = reading.holdings;
      return [
        ...cellWords(reading, frame, cell, states[cell], poison),
        ...this.#wayUnder(place),
        ...this.#valuesNow(look, who[hit.cell.row], chunks[hit.cell.column]),
      ];
    }
    return counterWords(reading, hit.row, t);
  }

  /** @param {Look} look @param {number} rank @param {number} chunk */
  #valuesNow(look, rank, chunk) {
    return look.known.control?.held ? valueWords(look, rank, chunk) : [];
  }

  /** @param {Target} target */
  #openMenu(target) {
    this.stage.choose(
      "rank" in target ? { rank: target.rank } : { rank: target.from, peer: target.to },
    );
    this.pointed.point(null);
    openRankMenu(this.stage, target);
  }

  /** @param {"ring" | "matrix"} part @param {MouseEvent} event */
  #click(part, event) {
    const hit = /** @type {any} */ (this.#under(part, event.offsetX, event.offsetY));
    const call = this.view.seen?.reading?.call;
    if (this.drag.over) return void (this.drag.over = false);
    if (!hit) return this.stage.choose(null);
    if ("rank" in hit) return this.#openMenu({ rank: hit.rank });
    if (hit.link && this.view.pairs)
      return this.stage.choose({ rank: hit.link.from, peer: hit.link.to });
    if (hit.link) return this.#openMenu(hit.link);
    if (hit.chunk && call)
      return this.stage.choose({
        rank: hit.chunk.from,
        peer: hit.chunk.to,
        group: call.group,
        op: call.op,
        step: hit.chunk.step,
        chunk: hit.chunk.chunk,
        iteration: call.iteration,
      });
    if (hit.cell) return this.#choose(hit.cell.row, hit.cell.column);
    const rank = this.view.seen?.reading?.holdings.ranks[hit.row];
    if (rank !== undefined) this.stage.choose({ rank });
  }

  /** @param {number} row @param {number} column */
  #choose(row, column) {
    const reading = this.view.seen?.reading;
    if (!reading) return;
    const { call, holdings } = reading;
    this.stage.choose({
      rank: holdings.ranks[row],
      group: call.group,
      op: call.op,
      chunk: holdings.chunks[column],
      iteration: call.iteration,
    });
  }
}

// @ts-check
/**
 * The collectives: where the chunks are (ranks on a circle) and what each rank holds (a matrix), two pictures of one call at
 * one playhead. A chunk on its way is the matrix's own cell. Everything is replayed from rows: no algorithm is known here.
 *
 * @typedef {import("./stage.js").Look} Look
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("./collective_frame.js").Prepared} Prepared
 * @typedef {{part: "ring" | "matrix", x: number, y: number} | null} Pointer
 */
import { KeyRow, contentKeys, pairKeys, spaceKeys } from "./collective_keys.js";
import { longestWaits, preparedOf } from "./collective_frame.js";
import { openHands } from "./hands.js";
import { drawPairs, pairWords, pairsGrid, spokenPairs, underPairs } from "./link_matrix.js";
import { CellLayer, cellBox, cellUnder, counterWords, drawArriving, drawChosenCell, drawCounters, drawEndedRows, drawFrame } from "./matrix.js";
import { frameAt } from "./model.js";
import { readingOf } from "./rates.js";
import { labelled, underRing } from "./ring.js";
import { drawSpace, drawWays } from "./ring_draw.js";
import { cellWords, chunkWords, collectiveSentence, lastMoments, linkWords, rankWords, ranksOf, spokenFrame, valueWords } from "./tell_collectives.js";
import { duration, pieceName, titleOf } from "./words.js";
import { stuckNow, stuckWords } from "./stuck.js";
import { pointOn, showTip } from "./tip.js";

const LINES = 2; // of what happened last

const COLLECTIVES_BODY = `<div class="wb-co-grid">
  <div><h3 class="wb-co-head"><span>Where the chunks are</span><button class="wb-co-links" aria-pressed="false" title="bytes and busy time of each pair of ranks">links as a table</button></h3><div class="wb-co-picture"><canvas class="wb-ring" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Ranks and links"></div></div>
    <p class="wb-co-fact"></p><p class="wb-key"></p></div>
  <div><h3>What each rank holds</h3><div class="wb-co-picture"><canvas class="wb-matrix" role="img" tabindex="0"></canvas></div><p class="wb-key"></p></div></div>
  <ol class="wb-story wb-co-story" aria-label="The last moments up to the playhead"></ol><div class="wb-co-tip" hidden></div><p class="wb-sr" role="status"></p>`;

export class CollectivesView {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.body = body;
    this.stage = stage;
    body.innerHTML = COLLECTIVES_BODY;
    const $ = (/** @type {string} */ selector) => /** @type {any} */ (body.querySelector(selector)), [spaceKey, contentKey] = body.querySelectorAll(".wb-key");
    this.head = /** @type {HTMLElement} */ ($(".wb-co-head span"));
    this.ring = /** @type {HTMLCanvasElement} */ ($(".wb-ring"));
    this.matrix = /** @type {HTMLCanvasElement} */ ($(".wb-matrix"));
    this.grid = /** @type {HTMLElement} */ ($(".wb-co-grid"));
    this.spots = /** @type {HTMLElement} */ ($(".wb-co-spots"));
    this.fact = /** @type {HTMLElement} */ ($(".wb-co-fact"));
    this.story = /** @type {HTMLElement} */ ($(".wb-co-story"));
    this.tip = /** @type {HTMLElement} */ ($(".wb-co-tip"));
    this.heard = /** @type {HTMLElement} */ ($(".wb-sr"));
    this.keys = [new KeyRow(/** @type {HTMLElement} */ (spaceKey)), new KeyRow(/** @type {HTMLElement} */ (contentKey))];
    this.story.append(...Array.from({ length: LINES }, () => Object.assign(document.createElement("li"), { innerHTML: "<span></span><em></em>" })));
    this.toggle = /** @type {HTMLButtonElement} */ ($(".wb-co-links"));
    this.score = true;
    this.pairs = false; // links as a table, in place of the picture of ranks
    this.cells = new CellLayer();
    this.ways = { key: "", canvas: document.createElement("canvas") };
    this.below = ""; // what is said below the ring because its middle is not free
    this.pointer = /** @type {Pointer} */ (null);
    this.cursor = { row: -1, column: 0 }; // the keyboard's cell
    this.seen = /** @type {Prepared | null} */ (null);
    this.#listen();
  }

  // ---- drawing

  /** @param {Look} look */
  draw(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = preparedOf(look, this.seen));
    this.grid.style.gridTemplateColumns = seen.wide ? `${seen.left}px ${seen.right}px` : "minmax(0, 1fr)";
    const gone = new Set(seen.ranks.filter((s) => s.ended).map((s) => s.rank)), ways = this.pairs ? null : this.#waysDrawn(look, seen, gone), g = this.stage.paper(this.ring, seen.left, seen.height);
    this.below = ways ? drawSpace(g, look, seen, ways) : "";
    if (!ways) drawPairs(g, look, pairsGrid(look.ranks, seen.left, seen.height), seen.reading, seen.t, seen.told.t);
    this.#drawMatrix(look, seen);
    this.#placeSpots(seen);
  }

  /** The links: drawn once for a call, until one of them changes. @param {Look} look @param {Prepared} seen @param {Set<number>} gone */
  #waysDrawn({ ink, ratio, call }, seen, gone) {
    const { ways } = this, { scale } = seen, made = [...seen.made].map(([k, l]) => k + l.down), key = [call?.key, call?.rows.length, seen.placeKey, scale, ratio, ink.rule, made, [...gone]].join();
    if (ways.key === key) return ways.canvas;
    ways.key = key;
    drawWays(this.stage.paper(ways.canvas, seen.left, seen.height), ink, seen.place, seen.reading, scale, seen.made, gone);
    return ways.canvas;
  }

  /** @param {Look} look @param {Prepared} seen */
  #drawMatrix(look, seen) {
    const { ink, ratio, choice, call } = look, { grid, reading, frame, states, t, tall, ranks } = seen, g = this.stage.paper(this.matrix, seen.right, tall);
    if (reading && frame) {
      const layer = this.cells.update(look, grid, reading, states, t, tall);
      g.drawImage(layer, 0, 0, layer.width / ratio, layer.height / ratio);
      drawArriving(g, ink, grid, reading, frame);
      drawCounters(g, look, grid, reading, t, seen.told.t);
      const row = reading.holdings.place.get(choice?.rank ?? -1), column = reading.holdings.chunks.indexOf(choice?.chunk ?? -1);
      if (row !== undefined && column >= 0 && (choice?.op === undefined || choice.op === call?.op)) drawChosenCell(g, ink, grid, row, column);
      if (this.cursor.row >= 0) drawChosenCell(g, ink, grid, Math.min(this.cursor.row, grid.rows - 1), Math.min(this.cursor.column, grid.columns - 1));
    } else for (let row = 0; row < grid.rows; row++) {
      for (let column = 0; column < grid.columns; column++) { // the places are there before anything happens
        const { x, y, w, h } = cellBox(grid, row, column);
        g.fillStyle = ink.track;
        g.fillRect(x, y, w, h);
      }
    }
    drawFrame(g, look, grid, reading);
    if (reading) drawEndedRows(g, ink, grid, ranks.filter((s) => s.ended && reading.holdings.place.has(s.rank)).map((s) => reading.holdings.place.get(s.rank) ?? 0));
  }

  /** Buttons over ranks and links, for who has no pointer. @param {Prepared} seen */
  #placeSpots({ place, placeKey, reading }) {
    const key = placeKey + this.pairs;
    if (this.spots.dataset.key === key) return;
    this.spots.dataset.key = key;
    if (this.pairs) return this.spots.replaceChildren();
    const { nodes, links } = place, many = links.length > 2 * nodes.length;
    const spot = (/** @type {import("./deeds.js").Target} */ target, /** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ r) => {
      const button = document.createElement("button");
      Object.assign(button.style, { left: `${x - r}px`, top: `${y - r}px`, width: `${2 * r}px`, height: `${2 * r}px` });
      button.dataset.code = "rank" in target ? String(target.rank) : `${target.from}>${target.to}`;
      button.setAttribute("aria-label", "rank" in target ? `rank ${target.rank}` : `link ${target.from} → ${target.to}`);
      button.onclick = () => {
        const at = button.getBoundingClientRect();
        this.#hands(target, at.right, at.bottom);
      };
      button.onfocus = () => this.#point({ part: "ring", x, y });
      button.onblur = () => this.#point(null);
      return button;
    };
    this.spots.replaceChildren(...nodes.map(({ x, y }, rank) => spot({ rank }, x, y, place.outside && !reading?.holdings.place.has(rank) ? place.outside + 2 : place.node + 4)),
      ...(many || !reading ? [] : links.map(([from, to]) => spot({ from, to }, (nodes[from].x + nodes[to].x) / 2, (nodes[from].y + nodes[to].y) / 2, 8))));
  }

  // ---- words

  /** @param {Look} look */
  say(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen ??= preparedOf(look, this.seen)), { reading, frame, t, place } = seen;
    if (seen.stuck.size) this.stage.dirty = true; // how long they have waited is part of the picture
    const put = (/** @type {Element} */ node, /** @type {string} */ text) => node.textContent !== text && (node.textContent = text);
    put(this.head, reading?.call.collective === "p2p" ? "Where the messages are" : "Where the chunks are");
    const lines = reading ? lastMoments(reading, t, LINES) : [];
    [...this.story.children].forEach((item, i) => {
      const [when, what] = lines[i - LINES + lines.length] ?? ["", ""];
      item.classList.toggle("newest", i === LINES - 1);
      put(item.children[0], when);
      put(item.children[1], what);
    });
    const waits = labelled(place) || this.pairs ? [] : longestWaits(seen).map((w) => `rank ${w.rank} waits ${duration(t - w.start)}`);
    put(this.fact, [this.below, waits.join(", ")].filter(Boolean).join(" · "));
    this.fact.classList.toggle("wb-co-below", !!this.below || !labelled(place));
    this.keys[0].show(this.pairs ? pairKeys(look) : spaceKeys(look, seen), look);
    this.keys[1].show(contentKeys(look, seen), look);
    this.ring.setAttribute("aria-label", this.pairs && reading ? spokenPairs(reading, t) : reading && frame ? spokenFrame(reading, frame) : "The ring of ranks; nothing moves yet");
    this.matrix.setAttribute("aria-label", reading ? this.#spokenMatrix(seen) : "What each rank holds of each chunk; nothing yet");
    this.#tell();
  }

  /** @param {Prepared} seen */
  #spokenMatrix({ reading, states, t }) {
    if (!reading) return "";
    const { holdings } = reading, { ranks, chunks, whole, slots } = holdings;
    const rows = ranks.map((rank, row) => {
      const done = chunks.filter((_, c) => whole[states[row * chunks.length + c]] === slots[c]);
      return `rank ${rank} has ${done.length} of ${chunks.length} chunks complete, ${counterWords(reading, row, t)[0].replace(/^rank \d+: /, "")}`;
    });
    return `${rows.join("; ")}. Arrow keys go from cell to cell.`;
  }

  /** @param {Look} look */
  title(look) {
    const { call, known } = look;
    return !call && stuckNow(look).size ? "Who waits for whom" : call ? titleOf(call) + amongWords(look) : known.run?.title || "Collectives";
  }

  /** @param {Look} look */
  sentence(look) {
    const { call, known } = look, t = call ? Math.max(0, look.t - call.start) : 0, stuck = known.state === "failed" ? "" : stuckWords(stuckNow(look), look);
    return stuck || collectiveSentence(look, call && readingOf(call, known), call && frameAt(call, t));
  }

  /** @param {Look} look */
  marks(look) {
    const { call } = look;
    if (!call) return [];
    const { marks } = preparedOf(look, this.seen), { generation, group, op } = call;
    return marks.map((m) => ({ rank: m.from, peer: m.to, generation, group, op, step: m.step, chunk: m.chunk, slot: m.slot, share: m.share, x: m.x, y: m.y }));
  }

  // ---- under the pointer, or the keyboard

  #listen() {
    this.toggle.onclick = () => {
      this.pairs = !this.pairs;
      this.toggle.setAttribute("aria-pressed", String(this.pairs));
      this.#point(null);
      this.stage.touch();
    };
    for (const part of /** @type {const} */ (["ring", "matrix"])) {
      const canvas = this[part];
      pointOn(canvas, this.stage.root, (place) => this.#point(place && { part, ...place }));
      canvas.onclick = (event) => this.#click(part, event);
    }
    this.matrix.onkeydown = (event) => this.#walk(event);
    this.matrix.onfocus = () => this.matrix.matches(":focus-visible") && this.#cursor(Math.max(0, this.cursor.row), this.cursor.column);
    this.matrix.onblur = () => this.#cursor(-1, this.cursor.column);
  }

  /** @param {Pointer} pointer */
  #point(pointer) {
    this.pointer = pointer;
    this.#tell();
  }

  /** @param {number} row @param {number} column */
  #cursor(row, column) {
    this.cursor = { row, column };
    const grid = this.seen?.grid;
    if (row >= 0 && grid) {
      const { x, y, w, h } = cellBox(grid, Math.min(row, grid.rows - 1), Math.min(column, grid.columns - 1));
      this.#point({ part: "matrix", x: x + w / 2, y: y + h / 2 });
      this.heard.textContent = this.tip.textContent;
    } else this.#point(null);
    this.stage.touch();
  }

  /** @param {KeyboardEvent} event */
  #walk(event) {
    const way = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key], grid = this.seen?.grid;
    if (!grid || this.cursor.row < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter") this.#choose(Math.min(this.cursor.row, grid.rows - 1), Math.min(this.cursor.column, grid.columns - 1));
    else if (way) this.#cursor(Math.min(grid.rows - 1, Math.max(0, this.cursor.row + way[0])), Math.min(grid.columns - 1, Math.max(0, this.cursor.column + way[1])));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {"ring" | "matrix"} part @param {number} x @param {number} y */
  #under(part, x, y) {
    const seen = this.seen;
    if (!seen) return null;
    if (part === "ring" && this.pairs) {
      const link = underPairs(pairsGrid(seen.place.ranks, seen.left, seen.height), x, y);
      return link && { link };
    }
    if (part === "ring") return underRing(seen.marks, seen.place, x, y);
    const row = Math.floor((y - seen.grid.top) / seen.grid.rh), cell = cellUnder(seen.grid, x, y);
    if (cell) return { cell };
    return row >= 0 && row < seen.grid.rows && (x < seen.grid.left || x >= seen.grid.tail) ? { row } : null;
  }

  /** Say what lies under the pointer, beside it. */
  #tell() {
    const { pointer, seen, tip } = this, lines = pointer && seen ? this.#linesUnder(pointer, seen) : [];
    if (lines.length && pointer) this[pointer.part].style.cursor = pointer.part === "ring" ? "pointer" : "default";
    showTip(tip, this.body, this[pointer?.part ?? "ring"], pointer, lines);
  }

  /** @param {NonNullable<Pointer>} pointer @param {Prepared} seen @returns {string[]} */
  #linesUnder({ part, x, y }, { reading, frame, states, t, ranks }) {
    const hit = /** @type {any} */ (this.#under(part, x, y)), { known } = this.stage, look = this.stage.look(performance.now());
    if (part === "ring" && !hit) this.ring.style.cursor = "default";
    if (!hit) return [];
    if ("rank" in hit) return ranks[hit.rank] ? rankWords(ranks[hit.rank], frame, known.lanesNow, pieceName(reading?.call)) : [];
    if (!reading || !frame) return [];
    if (hit.chunk) return [...chunkWords(reading, hit.chunk), ...this.#valuesNow(look, hit.chunk.from, hit.chunk.chunk)];
    if (hit.link && this.pairs) return pairWords(reading, hit.link.from, hit.link.to, t);
    if (hit.link) return linkWords(reading, known, hit.link.from, hit.link.to, t);
    if (hit.cell) {
      const cell = hit.cell.row * reading.holdings.chunks.length + hit.cell.column, { ranks: who, chunks } = reading.holdings;
      return [...cellWords(reading, frame, cell, states[cell]), ...this.#valuesNow(look, who[hit.cell.row], chunks[hit.cell.column])];
    }
    return counterWords(reading, hit.row, t);
  }

  /** @param {Look} look @param {number} rank @param {number} chunk */
  #valuesNow(look, rank, chunk) {
    return look.known.control?.held ? valueWords(look, rank, chunk) : [];
  }

  /** @param {import("./deeds.js").Target} target @param {number} x @param {number} y */
  #hands(target, x, y) {
    this.stage.choose("rank" in target ? { rank: target.rank } : { rank: target.from, peer: target.to });
    this.#point(null);
    if (!(/** @type {any} */ (this.stage).readonly)) openHands(this.stage, target, x, y);
  }

  /** @param {"ring" | "matrix"} part @param {MouseEvent} event */
  #click(part, event) {
    const hit = /** @type {any} */ (this.#under(part, event.offsetX, event.offsetY)), call = this.seen?.reading?.call;
    if (!hit) return this.stage.choose(null);
    if ("rank" in hit) return this.#hands({ rank: hit.rank }, event.clientX, event.clientY);
    if (hit.link && this.pairs) return this.stage.choose({ rank: hit.link.from, peer: hit.link.to });
    if (hit.link) return this.#hands(hit.link, event.clientX, event.clientY);
    if (hit.chunk && call) return this.stage.choose({ rank: hit.chunk.from, peer: hit.chunk.to, group: call.group, op: call.op, step: hit.chunk.step, chunk: hit.chunk.chunk, iteration: call.iteration });
    if (hit.cell) return this.#choose(hit.cell.row, hit.cell.column);
    const rank = this.seen?.reading?.holdings.ranks[hit.row];
    if (rank !== undefined) this.stage.choose({ rank });
  }

  /** @param {number} row @param {number} column */
  #choose(row, column) {
    const reading = this.seen?.reading;
    if (!reading) return;
    const { call, holdings } = reading;
    this.stage.choose({ rank: holdings.ranks[row], group: call.group, op: call.op, chunk: holdings.chunks[column], iteration: call.iteration });
  }

  end() {
    this.pointer = null;
  }
}

/** Whose call it is, where it is not everybody's. @param {Look} look */
function amongWords({ call, known, ranks }) {
  const members = call ? readingOf(call, known).holdings.ranks : [];
  return members.length && members.length < ranks && call?.collective !== "p2p" ? ` among ${ranksOf(members)}` : "";
}

/** @type {import("./stage.js").Scene} */
export const collectivesScene = { name: "collectives", label: "Collectives", key: "2", build: (body, stage) => new CollectivesView(body, stage) };

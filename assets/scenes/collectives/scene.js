// @ts-check
/**
 * The collectives: where the chunks are (ranks on a circle) and what each rank holds (a matrix),
 * two pictures of one call at one playhead. A chunk on its way is the matrix's own cell. Everything
 * is replayed from rows: no algorithm is known here.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("./frame.js").Prepared} Prepared
 */
import { rankCountButtons } from "../../chrome/rank_trials.js";
import { KeyRow } from "../../drawing/key_row.js";
import { contentKeys, pairKeys, spaceKeys } from "./legend.js";
import { longestWaits, preparedOf } from "./frame.js";
import { drawPairs, pairsGrid, spokenPairs } from "./link_matrix.js";
import {
  CellLayer,
  cellBox,
  drawArriving,
  drawChosenCell,
  drawEndedRows,
  drawFrame,
} from "./matrix.js";
import { counterWords, drawCounters } from "./counters.js";
import { frameAt } from "../../engine/model.js";
import { readingOf } from "../../engine/rates.js";
import { labelled } from "./ring.js";
import { drawSpace, drawWays } from "./ring_draw.js";
import { collectiveSentence, ranksOf, spokenFrame } from "./captions.js";
import { lastMoments } from "./moments.js";
import { CollectivesPointer } from "./pointer.js";
import { duration, titleOf } from "../../engine/format.js";
import { onlyOperations } from "../../engine/run_words.js";
import { stuckNow, stuckWords } from "../../engine/blocked.js";

const LINES = 2; // of what happened last

const BODY = `<div class="wb-co-grid">
  <div><h3 class="wb-co-head"><span>Where the chunks are</span><i class="wb-co-count"></i><button class="wb-co-links" aria-pressed="false" title="bytes and busy time of each pair of ranks">links as a table</button></h3><div class="wb-co-picture"><canvas class="wb-ring" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Ranks and links"></div></div>
    <p class="wb-co-fact"></p></div>
  <div><h3>What each rank holds</h3><div class="wb-co-picture"><canvas class="wb-matrix" role="img" tabindex="0"></canvas></div></div></div>
  <div class="wb-co-keys"><p class="wb-key"></p><p class="wb-key"></p></div>
  <ol class="wb-story wb-co-story" aria-label="The last moments up to the playhead"></ol><div class="wb-co-tip" hidden></div><p class="wb-sr" role="status"></p>`;

export class CollectivesView {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.body = body;
    this.stage = stage;
    body.innerHTML = BODY;
    const $ = (/** @type {string} */ selector) => /** @type {any} */ (body.querySelector(selector));
    const [spaceKey, contentKey] = body.querySelectorAll(".wb-key");
    this.head = /** @type {HTMLElement} */ ($(".wb-co-head span"));
    this.ring = /** @type {HTMLCanvasElement} */ ($(".wb-ring"));
    this.matrix = /** @type {HTMLCanvasElement} */ ($(".wb-matrix"));
    this.grid = /** @type {HTMLElement} */ ($(".wb-co-grid"));
    this.fact = /** @type {HTMLElement} */ ($(".wb-co-fact"));
    this.story = /** @type {HTMLElement} */ ($(".wb-co-story"));
    this.keys = [
      new KeyRow(/** @type {HTMLElement} */ (spaceKey)),
      new KeyRow(/** @type {HTMLElement} */ (contentKey)),
    ];
    this.story.append(
      ...Array.from({ length: LINES }, () =>
        Object.assign(document.createElement("li"), { innerHTML: "<span></span><em></em>" }),
      ),
    );
    this.toggle = /** @type {HTMLButtonElement} */ ($(".wb-co-links"));
    this.score = true;
    this.pairs = false; // links as a table, in place of the picture of ranks
    this.cells = new CellLayer();
    this.ways = { key: "", canvas: document.createElement("canvas") };
    this.below = ""; // the text below the ring if its middle is not free
    this.seen = /** @type {Prepared | null} */ (null);
    this.rest = 0; // px that the words and keys around the two pictures take
    this.pointer = new CollectivesPointer(body, stage, this);
    this.count = rankCountButtons(/** @type {HTMLElement} */ ($(".wb-co-count")), stage);
  }

  // ---- drawing

  /** What is on screen; where it is to fill a screen, with the height that the rest leaves. @param {Look} look */
  #prepared(look) {
    const room = look.room ? look.room - this.rest : 0;
    return preparedOf({ ...look, room }, this.seen);
  }

  /** @param {Look} look */
  draw(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#prepared(look));
    this.grid.style.gridTemplateColumns = seen.wide
      ? `${seen.left}px ${seen.right}px`
      : "minmax(0, 1fr)";
    const gone = new Set(seen.ranks.filter((s) => s.ended).map((s) => s.rank));
    const ways = this.pairs ? null : this.#waysDrawn(look, seen, gone);
    const g = this.stage.paper(this.ring, seen.left, seen.height);
    this.below = ways ? drawSpace(g, look, seen, ways) : "";
    if (!ways) drawPairs(g, look, pairsGrid(look.ranks, seen.left, seen.height), seen);
    this.#drawMatrix(look, seen);
    this.pointer.placeSpots(seen);
  }

  /**
   * The links: drawn once for a call, until one of them changes.
   * @param {Look} look
   * @param {Prepared} seen
   * @param {Set<number>} gone
   */
  #waysDrawn({ ink, ratio, call }, seen, gone) {
    const { ways } = this;
    const { scale } = seen;
    const emulated = [...seen.emulated].map(([k, l]) => k + l.down);
    const key = [
      call?.key,
      call?.rows.length,
      seen.placeKey,
      scale,
      ratio,
      ink.rule,
      emulated,
      [...gone],
    ].join();
    if (ways.key === key) return ways.canvas;
    ways.key = key;
    drawWays(
      this.stage.paper(ways.canvas, seen.left, seen.height),
      ink,
      seen.place,
      seen.reading,
      scale,
      seen.emulated,
      gone,
    );
    return ways.canvas;
  }

  /** @param {Look} look @param {Prepared} seen */
  #drawMatrix(look, seen) {
    const { ink, ratio, choice, call } = look;
    const { grid, reading, frame, states, t, tall, ranks, poison } = seen;
    const g = this.stage.paper(this.matrix, seen.right, tall);
    if (reading && frame) {
      const layer = this.cells.update(look, grid, reading, states, t, tall, poison);
      g.drawImage(layer, 0, 0, layer.width / ratio, layer.height / ratio);
      drawArriving(g, ink, grid, reading, frame);
      drawCounters(g, look, grid, reading, t, seen.text.t);
      const row = reading.holdings.place.get(choice?.rank ?? -1);
      const column = reading.holdings.chunks.indexOf(choice?.chunk ?? -1);
      if (row !== undefined && column >= 0 && (choice?.op === undefined || choice.op === call?.op))
        drawChosenCell(g, ink, grid, row, column);
      if (this.pointer.cursor.row >= 0)
        drawChosenCell(
          g,
          ink,
          grid,
          Math.min(this.pointer.cursor.row, grid.rows - 1),
          Math.min(this.pointer.cursor.column, grid.columns - 1),
        );
    } else
      for (let row = 0; row < grid.rows; row++) {
        for (let column = 0; column < grid.columns; column++) {
          // the places are there before anything happens
          const { x, y, w, h } = cellBox(grid, row, column);
          g.fillStyle = ink.track;
          g.fillRect(x, y, w, h);
        }
      }
    drawFrame(g, look, grid, reading);
    if (reading)
      drawEndedRows(
        g,
        look,
        grid,
        ranks
          .filter((s) => s.ended && reading.holdings.place.has(s.rank))
          .map((s) => [reading.holdings.place.get(s.rank) ?? 0, s.rank]),
      );
  }

  // ---- words

  /** @param {Look} look */
  say(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#prepared(look)); // of this moment, as the canvas
    const { reading, frame, t, place } = seen;
    const rest = this.body.offsetHeight - this.ring.offsetHeight;
    // how long they have waited is part of the picture, and it fills what the words leave
    if (seen.stuck.size || rest !== this.rest) this.stage.dirty = true;
    this.rest = rest;
    const put = (/** @type {Element} */ node, /** @type {string} */ text) =>
      node.textContent !== text && (node.textContent = text);
    this.count.say(look.known);
    put(
      this.head,
      reading?.call.collective === "p2p" ? "Where the messages are" : "Where the chunks are",
    );
    const lines = reading ? lastMoments(reading, t, LINES) : [];
    [...this.story.children].forEach((item, i) => {
      const [when, what] = lines[i - LINES + lines.length] ?? ["", ""];
      item.classList.toggle("newest", i === LINES - 1);
      put(item.children[0], when);
      put(item.children[1], what);
    });
    const waits =
      labelled(place) || this.pairs
        ? []
        : longestWaits(seen).map((w) => `rank ${w.rank} waits ${duration(t - w.start)}`);
    put(this.fact, [this.below, waits.join(", ")].filter(Boolean).join(" · "));
    // the table takes the room of the ring with its words: what is below stays where it is
    if (!this.pairs) this.fact.classList.toggle("wb-co-below", !!this.below || !labelled(place));
    this.keys[0].show(this.pairs ? pairKeys(look, seen) : spaceKeys(look, seen), look);
    this.keys[1].show(contentKeys(look, seen), look);
    this.ring.setAttribute(
      "aria-label",
      this.pairs && reading
        ? spokenPairs(reading, t)
        : reading && frame
          ? spokenFrame(reading, frame)
          : "The ring of ranks; nothing moves yet",
    );
    this.matrix.setAttribute(
      "aria-label",
      reading ? this.#spokenMatrix(seen) : "What each rank holds of each chunk; nothing yet",
    );
    this.pointer.pointed.say();
  }

  /** @param {Prepared} seen */
  #spokenMatrix({ reading, states, t }) {
    if (!reading) return "";
    const { holdings } = reading;
    const { ranks, chunks, whole, slots } = holdings;
    const rows = ranks.map((rank, row) => {
      const done = chunks.filter((_, c) => whole[states[row * chunks.length + c]] === slots[c]);
      return (
        `rank ${rank} has ${done.length} of ${chunks.length} chunks complete, ` +
        `${counterWords(reading, row, t)[0].replace(/^rank \d+: /, "")}`
      );
    });
    return `${rows.join("; ")}. Arrow keys go from cell to cell.`;
  }

  /** @param {Look} look */
  title(look) {
    const { call, known } = look;
    return !call && stuckNow(look).size
      ? "Who waits for whom"
      : call
        ? titleOf(call) + amongWords(look)
        : known.run?.title || "Collectives";
  }

  /** @param {Look} look */
  sentence(look) {
    const { call, known } = look;
    const t = call ? Math.max(0, look.t - call.start) : 0;
    const stuck = known.state === "failed" ? "" : stuckWords(stuckNow(look), look);
    return (
      stuck || collectiveSentence(look, call && readingOf(call, known), call && frameAt(call, t))
    );
  }

  /** @param {Look} look */
  marks(look) {
    const { call } = look;
    if (!call) return [];
    const { marks } = this.#prepared(look);
    const { generation, group, op } = call;
    return marks.map((m) => ({
      rank: m.from,
      peer: m.to,
      generation,
      group,
      op,
      step: m.step,
      chunk: m.chunk,
      slot: m.slot,
      share: m.share,
      x: m.x,
      y: m.y,
    }));
  }

  /** What stands still: links, and the rows and cells of what each rank holds. @param {Look} look */
  places(look) {
    const { reading, grid, states, right, place } = this.#prepared(look);
    if (!reading) return [];
    const { ranks, chunks, whole, slots } = reading.holdings;
    const over = this.matrix;
    const { nodes, node } = place;
    const links = place.links.map(([rank, peer]) => {
      const [x, y] = [
        Math.min(nodes[rank].x, nodes[peer].x),
        Math.min(nodes[rank].y, nodes[peer].y),
      ];
      const [w, h] = [
        Math.abs(nodes[rank].x - nodes[peer].x),
        Math.abs(nodes[rank].y - nodes[peer].y),
      ];
      const box = { x: x - node, y: y - node, w: w + 2 * node, h: h + 2 * node };
      return { mark: "link", rank, peer, over: this.ring, ...box };
    });
    const rows = ranks.flatMap((rank, row) => [
      { mark: "row", rank, over, x: 0, y: grid.top + row * grid.rh, w: right, h: grid.rh },
      ...chunks.map((chunk, column) => {
        const complete = whole[states[row * chunks.length + column]] === slots[column];
        return { mark: "cell", rank, chunk, complete, over, ...cellBox(grid, row, column) };
      }),
    ]);
    return [...links, ...rows];
  }

  end() {
    this.pointer.pointed.place = null;
  }
}

/** Whose call it is, where it is not everybody's. @param {Look} look */
function amongWords({ call, known, ranks }) {
  const members = call ? readingOf(call, known).holdings.ranks : [];
  return members.length && members.length < ranks && call?.collective !== "p2p"
    ? ` among ${ranksOf(members)}`
    : "";
}

/** @type {import("../../chrome/scene_host.js").SceneModule} */
export const collectivesScene = {
  calls: true,
  offered: (known) => !onlyOperations(known), // there is no chunk to be seen
  build: (body, stage) => new CollectivesView(body, stage),
};

// @ts-check
/**
 * The parameter server: workers on a track before the wall that the consistency rule is, pushes and
 * pulls on their way, shards with what waits there; beside it the clocks, how stale gradients were,
 * and where the time went.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("./draw.js").ServerSeen} ServerSeen
 */
import { KeyRow } from "../../drawing/key_row.js";
import {
  NAMED_WORKERS,
  chartHeight,
  drawStairs,
  drawStaleness,
  stairsWords,
  stalenessOf,
} from "./charts.js";
import { drawShares, sharesUntil, sharesWords } from "./shares_chart.js";
import { drawServer } from "./draw.js";
import { aheadOf, serverPlace, wayPoint } from "./place.js";
import { roundsOf } from "./call_source.js";
import { boundOf, ruleOf, serverFrame } from "./frame.js";
import { recoveryFacts } from "../../engine/generations.js";
import { countUntil } from "../../engine/search.js";
import { befellNow } from "./befell.js";
import { serverKeys } from "./legend.js";
import { serverMarks } from "./marks.js";
import { ServerPointer } from "./pointer.js";
import { drawServerScore } from "./score.js";
import { lastUpdates, ruleWords, serverSentence, spokenServer } from "./captions.js";
import { serverMeaning } from "./meaning.js";
import { scoreHeight } from "../../drawing/lanes.js";

const UPDATES = 2; // lines of what happened last

const SERVER_BODY = `<div class="wb-ps-picture"><canvas class="wb-ps" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Workers and shards"></div></div>
  <p class="wb-key"></p>
  <div class="wb-ps-charts">
    <section><h3><span>Clocks</span> <small>iterations started</small></h3><canvas class="wb-ps-stairs" role="img"></canvas></section>
    <section><h3>Staleness <small class="wb-ps-missed"></small></h3><canvas class="wb-ps-stale" role="img"></canvas></section>
    <section><h3>Where time went <small>up to the playhead; % blocked</small></h3><canvas class="wb-ps-shares" role="img"></canvas></section>
  </div>
  <ol class="wb-story wb-co-story" aria-label="The last updates up to the playhead"></ol><div class="wb-co-tip" hidden></div><p class="wb-sr" role="status"></p>`;

/**
 * Whether there is a parameter server in what is known.
 * @param {import("../../engine/player.js").Known} known
 */
export const serves = (known) =>
  known.run?.server || known.run?.strategy === "parameter_server" || roundsOf(known.table) !== null;

/** @param {import("./index.js").ServerIndex} index @param {Look} look */
const frameOfRun = (index, { known, t }) =>
  serverFrame(index, ruleOf(known), t, known.run?.iterations ?? -1, recoveryFacts(known.run));

const SERVER_NEXT = {
  title: "See workers and shards",
  what: "who holds which version, and who is stopped",
  failed: true,
};

class ServerView {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.body = body;
    this.stage = stage;
    body.innerHTML = SERVER_BODY;
    const $ = (/** @type {string} */ selector) => /** @type {any} */ (body.querySelector(selector));
    this.canvas = /** @type {HTMLCanvasElement} */ ($(".wb-ps"));
    this.stairs = /** @type {HTMLCanvasElement} */ ($(".wb-ps-stairs"));
    this.stale = /** @type {HTMLCanvasElement} */ ($(".wb-ps-stale"));
    this.missed = /** @type {HTMLElement} */ ($(".wb-ps-missed"));
    this.shares = /** @type {HTMLCanvasElement} */ ($(".wb-ps-shares"));
    this.story = /** @type {HTMLElement} */ ($(".wb-story"));
    this.keys = new KeyRow($(".wb-key"));
    this.story.append(
      ...Array.from({ length: UPDATES }, () =>
        Object.assign(document.createElement("li"), { innerHTML: "<span></span><em></em>" }),
      ),
    );
    this.seen = /** @type {ServerSeen | null} */ (null);
    this.pointer = new ServerPointer(body, stage, () => this.seen);
    this.charted = "";
    this.score = {
      height: (/** @type {Look} */ look) => scoreHeight(look.ranks),
      draw: (/** @type {CanvasRenderingContext2D} */ g, /** @type {Look} */ look) =>
        this.#drawScore(g, look),
    };
  }

  /**
   * What is on screen at this look; null while nothing has been pushed.
   * @param {Look} look
   * @returns {ServerSeen | null}
   */
  #see(look) {
    const rounds = roundsOf(look.table);
    const rule = ruleOf(look.known);
    if (!rounds || !rounds.index.pairs.size || !(look.width > 0)) return null;
    const { index } = rounds;
    const frame = frameOfRun(index, look);
    const ahead = aheadOf(rule, frame, rounds.lead(look.t));
    const place = serverPlace(
      look.width,
      frame.workers.length,
      frame.shards.map((s) => s.share),
      ahead,
      look.known.run?.iterations,
    );
    const at = (/** @type {number} */ rank, /** @type {{rank: number}[]} */ all) =>
      all.findIndex((one) => one.rank === rank);
    const comets = frame.comets.map((c) => ({
      ...c,
      ...(c.kind === "push"
        ? wayPoint(place, at(c.from, frame.workers), at(c.to, frame.shards), c.share)
        : wayPoint(place, at(c.to, frame.workers), at(c.from, frame.shards), 1 - c.share)),
    }));
    return { place, frame, index, rule, comets, befell: befellNow(look, frame) };
  }

  // ---- drawing

  /** @param {Look} look */
  draw(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look));
    const rule = ruleOf(look.known);
    if (seen) {
      drawServer(this.stage.paper(this.canvas, look.width, seen.place.height), look, seen);
      this.pointer.placeSpots(seen);
      return;
    }
    const ranks = look.known.run?.ranks ?? 0;
    const servers = Math.max(1, rule.servers);
    const place = serverPlace(
      look.width,
      Math.max(1, ranks - servers),
      Array.from({ length: servers }, () => 1 / servers),
      Math.min(12, (rule.high ?? 3) + 1),
    );
    // the places are there before anything happens
    const g = this.stage.paper(this.canvas, look.width, place.height);
    g.fillStyle = look.ink.track;
    for (let i = 0; i < ranks - servers; i++)
      g.fillRect(place.left, place.top + (i + 0.5) * place.lane - 1, place.right - place.left, 2);
    for (const { x, y, w, h } of place.bins) g.fillRect(x, y, w, h);
  }

  /** @param {CanvasRenderingContext2D} g @param {Look} look */
  #drawScore(g, look) {
    const rounds = roundsOf(look.table);
    if (rounds)
      drawServerScore(
        g,
        look,
        rounds.index,
        boundOf(ruleOf(look.known), look.known.run?.iterations ?? -1),
      );
  }

  /** The charts, at the pace of the texts. @param {Look} look @param {ServerSeen} seen */
  #drawCharts(look, { index, rule, frame }) {
    const { ink, font, ratio, known, choice, t } = look;
    const rounds = roundsOf(look.table);
    const iterations = known.run?.iterations ?? -1;
    const height = chartHeight(frame.workers.length);
    const key = [
      index.version,
      t,
      look.width,
      ratio,
      ink.ground,
      ink.wait,
      choice?.rank,
      iterations,
    ].join();
    if (key === this.charted || !rounds) return;
    this.charted = key;
    const chart = (/** @type {HTMLCanvasElement} */ canvas) => {
      const width = canvas.clientWidth || 300;
      return { g: this.stage.paper(canvas, width, height), ink, font, ratio, width, height };
    };
    const shares = sharesUntil(index, t, boundOf(rule, iterations));
    const stale = stalenessOf(index, t);
    drawStairs(chart(this.stairs), index, rounds, rule, t, choice?.rank ?? -1);
    this.missed.textContent = `updates that a ${frame.pushes} had missed`;
    drawStaleness(chart(this.stale), stale, rule);
    drawShares(chart(this.shares), shares);
    this.stairs.setAttribute("aria-label", stairsWords(index, t));
    this.stale.setAttribute(
      "aria-label",
      stale.n
        ? `${frame.pushes}s had missed ${stale.mean.toFixed(1)} updates on ` +
            `average${stale.stalest ? `, those of worker ${stale.stalest.rank} ${stale.stalest.mean.toFixed(1)}` : ""}`
        : "no update yet",
    );
    this.shares.setAttribute("aria-label", sharesWords(shares));
  }

  // ---- words

  /** @param {Look} look */
  say(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look));
    const put = (/** @type {Element} */ node, /** @type {string} */ text) =>
      node.textContent !== text && (node.textContent = text);
    // many workers take the room; what happened stands beside them
    const many = (seen?.frame.workers.length ?? 0) > NAMED_WORKERS;
    this.story.hidden = many && this.stage.root.classList.contains("wide");
    const lines = seen ? lastUpdates(seen.index, look.t, UPDATES, seen.frame) : [];
    [...this.story.children].forEach((item, i) => {
      const [when, what] = lines[i - UPDATES + lines.length] ?? ["", ""];
      item.classList.toggle("newest", i === UPDATES - 1);
      put(item.children[0], when);
      put(item.children[1], what);
    });
    put(
      /** @type {Element} */ (this.body.querySelector("h3 span")),
      ruleOf(look.known).low === null || ruleOf(look.known).models > 1
        ? "Clocks"
        : "Clocks climb inside the band",
    );
    if (seen) {
      this.keys.show(serverKeys(look, seen, seen.rule.drop_above !== null), look);
      this.#drawCharts(look, seen);
    }
    this.canvas.setAttribute(
      "aria-label",
      seen ? spokenServer(seen.frame) : "Workers and shards; nothing moves yet",
    );
    this.pointer.pointed.say();
  }

  /** @param {Look} look */
  title({ known }) {
    return [known.run?.title || "Parameter server", ruleWords(ruleOf(known))]
      .filter(Boolean)
      .join(" · ");
  }

  /** @param {Look} look */
  sentence(look) {
    const rounds = roundsOf(look.table);
    const rule = ruleOf(look.known);
    const frame = rounds?.index.pairs.size ? frameOfRun(rounds.index, look) : null;
    return serverSentence(look.known, frame, rule, look.live || look.t >= look.table.to - 1);
  }

  /** @param {Look} look */
  badges({ known }) {
    const { words } = ruleOf(known);
    return words ? [words] : [];
  }

  /** @param {Look} look */
  marks(look) {
    const seen = this.#see(look);
    return seen ? serverMarks(look, seen) : [];
  }

  /**
   * The next message that arrives, update, or round.
   * @param {Look} look
   * @param {string} unit
   * @param {number} way
   */
  step(look, unit, way) {
    const rounds = roundsOf(look.table);
    if (!rounds || unit === "chunk") return null;
    const times =
      unit === "iteration"
        ? rounds.calls.map((round) => round.start)
        : [...rounds.index.servers.values()]
            .flatMap(({ done }) => {
              const at = countUntil(done, look.t, (push) => push.end);
              return done.slice(Math.max(0, at - 3), at + 3).map((push) => push.end);
            })
            .sort((a, b) => a - b);
    return (
      (way > 0 ? times.find((v) => v > look.t + 0.5) : times.findLast((v) => v < look.t - 0.5)) ??
      look.t
    );
  }

  end() {
    this.pointer.pointed.place = null;
  }
}

/** @type {import("../../chrome/scene_host.js").SceneModule} */
export const serverScene = {
  offered: serves,
  source: ({ table }) => roundsOf(table),
  tellsRun: true,
  meaning: serverMeaning,
  lookNext: (known) => (serves(known) ? SERVER_NEXT : null),
  build: (body, stage) => new ServerView(body, stage),
};

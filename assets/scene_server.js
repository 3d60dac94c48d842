// @ts-check
/**
 * The parameter server: workers on a track before the wall that the consistency rule is, pushes and pulls on their way,
 * shards with what waits there; beside it the clocks, how stale gradients were, and where the time went.
 *
 * @typedef {import("./stage.js").Look} Look
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("./server_draw.js").ServerSeen} ServerSeen
 * @typedef {{x: number, y: number} | null} Pointed
 */
import { KeyRow } from "./collective_keys.js";
import { chartHeight, drawShares, drawStairs, drawStaleness, sharesUntil, sharesWords, stairsWords, stalenessOf } from "./server_charts.js";
import { drawServer } from "./server_draw.js";
import { takeRank } from "./hands.js";
import { aheadOf, columnX, serverPlace, underServer, wayPoint, workerSpot } from "./server_place.js";
import { roundsOf } from "./server_rounds.js";
import { boundOf, ruleOf, serverFrame } from "./server_frame.js";
import { countUntil } from "./server_index.js";
import { serverKeys } from "./server_keys.js";
import { drawServerScore } from "./server_score.js";
import { cometWords, lastUpdates, logWords, ruleWords, serverSentence, shardWords, spokenServer, versionsAt, workerWords } from "./tell_server.js";
import { scoreHeight } from "./lanes.js";
import { pointOn, showTip, walkWithArrows } from "./tip.js";

const UPDATES = 2; // lines of what happened last

const SERVER_BODY = `<div class="wb-ps-picture"><canvas class="wb-ps" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Workers and shards"></div></div>
  <p class="wb-key"></p>
  <div class="wb-ps-charts">
    <section><h3><span>Clocks</span> <small>iterations started</small></h3><canvas class="wb-ps-stairs" role="img"></canvas></section>
    <section><h3>Staleness <small>updates that a gradient had missed</small></h3><canvas class="wb-ps-stale" role="img"></canvas></section>
    <section><h3>Where time went <small>up to the playhead</small></h3><canvas class="wb-ps-shares" role="img"></canvas></section>
  </div>
  <ol class="wb-story wb-co-story" aria-label="The last updates up to the playhead"></ol><div class="wb-co-tip" hidden></div><p class="wb-sr" role="status"></p>`;

/** Whether there is a parameter server in what is known. @param {import("./player.js").Known} known */
export const serves = (known) => known.run?.strategy === "parameter_server" || roundsOf(known.table) !== null;

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
    this.shares = /** @type {HTMLCanvasElement} */ ($(".wb-ps-shares"));
    this.spots = /** @type {HTMLElement} */ ($(".wb-co-spots"));
    this.story = /** @type {HTMLElement} */ ($(".wb-story"));
    this.tip = /** @type {HTMLElement} */ ($(".wb-co-tip"));
    this.heard = /** @type {HTMLElement} */ ($(".wb-sr"));
    this.keys = new KeyRow($(".wb-key"));
    this.story.append(...Array.from({ length: UPDATES }, () => Object.assign(document.createElement("li"), { innerHTML: "<span></span><em></em>" })));
    this.seen = /** @type {ServerSeen | null} */ (null);
    this.pointed = /** @type {Pointed} */ (null);
    this.charted = "";
    this.score = { height: (/** @type {Look} */ look) => scoreHeight(look.ranks), draw: (/** @type {CanvasRenderingContext2D} */ g, /** @type {Look} */ look) => this.#drawScore(g, look) };
    this.#listen();
  }

  /** What is on screen at this look; null while nothing has been pushed. @param {Look} look @returns {ServerSeen | null} */
  #see(look) {
    const rounds = roundsOf(look.table), rule = ruleOf(look.known);
    if (!rounds || !rounds.index.pairs.size || !(look.width > 0)) return null;
    const { index } = rounds, frame = serverFrame(index, rule, look.t, look.known.run?.iterations ?? -1), ahead = aheadOf(rule, frame, rounds.lead(look.t));
    const place = serverPlace(look.width, frame.workers.length, frame.shards.map((s) => s.share), ahead);
    const at = (/** @type {number} */ rank, /** @type {{rank: number}[]} */ all) => all.findIndex((one) => one.rank === rank);
    const comets = frame.comets.map((c) => ({ ...c, ...(c.kind === "push" ? wayPoint(place, at(c.from, frame.workers), at(c.to, frame.shards), c.share) : wayPoint(place, at(c.to, frame.workers), at(c.from, frame.shards), 1 - c.share)) }));
    return { place, frame, index, rule, comets, befell: befellNow(look, frame) };
  }

  // ---- drawing

  /** @param {Look} look */
  draw(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look)), rule = ruleOf(look.known);
    if (seen) {
      drawServer(this.stage.paper(this.canvas, look.width, seen.place.height), look, seen);
      this.#placeSpots(seen);
      return;
    }
    const ranks = look.known.run?.ranks ?? 0, servers = Math.max(1, rule.servers), place = serverPlace(look.width, Math.max(1, ranks - servers), Array.from({ length: servers }, () => 1 / servers), Math.min(12, (rule.high ?? 3) + 1));
    const g = this.stage.paper(this.canvas, look.width, place.height); // the places are there before anything happens
    g.fillStyle = look.ink.track;
    for (let i = 0; i < ranks - servers; i++) g.fillRect(place.left, place.top + (i + 0.5) * place.lane - 1, place.right - place.left, 2);
    for (const { x, y, w, h } of place.bins) g.fillRect(x, y, w, h);
  }

  /** @param {CanvasRenderingContext2D} g @param {Look} look */
  #drawScore(g, look) {
    const rounds = roundsOf(look.table);
    if (rounds) drawServerScore(g, look, rounds.index, boundOf(ruleOf(look.known), look.known.run?.iterations ?? -1));
  }

  /** The charts, at the pace of the texts. @param {Look} look @param {ServerSeen} seen */
  #drawCharts(look, { index, rule, frame }) {
    const { ink, font, ratio, known, choice, t } = look, rounds = roundsOf(look.table), iterations = known.run?.iterations ?? -1, height = chartHeight(frame.workers.length);
    const key = [index.version, t, look.width, ratio, ink.ground, ink.wait, choice?.rank, iterations].join();
    if (key === this.charted || !rounds) return;
    this.charted = key;
    const chart = (/** @type {HTMLCanvasElement} */ canvas) => {
      const width = canvas.clientWidth || 300;
      return { g: this.stage.paper(canvas, width, height), ink, font, ratio, width, height };
    };
    const shares = sharesUntil(index, t, boundOf(rule, iterations)), stale = stalenessOf(index, t);
    drawStairs(chart(this.stairs), index, rounds, rule, t, choice?.rank ?? -1);
    drawStaleness(chart(this.stale), stale, rule);
    drawShares(chart(this.shares), shares);
    this.stairs.setAttribute("aria-label", stairsWords(index, t));
    this.stale.setAttribute("aria-label", stale.n ? `gradients had missed ${stale.mean.toFixed(1)} updates on average${stale.stalest ? `, those of worker ${stale.stalest.rank} ${stale.stalest.mean.toFixed(1)}` : ""}` : "no update yet");
    this.shares.setAttribute("aria-label", sharesWords(shares));
  }

  /** Buttons over workers and shards, for who has no pointer; arrows go from one to the next. @param {ServerSeen} seen */
  #placeSpots({ place, frame }) {
    const key = place.key + frame.workers.map((w) => w.rank).join();
    if (this.spots.dataset.key === key) return;
    this.spots.dataset.key = key;
    const spot = (/** @type {number} */ rank, /** @type {string} */ name, /** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ w, /** @type {number} */ h) => {
      const button = document.createElement("button");
      Object.assign(button.style, { left: `${x}px`, top: `${y}px`, width: `${w}px`, height: `${h}px` });
      button.dataset.rank = String(rank);
      button.setAttribute("aria-label", name);
      button.onclick = () => {
        const at = button.getBoundingClientRect();
        this.#take(rank, at.left + Math.min(w, 120), at.top + h / 2);
      };
      button.onfocus = () => {
        this.#point({ x: x + w / 2, y: y + h / 2 });
        this.heard.textContent = this.tip.textContent;
      };
      button.onblur = () => this.#point(null);
      return button;
    };
    this.spots.replaceChildren(...frame.workers.map((w, i) => spot(w.rank, `worker ${w.rank}`, 0, place.top + i * place.lane, place.left - 4, place.lane)),
      ...frame.shards.map((s, k) => spot(s.rank, `shard ${s.rank}`, place.bins[k].x, place.bins[k].y, place.bins[k].w, place.bins[k].h)));
  }

  // ---- words

  /** @param {Look} look */
  say(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look)), put = (/** @type {Element} */ node, /** @type {string} */ text) => node.textContent !== text && (node.textContent = text);
    const lines = seen ? lastUpdates(seen.index, look.t, UPDATES) : [];
    [...this.story.children].forEach((item, i) => {
      const [when, what] = lines[i - UPDATES + lines.length] ?? ["", ""];
      item.classList.toggle("newest", i === UPDATES - 1);
      put(item.children[0], when);
      put(item.children[1], what);
    });
    put(/** @type {Element} */ (this.body.querySelector("h3 span")), ruleOf(look.known).low === null || ruleOf(look.known).models > 1 ? "Clocks" : "Clocks climb inside the band");
    if (seen) {
      this.keys.show(serverKeys(look, seen, seen.rule.drop_above !== null), look);
      this.#drawCharts(look, seen);
    }
    this.canvas.setAttribute("aria-label", seen ? spokenServer(seen.frame) : "Workers and shards; nothing moves yet");
    this.#tell();
  }

  /** @param {Look} look */
  title({ known }) {
    return [known.run?.title || "Parameter server", ruleWords(ruleOf(known))].filter(Boolean).join(" · ");
  }

  /** @param {Look} look */
  sentence(look) {
    const rounds = roundsOf(look.table), rule = ruleOf(look.known), frame = rounds?.index.pairs.size ? serverFrame(rounds.index, rule, look.t, look.known.run?.iterations ?? -1) : null;
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
    if (!seen) return [];
    const { place, frame } = seen, playhead = look.t + look.known.origin, marks = /** @type {any[]} */ ([]);
    frame.workers.forEach((w, i) => {
      const { x, y } = workerSpot(place, i, w, frame.min);
      marks.push({ mark: "worker", rank: w.rank, iteration: w.iteration, doing: w.doing, version: w.held[0], versions: w.held, behind: w.behind, limit: w.limit, x, y });
      if (w.limit !== null) marks.push({ mark: "wall", rank: w.rank, iteration: w.limit, x: columnX(place, w.limit + 1, frame.min), y });
    });
    frame.shards.forEach((s, k) => marks.push({ mark: "shard", rank: s.rank, version: s.version, queue: s.queue.map((p) => p.worker), applying: s.applying.map((p) => p.worker), share: s.share, x: place.bins[k].x, y: place.bins[k].y }));
    for (const c of seen.comets) marks.push({ mark: "comet", rank: c.from, peer: c.to, kind: c.kind, group: "default", op: c.op, iteration: c.iteration, version: c.version, share: c.share, x: c.x, y: c.y, playhead });
    return marks;
  }

  /** The next message that arrives, update, or round. @param {Look} look @param {string} unit @param {number} way */
  step(look, unit, way) {
    const rounds = roundsOf(look.table);
    if (!rounds || unit === "chunk") return null;
    const times = unit === "iteration" ? rounds.calls.map((round) => round.start) : [...rounds.index.servers.values()].flatMap(({ done }) => {
      const at = countUntil(done, look.t, (push) => push.end);
      return done.slice(Math.max(0, at - 3), at + 3).map((push) => push.end);
    }).sort((a, b) => a - b);
    return (way > 0 ? times.find((v) => v > look.t + 0.5) : times.findLast((v) => v < look.t - 0.5)) ?? look.t;
  }

  // ---- under the pointer, or the keyboard

  #listen() {
    const { canvas, spots } = this;
    pointOn(canvas, this.stage.root, (place) => this.#point(place));
    canvas.onclick = (event) => {
      const hit = /** @type {any} */ (this.#under(event.offsetX, event.offsetY)), frame = this.seen?.frame;
      if (!hit || !frame) return this.stage.choose(null);
      if (hit.comet) return this.stage.choose({ rank: hit.comet.from, peer: hit.comet.to, op: hit.comet.op, group: "default", iteration: hit.comet.iteration });
      this.#take("shard" in hit ? frame.shards[hit.shard].rank : frame.workers[hit.worker].rank, event.clientX, event.clientY);
    };
    walkWithArrows(spots);
  }

  /** Choose a worker or a shard: everything is then shown as seen from it. Once more: what can be done to it. @param {number} rank @param {number} x @param {number} y */
  #take(rank, x, y) {
    takeRank(this.stage, rank, x, y, () => this.#point(null));
  }

  /** @param {Pointed} pointed */
  #point(pointed) {
    this.pointed = pointed;
    this.#tell();
  }

  /** @param {number} x @param {number} y */
  #under(x, y) {
    return this.seen ? underServer(this.seen.place, this.seen.frame.workers.length, this.seen.comets, x, y) : null;
  }

  #tell() {
    const { pointed, tip } = this, lines = pointed ? this.#linesUnder(pointed.x, pointed.y) : [];
    this.canvas.style.cursor = lines.length ? "pointer" : "default";
    showTip(tip, this.body, this.canvas, pointed, lines);
  }

  /** @param {number} x @param {number} y @returns {string[]} */
  #linesUnder(x, y) {
    const { seen } = this, hit = /** @type {any} */ (this.#under(x, y));
    if (!seen) return [];
    const { frame, index, rule, place, befell } = seen;
    if (!hit) return y < place.top && x > place.left ? versionsAt(frame) : [];
    if (hit.comet) return cometWords(hit.comet);
    if ("shard" in hit) return [...shardWords(frame, hit.shard, index), "once more: freeze it, slow it, kill it"].slice(0, this.stage.choice?.rank === frame.shards[hit.shard].rank ? undefined : -1);
    const worker = frame.workers[hit.worker], spot = workerSpot(place, hit.worker, worker, frame.min), near = Math.hypot(spot.x - x, spot.y - y) <= place.ring + 2;
    const log = x > place.left && !near ? logWords(index, worker.rank, frame.min + hit.column, frame.t) : [];
    return log.length ? log : workerWords(frame, hit.worker, rule, befell.get(worker.rank)?.words ?? "");
  }

  end() {
    this.pointed = null;
  }
}

/** What befell ranks; what is done to them now is shown where the picture is now. @param {Look} look @param {import("./server_frame.js").ServerFrame} frame */
function befellNow({ known, live, t, table }, frame) {
  const { control } = known, now = live || t >= table.to - 1, befell = /** @type {Map<number, {words: string, colour: string}>} */ (new Map());
  for (const [rank, factor] of Object.entries(control?.slow ?? {})) if (factor !== 1) befell.set(Number(rank), { words: `slowed ×${factor}`, colour: "hold" });
  if (now) for (const rank of control?.frozen ?? []) befell.set(rank, { words: "frozen", colour: "hold" });
  for (const w of frame.workers) if (w.doing === "lost") befell.set(w.rank, { words: "gone", colour: "fault" });
  if (now) for (const [rank, how] of Object.entries(control?.ended ?? {})) if (how && how !== "ended") befell.set(Number(rank), { words: /kill/.test(how) ? "killed" : "ended", colour: "fault" });
  return befell;
}

/** @type {import("./stage.js").Scene} */
export const serverScene = { name: "server", label: "Parameter server", key: "4", offered: serves, build: (body, stage) => new ServerView(body, stage) };

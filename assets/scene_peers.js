// @ts-check
/**
 * Replicas that differ and mix: who mixes with whom, what is on its way, how far each is from the mean of all; beside it how
 * that went, iteration by iteration, and what each rank has sent for it.
 *
 * @typedef {import("./stage.js").Look} Look
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("./peers_draw.js").PeersSeen} PeersSeen
 * @typedef {{x: number, y: number} | null} Pointed
 */
import { KeyRow } from "./collective_keys.js";
import { doingAt, forLong, lostRanks } from "./doing.js";
import { takeRank } from "./hands.js";
import { scoreHeight } from "./lanes.js";
import { drawSent, drawSpread, sentOf, sentWords, spreadAtX, spreadAxes } from "./peers_charts.js";
import { drawPeers } from "./peers_draw.js";
import { peersFrame } from "./peers_frame.js";
import { mixedIn, mixes, peersIndexOf } from "./peers_index.js";
import { peersKeys, spreadKeys } from "./peers_keys.js";
import { barAt, flownSpot, peersPlace, underPeers } from "./peers_place.js";
import { mixingsOf } from "./peers_rounds.js";
import { nowOf } from "./player.js";
import { drawPeersScore } from "./peers_score.js";
import { countUntil } from "./server_index.js";
import { factWords, lastMixed, peerCometWords, peerLinkWords, peerWords, peersSentence, spokenPeers } from "./tell_peers.js";
import { pointOn, showTip, walkWithArrows } from "./tip.js";
import { standsForMessages } from "./waits.js";

const MOMENTS = 2; // lines of what happened last
const SPREAD_HIGH = 232;

const PEERS_BODY = `<div class="wb-pe-grid">
  <div><h3>Who mixes with whom <small>and how far each is from the mean</small></h3><div class="wb-pe-picture"><canvas class="wb-pe" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Ranks"></div></div></div>
  <div><section><h3>Disagreement <small class="wb-pe-of"></small></h3><canvas class="wb-pe-spread" role="img"></canvas><p class="wb-key"></p></section>
    <section><h3>Sent by each rank <small class="wb-pe-bound"></small></h3><canvas class="wb-pe-sent" role="img"></canvas></section></div></div>
  <p class="wb-key wb-pe-key"></p><p class="wb-co-fact wb-pe-fact"></p>
  <ol class="wb-story wb-co-story" aria-label="The last moments up to the playhead"></ol><div class="wb-co-tip" hidden></div><p class="wb-sr" role="status"></p>`;

class PeersView {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.body = body;
    this.stage = stage;
    body.innerHTML = PEERS_BODY;
    const $ = (/** @type {string} */ selector) => /** @type {any} */ (body.querySelector(selector));
    this.canvas = /** @type {HTMLCanvasElement} */ ($(".wb-pe"));
    this.spread = /** @type {HTMLCanvasElement} */ ($(".wb-pe-spread"));
    this.sent = /** @type {HTMLCanvasElement} */ ($(".wb-pe-sent"));
    this.grid = /** @type {HTMLElement} */ ($(".wb-pe-grid"));
    this.spots = /** @type {HTMLElement} */ ($(".wb-co-spots"));
    this.fact = /** @type {HTMLElement} */ ($(".wb-pe-fact"));
    this.bound = /** @type {HTMLElement} */ ($(".wb-pe-bound"));
    this.story = /** @type {HTMLElement} */ ($(".wb-story"));
    this.tip = /** @type {HTMLElement} */ ($(".wb-co-tip"));
    this.heard = /** @type {HTMLElement} */ ($(".wb-sr"));
    this.keys = [new KeyRow($(".wb-pe-key")), new KeyRow($("section .wb-key"))];
    this.story.append(...Array.from({ length: MOMENTS }, () => Object.assign(document.createElement("li"), { innerHTML: "<span></span><em></em>" })));
    this.seen = /** @type {PeersSeen | null} */ (null);
    this.pointed = /** @type {Pointed} */ (null);
    this.charted = "";
    this.averaged = { key: "", all: /** @type {number[]} */ ([]) };
    this.score = { height: (/** @type {Look} */ look) => scoreHeight(look.ranks), draw: (/** @type {CanvasRenderingContext2D} */ g, /** @type {Look} */ look) => drawPeersScore(g, look) };
    this.#listen();
  }

  /** Width of the picture: beside the charts, or above them. @param {number} width */
  #width = (width) => (width >= 728 ? Math.round(width * 0.48) : width);

  /** What is on screen at this look. @param {Look} look @returns {PeersSeen} */
  #see(look) {
    const { known, table, ranks, t } = look, iterations = known.run?.iterations ?? -1, index = peersIndexOf(known), facts = known.run?.peers ?? null;
    const frame = peersFrame(index, facts, t, ranks, iterations), befell = peersBefell(look);
    const doings = doingAt(table, ranks, t, false, known.run).map((doing) => ({ ...doing, halo: false })).map((doing) => (frame.peers[doing.rank].lost ? { ...doing, mark: /** @type {const} */ ("killed"), waits: 0, words: "lost" } : befell.get(doing.rank) ?? (iterations > 0 && frame.peers[doing.rank].done >= iterations ? { ...doing, mark: /** @type {const} */ ("ended"), halo: false, waits: 0, words: "all done" } : doing)));
    const place = peersPlace(ranks, this.#width(look.width)), columns = place.width < look.width ? `${place.width}px minmax(0, 1fr)` : "minmax(0, 1fr)";
    if (this.grid.style.gridTemplateColumns !== columns) this.grid.style.gridTemplateColumns = columns; // before a chart asks how wide it is
    return { place, frame, index, facts, doings };
  }

  // ---- drawing

  /** @param {Look} look */
  draw(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look)), { place } = seen;
    drawPeers(this.stage.paper(this.canvas, place.width, place.height), look, seen);
    this.#placeSpots(seen);
  }

  /** The charts, at the pace of the texts. @param {Look} look @param {PeersSeen} seen */
  #drawCharts(look, { index, frame, facts }) {
    const { ink, font, ratio, known, choice, t, held } = look, iterations = known.run?.iterations ?? -1, chosen = choice?.rank ?? -1;
    const key = [index.version, t, look.width, ratio, ink.ground, ink.wait, chosen, iterations, held].join();
    if (key === this.charted) return;
    this.charted = key;
    const chart = (/** @type {HTMLCanvasElement} */ canvas, /** @type {number} */ height) => {
      const width = canvas.clientWidth || 300;
      return { g: this.stage.paper(canvas, width, height), ink, font, ratio, width, height };
    };
    const theory = known.run?.theory?.[`all_reduce/${known.run.algorithm}`] ?? known.run?.theory?.["all_reduce/ring"], sent = sentOf(index, frame, theory?.share ?? 0);
    drawSpread(chart(this.spread, SPREAD_HIGH), index, frame, facts, iterations, chosen, held, (facts?.every ?? 1) > 1 ? this.#averaged(look, index) : []);
    drawSent(chart(this.sent, frame.peers.length > 8 ? 128 : Math.max(34, 4 + 17 * frame.peers.length)), sent, chosen);
    this.bound.textContent = sent.some((one) => one.bound > 0) ? "hairline: with an all-reduce in every iteration" : "up to the playhead";
    this.spread.setAttribute("aria-label", frame.at ? `Root mean square of the distances from the mean, after iteration ${index.spreads[frame.at - 1].iteration + 1}: about ${index.spreads[frame.at - 1].rms.toPrecision(2)}` : "Disagreement: nothing yet");
    this.sent.setAttribute("aria-label", sentWords(sent));
  }

  /** Iterations in which replicas mixed: all took their mean, or sent each other something. @param {Look} look @param {import("./peers_index.js").PeersIndex} index */
  #averaged({ table }, index) {
    const key = `${table.life} ${table.calls.length} ${index.version}`;
    if (this.averaged.key !== key) this.averaged = { key, all: [...mixedIn(table, index)] };
    return this.averaged.all;
  }

  /** Buttons over ranks, for who has no pointer; arrows go from one to the next. @param {PeersSeen} seen */
  #placeSpots({ place }) {
    if (this.spots.dataset.key === place.key) return;
    this.spots.dataset.key = place.key;
    const r = place.circle.node + 4;
    this.spots.replaceChildren(...place.circle.nodes.map(({ x, y }, rank) => {
      const button = document.createElement("button");
      Object.assign(button.style, { left: `${x - r}px`, top: `${y - r}px`, width: `${2 * r}px`, height: `${2 * r}px` });
      button.dataset.rank = String(rank);
      button.setAttribute("aria-label", `rank ${rank}`);
      button.onclick = () => {
        const at = button.getBoundingClientRect();
        this.#take(rank, at.right, at.bottom);
      };
      button.onfocus = () => {
        this.#point({ x, y });
        this.heard.textContent = this.tip.textContent;
      };
      button.onblur = () => this.#point(null);
      return button;
    }));
  }

  // ---- words

  /** @param {Look} look */
  say(look) {
    if (!look.ink.ground || look.width <= 0) return;
    const seen = (this.seen = this.#see(look)), { frame, index, facts } = seen, put = (/** @type {Element} */ node, /** @type {string} */ text) => node.textContent !== text && (node.textContent = text);
    const lines = lastMixed(index, look.t, MOMENTS);
    [...this.story.children].forEach((item, i) => {
      const [when, what] = lines[i - MOMENTS + lines.length] ?? ["", ""];
      item.classList.toggle("newest", i === MOMENTS - 1);
      put(item.children[0], when);
      put(item.children[1], what);
    });
    put(/** @type {Element} */ (this.body.querySelector(".wb-pe-of")), facts?.synchronous === false ? "distance from the mean, when the slowest had done an iteration" : "distance from the mean of the replicas, by iteration");
    put(this.fact, factWords(frame, facts, index));
    this.keys[0].show(peersKeys(look, seen), look);
    this.keys[1].show(spreadKeys(look, seen, (facts?.every ?? 1) > 1), look);
    this.#drawCharts(look, seen);
    this.canvas.setAttribute("aria-label", spokenPeers(frame, facts));
    this.#tell();
  }

  /** @param {Look} look */
  title({ known }) {
    return known.run?.title || "Replicas that mix";
  }

  /** @param {Look} look */
  sentence(look) {
    const { frame, facts, doings, index } = this.#see(look);
    return peersSentence(look.known, index.found ? frame : null, facts, doings, look.live || look.t >= look.table.to - 1);
  }

  /** @param {Look} look */
  marks(look) {
    const { place, frame } = this.#see(look), playhead = look.t + look.known.origin, marks = /** @type {any[]} */ ([]);
    for (const p of frame.peers) {
      const [, end] = barAt(place, p.rank, 1);
      marks.push({ mark: "peer", rank: p.rank, iteration: frame.iteration, done: p.done, distance: p.distance, sent: p.sent, lost: p.lost, x: end.x, y: end.y });
    }
    for (const l of frame.links) marks.push({ mark: "link", rank: l.from, peer: l.to, nbytes: l.nbytes, planned: l.planned });
    for (const c of frame.comets) marks.push({ mark: "comet", rank: c.from, peer: c.to, op: c.op, iteration: c.iteration, message: c.message, nbytes: c.nbytes, share: c.share, ...flownSpot(place, c), playhead });
    return marks;
  }

  /** The next message that arrives, iteration that all have done, or mixing. @param {Look} look @param {string} unit @param {number} way */
  step(look, unit, way) {
    const mixings = mixingsOf(look.known);
    if (!mixings || unit === "chunk") return null;
    const { spreads } = peersIndexOf(look.known), at = countUntil(spreads, look.t, (one) => one.t);
    const times = unit === "iteration" ? mixings.calls.map((mixing) => mixing.start) : spreads.slice(Math.max(0, at - 3), at + 3).map((one) => one.t);
    return (way > 0 ? times.find((v) => v > look.t + 0.5) : times.findLast((v) => v < look.t - 0.5)) ?? look.t;
  }

  // ---- under the pointer, or the keyboard

  #listen() {
    const { canvas, spread, stage } = this;
    pointOn(canvas, this.stage.root, (place) => this.#point(place));
    canvas.onclick = (event) => {
      const hit = /** @type {any} */ (this.#under(event.offsetX, event.offsetY));
      if (!hit) return stage.choose(null);
      if (hit.comet) return stage.choose({ rank: hit.comet.from, peer: hit.comet.to, op: hit.comet.op, iteration: hit.comet.iteration });
      if (hit.link) return stage.choose({ rank: hit.link.from, peer: hit.link.to });
      this.#take(hit.rank, event.clientX, event.clientY);
    };
    spread.onclick = (event) => {
      const { known } = stage, { spreads } = peersIndexOf(known), axes = spreadAxes(spread.clientWidth, SPREAD_HIGH, known.run?.iterations ?? -1, spreads, known.run?.peers ?? null);
      const found = spreads[countUntil(spreads, spreadAtX(axes, event.offsetX), (one) => one.iteration) - 1];
      if (found) stage.goto(found.t);
    };
    walkWithArrows(this.spots);
  }

  /** Choose a rank; once more: what can be done to it. @param {number} rank @param {number} x @param {number} y */
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
    return this.seen ? underPeers(this.seen.place, this.seen.frame.comets, this.seen.frame.links, x, y) : null;
  }

  #tell() {
    const { pointed, tip } = this, lines = pointed ? this.#linesUnder(pointed.x, pointed.y) : [];
    this.canvas.style.cursor = lines.length ? "pointer" : "default";
    showTip(tip, this.body, this.canvas, pointed, lines);
  }

  /** @param {number} x @param {number} y @returns {string[]} */
  #linesUnder(x, y) {
    const { seen } = this, hit = /** @type {any} */ (this.#under(x, y));
    if (!seen || !hit) return [];
    const { frame, index, doings, facts } = seen;
    if (hit.comet) return peerCometWords(hit.comet, frame.t);
    if (hit.link) return peerLinkWords(frame, hit.link);
    const words = peerWords(frame, hit.rank, index, doings[hit.rank], facts, "");
    return this.stage.choice?.rank === hit.rank ? [...words, "once more: freeze it, slow it, kill it"] : words;
  }

  end() {
    this.pointed = null;
  }
}

/** Ranks to which something is done now, or that have waited for long and wait still, where the picture is now. @param {Look} look @returns {Map<number, import("./doing.js").Doing>} */
function peersBefell({ known, live, t, table, at }) {
  const { control, lanesNow } = known, now = live || t >= table.to - 1, befell = new Map();
  if (!now) return befell;
  for (const rank of new Set(lanesNow.map((lane) => lane.rank))) { // such a wait has no row yet
    const own = lanesNow.filter((lane) => lane.rank === rank), long = forLong(table, own, nowOf(known, at), standsForMessages(known.run, rank));
    if (long?.mark === "wait" && long.forWhom >= 0 && own.every((lane) => lane.lane !== "compute")) befell.set(rank, long);
  }
  const put = (/** @type {number} */ rank, /** @type {import("./doing.js").DoingMark} */ mark, /** @type {string} */ words) => befell.set(rank, { rank, mark, halo: false, words, waits: 0, forWhom: -1, long: true });
  for (const rank of control?.frozen ?? []) put(rank, "frozen", "frozen: its process is stopped");
  for (const [rank, how] of Object.entries(control?.ended ?? {})) if (how === "ended") put(Number(rank), "ended", how);
  for (const [rank, how] of lostRanks(known)) put(rank, "killed", how);
  return befell;
}

/** @type {import("./stage.js").Scene} */
export const peersScene = { name: "peers", label: "Peers", key: "7", offered: mixes, build: (body, stage) => new PeersView(body, stage) };

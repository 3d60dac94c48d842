// @ts-check
/**
 * What a newcomer sees first: how the run stands in one sentence, what each rank does, the loss, and where to look next.
 * Every place is there from the start, so that nothing moves from one state to the next.
 * @typedef {import("./stage.js").Look} Look
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("./doing.js").Doing} Doing
 * @typedef {import("./doing.js").DoingMark} DoingMark
 */
import { doingAt, doingNow } from "./doing.js";
import { handsBar, openHands } from "./hands.js";
import { allTold, drawLoss, iterationAtX, lossAxes, lossWords, lossesOf, trainers } from "./losses.js";
import { isOver, nowOf } from "./player.js";
import { MARKS, circleOf, drawCircle, markIcon, underCircle } from "./rank_circle.js";
import { serves } from "./scene_server.js";
import { bigButton, inCounts, lookNext, tellOverview, waysOn } from "./tell_overview.js";
import { servesExamples } from "./waits.js";
import { grouped, stateOf } from "./words.js";

const LISTED = 8; // ranks with a line of their own
const ANSWERED_MS = 6000; // how long a refusal stays

const OVERVIEW = `
  <div class="wb-ov-head"><span class="wb-ov-state"></span><p class="wb-ov-say"><span role="status"></span><small></small></p><button class="wb-ov-big"></button></div>
  <div class="wb-ov-grid">
    <section><h3>Ranks <small class="wb-ov-when"></small></h3><div class="wb-ov-ranks"><canvas class="wb-circle" role="img"></canvas><ul class="wb-ov-list"></ul></div></section>
    <section><h3>Loss <small class="wb-ov-iteration"></small></h3><canvas class="wb-loss" role="img"></canvas></section>
  </div>
  <p class="wb-key wb-ov-key"></p>
  <nav class="wb-ov-next" aria-label="Where to look next"><div><button></button><span></span></div><div><button></button><span></span></div><div><h4>Break something</h4><span></span><p></p></div></nav>`;

class Overview {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.body = body;
    this.stage = stage;
    body.innerHTML = OVERVIEW;
    this.doings = /** @type {Doing[]} */ ([]);
    this.marks = "";
    this.at = { shown: -1, newest: -1, here: -1 }; // iterations: whose loss is told, the run's newest, the one on show
    this.colour = "ink-2";
    this.answer = { words: "", at: -Infinity };
    this.drawn = { circle: "", loss: "", list: "" };
    this.links = { key: "", all: /** @type {Set<string>} */ (new Set()) };
    this.hands = handsBar(this.$(".wb-ov-next p"), stage);
    const key = this.$(".wb-ov-key");
    for (const mark of /** @type {DoingMark[]} */ (["compute", "move", "wait", "serve", "held", "frozen", "ended", "killed"])) {
      const item = key.appendChild(document.createElement("span"));
      item.append(markIcon(mark), MARKS[mark].words);
      item.hidden = mark === "serve"; // shown where ranks serve examples
      item.dataset.mark = mark;
    }
    key.appendChild(document.createElement("span")).append(markIcon("compute", true), "computes while a message waits");
    key.appendChild(document.createElement("span")).append(Object.assign(document.createElement("i"), { className: "link" }), "link made slower by us");
    this.#listen();
  }

  /** @param {string} selector @returns {any} */
  $(selector) {
    return this.body.querySelector(selector);
  }

  #listen() {
    const { stage } = this, [ring, time] = this.body.querySelectorAll(".wb-ov-next button"), circle = this.$(".wb-circle"), loss = this.$(".wb-loss");
    this.$(".wb-ov-big").onclick = () => this.#big();
    /** @type {HTMLElement} */ (ring).onclick = () => {
      if (stage.known.state === "failed") stage.goto(stage.known.table.to);
      stage.open(serves(stage.known) ? "server" : lookNext(stage.known.run).scene, true);
    };
    /** @type {HTMLElement} */ (time).onclick = () => stage.open("timeline", true);
    const under = (/** @type {PointerEvent | MouseEvent} */ event) => underCircle(circleOf(this.doings.length, this.size), this.links.all, event.offsetX, event.offsetY);
    circle.onpointermove = (/** @type {PointerEvent} */ event) => {
      const found = under(event);
      circle.title = !found ? "" : "rank" in found ? `rank ${found.rank} ${this.doings[found.rank]?.words}` : `link ${found.from} → ${found.to}`;
      circle.style.cursor = found ? "pointer" : "default";
    };
    circle.onclick = (/** @type {MouseEvent} */ event) => {
      const found = under(event);
      if (found) this.#take(found, event.clientX, event.clientY);
    };
    const iterationUnder = (/** @type {MouseEvent} */ event) => Math.max(0, Math.min(this.at.newest, iterationAtX(this.#axes(), event.offsetX)));
    loss.onpointermove = (/** @type {PointerEvent} */ event) => {
      const i = iterationUnder(event), { table } = stage.known, losses = lossesOf(table);
      loss.title = this.at.newest < 0 ? "" : `iteration ${grouped(i + 1)}: loss ${lossWords(losses.at(i))}`;
    };
    loss.onclick = (/** @type {MouseEvent} */ event) => {
      if (this.at.newest >= 0) stage.goto(lossesOf(stage.known.table).time[iterationUnder(event)]);
    };
  }

  /** @param {{rank: number} | {from: number, to: number}} target @param {number} x @param {number} y */
  #take(target, x, y) {
    this.stage.choose("rank" in target ? { rank: target.rank } : { rank: target.from, peer: target.to });
    openHands(this.stage, target, x, y);
  }

  async #big() {
    const button = bigButton(this.stage.known);
    if (!button || button.why) return;
    const { ok, words } = await this.stage.act(button.verb, {});
    this.answer = { words: ok && button.verb !== "stop" ? "" : words, at: performance.now() };
    this.stage.touch();
  }

  get size() {
    return this.doings.length > 4 ? 168 : 124;
  }

  #axes() {
    const { known, width } = this.stage, canvas = this.$(".wb-loss");
    return lossAxes(canvas.clientWidth || width, this.lossHeight, known.run?.iterations ?? -1, lossesOf(known.table));
  }

  get lossHeight() {
    return this.doings.length > 4 ? 182 : 142;
  }

  /** @param {string} selector @param {string} words */
  #put(selector, words) {
    const node = this.$(selector);
    if (node.textContent !== words) node.textContent = words;
  }

  /** What the ranks do at the moment on show. @param {Look} look @returns {[Doing[], string]} and when that is */
  #now(look) {
    const { known, t, at, held, live, ranks } = look, { table, state } = known, then = table.rows > 0 && (held || (!live && state !== "failed") || state === "replay");
    if (then) return [doingAt(table, ranks, t, held, known.run), this.at.here < 0 ? "at the playhead" : `in iteration ${grouped(this.at.here + 1)}`];
    const doings = doingNow(known, ranks, nowOf(known, at), this.doings.map((d) => d.mark));
    const calm = isOver(known) || state !== "running" || known.control?.held || doings.every((d) => d.long);
    return [doings, isOver(known) ? "at the end" : calm ? "now" : "now, over the last second"];
  }

  /** @param {Look} look */
  say(look) {
    const { known, t, held, live, at } = look, losses = lossesOf(known.table), newest = losses.newest(trainers(known.run), allTold(known));
    const then = held || (!live && !isOver(known)) || known.state === "replay" || (isOver(known) && !live);
    const shown = then ? Math.min(newest, losses.until(t)) : newest;
    this.at = { newest, shown, here: Math.min(shown + 1, newest) };
    const [doings, when] = this.#now(look), first = Number.isFinite(losses.first) ? losses.at(losses.first) : NaN;
    this.doings = doings;
    const told = tellOverview(look, this.at, { first, last: newest < 0 ? NaN : losses.at(newest) });
    this.colour = told.colour;
    this.#put(".wb-ov-state", stateOf(known, held)[0]);
    this.$(".wb-ov-state").style.color = `var(--${told.colour})`;
    this.#put(".wb-ov-say span", told.say);
    this.$(".wb-ov-say").title = told.say.length > 110 ? told.say : "";
    this.#put(".wb-ov-say small", at - this.answer.at < ANSWERED_MS && this.answer.words ? this.answer.words : told.small);
    const big = this.$(".wb-ov-big"), button = bigButton(known);
    big.className = `wb-ov-big ${button?.look ?? "none"}`;
    big.disabled = !button || !!button.why;
    big.title = button?.why ?? "";
    this.#put(".wb-ov-big", button?.words ?? "");
    this.#put(".wb-ov-when", when);
    const total = known.run?.iterations ?? -1;
    this.#put(".wb-ov-iteration", this.at.shown < 0 ? "lower is better" : `after iteration ${grouped(this.at.shown + 1)}${total > 0 ? ` of ${grouped(total)}` : ""}; mean of the last 10`);
    waysOn(known, doings).forEach(([title, what], i) => {
      this.#put(`.wb-ov-next div:nth-child(${i + 1}) button`, `${title} →`);
      this.#put(`.wb-ov-next div:nth-child(${i + 1}) span`, what);
    });
    this.$(".wb-ov-next button").disabled = known.run?.ranks === 1;
    this.#put(".wb-ov-next div:nth-child(3) > span", this.hands.say(look) || "kill or freeze a rank, slow or cut a link");
    this.#findLinks(known);
    const serve = this.$(".wb-ov-key [data-mark=serve]");
    if (serve.hidden !== !known.run?.inputs) serve.hidden = !known.run?.inputs;
    this.#list(look);
    this.$(".wb-circle").setAttribute("aria-label", `The ranks on a circle. ${doings.length > LISTED ? "" : doings.map((d) => `Rank ${d.rank} ${d.words}`).join(". ")}`);
    this.$(".wb-loss").setAttribute("aria-label", newest < 0 ? "Loss: nothing yet" : `Loss, iteration ${this.at.shown + 1}: ${lossWords(losses.at(this.at.shown))}; at the beginning ${lossWords(first)}`);
    const marks = doings.map((d) => d.mark + d.halo).join();
    if (marks !== this.marks) this.stage.dirty = true; // the circle changes, whether or not a row has come
    this.marks = marks;
  }

  /** Links over which chunks of the newest call went, and examples of late. @param {import("./player.js").Known} known */
  #findLinks({ table, run }) {
    const head = table.newest ?? this.stage.tale.table.newest, rounds = head?.group === "rounds", served = servedLinks(run, table), key = [rounds ? `rounds ${table.life}` : head?.key, ...served].join(" ");
    if ((!head && !served.length) || key === this.links.key || (rounds && this.links.all.size && this.links.key.startsWith(head.group))) return;
    const call = head && this.stage.openKey(head.key);
    this.links = { key, all: new Set([...(call?.flights.map((f) => `${f.from}>${f.to}`) ?? []), ...served]) };
  }

  /** A line a rank; of many ranks counts, and the slowest. @param {Look} look */
  #list({ choice }) {
    const { doings } = this, list = this.$(".wb-ov-list"), few = doings.length <= LISTED, told = few ? null : inCounts(doings);
    const lines = few ? doings : (told?.slowest ?? []), shape = `${few} ${lines.length}`;
    if (this.drawn.list !== shape) {
      this.drawn.list = shape;
      list.className = `wb-ov-list ${few ? (doings.length > 4 ? "many" : "") : "counted"}`;
      list.replaceChildren(...(told ? [...told.counts.map(() => this.#line(false)), Object.assign(document.createElement("li"), { className: "wb-ov-then", textContent: "waited for most:" })] : []), ...lines.map(() => this.#line(true)));
    }
    const items = [...list.children], own = told ? items.slice(5) : items;
    told?.counts.forEach(([mark, n, words], i) => {
      this.#fill(items[i], /** @type {DoingMark} */ (mark), false, String(n), words);
      items[i].classList.toggle("nobody", !n && i > 2); // its place stays
    });
    lines.forEach((doing, i) => {
      this.#fill(own[i], doing.mark, doing.halo, `rank ${doing.rank}`, doing.words);
      const button = /** @type {HTMLElement} */ (own[i].firstElementChild);
      button.dataset.rank = String(doing.rank);
      button.classList.toggle("chosen", choice?.rank === doing.rank);
    });
  }

  /** @param {boolean} own  the line of one rank: a button */
  #line(own) {
    const li = document.createElement("li"), line = li.appendChild(document.createElement(own ? "button" : "div"));
    line.className = "wb-ov-line";
    line.append(document.createElement("i"), document.createElement("b"), document.createElement("span"));
    if (own) line.onclick = () => {
      const box = line.getBoundingClientRect();
      this.#take({ rank: Number(line.dataset.rank) }, box.left + 40, box.bottom - 6);
    };
    return li;
  }

  /** @param {Element} li @param {DoingMark} mark @param {boolean} halo @param {string} name @param {string} words */
  #fill(li, mark, halo, name, words) {
    const line = /** @type {HTMLElement} */ (li.firstElementChild), [icon, b, span] = line.children, shown = `${mark}${halo ? " halo" : ""}`;
    if (line.dataset.mark !== shown) {
      line.dataset.mark = shown;
      icon.replaceChildren(markIcon(mark, halo));
    }
    if (b.textContent !== name) b.textContent = name;
    if (span.textContent !== words) span.textContent = line.title = words;
  }

  /** @param {Look} look */
  draw({ known, ink, font, ratio, width, choice, held }) {
    const { stage, size } = this, circle = this.$(".wb-circle"), loss = this.$(".wb-loss"), { table, control } = known;
    const links = control?.links ?? [], key = [this.marks, ink.ground, ratio, size, this.links.key, choice?.rank, ...links.map((l) => `${l.from}>${l.to}${l.down}`)].join();
    if (key !== this.drawn.circle && circle.clientWidth) {
      this.drawn.circle = key;
      drawCircle(stage.paper(circle, size, size), ink, font, circleOf(this.doings.length, size), this.doings, this.links.all, links, choice?.rank);
    }
    const losses = lossesOf(table), w = loss.clientWidth, height = this.lossHeight, { shown, newest } = this.at;
    const drawn = [w, height, ratio, ink.ground, shown, newest, losses.last, this.colour, held, known.run?.iterations].join();
    if (drawn === this.drawn.loss || !w) return;
    this.drawn.loss = drawn;
    drawLoss(stage.paper(loss, w, height), ink, font, this.#axes(), losses, { shown, newest, colour: ink[this.colour] ?? ink.ink, lost: known.state === "failed" && !held, held });
  }
}

const SERVED = 400; // rows of a server's lane that are looked at

/** Links over which servers have sent examples of late. @param {import("./player.js").Known["run"]} run @param {import("./table.js").Table} table @returns {string[]} */
function servedLinks(run, table) {
  const links = new Set();
  for (const lane of run?.inputs ? table.lanes.values() : []) {
    if (servesExamples(run, lane.rank)) for (let i = lane.length - 1; i >= Math.max(0, lane.length - SERVED); i--) {
      const row = lane.rows[i];
      if (table.kind[row] === table.code.send && table.peer[row] >= 0) links.add(`${lane.rank}>${table.peer[row]}`);
    }
  }
  return [...links].sort();
}

export const overviewScene = {
  name: "overview", label: "Overview", key: "1",
  /** @param {HTMLElement} body @param {Stage} stage */
  build(body, stage) {
    const view = new Overview(body, stage);
    return {
      say: (/** @type {Look} */ look) => view.say(look),
      draw: (/** @type {Look} */ look) => view.draw(look),
      marks: () => [],
      title: (/** @type {Look} */ { known }) => known.run?.title || "Distributed training",
      sentence: (/** @type {Look} */ look) => tellOverview(look, view.at, { first: NaN, last: NaN }).say,
      end() {},
    };
  },
};

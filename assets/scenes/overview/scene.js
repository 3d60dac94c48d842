// @ts-check
/**
 * What a newcomer sees first: how the run stands in one sentence, what each rank does, the loss,
 * and where to look next. Every place is there from the start, so that nothing moves from one state
 * to the next.
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("../../engine/rank_activity.js").Doing} Doing
 */
import { doingAt, doingNow } from "../../engine/rank_activity.js";
import { openRankMenu } from "../../chrome/rank_menu.js";
import { rankMenuBar } from "../../chrome/rank_menu_bar.js";
import { rankCountButtons } from "../../chrome/rank_trials.js";
import {
  newestIsWhole,
  drawLoss,
  iterationAtX,
  iterationsShown,
  lossAxes,
  lossWords,
  lossesOf,
  trainers,
} from "../../engine/losses.js";
import { isOver, nowOf } from "../../engine/player.js";
import { circleOf, drawCircle, underCircle } from "../../drawing/rank_circle.js";
import { drawGhost } from "../../drawing/ghost_line.js";
import { ghostOf } from "../../engine/trials.js";
import { serversOf } from "../../engine/run_graph.js";
import { iterationThen } from "../../engine/iteration_then.js";
import { onlyWatches } from "../../engine/actions.js";
import { onlyOperations } from "../../engine/run_words.js";
import { meaning, startWords, tellOverview, waysOn } from "./captions.js";
import { OURS, fillOverviewKey, showKeys } from "./legend.js";
import { RecentLinks } from "./links.js";
import { LISTED, RankList } from "./rank_list.js";
import { sayTraffic, tellsNoLoss } from "./traffic_table.js";
import { stuckNow, stuckWords } from "../../engine/blocked.js";
import { grouped, stateOf } from "../../engine/format.js";

const ANSWERED_MS = 6000; // how long a refusal stays

const OVERVIEW = `
  <div class="wb-ov-head"><span class="wb-ov-state"></span><p class="wb-ov-say"><span role="status"></span><small></small></p><button class="wb-ov-big"></button></div>
  <div class="wb-ov-grid">
    <section><h3 class="wb-co-head"><span>Ranks <small class="wb-ov-when"></small></span><i class="wb-co-count"></i></h3><div class="wb-ov-ranks"><canvas class="wb-circle" role="img"></canvas><ul class="wb-ov-list"></ul></div></section>
    <section><h3><span class="wb-ov-what">Loss</span> <small class="wb-ov-iteration"></small></h3><canvas class="wb-loss" role="img"></canvas><dl class="wb-ov-sent" hidden></dl></section>
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
    // iterations: whose loss is shown, the run's newest, the one on show
    this.at = { shown: -1, newest: -1, onShow: -1 };
    this.colour = "ink-2";
    this.answer = { words: "", at: -Infinity };
    this.drawn = { circle: "", loss: "" };
    this.links = new RecentLinks(stage.playback);
    this.list = new RankList(this.$(".wb-ov-list"), (rank) => this.#take({ rank }));
    this.menuBar = rankMenuBar(this.$(".wb-ov-next p"), stage);
    this.count = rankCountButtons(this.$(".wb-co-count"), stage);
    fillOverviewKey(this.$(".wb-ov-key"));
    this.#listen();
  }

  /** @param {string} selector @returns {any} */
  $(selector) {
    return this.body.querySelector(selector);
  }

  #listen() {
    const { stage } = this;
    const [ring, time] = this.body.querySelectorAll(".wb-ov-next button");
    const circle = this.$(".wb-circle");
    const loss = this.$(".wb-loss");
    this.$(".wb-ov-big").onclick = () => this.#big();
    /** @type {HTMLElement} */ (ring).onclick = () => {
      if (stage.known.state === "failed") stage.playback.goto(stage.known.table.to);
      stage.scenes.open(stage.scenes.lookNext()?.scene ?? "collectives");
    };
    /** @type {HTMLElement} */ (time).onclick = () => stage.scenes.open("timeline");
    const under = (/** @type {PointerEvent | MouseEvent} */ event) =>
      underCircle(
        circleOf(this.doings.length, this.size),
        this.links.all,
        event.offsetX,
        event.offsetY,
      );
    circle.onpointermove = (/** @type {PointerEvent} */ event) => {
      const target = under(event);
      circle.title = !target
        ? ""
        : "rank" in target
          ? `rank ${target.rank} ${this.doings[target.rank]?.words}`
          : `link ${target.from} → ${target.to}`;
      circle.style.cursor = target ? "pointer" : "default";
    };
    circle.onclick = (/** @type {MouseEvent} */ event) => {
      const target = under(event);
      if (target) this.#take(target);
    };
    const iterationUnder = (/** @type {MouseEvent} */ event) =>
      Math.max(0, Math.min(this.at.newest, iterationAtX(this.#axes(), event.offsetX)));
    loss.onpointermove = (/** @type {PointerEvent} */ event) => {
      const i = iterationUnder(event);
      const { table } = stage.known;
      const losses = lossesOf(table);
      loss.title =
        this.at.newest < 0 ? "" : `iteration ${grouped(i + 1)}: loss ${lossWords(losses.at(i))}`;
    };
    loss.onclick = (/** @type {MouseEvent} */ event) => {
      if (this.at.newest >= 0)
        stage.playback.goto(lossesOf(stage.known.table).time[iterationUnder(event)]);
    };
  }

  /** @param {{rank: number} | {from: number, to: number}} target */
  #take(target) {
    this.stage.choose(
      "rank" in target ? { rank: target.rank } : { rank: target.from, peer: target.to },
    );
    openRankMenu(this.stage, target);
  }

  async #big() {
    const { ok, words } = await this.stage.act("start", {});
    this.answer = { words: ok ? "" : words, at: performance.now() };
    this.stage.touch();
  }

  /** Many ranks need more room; beside what happened there is some to use. */
  get #tall() {
    return this.doings.length > 4 || this.stage.root.classList.contains("wide");
  }

  get size() {
    return this.#tall ? 168 : 124;
  }

  #axes() {
    const { known, width } = this.stage;
    const canvas = this.$(".wb-loss");
    const losses = lossesOf(known.table);
    return lossAxes(
      canvas.clientWidth || width,
      this.lossHeight,
      iterationsShown(known, losses),
      losses,
      Math.max(...(ghostOf(known)?.losses ?? []).map(([, loss]) => loss)),
    );
  }

  get lossHeight() {
    return this.#tall ? 182 : 142;
  }

  /** @param {string} selector @param {string} words */
  #put(selector, words) {
    const node = this.$(selector);
    if (node.textContent !== words) node.textContent = words;
  }

  /**
   * What the ranks do at the moment on show.
   * @param {Look} look
   * @returns {[Doing[], string]} and when that is
   */
  #now(look) {
    const { known, t, at, held, live, ranks } = look;
    const { table, state } = known;
    const then = table.rows > 0 && (held || (!live && state !== "failed") || state === "replay");
    const lost = state === "failed" && t >= table.to - 1; // who was lost is shown, held or not
    if (then && !lost)
      return [
        doingAt(table, ranks, t, held, known.run),
        this.at.onShow < 0 ? "at the playhead" : `in iteration ${grouped(this.at.onShow + 1)}`,
      ];
    const doings = doingNow(
      known,
      ranks,
      nowOf(known, at),
      this.doings.map((d) => d.mark),
    );
    const calm =
      isOver(known) || state !== "running" || known.control?.held || doings.every((d) => d.long);
    return [doings, isOver(known) ? "at the end" : calm ? "now" : "now, over the last second"];
  }

  /** @param {Look} look */
  say(look) {
    const { known, t, held, live, at } = look;
    const losses = lossesOf(known.table);
    const newest = losses.newest(trainers(known.run), newestIsWhole(known));
    const then =
      held || (!live && !isOver(known)) || known.state === "replay" || (isOver(known) && !live);
    const shown = then ? Math.min(newest, losses.until(t)) : newest;
    this.at = { newest, shown, onShow: iterationThen(look)?.iteration ?? newest };
    const [doings, when] = this.#now(look);
    const first = Number.isFinite(losses.first) ? losses.at(losses.first) : NaN;
    this.doings = doings;
    const caption = tellOverview(
      { ...look, stuck: stuckWords(stuckNow(look), look) },
      this.at,
      { first, last: newest < 0 ? NaN : losses.at(newest) },
      meaning(look.known.run, this.stage.scenes.all, onlyOperations(known)),
    );
    this.colour = caption.colour;
    this.#put(".wb-ov-state", stateOf(known, held)[0]);
    this.$(".wb-ov-state").style.color = `var(--${caption.colour})`;
    this.#put(".wb-ov-say span", caption.say);
    this.$(".wb-ov-say").title = caption.say.length > 110 ? caption.say : "";
    this.#put(
      ".wb-ov-say small",
      at - this.answer.at < ANSWERED_MS && this.answer.words ? this.answer.words : caption.small,
    );
    const big = this.$(".wb-ov-big");
    const words = startWords(known);
    big.hidden = !words;
    this.#put(".wb-ov-big", words);
    this.#put(".wb-ov-when", when);
    const total = known.run?.iterations ?? -1;
    const lossless = tellsNoLoss(known, newest);
    this.#put(".wb-ov-what", lossless ? "Communication" : "Loss");
    this.$(".wb-loss").hidden = lossless;
    this.$(".wb-ov-sent").hidden = !lossless;
    if (lossless) sayTraffic(this.$(".wb-ov-sent"), known);
    this.#put(
      ".wb-ov-iteration",
      lossless
        ? "so far"
        : this.at.shown < 0
          ? "lower is better"
          : "after iteration " +
            `${grouped(this.at.shown + 1)}${total > 0 ? ` of ${grouped(total)}` : ""}; mean of ` +
            "the last 10",
    );
    waysOn(known, doings, this.stage.scenes.lookNext()).forEach(([title, what], i) => {
      this.$(`.wb-ov-next div:nth-child(${i + 1})`).hidden = !title;
      this.#put(`.wb-ov-next div:nth-child(${i + 1}) button`, `${title} →`);
      this.#put(`.wb-ov-next div:nth-child(${i + 1}) span`, what);
    });
    this.$(".wb-ov-next button").disabled = known.run?.ranks === 1;
    this.#put(
      ".wb-ov-next div:nth-child(3) > span",
      this.menuBar.say(look) || "kill or freeze a rank, slow or cut a link",
    );
    const watched = onlyWatches({ known });
    this.#put(".wb-ov-next h4", watched ? "Read-only" : "Break something");
    this.links.update(known);
    this.count.say(known);
    const servers = serversOf(known.run);
    showKeys(this.$(".wb-ov-key"), {
      serve: !!known.run?.inputs,
      server: servers > 0,
      away: Object.keys(known.control?.cut_off ?? {}).length > 0,
      ...Object.fromEntries(OURS.map((mark) => [mark, !watched])),
      link: !watched || this.links.emulated.length > 0,
    });
    this.list.say(doings, look.choice?.rank, servers);
    this.$(".wb-circle").setAttribute(
      "aria-label",
      "The ranks on a circle. " +
        `${doings.length > LISTED ? "" : doings.map((d) => `Rank ${d.rank} ${d.words}`).join(". ")}`,
    );
    this.$(".wb-loss").setAttribute(
      "aria-label",
      newest < 0
        ? "Loss: nothing yet"
        : `Loss, iteration ${this.at.shown + 1}: ${lossWords(losses.at(this.at.shown))}; at ` +
            `the beginning ${lossWords(first)}`,
    );
    const marks = doings.map((d) => d.mark + d.halo).join();
    // the circle changes, whether or not a row has come
    if (marks !== this.marks) this.stage.dirty = true;
    this.marks = marks;
  }

  /** @param {Look} look */
  draw({ known, ink, font, ratio, width, choice, held }) {
    const { stage, size } = this;
    const circle = this.$(".wb-circle");
    const loss = this.$(".wb-loss");
    const { table } = known;
    const links = this.links.emulated;
    const key = [
      this.marks,
      ink.ground,
      ratio,
      size,
      this.links.key,
      choice?.rank,
      ...links.map((l) => `${l.from}>${l.to}${l.down}`),
    ].join();
    if (key !== this.drawn.circle && circle.clientWidth) {
      this.drawn.circle = key;
      drawCircle(
        stage.paper(circle, size, size),
        ink,
        font,
        circleOf(this.doings.length, size),
        this.doings,
        this.links.all,
        links,
        choice?.rank,
        serversOf(known.run),
      );
    }
    const losses = lossesOf(table);
    const w = loss.clientWidth;
    const height = this.lossHeight;
    const { shown, newest } = this.at;
    const ghost = ghostOf(known);
    const drawn = [
      w,
      height,
      ratio,
      ink.ground,
      shown,
      newest,
      losses.last,
      this.colour,
      held,
      isOver(known),
      known.run?.iterations,
      ghost?.name,
    ].join();
    if (drawn === this.drawn.loss || !w) return;
    this.drawn.loss = drawn;
    const g = stage.paper(loss, w, height);
    drawLoss(g, ink, font, this.#axes(), losses, {
      shown,
      newest,
      colour: ink[this.colour] ?? ink.ink,
      lost: known.state === "failed" && !held,
      held,
      over: isOver(known),
    });
    if (ghost) drawGhost(g, ink, font, this.#axes(), ghost);
  }
}

/** @type {import("../../chrome/scene_host.js").SceneModule} */
export const overviewScene = {
  /** @param {HTMLElement} body @param {Stage} stage */
  build(body, stage) {
    const view = new Overview(body, stage);
    return {
      say: (/** @type {Look} */ look) => view.say(look),
      draw: (/** @type {Look} */ look) => view.draw(look),
      marks: () => [],
      title: (/** @type {Look} */ { known }) => known.run?.title || "Distributed training",
      sentence: (/** @type {Look} */ look) =>
        tellOverview(
          look,
          view.at,
          { first: NaN, last: NaN },
          meaning(look.known.run, stage.scenes.all),
        ).say,
      end() {},
    };
  },
};

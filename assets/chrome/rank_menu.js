// @ts-check
/**
 * The menu of a rank or a link: a small dialog beside its disc, or beside or below the picture where there
 * is no room, so that what it changes stays in sight (menu_place.js). It says what a button will do before, and what the
 * run answers after; everything goes through `stage.act`.
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("../engine/actions.js").Action} Action
 * @typedef {import("../engine/actions.js").Target} Target
 * @typedef {import("../engine/actions.js").LinkNow} LinkNow
 */
import {
  linkNow,
  milliseconds,
  onlyWatches,
  whyNot,
  whyNotThis,
  willDo,
} from "../engine/actions.js";
import { doingNow } from "../engine/rank_activity.js";
import { isOver, nowOf } from "../engine/player.js";
import { isForNextRun, trialWords } from "../engine/trials.js";
import { placeCard } from "./menu_place.js";
import { linkRows, rankRows } from "./rank_menu_rows.js";
import { codeOf, fillTargets, nameOf, piece, targetOf } from "./targets.js";

/** The dialog that is open beside each stage's picture. @type {WeakMap<Stage, RankMenu>} */
const openOver = new WeakMap();

export class RankMenu {
  /** @param {Stage} stage @param {Target} target */
  constructor(stage, target) {
    this.stage = stage;
    this.target = target;
    this.undo = /** @type {Action[]} */ ([]);
    this.message = ""; // the run's answer to the last action
    this.refused = false;
    this.hint = ""; // what the button under the pointer will do
    // what is brought up to date four times a second
    this.marks = /** @type {(() => void)[]} */ ([]);
    this.sure = false; // asked once more before a kill
    this.run = stage.known.run?.id ?? "";
    // what a link will be like in the next run, where this one is over
    this.next = /** @type {Record<string, any>} */ ({});
    this.asked = false; // for another run: what stands here is what becomes of it
    const root = /** @type {any} */ (stage.root.getRootNode());
    this.back = /** @type {HTMLElement | null} */ (root.activeElement ?? null);
    this.body = piece("div", "wb-rank-menu");
    this.menu = document.createElement("select");
    this.body.setAttribute("role", "dialog");
    this.body.onkeydown = (event) => this.#key(event);
    this.#build();
    this.placed = "";
    this.#place();
    this.menu.focus({ preventScroll: true });
    // the time bar stands at the foot of the window, over what is there
    this.body.style.scrollMarginBottom = `${stage.$(".wb-time").offsetHeight + 8}px`;
    this.body.scrollIntoView({ block: "nearest" });
  }

  /** Beside the disc, anew where anything that it depends on has changed. */
  #place() {
    const { body, stage, target } = this;
    const main = stage.$(".wb-main");
    const key = [
      codeOf(target),
      stage.scenes.current?.name,
      main.clientWidth,
      main.clientHeight,
      body.offsetHeight,
    ].join();
    if (key === this.placed) return;
    placeCard(stage, body, target);
    this.placed = body.classList.contains("card") ? key : "";
  }

  #build() {
    const { body, target } = this;
    const top = piece("div", "wb-rank-menu-top");
    const close = piece("button", "wb-rank-menu-close", "✕");
    this.menu.setAttribute("aria-label", "What to change");
    fillTargets(this.menu, this.stage, codeOf(target));
    this.menu.onchange = () => this.turnTo(targetOf(this.menu.value));
    close.setAttribute("aria-label", "Close");
    close.onclick = () => this.close();
    top.append(this.menu, piece("span", "wb-rank-menu-now"), close);
    const rows = piece("div", "wb-rank-menu-actions");
    const say = piece("p", "wb-rank-menu-say");
    const undo = piece("button", "wb-rank-menu-undo", "Undo");
    say.setAttribute("role", "status");
    undo.onclick = () => this.#takeBack();
    body.replaceChildren(top, rows, say, undo);
    body.setAttribute("aria-label", `Change ${nameOf(target)}`);
    if ("rank" in target) rankRows(this, rows, target.rank);
    else linkRows(this, rows, target.from, target.to);
    this.say();
  }

  /** @param {Target} target */
  turnTo(target) {
    this.target = target;
    this.sure = false;
    this.undo = [];
    this.next = {};
    this.asked = false;
    this.message = "";
    this.#build();
    this.#place();
    this.menu.focus();
  }

  /** The link that the menu is of, as it is now or is to be in the next run. @returns {LinkNow} */
  get link() {
    const { from = 0, to = 0 } = /** @type {any} */ (this.target);
    const { latency, bandwidth } = this.next;
    const now = linkNow(this.stage.known.control, from, to);
    return {
      ...now,
      latency_ms: latency === undefined ? now.latency_ms : milliseconds(latency),
      bandwidth: bandwidth ?? now.bandwidth,
    };
  }

  /**
   * A button for an action; `on` says whether it is so now, `plain` that this is not of our making.
   * @param {string} words
   * @param {() => Action} action
   * @param {() => boolean} [on]
   * @param {boolean} [plain]
   */
  button(words, action, on, plain = false) {
    const button = /** @type {HTMLButtonElement} */ (piece("button", "wb-action", words));
    button.onclick = () => this.do(action());
    const tell = () => this.tell(willDo(action(), this.stage.known.control, this.stage.known.run));
    button.onpointerenter = button.onfocus = tell;
    button.onpointerleave = () => this.tell("");
    this.marks.push(() => {
      const so = !!on?.();
      if (on) button.setAttribute("aria-pressed", String(so));
      button.classList.toggle(plain ? "as-is" : "on", so);
    });
    return button;
  }

  /** @param {HTMLElement} rows @param {string} label @param {HTMLElement[]} items */
  row(rows, label, items) {
    const row = piece("div", "wb-rank-menu-row");
    row.setAttribute("role", "group");
    row.setAttribute("aria-label", label);
    row.append(piece("span", "wb-rank-menu-label", label), ...items);
    rows.append(row);
    return row;
  }

  /** @param {boolean} sure @param {HTMLElement} next */
  ask(sure, next) {
    this.sure = sure;
    const after = this.stage.known.run?.recovers
      ? "the run recovers as its policy says"
      : "with it, as a rule, the run ends";
    this.message = sure ? `Its process ends at once; ${after}. This cannot be undone.` : "";
    this.refused = sure;
    this.undo = [];
    this.say();
    next.focus();
  }

  /** What it is now, in words; why nothing can be done. Called with the stage's texts. */
  say() {
    const { body, target, stage } = this;
    const { known } = stage;
    if ((known.run?.id ?? "") !== this.run) return this.close(this.#isFocused); // the next run
    const next = isForNextRun(known, target);
    const why = next ? "" : whyNotThis(known, target);
    if (this.asked && trialWords(known)) {
      this.message = trialWords(known);
      this.refused = !!known.run?.trials?.refused;
    }
    const now =
      "rank" in target
        ? this.#rankNow(target.rank)
        : linkNow(known.control, target.from, target.to).words;
    this.#put(".wb-rank-menu-now", now);
    for (const mark of this.marks) mark();
    const items = /** @type {NodeListOf<HTMLButtonElement>} */ (
      body.querySelectorAll(".wb-action, .wb-rank-menu input")
    );
    for (const item of items) item.disabled = !!why;
    const rows = /** @type {HTMLElement} */ (body.querySelector(".wb-rank-menu-actions"));
    rows.hidden = !!why && (isOver(known) || !whyNot(known)); // the run, or this rank, is gone
    const words =
      why ||
      this.message ||
      this.hint ||
      (next
        ? "This run is over. Choose what this link is like in the next one."
        : "What is changed here is drawn in amber, dashed: made by us.");
    this.#put(".wb-rank-menu-say", words);
    body.classList.toggle("refused", !why && this.refused && !!this.message);
    const undo = /** @type {HTMLElement} */ (body.querySelector(".wb-rank-menu-undo"));
    undo.hidden = !this.undo.length || !!why;
    if (body.isConnected) this.#place();
  }

  /** @param {number} rank */
  #rankNow(rank) {
    const { known } = this.stage;
    const pid = known.control?.pids[rank];
    const doing = known.run
      ? doingNow(known, known.run.ranks, nowOf(known, performance.now()))[rank]
      : null;
    return [doing?.words, pid && !isOver(known) ? `process ${pid}` : ""]
      .filter(Boolean)
      .join(" · ");
  }

  /** @param {string} selector @param {string} words */
  #put(selector, words) {
    const node = /** @type {HTMLElement} */ (this.body.querySelector(selector));
    if (node.textContent !== words) node.textContent = words;
  }

  /** @param {string} hint */
  tell(hint) {
    this.hint = hint;
    if (hint && !this.sure) this.message = "";
    this.say();
  }

  /** @param {boolean} ok @param {string} words */
  answer(ok, words) {
    this.message = words;
    this.refused = !ok;
    this.say();
  }

  /** @param {Action} action */
  async do(action) {
    if (isForNextRun(this.stage.known, this.target)) return this.#choose(action);
    const { ok, words, undo } = await this.stage.acts.do(action);
    if (ok) this.undo = undo;
    this.answer(ok, words);
  }

  /** Note what the link is to be like in the next run. @param {Action} action */
  #choose({ verb, args: { source, target, both, ...values } }) {
    this.undo = [{ verb, args: this.next }];
    this.next = { ...this.next, ...values };
    const { latency_ms, bandwidth } = this.link;
    const parts = [latency_ms ? `${latency_ms} ms` : "", bandwidth].filter(Boolean);
    this.answer(true, `In the next run this link has ${parts.join(", ")}.`);
  }

  /** Run the experiment again with the link as it is here. @param {boolean} both */
  async again(both) {
    const { from: source, to: target } = /** @type {any} */ (this.target);
    const { latency_ms, bandwidth } = this.link;
    const args = { source, target, latency: `${latency_ms} ms`, bandwidth, both };
    const { ok, words } = await this.stage.act("run_with_link", args);
    this.asked = ok;
    this.answer(ok, words);
  }

  async #takeBack() {
    const undo = this.undo;
    this.undo = [];
    this.stage.acts.forget(undo);
    this.menu.focus(); // the button goes
    if (isForNextRun(this.stage.known, this.target)) {
      this.next = undo[0].args;
      return this.answer(true, "Taken back.");
    }
    for (const action of undo) {
      const { ok, words } = await this.stage.act(action.verb, action.args);
      this.answer(ok, ok ? `Taken back. ${words}` : words);
    }
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.key === "Escape") {
      event.preventDefault();
      this.close();
    } else if (event.key === "Tab") this.#trap(event);
    event.stopPropagation(); // neither the stage's keys nor the host's
  }

  /** @param {KeyboardEvent} event */
  #trap(event) {
    const stops = /** @type {HTMLElement[]} */ ([
      ...this.body.querySelectorAll("button, select, input"),
    ]).filter((item) => !item.closest("[hidden]") && !(/** @type {any} */ (item).disabled));
    const last = event.shiftKey ? stops[0] : stops[stops.length - 1];
    const next = event.shiftKey ? stops[stops.length - 1] : stops[0];
    if (event.target !== last) return;
    event.preventDefault();
    next.focus();
  }

  get #isFocused() {
    const root = /** @type {Document | ShadowRoot} */ (this.body.getRootNode());
    return this.body.contains(root.activeElement);
  }

  /** @param {boolean} [refocus] */
  close(refocus = true) {
    this.body.remove();
    if (openOver.get(this.stage) === this) openOver.delete(this.stage);
    if (refocus) (this.back?.isConnected ? this.back : this.stage.root).focus();
  }
}

/**
 * Choose a rank: everything is then shown as seen from it. Once more: what can be done to it.
 * @param {Stage} stage
 * @param {number} rank
 * @param {() => void} quiet  the tooltip makes room
 */
export function takeRank(stage, rank, quiet) {
  const again = stage.choice?.rank === rank;
  stage.choose({ rank });
  if (!again) return;
  quiet();
  openRankMenu(stage, { rank });
}

/**
 * Open the dialog for a rank or a link; one that is open turns to it. None opens on a page that only
 * watches.
 * @param {Stage} stage
 * @param {Target} target
 */
export function openRankMenu(stage, target) {
  const open = openOver.get(stage);
  if (open) open.turnTo(target);
  else if (!onlyWatches(stage)) openOver.set(stage, new RankMenu(stage, target));
}

/**
 * Open the dialog for a rank or a link, and do this: its answer and its undo stand there.
 * @param {Stage} stage
 * @param {Target} target
 * @param {Action} action
 */
export function doInRankMenu(stage, target, action) {
  openRankMenu(stage, target);
  return openOver.get(stage)?.do(action);
}

/** Close the dialog that is open beside a stage's picture, if one is. @param {Stage} stage */
export const closeRankMenu = (stage) => openOver.get(stage)?.close(false);

/**
 * Bring the dialog that is open beside a stage's picture up to date; called with its texts.
 * @param {Stage} stage
 */
export const refreshRankMenu = (stage) => openOver.get(stage)?.say();

// @ts-check
/**
 * One rank more, one less, and run again: the buttons beside a picture of the ranks, the dialog that
 * says what will be done, and the row that goes from the run before to the one after and to both (of
 * one with another link, too: rank_menu_rows.js).
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("../engine/player.js").Known} Known
 * @typedef {import("../engine/trials.js").Offer} Offer
 */
import { closeRankMenu } from "./rank_menu.js";
import { piece } from "./targets.js";
import { offerOf, offerWords, rankCount, trialWords } from "../engine/trials.js";

/**
 * The buttons − and + of a picture of the ranks; `say` shows them where the page can run again.
 * @param {HTMLElement} body
 * @param {Stage} stage
 */
export function rankCountButtons(body, stage) {
  const count = piece("span", "wb-rank-count");
  const now = piece("span", "");
  count.setAttribute("role", "group");
  count.setAttribute("aria-label", "Number of ranks");
  const [fewer, more] = /** @type {const} */ (["fewer", "more"]).map((way) => {
    const button = /** @type {HTMLButtonElement} */ (
      piece("button", "", way === "more" ? "+" : "−")
    );
    button.title = `run again with one rank ${way === "more" ? "more" : "less"}, side by side`;
    button.setAttribute(
      "aria-label",
      `One rank ${way === "more" ? "more" : "less"}, and run again`,
    );
    button.onclick = () => stage.trials?.open(way, button);
    return button;
  });
  count.append(fewer, now, more);
  count.hidden = true;
  body.append(count);
  return {
    /** @param {Known} known */
    say(known) {
      const offered = !!offerOf(known, "more");
      if (count.hidden === offered) count.hidden = !offered;
      if (!offered) return;
      const words = rankCount(known.run?.ranks ?? 0);
      if (now.textContent !== words) now.textContent = words;
      fewer.hidden = known.run?.ranks === 1;
      fewer.disabled = more.disabled = !!known.run?.trials?.starting;
    },
  };
}

export class RankTrials {
  /** @param {Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.row = stage.$(".wb-trials");
    this.body = /** @type {HTMLElement | null} */ (null); // the dialog
    this.back = /** @type {HTMLElement | null} */ (null); // where the keyboard was
    this.shown = ""; // what the row shows
    this.run = ""; // of which the dialog is
    this.words = /** @type {HTMLElement | null} */ (null);
    this.offer = /** @type {Offer | null} */ (null);
    this.asked = false; // for the offer: what stands there is the answer
  }

  /** @param {Known} known */
  say(known) {
    if (this.body && known.run?.id !== this.run) this.close();
    const trials = known.run?.trials;
    if (this.words && trials && (trials.words || trials.starting)) {
      this.asked = true;
      this.#answer(!trials.refused, trialWords(known));
    }
    this.#propose(known);
    const names = trials?.names ?? [];
    const key = JSON.stringify([names, trials?.at, trials?.words]);
    if (key === this.shown) return;
    this.shown = key;
    this.row.hidden = !names.length;
    const focused = /** @type {HTMLElement | null} */ (this.row.querySelector(":focus"));
    const held = focused?.textContent;
    this.row.replaceChildren(
      ...(names.length ? [...names, "side by side"] : []).map((name, i) => {
        const which = i === 2 ? "both" : i;
        const button = piece("button", "", name);
        button.setAttribute("aria-pressed", String(trials?.at === which));
        button.onclick = () => this.#do("show_trial", { which });
        return button;
      }),
    );
    if (!names.length) return;
    const undo = piece("button", "wb-trials-undo", "Undo");
    undo.title = `take the run with ${names[1]} back`;
    undo.onclick = () => this.#do("undo_trial", {});
    const words = piece("span", "wb-trials-say", trials?.words ?? "");
    words.setAttribute("role", "status");
    this.row.append(undo, words);
    for (const button of this.row.querySelectorAll("button"))
      if (button.textContent === held) button.focus();
  }

  /** @param {string} verb @param {Record<string, any>} args */
  async #do(verb, args) {
    const { ok, words } = await this.stage.act(verb, args);
    const say = this.row.querySelector(".wb-trials-say");
    if (!ok && say) say.textContent = words;
    this.stage.touch();
  }

  /** Say what one rank more or less would be, and offer it. @param {"more" | "fewer"} way @param {HTMLElement} back */
  open(way, back) {
    const { stage } = this;
    const offer = offerOf(stage.known, way);
    if (!offer) return;
    this.close();
    closeRankMenu(stage);
    this.back = back;
    this.run = stage.known.run?.id ?? "";
    this.offer = offer;
    this.asked = false;
    const body = (this.body = piece("div", "wb-rank-menu wb-rank-menu-offer"));
    const top = piece("div", "wb-rank-menu-top");
    const name = offer.ranks
      ? `${rankCount(offer.ranks)} instead of ${stage.known.run?.ranks}`
      : `One rank ${way === "more" ? "more" : "less"}`;
    const close = piece("button", "wb-rank-menu-close", "✕");
    close.setAttribute("aria-label", "Close");
    close.onclick = () => this.close(true);
    top.append(piece("b", "wb-rank-menu-now", name), close);
    const say = (this.words = piece("p", "wb-rank-menu-say"));
    this.#propose(stage.known);
    say.setAttribute("role", "status");
    body.setAttribute("role", "dialog");
    body.setAttribute("aria-label", name);
    body.append(top, say);
    body.classList.toggle("refused", !offer.ranks);
    if (offer.ranks) body.append(this.#choices(offer));
    body.onkeydown = (event) => {
      if (event.key === "Escape") this.close(true);
      event.stopPropagation(); // neither the stage's keys nor the host's
    };
    stage.$(".wb-menu-place").replaceChildren(body);
    /** @type {HTMLElement} */ (body.querySelector(".wb-rank-menu-row button") ?? close).focus();
    body.style.scrollMarginBottom = `${stage.$(".wb-time").offsetHeight + 8}px`;
    body.scrollIntoView({ block: "nearest" });
  }

  /** @param {Offer} offer */
  #choices({ ranks }) {
    const row = piece("div", "wb-rank-menu-row");
    const run = piece("button", "wb-action", `Run with ${rankCount(ranks)}`);
    const keep = piece(
      "button",
      "wb-action",
      `Keep ${rankCount(this.stage.known.run?.ranks ?? 0)}`,
    );
    keep.onclick = () => this.close(true);
    run.onclick = async () => {
      this.asked = true;
      const { ok, words } = await this.stage.act("run_with", { ranks });
      this.#answer(ok, words);
      row.hidden = ok;
    };
    row.append(run, keep);
    return row;
  }

  /** What the offer will do, until it is taken. @param {Known} known */
  #propose(known) {
    if (!this.words || !this.offer || this.asked) return;
    const words = offerWords(known, this.offer);
    if (this.words.textContent !== words) this.words.textContent = words;
  }

  /** @param {boolean} ok @param {string} words */
  #answer(ok, words) {
    if (!this.body || !this.words) return;
    if (this.words.textContent !== words) this.words.textContent = words;
    this.body.classList.toggle("refused", !ok);
    const row = /** @type {HTMLElement | null} */ (this.body.querySelector(".wb-rank-menu-row"));
    if (!ok && row) row.hidden = false;
  }

  /** @param {boolean} [refocus] */
  close(refocus = false) {
    this.body?.remove();
    this.body = this.words = null;
    if (refocus) (this.back?.isConnected ? this.back : this.stage.root).focus();
  }
}

// @ts-check
/**
 * What each rank does, a line a rank; of many ranks counts, and the slowest.
 *
 * @typedef {import("../../engine/rank_activity.js").Doing} Doing
 * @typedef {import("../../engine/rank_activity.js").DoingMark} DoingMark
 */
import { inCounts } from "./captions.js";
import { markIcon } from "../../drawing/rank_circle.js";

export const LISTED = 8; // ranks with a line of their own

export class RankList {
  /**
   * @param {HTMLElement} list
   * @param {(rank: number) => void} take  what a click on a rank's line does
   */
  constructor(list, take) {
    this.list = list;
    this.take = take;
    this.shape = "";
    list.addEventListener("keydown", (event) => this.#arrow(event));
    list.addEventListener("focusin", ({ target }) => this.#stop(target));
  }

  /** The ranks that have a line, which are one stop of the Tab key. */
  #buttons() {
    return [...this.list.querySelectorAll("button")];
  }

  /** Make this line the one that Tab leads to. @param {EventTarget | null} button */
  #stop(button) {
    for (const other of this.#buttons()) other.tabIndex = other === button ? 0 : -1;
  }

  /** From rank to rank. @param {KeyboardEvent} event */
  #arrow(event) {
    const buttons = this.#buttons();
    const at = buttons.indexOf(/** @type {HTMLButtonElement} */ (event.target));
    const to = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (at < 0 || to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    buttons[(to + buttons.length) % buttons.length].focus();
  }

  /**
   * Say what the ranks do.
   * @param {Doing[]} doings
   * @param {number | undefined} chosen  the rank that is selected
   * @param {number} [servers]  the first ranks, which hold the parameters
   */
  say(doings, chosen, servers = 0) {
    const { list } = this;
    const few = doings.length <= LISTED;
    const counted = few ? null : inCounts(doings);
    const lines = few ? doings : (counted?.slowest ?? []);
    const shape = `${few} ${lines.length}`;
    if (this.shape !== shape) {
      this.shape = shape;
      list.className = `wb-ov-list ${few ? (doings.length > 4 ? "many" : "") : "counted"}`;
      list.replaceChildren(
        ...(counted
          ? [
              ...counted.counts.map(() => this.#line(false)),
              ...(lines.length
                ? [
                    Object.assign(document.createElement("li"), {
                      className: "wb-ov-then",
                      textContent: "wait least:",
                    }),
                  ]
                : []),
            ]
          : []),
        ...lines.map(() => this.#line(true)),
      );
      this.#stop(this.#buttons()[0] ?? null);
    }
    const items = [...list.children];
    const lineOf = counted ? items.slice(5) : items;
    counted?.counts.forEach(([mark, n, words], i) => {
      this.#fill(items[i], /** @type {DoingMark} */ (mark), false, String(n), words);
      items[i].classList.toggle("nobody", !n && i > 2); // its place stays
    });
    lines.forEach((doing, i) => {
      const serves = doing.rank < servers;
      const words = `${serves ? "server: " : ""}${doing.words}`;
      this.#fill(lineOf[i], doing.mark, doing.halo, `rank ${doing.rank}`, words, serves);
      const button = /** @type {HTMLElement} */ (lineOf[i].firstElementChild);
      button.dataset.rank = String(doing.rank);
      button.classList.toggle("chosen", chosen === doing.rank);
    });
  }

  /** @param {boolean} button  the line of one rank: a button */
  #line(button) {
    const li = document.createElement("li");
    const line = li.appendChild(document.createElement(button ? "button" : "div"));
    line.className = "wb-ov-line";
    line.append(
      document.createElement("i"),
      document.createElement("b"),
      document.createElement("span"),
    );
    if (button) line.onclick = () => this.take(Number(line.dataset.rank));
    return li;
  }

  /**
   * @param {Element} li
   * @param {DoingMark} mark
   * @param {boolean} halo
   * @param {string} name
   * @param {string} words
   * @param {boolean} [server]
   */
  #fill(li, mark, halo, name, words, server = false) {
    const line = /** @type {HTMLElement} */ (li.firstElementChild);
    const [icon, b, span] = line.children;
    const shown = `${mark}${halo ? " halo" : ""}${server ? " server" : ""}`;
    if (line.dataset.mark !== shown) {
      line.dataset.mark = shown;
      icon.replaceChildren(markIcon(mark, halo, server));
    }
    if (b.textContent !== name) b.textContent = name;
    if (span.textContent !== words) span.textContent = line.title = words;
  }
}

// @ts-check
/**
 * The tools at the upper right of a stage: larger type, full screen, a tab of JupyterLab, and what
 * can be taken along. One stop of the Tab key; arrows go from one to the next.
 *
 * @typedef {import("./stage.js").Stage} Stage
 */
import { ledByArrow } from "./arrow_keys.js";
import {
  canFilm,
  copyText,
  fileName,
  filmOf,
  gifOf,
  inNotebook,
  momentAsText,
  pngOf,
  saveFile,
  svgOfStage,
} from "./sharing.js";

const SAID_MS = 6000; // so long an answer stays

const icon = (/** @type {string} */ path) =>
  `<svg viewBox="0 0 16 16" width="14" height="14" fill="none" stroke="currentColor" stroke-width="1.6" aria-hidden="true"><path d="${path}"/></svg>`;
const ICONS = {
  full: icon("M2 6V2h4M10 2h4v4M14 10v4h-4M6 14H2v-4"),
  tab: icon("M7 3H2v11h11V9M9 2h5v5M14 2L7.5 8.5"),
};
const HTML = `
  <button data-tool="larger" aria-label="Larger, for a lecture hall" aria-keyshortcuts="P" title="larger, for a lecture hall: P">A<small>A</small></button>
  <button data-tool="full" aria-label="Full screen" aria-keyshortcuts="F" title="full screen: F">${ICONS.full}</button>
  <button data-tool="tab" aria-label="Open in a tab of JupyterLab" title="open in a tab of JupyterLab, which stays while cells scroll" hidden>${ICONS.tab}</button>
  <button data-tool="share" aria-haspopup="menu" aria-expanded="false" title="this moment as an address or a picture">Share</button>`;
const SHARES = [
  ["copy", "Copy this moment", "C"],
  ["png", "Picture: PNG", ""],
  ["svg", "Picture: SVG", ""],
  ["gif", "This call, moving: GIF", ""],
  ["webm", "This run, moving: WebM", ""],
];

export class Tools {
  /**
   * @param {Stage} stage
   * @param {(title: string) => Promise<boolean>} [openTab]  where the host has tabs (tab.js)
   */
  constructor(stage, openTab) {
    this.stage = stage;
    this.openTab = openTab;
    this.body = stage.$(".wb-tools");
    this.body.innerHTML = HTML;
    this.menu = document.createElement("ul");
    this.menu.className = "wb-share";
    this.menu.setAttribute("role", "menu");
    this.menu.setAttribute("aria-label", "Share");
    this.menu.hidden = true;
    this.answer = document.createElement("p");
    this.answer.className = "wb-answer";
    this.answer.setAttribute("role", "status");
    this.body.after(this.menu, this.answer);
    const link = document.createElement("button"); // to this moment, beside its sentence
    Object.assign(link, {
      className: "wb-link",
      textContent: "Link here",
      title: "copy this moment: C",
    });
    link.onclick = () => void this.share("copy");
    stage.$(".wb-say").append(link);
    this.busy = false;
    this.#menuItems();
    for (const button of this.buttons) {
      button.tabIndex = button === this.buttons[0] ? 0 : -1;
      button.onclick = () => this.#press(button.dataset.tool ?? "");
    }
    this.body.onkeydown = (event) => this.#walk(event);
    this.menu.onkeydown = (event) => this.#key(event);
    this.menu.addEventListener("focusout", (event) => {
      if (!this.menu.contains(/** @type {Node | null} */ (event.relatedTarget))) this.close(false);
    });
    stage.screen.changed = () => this.#mark();
    this.#mark();
  }

  /** @returns {HTMLButtonElement[]} */
  get buttons() {
    return [...this.body.querySelectorAll("button")];
  }

  #menuItems() {
    this.menu.replaceChildren(
      ...SHARES.filter(([what]) => what !== "webm" || canFilm()).map(([what, words, key]) => {
        const item = document.createElement("li");
        item.setAttribute("role", "menuitem");
        item.tabIndex = -1;
        item.dataset.share = what;
        item.append(words, Object.assign(document.createElement("kbd"), { textContent: key }));
        item.onclick = () => {
          this.close();
          void this.share(what);
        };
        return item;
      }),
    );
  }

  /** What is on is pressed; what this page has not is not there. */
  #mark() {
    const { screen, root } = this.stage;
    const [larger, full, tab] = this.buttons;
    larger.setAttribute("aria-pressed", String(screen.larger));
    full.setAttribute("aria-pressed", String(screen.full));
    tab.hidden = !root.closest("#jp-main-dock-panel .jp-Notebook .jp-OutputArea") || screen.full;
  }

  /** @param {string} tool */
  #press(tool) {
    const { screen } = this.stage;
    if (tool === "larger") screen.toggleLarger();
    if (tool === "full") void screen.toggleFull();
    if (tool === "share") this.open();
    if (tool === "tab") void this.#openTab();
  }

  async #openTab() {
    const title = this.stage.known.run?.title || "Picture";
    const done = await this.openTab?.(title).catch(() => false);
    if (!done)
      this.say("Click beside the picture with the right button: Create New View for Cell Output.");
  }

  /** From tool to tool by arrows. @param {KeyboardEvent} event */
  #walk(event) {
    const shown = this.buttons.filter((button) => !button.hidden);
    const next = ledByArrow(event, shown);
    if (!next) return;
    for (const button of this.buttons) button.tabIndex = button === next ? 0 : -1;
    next.focus();
  }

  open() {
    this.menu.hidden = false;
    this.buttons[3].setAttribute("aria-expanded", "true");
    /** @type {HTMLElement} */ (this.menu.children[0]).focus();
  }

  /** @param {boolean} [refocus] */
  close(refocus = true) {
    this.menu.hidden = true;
    this.buttons[3].setAttribute("aria-expanded", "false");
    if (refocus) this.buttons[3].focus();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation();
    const items = /** @type {HTMLElement[]} */ ([...this.menu.children]);
    const at = items.indexOf(/** @type {HTMLElement} */ (event.target));
    const last = items.length - 1;
    const act = {
      ArrowDown: () => items[at === last ? 0 : at + 1].focus(),
      ArrowUp: () => items[at === 0 ? last : at - 1].focus(),
      Home: () => items[0].focus(),
      End: () => items[last].focus(),
      Enter: () => items[at]?.click(),
      " ": () => items[at]?.click(),
      Escape: () => this.close(),
    }[event.key];
    if (!act) return;
    act();
    event.preventDefault();
  }

  /** @param {string} what */
  async share(what) {
    if (this.busy) return;
    this.busy = true;
    const { stage } = this;
    try {
      if (what === "copy") return await this.#copy();
      const makers = /** @type {Record<string, () => Promise<Blob | null>>} */ ({
        png: () => pngOf(stage),
        svg: async () => svgOfStage(stage),
        gif: () =>
          gifOf(stage, (share) => this.say(`Drawing the call: ${Math.round(100 * share)} %`)),
        webm: () =>
          filmOf(stage, (share) => this.say(`Filming the run: ${Math.round(100 * share)} %`)),
      });
      const blob = await makers[what]();
      if (!blob) return this.say("There is nothing to show yet.");
      saveFile(blob, fileName(stage, what));
      this.say(`Saved as ${fileName(stage, what)}, ${Math.ceil(blob.size / 1000)} kB.`);
    } catch (error) {
      this.say(`The picture could not be made: ${error instanceof Error ? error.message : error}`);
    } finally {
      this.busy = false;
    }
  }

  async #copy() {
    const text = momentAsText(this.stage);
    const copied = await copyText(text);
    const field = Object.assign(document.createElement("input"), { value: text, readOnly: true });
    field.setAttribute("aria-label", "this moment");
    const where = inNotebook(this.stage) ? "Paste it into a cell, where run is the run." : "";
    this.say(copied ? `Copied. ${where}` : "Copy it from here:", field);
    if (!copied) field.select();
  }

  /** @param {string} words @param {HTMLElement[]} more */
  say(words, ...more) {
    this.answer.replaceChildren(words, ...more);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.answer.replaceChildren(), SAID_MS);
  }
}

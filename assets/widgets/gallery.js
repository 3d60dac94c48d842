// @ts-check
/**
 * Presets as cards: some with a recorded run that moves, the others folded by group; all can be
 * searched. A click runs one; "change first" puts it into the form. Pictures come as messages, on
 * request: a widget's state, which a notebook keeps, has none.
 */
import { named, ungate } from "./packed.js";

/** @typedef {{name: string, words: string, group: string, moves: boolean}} Card */

/** @param {string} tag @param {Record<string, string>} [given] @param {...(Node | string)} children */
function made(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A button. @param {string} kind @param {() => void} press @param {...(Node | string)} children */
function pressed(kind, press, ...children) {
  const button = made("button", { type: "button", class: kind }, ...children);
  button.onclick = press;
  return button;
}

/** Whether a text has all these words. @param {string} text @param {string} words */
export const hasWords = (text, words) =>
  words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.toLowerCase().includes(word));

class Gallery {
  /** @param {any} model @param {HTMLElement} el */
  constructor(model, el) {
    this.model = model;
    this.cards = /** @type {Map<string, HTMLElement>} */ (new Map());
    this.urls = /** @type {string[]} */ ([]);
    const presets = /** @type {Card[]} */ (model.get("presets"));
    for (const one of presets) this.cards.set(one.name, this.card(one));
    const row = (/** @type {Card[]} */ some) =>
      made("div", { class: "wb-cards" }, ...some.map((one) => this.cardOf(one.name)));
    const still = presets.filter((one) => !one.moves);
    this.kinds = [...new Set(still.map((one) => one.group))].map((group) => {
      const some = still.filter((one) => one.group === group);
      const summary = made("summary", {}, group, made("small", {}, ` ${some.length}`));
      return /** @type {HTMLDetailsElement} */ (made("details", {}, summary, row(some)));
    });
    this.search = /** @type {HTMLInputElement} */ (
      made("input", {
        type: "search",
        "aria-label": "Search the presets",
        placeholder: `Search ${presets.length} of them`,
      })
    );
    this.search.oninput = () => this.seek();
    this.search.onkeydown = (event) => event.stopPropagation(); // not JupyterLab's shortcuts
    this.none = made("p", { class: "wb-quiet", role: "status" }, "None has these words.");
    this.none.hidden = true;
    this.living = row(presets.filter((one) => one.moves));
    this.living.classList.add("wb-living");
    this.all = /** @type {HTMLDetailsElement} */ (
      made(
        "details",
        { class: "wb-all" },
        made("summary", {}, "Start one of these"),
        this.search,
        this.living,
        ...this.kinds,
        this.none,
      )
    );
    this.all.ontoggle = () => {
      if (this.all.open) this.ask();
    };
    el.classList.add("wb-gallery");
    el.append(this.all);
  }

  /** @param {string} name */
  cardOf(name) {
    return /** @type {HTMLElement} */ (this.cards.get(name));
  }

  /** @param {Card} preset */
  card({ name, words, group, moves }) {
    const say = (/** @type {string} */ type) => () => this.model.send({ type, name });
    const change = pressed("wb-change", say("choose"), "change first");
    change.setAttribute("aria-label", `Change first: ${name}`);
    const text = made("span", moves ? { "aria-hidden": "true" } : {}, words);
    const picture = made("img", { alt: words, width: "400", height: "225" });
    const inside = [made("b", {}, name), ...(moves ? [picture] : []), text];
    const card = made(
      "div",
      { class: "wb-card" },
      pressed("wb-run", say("run"), ...inside),
      change,
    );
    card.dataset.text = `${name} ${words} ${group}`;
    return card;
  }

  seek() {
    const words = this.search.value.trim();
    let shown = 0;
    for (const part of [this.living, ...this.kinds]) {
      const cards = /** @type {HTMLElement[]} */ ([...part.querySelectorAll(".wb-card")]);
      for (const card of cards) card.hidden = !hasWords(card.dataset.text ?? "", words);
      const found = cards.filter((card) => !card.hidden).length;
      part.hidden = !found;
      if (part instanceof HTMLDetailsElement) part.open = words !== "" && found > 0;
      shown += found;
    }
    this.none.hidden = shown > 0;
  }

  /** Ask for the pictures that suit this page. */
  ask() {
    const theme = document.body.dataset.jpThemeLight;
    const dark = theme ? theme === "false" : matchMedia("(prefers-color-scheme: dark)").matches;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.model.send({ type: "pictures", dark, still });
  }

  /** @param {any} content @param {DataView[]} buffers */
  hear(content, buffers) {
    if (content?.type !== "pictures") return;
    this.forget();
    content.names.forEach((/** @type {string} */ name, /** @type {number} */ i) => {
      const url = URL.createObjectURL(
        new Blob([/** @type {any} */ (buffers[i])], { type: "image/webp" }),
      );
      this.urls.push(url);
      this.cardOf(name).querySelector("img")?.setAttribute("src", url);
    });
  }

  look() {
    this.all.open = this.model.get("unfolded");
    for (const [name, card] of this.cards) {
      card.classList.toggle("wb-chosen", name === this.model.get("chosen"));
      const run = /** @type {HTMLButtonElement} */ (card.querySelector(".wb-run"));
      run.disabled = this.model.get("busy");
    }
  }

  forget() {
    for (const url of this.urls.splice(0)) URL.revokeObjectURL(url);
  }
}

export default {
  /** @param {{model: any, el: HTMLElement}} host */
  render({ model, el }) {
    const gallery = new Gallery(model, el);
    const look = () => gallery.look();
    const hear = (/** @type {any} */ content, /** @type {DataView[]} */ buffers) =>
      gallery.hear(content, buffers);
    const theme = new MutationObserver(() => gallery.all.open && gallery.ask());
    theme.observe(document.body, { attributeFilter: ["data-jp-theme-light"] });
    model.on("change", look);
    model.on("msg:custom", hear);
    void named(model, "_own").then((whole) => {
      ungate(whole);
      model.send({ type: "state" }); // what was lost before
      if (gallery.all.open) gallery.ask();
    });
    look();
    return () => {
      theme.disconnect();
      model.off("change", look);
      model.off("msg:custom", hear);
      gallery.forget();
    };
  },
};

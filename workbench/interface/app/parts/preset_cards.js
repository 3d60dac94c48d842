// @ts-check
/**
 * The presets as cards: eight with a recorded run that moves, the others folded by group. A card
 * starts its preset; "change first" puts it into the fields.
 * @typedef {import("./form.js").Preset} Preset
 */

import { h } from "./dom.js";
import { leadByArrows } from "./preset_keys.js";

export class PresetCards {
  /**
   * @param {Preset[]} presets
   * @param {(name: string, card: HTMLElement) => void} run
   * @param {(name: string, card: HTMLElement) => void} change
   */
  constructor(presets, run, change) {
    this.cards = /** @type {Map<string, HTMLElement>} */ (
      new Map(presets.map((one) => [one.name, card(one, run, change)]))
    );
    const cardsOf = (/** @type {Preset[]} */ some) =>
      some.map(({ name }) => /** @type {HTMLElement} */ (this.cards.get(name)));
    this.living = leadByArrows(
      h(
        "div",
        { class: "presets living", role: "group", "aria-label": "Recorded runs of eight presets" },
        ...cardsOf(presets.filter((one) => one.pictures.light)),
      ),
    );
    const folded = presets.filter((one) => !one.pictures.light);
    this.folded = [...new Set(folded.map((one) => one.group))].map((group) => {
      const cards = cardsOf(folded.filter((one) => one.group === group));
      return h(
        "details",
        { class: "kind" },
        h("summary", {}, h("h3", {}, group), h("span", { class: "quiet" }, String(cards.length))),
        leadByArrows(h("div", { class: "presets", role: "group", "aria-label": group }, ...cards)),
      );
    });
  }

  /**
   * Show which is chosen, and whether any can be pressed now.
   * @param {string} chosen  "" for none
   * @param {boolean} disabled
   */
  show(chosen, disabled) {
    for (const [name, card] of this.cards) {
      card.classList.toggle("chosen", name === chosen);
      card.querySelector(".change")?.setAttribute("aria-pressed", String(name === chosen));
      for (const button of card.querySelectorAll("button")) button.disabled = disabled;
    }
  }
}

/**
 * @param {Preset} preset
 * @param {(name: string, card: HTMLElement) => void} run
 * @param {(name: string, card: HTMLElement) => void} change
 * @returns {HTMLElement}
 */
function card({ name, words, group, pictures }, run, change) {
  const whole = h("div", { class: "preset", "data-group": group });
  whole.append(
    h(
      "button",
      { type: "button", class: "card", onclick: () => run(name, whole) },
      h("b", {}, name),
      ...moving(pictures, words),
      h("span", { "aria-hidden": pictures.light && "true" }, words),
    ),
    h(
      "button",
      {
        type: "button",
        class: "change",
        "aria-label": `Change first: ${name}`,
        title: "Put it into the fields, and open them beside the cards",
        onclick: () => change(name, whole),
      },
      "change first",
    ),
  );
  return whole;
}

/**
 * A recorded run on the ground of the page, still for who wants nothing to move.
 * @param {Record<string, string>} pictures  their addresses; may be none
 * @param {string} words  what they show
 */
function moving(pictures, words) {
  return ["light", "dark"]
    .filter((ground) => pictures[ground])
    .map((ground) =>
      h(
        "picture",
        { class: `on-${ground}` },
        h("source", {
          media: "(prefers-reduced-motion: reduce)",
          srcset: pictures[`${ground} still`],
        }),
        h("img", { src: pictures[ground], alt: words, width: 400, height: 225, loading: "lazy" }),
      ),
    );
}

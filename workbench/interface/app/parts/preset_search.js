// @ts-check
/**
 * The search of the presets: those that have all the words that were typed stay, in their groups.
 * ArrowDown and Enter lead to the first of them.
 */

import { h } from "./dom.js";
import { keepStop } from "./preset_keys.js";

/**
 * The field to type in, and what is said where no preset has these words.
 * @param {HTMLElement[]} kinds  the groups of cards; those that can be folded open on what is found
 * @param {number} count  of the presets
 */
export function presetSearch(kinds, count) {
  const none = h("p", { class: "quiet", role: "status", hidden: true }, "None has these words.");
  const seek = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const kind of /** @type {any[]} */ (kinds)) {
      const cards = [...kind.querySelectorAll(".preset")];
      for (const card of cards) {
        const text =
          `${card.dataset.group} ${card.querySelector(".card").textContent}`.toLowerCase();
        card.hidden = !words.every((/** @type {string} */ word) => text.includes(word));
      }
      const found = cards.filter((card) => !card.hidden).length;
      kind.hidden = !found;
      kind.open = words.length > 0 && found > 0;
      keepStop(kind);
      shown += found;
    }
    none.hidden = shown > 0;
  };
  const field = h("input", {
    type: "search",
    class: "seek",
    "aria-label": "Search the presets",
    placeholder: `Search ${count} of them`,
    oninput: seek,
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "ArrowDown" && event.key !== "Enter") return;
      const first = kinds.find(
        (kind) => !kind.hidden && kind.querySelector(".preset:not([hidden])"),
      );
      event.preventDefault();
      /** @type {HTMLElement | null | undefined} */ (
        first?.querySelector(".preset:not([hidden]) button")
      )?.focus();
    },
  });
  return { field, none };
}

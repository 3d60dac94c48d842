// @ts-check
/** A row of tabs, which scrolls where it is wider than the page; the server shows what was chosen. */

import { h, part } from "./dom.js";

/** @typedef {{tabs: {name: string, label: string}[], chosen: string, label: string}} State */

export default part((body, /** @type {State} */ state, tell) => {
  const choose = (/** @type {string} */ name) => tell({ type: "choose", name });
  const move = (/** @type {KeyboardEvent} */ event) => {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!way) return;
    const at = state.tabs.findIndex((tab) => tab.name === state.chosen);
    choose(state.tabs[(at + way + state.tabs.length) % state.tabs.length].name);
  };
  const focused = body.contains(/** @type {ShadowRoot} */ (body.getRootNode()).activeElement);
  const before = body.firstElementChild?.scrollLeft ?? 0;
  body.replaceChildren(
    h(
      "div",
      { class: "tabs", role: "tablist", "aria-label": state.label, onkeydown: move },
      ...state.tabs.map(({ name, label }) =>
        h(
          "button",
          {
            type: "button",
            role: "tab",
            "aria-selected": String(name === state.chosen),
            tabindex: name === state.chosen ? 0 : -1,
            onclick: () => choose(name),
          },
          label,
        ),
      ),
    ),
  );
  const row = /** @type {HTMLElement} */ (body.firstElementChild);
  const tab = /** @type {HTMLElement | null} */ (row.querySelector("[tabindex='0']"));
  row.scrollLeft = before;
  if (tab) {
    // the chosen tab is in view, and the page stays where it is
    const left = tab.offsetLeft - row.offsetLeft;
    const faded = parseFloat(getComputedStyle(row).paddingRight);
    const least = left + tab.offsetWidth + faded - row.clientWidth;
    row.scrollLeft = Math.min(Math.max(before, least), left);
  }
  if (focused) /** @type {HTMLElement} */ (body.querySelector("[tabindex='0']"))?.focus();
});

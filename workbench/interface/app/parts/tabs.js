// @ts-check
/** A row of tabs; the server shows what was chosen. */

import { h, part } from "./dom.js";

/** @typedef {{tabs: {name: string, label: string}[], chosen: string, label: string}} Told */

export default part((body, /** @type {Told} */ told, tell) => {
  const choose = (/** @type {string} */ name) => tell({ type: "choose", name });
  const move = (/** @type {KeyboardEvent} */ event) => {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!way) return;
    const at = told.tabs.findIndex((tab) => tab.name === told.chosen);
    choose(told.tabs[(at + way + told.tabs.length) % told.tabs.length].name);
  };
  const focused = body.contains(/** @type {ShadowRoot} */ (body.getRootNode()).activeElement);
  body.replaceChildren(
    h(
      "div",
      { class: "tabs", role: "tablist", "aria-label": told.label, onkeydown: move },
      ...told.tabs.map(({ name, label }) =>
        h(
          "button",
          {
            type: "button",
            role: "tab",
            "aria-selected": String(name === told.chosen),
            tabindex: name === told.chosen ? 0 : -1,
            onclick: () => choose(name),
          },
          label,
        ),
      ),
    ),
  );
  if (focused) /** @type {HTMLElement} */ (body.querySelector("[tabindex='0']"))?.focus();
});

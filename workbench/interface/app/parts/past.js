// @ts-check
/** Past runs of this browser: which there are, which to compare, and the comparison as a table. */

import { h, part } from "./dom.js";

/**
 * @typedef {{id: string, name: string, state: string, words: string, href: string, live: boolean,
 *   ticked: boolean}} Entry
 * @typedef {{runs: Entry[], table: string[][], heading?: string}} State  the table's first row names
 *   the runs; an entry without an id has not started
 */

/** @param {Entry} entry @param {() => void} tick */
function line(entry, tick) {
  const box = h("input", {
    type: "checkbox",
    id: `past-${entry.id}`,
    checked: entry.ticked,
    onchange: tick,
    "aria-label": `Compare ${entry.name}`,
  });
  box.dataset.run = entry.id;
  return h(
    "li",
    {},
    entry.id ? box : "",
    entry.id ? h("a", { href: entry.href }, entry.name) : h("span", {}, entry.name),
    h("span", { class: `state ${entry.state}` }, entry.state),
    h("span", { class: "quiet" }, entry.words),
  );
}

/** @param {string[][]} rows */
function table([head, ...rows]) {
  const cells = (/** @type {string[]} */ row, /** @type {string} */ tag) =>
    row.map((text, i) => h(i ? tag : "th", { scope: i ? null : "row" }, text));
  const differs = (/** @type {string[]} */ row) => row.length > 2 && new Set(row.slice(1)).size > 1;
  return h(
    "div",
    { class: "wide" },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ...cells(head, "th"))),
      h(
        "tbody",
        {},
        ...rows.map((row) =>
          h("tr", { class: differs(row) ? "differs" : null }, ...cells(row, "td")),
        ),
      ),
    ),
  );
}

export default part((body, /** @type {State} */ state, tell) => {
  const tick = () =>
    tell({
      type: "tick",
      ids: [...body.querySelectorAll("input:checked")].map(
        (box) => /** @type {HTMLElement} */ (box).dataset.run,
      ),
    });
  // a new list keeps the reader's place
  const focused = /** @type {ShadowRoot} */ (body.getRootNode()).activeElement?.id;
  body.replaceChildren(
    h("h2", {}, state.heading ?? "Your runs"),
    state.runs?.length
      ? h("ul", { class: "past" }, ...state.runs.map((entry) => line(entry, tick)))
      : h(
          "p",
          { class: "quiet" },
          "None yet. Runs that you start stay here to be compared until your browser ends.",
        ),
    state.table?.length ? table(state.table) : "",
  );
  if (focused)
    /** @type {HTMLElement | null} */ (body.querySelector(`#${CSS.escape(focused)}`))?.focus();
});

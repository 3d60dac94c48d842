// @ts-check
/** Past runs of this browser: which there are, which to compare, and the comparison as a table. */

import { h, part } from "./dom.js";

/**
 * @typedef {{id: string, name: string, state: string, words: string, href: string, live: boolean,
 *   ticked: boolean, kept?: boolean}} Entry  kept: it belongs to a comparison
 * @typedef {{id: string, name: string, colour: string, dash: string, reference: boolean}} Name
 *   of a run in the table; colour, dash: of its line in the charts, as SVG writes them
 * @typedef {{text: string, change: string, best: boolean}} Cell
 * @typedef {{name: string, cells: Cell[], same?: boolean}} Row  same: all cells are alike
 * @typedef {{runs: Entry[], names: Name[], table: Row[], heading?: string, note?: string}} State
 *   note: below the table; an entry without an id has not started
 */

/** How a run's line looks in the charts. @param {Name} name */
function lineKey({ colour, dash }) {
  const key = h("span", { class: "line-key", "aria-hidden": "true" });
  key.innerHTML =
    '<svg width="26" height="10"><line x1="1" y1="5" x2="25" y2="5" stroke-width="2.5"/></svg>';
  const line = key.querySelector("line");
  line.setAttribute("stroke", colour);
  line.setAttribute("stroke-dasharray", dash);
  return key;
}

/**
 * @param {Entry} entry @param {() => void} tick @param {(message: any) => void} tell
 */
function line(entry, tick, tell) {
  const box = h("input", {
    type: "checkbox",
    id: `past-${entry.id}`,
    checked: entry.ticked,
    onchange: tick,
    "aria-label": `Compare ${entry.name}`,
  });
  box.dataset.run = entry.id;
  const name = entry.id ? h("a", { href: entry.href }, entry.name) : h("span", {}, entry.name);
  const rename = () => {
    const was = entry.name.replace(/^\d+ · /, "");
    const field = h("input", { type: "text", class: "rename", value: was, maxLength: 80 });
    field.setAttribute("aria-label", "The run's name");
    let over = false;
    const end = (/** @type {boolean} */ take) => {
      if (over) return;
      over = true;
      if (take && field.value !== was) tell({ type: "rename", id: entry.id, name: field.value });
      field.replaceWith(name);
    };
    field.onblur = () => end(true);
    field.onkeydown = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter" || event.key === "Escape") end(event.key === "Enter");
    };
    name.replaceWith(field);
    field.select();
    field.focus();
  };
  const remove = () => tell({ type: "delete", id: entry.id });
  const act = (/** @type {string} */ words, /** @type {() => void} */ onclick) =>
    h("button", { class: "small", onclick, "aria-label": `${words} ${entry.name}` }, words);
  return h(
    "li",
    {},
    entry.id ? box : "",
    name,
    h("span", { class: `state ${entry.state}` }, entry.state),
    h("span", { class: "quiet" }, entry.words),
    entry.id ? act("Rename", rename) : "",
    entry.id && !entry.live && !entry.kept ? act("Delete", remove) : "",
  );
}

/**
 * Only rows in which the runs differ, unless the reader wants ``all``.
 * @param {State} state @param {(message: any) => void} tell @param {boolean} all
 */
function table({ names, table: rows, note = "" }, tell, all) {
  const several = names.length > 1;
  const head = names.map((name) =>
    h(
      "th",
      { scope: "col" },
      several ? lineKey(name) : "",
      name.name,
      several && name.reference ? h("small", {}, "reference") : "",
      several && !name.reference
        ? h(
            "button",
            { class: "small", onclick: () => tell({ type: "reference", id: name.id }) },
            "compare with it",
          )
        : "",
    ),
  );
  const cell = (/** @type {Cell} */ { text, change, best }) =>
    h(
      "td",
      { class: best ? "best" : null },
      text,
      best ? h("span", { class: "mark", title: "the best of these runs" }, " ★") : "",
      change ? h("small", {}, change) : "",
    );
  const same = rows.filter((row) => row.same).length;
  const whole = h("table", { class: all ? null : "differing" });
  const box = h("input", {
    type: "checkbox",
    id: "all-rows",
    checked: all,
    onchange: () => whole.classList.toggle("differing", !box.checked),
  });
  whole.append(
    h("thead", {}, h("tr", {}, h("th", {}, ""), ...head)),
    h(
      "tbody",
      {},
      ...rows.map(({ name, cells, same: alike }) =>
        h(
          "tr",
          { class: alike ? "same" : null },
          h("th", { scope: "row" }, name),
          ...cells.map(cell),
        ),
      ),
    ),
  );
  return h(
    "div",
    { class: "wide" },
    same
      ? h("label", { class: "quiet" }, box, ` All rows; ${same} are the same for all of these runs`)
      : "",
    whole,
    note ? h("p", { class: "quiet" }, note) : "",
  );
}

export default part((body, /** @type {State} */ state, tell) => {
  if (body.querySelector("input.rename")) return; // a name is being written; the next change comes
  const tick = () =>
    tell({
      type: "tick",
      ids: [...body.querySelectorAll("li input:checked")].map(
        (box) => /** @type {HTMLElement} */ (box).dataset.run,
      ),
    });
  const all =
    /** @type {HTMLInputElement | null} */ (body.querySelector("#all-rows"))?.checked ?? false;
  // a new list keeps the reader's place
  const focused = /** @type {ShadowRoot} */ (body.getRootNode()).activeElement?.id;
  body.replaceChildren(
    h("h2", {}, state.heading ?? "Your runs"),
    state.runs?.length
      ? h("ul", { class: "past" }, ...state.runs.map((entry) => line(entry, tick, tell)))
      : h(
          "p",
          { class: "quiet" },
          state.runs
            ? "None yet. Runs that you start stay here to be compared until your browser ends."
            : "Loading …",
        ),
    state.names?.length ? table(state, tell, all) : "",
  );
  if (focused)
    /** @type {HTMLElement | null} */ (body.querySelector(`#${CSS.escape(focused)}`))?.focus();
});

// @ts-check
/** Comparisons to start at a click, and those of this browser that were started. */

import { h, part, same } from "./dom.js";

/**
 * @typedef {{name: string, words: string, group: string}} Question
 * @typedef {{questions: Question[], started: {name: string, words: string, href: string}[],
 *   busy: string, refused: string}} State
 */

/** @param {State} state @param {(message: any) => void} tell */
function cards(state, tell) {
  const card = (/** @type {Question} */ { name, words, group }) =>
    h(
      "div",
      { class: "preset" },
      h(
        "button",
        {
          type: "button",
          class: "card",
          disabled: !!state.busy,
          onclick: () => tell({ type: "compare", name }),
        },
        h("b", {}, name),
        h("span", {}, words),
        h("small", {}, group),
      ),
    );
  return h("div", { class: "presets" }, ...state.questions.map(card));
}

const drawn = new WeakMap();

export default part((body, /** @type {State} */ state, tell) => {
  if (!state.questions || same(drawn.get(body), state)) return;
  const was = drawn.get(body);
  drawn.set(body, state);
  // the folded cards stay as the reader left them
  const open = body.querySelector("details")?.open ?? false;
  // so does the place of the keyboard, while what is around it is drawn anew
  const focused = /** @type {ShadowRoot} */ (body.getRootNode()).activeElement;
  const at = was ? [...body.querySelectorAll("button")].indexOf(/** @type {any} */ (focused)) : -1;
  body.replaceChildren(
    h(
      "details",
      { class: "more", open },
      h(
        "summary",
        {},
        "Or compare: several runs, one after another, and their results side by side",
      ),
      h("p", { class: "quiet", role: "status" }, state.busy),
      h("p", { class: "wrong whole", role: "alert" }, state.refused),
      cards(state, tell),
    ),
    state.started.length
      ? h(
          "ul",
          { class: "past", "aria-label": "Comparisons that you started" },
          ...state.started.map((one) =>
            h(
              "li",
              {},
              h("a", { href: one.href }, one.name),
              h("span", { class: "quiet" }, one.words),
            ),
          ),
        )
      : "",
  );
  if (at >= 0) /** @type {any} */ (body.querySelectorAll("button")[at])?.focus();
});

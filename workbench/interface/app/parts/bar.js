// @ts-check
/**
 * The head of a run's page: what it is, what the server has to say about it, and where one can go
 * from here.
 */

import { copies, h, part, whole } from "./dom.js";

/**
 * @typedef {{label: string, href: string, save?: boolean}} Way
 * @typedef {{title: string, words: string, notice: string, serious: boolean, watch: string,
 *   again: string, ways: Way[], code: string, verdict?: string}} State  verdict: of a comparison
 */

export default part((body, /** @type {State} */ state, tell) => {
  const head = JSON.stringify([state.title, state.watch, state.ways, state.again]);
  if (body.dataset.head !== head) {
    // so that a button that says "Copied" is left alone
    body.dataset.head = head;
    body.classList.add("bar");
    body.replaceChildren(
      h("div", { class: "title" }, h("h1", {}, state.title), h("p", { class: "words quiet" })),
      h("p", { class: "notice", role: "status" }),
      h(
        "div",
        { class: "row" },
        state.again &&
          h("button", { type: "button", onclick: () => tell({ type: "again" }) }, state.again),
        ...state.ways.map((way) =>
          h("a", { class: "button", href: way.href, download: way.save }, way.label),
        ),
        state.code &&
          h(
            "details",
            { class: "code" },
            h("summary", { class: "button" }, "The code that this runs"),
            h("pre", { tabindex: 0 }, h("code", {}, state.code)),
            copies("Copy the code", () => state.code),
          ),
        state.watch &&
          h(
            "span",
            { class: "link" },
            h("label", { for: "watch" }, "To watch only:"),
            h("input", {
              id: "watch",
              readonly: true,
              value: whole(state.watch),
              onfocus: (/** @type {any} */ e) => e.target.select(),
            }),
            copies("Copy", () => whole(state.watch), { "aria-label": "Copy the watch link" }),
          ),
      ),
    );
  }
  const say = (/** @type {string} */ where, /** @type {string} */ text) => {
    const line = /** @type {HTMLElement} */ (body.querySelector(where));
    if (line.textContent !== text) line.textContent = line.title = text;
  };
  say(".words", state.words);
  say(".notice", state.notice || (state.verdict ?? ""));
  body.querySelector(".notice")?.classList.toggle("verdict", !state.notice);
  body.querySelector(".notice")?.classList.toggle("wrong", state.serious);
});

// @ts-check
/** Jobs that were started elsewhere, each a link to a page that shows it. */

import { h, part } from "./dom.js";

/** @typedef {{jobs: {name: string, words: string}[]}} State */

export default part((body, /** @type {State} */ state) => {
  body.replaceChildren(
    h("h2", {}, "Jobs to watch"),
    state.jobs?.length
      ? h(
          "ul",
          { class: "past" },
          ...state.jobs.map(({ name, words }) =>
            h(
              "li",
              {},
              h("a", { href: `./job?name=${encodeURIComponent(name)}` }, name),
              h("span", { class: "quiet" }, words),
            ),
          ),
        )
      : h("p", { class: "quiet" }, "None yet. Attached jobs stand here once a rank records."),
  );
});

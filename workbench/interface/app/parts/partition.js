// @ts-check
/**
 * The sliders of a partition: each change is told at once; the server draws, or says why it cannot
 * be.
 */

import { copies, h, part } from "./dom.js";

/**
 * @typedef {{values: Record<string, any>, most: Record<string, number>, samplers: Record<string,
 *   string>, refused: string, code: string}} State
 */

const SLIDERS = /** @type {[string, string, number][]} */ ([
  ["samples", "samples", 96],
  ["batch_size", "minibatch", 64],
  ["ranks", "ranks", 16],
  ["epochs", "epochs", 4],
]); // how far a slider reaches; a number typed may be more
const TICKS = ["shuffle", "drop_last", "set_epoch"];

/** @param {State} told @param {() => void} change */
function controls({ values, most, samplers }, change) {
  const sliders = SLIDERS.map(([name, label, reach]) => {
    const range = h("input", {
      type: "range",
      min: 1,
      max: reach,
      value: values[name],
      "aria-label": label,
    });
    const box = h("input", {
      type: "number",
      id: `of-${name}`,
      name,
      min: 1,
      max: most[name],
      value: values[name],
    });
    range.oninput = () => ((box.value = range.value), change());
    box.oninput = () => ((range.value = box.value), change());
    return h("span", { class: "deal-field" }, h("label", { for: `of-${name}` }, label), range, box);
  });
  const seed = h(
    "span",
    { class: "deal-field" },
    h("label", { for: "of-seed" }, "seed"),
    h("input", {
      type: "number",
      id: "of-seed",
      name: "seed",
      min: 0,
      max: most.seed,
      value: values.seed,
      oninput: change,
    }),
  );
  const ticks = TICKS.map((name) =>
    h(
      "label",
      { class: "deal-tick" },
      h("input", { type: "checkbox", name, checked: values[name], onchange: change }),
      name,
    ),
  );
  const sampler = h(
    "select",
    { name: "sampler", "aria-label": "sampler", onchange: change },
    ...Object.entries(samplers).map(([name, words]) => h("option", { value: name }, words)),
  );
  return [
    h("div", { class: "deal-row" }, ...sliders),
    h("div", { class: "deal-row" }, sampler, seed, ...ticks),
  ];
}

export default part((body, /** @type {State} */ state, tell) => {
  if (!state.values) return;
  if (!body.childElementCount) {
    const read = () =>
      Object.fromEntries(
        [...body.querySelectorAll("input[name], select[name]")].map((one) => {
          const { name, type, value, checked } = /** @type {HTMLInputElement} */ (one);
          return [
            name,
            type === "checkbox" ? checked : type === "number" ? Math.round(Number(value)) : value,
          ];
        }),
      );
    const suit = () => {
      const workbench =
        /** @type {HTMLSelectElement} */ (body.querySelector("select")).value === "workbench";
      for (const name of ["drop_last", "set_epoch"]) {
        const input = /** @type {HTMLInputElement} */ (body.querySelector(`[name=${name}]`));
        input.disabled = workbench;
      }
    };
    let waiting = 0;
    const change = () => {
      suit();
      clearTimeout(waiting);
      // a slider moves faster than it matters
      waiting = window.setTimeout(() => tell({ type: "values", values: read() }), 60);
    };
    body.append(
      ...controls(state, change),
      h("p", { class: "notice wrong", role: "status" }),
      h(
        "div",
        { class: "row" },
        h("code", { class: "deal-code" }),
        copies("Copy", () => body.querySelector(".deal-code")?.textContent ?? ""),
      ),
    );
  }
  const put = (/** @type {string} */ where, /** @type {string} */ text) => {
    const node = /** @type {HTMLElement} */ (body.querySelector(where));
    if (node.textContent !== text) node.textContent = text;
  };
  put(".notice", state.refused ?? "");
  put(".deal-code", state.code ?? "");
});

// @ts-check
/**
 * An input of the form whose value is picked from a list, or typed.
 * @typedef {import("./form.js").Field} Field
 */

import { h } from "./dom.js";

const OTHER = "…another"; // an entry of a list, which no value is

/**
 * A list to pick from, and a text for what is not in it; its value is that of either.
 * @param {Field} field
 * @param {Record<string, any>} common  of its inputs
 */
export function picker(field, common) {
  const other = h("input", {
    ...common,
    id: `${common.id}-other`,
    type: "text",
    hidden: true,
    autocomplete: "off",
    spellcheck: "false",
    "aria-label": `${field.label}, another`,
  });
  const list = h(
    "select",
    {
      ...common,
      onchange: () => {
        other.hidden = list.value !== OTHER;
        if (!other.hidden) other.focus();
        common.onchange();
      },
    },
    ...field.suggestions.map((one) => h("option", { value: one }, one || "as the others")),
    h("option", { value: OTHER }, "another …"),
  );
  const box = h("div", { class: "picker" }, list, other);
  const shown = () => (list.value === OTHER ? other : list);
  Object.defineProperty(box, "value", {
    get: () => shown().value,
    set: (/** @type {any} */ value) => {
      const known = field.suggestions.includes(String(value));
      list.value = known ? value : OTHER;
      other.value = known ? "" : value;
      other.hidden = known;
    },
  });
  box.focus = () => shown().focus();
  box.setAttribute = (/** @type {string} */ name, /** @type {string} */ value) => {
    for (const one of [list, other]) one.setAttribute(name, value);
  };
  return box;
}

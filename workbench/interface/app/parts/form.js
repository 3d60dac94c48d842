// @ts-check
/**
 * The form: presets, each of which starts at a click, or fills the fields first; a field for each
 * of the experiment's, the code that it runs, and the button. Between a click and the server's
 * answer nothing can be started: what is in the fields, what they are called and what is started
 * are one and the same.
 */

import { copies, h, part, same, whole } from "./dom.js";
import { picker } from "./picker.js";
import { PresetCards } from "./preset_cards.js";
import { presetSearch } from "./preset_search.js";

const WAIT_MS = 250; // after the last key until the server is asked what it makes of the values
const POLICY = "options.consistency";
const PATIENCE_MS = 15_000; // with an answer; then the click may be done again

/**
 * @typedef {{name: string, label: string, group: string, kind: string, help: string, unit: string,
 *   choices: string[], docs: Record<string, string>, labels: Record<string, string>, suggestions: string[], phrases: string[],
 *   maximum: number | null, optional: boolean, lines: number, advanced: boolean,
 *   strategies: string[], policies: string[]}} Field
 * @typedef {{name: string, words: string, group: string, pictures: Record<string, string>}} Preset
 * @typedef {{fields: Field[], presets: Preset[],
 *   chosen: string, filled: number, values: Record<string, any>, wrong: Record<string, string>,
 *   code: string, link: string, limits: string, first: string, title: string, busy: string,
 *   refused: string, answered: number}} State
 */

class Form {
  /** @param {HTMLElement} body @param {State} state @param {(message: any) => void} tell */
  constructor(body, state, tell) {
    this.tell = tell;
    this.state = state;
    this.timer = 0;
    /** @type {HTMLElement | undefined} */
    this.from = undefined; // the card beside which the form stands
    this.closes = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape" && !event.defaultPrevented) this.putBack();
    };
    this.filled = -1;
    // the newest click, until it is answered; what is done meanwhile
    this.asked = { n: 0, words: "", scroll: false };
    this.isRefused = false; // the newest start, for what is in the fields
    this.patience = 0;
    this.inputs = /** @type {Map<string, any>} */ (new Map());
    this.captions = /** @type {Map<string, HTMLElement>} */ (new Map());
    this.code = h("code");
    this.refused = h("p", { class: "wrong whole", role: "alert" });
    this.start = h("button", { type: "button", class: "main", onclick: () => this.go() });
    this.first = h("button", {
      type: "button",
      class: "main large",
      onclick: () => this.goFirst(),
    });
    this.presets = new PresetCards(
      state.presets,
      (name, card) => this.click({ type: "run", name }, card, "Starting the ranks …"),
      (name, card) => this.click({ type: "preset", name }, card, `Filling in ${name} …`, true),
    );
    const { living, folded } = this.presets;
    const search = presetSearch([living, ...folded], state.presets.length);
    const plain = state.fields.filter((field) => !field.advanced);
    const advanced = state.fields.filter((field) => field.advanced);
    this.more = h(
      "details",
      { class: "more" },
      h("summary", {}, "More options"),
      this.groups(advanced),
    );
    body.replaceChildren(
      (this.top = h(
        "div",
        { class: "row go first" },
        this.first,
        h("span", { class: "quiet" }, state.limits),
      )),
      (this.both = h(
        "div",
        { class: "both" },
        h(
          "section",
          {},
          h("div", { class: "row" }, h("h2", {}, "Or start one of these"), search.field),
          living,
          ...folded,
          search.none,
        ),
        (this.panel = h(
          "div",
          { class: "panel" },
          h("button", { type: "button", class: "close", onclick: () => this.putBack() }, "Close"),
          (this.sheet = h(
            "section",
            { class: "sheet" },
            h(
              "form",
              {
                onsubmit: (/** @type {Event} */ event) => {
                  event.preventDefault();
                  this.go();
                },
              },
              h("h2", { tabindex: -1 }, "Turn the knobs"),
              this.groups(plain),
              this.more,
              h("input", { type: "submit", hidden: true }),
            ),
            h(
              "aside",
              {},
              h("h2", {}, "The code that this runs"),
              h("pre", { tabindex: 0 }, this.code),
              h(
                "div",
                { class: "row" },
                copies("Copy the code", () => this.state.code),
                copies("Copy a link to this form", () => whole(`./?spec=${this.state.link}`)),
              ),
            ),
          )),
          (this.bottom = h("div", { class: "row go last" }, this.start, this.refused)),
        )),
      )),
    );
  }

  /** The top button: what the fields hold, once they hold something else than it started with. */
  goFirst() {
    if (this.state.title === this.state.first)
      this.click({ type: "first" }, this.top, "Starting the ranks …");
    else this.go(this.top);
  }

  /** Start what the fields say. @param {HTMLElement} place  where it is said if that cannot be */
  go(place = this.bottom) {
    clearTimeout(this.timer);
    this.click(
      { type: "start", values: this.values(), filled: this.filled },
      place,
      "Starting the ranks …",
    );
  }

  /**
   * Ask for something that is one at a time.
   * @param {any} message
   * @param {HTMLElement} place
   * @param {string} words  of what is done meanwhile
   * @param {boolean} [scroll]  to the fields, once they are filled
   */
  click(message, place, words, scroll = false) {
    if (this.state.busy || this.asked.words) return;
    this.asked = { n: this.asked.n + 1, words, scroll };
    this.isRefused = false;
    place.append(this.refused);
    this.refused.textContent = "";
    this.tell({ ...message, n: this.asked.n });
    this.patience = setTimeout(
      () => this.answered("No answer from the server. Try again."),
      PATIENCE_MS,
    );
    this.buttons();
  }

  /** @param {string} words */
  answered(words) {
    clearTimeout(this.patience);
    this.asked = { ...this.asked, words: "", scroll: false };
    this.refused.textContent = words;
    this.buttons();
  }

  /** What can be pressed now, and what it does. */
  buttons() {
    const { state } = this;
    const busy = state.busy || this.asked.words;
    // none is chosen before its values are there
    this.presets.show(this.asked.scroll ? "" : state.chosen, !!busy);
    this.start.textContent = busy || "Start this run";
    this.first.textContent = busy || `Start: ${small(state.title || "what the fields say")}`;
    for (const button of [this.start, this.first]) button.disabled = !!busy;
  }

  /** @param {Field[]} fields */
  groups(fields) {
    const names = [...new Set(fields.map((field) => field.group))];
    return h(
      "div",
      { class: "groups" },
      ...names.map((name) =>
        h(
          "fieldset",
          {},
          h("legend", {}, name),
          ...fields.filter((field) => field.group === name).map((field) => this.field(field)),
        ),
      ),
    );
  }

  /** @param {Field} field */
  field(field) {
    const id = `field-${field.name}`;
    const caption = h("small", { id: `${id}-about` });
    const common = {
      id,
      "aria-describedby": `${id}-about`,
      oninput: () => this.changed(),
      onchange: () => this.changed(0),
    };
    const input =
      field.kind === "bool"
        ? h("input", { ...common, type: "checkbox" })
        : field.suggestions.length
          ? picker(field, common)
          : field.choices.length
            ? h(
                "select",
                common,
                ...field.choices.map((choice) =>
                  h("option", { value: choice }, field.labels[choice] ?? choice),
                ),
              )
            : field.lines > 1
              ? h("textarea", { ...common, rows: field.lines, spellcheck: "false" })
              : h("input", {
                  ...common,
                  type: "text",
                  autocomplete: "off",
                  spellcheck: "false",
                  inputmode: { int: "numeric", float: "decimal" }[field.kind],
                  placeholder: field.optional ? "left out" : null,
                  onkeydown:
                    field.kind === "int"
                      ? (/** @type {KeyboardEvent} */ event) => this.nudge(event, field)
                      : null,
                });
    this.inputs.set(field.name, input);
    this.captions.set(field.name, caption);
    const label = h(
      "label",
      { for: id },
      field.label,
      field.unit && h("span", { class: "unit" }, ` ${field.unit}`),
    );
    const add = field.phrases.length > 0 && this.phrases(field);
    return h("div", { class: `field ${field.kind}` }, label, input, add, caption);
  }

  /** A list of lines, one of which is put below those that are there. @param {Field} field */
  phrases(field) {
    const list = h(
      "select",
      {
        "aria-label": `${field.label}: add a line`,
        onchange: () => {
          const input = this.inputs.get(field.name);
          const lines = input.value.split("\n").filter((/** @type {string} */ one) => one.trim());
          input.value = [...lines, list.value].join("\n");
          list.value = "";
          input.focus();
          this.changed(0);
        },
      },
      h("option", { value: "" }, "add a line …"),
      ...field.phrases.map((phrase) => h("option", { value: phrase }, phrase)),
    );
    return list;
  }

  /** Arrow keys count. @param {KeyboardEvent} event @param {Field} field */
  nudge(event, field) {
    const way = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    const input = this.inputs.get(field.name);
    if (!way || !/^\s*\d+\s*$/.test(input.value)) return;
    event.preventDefault();
    const next = Number(input.value) + way;
    if (next < 0 || (field.maximum !== null && next > field.maximum)) return;
    input.value = String(next);
    this.changed();
  }

  /** What the fields say: numbers where they are numbers, else the text as it was typed. */
  values() {
    const entries = this.state.fields.map((field) => {
      const input = this.inputs.get(field.name);
      if (field.kind === "bool") return [field.name, input.checked];
      const text = input.value.trim();
      const number = Number(text);
      const numeric =
        (field.kind === "int" || field.kind === "float") && text && Number.isFinite(number);
      return [field.name, numeric ? number : input.value];
    });
    return Object.fromEntries(entries);
  }

  /** The options of the strategy and the policy that are chosen, and of no other. */
  suit() {
    const strategy = this.inputs.get("strategy")?.value;
    const policy = this.inputs.get(POLICY)?.value;
    const policies = this.state.fields.find(({ name }) => name === POLICY)?.strategies ?? [];
    for (const field of this.state.fields) {
      if (!field.strategies.length && !field.policies.length) continue;
      const ofPolicy = policies.includes(strategy) && field.policies.includes(policy);
      const shown = field.strategies.includes(strategy) || ofPolicy;
      this.inputs.get(field.name).parentElement.hidden = !shown;
    }
  }

  changed(wait = WAIT_MS) {
    this.suit();
    clearTimeout(this.timer);
    this.timer = setTimeout(
      () => this.tell({ type: "values", values: this.values(), filled: this.filled }),
      wait,
    );
  }

  /** @param {State} state */
  look(state) {
    this.state = state;
    if (state.filled !== this.filled) this.fill(state);
    const { n, words: asked, scroll } = this.asked;
    const answers = asked && state.answered === n;
    if (answers) clearTimeout(this.patience);
    this.suit();
    for (const field of state.fields) {
      const wrong = state.wrong[field.name];
      const input = this.inputs.get(field.name);
      const caption = this.captions.get(field.name);
      const words = wrong || field.docs[input.value] || field.help;
      if (caption && caption.textContent !== words) caption.textContent = words;
      caption?.classList.toggle("wrong", !!wrong);
      input.setAttribute("aria-invalid", String(!!wrong));
      if (wrong && field.advanced) this.more.open = true;
    }
    if (this.code.textContent !== state.code) this.code.textContent = state.code;
    const invalid = state.fields.filter((field) => state.wrong[field.name]);
    const labels = invalid.map((field) => field.label.toLowerCase()).join(", ");
    this.isRefused = labels !== "" && (this.isRefused || !!answers);
    const see = this.isRefused ? `Not started. Correct these fields: ${labels}.` : "";
    const refused = state.refused || state.wrong[""] || see;
    if (answers && !state.busy) this.answered(refused);
    else this.refused.textContent = refused;
    this.buttons();
    if (answers && scroll) this.openBeside();
    if (answers && !scroll)
      // it was not started: see here
      this.inputs.get(Object.keys(state.wrong).find((name) => name) ?? "")?.focus();
  }

  /** Show the form beside the cards, or below them where a page is narrow. */
  openBeside() {
    this.both.classList.add("beside");
    addEventListener("keydown", this.closes); // wherever the focus is
    const card = (this.from = this.presets.cards.get(this.state.chosen));
    const fits = getComputedStyle(this.panel).position === "fixed";
    (fits ? card : this.sheet)?.scrollIntoView({ block: fits ? "nearest" : "start" });
    this.sheet.querySelector("h2").focus({ preventScroll: true });
  }

  /** Show it below the cards again. */
  putBack() {
    if (!this.both.classList.contains("beside")) return;
    this.both.classList.remove("beside");
    removeEventListener("keydown", this.closes);
    /** @type {HTMLElement | null | undefined} */
    const change = this.from?.querySelector(".change"); // chosen no more, once a field has changed
    change?.focus();
  }

  /** Put the server's values into the fields: of a preset, or of a link. @param {State} state */
  fill(state) {
    this.filled = state.filled;
    for (const [name, input] of this.inputs) {
      const value = state.values[name];
      if (input.type === "checkbox") input.checked = !!value;
      else input.value = value ?? "";
    }
  }
}

/** A name within a sentence. @param {string} name */
const small = (name) =>
  /^[A-Z][A-Z]/.test(name) ? name : name.charAt(0).toLowerCase() + name.slice(1);

const forms = new WeakMap();

export default part((body, state, tell) => {
  if (!forms.has(body)) forms.set(body, new Form(body, state, tell));
  else if (same(forms.get(body).state, state)) return;
  forms.get(body).look(state);
});

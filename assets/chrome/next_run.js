// @ts-check
/**
 * Knobs of the next run, above the picture: its ranks, its algorithm, its microbatches. One that is turned
 * starts the same experiment with that value; the run before stays beside it, its losses as a ghost line.
 * Until that run has started the knobs stay, and cannot be turned.
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("../engine/player.js").Known} Known
 * @typedef {import("../engine/trials.js").Knob} Knob
 */
import { isStarting, knobDoes, knobWords, knobsOf, trialWords } from "../engine/trials.js";
import { isOver } from "../engine/player.js";
import { piece } from "./targets.js";

export class NextRun {
  /** @param {Stage} stage @param {(answer: {ok: boolean, words: string}) => void} answer */
  constructor(stage, answer) {
    this.stage = stage;
    this.answer = answer;
    this.body = piece("span", "wb-next");
    this.again = piece("button", "", "Run it again");
    this.again.onclick = async () => answer(await stage.act("run_with", {}));
    this.shown = "";
    this.starting = false;
    this.told = ""; // what became of the last one that was asked for
  }

  /** @param {Known} known @returns {boolean} whether a knob can be turned */
  say(known) {
    const knobs = knobsOf(known);
    const starting = isStarting(known);
    const isSaidAbove = !starting && !!known.run?.trials?.names.length; // beside both names
    const words = isSaidAbove ? "" : trialWords(known);
    if (words !== this.told) this.answer({ ok: true, words });
    this.told = words;
    if (this.starting && !starting) this.shown = ""; // it may not have started: as they were
    this.starting = starting;
    const key = JSON.stringify(knobs);
    this.body.hidden = !knobs.length;
    this.again.hidden = !isOver(known) || !!known.run?.can_start; // where no other button does it
    if (key !== this.shown)
      this.body.replaceChildren(
        piece("b", "", "Run again with"),
        ...knobs.map((knob) => this.#knob(knob)),
        this.again,
      );
    this.shown = key;
    const does = knobDoes(known);
    const parts = /** @type {NodeListOf<HTMLSelectElement | HTMLButtonElement>} */ (
      this.body.querySelectorAll("select, button")
    );
    for (const part of parts) part.disabled = starting;
    for (const select of this.body.querySelectorAll("select")) select.title = does;
    return knobs.length > 0;
  }

  /** @param {Knob} knob */
  #knob({ name, label, now, values }) {
    const select = document.createElement("select");
    for (const value of values) select.add(new Option(knobWords(value), String(value)));
    select.value = String(now);
    let isAsked = false;
    const turn = async () => {
      if (isAsked) return;
      isAsked = true;
      const value = values.find((one) => String(one) === select.value);
      const answer = await this.stage.act("run_with", { [name]: value });
      isAsked = false;
      if (!answer.ok) select.value = String(now);
      this.answer(answer);
    };
    let byKey = false; // arrows lead through the values, and Enter starts the run
    select.onkeydown = ({ key }) => {
      if (key === "Tab") return;
      byKey = key !== "Enter";
      if (!byKey && select.value !== String(now)) turn();
    };
    select.onpointerdown = () => (byKey = false);
    select.onchange = () =>
      byKey ? this.answer({ ok: true, words: "Enter starts that run." }) : turn();
    select.onblur = () => {
      if (byKey) select.value = String(now);
    };
    const row = piece("label", "");
    row.append(`${label} `, select);
    return row;
  }
}

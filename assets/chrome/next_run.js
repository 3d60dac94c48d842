// @ts-check
/**
 * Knobs of the next run, above the picture: its ranks, its algorithm, its microbatches. One that is turned
 * starts the same experiment with that value; the run before stays beside it, its losses as a ghost line.
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("../engine/player.js").Known} Known
 * @typedef {import("../engine/trials.js").Knob} Knob
 */
import { knobWords, knobsOf, trialWords } from "../engine/trials.js";
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
    this.told = ""; // what became of the last one that was asked for
  }

  /** @param {Known} known @returns {boolean} whether a knob can be turned */
  say(known) {
    const knobs = knobsOf(known);
    const words = trialWords(known);
    if (words !== this.told) this.answer({ ok: true, words });
    this.told = words;
    const key = JSON.stringify(knobs);
    this.body.hidden = !knobs.length;
    this.again.hidden = !isOver(known) || !!known.run?.can_start; // where no other button does it
    if (key === this.shown) return knobs.length > 0;
    this.shown = key;
    this.body.replaceChildren(
      piece("b", "", "Next run"),
      ...knobs.map((knob) => this.#knob(knob)),
      this.again,
    );
    return knobs.length > 0;
  }

  /** @param {Knob} knob */
  #knob({ name, label, now, values }) {
    const select = document.createElement("select");
    for (const value of values) select.add(new Option(knobWords(value), String(value)));
    select.value = String(now);
    select.onchange = async () => {
      const value = values.find((one) => String(one) === select.value);
      const answer = await this.stage.act("run_with", { [name]: value });
      if (!answer.ok) select.value = String(now);
      this.answer(answer);
    };
    select.title = "starts the same experiment with this value; this run ends first";
    const row = piece("label", "");
    row.append(`${label} `, select);
    return row;
  }
}

// @ts-check
/**
 * Knobs above the picture: those of the next run (next_run.js), and of a run that goes on the latency and
 * bandwidth of all its links. These act on the ranks at once, as a link that is dragged does, and are
 * taken back as that is.
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("../engine/player.js").Known} Known
 */
import {
  BANDWIDTHS,
  LATENCIES,
  linkWords,
  onlyWatches,
  valueOfAll,
  whyNot,
} from "../engine/actions.js";
import { NextRun } from "./next_run.js";
import { piece } from "./targets.js";

const MOST = 16; // ranks whose links are changed at once (views/pages/commands.py)
const KNOBS = /** @type {const} */ ([
  [
    "latency",
    "Latency",
    LATENCIES,
    "how much longer each message takes: from now on, on every link",
  ],
  ["bandwidth", "Bandwidth", BANDWIDTHS, "the most that passes over each link, from now on"],
]);

export class Knobs {
  /** @param {Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.row = stage.$(".wb-knobs");
    this.answer = piece("span", "wb-trials-say");
    this.answer.setAttribute("role", "status");
    this.undo = piece("button", "wb-trials-undo", "Undo");
    this.undo.title = "takes back what was last done to the ranks: Ctrl-Z";
    this.undo.onclick = () => this.takeBack();
    this.asked = -Infinity; // when a slider was last moved: the run's answer is on its way
    this.knobs = KNOBS.map(([what, title, values, does]) => {
      const input = document.createElement("input");
      const now = piece("output", "");
      Object.assign(input, { type: "range", min: 0, max: values.length - 1, step: 1, value: 0 });
      input.setAttribute("aria-label", `${what} of all links`);
      const show = (/** @type {string} */ words) => {
        now.textContent = words;
        input.setAttribute("aria-valuetext", words);
      };
      input.oninput = () => {
        this.asked = performance.now();
        show(linkWords(values[Number(input.value)]));
      };
      input.onchange = async () => {
        const args = { every: true, [what]: values[Number(input.value)] };
        this.#say(await stage.acts.do({ verb: "link", args }));
      };
      const label = piece("label", "");
      label.title = does;
      label.append(`${title} `, input, " ", now);
      return { what, values, input, label, show };
    });
    this.links = piece("span", "wb-next");
    this.links.append(piece("b", "", "All links"), ...this.knobs.map(({ label }) => label));
    this.next = new NextRun(stage, (answer) => this.#say(answer));
    this.row.setAttribute("aria-label", "Knobs");
    this.row.append(this.next.body, this.links, this.undo, this.answer);
  }

  /** Take back what was last done: to the ranks, here or in a card; then the newest run. */
  async takeBack() {
    const { acts, known } = this.stage;
    const ofRanks = acts.count || !known.run?.trials?.names.length;
    this.#say(await (ofRanks ? acts.takeBack() : this.stage.act("undo_trial", {})));
  }

  /** @param {{ok: boolean, words: string}} answer */
  #say({ words }) {
    this.asked = performance.now();
    this.answer.textContent = words;
    this.stage.touch();
  }

  /** As the links are now. @param {Known} known */
  say(known) {
    const { stage, row, undo, links, next } = this;
    const ranks = known.run?.ranks ?? 0;
    links.hidden = !!whyNot(known) || onlyWatches(stage) || ranks < 2 || ranks > MOST;
    const turned = next.say(known);
    row.hidden = links.hidden && !turned;
    if (links.hidden) undo.hidden = true;
    if (links.hidden) return;
    undo.hidden = !stage.acts.count;
    if (performance.now() - this.asked < 1000) return;
    for (const { what, values, input, show } of this.knobs) {
      const value = valueOfAll(known, what);
      const at = values.indexOf(value ?? "");
      if (at >= 0) input.value = String(at);
      show(value === null ? "differs" : linkWords(value));
    }
  }
}

// @ts-check
/**
 * Knobs above the picture: those of the next run (next_run.js), and of a run that goes on the latency and
 * bandwidth of all its links. These act on the ranks at once, as a link that is dragged does, and are
 * taken back as that is.
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("../engine/player.js").Known} Known
 */
import { BANDWIDTHS, LATENCIES, allLinks, onlyWatches, whyNot } from "../engine/actions.js";
import { NextRun } from "./next_run.js";
import { piece } from "./targets.js";

const MOST = 16; // ranks whose links are changed at once (views/pages/commands.py)
const KNOBS = /** @type {const} */ ([
  ["latency", "Latency", LATENCIES],
  ["bandwidth", "Bandwidth", BANDWIDTHS],
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
    this.knobs = KNOBS.map(([what, title, values]) => {
      const input = document.createElement("input");
      const now = piece("output", "");
      Object.assign(input, { type: "range", min: 0, max: values.length - 1, step: 1, value: 0 });
      input.setAttribute("aria-label", `${what} of all links`);
      const words = () => values[Number(input.value)].replace("unlimited", "no limit");
      const show = () => {
        now.textContent = words();
        input.setAttribute("aria-valuetext", words());
      };
      input.oninput = () => {
        this.asked = performance.now();
        show();
      };
      input.onchange = async () => {
        const args = { every: true, [what]: values[Number(input.value)] };
        this.#say(await stage.acts.do({ verb: "link", args }));
      };
      const label = piece("label", "");
      label.append(`${title} `, input, " ", now);
      return { what, values, input, now, label, show };
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
    const all = allLinks(known);
    for (const { what, values, input, now, show } of this.knobs) {
      const at = values.indexOf(
        what === "latency" ? `${all?.latency_ms} ms` : (all?.bandwidth ?? ""),
      );
      if (at >= 0) input.value = String(at);
      show();
      if (at < 0) now.textContent = "as set";
    }
  }
}

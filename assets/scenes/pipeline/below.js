// @ts-check
/**
 * What stands below a pipeline's picture: the bubble by reason, where the time went in words, and
 * what is selected.
 *
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("../../engine/page_state.js").Look} Look
 * @typedef {import("./selection.js").Pass} Pass
 * @typedef {import("./index.js").Task} Task
 */
import { Chart } from "../../drawing/chart.js";
import { linesOf, stageRowWords, taskWords } from "./captions.js";
import { bubbleHeight, bubbleWords, drawBubble } from "./charts.js";

const NONE_CHOSEN =
  "click an action to see what it needed; ↑ ↓ choose a stage, Enter what it does at the playhead";

export class BelowPipeline {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.body = body;
    this.stage = stage;
    this.drawn = { words: "", bubble: "" };
  }

  /** @param {string} selector @returns {any} */
  $(selector) {
    return this.body.querySelector(selector);
  }

  /**
   * Say and draw what an iteration's time went into, and what is selected.
   * @param {Look} look
   * @param {Pass | null} pass
   * @param {Task | null | undefined} task  the action that is chosen
   */
  say(look, pass, task) {
    if (pass) this.#sayBubble(look, pass);
    this.#sayWords(pass);
    const rank = look.choice?.rank;
    const row = pass && rank !== undefined ? rank - pass.replica * pass.facts.ranks : -1;
    const lines =
      pass && task ? taskWords(pass, task) : pass?.rows[row] ? stageRowWords(pass, row) : [];
    this.#put(".wb-pl-chosen dt", "selected");
    this.#put(".wb-pl-chosen dd", lines.join("; ") || NONE_CHOSEN);
  }

  /** @param {string} selector @param {string} text */
  #put(selector, text) {
    const node = this.$(selector);
    if (node.textContent !== text) node.textContent = text;
  }

  /** @param {Look} look @param {Pass} pass */
  #sayBubble(look, pass) {
    const canvas = this.$(".wb-pl-bubble");
    const width = canvas.clientWidth || 400;
    const key = [
      pass.key,
      pass.complete ? 0 : pass.passes.index.version,
      width,
      look.ink.ground,
      look.ink.wait,
      look.ratio,
    ].join();
    if (key === this.drawn.bubble) return;
    this.drawn.bubble = key;
    const height = bubbleHeight(pass.rows.length);
    const g = this.stage.paper(canvas, width, height);
    drawBubble(new Chart({ ...look, g, width, height }), pass);
    canvas.setAttribute("aria-label", bubbleWords(pass));
  }

  /** @param {Pass | null} pass */
  #sayWords(pass) {
    const lines = pass?.all.whole ? linesOf(pass) : [];
    const text = JSON.stringify(lines);
    if (text === this.drawn.words) return;
    this.drawn.words = text;
    this.$(".wb-pl-words").replaceChildren(
      ...lines.map((line) => {
        const row = document.createElement("tr");
        row.append(
          ...line.map((words) =>
            Object.assign(document.createElement("td"), { textContent: words }),
          ),
        );
        return row;
      }),
    );
  }
}

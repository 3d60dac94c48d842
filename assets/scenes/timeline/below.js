// @ts-check
/**
 * What stands below the lanes: what an iteration's communication was made of, and who holds up whom,
 * in words.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./draw.js").Canvas} Canvas
 * @typedef {import("./iteration_report.js").IterationReport} IterationReport
 * @typedef {import("./scene.js").TimelineView} TimelineView
 */
import { bucketNames, bucketNumber, parameterWords } from "./buckets.js";
import { chosenWords, coreWords, costWords, overlapWords } from "./captions.js";
import { drawSplit, splitHeight, splitReach } from "./split.js";
import { duration, grouped } from "../../engine/format.js";

export class BelowLanes {
  /** @param {TimelineView} view */
  constructor(view) {
    this.view = view;
    this.reach = 0; // of the split
    this.texts = { words: "", split: "" };
  }

  /**
   * Say and draw what an iteration was made of.
   * @param {Look} look
   * @param {IterationReport} report
   * @param {Canvas} canvas
   */
  say(look, report, canvas) {
    this.#sayLines(linesBelow(look, report, canvas, this.view.buckets));
    this.#drawSplit(look, report, canvas);
  }

  /** @param {[string, string][]} lines */
  #sayLines(lines) {
    const text = JSON.stringify(lines);
    if (this.texts.words === text) return;
    this.texts.words = text;
    this.view
      .$(".wb-tl-words")
      .replaceChildren(
        ...lines.flatMap(([name, words]) => [
          Object.assign(document.createElement("dt"), { textContent: name }),
          Object.assign(document.createElement("dd"), { textContent: words }),
        ]),
      );
  }

  /** @param {Look} look @param {IterationReport} report @param {Canvas} canvas */
  #drawSplit(look, { key: iteration, facts, straggler }, canvas) {
    const { stage, theme } = this.view;
    const split = this.view.$(".wb-tl-split");
    const wide = split.clientWidth || look.width;
    if (facts.length) this.reach = splitReach(this.reach, facts);
    const key = [iteration, wide, theme, look.ratio].join();
    if (key === this.texts.split) return;
    this.texts.split = key;
    drawSplit(
      stage.paper(split, wide, splitHeight(Math.max(1, facts.length || look.ranks))),
      look.ink,
      look.font,
      canvas.waiting,
      canvas.holding,
      canvas.index.script,
      facts,
      this.reach,
      wide,
      straggler?.rank ?? -1,
    );
    split.setAttribute(
      "aria-label",
      facts
        .map(
          (f) =>
            `rank ${f.rank}: ` +
            (canvas.index.script
              ? `${duration(f.exposed)} communicating, `
              : `${duration(f.hidden)} hidden, ${duration(f.exposed)} exposed, `) +
            `${duration(f.waiting)} waiting` +
            `${f.held > 0 ? `, held by you ${duration(f.held)}` : ""}`,
        )
        .join("; ") || "nothing yet",
    );
  }
}

/**
 * Return the lines of the words below, each with its name.
 * @param {Look} look
 * @param {IterationReport} report
 * @param {Canvas} canvas
 * @param {import("./buckets.js").Buckets | null} buckets
 */
function linesBelow({ choice, table }, { facts, straggler, iteration }, { index, cores }, buckets) {
  const lines = /** @type {[string, string][]} */ ([]);
  if (facts.length) {
    const { script } = index;
    lines.push(
      ["overlap", overlapWords(facts, script)],
      ["cost", costWords(facts, straggler, script)],
    );
    const core = coreWords(facts, cores);
    if (core) lines.push(["cores", core]);
  }
  const head =
    choice?.op !== undefined
      ? table.calls.findLast(
          (call) =>
            call.op === choice.op && (choice.group === undefined || call.group === choice.group),
        )
      : undefined;
  const mine = choice?.rank === undefined ? undefined : facts.find((f) => f.rank === choice.rank);
  if (head)
    lines.push([
      "selected",
      chosenWords(
        table,
        head,
        index.extent(head.iteration, head.start)?.from ?? head.start,
        parameterWords(bucketNames(buckets, bucketNumber(head.name), head.iteration)),
      ),
    ]);
  else if (mine)
    lines.push([
      "selected",
      `rank ${mine.rank} in iteration ${grouped(iteration + 1)}: ${duration(mine.computing)} computing, ${duration(mine.hidden + mine.exposed)} communicating, ${duration(mine.waiting)} waiting${
        Number.isFinite(mine.queue) ? `, ${duration(mine.queue)} for a core` : ""
      }`,
    ]);
  return lines;
}

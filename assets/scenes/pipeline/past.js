// @ts-check
/**
 * The pipeline's iterations one after the other: how idle each was, and where a step on or back
 * leads; and what of one is on screen, mark by mark. No drawing.
 *
 * @typedef {import("./selection.js").Pass} Pass
 * @typedef {import("./charts.js").Past} Past
 */
import { boxOf } from "./draw.js";
import { idleShare } from "./idle.js";
import { barTop, momentX } from "./place.js";
import { inputTo, passOf } from "./selection.js";

// ms of a frame for the history of a long run: the rest comes with the next frames
const PATIENCE = 12;

/** How idle each complete iteration was, each worked out once. */
export class PipelinePast {
  constructor() {
    this.key = "";
    this.epoch = -1;
    this.all = /** @type {Map<string, Past>} */ (new Map());
    this.list = /** @type {Past[]} */ ([]);
  }

  /**
   * @param {import("./call_source.js").Passes} passes
   * @param {import("./plan.js").PipelineFacts} facts
   * @param {number} replica
   * @param {string} run
   * @returns {{list: Past[], more: boolean}} more: ask again
   */
  read(passes, facts, replica, run) {
    const key = `${replica} ${passes.life} ${run} ${passes.facts}`;
    const until = performance.now() + PATIENCE;
    if (this.key !== key) Object.assign(this, { key, epoch: -1, all: new Map() });
    if (this.epoch === passes.index.version) return { list: this.list, more: false };
    let more = false;
    this.list = passes.calls
      .filter((head) => head.complete)
      .flatMap((head) => {
        const id = `${head.key} ${head.end}`;
        const had = this.all.get(id);
        if (had) return [had];
        if ((more ||= performance.now() > until)) return [];
        const pass = passOf(passes, facts, head, replica);
        if (!pass) return [];
        const one = {
          iteration: head.iteration,
          start: head.start,
          end: head.end,
          idle: idleShare(pass.all),
          parts: pass.all,
        };
        this.all.set(id, one);
        return [one];
      });
    if (!more) this.epoch = passes.index.version;
    return { list: this.list, more };
  }
}

/**
 * The next action that starts, microbatch that is through, or iteration.
 * @param {import("./call_source.js").Passes} passes
 * @param {Pass} pass
 * @param {number} t
 * @param {string} unit  chunk: an action; step: a microbatch
 * @param {number} way
 */
export function stepOf(passes, pass, t, unit, way) {
  let times = passes.calls.map((head) => head.start);
  if (unit !== "iteration") {
    const last = /** @type {Map<string, number>} */ (new Map());
    for (const task of pass.rows.flat()) {
      const name = unit === "chunk" ? String(task.row) : `${task.iteration} ${task.microbatch}`;
      last.set(name, Math.max(last.get(name) ?? 0, unit === "chunk" ? task.start : task.end));
    }
    times = [...last.values(), ...(unit === "chunk" ? [pass.to] : []), ...times].sort(
      (a, b) => a - b,
    );
  }
  return (way > 0 ? times.find((at) => at > t + 0.5) : times.findLast((at) => at < t - 0.5)) ?? t;
}

/**
 * What is on screen.
 * @param {import("../../chrome/stage.js").Look} look
 * @param {Pass} pass
 * @param {import("./place.js").PipelinePlace} place
 * @param {number} scale
 */
export function marksOf(look, pass, place, scale) {
  const first = pass.replica * pass.facts.ranks;
  const playhead = look.t + look.known.origin;
  const marks = /** @type {any[]} */ ([]);
  for (const task of pass.rows.flat()) {
    const { x, y, w, h } = boxOf(pass, place, scale, task);
    const { rank, stage, kind, microbatch, iteration, version, start, end } = task;
    const hop = inputTo(pass, task)?.hop;
    marks.push({
      mark: "action",
      rank,
      stage,
      kind,
      microbatch,
      iteration,
      version,
      start,
      end,
      share: Math.min(1, Math.max(0, (look.t - start) / Math.max(1, end - start))),
      x,
      y,
      w,
      h,
    });
    if (hop && hop.start <= look.t && look.t < hop.arrive)
      // it lies between two bars
      marks.push({
        mark: "hop",
        rank: hop.from,
        peer: hop.to,
        group: "default",
        op: hop.op,
        what: hop.what,
        microbatch,
        share: (look.t - hop.start) / (hop.arrive - hop.start),
        x: momentX(place, look.t - pass.from, scale),
        y: barTop(place, rank - first),
        playhead,
      });
  }
  for (const { place: row, why, from, to } of pass.idle)
    marks.push({ mark: "idle", rank: first + row, why, start: from, end: to });
  for (const { place: row, stage, kind, microbatch, start, end } of pass.plan?.tasks ?? [])
    marks.push({ mark: "plan", rank: first + row, stage, kind, microbatch, start, end });
  return marks;
}

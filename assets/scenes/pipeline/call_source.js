// @ts-check
/**
 * How a pipeline's run is cut into units: iterations, each from its first action to its last.
 * They have the form of the table's calls, so that the player (player.js) tells them as it tells
 * those, at an even pace: bars are read by their length. Where a schedule has no flush iterations
 * overlap; then each lasts from its first forward to the next one's.
 *
 * @typedef {import("../../engine/table.js").Table} Table
 * @typedef {import("../../engine/table.js").CallHead} CallHead
 * @typedef {import("../../engine/derived_calls.js").Contents} Contents
 * @typedef {import("../../engine/player.js").Known} Known
 * @typedef {import("./index.js").Iteration} Iteration
 * @typedef {import("./index.js").Task} Task
 * @typedef {import("./plan.js").PipelineFacts} PipelineFacts
 */
import { clockOf } from "../../engine/model.js";
import { indexOf } from "./index.js";
import { DerivedCalls, flightsIn } from "../../engine/derived_calls.js";

/** Iterations that an iteration without flush may reach into, before and after it. */
export const REACH = 2;

/**
 * What is known of the pipeline before and without its plan.
 * @param {Known} known
 * @returns {PipelineFacts | null}
 */
export function pipelineOf({ run, table }) {
  if (run?.pipeline) return run.pipeline;
  const index = indexOf(table);
  if (!index.present) return null;
  const ranks = Math.max(run?.ranks ?? 0, index.ranks);
  const home = Array.from({ length: index.stages }, () => 0);
  for (const { tasks } of index.iterations.values())
    for (const { stage, rank } of tasks) home[stage] = rank;
  return {
    schedule: "",
    flush: true,
    ranks,
    replicas: 1,
    stages: index.stages,
    microbatches: index.microbatches,
    rank_of: home,
    rows: [],
    pads_ms: null,
    bubble: null,
    peaks: [],
  };
}

/**
 * Whether every action of an iteration is here.
 * @param {Iteration} iteration
 * @param {PipelineFacts} facts
 */
function passIsWhole({ forwards, backwards }, { stages, microbatches, replicas }) {
  const all = stages * microbatches * replicas;
  return forwards >= all && backwards >= all;
}

/** The key of an iteration; of an attempt that was given up, one of its own. @param {Iteration} one */
const keyOf = ({ iteration, generation, givenUp }) =>
  `pass/${iteration}${givenUp ? `, generation ${generation}` : ""}`;

/** @type {import("../../engine/call_source.js").Words} */
const PASSES_WORDS = {
  units: { chunk: "action", step: "microbatch", iteration: "iteration" },
  strip: "iterations",
  real: "real microbatches",
  where: "iteration",
  ofIterations: true,
};

export class Passes extends DerivedCalls {
  /** @param {Table} table */
  constructor(table) {
    super(table, "passes", "pass", PASSES_WORDS);
    this.index = indexOf(table);
    this.facts = "";
    this.flush = true;
    // what each call is of
    this.attempts = /** @type {Map<string, Iteration>} */ (new Map());
  }

  /**
   * Add the iterations that have come since; those that went on are put again.
   * @param {PipelineFacts} facts
   */
  update(facts) {
    const index = indexOf(this.table);
    const key =
      `${facts.schedule} ${facts.flush} ${facts.stages} ${facts.microbatches} ` +
      `${facts.replicas}`;
    if (this.life !== this.table.life || key !== this.facts)
      // row numbers have changed, or what is whole
      Object.assign(this, new Passes(this.table), { facts: key, flush: facts.flush });
    if (index.version === this.read) return this;
    this.read = index.version;
    this.index = index;
    const { calls } = this;
    const all = [...index.givenUp, ...index.iterations.values()]
      .filter(({ tasks }) => tasks.length)
      .sort((a, b) => a.generation - b.generation || a.iteration - b.iteration);
    this.attempts = new Map(all.map((one) => [keyOf(one), one]));
    const settled = (/** @type {CallHead} */ { complete, name, key }) =>
      this.attempts.get(key)?.givenUp || (complete && (facts.flush || name !== "last"));
    let first = 0;
    while (first < calls.length && settled(calls[first]) && calls[first].key === keyOf(all[first]))
      first += 1;
    for (const { key } of calls.splice(first)) this.callOf.delete(key);
    all.forEach((iteration, i) => {
      if (i < first) return;
      const next = all[i + 1];
      const whole = passIsWhole(iteration, facts);
      // the oldest may have lost its first rows
      const over =
        next && !iteration.givenUp && [...iteration.ranks].every((rank) => next.ranks.has(rank));
      const end =
        facts.flush || !next
          ? whole || over || iteration.givenUp
            ? iteration.to
            : Math.max(iteration.to, Math.min(next?.from ?? Infinity, this.table.to))
          : next.from;
      this.put(
        iteration.iteration,
        iteration.from,
        Math.max(iteration.from + 1, end),
        whole || !!over,
        iteration.tasks.length,
        next ? "" : "last",
        keyOf(iteration),
      );
    });
    return this;
  }

  /**
   * Every action that meets an iteration's time, of other iterations too where they lie over each
   * other.
   * @param {CallHead} head
   * @returns {Task[]}
   */
  tasksIn(head) {
    if (this.flush) return this.attempts.get(head.key)?.tasks ?? [];
    const near = [...this.index.givenUp];
    for (let i = head.iteration - REACH; i <= head.iteration + REACH; i++) {
      const one = this.index.iterations.get(i);
      if (one) near.push(one);
    }
    return near
      .flatMap(({ tasks }) => tasks)
      .filter((task) => task.end > head.start && task.start < head.end);
  }

  /**
   * A pass: its hops, and when each of its tasks began and ended.
   * @param {CallHead} head
   * @returns {Contents}
   */
  contents(head) {
    const span = head.end - head.start;
    const hops = [...(this.attempts.get(head.key)?.hops.values() ?? [])];
    const messages = hops.map((hop) => ({
      ...hop,
      step: hop.stage,
      chunk: hop.microbatch,
      phase: hop.what,
      end: hop.arrive,
    }));
    const times = this.tasksIn(head).flatMap((task) => [
      task.start - head.start,
      task.end - head.start,
    ]);
    return {
      number: head.iteration + 1,
      flights: flightsIn(head, messages).sort((a, b) => a.start - b.start),
      moments: [...new Set(times)].filter((t) => t >= 0 && t <= span).sort((a, b) => a - b),
      clock: clockOf([], span),
    };
  }
}

const passesOfTables = /** @type {WeakMap<Table, Passes>} */ (new WeakMap());

/**
 * The iterations of this run as passes through its pipeline, or null where there is none.
 * @param {Known} known
 * @returns {Passes | null}
 */
export function passesOf(known) {
  const { table } = known;
  if (!indexOf(table).present) return null;
  let passes = passesOfTables.get(table);
  if (!passes) passesOfTables.set(table, (passes = new Passes(table)));
  return passes.update(/** @type {PipelineFacts} */ (pipelineOf(known)));
}

// @ts-check
/**
 * The plan of a pipeline: when each action would start and end if every one took its planned time
 * and nothing took any time in between. A rank does its row's actions in their order, each as soon
 * as what it needs is there. Pure functions; the run says which actions come in which order
 * (run.pipeline.rows), nothing here knows a schedule.
 *
 * @typedef {import("./index.js").ActionKind} ActionKind
 * @typedef {import("./index.js").Task} Task
 * @typedef {{schedule: string, flush: boolean, ranks: number, replicas: number, stages: number,
 *   microbatches: number, rank_of: number[], rows: string[][], pads_ms: number[] | null,
 *   bubble: number | null, peaks: number[], axes?: [string, number][]}} PipelineFacts
 * @typedef {{place: number, stage: number, kind: ActionKind, microbatch: number, start: number,
 *   end: number, free: number}} Planned  free: from when on its rank has nothing else to do
 * @typedef {{tasks: Planned[], of: Map<string, Planned>, rows: Planned[][], span: number,
 *   idle: number, words: string}} Plan  idle: share of all ranks' time
 * @typedef {{F: number, B: number, I: number, W: number}} Times  ns
 */
import { actionOf, followSteps, orderOf } from "./follow.js";

/**
 * When each action would happen. Null for rows that are not all actions, or that wait for each
 * other.
 * @param {string[][]} rows
 * @param {number} stages
 * @param {Times} times
 * @param {string} [words] whose times they are
 * @returns {Plan | null}
 */
export function planOf(rows, stages, times, words = "") {
  const order = orderOf(rows, stages);
  return order && plannedBy(order, times, words);
}

/**
 * @param {import("./follow.js").Order} order
 * @param {Times} times
 * @param {string} words
 * @returns {Plan}
 */
export function plannedBy(order, times, words) {
  const { start, before, span } = followSteps(order, ({ kind }) => times[kind]);
  const of = /** @type {Map<string, Planned>} */ (new Map());
  const rows = /** @type {Planned[][]} */ (Array.from({ length: order.ranks }, () => []));
  const tasks = order.steps.map(({ name, place, stage, kind, microbatch }, i) => ({
    place,
    stage,
    kind,
    microbatch,
    start: start[i],
    end: start[i] + times[kind],
    free: start[i] - before[i],
  }));
  tasks.forEach((task, i) => (of.set(order.steps[i].name, task), rows[task.place].push(task)));
  const busy = tasks.reduce((sum, task) => sum + task.end - task.start, 0);
  return { tasks, of, rows, span, idle: span > 0 ? 1 - busy / (order.ranks * span) : 0, words };
}

/** How long an action lasted. @param {Task} task */
const lastsOf = ({ start, end }) => end - start;

/** The middle of some numbers, whole. @param {number[]} some */
function middleOf(some) {
  const middle = some.length >> 1;
  some.sort((a, b) => a - b);
  return Math.floor(
    some.length % 2 ? some[middle] : some.length ? (some[middle - 1] + some[middle]) / 2 : 0,
  );
}

/**
 * How long each stage's actions of each kind last, in the middle: one that was held up counts no
 * more than another.
 * @param {Task[]} tasks
 * @param {(task: Task) => number} [lasts]
 * @returns {Map<string, number>} ns, by stage and kind: "0F"
 */
export function mediansOf(tasks, lasts = lastsOf) {
  const took = /** @type {Map<string, number[]>} */ (new Map());
  for (const task of tasks) {
    const key = `${task.stage}${task.kind}`;
    const some = took.get(key);
    if (some) some.push(lasts(task));
    else took.set(key, [lasts(task)]);
  }
  return new Map([...took].map(([key, some]) => [key, middleOf(some)]));
}

/**
 * How long a stage's, or a rank's, actions of each kind last.
 * @param {Task[]} tasks
 * @returns {Times} 0 where there is none; a whole backward is both gradients
 */
export function ownTimes(tasks) {
  const of = (/** @type {ActionKind} */ kind) =>
    middleOf(tasks.filter((task) => task.kind === kind).map(lastsOf));
  const [F, B, I, W] = [of("F"), of("B"), of("I"), of("W")];
  return { F, B: B || I + W, I, W };
}

/** The mean of all stages' times. @param {Map<string, number>} medians @returns {Times} */
export function meanTimes(medians) {
  const [F, B, I, W] = ["F", "B", "I", "W"].map((kind) => {
    const known = [...medians].filter(([key]) => key.endsWith(kind)).map(([, ns]) => ns);
    return known.length ? Math.floor(known.reduce((sum, ns) => sum + ns, 0) / known.length) : 0;
  });
  return { F, B: B || I + W, I, W };
}

/**
 * Planned times: those that the run is padded to, else the means over all stages of what was
 * measured.
 * @param {PipelineFacts} facts
 * @param {Map<string, number>} medians
 * @returns {{times: Times, words: string}}
 */
export function plannedTimes({ pads_ms }, medians) {
  if (!pads_ms) return { times: meanTimes(medians), words: "the mean of all stages' own times" };
  const [F, I, W] = pads_ms.map((ms) => Math.floor(ms * 1e6 + 0.5));
  return { times: { F, B: I + W, I, W }, words: "padded times" };
}

/**
 * The most microbatches that each rank is to hold at a time: a forward adds one, and who lets go of
 * it, the input's gradient or the weights', is what agrees with the stages' own most that the run
 * tells.
 * @param {PipelineFacts} facts @returns {number[]}
 */
export function mostHeld({ rows, peaks, stages }) {
  for (const last of [
    ["B", "W"],
    ["B", "I"],
  ]) {
    const most = rows.map(() => 0);
    const mostOfStage = Array(stages).fill(0);
    rows.forEach((row, place) => {
      const held = Array(stages).fill(0);
      let all = 0;
      for (const { stage, kind } of row.map(
        (text) => /** @type {NonNullable<ReturnType<typeof actionOf>>} */ (actionOf(text)),
      )) {
        const by = kind === "F" ? 1 : last.includes(kind) ? -1 : 0;
        most[place] = Math.max(most[place], (all += by));
        mostOfStage[stage] = Math.max(mostOfStage[stage], (held[stage] += by));
      }
    });
    if (!peaks.length || peaks.every((peak, stage) => peak === mostOfStage[stage])) return most;
  }
  return [];
}

/**
 * The formulas that are known for an idle share, as people write them.
 * @param {number} K ranks
 * @param {number} M microbatches
 * @param {number} v stages a rank
 * @returns {[string, number][]}
 */
const FORMULAS = (K, M, v) => [
  ["(K−1)/(M+K−1)", (K - 1) / (M + K - 1)],
  ["(K−1)/(vM+K−1)", (K - 1) / (v * M + K - 1)],
  ["1−1/K", 1 - 1 / K],
];

/**
 * What the plan's idle share is called: a formula where one gives that very number.
 * @param {PipelineFacts} facts
 * @param {number} share
 * @returns {{name: string, short: string}}
 */
export function formulaOf({ ranks, microbatches, stages }, share) {
  const formula = FORMULAS(ranks, microbatches, stages / ranks).find(
    ([, value]) => Math.abs(value - share) < 1e-3,
  );
  return formula
    ? { name: `formula ${formula[0]}`, short: "formula" }
    : { name: "plan", short: "plan" };
}

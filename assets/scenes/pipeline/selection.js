// @ts-check
/**
 * What of a pipeline is on show: one iteration of one replica, its actions row by row, its plan,
 * its idle time split, what its ranks hold. Pure functions of the events and the plan.
 *
 * @typedef {import("../../engine/player.js").Known} Known
 * @typedef {import("../../engine/table.js").CallHead} CallHead
 * @typedef {import("./index.js").Task} Task
 * @typedef {import("./plan.js").PipelineFacts} PipelineFacts
 * @typedef {import("./call_source.js").Passes} Passes
 * @typedef {import("./idle.js").Shares} Shares
 * @typedef {{facts: PipelineFacts, passes: Passes, iteration: number, replica: number,
 *   complete: boolean, attempt: import("./index.js").Iteration | undefined, from: number,
 *   to: number, rows: Task[][],
 *   updates: import("./index.js").Update[], joins: import("./index.js").Join[],
 *   plan: import("./plan.js").Plan | null, idle: import("./idle.js").Idle[], shares: Shares[],
 *   all: Shares, most: number[], lanes: number[][], key: string}} Pass  from, to: ns since the
 *   run's origin; lanes: the stages of each rank; joins: of all replicas; all: of all ranks
 *   together
 */
import { orderOf } from "./follow.js";
import { idleOf, inputOf, netOf, together } from "./idle.js";
import { mediansOf, mostHeld, ownTimes, plannedBy, plannedTimes } from "./plan.js";
import { taskKey } from "./index.js";
import { REACH } from "./call_source.js";
import { countUntil } from "../../engine/search.js";

const KEPT_PLANS = 32; // times differ from one iteration to the next where they are measured

/** The stages of each rank, in order. @param {PipelineFacts} facts */
export function lanesOf({ ranks, rank_of }) {
  const lanes = /** @type {number[][]} */ (Array.from({ length: ranks }, () => []));
  rank_of.forEach((place, stage) => lanes[place]?.push(stage));
  return lanes;
}

const worked =
  /** @type {WeakMap<string[][], {most: number[], order: import("./follow.js").Order | null, plans: Map<string, import("./plan.js").Plan>}>} */ (
    new WeakMap()
  );

/** What follows from a schedule's rows alone, worked out once. @param {PipelineFacts} facts */
function workedOut(facts) {
  let orders = worked.get(facts.rows);
  if (!orders)
    worked.set(
      facts.rows,
      (orders = {
        most: facts.rows.length ? mostHeld(facts) : mostOf(facts),
        order: facts.flush ? orderOf(facts.rows, facts.stages) : null,
        plans: new Map(),
      }),
    );
  return orders;
}

/**
 * The most that each rank is to hold, of ranks with one stage.
 * @param {PipelineFacts} facts
 * @returns {number[]}
 */
const mostOf = (facts) =>
  facts.peaks.length
    ? lanesOf(facts).map((stages) => (stages.length === 1 ? facts.peaks[stages[0]] : 0))
    : [];
/** @param {PipelineFacts} facts */
const mostFor = (facts) => workedOut(facts).most;

/**
 * The plan with these times.
 * @param {PipelineFacts} facts
 * @param {import("./plan.js").Times} times
 * @param {string} words
 */
function planFor(facts, times, words) {
  const { plans, order } = workedOut(facts);
  const key = `${times.F} ${times.B} ${times.I} ${times.W}`;
  const had = plans.get(key);
  if (had || !order) return had ?? null;
  const plan = plannedBy(order, times, words);
  plans.set(key, plan);
  if (plans.size > KEPT_PLANS) plans.delete(/** @type {string} */ (plans.keys().next().value));
  return plan;
}

/** What a task's input was, and how it came. @param {Pass} pass @param {Task} task */
export function inputTo({ facts, passes, replica }, task) {
  const iteration = passes.index.attempt(task.iteration, task.generation);
  return iteration
    ? inputOf(
        task,
        iteration,
        (stage) => replica * facts.ranks + facts.rank_of[stage],
        facts.stages,
      )
    : null;
}

/**
 * The tasks that need what this one makes: the next stage's, this one's own backward and weight
 * gradient.
 * @param {Pass} pass
 * @param {Task} task
 * @returns {Task[]}
 */
export function usersOf({ facts, passes, replica }, task) {
  const { kind, stage, microbatch } = task;
  const of = passes.index.attempt(task.iteration, task.generation)?.of;
  const rank = (/** @type {number} */ s) => replica * facts.ranks + facts.rank_of[s];
  const at = (/** @type {import("./index.js").ActionKind} */ k, /** @type {number} */ s) =>
    s >= 0 && s < facts.stages ? of?.get(taskKey(k, s, microbatch, rank(s))) : undefined;
  const users =
    kind === "F"
      ? [
          at("F", stage + 1),
          ...(stage === facts.stages - 1 ? [at("B", stage) ?? at("I", stage)] : []),
        ]
      : kind === "W"
        ? []
        : [at("B", stage - 1) ?? at("I", stage - 1), ...(kind === "I" ? [at("W", stage)] : [])];
  return /** @type {Task[]} */ (users.filter(Boolean));
}

/**
 * One iteration of one replica; null before its first action.
 * @param {Passes} passes
 * @param {PipelineFacts} facts
 * @param {CallHead} head
 * @param {number} replica
 * @returns {Pass | null}
 */
export function passOf(passes, facts, head, replica) {
  const { index } = passes;
  const { ranks } = facts;
  const first = replica * ranks;
  const rows = /** @type {Task[][]} */ (Array.from({ length: ranks }, () => []));
  for (const task of passes.tasksIn(head)) rows[task.rank - first]?.push(task);
  for (const row of rows) row.sort((a, b) => a.start - b.start || a.end - b.end);
  const tasks = rows.flat();
  if (!tasks.length) return null;
  const from = facts.flush ? Math.min(...tasks.map((task) => task.start)) : head.start;
  const to = facts.flush
    ? Math.max(...tasks.map((task) => task.end))
    : Math.max(head.start + 1, head.end);
  const reach = facts.flush ? 0 : REACH;
  const own = passes.attempts.get(head.key);
  const near = /** @type {import("./index.js").Iteration[]} */ (
    Array.from({ length: 2 * reach + 1 }, (_, i) =>
      i === reach ? own : index.iterations.get(head.iteration - reach + i),
    ).filter(Boolean)
  );
  const frozen = index.frozen
    .map(({ rank, ...span }) => ({ place: rank - first, ...span }))
    .filter(({ place }) => place >= 0 && place < ranks);
  const stops = rows.map((_, place) => frozen.filter((span) => span.place === place));
  const { times, words } = plannedTimes(
    facts,
    mediansOf(tasks, (task) => netOf(task, stops[task.rank - first])),
  );
  const pass = {
    facts,
    passes,
    iteration: head.iteration,
    replica,
    complete: head.complete,
    attempt: own,
    from,
    to,
    rows,
    plan: planFor(facts, times, words),
    idle: [],
    shares: [],
    all: together([]),
    most: mostFor(facts),
    updates: near
      .flatMap((iteration) => iteration.updates)
      .filter(
        ({ rank, start }) =>
          rank >= first && rank < first + ranks && (facts.flush || (start >= from && start < to)),
      ),
    joins: near.flatMap((iteration) => iteration.joins),
    lanes: lanesOf(facts),
    key: `${head.key} ${head.rows} ${replica} ${to} ${index.life}`,
  };
  const around = facts.flush ? [] : near.flatMap((iteration) => iteration.tasks);
  const known = {
    order: workedOut(facts).order,
    equal: times,
    complete: head.complete,
    frozen,
    first: facts.flush || head === passes.calls[0],
    after: (/** @type {number} */ place) =>
      around
        .filter((task) => task.rank === first + place && task.start >= to)
        .sort((a, b) => a.start - b.start)[0],
    needed: (/** @type {Task} */ task) => {
      const producer = inputTo(pass, task)?.producer;
      return producer && producer.rank !== task.rank ? producer.end : NaN;
    },
  };
  const ends = rows.map((row) =>
    head.complete ? to : Math.max(from, ...row.map((task) => task.end)),
  ); // how long an open gap will last is unknown
  const split = idleOf(rows, from, ends, known);
  return Object.assign(pass, split, { all: together(split.shares) });
}

/** The all-reduces over the replicas that this replica's ranks took part in. @param {Pass} pass */
export const joinsHere = ({ joins, facts, replica }) =>
  joins.filter(({ rank }) => Math.floor(rank / facts.ranks) === replica);

/**
 * Microbatches whose activations a rank holds, as steps: [ns, number], the first at the pass's
 * start.
 * @param {Pass} pass
 * @param {number} place
 * @returns {[number, number][]}
 */
export function heldOf({ passes, facts, replica, lanes, from, to, rows }, place) {
  const rank = replica * facts.ranks + place;
  const now = lanes[place].map(() => 0);
  const heldSteps = /** @type {[number, number, number][]} */ ([]);
  lanes[place].forEach((stage, i) => {
    const steps = passes.index.held.get(`${rank} ${stage}`);
    if (!steps) return;
    const first = countUntil(steps.t, from, (t) => t);
    now[i] = first && !facts.flush ? steps.value[first - 1] : 0;
    for (let k = first; k < steps.t.length && steps.t[k] <= to; k++)
      heldSteps.push([steps.t[k], i, steps.value[k]]);
  });
  if (!heldSteps.length) {
    // without a record of it: a forward's activations are held until its backward is over
    let held = 0;
    const moves = rows[place]
      .flatMap(({ kind, start, end }) =>
        kind === "F" ? [[start, 1]] : kind === "B" || kind === "W" ? [[end, -1]] : [],
      )
      .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    return [
      [from, 0],
      .../** @type {[number, number][]} */ (moves.map(([t, by]) => [t, Math.max(0, (held += by))])),
    ];
  }
  const sum = () => now.reduce((a, b) => a + b, 0);
  const points = /** @type {[number, number][]} */ ([[from, sum()]]);
  for (const [t, i, value] of heldSteps.sort((a, b) => a[0] - b[0]))
    ((now[i] = value), points.push([t, sum()]));
  return points;
}

/**
 * The most bytes that a rank held for backward in this pass; NaN: not recorded.
 * @param {Pass} pass
 * @param {number} place
 */
export function bytesOf({ passes, facts, replica, from, to }, place) {
  const steps = passes.index.bytes.get(replica * facts.ranks + place);
  if (!steps) return NaN;
  let most = NaN;
  for (let k = countUntil(steps.t, from, (t) => t); k < steps.t.length && steps.t[k] <= to; k++)
    most = most >= steps.value[k] ? most : steps.value[k];
  return most;
}

/**
 * How many times as long as the others' a stage's actions last, the stage that is furthest from
 * them; null if none is.
 * @param {Pass} pass
 */
export function slowStage({ rows, facts }) {
  const means = Array.from({ length: facts.stages }, (_, stage) =>
    ownTimes(rows.flat().filter((task) => task.stage === stage)),
  );
  // of an iteration that goes on, or has failed: what all of them have done
  const both = means.every(({ F, B }) => !F || B);
  const whole = means.map(({ F, B }) => F + (both ? B : 0));
  const some = whole.filter((t) => t > 0).sort((a, b) => a - b);
  if (some.length < 2) return null;
  const stage = whole.indexOf(some[some.length - 1]);
  const others = some.slice(0, -1);
  const typical = others[others.length >> 1];
  const factor = whole[stage] / typical;
  return factor >= 1.08 ? { stage, factor } : null;
}

/**
 * The middle of how long what is awaited is on its way, ns; NaN if nothing is.
 * @param {Pass} pass
 */
export function typicalHop(pass) {
  const times = pass.rows
    .flat()
    .flatMap((task) => {
      const input = inputTo(pass, task);
      return input?.hop && input.producer && input.hop.arrive > input.producer.end
        ? [input.hop.arrive - input.producer.end]
        : [];
    })
    .sort((a, b) => a - b);
  return times.length ? times[times.length >> 1] : NaN;
}

/**
 * How much later than planned a task started; NaN without a plan.
 * @param {Pass} pass
 * @param {Task} task
 */
export function lateBy({ plan, from }, { stage, kind, microbatch, start }) {
  const planned = plan?.of.get(`${stage}${kind}${microbatch}`);
  return planned ? start - from - planned.start : NaN;
}

/**
 * The action that a rank is in at t, else the one that it comes to.
 * @param {Task[]} row
 * @param {number} t
 */
export const taskAt = (row, t) => row.find((task) => task.end > t);

// @ts-check
/**
 * Why a rank of a pipeline is idle, gap by gap, to the last nanosecond. Pure functions;
 * workbench/idle.py does the same, number by number: there the rule is written down. In short:
 * while it stood still, fault; after its input was made, communication; what it waited before that
 * is found by following the schedule again with messages free, with equal stages (warm-up and
 * drain), with each stage's and each action's own time (imbalance), with what stood still (fault),
 * and the rest is communication of others, which delays the rank that waits.
 *
 * Only the page knows iterations that go on, in which each rank counts to its last action, and
 * schedules without a flush, of which there is no plan to follow: there nothing fills or drains but
 * at the run's beginning and end, and a rank idles by imbalance as long as the busiest rank is
 * busier.
 *
 * @typedef {import("./index.js").Task} Task
 * @typedef {import("./index.js").Hop} Hop
 * @typedef {import("./plan.js").Times} Times
 * @typedef {"warm" | "imbalance" | "comm" | "fault"} Why
 * @typedef {{from: number, to: number}} Stretch  ns
 * @typedef {{place: number, why: Why, from: number, to: number}} Idle
 * @typedef {{place: number, whole: number, busy: number, warm: number, imbalance: number,
 *   comm: number, fault: number}} Shares  ns; the parts add up to the whole
 * @typedef {{from: number, to: number, next: Task | undefined, waits: Stretch[], ways: Stretch[],
 *   stood: Stretch[], waited: number, others: number, late: number}} Gap  ways: the messages';
 *   late: all was there, but its rank
 *   stood still
 * @typedef {{order: import("./follow.js").Order | null, equal: Times, complete: boolean,
 *   needed: (task: Task) => number, frozen: {place: number, from: number, to: number}[],
 *   first: boolean, after: (place: number) => Task | undefined}} Known  needed: when what it needs
 *   was made on another rank, NaN if nothing was; first: nothing was computed before; after: what a
 *   rank does next, beyond the time
 * @typedef {{of: (gap: Gap, place: number) => number[], all: (gaps: Gap[],
 *   place: number) => number[]}} Waits  with equal stages, own, each action's, all that stood still
 */
import { hopKey, taskKey } from "./index.js";
import { followSteps } from "./follow.js";
import { mediansOf } from "./plan.js";

export const WHYS = /** @type {const} */ (["warm", "imbalance", "comm", "fault"]);
export const WHY_WORDS = {
  warm: "warm-up and drain",
  imbalance: "imbalance",
  comm: "communication",
  fault: "fault",
};
// in the order in which a wait is split
const WAITED = /** @type {const} */ (["warm", "imbalance", "fault", "comm"]);

/**
 * What an action waited for from another rank: whose action made it, and its way here.
 * @param {Task} task
 * @param {{of: Map<string, Task>, hops: Map<string, Hop>}} around
 * @param {(stage: number) => number} rankOf
 * @param {number} stages
 */
export function inputOf(task, { of, hops }, rankOf, stages) {
  const forward = task.kind === "F";
  const from = forward ? task.stage - 1 : task.stage + 1;
  if (task.kind === "W" || from < 0 || from >= stages) return null;
  const rank = rankOf(from);
  const kinds = /** @type {import("./index.js").ActionKind[]} */ (forward ? ["F"] : ["B", "I"]);
  const producer =
    kinds.map((kind) => of.get(taskKey(kind, from, task.microbatch, rank))).find(Boolean) ?? null;
  return {
    producer,
    hop:
      rank === task.rank
        ? null
        : (hops.get(
            hopKey(forward ? "activation" : "gradient", task.stage, task.microbatch, task.rank),
          ) ?? null),
  };
}

/**
 * The gaps between the busy spans of one rank, between two moments.
 * @param {Stretch[]} busy in order
 * @param {number} from
 * @param {number} to
 * @returns {{from: number, to: number, next: number}[]} next: which of them ends the gap, -1 the
 *   end
 */
export function gapsOf(busy, from, to) {
  const gaps = [];
  let free = from;
  busy.forEach((span, next) => {
    if (Math.min(span.from, to) > free)
      gaps.push({ from: free, to: Math.min(span.from, to), next });
    free = Math.max(free, Math.min(span.to, to));
  });
  if (to > free) gaps.push({ from: free, to, next: -1 });
  return gaps;
}

/**
 * The parts of a stretch that lie in any of these, in order.
 * @param {Stretch} stretch
 * @param {Stretch[]} spans  that may lie over each other
 * @returns {Stretch[]}
 */
export function within({ from, to }, spans) {
  const parts = [];
  let at = from;
  for (const span of spans.length > 1 ? [...spans].sort((a, b) => a.from - b.from) : spans) {
    const a = Math.max(at, span.from);
    const b = Math.min(to, span.to);
    if (b > a) parts.push({ from: a, to: (at = b) });
  }
  return parts;
}

/**
 * The parts of a stretch that lie in none of these.
 * @param {Stretch} stretch
 * @param {Stretch[]} spans
 * @returns {Stretch[]}
 */
function without(stretch, spans) {
  return gapsOf(within(stretch, spans), stretch.from, stretch.to).map(({ from, to }) => ({
    from,
    to,
  }));
}

/** @param {Stretch[]} stretches */
const nsIn = (stretches) => stretches.reduce((sum, { from, to }) => sum + to - from, 0);
/**
 * How long an action lasted, less what its rank stood still in it.
 * @param {Task} task
 * @param {Stretch[]} frozen
 */
export const netOf = ({ start, end }, frozen) =>
  end - start - nsIn(within({ from: start, to: end }, frozen));

/**
 * The gaps of a rank, each cut where the rank stood still and when its input was made.
 * @param {Task[]} tasks
 * @param {number} place
 * @param {number} from
 * @param {number} to
 * @param {Known} known
 * @returns {Gap[]}
 */
function cutGaps(tasks, place, from, to, { needed, frozen, after }) {
  const stops = frozen.filter((span) => span.place === place);
  return gapsOf(
    tasks.map(({ start, end }) => ({ from: start, to: end })),
    from,
    to,
  ).map((gap) => {
    const next = tasks[gap.next] ?? after(place);
    const at = next ? needed(next) : gap.to;
    const ready = Math.min(gap.to, Math.max(gap.from, Number.isNaN(at) ? gap.from : at));
    const waits = without({ from: gap.from, to: ready }, stops);
    return {
      from: gap.from,
      to: gap.to,
      next,
      waits,
      ways: without({ from: ready, to: gap.to }, stops),
      stood: within(gap, stops),
      late: nsIn(within({ from: ready, to: gap.to }, stops)),
      waited: nsIn(waits),
      others: waits.reduce((sum, wait) => sum + nsIn(within(wait, frozen)), 0),
    };
  });
}

/**
 * What a rank would wait where, if messages were free.
 * @param {Task[][]} rows
 * @param {Gap[][]} cut
 * @param {import("./follow.js").Order} order
 * @param {Known} known
 * @returns {Waits}
 */
function followedWaits(rows, cut, order, { equal, complete, frozen }) {
  const took = Array(order.steps.length).fill(NaN);
  const net = Array(order.steps.length).fill(NaN);
  const lasts = /** @type {Map<Task, number>} */ (new Map());
  rows.forEach((row, place) => {
    const stops = frozen.filter((span) => span.place === place);
    for (const task of row) {
      const i = order.of.get(`${task.stage}${task.kind}${task.microbatch}`) ?? -1;
      const ns = netOf(task, stops);
      lasts.set(task, ns);
      if (i >= 0) ((took[i] = task.end - task.start), (net[i] = ns));
    }
  });
  const medians = mediansOf([...lasts.keys()], (task) => lasts.get(task) ?? 0);
  const each = order.steps.map(({ stage, kind }) => medians.get(`${stage}${kind}`) ?? 0);
  const nameOf = (
    /** @type {{stage: number, kind: string, microbatch: number}} */ { stage, kind, microbatch },
  ) => `${stage}${kind}${microbatch}`;
  const late = new Map(
    cut.flat().flatMap((gap) => (gap.next && gap.late ? [[nameOf(gap.next), gap.late]] : [])),
  );
  const done = (
    /** @type {(step: import("./follow.js").Step, i: number) => number} */ of,
    /** @type {boolean} */ held = false,
  ) =>
    followSteps(
      order,
      (step, i) => (took[i] >= 0 ? of(step, i) : NaN),
      held ? ({ name }) => late.get(name) ?? 0 : undefined,
    );
  const ways = [done(({ kind }) => equal[kind]), done((_, i) => each[i]), done((_, i) => net[i])];
  ways.push(frozen.length ? done((_, i) => took[i], true) : ways[2]);
  const stepOf = (/** @type {Task} */ task) => order.of.get(nameOf(task)) ?? -1;
  return {
    of: ({ next }, place) =>
      ways.map((way) => (next ? (way.before[stepOf(next)] ?? 0) : way.after[place])),
    all: (_, place) => ways.map((way) => way.waits[place] - (complete ? 0 : way.after[place])),
  };
}

/**
 * The same without a plan.
 * @param {Task[][]} rows
 * @param {number} from
 * @param {number[]} ends
 * @param {Known} known
 * @returns {Waits}
 */
function unplannedWaits(rows, from, ends, { first, frozen }) {
  const stops = rows.map((_, place) => frozen.filter((span) => span.place === place));
  const inside = (/** @type {Task} */ { start, end }, /** @type {number} */ place) =>
    within({ from: start, to: end }, [{ from, to: ends[place] }]);
  const medians = mediansOf(
    rows.flatMap((row) => row),
    undefined,
  );
  const sums = rows.map((row, place) => {
    const sum = [0, 0, 0];
    for (const task of row)
      for (const part of inside(task, place)) {
        const took = part.to - part.from;
        sum[0] +=
          ((medians.get(`${task.stage}${task.kind}`) ?? 0) * took) /
          Math.max(1, task.end - task.start);
        sum[1] += took - nsIn(within(part, stops[place]));
        sum[2] += took;
      }
    return sum;
  });
  const most = [0, 1, 2].map((n) => Math.max(...sums.map((sum) => sum[n])));
  const warm = (/** @type {Gap} */ gap) =>
    (first && gap.from === from) || !gap.next ? gap.waited : 0;
  return {
    of: (gap) => Array(4).fill(warm(gap)),
    all: (gaps, place) => {
      const filling = gaps.reduce((sum, gap) => sum + warm(gap), 0);
      return [
        filling,
        ...most.map((sum, n) => Math.max(filling, Math.floor(sum - sums[place][n]))),
      ];
    },
  };
}

/**
 * What each way of following the schedule adds to the one before it: warm-up and drain, imbalance,
 * fault.
 * @param {number[]} waits
 * @param {number} others
 */
function reasonsOf([equal, ownTimes, net, took], others) {
  const uneven = Math.max(equal, ownTimes, net);
  return [equal, uneven - equal, Math.max(others, took - uneven)];
}

/**
 * All that a rank waited, by reason and gap: where the schedule has it, then from the first gap on.
 * @param {Gap[]} gaps
 * @param {number[][]} wishes
 * @param {number[]} most
 * @returns {number[][]} ns of each gap, as in WAITED
 */
function dealt(gaps, wishes, most) {
  const room = gaps.map((gap) => gap.waited);
  const left = /** @type {number[]} */ ([]);
  const parts = gaps.map(() => WAITED.map(() => 0));
  let rest = nsIn(gaps.flatMap((gap) => gap.waits));
  for (const part of [...most, Infinity]) rest -= left[left.push(Math.min(rest, part)) - 1];
  for (const wished of [true, false])
    for (let n = 0; n < left.length; n++)
      for (let i = 0; i < gaps.length; i++) {
        const some = Math.min(room[i], left[n], wished ? (wishes[i][n] ?? 0) : Infinity);
        parts[i][n] += some;
        room[i] -= some;
        left[n] -= some;
      }
  return parts;
}

/**
 * A gap's parts, one after the other, without a hole.
 * @param {Gap} gap
 * @param {number[]} parts
 * @returns {{why: Why, from: number, to: number}[]}
 */
function laid(gap, parts) {
  const left = [...parts];
  const spans = [
    ...gap.stood.map((part) => ({ why: /** @type {Why} */ ("fault"), ...part })),
    ...gap.ways.map((part) => ({ why: /** @type {Why} */ ("comm"), ...part })),
  ];
  for (const { from, to } of gap.waits) {
    let at = from;
    WAITED.forEach((why, n) => {
      const some = Math.min(left[n], to - at);
      if (some > 0) spans.push({ why, from: at, to: at + some });
      left[n] -= some;
      at += some;
    });
  }
  return spans.sort((a, b) => a.from - b.from);
}

/**
 * All idle time of one pipeline from a moment on, by rank and reason.
 * @param {Task[][]} rows  the actions of each rank in order of their start, all that meet the time
 * @param {number} from
 * @param {number[]} ends  of each rank
 * @param {Known} known
 * @returns {{idle: Idle[], shares: Shares[]}}
 */
export function idleOf(rows, from, ends, known) {
  const cut = rows.map((tasks, place) => cutGaps(tasks, place, from, ends[place], known));
  const waits = known.order
    ? followedWaits(rows, cut, known.order, known)
    : unplannedWaits(rows, from, ends, known);
  const idle = /** @type {Idle[]} */ ([]);
  const shares = cut.map((gaps, place) => {
    const whole = ends[place] - from;
    const share = { place, whole, busy: whole, warm: 0, imbalance: 0, comm: 0, fault: 0 };
    const parts = dealt(
      gaps,
      gaps.map((gap) => reasonsOf(waits.of(gap, place), gap.others)),
      reasonsOf(
        waits.all(gaps, place),
        gaps.reduce((sum, gap) => sum + gap.others, 0),
      ),
    );
    gaps.forEach((gap, i) => {
      for (const part of laid(gap, parts[i])) {
        idle.push({ place, ...part });
        share[part.why] += part.to - part.from;
        share.busy -= part.to - part.from;
      }
    });
    return share;
  });
  return { idle, shares };
}

/** The parts of all ranks together. @param {Shares[]} shares @returns {Shares} */
export function together(shares) {
  const all = { place: -1, whole: 0, busy: 0, warm: 0, imbalance: 0, comm: 0, fault: 0 };
  for (const share of shares)
    for (const name of /** @type {const} */ (["whole", "busy", ...WHYS])) all[name] += share[name];
  return all;
}

/** The share that is idle. @param {Shares} one */
export const idleShare = (one) => (one.whole > 0 ? (one.whole - one.busy) / one.whole : 0);

// @ts-check
/**
 * A schedule followed action by action: a rank does its row's actions in their order, each as soon
 * as what it needs is there, messages free. The order is worked out once, and followed with any
 * times. Pure functions; the rows are the run's own (run.pipeline.rows), nothing here knows a
 * schedule.
 *
 * @typedef {import("./index.js").ActionKind} ActionKind
 * @typedef {{name: string, place: number, stage: number, kind: ActionKind, microbatch: number,
 *   needs: number[]}} Step  needs: steps before it
 * @typedef {{steps: Step[], of: Map<string, number>, ranks: number}} Order  of: number of a step by
 *   its name, "0F3"
 * @typedef {{start: Float64Array, before: Float64Array, after: number[], waits: number[],
 *   span: number}} Followed  ns, of each step and of each rank; before: what its rank
 *   waited for it; after: after its last; waits: all of that
 */

/**
 * "0F3" as numbers; null if it is none.
 * @param {string} text
 * @returns {{stage: number, kind: ActionKind, microbatch: number} | null}
 */
export function actionOf(text) {
  const [, stage, kind, microbatch] = text.match(/^(\d+)([FBIW])(\d+)$/) ?? [];
  return kind
    ? {
        stage: Number(stage),
        kind: /** @type {ActionKind} */ (kind),
        microbatch: Number(microbatch),
      }
    : null;
}

/**
 * What an action needs before it can start, the alternatives of each.
 * @param {{stage: number, kind: ActionKind, microbatch: number}} action
 * @param {number} stages
 * @returns {string[][]}
 */
export function needsOf({ stage, kind, microbatch }, stages) {
  if (kind === "F") return stage ? [[`${stage - 1}F${microbatch}`]] : [];
  if (kind === "W") return [[`${stage}I${microbatch}`]];
  return [
    [`${stage}F${microbatch}`],
    ...(stage < stages - 1 ? [[`${stage + 1}B${microbatch}`, `${stage + 1}I${microbatch}`]] : []),
  ];
}

/**
 * Every action after what it needs; null for rows that are not all actions, or that wait for each
 * other.
 * @param {string[][]} rows
 * @param {number} stages
 * @returns {Order | null}
 */
export function orderOf(rows, stages) {
  const parsed = rows.map((row) => row.map(actionOf));
  const of = /** @type {Map<string, number>} */ (new Map());
  const next = rows.map(() => 0);
  const steps = /** @type {Step[]} */ ([]);
  if (!rows.length || parsed.some((row) => row.some((action) => !action))) return null;
  for (let moved = true; moved; ) {
    moved = false;
    parsed.forEach((row, place) => {
      for (; next[place] < row.length; next[place]++) {
        const action = /** @type {NonNullable<ReturnType<typeof actionOf>>} */ (row[next[place]]);
        const name = rows[place][next[place]];
        const needs = needsOf(action, stages).map((ways) =>
          ways.map((way) => of.get(way)).find((step) => step !== undefined),
        );
        if (needs.includes(undefined)) return;
        of.set(name, steps.length);
        steps.push({ ...action, name, place, needs: /** @type {number[]} */ (needs) });
        moved = true;
      }
    });
  }
  return next.some((n, place) => n < rows[place].length) ? null : { steps, of, ranks: rows.length };
}

/**
 * @param {Order} order
 * @param {(step: Step, i: number) => number} lasts  ns; NaN: it has not been done, and is left out
 * @param {(step: Step) => number} [late]  ns that it begins later than it could
 * @returns {Followed}
 */
export function followSteps({ steps, ranks }, lasts, late = () => 0) {
  const start = new Float64Array(steps.length);
  const before = new Float64Array(steps.length);
  const end = new Float64Array(steps.length);
  const free = Array(ranks).fill(0);
  const waits = Array(ranks).fill(0);
  steps.forEach((step, i) => {
    const took = lasts(step, i);
    const had = free[step.place];
    if (Number.isNaN(took)) return;
    let at = had;
    for (const need of step.needs) at = Math.max(at, end[need]);
    start[i] = at;
    before[i] = at - had;
    waits[step.place] += at - had;
    free[step.place] = end[i] = at + took + late(step);
  });
  const span = Math.max(0, ...free);
  const after = free.map((at) => span - at);
  return { start, before, after, waits: waits.map((sum, place) => sum + after[place]), span };
}

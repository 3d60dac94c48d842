import assert from "node:assert/strict";
import { test } from "node:test";
import { actionOf } from "../../assets/scenes/pipeline/follow.js";
import { hopKey, indexOf as pipelineIndexOf, taskKey } from "../../assets/scenes/pipeline/index.js";
import {
  formulaOf,
  meanTimes,
  mediansOf,
  mostHeld,
  planOf,
} from "../../assets/scenes/pipeline/plan.js";
import { passesOf, pipelineOf } from "../../assets/scenes/pipeline/call_source.js";
import { sourceOf } from "../../assets/engine/call_source.js";
import { Table } from "../../assets/engine/table.js";
import { MS, SCHEDULES, piped, unflushed } from "./piped.js";
import { trafficOf } from "../../assets/scenes/model/traffic.js";
import { sentenceOf } from "../../assets/scenes/pipeline/captions.js";
import { passOf } from "../../assets/scenes/pipeline/selection.js";
import { recorded } from "./recorded.js";
import { packed, tableOf } from "./rows.js";
import { knownOf } from "./simulated.js";
import { heard } from "./training.js";

const known = ({ rows, facts }, more = {}) =>
  knownOf(facts.ranks * facts.replicas, rows, {
    run: { strategy: "pipeline", pipeline: facts, ...more },
  });
const times = (F, B, I = 0, W = 0) => ({ F: F * MS, B: B * MS, I: I * MS, W: W * MS });

for (const how of [
  {},
  { schedule: "gpipe", K: 2, M: 3 },
  { schedule: "split", K: 4 },
  { schedule: "looped", K: 2, M: 4 },
  { K: 2, replicas: 3, iterations: 2 },
])
  test(
    `${JSON.stringify(how)}: every action and every hop is the rows'; rows may come in any ` +
      "order of lanes",
    () => {
      const { rows, passes } = piped(how);
      const index = pipelineIndexOf(tableOf(heard(rows)));
      assert.ok(index.present);
      for (const { iteration, tasks } of passes)
        for (const { stage, kind, microbatch, rank, start, end, made, arrive } of tasks) {
          const told = index.iterations.get(iteration);
          const task = told.of.get(taskKey(kind, stage, microbatch, rank));
          assert.deepEqual(
            [task.start, task.end, task.version],
            [Math.round(start), Math.round(end), iteration],
          );
          const hop = told.hops.get(
            hopKey(kind === "F" ? "activation" : "gradient", stage, microbatch, rank),
          );
          if (kind === "W") continue; // it needs nothing from elsewhere
          assert.equal(!!hop, arrive > made, `${stage}${kind}${microbatch}`);
          if (hop)
            assert.deepEqual(
              [hop.start, hop.arrive, hop.to],
              [Math.round(made), Math.round(arrive), rank],
            );
        }
      assert.equal(
        [...index.iterations.values()].reduce((n, { tasks }) => n + tasks.length, 0),
        passes.reduce((n, { tasks }) => n + tasks.length, 0),
      );
    },
  );

test("what a stage holds are the rows that say so, in their order", () => {
  const { rows } = piped({ K: 2, M: 4 });
  const index = pipelineIndexOf(tableOf(rows));
  const told = rows.filter((r) => r.name === "in flight" && r.rank === 1);
  assert.deepEqual(
    index.held.get("1 1").value,
    told.map((r) => r.value),
  );
  assert.equal(index.bytes.get(1).value.length, told.length);
});

test("a freeze lasts as long as it says, or until the thaw", () => {
  const { rows } = piped({ K: 2, M: 2, freeze: { rank: 1, at: 30, seconds: 0.05 } });
  const own = {
    kind: "fault",
    rank: -1,
    peer: 0,
    lane: "driver",
    op: -1,
    collective: "",
    group: "",
    stage: -1,
  };
  const index = pipelineIndexOf(
    tableOf([
      ...rows,
      { ...rows[0], ...own, name: "freeze", start: 2 * MS, end: 2 * MS, value: 0.003 },
      { ...rows[0], ...own, name: "freeze", start: 9 * MS, end: 9 * MS, value: NaN },
      { ...rows[0], ...own, name: "thaw", start: 12 * MS, end: 12 * MS, value: NaN },
    ]),
  );
  assert.deepEqual(index.frozen, [
    { rank: 1, from: 30 * MS, to: 80 * MS },
    { rank: 0, from: 2 * MS, to: 5 * MS },
    { rank: 0, from: 9 * MS, to: 12 * MS },
  ]);
});

test(
  "iterations are told like calls: each from its first action to its last; what is not whole " +
    "goes on",
  () => {
    const told = piped({ iterations: 4 });
    const run = known(told);
    const { calls, newest } = passesOf(run);
    assert.deepEqual(
      calls.map((c) => [c.iteration, c.start, c.end, c.complete]),
      told.passes.map((p) => [p.iteration, Math.round(p.from), Math.round(p.to), true]),
    );
    assert.equal(newest.iteration, 3);
    assert.equal(sourceOf(run, [passesOf]).callAt(calls[2].start + 5).iteration, 2);
    const call = passesOf(run).open("pass/1");
    assert.equal(
      call.flights.length,
      2 * 8 * 3,
      "an activation and a gradient a microbatch and border",
    );
    assert.ok(
      call.flights.every((f) => f.start >= 0 && f.end <= call.end - call.start && f.end > f.start),
    );
    const part = known({
      ...told,
      rows: told.rows.filter((r) => r.end <= calls[2].start + 100 * MS),
    });
    const some = passesOf(part).calls;
    assert.deepEqual(
      some.map((c) => c.complete),
      [true, true, false],
    );
    assert.ok(Math.abs(some[2].end - part.table.to) < 1);
  },
);

test(
  "rows that come bit by bit give the same as all at once; without a plan an iteration is " +
    "over when the next one has begun everywhere",
  () => {
    for (const plan of [true, false]) {
      const told = piped({ iterations: 4, K: 3 });
      const bits = heard(told.rows, 10 * MS);
      const strings = [""];
      const table = new Table();
      const run = { ...known(told), table };
      if (!plan) run.run = { ...run.run, pipeline: null };
      for (let at = 0; at < bits.length; at += 37) {
        const { header, bytes } = packed(bits.slice(at, at + 37), strings);
        table.take(header, bytes);
        passesOf(run);
      }
      const form = (passes) => passes.calls.map((c) => [c.iteration, c.start, c.end, c.complete]);
      assert.deepEqual(form(passesOf(run)), form(passesOf(known(told))), String(plan));
      assert.equal(pipelineOf(run).stages, 3);
    }
  },
);

test("rows that are let go take their iterations along; what is left is told", () => {
  const told = piped({ iterations: 8 });
  const run = known(told);
  const before = passesOf(run).calls.length;
  run.table.forget(Math.floor(run.table.rows / 2));
  const { calls } = passesOf(run);
  assert.ok(calls.length < before && calls.at(-1).iteration === 7 && calls.at(-1).complete);
});

test(
  "without a flush iterations follow each other without a gap, each from its first forward " +
    "to the next one's",
  () => {
    const told = unflushed({ K: 4, M: 4, iterations: 5 });
    const { calls } = passesOf(known(told));
    assert.deepEqual(
      calls.map((c) => c.iteration),
      [0, 1, 2, 3, 4],
    );
    for (let i = 1; i < calls.length; i++) assert.equal(calls[i].start, calls[i - 1].end);
    const reach = passesOf(known(told)).tasksIn(calls[2]);
    assert.ok(new Set(reach.map((t) => t.iteration)).size > 1, "of other iterations too");
    assert.ok(reach.every((t) => t.end > calls[2].start && t.start < calls[2].end));
  },
);

test(
  "a plan: what rows and times say, nothing " + "else; rows that wait for each other have none",
  () => {
    for (const K of [2, 4, 8])
      for (const M of [1, 3, 8, 32])
        for (const name of ["gpipe", "1f1b"]) {
          const plan = planOf(SCHEDULES[name](K, M), K, times(10, 20));
          const ideal = (K - 1) / (M + K - 1);
          assert.ok(Math.abs(plan.idle - ideal) < 1e-9, `${name} ${K} ${M}: ${plan.idle}`);
          assert.equal(plan.span, (M + K - 1) * 30 * MS);
          assert.match(
            formulaOf({ ranks: K, stages: K, microbatches: M }, plan.idle).name,
            M === 1 && K > 2 ? /formula/ : /formula \(K−1\)\/\(M\+K−1\)/,
          );
        }
    assert.equal(
      planOf(
        [
          ["0F0", "0B0"],
          ["1B0", "1F0"],
        ],
        2,
        times(1, 1),
      ),
      null,
    );
    assert.equal(planOf([["0F0", "hello"]], 1, times(1, 1)), null);
    assert.equal(formulaOf({ ranks: 4, stages: 4, microbatches: 8 }, 0.11).name, "plan");
    assert.deepEqual(actionOf("12F34"), { stage: 12, kind: "F", microbatch: 34 });
  },
);

test("the most that a rank holds is the schedule's, whichever action lets go of it", () => {
  const facts = (schedule, K, M, peaks) => ({
    rows: SCHEDULES[schedule](K, M),
    peaks,
    stages: schedule === "looped" ? 2 * K : K,
  });
  assert.deepEqual(mostHeld(facts("1f1b", 4, 8, [4, 3, 2, 1])), [4, 3, 2, 1]);
  assert.deepEqual(mostHeld(facts("gpipe", 3, 5, [5, 5, 5])), [5, 5, 5]);
  assert.deepEqual(mostHeld(facts("looped", 2, 4, [4, 4, 4, 4])), [8, 8]);
  assert.deepEqual(
    mostHeld(facts("split", 4, 8, [4, 3, 2, 1])),
    [4, 3, 2, 1],
    "its input gradient lets go",
  );
  assert.deepEqual(
    mostHeld(facts("split", 4, 8, [4, 4, 4, 4])),
    [4, 4, 4, 4],
    "its weight gradient lets go",
  );
});

test("one action that was held up does not change the plan's times", () => {
  const task = (stage, kind, ms) => ({ stage, kind, start: 0, end: ms * MS });
  const found = meanTimes(
    mediansOf([
      task(0, "F", 10),
      task(0, "F", 10),
      task(0, "F", 500),
      task(1, "F", 20),
      task(0, "I", 4),
      task(0, "W", 6),
    ]),
  );
  assert.deepEqual([found.F / MS, found.B / MS], [15, 10]);
});

test("an iteration that a new group begins again is another one, and neither is the other's", () => {
  const run = recorded("stage_replaced");
  const passes = passesOf(run);
  assert.deepEqual(
    passes.calls.map(({ key, complete }) => [key, complete]),
    [
      ["pass/0", true],
      ["pass/1", true],
      ["pass/2", true],
      ["pass/3, generation 0", false],
      ["pass/3", true],
      ["pass/4", true],
    ],
  );
  const actions = passes.calls.map((head) => passes.tasksIn(head).length);
  const whole = run.run.pipeline.rows.flat().length;
  assert.deepEqual(actions, [whole, whole, whole, 2, whole, whole]);
  const given = passOf(passes, pipelineOf(run), passes.calls[3], 0);
  assert.match(
    sentenceOf(run, given, false),
    /^Iteration 4 was given up after 2 of 8 actions: the ranks formed a new group/,
  );
  const again = passOf(passes, pipelineOf(run), passes.calls[4], 0);
  assert.ok(again.from > given.to && again.to - again.from < 0.1e9, "recovery is not idle time");
  const crossed = [...trafficOf(run.table).iterations.values()].map(({ cuts }) => cuts[0]);
  for (const what of ["activation", "gradient"])
    assert.equal(new Set(crossed.map((cut) => cut[what].bytes)).size, 1, what);
});

test("rows of a group that is gone may come last", () => {
  const { rows } = piped({ K: 2, M: 2, iterations: 2 });
  const again = rows
    .filter((r) => r.iteration === 1)
    .map((r) => ({ ...r, generation: 1, start: r.start + 1e9, end: r.end + 1e9 }));
  const [early, late] = [rows.filter((r) => r.rank === 0), rows.filter((r) => r.rank === 1)];
  const index = pipelineIndexOf(tableOf([...early, ...again, ...late]));
  const { tasks } = index.iterations.get(1);
  assert.ok(tasks.every((task) => task.generation === 1) && tasks.length === 8);
  assert.equal(index.givenUp.length, 1);
  assert.equal(index.attempt(1, 0).tasks.length, 8);
});

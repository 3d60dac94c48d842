import assert from "node:assert/strict";
import { test } from "node:test";
import { gapsOf, idleOf, idleShare, WHYS } from "../../assets/scenes/pipeline/idle.js";
import { passesOf } from "../../assets/scenes/pipeline/call_source.js";
import {
  heldOf,
  lateBy,
  passOf,
  slowStage,
  typicalHop,
  usersOf,
} from "../../assets/scenes/pipeline/selection.js";
import { timesWords } from "../../assets/scenes/pipeline/draw.js";
import { MS, piped, unflushed } from "./piped.js";
import { knownOf } from "./simulated.js";

/** An iteration of a made run, as the scene sees it. */
function seen(told, iteration = 1, replica = 0) {
  const known = knownOf(told.facts.ranks * told.facts.replicas, told.rows, {
    run: { strategy: "pipeline", pipeline: told.facts },
  });
  const passes = passesOf(known);
  return passOf(passes, told.facts, passes.callOf.get(`pass/${iteration}`), replica);
}
const slow = (factor, at) => (kind, stage) =>
  ({ F: 10, B: 20, I: 10, W: 10 })[kind] * (stage === at ? factor : 1);
const CASES = [
  ["as planned", { wire: 0 }],
  ["messages take time", {}],
  ["a slow stage", { time: slow(1.3, 2) }],
  ["uneven", { noise: 0.3 }],
  ["gpipe", { schedule: "gpipe", K: 8, M: 4 }],
  ["interleaved", { schedule: "looped", K: 2, M: 4, noise: 0.1 }],
  ["weights apart", { schedule: "split", noise: 0.1 }],
  ["frozen", { freeze: { rank: 2, at: 450, seconds: 0.2 } }],
  ["two replicas", { replicas: 2, noise: 0.2 }],
  ["one stage", { K: 1, M: 3 }],
  ["padded", { pads: [10, 10, 10], noise: 0.02, time: slow(1.3, 2) }],
];

for (const [name, how] of CASES)
  test(`the parts of every gap and of every rank add up to the whole, exactly: ${name}`, () => {
    const told = piped(how);
    for (const replica of [0, told.facts.replicas - 1]) {
      const pass = seen(told, 1, replica);
      pass.shares.forEach((own, place) => {
        const mine = pass.idle.filter((part) => part.place === place);
        const gaps = gapsOf(
          pass.rows[place].map((task) => ({ from: task.start, to: task.end })),
          pass.from,
          pass.to,
        );
        const busy = pass.rows[place].reduce((sum, task) => sum + task.end - task.start, 0);
        assert.equal(own.whole, pass.to - pass.from);
        assert.equal(own.busy + WHYS.reduce((sum, why) => sum + own[why], 0), own.whole);
        assert.equal(own.busy, busy);
        for (const gap of gaps) {
          const parts = mine.filter((part) => part.from >= gap.from && part.to <= gap.to);
          assert.equal(parts[0].from, gap.from);
          assert.equal(parts.at(-1).to, gap.to);
          parts.forEach((part, i) => i && assert.equal(part.from, parts[i - 1].to));
        }
        assert.equal(
          mine.reduce((sum, part) => sum + part.to - part.from, 0),
          gaps.reduce((sum, gap) => sum + gap.to - gap.from, 0),
        );
      });
    }
  });

test("as planned: all idle time is the schedule's own, and nothing is late", () => {
  for (const how of [
    { wire: 0 },
    { wire: 0, schedule: "gpipe", K: 2 },
    { wire: 0, schedule: "looped" },
    { wire: 0, schedule: "split" },
  ]) {
    const pass = seen(piped(how));
    assert.ok(
      pass.all.warm > 0 && pass.all.imbalance === 0 && pass.all.comm === 0 && pass.all.fault === 0,
      JSON.stringify(pass.all),
    );
    assert.ok(Math.abs(idleShare(pass.all) - pass.plan.idle) < 1e-9);
    for (const task of pass.rows.flat()) assert.ok(Math.abs(lateBy(pass, task)) <= 1);
    assert.equal(slowStage(pass), null);
  }
});

test("a slow stage is imbalance of the others, and is named", () => {
  const pass = seen(piped({ time: slow(1.3, 2), pads: [10, 10, 10], wire: 0 }));
  const found = slowStage(pass);
  assert.equal(found.stage, 2);
  assert.ok(Math.abs(found.factor - 1.3) < 0.01);
  assert.equal(pass.all.comm, 0);
  assert.ok(pass.shares[2].imbalance < pass.shares[0].imbalance / 3);
});

test("where some stages have had no backward yet, none is slow for having had one", () => {
  const pass = seen(piped({ wire: 0 }));
  const rows = pass.rows.map((row, i) => (i === 3 ? row : row.filter(({ kind }) => kind === "F")));
  assert.equal(slowStage({ ...pass, rows }), null);
  assert.equal(timesWords({ ...pass, rows }, 0), "F 10 ms");
  assert.equal(timesWords(pass, 0), "F 10, B 20 ms");
});

test(
  "with equal stages all that messages delay is communication, on every rank that waits for " +
    "it; nothing is imbalance",
  () => {
    for (const how of [
      {},
      { schedule: "gpipe", K: 8 },
      { schedule: "looped" },
      { schedule: "split" },
    ]) {
      const told = piped({ ...how, wire: 2.5 });
      const pass = seen(told);
      const none = seen(piped({ ...how, wire: 0 }));
      assert.ok(Math.abs(typicalHop(pass) / MS - 2.5) < 1e-6);
      assert.deepEqual([pass.all.imbalance, pass.all.fault], [0, 0]);
      pass.shares.forEach((own, place) =>
        assert.equal(
          own.comm,
          pass.to - pass.from - (none.to - none.from),
          `rank ${place}: all that it took longer`,
        ),
      );
      assert.ok(
        pass.idle.some((part) => part.why === "comm" && part.to - part.from > 3 * MS),
        "of others too",
      );
    }
  },
);

test(
  "who waits while a process stands still waits " + "for a fault; before and after it does not",
  () => {
    const freeze = { rank: 2, at: 450, seconds: 0.2 };
    const pass = seen(piped({ freeze }));
    const none = seen(piped({}));
    assert.ok(pass.all.fault > 200 * MS, String(pass.all.fault / MS));
    for (const part of pass.idle.filter(({ why }) => why === "fault"))
      assert.ok(part.to > freeze.at * MS);
    assert.equal(none.all.fault, 0);
    assert.equal(seen(piped({ freeze }), 2).all.fault, 0);
  },
);

test(
  "without a plan: what fills and drains, messages, the busiest rank's lead, and what stood " +
    "still",
  () => {
    const task = (rank, start, end) => ({
      rank,
      stage: rank,
      kind: "F",
      microbatch: start,
      iteration: 0,
      start,
      end,
      version: 0,
      row: 0,
    });
    const rows = [
      [task(0, 0, 30), task(0, 40, 70)],
      [task(1, 20, 30), task(1, 60, 70), task(1, 80, 90)],
    ];
    const known = {
      order: null,
      equal: { F: 0, B: 0, I: 0, W: 0 },
      complete: true,
      needed: () => NaN,
      frozen: [],
      first: true,
      after: () => undefined,
    };
    const why = (more) =>
      idleOf(rows, 0, [100, 100], { ...known, ...more }).idle.map(
        (p) => `${p.place} ${p.why} ${p.from}-${p.to}`,
      );
    assert.deepEqual(why({ first: false }), [
      "0 comm 30-40",
      "0 warm 70-100",
      "1 comm 0-20",
      "1 comm 30-60",
      "1 comm 70-80",
      "1 warm 90-100",
    ]);
    const needed = (t) => (t.start === 20 ? 15 : t.start === 60 ? 55 : NaN);
    assert.deepEqual(
      why({ needed }).slice(2),
      [
        "1 warm 0-15",
        "1 comm 15-20",
        "1 imbalance 30-35",
        "1 comm 35-55",
        "1 comm 55-60",
        "1 comm 70-80",
        "1 warm 90-100",
      ],
      "what others' messages delay, then its own",
    );
    assert.deepEqual(why({ needed, frozen: [{ place: 0, from: 32, to: 36 }] }).slice(0, 3), [
      "0 comm 30-32",
      "0 fault 32-36",
      "0 comm 36-40",
    ]);
  },
);

test("what an action needed and what needed it are the stages beside it", () => {
  const pass = seen(piped({}));
  const of = (stage, kind, microbatch) =>
    pass.rows
      .flat()
      .find((t) => t.stage === stage && t.kind === kind && t.microbatch === microbatch);
  const names = (tasks) => tasks.map((t) => `${t.stage}${t.kind}${t.microbatch}`);
  assert.deepEqual(names(usersOf(pass, of(1, "F", 3))), ["2F3"]);
  assert.deepEqual(names(usersOf(pass, of(3, "F", 3))), ["3B3"]);
  assert.deepEqual(names(usersOf(pass, of(1, "B", 3))), ["0B3"]);
  assert.deepEqual(names(usersOf(pass, of(0, "B", 3))), []);
  const apart = seen(piped({ schedule: "split" }));
  const own = apart.rows.flat().find((t) => t.stage === 2 && t.kind === "I" && t.microbatch === 1);
  assert.deepEqual(names(usersOf(apart, own)), ["1I1", "2W1"]);
});

test(
  "what a rank holds never exceeds the schedule's most; with rows or without them it is the " +
    "same",
  () => {
    for (const how of [
      {},
      { schedule: "gpipe" },
      { schedule: "looped", K: 2 },
      { schedule: "split" },
    ]) {
      const told = piped(how);
      const pass = seen(told);
      const plain = seen({ ...told, rows: told.rows.filter((r) => r.name !== "in flight") });
      pass.most.forEach((most, place) => {
        const peak = (p) => Math.max(...heldOf(p, place).map(([, n]) => n));
        assert.equal(peak(pass), most, `${JSON.stringify(how)} ${place}`);
        assert.equal(peak(plain), most);
        assert.equal(heldOf(pass, place).at(-1)[1], 0);
      });
    }
  },
);

test("what goes on counts each rank to its last action only", () => {
  const told = piped({ iterations: 3 });
  const end = told.passes[1].from + 130 * MS;
  const pass = seen({ ...told, rows: told.rows.filter((r) => r.end <= end) });
  assert.ok(!pass.complete);
  pass.shares.forEach((own, place) => {
    assert.equal(own.whole, pass.rows[place].at(-1).end - pass.from);
    assert.equal(own.busy + WHYS.reduce((sum, why) => sum + own[why], 0), own.whole);
  });
});

test(
  "without a flush the pipeline warms up once and drains once; between, idle time has other " +
    "reasons",
  () => {
    const told = unflushed({ K: 4, M: 8, iterations: 5 });
    const warm = [0, 1, 2, 3, 4].map((i) => seen(told, i).all.warm);
    assert.ok(warm[0] > 0 && warm[4] > 0);
    assert.deepEqual(warm.slice(1, 4), [0, 0, 0]);
    for (const i of [0, 2, 4])
      for (const own of seen(told, i).shares)
        assert.equal(own.busy + WHYS.reduce((sum, why) => sum + own[why], 0), own.whole);
    for (const task of seen(told, 2)
      .rows.flat()
      .filter((t) => t.kind === "B")) {
      const forward = told.rows.find(
        (r) =>
          r.kind === "forward" &&
          r.stage === task.stage &&
          r.iteration === task.iteration &&
          r.microbatch === task.microbatch,
      );
      assert.equal(task.version, forward.version);
    }
  },
);

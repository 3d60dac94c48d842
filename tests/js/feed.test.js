import assert from "node:assert/strict";
import { test } from "node:test";
import { quietWords } from "../../assets/engine/feed_lines.js";
import { faultWords } from "../../assets/engine/fault_words.js";
import { Happenings } from "../../assets/engine/happenings.js";
import { holdsOf } from "../../assets/engine/holds.js";
import { headline } from "../../assets/engine/failure_caption.js";
import { nothing, receive } from "../../assets/engine/page_state.js";
import { killedIn, reworded } from "./failures.js";
import { CONTROL, RUN, batch, calls, row, rows } from "./rows.js";
import { recovered } from "./recovered.js";
import { DRIVER, fault, heard, read, words } from "./feed_of.js";

test("what the user did", () => {
  const list = [
    fault(1, "kill", 2),
    fault(2, "freeze", 2),
    fault(3, "thaw", 2),
    fault(4, "slow", 1, 4),
    fault(5, "slow", 1, 1),
  ];
  assert.deepEqual(words(list), [
    "You killed rank 2",
    "You froze rank 2",
    "You let rank 2 go on",
    "You slowed rank 1 ×4",
    "You let rank 1 run at full speed again",
  ]);
});

test("a page that is loaded later says when the ranks were held before, and again are", () => {
  const holds = [
    [1e9, 3e9],
    [5e9, 2 ** 62],
  ];
  const known = heard(rows, {
    state: "running",
    run: { ...RUN, holds },
    control: { ...CONTROL, held: true },
  });
  assert.deepEqual(
    read(known, 9e9)
      .filter((line) => line.kind === "state")
      .map(({ t, words }) => [t, words]),
    [
      [1e9, "The ranks are held"],
      [3e9, "The ranks run again"],
      [5e9, "The ranks are held"],
    ],
  );
});

test("links, with what they are now; both directions at once are one line", () => {
  const far = 1e9;
  const link = (t, group, value, nbytes, name = "link") =>
    row(-1, "fault", t, t, { ...DRIVER, name, group, peer: +group.at(-1), value, nbytes });
  const list = [
    link(1, "0->1", 0.02, 1.25e6),
    link(far, "0->1", 0, -1, "cut"),
    link(far + 9, "1->0", 0, -1, "cut"),
    link(2 * far, "2->1", 0, -1),
    link(3 * far, "0->1", 0.005, 1.25e8),
    link(4 * far, "0->1", NaN, -1),
  ];
  assert.deepEqual(words(list), [
    "link 0 → 1 now 20 ms, 10 Mbit/s",
    "You cut link 0 ↔ 1",
    "You restored link 2 → 1",
    "link 0 → 1 now 5 ms, 1 Gbit/s",
    "You changed link 0 → 1",
  ]);
});

test("what is wrong with data or memory is no wait", () => {
  const found = { lane: "compute", iteration: 3, peer: 1 };
  const list = [
    row(1, "detect", 1, 1, { ...found, name: "bad minibatch: not finite", value: 37 }),
    row(1, "detect", 2, 2, { ...found, name: "bad minibatch: not loaded", value: NaN }),
    row(0, "detect", 3, 3, { ...found, name: "a replica differs", value: 4 }),
  ];
  assert.deepEqual(words(list), [
    "rank 1: its gradient is not finite in iteration 4: sample 37",
    "rank 1 cannot use its samples of iteration 4",
    "rank 1 differs from the others, since iteration 5",
  ]);
});

test("a host that is cut off is named once, with its ranks, and again when it is back", () => {
  const cut = (t, peer, group, name) => row(-1, "detect", t, t, { ...DRIVER, name, group, peer });
  const list = [
    cut(1, 2, "b", "cut off"),
    cut(2, 3, "b", "cut off"),
    cut(3, 1, "a", "cut off"),
    cut(4, 2, "b", "back"),
    cut(5, 3, "b", "back"),
    cut(6, 2, "b", "cut off"),
  ];
  assert.deepEqual(words(list), [
    "host b is cut off: nothing comes from ranks 2, 3",
    "host a is cut off: nothing comes from rank 1",
    "host b is back: what ranks 2, 3 recorded meanwhile arrives",
    "host b is cut off: nothing comes from rank 2",
  ]);
});

test("faults of the experiment are not the user's", () => {
  assert.equal(
    faultWords({ name: "freeze", rank: 2, value: 1.5, group: "", nbytes: -1 }, false),
    "rank 2 froze for 1.50 s (a fault of the experiment)",
  );
  assert.deepEqual(words([row(2, "fault", 5, 5, { ...DRIVER, lane: "compute", name: "kill" })]), [
    "rank 2 was killed (a fault of the experiment)",
  ]);
  const asked = { ...DRIVER, lane: "experiment", peer: 2 };
  assert.deepEqual(
    words([
      row(-1, "fault", 6, 6, { ...asked, name: "kill" }),
      row(-1, "fault", 7, 7, { ...asked, name: "preempt" }),
      row(1, "fault", 8, 8, { lane: "compute", name: "corrupt nan", value: 37, iteration: 3 }),
    ]),
    [
      "rank 2 was killed (a fault of the experiment)",
      "rank 2 was told to leave (a fault of the experiment)",
      "sample 37, of rank 1, holds a NaN (a fault of the experiment)",
    ],
  );
  const slow = { control: { ...CONTROL, slow: { 1: 4 } } };
  assert.deepEqual(words([row(0, "wait", 1, 2)], slow), [
    "rank 1 slowed ×4 (a fault of the experiment)",
  ]);
  // a row says who it was
  assert.deepEqual(words([fault(4, "slow", 1, 4)], slow), ["You slowed rank 1 ×4"]);
});

test("pads that are overrun are shown in one line, with the longest", () => {
  const over = (rank, t, value) =>
    row(rank, "metric", t, t, {
      ...DRIVER,
      lane: "compute",
      name: "pad overrun",
      value,
      iteration: 1,
    });
  assert.deepEqual(words([over(1, 5, 3), over(1, 9, 4), over(1, 11, 2)]), [
    "rank 1: a padded computation lasted up to 4.00 ms longer than its pad",
  ]);
  assert.deepEqual(words([over(1, 5, 3), over(1, 9, 4), over(2, 12, 1.5)]), [
    "padded computations of 2 ranks lasted up to 4.00 ms longer than their pads",
  ]);
});

test("what was done about it", () => {
  const list = ["abort", "rebuild", "restore", "checkpoint"].map((kind, i) =>
    row(1, kind, i, i, { ...DRIVER, lane: "comm", iteration: 19 }),
  );
  assert.deepEqual(words(list), [
    "rank 1 left generation 0",
    "rank 1 joined generation 0",
    "rank 1 took over what was trained",
    "rank 1 kept a checkpoint in iteration 20",
  ]);
});

test("a recovery: those that do the same in one line", () => {
  const { rows: list } = recovered({ fresh: true });
  const told = words(list.filter(({ kind }) => /fault|detect|abort|rebuild|restore/.test(kind)));
  assert.deepEqual(told, [
    "rank 1 was killed (a fault of the experiment)",
    "it was noticed that rank 1 was killed",
    "2 ranks left generation 0",
    "3 ranks joined generation 1",
    "2 ranks kept what was trained",
    "rank 1 received 1.00 kB of parameters and optimizer state from a survivor",
  ]);
});

const loss = (i) =>
  [0, 1, 2].map((r) =>
    row(r, "metric", 1e6 * (i + 1), 1e6 * (i + 1), {
      ...DRIVER,
      lane: "compute",
      name: "loss",
      value: 2 - i / 20,
      iteration: i,
    }),
  );

test("milestones: the first call, every tenth of the run, the end", () => {
  const run = { ...RUN, iterations: 20 };
  const list = [...rows, ...Array.from({ length: 20 }, (_, i) => loss(i)).flat()];
  const told = words(list, { run, state: "finished" });
  assert.equal(told[0], "First all-reduce: 3 ranks combined 1.20 kB in 2.00 µs");
  assert.equal(told[1], "2 of 20 iterations: loss 1.95");
  assert.equal(told.length, 1 + 9 + 1);
  assert.equal(told.at(-1), "The run is over: 20 iterations in 20.0 ms, loss 1.05");
  const known = heard(loss(0), { run });
  const happenings = new Happenings(known);
  assert.deepEqual(happenings.read(known, 0), []);
  const on = receive(known, ...batch([...loss(1), ...loss(2), ...loss(3)], { run, seq: 2 }), 0);
  assert.deepEqual(
    happenings.read(on, 0).map((l) => l.words),
    ["2 of 20 iterations: loss 1.95", "4 of 20 iterations: loss 1.85"],
  );
  assert.deepEqual(words(list, { run: { ...run, iterations: -1 } }).length, 1);
  // the first call on this page is not the run's first
  assert.deepEqual(words(rows, { counters: { older: 5 } }), []);
});

test("a run that failed says who and how, without what every rank was in", () => {
  assert.equal(
    headline(heard([], { state: "failed", words: "x", failure: killedIn(1, 9) })),
    "Rank 1 was killed by SIGKILL in iteration 9",
  );
  assert.deepEqual(
    words([fault(1, "kill", 1)], {
      state: "failed",
      words: "what its message says",
      failure: killedIn(1, 9),
    }),
    ["You killed rank 1", "Rank 1 was killed by SIGKILL in iteration 9."],
  );
});

test("the end is that of the whole history, though it comes in parts", () => {
  const run = { ...RUN, iterations: 20 };
  let known = heard([...loss(0), ...loss(1), ...loss(2)], { run, state: "finished" });
  const first = new Happenings(known);
  first.read(known, 0);
  known = receive(
    known,
    ...batch(Array.from({ length: 17 }, (_, i) => loss(i + 3)).flat(), {
      run,
      seq: 2,
      state: "finished",
    }),
    0,
  );
  const told = first.read(known, 0).map((l) => l.words);
  assert.deepEqual(
    told.filter((words) => words.startsWith("The run is over")),
    ["The run is over: 20 iterations in 20.0 ms, loss 1.05"],
  );
  assert.equal(told.at(-1), "The run is over: 20 iterations in 20.0 ms, loss 1.05");
  const version = first.version;
  first.read(known, 0);
  assert.equal(first.version, version, "nothing new, nothing said anew");
});

test("what only the header tells is said when it changes", () => {
  let known = heard(rows);
  let happenings = new Happenings(known);
  const then = (control, now) => {
    known = receive(
      known,
      ...batch([], { seq: known.seq + 1, control: { ...CONTROL, ...control } }),
      0,
    );
    return happenings.read(known, now).at(-1).words;
  };
  happenings.read(known, 0);
  assert.equal(then({ held: true }, 5e9), "The ranks are held");
  assert.equal(then({ held: true }, 6e9), "The ranks are held");
  const [held] = holdsOf(known.table);
  assert.deepEqual([held.from, held.to], [4e9, Infinity], "a second is what a page may be late");
  assert.equal(then({}, 7e9), "The ranks run again");
  assert.deepEqual([held.from, held.to], [4e9, 7e9], "when, for the timeline");
  assert.equal(
    then({ slow_motion: 1000 }, 8e9),
    "Slow motion: every transfer lasts 1,000 times as long",
  );
  assert.equal(
    then({ ended: { 2: "killed by SIGKILL" }, how: { 2: "killed" }, slow_motion: 1000 }, 9e9),
    "Rank 2's process: killed by SIGKILL",
  );
  assert.equal(happenings.lines.length, 5);
  known = receive(
    known,
    ...batch([], {
      seq: 99,
      state: "failed",
      words: "what its message says",
      failure: reworded(killedIn(2, 3)),
    }),
    0,
  );
  assert.deepEqual(
    happenings
      .read(known, 0)
      .map((l) => l.words)
      .filter((words) => /^Rank 2's|^Es/.test(words)),
    ["Es ging nicht gut aus."],
    "the end of the process is told once, in whatever words",
  );
});

test("it reads on from where it was, sorts late lines in, and is bounded", () => {
  let known = heard([fault(5000, "freeze", 1)]);
  const happenings = new Happenings(known);
  happenings.read(known, 0);
  known = receive(known, ...batch([fault(1000, "freeze", 0), ...calls(1)], { seq: 2 }), 0);
  assert.deepEqual(
    happenings.read(known, 0).map((l) => l.t),
    [1000, 3000, 5000],
  );
  const version = happenings.version;
  happenings.read(known, 0);
  assert.equal(happenings.version, version);
  known = receive(
    known,
    ...batch(
      Array.from({ length: 900 }, (_, i) => fault(1e4 + i, "freeze", 1)),
      { seq: 3 },
    ),
    0,
  );
  assert.equal(happenings.read(known, 0).length, 400);
  known.table.forget(500);
  known = receive(known, ...batch([fault(9e9, "thaw", 1)], { seq: 4 }), 0);
  const lines = happenings.read(known, 0);
  assert.equal(lines.length, 400);
  assert.deepEqual(
    lines.slice(-2).map((l) => l.words),
    ["You froze rank 1", "You let rank 1 go on"],
  );
});

test("a minibatch that the user has had corrupted is told as the user's doing", () => {
  const struck = (group) =>
    row(2, "fault", 1, 1, {
      lane: "compute",
      op: -1,
      iteration: 4,
      collective: "",
      algorithm: "",
      name: "corrupt nan",
      value: 17,
      group,
    });
  assert.deepEqual(words([struck("by hand")]), ["You put a NaN into sample 17, of rank 2"]);
  assert.deepEqual(words([struck("")]), [
    "sample 17, of rank 2, holds a NaN (a fault of the experiment)",
  ]);
});

test("where nothing happened, the list says what appears there, or that nothing was recorded", () => {
  assert.deepEqual(words([]), []);
  assert.match(quietWords(heard([], { state: "running" })), /appear here\.$/);
  for (const state of ["finished", "replay"])
    assert.match(quietWords(heard([], { state })), /^No fault.* was recorded\.$/);
});

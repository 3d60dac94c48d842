import assert from "node:assert/strict";
import { failedHead, failedHere, failedWords } from "../../assets/engine/failure_caption.js";
import { hasLost, killedIn, reworded, wasIn } from "./failures.js";
import { test } from "node:test";
import { doingAt, doingNow, sharesOf } from "../../assets/engine/rank_activity.js";
import { lostRanks, underWay } from "../../assets/engine/lost_ranks.js";
import { nothing, receive } from "../../assets/engine/page_state.js";
import { DRIVER } from "./feed_of.js";
import { CONTROL, RUN, batch, row, tableOf } from "./rows.js";

const S = 1e9;
const compute = (rank, kind, start, end) =>
  row(rank, kind, start, end, {
    lane: "compute",
    op: -1,
    collective: "",
    algorithm: "",
    group: "",
  });
/**
 * Two ranks over one second: rank 0 computes 0.2 s of it and waits for rank 1, which computes 0.9
 * s.
 */
const second = [
  compute(0, "forward", 0, 0.05 * S),
  compute(0, "backward", 0.05 * S, 0.2 * S),
  row(0, "wait", 0.2 * S, 0.95 * S, { peer: 1, step: 0, chunk: 1 }),
  row(0, "recv", 0.95 * S, S, { peer: 1, step: 0, chunk: 1 }),
  row(0, "collective", 0.2 * S, S),
  compute(1, "backward", 0, 0.9 * S),
  row(1, "send", 0.9 * S, S, { peer: 0, step: 0, chunk: 1 }),
  row(1, "collective", 0.9 * S, S),
];
const heard = (list, more = {}) =>
  receive(nothing(), ...batch(list, { run: { ...RUN, ranks: 2 }, now: S, ...more }), 0);
const lane = (rank, more) => ({
  rank,
  lane: "comm",
  kind: "wait",
  peer: -1,
  group: "default",
  collective: "",
  algorithm: "",
  op: 0,
  step: 0,
  chunk: 0,
  since: S,
  dtype: "",
  shape: "",
  values: [],
  ...more,
});
const words = (doings) => doings.map((d) => `${d.mark}: ${d.words}`);

test("at a moment of the record each rank is in its innermost row", () => {
  const table = tableOf(second);
  assert.deepEqual(words(doingAt(table, 2, 0.1 * S, true)), [
    "compute: was computing gradients",
    "compute: was computing gradients",
  ]);
  assert.deepEqual(words(doingAt(table, 2, 0.5 * S, false)), [
    "wait: waits for rank 1",
    "compute: computes gradients",
  ]);
  assert.deepEqual(
    doingAt(table, 2, 0.5 * S, false).map((d) => [d.waits, d.forWhom]),
    [
      [1, 1],
      [0, -1],
    ],
  );
  assert.deepEqual(words(doingAt(table, 2, 0.97 * S, true)), [
    "move: was receiving chunk 1 from rank 1",
    "move: was sending chunk 1 to rank 0",
  ]);
  assert.deepEqual(
    words(doingAt(table, 3, 2 * S, true)),
    Array(3).fill("none: had nothing under way"),
  );
});

test("a message that waits under a computing rank is a halo, not its state", () => {
  const [doing] = doingAt(
    tableOf([compute(0, "backward", 0, 100), row(0, "wait", 10, 90, { peer: 1 })]),
    1,
    50,
    false,
  );
  assert.deepEqual(
    [doing.mark, doing.halo, doing.words],
    ["compute", true, "computes gradients; a message waits for rank 1"],
  );
});

test("shares of a window, clipped to it; outer spans count for nothing", () => {
  const table = tableOf(second);
  const lanes = [...table.lanes.values()].filter((l) => l.rank === 0);
  const shares = sharesOf(table, lanes, 0.1 * S, 0.6 * S);
  assert.ok(
    Math.abs(shares.compute - 0.2) < 1e-9 &&
      Math.abs(shares.wait - 0.8) < 1e-9 &&
      shares.move === 0,
  );
  assert.deepEqual([...shares.peers], [[1, 0.4 * S]]);
});

test("now: shares of the last second where all changes fast", () => {
  assert.deepEqual(words(doingNow(heard(second), 2, S)), [
    "wait: waits 75 %, for rank 1",
    "compute: computes gradients",
  ]);
});

test("a mark gives way only to a clearly larger share", () => {
  const close = [compute(0, "backward", 0, 0.48 * S), row(0, "wait", 0.48 * S, S, { peer: 1 })];
  assert.equal(doingNow(heard(close), 1, S)[0].mark, "wait");
  assert.equal(doingNow(heard(close), 1, S, ["compute"])[0].mark, "compute");
});

test("now: what has lasted is told as it is, unless its row has come since", () => {
  const waits = { lanes_now: [lane(0, { peer: 1, since: S + 1 })] };
  const [zero] = doingNow(heard(second, waits), 2, 2.27 * S);
  assert.deepEqual(
    [zero.mark, zero.words, zero.long],
    ["wait", "waits for rank 1, 1.20 s so far", true],
  );
  const stale = doingNow(
    heard(second, { lanes_now: [lane(0, { peer: 1, since: 0.2 * S })] }),
    2,
    1.27 * S,
  );
  assert.equal(stale[0].mark, "move"); // the wait row of 0.2 s is there: it is over
});

test("nothing is known of a rank whose host is cut off", () => {
  const control = { ...CONTROL, cut_off: { 1: "b" } };
  const lanes_now = [lane(1, { kind: "backward" })]; // as it was when the last of it came
  const found = { ...DRIVER, peer: 1, group: "b" };
  const rows = [
    ...second,
    row(-1, "detect", S - 2, S - 2, { ...found, name: "cut off" }),
    row(-1, "detect", S - 1, S - 1, { ...found, name: "back" }),
  ];
  assert.deepEqual([...lostRanks(heard(rows))], [], "it is not lost");
  const [here, away] = doingNow(heard(rows, { control, lanes_now }), 2, S);
  assert.notEqual(here.mark, "away");
  assert.deepEqual(
    [away.mark, away.words],
    ["away", "host b is cut off: what it does is not known"],
  );
});

test("made by us: frozen, held, slowed", () => {
  const control = { ...CONTROL, frozen: [1], slow: { 1: 4 } };
  assert.equal(doingNow(heard(second, { control }), 2, S)[1].mark, "frozen");
  assert.equal(
    doingNow(heard(second, { control: { ...control, frozen: [] } }), 2, S)[1].words,
    "computes gradients, slowed ×4",
  );
  const held = heard(second, {
    control: { ...CONTROL, held: true, standing: [0, 1] },
    lanes_now: [lane(0, {})],
  });
  assert.deepEqual(words(doingNow(held, 2, 5 * S)), [
    "held: before a chunk of the all-reduce",
    "held: before its next iteration",
  ]);
});

const FOUND = { rank: 1, peer: 0, doing: "all_reduce 1045, step 0", found_by: 0 };
const FAILED = killedIn(1, 9, [
  hasLost(0, FOUND),
  wasIn(1, "call 1044, step 5, chunk 1"),
  hasLost(2, FOUND),
]);

test("the end of each rank: who was lost, how, and what was under way", () => {
  assert.deepEqual([...underWay(FAILED).keys()], [0, 1, 2]);
  const failed = heard(second, { state: "failed", words: "it failed", failure: FAILED });
  assert.deepEqual([...lostRanks(failed)], [[1, { how: "killed", words: "killed by SIGKILL" }]]);
  assert.deepEqual(words(doingNow(failed, 3, S)), [
    "stopped: stopped in all_reduce 1045, step 0: rank 1 ended",
    "killed: killed by SIGKILL, in call 1044, step 5, chunk 1",
    "stopped: stopped: rank 1 ended, told by rank 0",
  ]);
  assert.equal(
    doingNow(
      heard(second, {
        control: { ...CONTROL, ended: { 1: "exited with code 3" }, how: { 1: "exited" } },
      }),
      2,
      S,
    )[1].words,
    "exited with code 3",
  );
  assert.deepEqual(words(doingNow(heard(second, { state: "finished" }), 2, S)), [
    "ended: ended",
    "ended: ended",
  ]);
});

test("whatever the words, it is known who was lost and what each rank is", () => {
  const as = (failure, text) => heard(second, { state: "failed", words: text, failure });
  const [first, other] = [as(FAILED, "it failed"), as(reworded(FAILED), "schiefgegangen")];
  const marks = (known) => doingNow(known, 3, S).map(({ rank, mark }) => `${rank} ${mark}`);
  assert.deepEqual(marks(other), ["0 stopped", "1 killed", "2 stopped"]);
  assert.deepEqual(marks(other), marks(first));
  assert.deepEqual([...lostRanks(other)], [[1, { how: "killed", words: "weg" }]]);
  const ended = { 0: "zu Ende", 1: "weg" };
  const running = heard(second, {
    control: { ...CONTROL, ended, how: { 0: "ended", 1: "killed" } },
  });
  assert.deepEqual([...lostRanks(running).keys()], [1]);
  assert.equal(failedHead(other), "Es ging nicht gut aus");
  assert.match(
    failedWords(other),
    /^Es ging nicht gut aus; it was mitten in 1; rank 0 noticed it in/,
  );
  const { table } = other;
  const here = (t, live, known = other) => failedHere({ known, live, t, table });
  assert.deepEqual(
    [here(table.to, false), here(0, true), here(0, false), here(table.to, true, running)],
    [failedWords(other), failedWords(other), "", ""],
  );
});

test("before a rank's first row", () => {
  const control = { ...CONTROL, pids: { 0: 7 } };
  assert.deepEqual(words(doingNow(heard([], { state: "starting", control }), 2, 0)), [
    "none: starts (process 7)",
    "none: starts",
  ]);
  assert.equal(doingNow(heard([], { state: "empty" }), 1, 0)[0].words, "not started");
  assert.equal(doingNow(nothing(), 1, 0)[0].words, "not known yet");
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { Happenings, faultWords, headline } from "../../assets/feed.js";
import { nothing, receive } from "../../assets/known.js";
import { CONTROL, RUN, batch, calls, row, rows } from "./rows.js";

const DRIVER = { lane: "driver", op: -1, iteration: -1, collective: "", algorithm: "", group: "" };
const fault = (t, name, peer, value = NaN) => row(-1, "fault", t, t, { ...DRIVER, name, peer, value });
const heard = (list, more = {}) => receive(nothing(), ...batch(list, more), 0);
const read = (known, now = 0) => new Happenings(known).read(known, now);
const words = (list, more) => read(heard(list, more)).map((line) => line.words);

test("what the user did", () => {
  const list = [fault(1, "kill", 2), fault(2, "freeze", 2), fault(3, "thaw", 2), fault(4, "slow", 1, 4), fault(5, "slow", 1, 1)];
  assert.deepEqual(words(list), ["You killed rank 2", "You froze rank 2", "You let rank 2 go on", "You slowed rank 1 ×4", "You let rank 1 run at full speed again"]);
});

test("links, with what they are now; both directions at once are one line", () => {
  const far = 1e9, list = [fault(1, "link 0->1 20 ms, 10 Mbit/s", 1), fault(far, "link 0->1 cut", 1), fault(far + 9, "link 1->0 cut", 0),
    fault(2 * far, "link 2->1 restored", 1), fault(3 * far, "link 0->1 5 ms 1 Gbit/s", 1), fault(4 * far, "link 0->1", 1)];
  assert.deepEqual(words(list), ["link 0 → 1 now 20 ms, 10 Mbit/s", "You cut link 0 ↔ 1", "You restored link 2 → 1", "link 0 → 1 now 5 ms, 1 Gbit/s", "You changed link 0 → 1"]);
});

test("faults of the experiment are not the user's", () => {
  assert.equal(faultWords("freeze", 2, 1.5, false), "rank 2 froze for 1.50 s (a fault of the experiment)");
  assert.deepEqual(words([row(2, "fault", 5, 5, { ...DRIVER, lane: "compute", name: "kill" })]), ["rank 2 was killed (a fault of the experiment)"]);
  const slow = { control: { ...CONTROL, slow: { 1: 4 } } };
  assert.deepEqual(words([row(0, "wait", 1, 2)], slow), ["rank 1 slowed ×4 (a fault of the experiment)"]);
  assert.deepEqual(words([fault(4, "slow", 1, 4)], slow), ["You slowed rank 1 ×4"]); // a row says who it was
});

test("what was noticed, with call, step, and for whom", () => {
  const stalled = row(2, "detect", 9, 9, { peer: 1, name: "stalled: stopped", value: 1.04, op: 37 });
  assert.deepEqual(words([stalled]), ["rank 2: no progress for 1.0 s, in all_reduce call 38; it waits for rank 1, whose process is stopped"]);
  assert.match(words([{ ...stalled, name: "stalled" }, row(2, "wait", 1, 20, { op: 37, step: 2, peer: 1 })])[0], /in all_reduce call 38, step 2; it waits for rank 1$/);
  const now = { lanes_now: [{ rank: 2, lane: "comm", kind: "wait", op: 37, step: 3 }] };
  assert.match(words([stalled], now)[0], /call 38, step 3;/);
});

test("what was done about it", () => {
  const list = ["abort", "rebuild", "restore", "checkpoint"].map((kind, i) => row(1, kind, i, i, { ...DRIVER, lane: "comm", iteration: 19 }));
  assert.deepEqual(words(list), ["rank 1 gave up in iteration 20", "rank 1 joined a new group in iteration 20", "rank 1 went back to what was kept in iteration 20", "rank 1 kept a checkpoint in iteration 20"]);
});

const loss = (i) => [0, 1, 2].map((r) => row(r, "metric", 1e6 * (i + 1), 1e6 * (i + 1), { ...DRIVER, lane: "compute", name: "loss", value: 2 - i / 20, iteration: i }));

test("milestones: the first call, every tenth of the run, the end", () => {
  const run = { ...RUN, iterations: 20 }, list = [...rows, ...Array.from({ length: 20 }, (_, i) => loss(i)).flat()];
  const told = words(list, { run, state: "finished" });
  assert.equal(told[0], "First all-reduce: 3 ranks combined 1.20 kB in 2.00 µs");
  assert.equal(told[1], "2 of 20 iterations: loss 1.95");
  assert.equal(told.length, 1 + 9 + 1);
  assert.equal(told.at(-1), "The run is over: 20 iterations in 20.0 ms, loss 1.05");
  const known = heard(loss(0), { run }), happenings = new Happenings(known);
  assert.deepEqual(happenings.read(known, 0), []);
  const on = receive(known, ...batch([...loss(1), ...loss(2), ...loss(3)], { run, seq: 2 }), 0);
  assert.deepEqual(happenings.read(on, 0).map((l) => l.words), ["2 of 20 iterations: loss 1.95", "4 of 20 iterations: loss 1.85"]);
  assert.deepEqual(words(list, { run: { ...run, iterations: -1 } }).length, 1);
  assert.deepEqual(words(rows, { counters: { older: 5 } }), []); // the first call on this page is not the run's first
});

test("a run that failed says who and how, without what every rank was in", () => {
  assert.equal(headline("rank 1 (process 41) was killed by SIGKILL in iteration 9. Under way: rank 0: in forward"), "Rank 1 was killed by SIGKILL in iteration 9.");
  assert.deepEqual(words([fault(1, "kill", 1)], { state: "failed", words: "rank 1 (process 41) was killed by SIGKILL in iteration 9. Under way: x" }), ["You killed rank 1", "Rank 1 was killed by SIGKILL in iteration 9."]);
});

test("what only the header tells is said when it changes", () => {
  let known = heard(rows), happenings = new Happenings(known);
  const then = (control, now) => {
    known = receive(known, ...batch([], { seq: known.seq + 1, control: { ...CONTROL, ...control } }), 0);
    return happenings.read(known, now).at(-1).words;
  };
  happenings.read(known, 0);
  assert.equal(then({ held: true }, 5e9), "The ranks are held");
  assert.equal(then({ held: true }, 6e9), "The ranks are held");
  assert.equal(then({}, 7e9), "The ranks run again");
  assert.equal(then({ slow_motion: 1000 }, 8e9), "Slow motion: every transfer lasts 1,000 times as long");
  assert.equal(then({ ended: { 2: "killed by SIGKILL" }, slow_motion: 1000 }, 9e9), "Rank 2's process: killed by SIGKILL");
  assert.equal(happenings.lines.length, 5);
  known = receive(known, ...batch([], { seq: 99, state: "failed", words: "rank 2 (process 9) was killed by SIGKILL in iteration 3. Under way: x" }), 0);
  assert.deepEqual(happenings.read(known, 0).map((l) => l.words).filter((words) => words.includes("SIGKILL")), ["Rank 2 was killed by SIGKILL in iteration 3."]);
});

test("it reads on from where it was, sorts late lines in, and is bounded", () => {
  let known = heard([fault(5000, "freeze", 1)]);
  const happenings = new Happenings(known);
  happenings.read(known, 0);
  known = receive(known, ...batch([fault(1000, "freeze", 0), ...calls(1)], { seq: 2 }), 0);
  assert.deepEqual(happenings.read(known, 0).map((l) => l.t), [1000, 3000, 5000]);
  const version = happenings.version;
  happenings.read(known, 0);
  assert.equal(happenings.version, version);
  known = receive(known, ...batch(Array.from({ length: 900 }, (_, i) => fault(1e4 + i, "freeze", 1)), { seq: 3 }), 0);
  assert.equal(happenings.read(known, 0).length, 400);
  known.table.forget(500);
  known = receive(known, ...batch([fault(9e9, "thaw", 1)], { seq: 4 }), 0);
  const lines = happenings.read(known, 0);
  assert.equal(lines.length, 400);
  assert.deepEqual(lines.slice(-2).map((l) => l.words), ["You froze rank 1", "You let rank 1 go on"]);
});

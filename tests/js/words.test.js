import assert from "node:assert/strict";
import { test } from "node:test";
import { NOTHING, receive } from "../../assets/model.js";
import { badge, bytes, duration, factsOf, grouped, sentence, speed, stateOf, story, ticks, titleOf } from "../../assets/words.js";
import { batch } from "./rows.js";

const known = receive(NOTHING, ...batch([6]), 0), call = known.calls[0];

test("times and bytes as people say them", () => {
  assert.deepEqual([0, 412, 999.6, 12_400, 999_600, 3.14e6, 1.25e9].map(duration), ["0 ns", "412 ns", "1.00 µs", "12.4 µs", "1.00 ms", "3.14 ms", "1.25 s"]);
  assert.deepEqual([0, 40, 61_700, 999_600, 246_824, 4.2e6].map(bytes), ["0 B", "40 B", "61.7 kB", "1.00 MB", "247 kB", "4.20 MB"]);
  assert.deepEqual([0, 999, 1000, 1234567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
});

test("the speed of the picture", () => {
  assert.deepEqual([1, 1.04, 2.5, 33.4, 20_345, 1_234_567].map(speed), ["×1", "×1", "×1/2.5", "×1/33", "×1/20,000", "×1/1,200,000"]);
});

test("the badge says what the picture is", () => {
  assert.equal(badge(call, known, 0.31e9), "real · call 7 of 7 · sampled · ×1/2,000,000 · 0.3 s behind");
  assert.equal(badge(call, known, NaN), "real · call 7 of 7 · sampled · ×1/2,000,000");
  assert.match(badge({ ...call, clock: { ...call.clock, even: false } }, known, 0), /×1\/2,000,000, slower where more happens/);
  const over = { ...known, state: "finished" };
  assert.equal(badge(call, over, 9e9), "real · call 7 of 7 · sampled · ×1/2,000,000 · replayed");
  assert.match(badge({ ...call, left_out: "first 2 of 9 pieces a chunk" }, known, 0), /sampled · first 2 of 9 pieces a chunk · ×1\/2/);
  const whole = receive(NOTHING, ...batch([0], { counters: { ...known.counters, calls: 1 } }), 0);
  assert.equal(badge(whole.calls[0], whole, 0), "real · call 1 of 1 · ×1/2,000,000 · 0.0 s behind");
});

test("every state has a word and a sentence", () => {
  assert.deepEqual(stateOf(NOTHING, false), ["○ Nothing runs yet", "empty"]);
  assert.deepEqual(stateOf(known, true), ["❚❚ View held", "held"]);
  assert.deepEqual(stateOf({ ...known, state: "failed" }, true), ["✕ Failed", "failed"]);
  for (const state of ["empty", "starting", "running", "finished", "failed", "replay"]) assert.notEqual(sentence({ ...NOTHING, state }, null), "");
  assert.equal(sentence({ ...known, state: "failed", words: "rank 2 was killed" }, call), "rank 2 was killed");
});

test("the header line", () => {
  assert.equal(factsOf(known), "3 ranks · iteration 7 of 200 · loss 0.250");
  assert.equal(factsOf(NOTHING), "");
  assert.equal(titleOf(call), "Ring all-reduce");
  assert.equal(titleOf({ ...call, algorithm: "one_shot" }), "One-shot all-reduce");
});

test("the sentence names who waited longest, for whom, how long", () => {
  assert.equal(sentence(known, call), "3 ranks combined 1.20 kB in 2.00 µs; rank 1 waited longest, 400 ns for rank 0.");
  assert.match(sentence(known, { ...call, waits: [] }), /nobody waited long/);
  assert.match(sentence(known, { ...call, waits: call.waits.map((w) => ({ ...w, name: "slots full" })) }), /for room at rank 0/);
});

test("the story up to the playhead, the newest lines", () => {
  assert.deepEqual(story(call, 0, 9), []);
  assert.deepEqual(story(call, 1000, 9).map(([, words]) => words),
    ["rank 1 had waited 400 ns for chunk 0 from rank 0", "rank 1 added chunk 0 from rank 0, 400 B in 1.00 µs"]);
  assert.deepEqual(story(call, 2000, 1).map(([at]) => at), ["2.00 µs"]);
});

test("a rank that joins in late is told", () => {
  const late = { ...call, came: new Map([[0, 0], [2, 900]]) };
  assert.deepEqual(story(late, 950, 9).map(([, words]) => words).filter((w) => /late/.test(w)), ["rank 2 joined in, late"]);
});

test("ticks are round, inside, and few", () => {
  for (const span of [7, 350, 4.2e3, 350e3, 1e6, 20.4e6, 120e6, 8e9])
    for (const most of [4, 8]) {
      const marks = ticks(span, most);
      assert.ok(marks.length >= 2 && marks.length <= most + 1, `${span}: ${marks.length}`);
      assert.ok(marks.every((m) => m.t <= span * (1 + 1e-9)));
      assert.equal(new Set(marks.map((m) => m.label)).size, marks.length, JSON.stringify(marks));
    }
  assert.deepEqual(ticks(350e3, 8).slice(0, 3).map((m) => m.label), ["0", "50 µs", "100 µs"]);
  assert.deepEqual(ticks(0, 8), [{ t: 0, label: "0" }]);
});

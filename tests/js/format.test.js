import assert from "node:assert/strict";
import { test } from "node:test";
import { nothing, receive } from "../../assets/engine/page_state.js";
import { openCall } from "../../assets/engine/model.js";
import { AT_START, tell } from "../../assets/engine/player.js";
import {
  parameterLabel,
  badge,
  bytes,
  counted,
  duration,
  factsOf,
  grouped,
  meter,
  percent,
  sentence,
  speed,
  stateOf,
  ticks,
  titleOf,
} from "../../assets/engine/format.js";
import { CONTROL, batch, calls } from "./rows.js";

const counters = {
  events: 9,
  dropped: 0,
  per_second: 0,
  iteration: 6,
  loss: 0.25,
  accuracy: null,
  record_share: 0.0088,
  older: 0,
};
const known = receive(nothing(), ...batch(calls(7), { counters }), 0);
const call = openCall(known.table, known.table.calls[6]);
const telling = tell(AT_START, call.key, 0);
const look = { known, call, live: true, held: false };

test("times and bytes as people say them", () => {
  assert.deepEqual([0, 412, 999.6, 12_400, 999_600, 3.14e6, 1.25e9].map(duration), [
    "0 ns",
    "412 ns",
    "1.00 µs",
    "12.4 µs",
    "1.00 ms",
    "3.14 ms",
    "1.25 s",
  ]);
  assert.deepEqual([0, 40, 61_700, 999_600, 246_824, 4.2e6].map(bytes), [
    "0 B",
    "40 B",
    "61.7 kB",
    "1.00 MB",
    "247 kB",
    "4.20 MB",
  ]);
  assert.deepEqual([0, 999, 1000, 1234567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
  assert.deepEqual(
    [0, 1, 2, 1000].map((n) => counted(n, "event")),
    ["0 events", "1 event", "2 events", "1,000 events"],
  );
  assert.deepEqual(
    [1, 2].map((n) => counted(n, "push")),
    ["1 push", "2 pushes"],
  );
});

test("the speed of the picture", () => {
  assert.deepEqual([1, 1.04, 2.5, 33.4, 20_345, 1_234_567].map(speed), [
    "×1",
    "×1",
    "×1/2.5",
    "×1/33",
    "×1/20,000",
    "×1/1,200,000",
  ]);
});

test("the badge says what the picture is", () => {
  assert.equal(badge(look, 0.31e9, telling), "real · call 7 of 7 · ×1/2,000,000 · 0.3 s behind");
  assert.equal(badge({ ...look, live: false }, 9e9, telling), "real · call 7 of 7 · ×1/2,000,000");
  assert.equal(
    badge({ ...look, known: { ...known, state: "finished" } }, 9e9, telling),
    "real · call 7 of 7 · ×1/2,000,000 · replayed",
  );
  assert.match(
    badge({ ...look, call: { ...call, left_out: "first 2 of 9 pieces a chunk" } }, 0, telling),
    /call 7 of 7 · first 2 of 9 pieces a chunk · ×1\/2/,
  );
  const failed = { ...known, state: "failed" };
  assert.equal(badge({ ...look, known: failed }, 9e9, telling), "real · call 7 of 7", "it stands");
  assert.match(badge({ ...look, known: failed, live: false }, 9e9, telling), / · replayed$/);
  const over = { ...look, held: true, known: { ...known, state: "finished" } };
  assert.equal(badge(over, 0, telling), "real · call 7 of 7 · held");
  assert.match(badge({ ...look, held: true }, 0, telling), /^real · call 7 of 7 · held/);
  assert.match(badge(look, 0, { ...telling, pace: 1e4 }), / ×1\/100 /);
  assert.equal(
    badge({ ...look, known: { ...known, control: { held: true } } }, 9e9, telling),
    "real · call 7 of 7 · you hold the ranks",
    "it is of the newest row, however long that is ago",
  );
  // the ranks' own pace
  assert.match(badge(look, 0.5e9, { ...telling, key: "" }), / ×1 · 0.5 s behind$/);
  assert.match(
    badge({ ...look, known: { ...known, counters: { ...counters, older: 1234 } } }, 0, telling),
    /the first 1,234 events are not on this page/,
  );
});

test("every state has a word and a sentence", () => {
  assert.deepEqual(stateOf({ ...known, state: "empty" }, false), ["○ Nothing runs yet", "empty"]);
  assert.deepEqual(
    [stateOf(nothing(), false), sentence(nothing())],
    [["◌ Loading", "starting"], "Loading …"],
    "what has heard nothing yet says nothing of the run",
  );
  assert.match(sentence({ ...known, state: "empty" }), /^Nothing runs yet/);
  assert.deepEqual(stateOf(known, true), ["❚❚ View held", "held"]);
  assert.deepEqual(stateOf({ ...known, state: "failed" }, true), ["✕ Failed", "failed"]);
  assert.deepEqual(stateOf({ ...known, control: { ...CONTROL, held: true } }, false), [
    "■ Ranks held",
    "ours",
  ]);
  for (const state of ["empty", "starting", "running", "finished", "failed", "replay"])
    assert.notEqual(sentence({ ...nothing(), state }), "");
  assert.equal(
    sentence({ ...known, state: "failed", words: "rank 2 was killed" }),
    "rank 2 was killed",
  );
});

test("the header line", () => {
  assert.equal(factsOf(known), "3 ranks · iteration 7 of 200 · loss 0.250");
  const then = { iteration: 2, loss: 1.25 };
  assert.equal(
    factsOf({ ...known, state: "replay" }, then),
    "3 ranks · iteration 3 (of 7) · loss then 1.25",
  );
  assert.equal(factsOf(known, then), "3 ranks · iteration 3 (of 7 so far) · loss then 1.25");
  assert.equal(factsOf(known, { iteration: 0, loss: NaN }), "3 ranks · iteration 1 (of 7 so far)");
  assert.equal(factsOf(known, { iteration: 6, loss: NaN }), factsOf(known), "the newest");
  const all = { iteration: 6, loss: 0.5 }; // the last loss that all ranks told
  assert.equal(factsOf(known, all), "3 ranks · iteration 7 of 200 · loss then 0.500");
  assert.equal(factsOf(nothing()), "");
  assert.equal(factsOf({ ...known, run: { ...known.run, ranks: 0 }, counters: null }), "");
  assert.equal(titleOf(call), "Ring all-reduce");
  assert.equal(titleOf({ ...call, algorithm: "one_shot" }), "One-shot all-reduce");
});

test("the meter says what recording costs, and what it lost", () => {
  assert.equal(meter(known), "recording 0.88 % of step time · 9 events · 0 dropped");
  assert.equal(
    meter({ ...known, counters: { ...counters, per_second: 14_600, dropped: 2000 } }),
    "recording 0.88 % of step time · 14.6 k events/s · 2,000 dropped",
  );
  assert.equal(
    meter({ ...known, counters: { ...counters, coarser: [12_000, 300] } }),
    "recording 0.88 % of step time · 9 events · coarser: 12,000 chunks in 300 rows · 0 dropped",
  );
  assert.equal(
    meter({ ...known, counters: { ...counters, per_second: 400_000, folded: [3e6, 41_000] } }),
    "recording 0.88 % of step time · 400 k events/s · on this page 3.00 million of them in 41.0 k rows · 0 dropped",
  );
  assert.equal(
    meter({ ...known, counters: { ...counters, record_share: null } }),
    "9 events · 0 dropped",
  );
  assert.equal(meter(nothing()), "");
  assert.deepEqual([0.0088, 0.0001, 0.25].map(percent), ["0.88 %", "0.010 %", "25.00 %"]);
});

test("ticks are round, inside, and few", () => {
  for (const span of [7, 350, 4.2e3, 350e3, 1e6, 20.4e6, 120e6, 8e9])
    for (const most of [4, 8]) {
      const marks = ticks(span, most);
      assert.ok(marks.length >= 2 && marks.length <= most + 1, `${span}: ${marks.length}`);
      assert.ok(marks.every((m) => m.t <= span * (1 + 1e-9)));
      assert.equal(new Set(marks.map((m) => m.label)).size, marks.length, JSON.stringify(marks));
    }
  assert.deepEqual(
    ticks(350e3, 8)
      .slice(0, 3)
      .map((m) => m.label),
    ["0", "50 µs", "100 µs"],
  );
  assert.deepEqual(ticks(0, 8), [{ t: 0, label: "0" }]);
});

test("a parameter is called by its layer and what it is there; other names stay", () => {
  for (const [name, label] of [
    ["fc1.weight", "fc1, weight"],
    ["7.bias", "layer 7, bias"],
    ["blocks.0.attention.weight", "blocks.0.attention, weight"],
    ["bucket 3", "bucket 3"],
    ["weight", "weight"],
    ["planned", "planned"],
    ["", ""],
  ])
    assert.equal(parameterLabel(name), label);
});

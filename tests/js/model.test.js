import assert from "node:assert/strict";
import { test } from "node:test";
import {
  busiest,
  clockOf,
  flightsOf,
  frameAt,
  openCall,
  stepFrom,
} from "../../assets/engine/model.js";
import { callOf as call, hop, row, rows, tableOf } from "./rows.js";

test("a flight is a send and its recv; without both there is none", () => {
  assert.deepEqual(
    call().flights.map((f) => [f.from, f.to, f.step, f.start, f.end, f.fused]),
    [
      [0, 1, 0, 0, 1000, true],
      [1, 2, 1, 1000, 2000, true],
    ],
  );
  assert.equal(call(rows.filter((r) => !(r.kind === "recv" && r.step === 1))).flights.length, 1);
  assert.equal(call(rows.filter((r) => !(r.kind === "send" && r.step === 0))).flights.length, 1);
});

test("of a call that broke off, what was sent and never received lies where it was sent to", () => {
  const broken = call(
    rows
      .filter((r) => !(r.rank === 2))
      .concat(row(1, "send", 2000, 2200, { ...hop, peer: 2, step: 1, slot: 1 })),
  );
  const at = (t) =>
    frameAt(broken, t).comets.map((c) => [c.from, c.to, c.slot, c.share, !!c.lying]);
  assert.equal(broken.complete, false);
  assert.deepEqual(
    [at(900).length, at(1100), at(1300)],
    [1, [[1, 2, 0, 0.5, false]], [[1, 2, 0, 1, true]]],
    "one of its pieces, on its way first",
  );
  assert.deepEqual(
    call(rows.filter((r) => !(r.kind === "recv" && r.step === 1))).lying,
    [],
    "of a whole one a row was lost, and nothing lies there",
  );
});

test("another step, chunk, slot or rank is another flight", () => {
  const send = row(0, "send", 0, 1, { ...hop, peer: 1, step: 0 });
  for (const other of [{ step: 1 }, { chunk: 1 }, { slot: 1 }, { rank: 2 }, { peer: 2 }])
    assert.equal(
      flightsOf([send, row(1, "recv", 1, 2, { ...hop, peer: 0, step: 0, ...other })]).length,
      0,
      JSON.stringify(other),
    );
});

test("the same chunk sent twice arrives in its order", () => {
  const twice = [0, 10].flatMap((t) => [
    row(0, "send", t, t + 1, { ...hop, peer: 1, step: 0 }),
    row(1, "recv", t + 2, t + 3, { ...hop, peer: 0, step: 0 }),
  ]);
  assert.deepEqual(
    flightsOf(twice).map((f) => [f.start, f.end]),
    [
      [0, 3],
      [10, 13],
    ],
  );
});

test("a chunk's place is the share of its flight that is over", () => {
  const at = (t) => frameAt(call(), t).comets.map((c) => [c.from, c.share]);
  assert.deepEqual(at(0), [[0, 0]]);
  assert.deepEqual(at(250), [[0, 0.25]]);
  assert.deepEqual(at(1000), [[1, 0]]); // arrived at the very moment at which the next one leaves
  assert.deepEqual(at(1750), [[1, 0.75]]);
  assert.deepEqual(at(2000), []);
});

test("a chunk that is received and passed on in one pass is on one link at a time", () => {
  const span = { ...hop, chunk: 0 };
  const passed = call([
    ...rows.filter((r) => r.kind === "collective"),
    row(0, "send", 0, 100, { ...span, peer: 1, step: 0 }),
    row(1, "recv", 600, 1000, { ...span, peer: 0, step: 0 }),
    row(1, "send", 600, 1000, { ...span, peer: 2, step: 1 }),
    row(2, "recv", 1500, 1600, { ...span, peer: 1, step: 1 }),
  ]);
  const at = (t) => frameAt(passed, t).comets.map((c) => [c.from, c.share]);
  assert.deepEqual([at(300), at(600), at(800)], [[[0, 0.5]], [[1, 0]], [[1, 0.2]]]);
});

test("a rank waits from the start of its row to its end", () => {
  const waiting = (t) => [...frameAt(call(), t).waiting.keys()];
  assert.deepEqual([waiting(99), waiting(100), waiting(499), waiting(500)], [[], [1], [1], []]);
});

test("flights too short for an even clock get time of their own", () => {
  const flight = (start, end) => ({ ...call().flights[0], start, end });
  const short = [flight(0, 10), flight(10, 20), flight(20, 30)];
  const clock = clockOf(short, 1e6);
  assert.equal(clock.even, false);
  assert.ok(
    clock.times.every(
      (t, i) => !i || (t > clock.times[i - 1] && clock.plays[i] > clock.plays[i - 1]),
    ),
  );
  assert.equal(clockOf([flight(0, 5e5), flight(0, 6e5)], 1e6).even, true);
  assert.equal(clockOf(short, 9e9).even, true); // longer than it is played: real speed
  assert.equal(clockOf([], 8e9).stretch, 1);
});

test("chunks that share a link for a while have tracks of their own", () => {
  const pair = (chunk, from, to) => [
    row(0, "send", from, from + 1, { ...hop, chunk, peer: 1, step: 0 }),
    row(1, "recv", to - 1, to, { ...hop, chunk, peer: 0, step: 0 }),
  ];
  assert.deepEqual(
    flightsOf([...pair(0, 0, 10), ...pair(1, 5, 20), ...pair(2, 10, 30), ...pair(3, 12, 40)]).map(
      (f) => f.track,
    ),
    [0, 1, 0, 2],
  );
});

test("a rank is away until it joins in", () => {
  const late = rows.map((r) =>
    r.kind === "collective" && r.rank === 2 ? { ...r, start: 1600 } : r,
  );
  assert.deepEqual(
    [599, 600].map((t) => [...frameAt(call(late), t).away]),
    [[2], []],
  );
});

test("a step goes to the next arrival, or the one before, and stays inside", () => {
  assert.equal(stepFrom(call(), 0, 1), 1000);
  assert.equal(stepFrom(call(), 1000, 1), 2000);
  assert.equal(stepFrom(call(), 2000, 1), 2000);
  assert.equal(stepFrom(call(), 1500, -1), 1000);
  assert.equal(stepFrom(call(), 1000, -1), 0);
});

test("the still picture is taken where most is on its way", () => {
  const extra = [
    row(2, "send", 2200, 2300, { ...hop, peer: 0, step: 1, chunk: 1 }),
    row(0, "recv", 2700, 2800, { ...hop, peer: 2, step: 1, chunk: 1 }),
  ];
  assert.equal(
    frameAt(call([...rows, ...extra]), busiest(call([...rows, ...extra]))).comets.length,
    2,
  );
  assert.equal(busiest({ ...call(), flights: [] }), 0);
});

test("rows count from the start of their call, in order of time", () => {
  assert.deepEqual(
    call().rows.map((r) => r.start),
    rows.map((r) => r.start - 1000).sort((a, b) => a - b),
  );
});

test("of a call too large to open the first pieces of every chunk are shown, and said so", () => {
  const slots = 6000;
  const big = Array.from({ length: slots }, (_, slot) =>
    rows.slice(0, 5).map((r) => ({ ...r, slot })),
  ).flat();
  const table = tableOf([...big, ...rows.slice(5)]);
  const opened = openCall(table, table.calls[0]);
  assert.match(opened.left_out, /^first \d+ of 6000 pieces a chunk$/);
  assert.ok(opened.rows.length <= 20_100 && opened.rows.length > 15_000);
  assert.equal(call().left_out, "");
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { NOTHING, advance, busiest, clockOf, flightsOf, frameAt, openCall, playedAt, playheadOf, receive, stepFrom, unpack } from "../../assets/model.js";
import { LAYOUT, batch, head, hop, packed, row, rows } from "./rows.js";

const relative = (list) => list.map((r) => ({ ...r, start: r.start - 1000, end: r.end - 1000 }));
const call = (list = rows) => {
  const { strings, bytes } = packed(list);
  return openCall(head(0, { rows: [0, list.length] }), unpack(LAYOUT, list.length, bytes), strings);
};

test("what Python packs comes out as it went in, wherever the bytes lie", () => {
  const { bytes } = packed(rows), shifted = new Uint8Array(bytes.length + 3);
  shifted.set(bytes, 3);
  for (const block of [bytes.buffer, bytes, new DataView(shifted.buffer, 3, bytes.length)]) {
    const columns = unpack(LAYOUT, rows.length, block);
    for (const name of ["start", "end", "nbytes", "step", "chunk", "rank", "peer"])
      assert.deepEqual([...columns[name]], rows.map((r) => r[name]), name);
  }
});

test("a flight is a send and its recv; without both there is none", () => {
  assert.deepEqual(call().flights.map((f) => [f.from, f.to, f.step, f.start, f.end, f.fused]), [[0, 1, 0, 0, 1000, true], [1, 2, 1, 1000, 2000, true]]);
  assert.equal(call(rows.filter((r) => !(r.kind === "recv" && r.step === 1))).flights.length, 1);
  assert.equal(call(rows.filter((r) => !(r.kind === "send" && r.step === 0))).flights.length, 1);
});

test("another step, chunk, slot or rank is another flight", () => {
  const send = row(0, "send", 0, 1, { ...hop, peer: 1, step: 0 });
  for (const other of [{ step: 1 }, { chunk: 1 }, { slot: 1 }, { rank: 2 }, { peer: 2 }])
    assert.equal(flightsOf([send, row(1, "recv", 1, 2, { ...hop, peer: 0, step: 0, ...other })]).length, 0, JSON.stringify(other));
});

test("the same chunk sent twice arrives in its order", () => {
  const twice = [0, 10].flatMap((t) => [row(0, "send", t, t + 1, { ...hop, peer: 1, step: 0 }), row(1, "recv", t + 2, t + 3, { ...hop, peer: 0, step: 0 })]);
  assert.deepEqual(flightsOf(twice).map((f) => [f.start, f.end]), [[0, 3], [10, 13]]);
});

test("a chunk's place is the share of its flight that is over", () => {
  const at = (t) => frameAt(call(), t).comets.map((c) => [c.from, c.share]);
  assert.deepEqual(at(0), [[0, 0]]);
  assert.deepEqual(at(250), [[0, 0.25]]);
  assert.deepEqual(at(1000), [[1, 0]]); // arrived at the very moment at which the next one leaves
  assert.deepEqual(at(1750), [[1, 0.75]]);
  assert.deepEqual(at(2000), []);
});

test("a rank waits from the start of its row to its end", () => {
  const waiting = (t) => [...frameAt(call(), t).waiting.keys()];
  assert.deepEqual([waiting(99), waiting(100), waiting(499), waiting(500)], [[], [1], [1], []]);
});

test("a call is played in four seconds, a longer one at its own pace", () => {
  const at = (span, ms) => playheadOf({ key: "", began: 100, held: null }, { ...call(), start: 0, end: span, clock: clockOf([], span) }, 100 + ms);
  assert.equal(at(1e6, 2000), 0.5e6);
  assert.equal(at(1e6, 9000), 1e6);
  assert.equal(clockOf([], 8e9).stretch, 1);
  assert.equal(at(8e9, 2000), 2e9);
  assert.equal(playheadOf({ key: "", began: 0, held: 7 }, call(), 1e9), 7);
});

test("flights too short for an even clock get time of their own, and the clock still says the true time", () => {
  const flight = (start, end) => ({ ...call().flights[0], start, end });
  const short = [flight(0, 10), flight(10, 20), flight(20, 30)], clock = clockOf(short, 1e6);
  assert.equal(clock.even, false);
  const some = { ...call(), start: 0, end: 1e6, flights: short, clock };
  for (const f of short) assert.ok(playedAt(some, f.end) - playedAt(some, f.start) > 300, "visible for a third of a second");
  for (const t of [0, 5, 17, 30, 4e5, 1e6]) {
    assert.ok(Math.abs(playheadOf({ key: "", began: 0, held: null }, some, playedAt(some, t)) - t) < 1e-6);
  }
  assert.ok(clock.times.every((t, i) => !i || (t > clock.times[i - 1] && clock.plays[i] > clock.plays[i - 1])));
  assert.equal(clockOf([flight(0, 5e5), flight(0, 6e5)], 1e6).even, true);
  assert.equal(clockOf(short, 9e9).even, true); // longer than it is played: real speed
});

test("chunks that share a link for a while have tracks of their own", () => {
  const pair = (chunk, from, to) => [row(0, "send", from, from + 1, { ...hop, chunk, peer: 1, step: 0 }), row(1, "recv", to - 1, to, { ...hop, chunk, peer: 0, step: 0 })];
  assert.deepEqual(flightsOf([...pair(0, 0, 10), ...pair(1, 5, 20), ...pair(2, 10, 30), ...pair(3, 12, 40)]).map((f) => f.track), [0, 1, 0, 2]);
});

test("a rank is away until it joins in", () => {
  const late = rows.map((r) => (r.kind === "collective" && r.rank === 2 ? { ...r, start: 1600 } : r));
  assert.deepEqual([599, 600].map((t) => [...frameAt(call(late), t).away]), [[2], []]);
});

test("live: the newest when the last is over, and none twice", () => {
  let known = receive(NOTHING, ...batch([0]), 0);
  let player = advance(null, known, 0);
  assert.equal(player.key, "0/default/0");
  known = receive(known, ...batch([1, 2, 3], { seq: 2 }), 10);
  assert.equal(advance(player, known, 3900), player);
  player = advance(player, known, 5000);
  assert.equal(player.key, "0/default/3");
  assert.equal(advance(player, known, 99_000), player); // nothing newer: the last frame stays
});

test("a run that is over is told again, in order; a failed one keeps its last frame; a held view stays", () => {
  for (const state of ["finished", "replay"]) {
    const known = receive(NOTHING, ...batch([0, 1], { state }), 0);
    const first = { key: "0/default/0", began: 0, held: null };
    assert.equal(advance(first, known, 5000).key, "0/default/1");
    assert.equal(advance({ ...first, key: "0/default/1" }, known, 5000).key, "0/default/0");
    const held = { ...first, held: 3 };
    assert.equal(advance(held, known, 5000), held);
  }
  const failed = receive(NOTHING, ...batch([0, 1], { state: "failed" }), 0), last = { key: "0/default/1", began: 0, held: null };
  assert.equal(advance(last, failed, 5000), last);
  assert.equal(advance(null, NOTHING, 0), null);
});

test("messages: calls once, gaps counted, another run starts afresh, other messages are not ours", () => {
  let known = receive(NOTHING, ...batch([0, 1]), 0);
  known = receive(known, ...batch([1, 2], { seq: 5 }), 0);
  assert.deepEqual(known.calls.map((c) => c.op), [0, 1, 2]);
  assert.equal(known.missed, 3);
  known = receive(known, ...batch([0], { seq: 5 }), 0); // an answer to hello
  assert.equal(known.missed, 3);
  assert.equal(known.calls.length, 3);
  assert.equal(receive(known, { type: "other" }, [], 0), known);
  const other = receive(known, ...batch([7], { run: { ...known.run, id: "b" } }), 0);
  assert.deepEqual(other.calls.map((c) => c.op), [7]);
});

test("the driver's clock is told best by the message that took least time", () => {
  let known = receive(NOTHING, ...batch([], { now: 5e6, rows: 0 }), 2);
  known = receive(known, ...batch([], { now: 9e6, rows: 0, seq: 2 }), 9);
  assert.equal(known.clock, 3e6);
});

test("a step goes to the next arrival, or the one before, and stays inside", () => {
  assert.equal(stepFrom(call(), 0, 1), 1000);
  assert.equal(stepFrom(call(), 1000, 1), 2000);
  assert.equal(stepFrom(call(), 2000, 1), 2000);
  assert.equal(stepFrom(call(), 1500, -1), 1000);
  assert.equal(stepFrom(call(), 1000, -1), 0);
});

test("the still picture is taken where most is on its way", () => {
  const extra = [row(2, "send", 2200, 2300, { ...hop, peer: 0, step: 1, chunk: 1 }), row(0, "recv", 2700, 2800, { ...hop, peer: 2, step: 1, chunk: 1 })];
  assert.equal(frameAt(call([...rows, ...extra]), busiest(call([...rows, ...extra]))).comets.length, 2);
  assert.equal(busiest(call([])), 0);
});

test("rows count from the start of their call", () => assert.deepEqual(call().rows.map((r) => r.start), relative(rows).map((r) => r.start)));

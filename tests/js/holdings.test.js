import assert from "node:assert/strict";
import { test } from "node:test";
import { cellAt, holdingsAt, holdingsOf } from "../../assets/engine/holdings.js";
import { membersOf, replayed } from "../../assets/engine/replayed_cells.js";
import { fillOf } from "../../assets/drawing/glyph.js";
import { callOf, hop, row } from "./rows.js";
import { allRows, ringRows, starRows } from "./simulated.js";

/** What rank × chunk holds at a moment: the contributors' ranks. */
function holds(call, t) {
  const held = holdingsOf(call);
  const states = holdingsAt(held, t);
  return (rank, chunk) =>
    cellAt(
      held,
      held.place.get(rank) * held.chunks.length + held.chunks.indexOf(chunk),
      states[held.place.get(rank) * held.chunks.length + held.chunks.indexOf(chunk)],
      t,
    );
}
const parts = (cell) => cell.parts.filter((p) => p.within).map((p) => p.rank);

test("every rank begins with its own part, and all end with every part once", () => {
  for (const rows of [2, 3, 4, 8].flatMap((n) => [
    ringRows(n),
    ringRows(n, { slots: 3 }),
    starRows(n),
    allRows(n),
  ])) {
    const call = callOf(rows);
    const span = call.end - call.start;
    const held = holdingsOf(call);
    const [first, last] = [holds(call, 0), holds(call, span)];
    for (const rank of held.ranks)
      for (const chunk of held.chunks) {
        assert.deepEqual(parts(first(rank, chunk)), [rank]);
        const end = last(rank, chunk);
        assert.ok(end.complete && !end.doubled.length && !end.lacking.length);
      }
  }
});

test("a sum grows hop by hop, then is spread: chunk 0 of a ring of four", () => {
  const call = callOf(ringRows(4));
  const { changes } = replayed(call.rows, membersOf(call.rows));
  assert.deepEqual(
    changes.filter((c) => c.chunk === 0).map((c) => [c.place, [...c.counts]]),
    [
      [1, [1, 1, 0, 0]],
      [2, [1, 1, 1, 0]],
      [3, [1, 1, 1, 1]],
      [0, [1, 1, 1, 1]],
      [1, [1, 1, 1, 1]],
      [2, [1, 1, 1, 1]],
    ],
  );
});

test("a state holds from its change on, to the nanosecond", () => {
  const call = callOf(ringRows(4));
  const [change] = replayed(call.rows, membersOf(call.rows)).changes.filter(
    (c) => c.chunk === 0 && c.place === 1,
  );
  assert.deepEqual(parts(holds(call, change.time - 1)(1, 0)), [1]);
  assert.deepEqual(parts(holds(call, change.time)(1, 0)), [0, 1]);
});

test("what a send carries: all that had come before it, or at an earlier step", () => {
  const call = callOf(ringRows(4));
  const { carried } = holdingsOf(call);
  const of = (from, to, step) =>
    [...carried].find(([key]) => key.startsWith(`${from}>${to}/${step}/`))[1];
  assert.deepEqual([...of(0, 1, 0)], [1, 0, 0, 0]);
  assert.deepEqual([...of(1, 2, 1)], [1, 1, 0, 0]);
  assert.ok(fillOf(of(3, 0, 3)).whole);
});

test("pieces of a chunk: a part that is in some of them is a share", () => {
  const call = callOf(ringRows(2, { slots: 4 }));
  const held = holdingsOf(call);
  const shares = new Set();
  for (let t = 0; t <= call.end - call.start; t += 1000)
    shares.add(holds(call, t)(1, 0).parts[0].within);
  assert.deepEqual([...shares], [0, 1, 2, 3, 4]);
  assert.deepEqual(held.slots, [4, 4]);
});

test("a removed row lacks, a doubled one doubles, in the right slot", () => {
  const rows = ringRows(4);
  const gone = rows.filter((r) => !(r.kind === "recv" && r.rank === 2 && r.step === 1));
  const call = callOf(gone);
  const last = holds(call, call.end - call.start);
  // Rank 2 never got chunk 0 with the parts of 0 and 1: it passed on its own, and all end without
  // those two.
  for (const rank of [0, 1, 2, 3])
    assert.deepEqual([last(rank, 0).lacking, last(rank, 0).doubled], [[0, 1], []], `rank ${rank}`);
  assert.deepEqual(last(0, 1).lacking, []);
  const one = rows.find((r) => r.kind === "recv" && r.rank === 2 && r.step === 1);
  const twice = callOf(
    [...rows, { ...one, seq: one.seq + 0.5 }].sort((a, b) => a.rank - b.rank || a.seq - b.seq),
  );
  assert.deepEqual(holds(twice, one.end)(2, 0).doubled, [0, 1]);
});

test(
  "where a receive and a send overlap the step decides: what arrives at the same one is not " +
    "in what leaves",
  () => {
    const both = (step) =>
      [0, 1].flatMap((r) => [
        row(r, "recv", 10, 15 + r, { ...hop, peer: 1 - r, step: 0, name: "fused", seq: 0 }),
        row(r, "send", 9 - r, 20 + r, { ...hop, peer: 1 - r, step: 0, seq: 1 }),
        ...(step ? [row(r, "send", 9 - r, 20 + r, { ...hop, peer: 1 - r, step, seq: 2 })] : []),
      ]);
    assert.deepEqual(
      replayed(both(0), [0, 1]).changes.map((c) => [...c.counts]),
      [
        [1, 1],
        [1, 1],
      ],
    );
    const { carried } = replayed(both(1), [0, 1]);
    assert.deepEqual([...carried].map(([key, counts]) => [key.split("/")[1], [...counts]]).sort(), [
      ["0", [0, 1]],
      ["0", [1, 0]],
      ["1", [1, 1]],
      ["1", [1, 1]],
    ]);
  },
);

test("nothing is missing while its rank is not through; only sums are judged", () => {
  const gone = ringRows(4).filter((r) => !(r.kind === "recv" && r.rank === 2 && r.step === 1));
  const call = callOf(gone);
  const held = holdingsOf(call);
  assert.deepEqual(holds(call, held.left[2] - 1)(2, 0).lacking, []);
  assert.notDeepEqual(holds(call, held.left[2])(2, 0).lacking, []);
  const other = callOf(gone.map((r) => ({ ...r, collective: "all_to_all" })));
  assert.deepEqual(holds(other, other.end - other.start)(2, 0).lacking, []);
});

test("a group's members are its contributors, whatever their numbers", () => {
  const world = [1, 3, 6];
  const rows = ringRows(3).map((r) => ({
    ...r,
    rank: world[r.rank],
    peer: r.peer < 0 ? -1 : world[r.peer],
    group: "part",
  }));
  const call = callOf(rows);
  const held = holdingsOf(call);
  assert.deepEqual(held.ranks, world);
  assert.deepEqual(parts(holds(call, call.end - call.start)(6, 0)), world);
});

test("rows that wait for each other end the replay; a call without messages holds nothing", () => {
  const knot = [0, 1].flatMap((r) => [
    row(r, "recv", 10, 20, { ...hop, peer: 1 - r, step: 0, seq: 0 }),
    row(r, "send", 30, 40, { ...hop, peer: 1 - r, step: 0, seq: 1 }),
  ]);
  assert.equal(replayed(knot, [0, 1]).changes.length, 2);
  const empty = holdingsOf(callOf([row(0, "collective", 0, 10), row(1, "collective", 0, 10)]));
  assert.deepEqual([empty.chunks, holdingsAt(empty, 5).length], [[], 0]);
});

test("a frame of 16 ranks costs far less than a millisecond", () => {
  const call = callOf(ringRows(16));
  const held = holdingsOf(call);
  const out = new Int32Array(256);
  const span = call.end - call.start;
  const began = performance.now();
  for (let i = 0; i < 1000; i++) holdingsAt(held, (span * i) / 1000, out);
  assert.ok(performance.now() - began < 500, "0.5 ms a frame, on a busy machine");
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { SPAN, SPANS } from "../../assets/scenes/timeline/density.js";
import { Table } from "../../assets/engine/table.js";
import { TimelineIndex } from "../../assets/scenes/timeline/index.js";
import { neighbourEdge } from "../../assets/scenes/timeline/overlay.js";
import { batch, row, tableOf } from "./rows.js";
import { MS, heard, trained } from "./training.js";

const whole = (rows) => {
  const index = new TimelineIndex(tableOf(rows));
  index.update();
  return index;
};
const near = (a, b) => Math.abs(a - b) < 1e-3;

test("what a rank does, from all its lanes: exposed only while it does not compute", () => {
  const index = whole([
    row(0, "forward", 0, 100, { lane: "compute", op: -1 }),
    row(0, "wait", 60, 120, { peer: 1 }),
    row(0, "recv", 120, 140, { peer: 1 }),
    row(0, "send", 120, 150, { peer: 1 }),
    row(0, "collective", 50, 160, { nbytes: 8 }),
    row(0, "send", 155, 170, { lane: "send", op: -1, collective: "p2p" }),
  ]);
  const rank = index.ranks.get(0);
  const all = rank.all.within(0, 200);
  const talk = rank.talk.within(0, 200);
  assert.deepEqual(
    [SPAN.forward, SPAN.comm, SPAN.wait].map((k) => all[k]),
    [100, 50, 20],
  );
  assert.deepEqual(
    [SPAN.comm, SPAN.wait].map((k) => talk[k]),
    [60, 60],
  );
  assert.deepEqual(
    rank.talks.map((lane) => [lane.name, lane.place]),
    [
      ["comm", 0],
      ["send", 1],
    ],
  );
});

test("rows that come in pieces make the same index as all at once", () => {
  const rows = heard(
    trained({ ranks: 3, iterations: 12, overlap: true, compute: (r) => 1 + r / 4 }),
  );
  const once = whole(rows);
  const table = new Table();
  const index = new TimelineIndex(table);
  for (let at = 0, strings = [""]; at < rows.length; at += 37) {
    const [message, [bytes]] = batch(rows.slice(at, at + 37));
    message.strings.texts.forEach((text) => strings.includes(text) || strings.push(text));
    // numbers of names must stay what they were: as Python's do
    const [again, [more]] = [message, [bytes]];
    again.strings = { first: 0, texts: message.strings.texts };
    table.take(again, more);
    renumber(table, at, message.strings.texts, strings);
    table.strings = [...strings];
    index.update();
  }
  for (const [number, rank] of once.ranks) {
    const other = index.ranks.get(number);
    for (const line of ["compute", "talk", "all"]) {
      assert.equal(other[line].length, rank[line].length, `${line} of rank ${number}`);
      assert.deepEqual(other[line].within(0, once.table.to), rank[line].within(0, once.table.to));
    }
    assert.deepEqual(
      other.steps.map((s) => [s.iteration, s.start, s.end, s.done]),
      rank.steps.map((s) => [s.iteration, s.start, s.end, s.done]),
    );
    assert.deepEqual(other.marks.length, rank.marks.length);
  }
});

/** The rows from `first` on, taken in with their own numbering of names, with that of all. */
function renumber(table, first, texts, strings) {
  const to = texts.map((text) => strings.indexOf(text));
  for (let r = first; r < table.rows; r++) {
    table.name[r] = to[table.name[r]];
    table.phase[r] = to[table.phase[r]];
  }
  for (let p = table.passage[first]; p < table.count; p++)
    for (const column of ["lane", "collective", "algorithm", "group"])
      table.passages[column][p] = to[table.passages[column][p]];
}

test("when the table lets old rows go, what is left is told as before", () => {
  const rows = heard(trained({ iterations: 40 }));
  const table = tableOf(rows);
  const index = new TimelineIndex(table);
  index.update();
  const before = index.factsOf(35, table.to);
  const rank = index.ranks.get(1);
  const sums = rank.all.within(table.to - 100 * MS, table.to);
  const kept = rank.computed.length;
  table.forget(Math.floor(table.rows / 2));
  index.update();
  assert.deepEqual(index.factsOf(35, table.to), before);
  assert.deepEqual(rank.all.within(table.to - 100 * MS, table.to), sums);
  assert.ok(rank.computed.length < kept && rank.steps[0].end >= table.from);
  const found = index.within(rank.computed, table.to - 40 * MS, table.to);
  assert.ok(
    found.length >= 4 &&
      found.every(
        (r) => table.passages.rank[table.passage[r]] === 1 && table.end[r] > table.to - 40 * MS,
      ),
  );
});

test("iterations: which is under way, which all have ended", () => {
  const index = whole(heard(trained({ iterations: 6, compute: (r) => (r === 1 ? 1.5 : 1) })));
  assert.equal(index.newestDone(), 5);
  const third = index.extent(3, index.table.to);
  assert.deepEqual([third.iteration, third.done], [3, true]);
  assert.equal(index.around((third.from + third.to) / 2).iteration, 3);
  assert.equal(index.around(-5).iteration, 0);
  const cut = trained({ iterations: 6 }).filter(
    (r) =>
      !(r.iteration === 5 && r.kind === "optimizer" && r.rank === 2) &&
      !(r.iteration === 5 && r.name === "runqueue" && r.rank === 2),
  );
  const other = whole(heard(cut));
  assert.equal(other.newestDone(), 4);
  assert.equal(other.newestDone(new Set([2])), 5); // it is gone
  assert.deepEqual(other.factsOf(5, other.table.to), []);
  const begun = whole(
    heard(
      trained({ iterations: 6 }).filter(
        (r) => r.iteration < 5 || (r.kind !== "optimizer" && r.name !== "runqueue"),
      ),
    ),
  );
  const open = begun.extent(5, begun.table.to);
  assert.deepEqual([open.done, open.to], [false, begun.table.to]); // to the end of its collective
});

test("ranks without a barrier: the window is that of who is at it now", () => {
  const rows = [];
  for (const [rank, lasts] of [
    [0, 10],
    [1, 35],
  ])
    for (let i = 0; i < 40; i++)
      rows.push(
        row(rank, "forward", i * lasts * MS, (i + 1) * lasts * MS - 1, {
          lane: "compute",
          op: -1,
          iteration: i,
          seq: i,
        }),
      );
  const index = whole(heard(rows));
  const around = index.around(390 * MS);
  assert.equal(around.iteration, 11); // rank 1's; rank 0 is in 39
  assert.ok(
    around.to - around.from <= 80 * MS && around.from <= 390 * MS && around.to >= 390 * MS,
    JSON.stringify(around),
  );
});

test("an iteration's parts, the wait for a core among them", () => {
  const index = whole(heard(trained({ overlap: true, queue: (r) => r, compute: () => 1 })));
  const facts = index.factsOf(5, index.table.to);
  for (const f of facts) {
    assert.ok(near(f.computing, 31.1 * MS + f.rank * MS), `${f.computing}`);
    assert.deepEqual([f.queue, f.queued, f.measured], [f.rank * MS, f.rank * MS, true]);
    assert.ok(near(f.byKind[SPAN.forward], 10 * MS) && f.byKind.length === SPANS.length);
    assert.ok(
      f.hidden + f.exposed + 1 >= 4.8 * MS &&
        f.end - f.start >= f.computing + f.exposed + f.waiting - 1,
    );
  }
  assert.ok(facts[0].waiting > facts[3].waiting + 2.5 * MS);
});

test("measuring takes time, and is no training", () => {
  const index = whole([
    row(0, "load", 0, 10, { lane: "compute", op: -1 }),
    row(0, "metric", 10, 40, { lane: "compute", op: -1, name: "accuracy", value: 0.5 }),
    row(0, "metric", 41, 41, { lane: "compute", op: -1, name: "runqueue", value: 3 }),
  ]);
  const [facts] = index.factsOf(0, 50);
  assert.deepEqual([facts.computing, facts.byKind[SPAN.upkeep], facts.queue], [10, 30, 3]);
});

test("faults and what was noticed, whoever wrote them", () => {
  const index = whole([
    row(-1, "fault", 5, 5, { lane: "driver", op: -1, peer: 2, name: "kill" }),
    row(0, "detect", 9, 9, { lane: "comm", peer: 2, name: "stalled" }),
  ]);
  assert.deepEqual(
    index.faults.map((f) => [f.rank, f.peer, f.kind, f.name, f.at]),
    [
      [-1, 2, "fault", "kill", 5],
      [0, 2, "detect", "stalled", 9],
    ],
  );
  assert.equal(index.ranks.has(-1), false);
});

test("a step goes to the next edge of a row, or to the neighbouring iteration's start", () => {
  const index = whole(heard(trained({ iterations: 8, ranks: 3 })));
  const { table } = index;
  const edges = new Set();
  for (let r = 0; r < table.rows; r++)
    if (table.kindName(table.kind[r]) !== "metric") edges.add(table.start[r]).add(table.end[r]);
  const sorted = [...edges].sort((a, b) => a - b);
  const from = sorted.findIndex((t) => t > 70 * MS);
  let t = sorted[from];
  for (let i = from + 1; i < from + 60; i++) {
    t = neighbourEdge(index, { table, t, choice: null }, "chunk", 1);
    assert.equal(t, sorted[i]);
  }
  for (let i = from + 58; i >= from; i--)
    assert.equal((t = neighbourEdge(index, { table, t, choice: null }, "chunk", -1)), sorted[i]);
  const two = index.extent(2, 0);
  assert.equal(
    neighbourEdge(index, { table, t: two.from + 5, choice: null }, "iteration", -1),
    two.from,
  );
  assert.equal(
    neighbourEdge(index, { table, t: two.from, choice: null }, "iteration", -1),
    index.extent(1, 0).from,
  );
  assert.equal(
    neighbourEdge(index, { table, t: two.from, choice: null }, "iteration", 1),
    index.extent(3, 0).from,
  );
  const mine = neighbourEdge(index, { table, t: two.from + 1, choice: { rank: 1 } }, "step", 1);
  const own = [...Array(table.rows).keys()].filter(
    (r) =>
      table.passages.rank[table.passage[r]] === 1 &&
      ["load", "forward", "backward", "optimizer", "collective"].includes(
        table.kindName(table.kind[r]),
      ),
  );
  assert.equal(
    mine,
    Math.min(
      ...own.flatMap((r) => [table.start[r], table.end[r]]).filter((e) => e > two.from + 1.5),
    ),
  );
  assert.equal(
    neighbourEdge(
      new TimelineIndex(new Table()),
      { table: new Table(), t: 0, choice: null },
      "chunk",
      1,
    ),
    null,
  );
});

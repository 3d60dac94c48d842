import assert from "node:assert/strict";
import { test } from "node:test";
import {
  Losses,
  horizon,
  iterationAtX,
  iterationsShown,
  iterationTicks,
  lossAxes,
  lossPoints,
  lossWords,
  lossX,
  lossY,
  lossesOf,
  roundUp,
  trainers,
} from "../../assets/engine/losses.js";
import { iterationThen } from "../../assets/engine/iteration_then.js";
import { batch, row, tableOf } from "./rows.js";

/** The loss that a rank tells of an iteration, at 1000 ns an iteration. */
const told = (rank, iteration, value, end = 1000 * (iteration + 1) + rank) =>
  row(rank, "metric", end, end, {
    lane: "compute",
    name: "loss",
    value,
    iteration,
    op: -1,
    collective: "",
    algorithm: "",
    group: "",
  });
const of = (n, ranks = 2, value = (i) => 2 / (i + 1)) =>
  Array.from({ length: n }, (_, i) =>
    Array.from({ length: ranks }, (_, r) => told(r, i, value(i) + (r ? 0.1 : -0.1))),
  ).flat();

test(
  "the loss of an iteration is the mean over " + "its ranks, and other metrics are not losses",
  () => {
    const other = row(0, "metric", 5, 5, { name: "runqueue", value: 1e6, iteration: 0 });
    const losses = lossesOf(tableOf([told(0, 0, 2), other, told(1, 0, 4), told(1, 1, NaN)]));
    assert.equal(losses.at(0), 3);
    assert.ok(Number.isNaN(losses.at(1)));
    assert.equal(losses.high, 3);
  },
);

test("an iteration is whole when all ranks told it, or when another follows", () => {
  const table = tableOf([told(0, 0, 2), told(1, 0, 2), told(0, 1, 1)]);
  assert.equal(lossesOf(table).newest(2), 0);
  assert.equal(lossesOf(table).newest(1), 1);
  assert.equal(lossesOf(tableOf([told(0, 0, 2), told(1, 1, 2)])).newest(2), 0);
  assert.equal(lossesOf(tableOf([])).newest(2), -1);
  // over: the newest that anybody told
  assert.equal(lossesOf(tableOf([told(0, 0, 2), told(1, 1, 2)])).newest(2, true), 1);
  assert.equal(trainers({ ranks: 6, server: { servers: 2 } }), 4);
  assert.equal(trainers({ ranks: 6, server: null }), 6);
});

test("rows are read once, however they arrive, also when the table lets its oldest go", () => {
  const table = tableOf(of(300));
  const losses = lossesOf(table);
  const [message, [bytes]] = batch(of(305).slice(600));
  assert.equal(losses.last, 299);
  assert.equal(lossesOf(table).count[0], 2);
  table.take(message, bytes);
  assert.equal(lossesOf(table), losses);
  assert.equal(losses.last, 304);
  table.forget(400);
  const [next, [more]] = batch(of(306).slice(610));
  table.take(next, more);
  assert.deepEqual(
    [lossesOf(table).last, losses.count[305], losses.count[304], losses.at(0)],
    [305, 2, 2, 2],
  );
  table.take(...((m) => [m[0], m[1][0]])(batch(of(307).slice(612))));
  assert.deepEqual([lossesOf(table).last, losses.count[306], losses.count[305]], [306, 2, 2]);
});

test("the loss at a moment is the last that was told by then", () => {
  const losses = lossesOf(tableOf(of(9)));
  assert.deepEqual(
    [0, 1000, 1001, 2500, 1e9].map((t) => losses.until(t)),
    [-1, -1, 0, 1, 8],
  );
  assert.equal(losses.mean(1), 1.5);
  assert.ok(
    Math.abs(
      losses.mean(8) - Array.from({ length: 9 }, (_, i) => 2 / (i + 1)).reduce((a, b) => a + b) / 9,
    ) < 1e-12,
  );
});

test(
  "axes grow in steps, and the iterations of " + "the whole run have their places from the start",
  () => {
    assert.deepEqual([0.03, 1, 1.2, 2.1, 3, 7, 99].map(roundUp), [0.05, 1, 2, 2.5, 5, 10, 100]);
    const few = lossesOf(tableOf(of(3)));
    const more = lossesOf(tableOf(of(60)));
    assert.deepEqual(lossAxes(500, 140, 200, few), lossAxes(500, 140, 200, more));
    const axes = lossAxes(500, 140, 200, few);
    assert.equal(lossX(axes, 199), axes.x1);
    assert.equal(lossY(axes, 0), axes.y0);
    for (const i of [0, 57, 199]) assert.equal(iterationAtX(axes, lossX(axes, i)), i);
    assert.ok(lossAxes(500, 140, -1, more).span >= 60);
    assert.equal(lossAxes(500, 140, 10, lossesOf(tableOf(of(3, 1, () => -3)))).low, -5);
  },
);

test("the axis of a long run goes further as the run does, in few steps", () => {
  assert.deepEqual(
    [0, 1000, 1001, 4000, 4001, 16001, 20000].map((done) => horizon(20000, done)),
    [1000, 1000, 4000, 4000, 16000, 20000, 20000],
  );
  assert.deepEqual([horizon(200, 3), horizon(-1, 3), horizon(-1, 65)], [200, 64, 128]);
});

test("numbers under the axis are whole and never touch", () => {
  for (const span of [1, 3, 10, 60, 200, 2000, 100_000])
    for (const width of [280, 560]) {
      const axes = { ...lossAxes(width, 140, -1, new Losses(tableOf([]))), span };
      const marks = iterationTicks(axes);
      const wide = String(marks.at(-1)).length * 6.5;
      assert.ok(marks.every(Number.isInteger) && marks.length >= 2, `${span}`);
      assert.ok(
        ((axes.x1 - axes.x0) / span) * (marks[1] - marks[0]) > wide + 6,
        `${span} on ${width}`,
      );
    }
});

test("a long curve keeps its peaks, in two points a pixel column", () => {
  const losses = lossesOf(tableOf(of(5000, 1, (i) => (i === 2345 ? 9 : 1))));
  const axes = lossAxes(500, 140, 5000, losses);
  const points = lossPoints(losses, axes, 0, 4999);
  assert.ok(points.length <= 2 * (axes.x1 - axes.x0 + 2));
  assert.equal(Math.min(...points.map(([, y]) => y)), lossY(axes, 8.9));
  assert.ok(points.every(([x], i) => !i || x >= points[i - 1][0]));
  assert.equal(
    lossPoints(lossesOf(tableOf(of(7))), lossAxes(500, 140, 20, losses), 0, 6).length,
    7,
  );
});

test("losses in a few digits", () =>
  assert.deepEqual([2.3034, 0.1, 0.01234, 12.34, 1234.5, 0, NaN, 3e-5].map(lossWords), [
    "2.30",
    "0.10",
    "0.0123",
    "12.3",
    "1.2e+3",
    "0.0000",
    "–",
    "3.0e-5",
  ]));

test("a chart of a run that was stopped ends where its losses end", () => {
  const losses = lossesOf(tableOf([0, 1, 2].map((i) => told(0, i, 2))));
  const run = { iterations: 2000 };
  assert.equal(iterationsShown({ state: "running", run }, losses), 2000);
  assert.equal(iterationsShown({ state: "finished", run }, losses), 3);
  assert.equal(iterationsShown({ state: "failed", run }, lossesOf(tableOf([]))), 2000);
  const axes = lossAxes(500, 140, iterationsShown({ state: "finished", run }, losses), losses);
  assert.equal(lossX(axes, 2), axes.x1);
});

test("the iteration of the moment on show, and the loss by then; none at the newest moment", () => {
  const table = tableOf(of(5));
  const run = { ranks: 2, server: null };
  const then = (t, more = {}) =>
    iterationThen({ known: { run, state: "replay" }, table, t, live: false, held: true, ...more });
  assert.deepEqual(then(0), { iteration: 0, loss: NaN });
  const { iteration, loss } = then(2500);
  assert.deepEqual([iteration, loss.toFixed(3)], [2, "1.000"], "after the second of them");
  assert.equal(then(9000).iteration, 4);
  const plays = { live: true, held: false };
  assert.equal(then(2500, plays).iteration, 2, "a replay that plays");
  const running = { ...plays, known: { run, state: "running" } };
  assert.equal(then(2500, running), null);
  assert.equal(then(2500, { table: tableOf([]) }), null, "a job that tells no loss");
});

test("a moment lies in the iteration of the call on show, else in the newest that ranks compute", () => {
  const begins = (iteration) =>
    row(0, "forward", 1000 * iteration + 1, 1000 * iteration + 300, { iteration });
  const table = tableOf([...[0, 1, 2].map(begins), ...of(3, 2)]);
  const known = { run: { ranks: 2, server: null }, state: "failed" };
  const then = (t, current = null) =>
    iterationThen({ known, table, current, t, live: true, held: false });
  // ranks tell the loss of iteration 0 at 1000, then they communicate
  const call = { iteration: 0, end: 1200 };
  assert.equal(then(1100, call).iteration, 0);
  assert.equal(then(1100, call).loss.toFixed(1), "2.0");
  assert.equal(then(1400, call).iteration, 1, "the call is over, and ranks compute again");
  assert.equal(then(900).iteration, 0);
  assert.equal(then(900).loss, NaN);
  const torn = { iteration: 3, end: 4500 };
  assert.equal(then(4400, torn).iteration, 3, "it broke off before all had told its loss");
});

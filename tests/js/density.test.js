import assert from "node:assert/strict";
import { test } from "node:test";
import { Line, SPAN, SPANS, layOver } from "../../assets/scenes/timeline/density.js";

const KINDS = SPANS.length;

/** Numbers that look random and are the same each time. */
function chance(seed) {
  let a = seed;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/**
 * Rows of a lane as ranks write them: collectives that hold waits, receives and the sends that
 * begin with them.
 */
function laneOfRows(calls, seed) {
  const u = chance(seed);
  const rows = [];
  let at = 0;
  for (let c = 0; c < calls; c++) {
    const begin = (at += Math.floor(u() * 50));
    for (let hops = Math.floor(u() * 9); hops > 0; hops--) {
      if (u() < 0.6)
        rows.push([(at += Math.floor(u() * 4)), (at += Math.floor(u() * 90)), SPAN.wait]);
      const start = (at += Math.floor(u() * 5));
      const received = start + Math.floor(u() * 30);
      rows.push([start, received, SPAN.comm]);
      rows.push([
        start,
        (at = received + Math.floor(u() * 20)),
        u() < 0.2 ? SPAN.reduce : SPAN.comm,
      ]);
    }
    rows.push([begin, (at += Math.floor(u() * 9)), SPAN.comm]);
  }
  return rows;
}

/** What a line must hold, nanosecond by nanosecond: the first row that came has it. */
function byTheNanosecond(rows) {
  const end = Math.max(...rows.map((r) => r[1]));
  const of = new Int8Array(end).fill(-1);
  for (const [from, to, kind] of rows) for (let t = from; t < to; t++) if (of[t] < 0) of[t] = kind;
  return of;
}

const sumOf = (of, from, to) => {
  const sums = new Float64Array(KINDS);
  for (let t = from; t < to; t++) if (of[t] >= 0) sums[of[t]] += 1;
  return sums;
};
const lineOf = (rows) => rows.reduce((line, row) => (line.cover(...row), line), new Line());

test("the time of each class in any interval is exact, however rows nest and overlap", () => {
  for (let seed = 1; seed <= 6; seed++) {
    const rows = laneOfRows(120, seed);
    const line = lineOf(rows);
    const of = byTheNanosecond(rows);
    const u = chance(seed + 99);
    for (let i = 0; i < 150; i++) {
      const a = Math.floor(u() * of.length);
      const b = a + Math.floor(u() * (of.length - a));
      assert.deepEqual(line.within(a, b), sumOf(of, a, b), `seed ${seed}, ${a} to ${b}`);
      assert.equal(line.at(a), of[a]);
    }
    for (let i = 1; i < line.length; i++)
      assert.ok(line.to[i - 1] <= line.from[i], "segments are disjoint and in order");
  }
});

test("a moment between two nanoseconds counts in part", () => {
  const line = lineOf([[10, 20, SPAN.comm]]);
  assert.equal(line.within(12.25, 13.5)[SPAN.comm], 1.25);
  assert.equal(line.within(-5, 10.5)[SPAN.comm], 0.5);
  assert.deepEqual(new Line().within(0, 9), new Float64Array(KINDS));
});

test("the columns of a picture hold what is in them, at every zoom", () => {
  const rows = laneOfRows(400, 7);
  const line = lineOf(rows);
  const of = byTheNanosecond(rows);
  const out = new Float64Array(300 * KINDS);
  for (const [from, dt, columns] of [
    [0, of.length / 300, 300],
    [of.length / 3, 2.5, 300],
    [5, of.length / 7, 7],
    [of.length - 40, 10, 40],
    [-300, 10, 60],
    [100, of.length, 1],
  ]) {
    line.columns(from, dt, columns, out);
    for (let k = 0; k < columns; k++) {
      const expected = line.within(from + k * dt, from + (k + 1) * dt);
      for (let c = 0; c < KINDS; c++)
        assert.ok(
          Math.abs(out[k * KINDS + c] - expected[c]) < 1e-6,
          `column ${k} of ${columns}, class ${c}`,
        );
    }
  }
  line.columns(0, 64, 40, out);
  for (let k = 0; k < 40; k++)
    assert.deepEqual(out.slice(k * KINDS, (k + 1) * KINDS), sumOf(of, k * 64, (k + 1) * 64));
});

test("a line that is cut back and covered again is the line that never was", () => {
  const rows = laneOfRows(200, 3);
  const whole = lineOf(rows);
  const u = chance(5);
  for (let i = 0; i < 40; i++) {
    const at = Math.floor(u() * whole.end);
    const line = lineOf(rows);
    line.rewind(at);
    line.rewind(at + 1);
    assert.ok(line.end <= at);
    for (let k = 0; k < whole.length; k++)
      if (whole.to[k] > at) line.cover(Math.max(at, whole.from[k]), whole.to[k], whole.kind[k]);
    assert.deepEqual(line.within(0, whole.end), whole.within(0, whole.end));
    assert.equal(line.length, whole.length);
  }
});

test("what lies before a moment can be let go, and the rest stays exact", () => {
  const rows = laneOfRows(300, 4);
  const line = lineOf(rows);
  const whole = lineOf(rows);
  const at = Math.floor(whole.end / 2);
  line.drop(at);
  assert.ok(line.length < whole.length && line.from[0] <= at + 60);
  for (const [a, b] of [
    [at, at + 999],
    [at + 50, whole.end],
  ])
    assert.deepEqual(line.within(a, b), whole.within(a, b));
});

test("laid over each other: computing first, then communication, then waiting", () => {
  const compute = lineOf([
    [0, 100, SPAN.forward],
    [100, 180, SPAN.backward],
    [300, 320, SPAN.optimizer],
  ]);
  const comm = lineOf([
    [150, 170, SPAN.wait],
    [170, 200, SPAN.comm],
    [200, 240, SPAN.wait],
    [330, 340, SPAN.comm],
  ]);
  const other = lineOf([[190, 230, SPAN.comm]]);
  const out = new Line();
  layOver(out, [compute, comm, other], -Infinity);
  const sums = out.within(0, 400);
  assert.deepEqual(
    [SPAN.forward, SPAN.backward, SPAN.comm, SPAN.wait, SPAN.optimizer].map((k) => sums[k]),
    [100, 80, 50 + 10, 10, 20],
  );
  assert.deepEqual(
    [175, 185, 235, 250, 325].map((t) => out.at(t)),
    [SPAN.backward, SPAN.comm, SPAN.wait, -1, -1],
  );
});

test("laid over in pieces, from any moment on, is laid over at once", () => {
  const a = lineOf(
    laneOfRows(150, 11).map(([f, t, k]) => [f, t, k === SPAN.wait ? SPAN.forward : SPAN.reduce]),
  );
  const b = lineOf(laneOfRows(150, 12));
  const once = new Line();
  const pieces = new Line();
  const u = chance(8);
  layOver(once, [a, b], -Infinity);
  layOver(pieces, [a, b], -Infinity);
  for (let i = 0; i < 30; i++) layOver(pieces, [a, b], Math.floor(u() * once.end));
  assert.equal(pieces.length, once.length);
  for (let i = 0; i < 50; i++) {
    const from = Math.floor(u() * once.end);
    assert.deepEqual(pieces.within(from, from + 500), once.within(from, from + 500));
  }
});

test("speed, in words", (t) => {
  const lines = [];
  const rows = Array.from({ length: 48 }, (_, k) => laneOfRows(2200, k + 20));
  const n = rows.flat().length;
  let at = performance.now();
  for (const lane of rows) lines.push(lineOf(lane));
  const built = performance.now() - at;
  const out = new Float64Array(900 * KINDS);
  const ranks = Array.from({ length: 16 }, () => new Line());
  at = performance.now();
  ranks.forEach((out, r) => layOver(out, lines.slice(3 * r, 3 * r + 3), -Infinity));
  const laid = performance.now() - at;
  const times = [];
  for (let i = 0; i < 20; i++) {
    const from = (lines[0].end * i) / 40;
    const dt = (lines[0].end * (i % 2 ? 1 : 0.02)) / 900;
    at = performance.now();
    for (const line of lines) line.columns(from, dt, 900, out);
    times.push(performance.now() - at);
  }
  t.diagnostic(
    `${n} rows in 48 lanes: built in ${built.toFixed(0)} ms ` +
      `(${(n / built / 1e3).toFixed(1)} million a second), laid over in ${laid.toFixed(0)} ` +
      "ms; " +
      `48 lanes × 900 columns in ${Math.min(...times).toFixed(1)} to ` +
      `${Math.max(...times).toFixed(1)} ms`,
  );
  assert.ok(n > 900_000);
});

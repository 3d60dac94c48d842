import assert from "node:assert/strict";
import { test } from "node:test";
import {
  atParties,
  barsOf,
  idealLines,
  openWaits,
  scoreHeight,
  spanOf,
  timeAt,
  xOf,
} from "../../assets/drawing/lanes.js";
import {
  cellBox,
  cellUnder,
  gridOf,
  matrixHeight,
} from "../../assets/scenes/collectives/matrix.js";
import { counterWords } from "../../assets/scenes/collectives/counters.js";
import { openCall } from "../../assets/engine/model.js";
import { readingOf } from "../../assets/engine/rates.js";
import { callBars, drawStrip, stripScale } from "../../assets/chrome/call_strip.js";
import { INK, canvas } from "./canvas.js";
import { callOf, row } from "./rows.js";
import { US, knownOf, ringRows } from "./simulated.js";

const readingOfRing = (n, options) => {
  const known = knownOf(n, ringRows(n, options));
  return readingOf(openCall(known.table, known.table.calls[0]), known);
};

test("bars lie at their times, in their rank's lane; none is too short to see", () => {
  const call = callOf();
  const bars = barsOf(call, 960, 3);
  const height = scoreHeight(3);
  assert.equal(bars.length, 5);
  assert.ok(bars.every((b) => b.w >= 1 && b.y > 0 && b.y + b.h < height));
  assert.equal(bars[0].x, xOf(0, 2000, 960));
  const short = { ...call, rows: [row(0, "send", 5, 5, { seq: 0 })] };
  assert.ok(barsOf(short, 960, 3)[0].w >= 1);
});

test("of a thousand ranks the score shows those of the call, as it would show them alone", () => {
  const alone = callOf();
  const rows = alone.rows.map((r) => ({ ...r, rank: r.rank + 640, peer: r.peer + 640 }));
  const look = { call: { ...alone, rows }, ranks: 1000 };
  const { first, ranks } = atParties(look);
  assert.deepEqual([first, ranks], [640, 3]);
  const bars = barsOf({ ...alone, rows }, 960, ranks, undefined, first);
  assert.deepEqual(bars, barsOf(alone, 960, 3));
  const few = { call: alone, ranks: 64 };
  assert.equal(atParties(few), few);
});

test("a place on the score is a time, and back; outside is its end", () => {
  for (const t of [0, 1, 777, 2000])
    assert.ok(Math.abs(timeAt(xOf(t, 2000, 960), 2000, 960) - t) < 1e-9);
  assert.equal(timeAt(-50, 2000, 960), 0);
  assert.equal(timeAt(5000, 2000, 960), 2000);
});

test("the score of any number of ranks stays low", () => {
  for (const n of [1, 2, 4, 8, 16, 32, 64, 256])
    assert.ok(scoreHeight(n) <= 260, `${n}: ${scoreHeight(n)}`);
});

test(
  "ideal steps are hairlines where they would end, within the call, none where theory is " +
    "unknown",
  () => {
    const reading = readingOfRing(4, { slow: [2, 6] });
    const lines = idealLines(reading, 960);
    const span = reading.call.end - reading.call.start;
    assert.equal(lines.length, 6);
    assert.ok(Math.abs(timeAt(lines[5].x, span, 960) - reading.ideal) < 1);
    assert.deepEqual(
      lines.map((l) => l.last),
      [false, false, false, false, false, true],
    );
    assert.deepEqual(idealLines({ ...reading, edges: [], ideal: 0 }, 960), []);
    assert.deepEqual(idealLines({ ...reading, ideal: span * 2 }, 960), []);
    assert.ok(
      idealLines(
        {
          ...reading,
          edges: Array.from({ length: 1000 }, (_, k) => ((k + 1) * reading.ideal) / 1000),
        },
        960,
      ).length <= 300,
      "hairlines that cannot be told apart are left out",
    );
  },
);

test("the cell under the pointer is the one that is drawn there", () => {
  for (const [ranks, chunks, width] of [
    [2, 2, 505],
    [4, 1, 608],
    [8, 8, 505],
    [16, 16, 608],
    [64, 64, 505],
  ]) {
    const grid = gridOf(ranks, chunks, width);
    for (const [row, column] of [
      [0, 0],
      [ranks - 1, chunks - 1],
      [1, chunks >> 1],
    ]) {
      const { x, y, w, h } = cellBox(grid, row, column);
      assert.deepEqual(cellUnder(grid, x + w / 2, y + h / 2), { row, column });
      assert.ok(x >= 0 && x + w <= grid.tail && y + h <= matrixHeight(ranks));
    }
    assert.equal(cellUnder(grid, grid.tail + 5, grid.top + 5), null);
    assert.equal(cellUnder(grid, 2, 2), null);
  }
});

test("a cell has a width however narrow its place is: a tab as it opens", () => {
  for (const chunks of [1, 4, 16, 32])
    for (const width of [0, 60, 120, 200]) {
      const { w, h } = cellBox(gridOf(4, chunks, width), 0, 0);
      assert.ok(w >= 1 && h >= 1, `${chunks} chunks in ${width} px: ${w}`);
    }
});

test("the matrix's height depends on the ranks alone, and stays low", () => {
  for (const n of [1, 2, 4, 8, 16, 64, 256]) assert.ok(matrixHeight(n) <= 340, `${n}`);
});

test("how far a rank is, in words", () => {
  const [first, second] = counterWords(readingOfRing(4, { slow: [2, 6] }), 0, 1e12);
  assert.equal(first, "rank 0: step 6 of 6, 360 kB sent, by theory 360 kB in all");
  assert.match(second, /^ideal: every step as fast as this call's fastest, 6 in 1\.80 ms$/);
});

test("one long call leaves the others to be seen: its bar is cut", () => {
  const calls = Array.from({ length: 100 }, (_, i) => ({ start: i * 1e9, end: i * 1e9 + 1e6 }));
  assert.ok(callBars(calls, 960, true).every((bar) => bar.h === 1 && !bar.cut));
  calls[40].end = calls[40].start + 60e9; // the ranks were held for a minute
  const bars = callBars(calls, 960, true);
  assert.deepEqual(
    bars.filter((bar) => bar.cut).map((bar) => bar.first),
    [40],
  );
  assert.ok(bars.every((bar) => bar.h === 1));
  assert.equal(stripScale([]), 0);
  assert.equal(stripScale([1, 2, 3]), 3, "no bar is cut that the others can be seen beside");
});

test("a wait that goes on is drawn up to now, and the axis grows with it, in steps", () => {
  // rank 1 is frozen after a few chunks: all others wait, and no row tells of it
  const rows = ringRows(4).filter((r) => r.kind !== "collective" && r.start < 700 * US);
  const known = {
    ...knownOf(4, rows),
    state: "running",
    clock: 0,
    control: { held: false },
    lanesNow: [0, 2, 3].map((rank) => ({
      ...{ rank, kind: "wait", op: 0, group: "default", since: 700 * US },
    })),
  };
  const call = openCall(known.table, known.table.calls[0]);
  assert.ok(!call.complete);
  const lookAt = (ms) => ({ known, call, at: ms, t: call.end, ranks: 4, width: 960, ratio: 1 });
  const spans = [4700, 4720, 4740, 9000].map((ms) => spanOf(lookAt(ms), call));
  assert.ok(spans.every((span, i) => span >= [4700, 4720, 4740, 9000][i] * 1e6));
  assert.equal(spans[0], spans[1]);
  assert.ok(spans[3] > spans[0] && spans[0] < 1.42 * 4.7e9);
  assert.equal(openWaits(lookAt(4700), call).length, 3);
  // what is over, and ranks that are held, wait for nobody
  for (const other of [{ state: "failed" }, { control: { held: true } }]) {
    const look = { ...lookAt(4700), known: { ...known, ...other } };
    assert.equal(spanOf(look, call), call.end - call.start);
  }
  const calls = [
    { start: 0, end: 1e6 },
    { start: 2e6, end: 3e6 },
  ];
  assert.deepEqual(
    [0, 3.5e6, 4.7e9].map((now) => callBars(calls, 960, false, now)[1]).map((b) => [b.cut, b.top]),
    [
      [false, 1e6],
      [false, 1.5e6],
      [true, 1e6],
    ],
    "the newest call's bar lasts until now, and is broken where it lasts many times as long",
  );
});

test("the call on screen is the reader's in the strip: orange is for bytes on their way", () => {
  const calls = Array.from({ length: 9 }, (_, i) => ({
    key: `${i}`,
    start: 10 * i,
    end: 10 * i + 8,
  }));
  const g = canvas();
  drawStrip(g, { ...INK, focus: "focus" }, "sans-serif", calls, 4, 960, true, "each call", 0);
  const bars = g.drawn.filter(({ kind, h }) => kind === "box" && h > 1);
  assert.deepEqual([...new Set(bars.map(({ ink }) => ink))].sort(), ["edge", "focus"]);
  assert.equal(bars.filter(({ ink }) => ink === "focus").length, 1);
});

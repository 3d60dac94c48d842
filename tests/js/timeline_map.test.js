import assert from "node:assert/strict";
import { test } from "node:test";
import { SPAN, SPANS } from "../../assets/scenes/timeline/density.js";
import { TimelineIndex } from "../../assets/scenes/timeline/index.js";
import { placeOf as timelinePlace } from "../../assets/scenes/timeline/layout.js";
import { TimelineMap, mapShares, reachOf } from "../../assets/scenes/timeline/map.js";
import { canvas } from "./canvas.js";
import { INK, paper } from "./paper.js";
import { tableOf } from "./rows.js";
import { MS, heard, trained } from "./training.js";

test("the map's scale grows in steps; drawn in pieces it is the map drawn at once", () => {
  assert.deepEqual(reachOf(null, { from: 0, to: 41 * MS }, false), { from: 0, to: 100 * MS });
  const reach = reachOf(null, { from: 0, to: 990 * MS }, false);
  assert.equal(reachOf(reach, { from: 0, to: reach.to - 1 }, false), reach);
  assert.ok(reachOf(reach, { from: 0, to: reach.to + 1 }, false).to > reach.to * 1.15);
  assert.deepEqual(reachOf(reach, { from: 5, to: 990 * MS }, true), { from: 5, to: 990 * MS });
  globalThis.document = {
    createElement: () => ({
      width: 0,
      height: 0,
      pen: paper(),
      getContext() {
        return this.pen;
      },
    }),
  };
  const table = tableOf(heard(trained({ iterations: 30, overlap: true })));
  const index = new TimelineIndex(table);
  const place = timelinePlace(4, 928);
  const paint = { ink: INK, waiting: "hatch", ratio: 1, over: false, theme: "" };
  index.update();
  const once = new TimelineMap();
  const pieces = new TimelineMap();
  once.update(index, place, [0, 1, 2, 3], paint, Infinity);
  pieces.update(index, place, [0, 1, 2, 3], paint, Infinity);
  const before = pieces.canvas.pen.marks.length;
  const from = table.to - 100 * MS;
  pieces.update(index, place, [0, 1, 2, 3], paint, Infinity);
  assert.equal(
    pieces.canvas.pen.marks.length,
    before,
    "nothing is drawn again that has not changed",
  );
  pieces.update(index, place, [0, 1, 2, 3], paint, from);
  const again = pieces.canvas.pen.marks.slice(before);
  const x = Math.min(...again.map((m) => m.x));
  assert.ok(again.length > 0 && again.length < before && x >= pieces.x(place, from - 40 * MS) - 1);
  const tops = (marks) =>
    marks
      .filter((m) => m.x >= x + 1)
      .map((m) => `${m.ink} ${m.x} ${m.y.toFixed(6)} ${m.h.toFixed(6)}`)
      .sort();
  assert.deepEqual(tops(again), tops(once.canvas.pen.marks));
  const named = (iteration) => {
    const { from, to } = index.extent(iteration, table.to);
    const look = { ink: INK, font: "sans-serif", t: table.to, known: { table }, holding: null };
    const g = canvas();
    once.draw(g, look, index, place, [0, 1, 2, 3], { iteration, from, to }, -1);
    return g.drawn.flatMap((d) => (d.text && d.y < 12 ? d.text : []));
  };
  assert.deepEqual(named(14), ["iteration 15", "iteration 1", "30"]);
  assert.deepEqual(named(29), ["iteration 30", "iteration 1"], "the last one is named once");
  delete globalThis.document;
});

test(
  "on the map narrow iterations are level: each column tells of the whole iterations that it " +
    "touches",
  () => {
    const table = tableOf(heard(trained({ iterations: 60, compute: (r, i) => (i < 30 ? 1 : 2) })));
    const index = new TimelineIndex(table);
    const n = SPANS.length;
    index.update();
    const rank = index.ranks.get(0);
    const columns = 200;
    const dt = table.to / columns;
    const out = new Float64Array(columns * n);
    mapShares(index, rank, 0, dt, columns, true, out);
    const starts = rank.steps.map((s) => s.start);
    for (let c = 0; c < columns; c++) {
      const first = starts.findLastIndex((t) => t <= c * dt);
      const last = starts.findLastIndex((t) => t < (c + 1) * dt);
      const a = starts[Math.max(0, first)];
      const b = starts[last + 1] ?? rank.steps[last].end;
      const sums = rank.all.within(a, b);
      for (let k = 0; k < n; k++)
        assert.ok(
          Math.abs(out[c * n + k] / dt - sums[k] / (b - a)) < 1e-9,
          `column ${c}, ${SPANS[k]}`,
        );
    }
    const share = (c) => out[c * n + SPAN.forward] / dt;
    assert.ok(
      Math.abs(share(10) - share(11)) < 1e-3 &&
        Math.abs(share(10) - 10 / 33.5) < 0.01 &&
        Math.abs(share(190) - 20 / 63.5) < 0.01,
    );
    mapShares(index, rank, 0, dt * 10, 20, true, out);
    mapShares(index, rank, rank.steps[5].start, dt / 100, 200, true, out); // wide: their own time
    assert.deepEqual(
      out.slice(0, n),
      rank.all.within(rank.steps[5].start, rank.steps[5].start + dt / 100).map((x) => x),
    );
    rank.steps.at(-1).done = false;
    mapShares(index, rank, 0, dt, columns, false, out);
    assert.ok(
      out.slice((columns - 1) * n).every((x) => x === 0),
      "an iteration that has not ended waits",
    );
  },
);

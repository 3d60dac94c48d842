// A sharded model's picture: what is whole where, what arrives, what is held, at every playhead;
// and no label over a mark.
import assert from "node:assert/strict";
import { test } from "node:test";
import { canvas, collisions, onto } from "./canvas.js";
import { RUN, row, tableOf } from "./rows.js";
import { sample } from "./sample.js";
import { Chart } from "../../assets/drawing/chart.js";
import { drawPicture as drawShards } from "../../assets/scenes/shards/draw.js";
import {
  drawHeld,
  drawWhen,
  chartHeight as shardChartHeight,
  momentsScale,
} from "../../assets/scenes/shards/charts.js";
import { frameAt as shardsFrame } from "../../assets/scenes/shards/frame.js";
import { indexOf as shardsIndexOf } from "../../assets/scenes/shards/index.js";
import {
  bytesScale,
  partOf,
  placeOf as shardsPlace,
  hitUnder as underShards,
} from "../../assets/scenes/shards/place.js";
import { shardingsOf } from "../../assets/scenes/shards/call_source.js";
import {
  holderWords,
  cellWords as shardCellWords,
  sentenceOf as shardsSentence,
} from "../../assets/scenes/shards/captions.js";

const US = 1000;
/**
 * Iterations of `ranks` ranks with these layers: gather, compute, free, forward and backward; a
 * reduction after each backward.
 */
function sharded(ranks, sizes, iterations = 2) {
  const rows = [];
  const seq = new Map();
  let op = 0;
  let t = 0;
  const put = (rank, lane, kind, start, end, more) =>
    rows.push(
      row(rank, kind, start, end, {
        lane,
        seq:
          (seq.set(`${rank}${lane}`, (seq.get(`${rank}${lane}`) ?? -1) + 1),
          seq.get(`${rank}${lane}`)),
        op: -1,
        collective: "",
        algorithm: "",
        group: "",
        ...more,
      }),
    );
  for (let i = 0; i < iterations; i++) {
    const metric = (rank, at, name, value, phase = "") =>
      put(rank, "compute", "metric", at, at, { name, value, phase, iteration: i });
    const collective = (what, l) => {
      const bytes = sizes[l];
      const context = { op, collective: what, algorithm: "ring", group: "default", iteration: i };
      for (let rank = 0; rank < ranks; rank++) {
        for (let step = 0; step < ranks - 1; step++)
          put(rank, "comm", "recv", t + (step + 0.5) * 100 * US, t + (step + 1) * 100 * US, {
            ...context,
            step,
            chunk: (rank - step - 1 + ranks) % ranks,
            slot: 0,
            peer: (rank + ranks - 1) % ranks,
            nbytes: bytes / ranks,
          });
        put(rank, "comm", "collective", t, t + (ranks - 1) * 100 * US, {
          ...context,
          name: String(l),
          nbytes: bytes,
        });
      }
      op += 1;
      t += (ranks - 1) * 100 * US;
    };
    const base = sizes.reduce((a, b) => a + b, 0) / ranks;
    const visit = (l, backward) => {
      collective("all_gather", l);
      for (let rank = 0; rank < ranks; rank++) {
        metric(rank, t + 10 * US, "gathered", sizes[l], String(l));
        metric(rank, t + 10 * US, "held", base + sizes[l]);
        metric(rank, t + 10 * US, "activations", 0);
        metric(rank, t + 60 * US, "freed", sizes[l], String(l));
        metric(rank, t + 60 * US, "held", base);
        metric(rank, t + 60 * US, "activations", 0);
      }
      t += 70 * US;
      if (backward) collective("reduce_scatter", l);
    };
    const began = t;
    sizes.forEach((_, l) => visit(l, false));
    for (let rank = 0; rank < ranks; rank++)
      put(rank, "compute", "forward", began, t, { iteration: i });
    const back = t;
    sizes
      .map((_, l) => l)
      .reverse()
      .forEach((l) => visit(l, true));
    for (let rank = 0; rank < ranks; rank++) {
      put(rank, "compute", "backward", back, t, { iteration: i });
      put(rank, "compute", "optimizer", t, t + 20 * US, { iteration: i });
    }
    t += 30 * US;
  }
  rows.sort(
    (a, b) => a.rank - b.rank || a.lane.localeCompare(b.lane) || a.end - b.end || a.seq - b.seq,
  );
  const facts = {
    kind: "fsdp2",
    units: "layers",
    free: true,
    ahead: 0,
    states: 2,
    layers: sizes.map((bytes, l) => ({
      name: String(l),
      kind: "Linear",
      bytes,
      parts: Array.from({ length: ranks }, () => bytes / ranks),
    })),
  };
  const table = tableOf(rows);
  const known = {
    run: { ...RUN, strategy: "fsdp", ranks, shards: facts, title: "FSDP" },
    table,
    state: "finished",
    words: "",
    counters: null,
    control: null,
    origin: 0,
  };
  return { table, facts, known, end: t };
}

const SIZES = [6400, 64_000, 640_000];
const INK = new Proxy({}, { get: (_, name) => String(name) });

test("a layer's parts arrive one by one, then it is whole, then only a part again", () => {
  const { table, facts } = sharded(4, SIZES);
  const index = shardsIndexOf(table);
  const at = (t) => shardsFrame(index, facts, 4, t * US).holders[1].layers[0];
  assert.deepEqual([at(50).state, at(50).arrived], ["gathering", [0, 0, 0, 0]]);
  assert.deepEqual(
    [at(150).state, at(150).arrived],
    ["gathering", [1, 0, 0, 0]],
    "rank 1 receives chunk 0 first",
  );
  assert.deepEqual(at(250).arrived, [1, 0, 0, 1]);
  assert.equal(at(305).state, "there", "all are here, nothing unpacked yet");
  assert.deepEqual([at(320).state, at(320).held], ["whole", SIZES[0]]);
  assert.equal(at(365).state, "part");
});

test("what is held is what the rows say, and the most so far only grows", () => {
  const { table, facts, end } = sharded(3, SIZES);
  const index = shardsIndexOf(table);
  let peak = 0;
  for (let t = 0; t < end; t += 37 * US) {
    const { holders } = shardsFrame(index, facts, 3, t);
    const whole = holders[0].layers.reduce((sum, { held }) => sum + held, 0);
    if (holders[0].held)
      assert.equal(holders[0].held, SIZES.reduce((a, b) => a + b, 0) / 3 + whole);
    assert.ok(holders[0].peak >= peak && holders[0].peak >= holders[0].held);
    peak = holders[0].peak;
  }
  assert.equal(
    shardsFrame(index, facts, 3, end).unsharded,
    4 * SIZES.reduce((a, b) => a + b, 0),
    "parameters, gradients, two moments",
  );
});

test("rows that come in two halves give the same frames", () => {
  const { table, facts, end } = sharded(3, SIZES);
  const whole = shardsIndexOf(table);
  const other = sharded(3, SIZES).table;
  shardsIndexOf(other);
  for (const t of [0.1, 0.35, 0.5, 0.77, 0.95])
    assert.deepEqual(
      shardsFrame(shardsIndexOf(other), facts, 3, t * end),
      shardsFrame(whole, facts, 3, t * end),
    );
});

test("it is told iteration after iteration, and each steps through its gathers", () => {
  const { known } = sharded(2, SIZES, 3);
  const told = shardingsOf(known);
  assert.deepEqual(
    told.calls.map(({ iteration, complete }) => [iteration, complete]),
    [
      [0, true],
      [1, true],
      [2, true],
    ],
  );
  assert.equal(
    told.open("sharding/1").moments.length,
    2 * 2 * SIZES.length,
    "gathered and freed, forward and backward",
  );
  assert.ok(told.calls.every(({ start, end }, i) => !i || start >= told.calls[i - 1].end));
});

test("a run without gathers is not told so", () => {
  assert.equal(shardingsOf({ table: tableOf([row(0, "forward", 0, 10)]), run: RUN }), null);
});

for (const ranks of [2, 3, 4, 8, 16, 64])
  for (const width of sample([640, 960]))
    test(`no label lies over a mark: ${ranks} ranks, ${width} px`, () => {
      const { table, facts, known, end } = sharded(ranks, [6400, 64_000, 640_000, 64_000, 800], 1);
      const index = shardsIndexOf(table);
      const g = canvas();
      onto(g);
      const place = shardsPlace(width, ranks, facts.layers);
      for (const part of [0.02, 0.2, 0.3, 0.6, 0.9]) {
        const frame = shardsFrame(index, facts, ranks, part * end);
        const look = { ink: INK, font: "sans-serif", ratio: 1, width, choice: { rank: 1 }, known };
        g.drawn.length = 0;
        drawShards(g, look, { frame, place, scale: bytesScale(frame.unsharded) }, []);
        assert.deepEqual(collisions(g.drawn), []);
        for (const d of g.drawn)
          if (d.kind === "text")
            assert.ok(d.x >= -1 && d.x + d.w <= width + 1, `${d.text} is cut off`);
      }
      assert.ok(
        place.columns.every(
          ({ x, w }, l) => w > 0 && (!l || x >= place.columns[l - 1].x + place.columns[l - 1].w),
        ),
        "columns lie beside each other",
      );
      assert.ok(place.columns.at(-1).x + place.columns.at(-1).w < place.memory.x);
    });

test("parts tile a cell, also where a rank has none", () => {
  const layer = { name: "0", kind: "", bytes: 600, parts: [200, 200, 200, 0] };
  const column = { x: 10, w: 60 };
  assert.deepEqual(
    [0, 1, 2, 3].map((rank) => partOf(column, layer, rank, 4)),
    [
      { x: 10, w: 20 },
      { x: 30, w: 20 },
      { x: 50, w: 20 },
      { x: 70, w: 0 },
    ],
  );
});

test("the charts draw, and a click finds the moment again", () => {
  const { table, facts, known } = sharded(3, SIZES);
  const index = shardsIndexOf(table);
  const head = shardingsOf(known).calls[1];
  const span = { start: head.start, end: head.end };
  const g = canvas();
  onto(g);
  const t = (span.start + span.end) / 2;
  const frame = shardsFrame(index, facts, 3, t);
  const chart = new Chart({
    g,
    ink: INK,
    font: "sans-serif",
    ratio: 1,
    width: 460,
    height: shardChartHeight(3),
  });
  drawHeld(chart, index, frame, span, t, 0);
  assert.deepEqual(collisions(g.drawn.filter((d) => d.kind !== "line" && d.kind !== "box")), []);
  g.drawn.length = 0;
  drawWhen(chart, index, frame, span, t, 0);
  assert.equal(
    g.drawn.filter((d) => d.kind === "box" && d.ink === "done").length,
    6,
    "whole twice in each of three layers",
  );
  const moments = momentsScale(span, 460);
  assert.ok(Math.abs(moments.at(moments.px(t)) - t) < 1);
});

test("words", () => {
  const { table, facts, known } = sharded(4, SIZES);
  const index = shardsIndexOf(table);
  const at = (t) => shardsFrame(index, facts, 4, t * US);
  assert.match(
    shardsSentence({ ...known, run: known.run }, at(320), 2, false),
    /^Rank 2 computes forward, layer 0 whole: 184 kB of the model, 6 % of unsharded\.$/,
  );
  assert.match(shardsSentence(known, at(450), 0, false), /^Rank 0 gathers layer 1, no layer whole/);
  const arrived = at(450);
  arrived.holders[0].layers[1].state = "there"; // all parts, which the picture fills
  assert.match(
    shardsSentence(known, arrived, 0, false),
    /all parts of layer 1 there, not unpacked/,
  );
  const held = { ...known, state: "running", control: { held: true } };
  assert.match(shardsSentence(held, at(450), 0, true), /^You hold the ranks\. Rank 0 gathers/);
  assert.doesNotMatch(shardsSentence(held, at(450), 0, false), /hold/, "of a moment before");
  assert.deepEqual(shardCellWords(at(320), 0, 0), [
    "layer 0 (Linear): 6.40 kB",
    "rank 0 keeps 1.60 kB, 25 %",
    "whole here for 10.0 µs: 6.40 kB",
  ]);
  assert.match(shardCellWords(at(250), 1, 0)[2], /2 of 3 other parts are here/);
  assert.match(holderWords(at(320), 1).join("; "), /whole here: 0/);
  const place = shardsPlace(960, 4, facts.layers);
  assert.deepEqual(underShards(place, 4, place.columns[1].x + 2, place.top + 2.5 * place.row), {
    rank: 2,
    layer: 1,
  });
  assert.deepEqual(underShards(place, 4, place.memory.x + 3, place.top + 1), {
    rank: 0,
    layer: -1,
  });
  assert.equal(underShards(place, 4, 100, 3), null);
});

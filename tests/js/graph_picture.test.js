import assert from "node:assert/strict";
import { test } from "node:test";
import { Chart } from "../../assets/drawing/chart.js";
import { Pen } from "../../assets/drawing/pen.js";
import {
  drawMemory,
  drawModelLine,
  drawStageTimes,
  chartHeight as graphChartHeight,
  memoryOf,
  stripOf,
} from "../../assets/scenes/model/charts.js";
import { cometSpot, drawPicture as drawGraph, weightOf } from "../../assets/scenes/model/draw.js";
import { foldGraph, modelOf } from "../../assets/scenes/model/fold.js";
import { drawParts, layersNamed, partLines, shardingOf } from "../../assets/scenes/model/shards.js";
import { perMicrobatch, trafficOf } from "../../assets/scenes/model/traffic.js";
import {
  cutLines,
  cutWords,
  sentenceOf as graphSentence,
  nodeLines,
  rateOf,
  stageLines,
} from "../../assets/scenes/model/captions.js";
import { INK, canvas, collisions, onto } from "./canvas.js";
import { AUTO, CASES, OPEN, facts, laid, lenet, messages, transformer } from "./modelled.js";
import { row, tableOf } from "./rows.js";
import { sample } from "./sample.js";

test("measured traffic is what the rows say, of the newest iteration that is over", () => {
  const told = transformer(4, 4);
  const table = tableOf(messages(told, { microbatches: 4, iterations: 3 }));
  const traffic = trafficOf(table);
  const model = modelOf({ model: told });
  const last = traffic.iterationAt(Infinity, true);
  assert.equal(last.iteration, 2);
  told.cut.forEach((c, k) => {
    assert.equal(last.cuts[k].activation.bytes, 4 * c.bytes);
    assert.equal(last.cuts[k].gradient.bytes, 4 * c.bytes);
    assert.equal(last.cuts[k].activation.parcels, 4);
    assert.equal(perMicrobatch(last.cuts[k].activation), c.bytes);
    assert.ok(Math.abs(rateOf(last, k) - (8e9 * c.bytes) / (last.end - last.start)) < 1);
  });
  assert.equal(
    traffic.iterationAt(Infinity, false).iteration,
    1,
    "live: the newest may not be whole",
  );
  assert.equal(traffic.iterationAt(last.start, true).iteration, 1);
  assert.equal(traffic.iterationAt(0, true), null);
  assert.match(
    cutLines(model, 2, last).join("\n"),
    /195 kB a microbatch, as planned.*\n.*780 kB down in 4 messages/,
  );
  assert.match(cutWords(model, 0, last).seen[0], /iteration 3: ↓ 520 kB ↑ 520 kB/);
  assert.match(cutWords(model, 0, last).plan[0], /a microbatch planned, \d+ tensors?$/);
  assert.match(graphSentence(model, last), /most bytes crossed cut 3/);
  const padded = graphSentence(model, last, true);
  assert.match(
    padded,
    /Without the padding, stage \d computes longest, [\d.]+ [mµ]s a microbatch\./,
  );
  assert.doesNotMatch(padded, /sending included/, "one number");
});

test("interleaved stages on fewer ranks: each cut has its own messages; memory is of ranks", () => {
  const told = transformer(4, 8);
  const run = { model: told, pipeline: facts(4, 8, 4), memory_limit: 3e6 };
  const traffic = trafficOf(tableOf(messages(told, { ranks: 4, microbatches: 4 })));
  const model = modelOf(run);
  const last = traffic.iterationAt(Infinity, true);
  told.cut.forEach((c, k) => assert.equal(last.cuts[k].activation.bytes, 4 * c.bytes, `cut ${k}`));
  const held = memoryOf(model, run.pipeline.rank_of, run, traffic, Infinity);
  assert.deepEqual(
    held.map((h) => h.stages),
    [
      [0, 4],
      [1, 5],
      [2, 6],
      [3, 7],
    ],
  );
  assert.deepEqual(
    held.map((h) => h.most),
    [0, 1, 2, 3].map((r) => 2e6 * (1 + r / 8) + 2000),
  );
  assert.ok(
    Number.isNaN(memoryOf(model, run.pipeline.rank_of, run, traffic, 0)[0].most),
    "nothing before its row",
  );
  assert.ok(
    stageLines(model, 5, 1, held[1].most, run.memory_limit, 4).some((l) =>
      l.includes("of 3.00 MB, measured"),
    ),
  );
});

test(
  "a message is on its lane between its two " + "rows, activations one way, gradients the other",
  () => {
    const told = transformer(4, 4);
    const traffic = trafficOf(tableOf(messages(told, { microbatches: 4 })));
    const { place } = laid(told);
    let seen = 0;
    for (let t = 0; t < 30e6; t += 0.1e6) {
      const flying = traffic.flying(t);
      const mine = traffic.parcels.filter((p) => p.start <= t && p.there > t);
      assert.deepEqual(
        flying.map((p) => `${p.from} ${p.to} ${p.op}`).sort(),
        mine.map((p) => `${p.from} ${p.to} ${p.op}`).sort(),
      );
      for (const p of flying) {
        const spot = cometSpot(place, p);
        const start = cometSpot(place, { ...p, share: 0 });
        const end = cometSpot(place, { ...p, share: 1 });
        assert.ok(
          Math.abs(p.share - (t - p.start) / (p.there - p.start)) < 1e-9 &&
            spot.y === place.cuts[p.cut].y,
        );
        assert.equal(start.x < end.x, p.gradient);
        seen++;
      }
    }
    assert.ok(seen > 50);
  },
);

test("nothing is written over anything else", () => {
  const g = canvas();
  onto(g);
  for (const [name, told] of sample(CASES, 6))
    for (const folding of [AUTO, OPEN])
      for (const width of sample([608, 960])) {
        const { model, nodes, wires, place } = laid(told, folding, width);
        const ranks = Array.from({ length: model.stages }, (_, s) => s);
        const traffic = trafficOf(tableOf(messages(told)));
        const look = { ink: INK, font: "sans-serif", ratio: 1, width };
        const timed = true;
        const slowest = Math.max(...nodes.map((n) => weightOf(n, timed)));
        const comets = traffic.flying(21.3e6).map((p) => ({ ...p, ...cometSpot(place, p) }));
        g.drawn.length = 0;
        drawGraph(g, look, {
          model,
          nodes,
          wires,
          place,
          slowest,
          timed,
          ranks,
          crossed: traffic.iterationAt(Infinity, true),
          comets,
          chosen: { stages: new Set([0]), cut: -1, node: "" },
          pointed: null,
        });
        assert.ok(g.drawn.length > 30);
        // A band is a pale ground for its words, and a selected one's frame is around all.
        assert.deepEqual(
          collisions(g.drawn.filter((d) => !(d.kind === "box" && d.w >= width - 2))),
          [],
          `${name} ${width}`,
        );
        for (const d of g.drawn)
          if (d.kind === "text")
            assert.ok(d.x >= 0 && d.x + d.w <= width && d.size >= 11, `${name}: ${d.text}`);
      }
});

test("the line and the charts: as wide as time, a limit that was passed has a cross", () => {
  const told = transformer(4, 4);
  const model = modelOf({ model: told });
  const g = canvas();
  const ranks = [0, 1, 2, 3];
  onto(g);
  const spots = stripOf(model, true, 960);
  const whole = model.layers.reduce((n, l) => n + l.forward + l.backward, 0);
  spots.forEach((s, i) =>
    assert.ok(
      Math.abs(s.w / 960 - (model.layers[i].forward + model.layers[i].backward) / whole) < 1e-9,
    ),
  );
  assert.ok(Math.abs(spots.at(-1).x + spots.at(-1).w - 960) < 1e-6);
  const chart = (width) =>
    new Chart({ g, ink: INK, font: "sans-serif", width, height: graphChartHeight(4) });
  for (const draw of [
    () => drawModelLine(chart(960), model, ranks, true, null, -1),
    () => drawStageTimes(chart(460), model, ranks),
    () =>
      drawMemory(
        chart(460),
        [2e6, 3e6].map((most, rank) => ({
          rank,
          stages: [rank],
          parameters: 1e6,
          planned: 2e6,
          most,
        })),
        2.5e6,
      ),
  ]) {
    g.drawn.length = 0;
    draw();
    assert.deepEqual(collisions(g.drawn), []);
  }
  assert.ok(
    g.drawn.some((d) => d.text === "✕ 3.00 MB") &&
      g.drawn.some((d) => d.text === "2.00 MB") &&
      g.drawn.some((d) => d.text === "limit 2.50 MB"),
  );
});

test("words of a layer and of a block", () => {
  const { model, nodes } = laid(transformer(24, 4));
  const block = nodes.find((n) => n.name === "blocks.1");
  const head = nodes.at(-1);
  assert.match(
    nodeLines(block, model, [0, 1, 2, 3]).join("\n"),
    /^blocks\.1: 12 layers\nstage 0 on rank 0; .*\n(.*\n)*open it: click$/,
  );
  assert.match(
    nodeLines(head, model, [0, 1, 2, 3]).join("\n"),
    /^head: Linear\nstage 3 on rank 3; 32\.0 kB parameters\nforward 200 µs, backward 400 µs/,
  );
  assert.match(graphSentence(modelOf({ model: lenet(1) }), null), /it is not cut/);
});

test("a model that is split inside its layers: who has what, and what is exchanged", () => {
  const told = { ...transformer(2, 1), cut: [] };
  const name = "blocks.0.attention";
  const part = (layer, how, size, runs) => ({
    layer,
    op: "Linear",
    how,
    words: `${how}: ${size}`,
    runs,
    size,
  });
  told.shards = [
    part(`${name}.queries`, "column", 64, [[[0, 32]], [[32, 48]], [[48, 64]]]),
    part(`${name}.keys`, "column", 64, [[[0, 32]], [[32, 48]], [[48, 64]]]),
    part(`${name}.join`, "row", 64, [
      [
        [0, 16],
        [48, 64],
      ],
      [[16, 32]],
      [[32, 48]],
    ]),
    part("norm", "whole", 0, [[], [], []]),
  ];
  told.exchanges = [
    { name: `${name}.join`, collective: "all_reduce", pass: "forward", nbytes: 1000 },
    { name: `${name}.queries, keys`, collective: "all_reduce", pass: "backward", nbytes: 2000 },
  ];
  const model = modelOf({ model: told });
  const sharding = shardingOf(model);
  const of = (which) => sharding.layers.get(model.layers.findIndex((l) => l.name === which));
  assert.deepEqual(layersNamed(`${name}.queries, keys`), [`${name}.queries`, `${name}.keys`]);
  assert.deepEqual(
    [of(`${name}.queries`).shares, of(`${name}.join`).shares, of("norm").shares],
    [
      [0.5, 0.25, 0.25],
      [0.5, 0.25, 0.25],
      [1, 1, 1],
    ],
  );
  assert.deepEqual(
    [`${name}.join`, `${name}.queries`, `${name}.keys`, "norm"].map((n) =>
      of(n).exchanges.map((e) => e.pass),
    ),
    [["forward"], ["backward"], ["backward"], []],
  );
  const call = (rank, start, more) =>
    row(rank, "collective", start, start + 10, { name: `${name}.join`, nbytes: 1000, ...more });
  const traffic = trafficOf(
    tableOf([
      call(0, 100, { op: 0 }),
      call(0, 200, { op: 1, iteration: 1 }),
      call(0, 300, { group: "metrics", op: 2, nbytes: 7 }),
      call(1, 100, { op: 0 }),
    ]),
  );
  assert.deepEqual(traffic.calledBy(`${name}.join`, "all_reduce", 205), { calls: 1, nbytes: 1000 });
  assert.deepEqual(
    traffic.calledBy(`${name}.join`, "all_reduce", Infinity),
    { calls: 2, nbytes: 2000 },
    "those of one rank, not those of metrics",
  );
  assert.match(
    partLines(of(`${name}.queries`), traffic, 0)[1],
    /all-reduce backward of 2 layers together: 2\.00 kB planned$/,
  );
  assert.match(
    graphSentence(model, null),
    /^Each of 3 ranks has a part of 3 layers: 2 are split by columns, 1 by rows; .* 2 collectives of 3\.00 kB in all\.$/,
  );
  const [a, b] = memoryOf(model, [0], {}, traffic, 0);
  const whole = model.layers.reduce((n, l) => n + l.parameters, 0);
  const cut = model.layers
    .filter((l) => of(l.name)?.how !== "whole" && of(l.name))
    .reduce((n, l) => n + l.parameters, 0);
  assert.ok(
    Math.abs(a.parameters - (whole - cut / 2)) < 1e-6 &&
      Math.abs(b.parameters - (whole - cut * 0.75)) < 1e-6,
  );
  assert.ok(
    foldGraph(model, AUTO).nodes.some((n) => n.name === `${name}.join`),
    "the first block is open",
  );
  const g = canvas();
  drawParts(new Pen(g, { ink: INK }), of(`${name}.join`), 0, 0, 16);
  assert.deepEqual(
    g.drawn.map((d) => [d.ink, d.w, d.y]),
    [
      ["s0", 16, 0],
      ["s1", 16, 8],
      ["s2", 16, 12],
    ],
  );
});

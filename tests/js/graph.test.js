import assert from "node:assert/strict";
import { test } from "node:test";
import { dagre } from "../../assets/dagre.js";
import { drawMemory, drawModelLine, drawStageTimes, graphChartHeight, memoryOf, stripOf } from "../../assets/graph_charts.js";
import { cometSpot, drawGraph, weightOf } from "../../assets/graph_draw.js";
import { blocksOf, crossing, foldGraph, foldedWords, modelOf } from "../../assets/graph_fold.js";
import { breakLines, graphPlace, underGraph } from "../../assets/graph_place.js";
import { drawParts, layersNamed, partLines, shardingOf } from "../../assets/graph_shards.js";
import { perMicrobatch, trafficOf } from "../../assets/graph_traffic.js";
import { cutLines, cutWords, graphSentence, nodeLines, rateOf, stageLines } from "../../assets/tell_graph.js";
import { INK, canvas, collisions, onto } from "./canvas.js";
import { facts, lenet, messages, plain, skips, transformer } from "./modelled.js";
import { row, tableOf } from "./rows.js";

const AUTO = { all: null, turned: new Set() }, OPEN = { all: false, turned: new Set() }, SHUT = { all: true, turned: new Set() };
const laid = (told, folding = AUTO, width = 960) => {
  const model = modelOf({ model: told }), { nodes, wires } = foldGraph(model, folding);
  return { model, nodes, wires, place: graphPlace(model, nodes, wires, width) };
};
const CASES = [["lenet 2", lenet(2)], ["lenet 4", lenet(4)], ["uncut", lenet(1)], ["gpt 2", transformer(4, 2)], ["gpt 4", transformer(4, 4)], ["gpt 8", transformer(4, 8)], ["skips 4", skips(5, 4)], ["24 blocks", transformer(24, 4)], ["200 layers", plain(200, 4)]];

test("the layout is the named version of dagre", () => assert.equal(dagre.version, "3.1.3"));

test("a model is read once, however often it is told", () => {
  const told = lenet(2);
  assert.equal(modelOf({ model: told }), modelOf({ model: JSON.parse(JSON.stringify(told)) }));
  assert.equal(modelOf({}), null);
  assert.equal(modelOf({ model: { layers: [] } }), null);
  const named = structuredClone(told);
  named.edges = named.edges.map(([a, b, n]) => [named.layers[a].name, named.layers[b].name, n]);
  assert.deepEqual(modelOf({ model: named }).values, modelOf({ model: told }).values);
});

test("folding loses no layer, no byte and no value that goes between what is shown", () => {
  for (const [name, told] of CASES) for (const folding of [AUTO, OPEN, SHUT]) {
    const { model, nodes, wires } = laid(told, folding), shown = new Map();
    nodes.forEach((n, i) => n.layers.forEach((l) => (assert.ok(!shown.has(l.index)), shown.set(l.index, i), assert.equal(l.stage, n.stage, name))));
    assert.equal(shown.size, model.layers.length, name);
    for (const what of ["parameters", "forward", "activations"]) {
      const [a, b] = [nodes, model.layers].map((all) => all.reduce((n, x) => n + x[what], 0));
      assert.ok(Math.abs(a - b) <= 1e-9 * b, `${name} ${what}: ${a} and ${b}`);
    }
    const between = new Set(model.values.map((v) => [v.from < 0 ? -1 : shown.get(v.from), shown.get(v.to)]).filter(([a, b]) => a !== b).map(String));
    assert.deepEqual(new Set(wires.map((w) => `${w.from},${w.to}`)), between, name);
    assert.ok(wires.every((w) => w.from < w.to), "execution order stays");
  }
});

test("blocks are named by their number; functions between belong to them; a big model is folded by itself", () => {
  const { model, nodes } = laid(transformer(24, 4));
  assert.equal(blocksOf(model).length, 24);
  assert.ok(nodes.length < 40 && nodes.some((n) => n.name === "blocks.3" && n.op === "12 layers"));
  assert.equal(model.layers.find((l) => l.name === "gelu_3").block, "blocks.3");
  assert.equal(model.layers.find((l) => l.name === "norm").block, "");
  assert.match(foldedWords(nodes), /^\d+ layers are folded into 24 blocks: blocks\.0 to blocks\.23$/);
  assert.equal(foldedWords(laid(lenet(2)).nodes), "");
  assert.equal(blocksOf(modelOf({ model: lenet(2) })).length, 0);
  const one = foldGraph(model, { all: true, turned: new Set(["blocks.3"]) }).nodes;
  assert.ok(one.some((n) => n.name === "blocks.3.norm1") && one.some((n) => n.name === "blocks.4"), "one block is open");
  const parts = laid(transformer(4, 8), SHUT).nodes.filter((n) => n.block === "blocks.0" && n.folded);
  assert.ok(parts.length > 1 && parts.every((n) => / of 12 layers$/.test(n.op)), "a block that is cut is folded in each stage");
});

test("planned bytes of a cut are those of the values that cross it, each once", () => {
  for (const [name, told] of CASES) {
    const model = modelOf({ model: told });
    assert.equal(model.borders.length, model.stages - 1, name);
    for (const { after, bytes, values } of model.borders) {
      const over = crossing(model.values, after).filter((v) => v.from >= 0);
      assert.equal(over.length, values, name);
      assert.equal(over.reduce((n, v) => n + v.bytes, 0), bytes, name);
    }
  }
});

test("every layer lies in its stage's band, no two over each other, each line after what it needs", () => {
  for (const [name, told] of CASES) for (const folding of [AUTO, OPEN, SHUT]) for (const width of [960, 608]) {
    const { nodes, place } = laid(told, folding, width), boxes = place.bands.flatMap((b) => b.lines.flatMap((l) => l.boxes.map((box) => ({ ...box, band: b }))));
    assert.deepEqual(boxes.map((b) => b.node), nodes.map((_, i) => i), name);
    for (const b of boxes) {
      assert.equal(nodes[b.node].stage, b.band.stage);
      assert.ok(b.y >= b.band.top && b.y + b.h <= b.band.top + b.band.height, `${name}: ${nodes[b.node].name} in its band`);
      assert.ok(b.x >= place.left && b.x + b.w <= place.right, `${name} ${width}: ${nodes[b.node].name} within the width`);
    }
    for (const [i, a] of boxes.entries()) for (const b of boxes.slice(i + 1)) assert.ok(a.x + a.w <= b.x + 0.01 || b.x + b.w <= a.x + 0.01 || a.y + a.h <= b.y + 0.01 || b.y + b.h <= a.y + 0.01, `${name}: ${nodes[a.node].name} over ${nodes[b.node].name}`);
    for (const band of place.bands) for (const line of band.lines) for (const { wire, reaches, points } of line.paths) {
      const has = (i) => i >= line.first && i < line.end;
      if (reaches) assert.ok(has(wire.to) && points[0].x < points.at(-1).x, "wires go to the right");
    }
    place.cuts.forEach((cut, k) => assert.ok(cut.top >= place.bands[k].top + place.bands[k].height - 0.01 && cut.top + cut.height <= place.bands[k + 1].top + 0.01));
  }
});

test("a value that a stage only passes on has a way through it", () => {
  const { model, place, nodes } = laid(skips(5, 4), OPEN), band = place.bands[1], from = new Set(model.layers.filter((l) => l.stage < 1).map((l) => l.index));
  const through = model.values.filter((v) => from.has(v.from) && model.layers[v.to].stage > 1), sources = new Set(through.map((v) => v.from));
  assert.ok(sources.size >= 2);
  const passing = band.lines[0].paths.filter((p) => !p.reaches && nodes[p.wire.from].stage === 0 && Math.abs(p.points[0].x - band.lines[0].left.x) < 1);
  assert.equal(passing.length, sources.size);
});

test("a value that several layers of a later stage need leaves its own once", () => {
  const { model, nodes, place } = laid(transformer(4, 8), OPEN);
  let several = 0;
  for (const { lines, stage } of place.bands) for (const { paths } of lines.slice(-1)) {
    const out = paths.filter((p) => !p.reaches && p.points[0].x < p.points.at(-1).x && nodes[p.wire.from]?.stage === stage && p.points.length > 2), from = out.map((p) => p.wire.from);
    assert.equal(new Set(from).size, from.length, `stage ${stage}`);
    several += new Set(from.filter((n) => model.values.filter((v) => v.from === nodes[n].layers[0].index && model.layers[v.to].stage > stage).length > 1)).size;
  }
  assert.ok(several > 0);
});

test("lines break where few values cross, and none is too long", () => {
  const ten = Array.from({ length: 10 }, () => ({ block: "" })), arrows = [...Array.from({ length: 9 }, (_, i) => [i, i + 1]), [3, 6], [2, 6]].map(([from, to]) => ({ from, to }));
  assert.deepEqual(breakLines(0, 10, 6, ten, arrows), [[0, 4], [4, 10]], "not in the middle, where three cross");
  const { nodes, wires } = laid(transformer(4, 2), OPEN);
  const lines = breakLines(0, nodes.findLastIndex((n) => n.stage === 0) + 1, 8, nodes, wires);
  assert.equal(lines[0][0], 0);
  lines.forEach(([a], i) => i && assert.equal(a, lines[i - 1][1]));
  for (const [a] of lines.slice(1)) assert.ok(new Set(wires.filter((w) => w.from < a && w.to >= a).map((w) => w.from)).size <= 2, "not between queries, keys and values");
});

test("what lies under a point", () => {
  const { place, nodes } = laid(transformer(4, 4), OPEN), box = place.bands[1].lines[0].boxes[0];
  assert.deepEqual(underGraph(place, box.x + 5, box.y + 5), { node: box.node });
  assert.deepEqual(underGraph(place, 400, place.cuts[1].top + 10), { cut: 1 });
  assert.deepEqual(underGraph(place, 20, place.bands[2].top + 10), { stage: 2 });
  assert.deepEqual(underGraph(place, place.folds[0].x + 2, place.folds[0].y + 3), { fold: place.folds[0].block });
  const path = place.bands[1].lines[0].paths.find((p) => p.reaches && p.wire.from >= place.bands[1].lines[0].first), [a, b] = path.points;
  assert.equal(underGraph(place, (a.x + b.x) / 2, (a.y + b.y) / 2)?.wire ?? path.wire, path.wire);
  assert.ok(nodes.length);
});

test("measured traffic is what the rows say, of the newest iteration that is over", () => {
  const told = transformer(4, 4), table = tableOf(messages(told, { microbatches: 4, iterations: 3 })), traffic = trafficOf(table), model = modelOf({ model: told });
  const last = traffic.iterationAt(Infinity, true);
  assert.equal(last.iteration, 2);
  told.cut.forEach((c, k) => {
    assert.equal(last.cuts[k].activation.bytes, 4 * c.bytes);
    assert.equal(last.cuts[k].gradient.bytes, 4 * c.bytes);
    assert.equal(last.cuts[k].activation.parcels, 4);
    assert.equal(perMicrobatch(last.cuts[k].activation), c.bytes);
    assert.ok(Math.abs(rateOf(last, k) - (8e9 * c.bytes) / (last.end - last.start)) < 1);
  });
  assert.equal(traffic.iterationAt(Infinity, false).iteration, 1, "live: the newest may not be whole");
  assert.equal(traffic.iterationAt(last.start, true).iteration, 1);
  assert.equal(traffic.iterationAt(0, true), null);
  assert.match(cutLines(model, 2, last).join("\n"), /195 kB a microbatch, as planned.*\n.*780 kB down in 4 messages/);
  assert.match(cutWords(model, 0, last).seen[0], /iteration 3: ↓ 520 kB ↑ 520 kB/);
  assert.match(graphSentence(model, last), /most bytes crossed cut 3/);
});

test("interleaved stages on fewer ranks: each cut has its own messages; memory is of ranks", () => {
  const told = transformer(4, 8), run = { model: told, pipeline: facts(4, 8, 4), memory_limit: 3e6 }, traffic = trafficOf(tableOf(messages(told, { ranks: 4, microbatches: 4 }))), model = modelOf(run);
  const last = traffic.iterationAt(Infinity, true);
  told.cut.forEach((c, k) => assert.equal(last.cuts[k].activation.bytes, 4 * c.bytes, `cut ${k}`));
  const held = memoryOf(model, run.pipeline.rank_of, run, traffic, Infinity);
  assert.deepEqual(held.map((h) => h.stages), [[0, 4], [1, 5], [2, 6], [3, 7]]);
  assert.deepEqual(held.map((h) => h.most), [0, 1, 2, 3].map((r) => 2e6 * (1 + r / 8) + 2000));
  assert.ok(Number.isNaN(memoryOf(model, run.pipeline.rank_of, run, traffic, 0)[0].most), "nothing before its row");
  assert.ok(stageLines(model, 5, 1, held[1].most, run.memory_limit, 4).some((l) => l.includes("of 3.00 MB, measured")));
});

test("a message is on its lane between its two rows, activations one way, gradients the other", () => {
  const told = transformer(4, 4), traffic = trafficOf(tableOf(messages(told, { microbatches: 4 }))), { place } = laid(told);
  let seen = 0;
  for (let t = 0; t < 30e6; t += 0.1e6) {
    const flying = traffic.flying(t), mine = traffic.parcels.filter((p) => p.start <= t && p.there > t);
    assert.deepEqual(flying.map((p) => `${p.from} ${p.to} ${p.op}`).sort(), mine.map((p) => `${p.from} ${p.to} ${p.op}`).sort());
    for (const p of flying) {
      const spot = cometSpot(place, p), start = cometSpot(place, { ...p, share: 0 }), end = cometSpot(place, { ...p, share: 1 });
      assert.ok(Math.abs(p.share - (t - p.start) / (p.there - p.start)) < 1e-9 && spot.y === place.cuts[p.cut].y);
      assert.equal(start.x < end.x, p.gradient);
      seen++;
    }
  }
  assert.ok(seen > 50);
});

test("nothing is written over anything else", () => {
  const g = canvas();
  onto(g);
  for (const [name, told] of CASES) for (const folding of [AUTO, OPEN]) for (const width of [960, 608]) {
    const { model, nodes, wires, place } = laid(told, folding, width), ranks = Array.from({ length: model.stages }, (_, s) => s), traffic = trafficOf(tableOf(messages(told)));
    const look = { ink: INK, font: "sans-serif", ratio: 1, width }, timed = true, slowest = Math.max(...nodes.map((n) => weightOf(n, timed)));
    const comets = traffic.flying(21.3e6).map((p) => ({ ...p, ...cometSpot(place, p) }));
    g.drawn.length = 0;
    drawGraph(g, look, { model, nodes, wires, place, slowest, timed, ranks, crossed: traffic.iterationAt(Infinity, true), comets, chosen: { stages: new Set([0]), cut: -1, node: "" }, pointed: null });
    assert.ok(g.drawn.length > 30);
    // A band is a pale ground for its words, and a selected one's frame is around all.
    assert.deepEqual(collisions(g.drawn.filter((d) => !(d.kind === "box" && d.w >= width - 2))), [], `${name} ${width}`);
    for (const d of g.drawn) if (d.kind === "text") assert.ok(d.x >= 0 && d.x + d.w <= width && d.size >= 11, `${name}: ${d.text}`);
  }
});

test("the line and the charts: as wide as time, a limit that was passed has a cross", () => {
  const told = transformer(4, 4), model = modelOf({ model: told }), g = canvas(), ranks = [0, 1, 2, 3];
  onto(g);
  const spots = stripOf(model, true, 960), whole = model.layers.reduce((n, l) => n + l.forward + l.backward, 0);
  spots.forEach((s, i) => assert.ok(Math.abs(s.w / 960 - (model.layers[i].forward + model.layers[i].backward) / whole) < 1e-9));
  assert.ok(Math.abs(spots.at(-1).x + spots.at(-1).w - 960) < 1e-6);
  const chart = (width) => ({ g, ink: INK, font: "sans-serif", ratio: 1, width, height: graphChartHeight(4) });
  for (const draw of [() => drawModelLine(chart(960), model, ranks, true, null, -1), () => drawStageTimes(chart(460), model, ranks), () => drawMemory(chart(460), [2e6, 3e6].map((most, rank) => ({ rank, stages: [rank], parameters: 1e6, planned: 2e6, most })), 2.5e6)]) {
    g.drawn.length = 0;
    draw();
    assert.deepEqual(collisions(g.drawn), []);
  }
  assert.ok(g.drawn.some((d) => d.text === "✕ 3.00 MB") && g.drawn.some((d) => d.text === "2.00 MB") && g.drawn.some((d) => d.text === "limit 2.50 MB"));
});

test("words of a layer and of a block", () => {
  const { model, nodes } = laid(transformer(24, 4)), block = nodes.find((n) => n.name === "blocks.1"), head = nodes.at(-1);
  assert.match(nodeLines(block, model, [0, 1, 2, 3]).join("\n"), /^blocks\.1: 12 layers\nstage 0 on rank 0; .*\n(.*\n)*open it: click$/);
  assert.match(nodeLines(head, model, [0, 1, 2, 3]).join("\n"), /^head: Linear\nstage 3 on rank 3; 32\.0 kB parameters\nforward 200 µs, backward 400 µs/);
  assert.match(graphSentence(modelOf({ model: lenet(1) }), null), /it is not cut/);
});

test("a model that is split inside its layers: who has what, and what is exchanged", () => {
  const told = { ...transformer(2, 1), cut: [] }, name = "blocks.0.attention";
  const part = (layer, how, size, runs) => ({ layer, op: "Linear", how, words: `${how}: ${size}`, runs, size });
  told.shards = [part(`${name}.queries`, "column", 64, [[[0, 32]], [[32, 48]], [[48, 64]]]), part(`${name}.keys`, "column", 64, [[[0, 32]], [[32, 48]], [[48, 64]]]), part(`${name}.join`, "row", 64, [[[0, 16], [48, 64]], [[16, 32]], [[32, 48]]]), part("norm", "whole", 0, [[], [], []])];
  told.exchanges = [{ name: `${name}.join`, collective: "all_reduce", pass: "forward", nbytes: 1000 }, { name: `${name}.queries, keys`, collective: "all_reduce", pass: "backward", nbytes: 2000 }];
  const model = modelOf({ model: told }), sharding = shardingOf(model), of = (which) => sharding.layers.get(model.layers.findIndex((l) => l.name === which));
  assert.deepEqual(layersNamed(`${name}.queries, keys`), [`${name}.queries`, `${name}.keys`]);
  assert.deepEqual([of(`${name}.queries`).shares, of(`${name}.join`).shares, of("norm").shares], [[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [1, 1, 1]]);
  assert.deepEqual([`${name}.join`, `${name}.queries`, `${name}.keys`, "norm"].map((n) => of(n).exchanges.map((e) => e.pass)), [["forward"], ["backward"], ["backward"], []]);
  const call = (rank, start, more) => row(rank, "collective", start, start + 10, { name: `${name}.join`, nbytes: 1000, ...more });
  const traffic = trafficOf(tableOf([call(0, 100, { op: 0 }), call(0, 200, { op: 1, iteration: 1 }), call(0, 300, { group: "metrics", op: 2, nbytes: 7 }), call(1, 100, { op: 0 })]));
  assert.deepEqual(traffic.calledBy(`${name}.join`, "all_reduce", 205), { calls: 1, nbytes: 1000 });
  assert.deepEqual(traffic.calledBy(`${name}.join`, "all_reduce", Infinity), { calls: 2, nbytes: 2000 }, "those of one rank, not those of metrics");
  assert.match(partLines(of(`${name}.queries`), traffic, 0)[1], /all-reduce backward of 2 layers together: 2\.00 kB planned$/);
  assert.match(graphSentence(model, null), /^Each of 3 ranks has a part of 3 layers: 2 are split by columns, 1 by rows; .* 2 collectives of 3\.00 kB in all\.$/);
  const [a, b] = memoryOf(model, [0], {}, traffic, 0), whole = model.layers.reduce((n, l) => n + l.parameters, 0), cut = model.layers.filter((l) => of(l.name)?.how !== "whole" && of(l.name)).reduce((n, l) => n + l.parameters, 0);
  assert.ok(Math.abs(a.parameters - (whole - cut / 2)) < 1e-6 && Math.abs(b.parameters - (whole - cut * 0.75)) < 1e-6);
  assert.ok(foldGraph(model, AUTO).nodes.some((n) => n.name === `${name}.join`), "the first block is open");
  const g = canvas();
  drawParts(g, INK, of(`${name}.join`), 0, 0, 16);
  assert.deepEqual(g.drawn.map((d) => [d.ink, d.w, d.y]), [["s0", 16, 0], ["s1", 16, 8], ["s2", 16, 12]]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { dagre } from "../../assets/vendor/dagre.js";
import {
  blocksOf,
  crossing,
  foldGraph,
  foldedWords,
  modelOf,
} from "../../assets/scenes/model/fold.js";
import { breakLines } from "../../assets/scenes/model/place.js";
import { hitUnder as underGraph } from "../../assets/scenes/model/hits.js";
import { AUTO, CASES, OPEN, SHUT, laid, lenet, skips, transformer } from "./modelled.js";
import { sample } from "./sample.js";

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
  for (const [name, told] of CASES)
    for (const folding of [AUTO, OPEN, SHUT]) {
      const { model, nodes, wires } = laid(told, folding);
      const shown = new Map();
      nodes.forEach((n, i) =>
        n.layers.forEach(
          (l) => (
            assert.ok(!shown.has(l.index)),
            shown.set(l.index, i),
            assert.equal(l.stage, n.stage, name)
          ),
        ),
      );
      assert.equal(shown.size, model.layers.length, name);
      for (const what of ["parameters", "forward", "activations"]) {
        const [a, b] = [nodes, model.layers].map((all) => all.reduce((n, x) => n + x[what], 0));
        assert.ok(Math.abs(a - b) <= 1e-9 * b, `${name} ${what}: ${a} and ${b}`);
      }
      const between = new Set(
        model.values
          .map((v) => [v.from < 0 ? -1 : shown.get(v.from), shown.get(v.to)])
          .filter(([a, b]) => a !== b)
          .map(String),
      );
      assert.deepEqual(new Set(wires.map((w) => `${w.from},${w.to}`)), between, name);
      assert.ok(
        wires.every((w) => w.from < w.to),
        "execution order stays",
      );
    }
});

test(
  "blocks are named by their number; functions between belong to them; a big model is folded " +
    "by itself",
  () => {
    const { model, nodes } = laid(transformer(24, 4));
    assert.equal(blocksOf(model).length, 24);
    assert.ok(
      nodes.length < 40 && nodes.some((n) => n.name === "blocks.3" && n.op === "12 layers"),
    );
    assert.equal(model.layers.find((l) => l.name === "gelu_3").block, "blocks.3");
    assert.equal(model.layers.find((l) => l.name === "norm").block, "");
    assert.match(
      foldedWords(nodes),
      /^\d+ layers are folded into 24 blocks: blocks\.0 to blocks\.23$/,
    );
    assert.equal(foldedWords(laid(lenet(2)).nodes), "");
    assert.equal(blocksOf(modelOf({ model: lenet(2) })).length, 0);
    const one = foldGraph(model, { all: true, turned: new Set(["blocks.3"]) }).nodes;
    assert.ok(
      one.some((n) => n.name === "blocks.3.norm1") && one.some((n) => n.name === "blocks.4"),
      "one block is open",
    );
    const parts = laid(transformer(4, 8), SHUT).nodes.filter(
      (n) => n.block === "blocks.0" && n.folded,
    );
    assert.ok(
      parts.length > 1 && parts.every((n) => / of 12 layers$/.test(n.op)),
      "a block that is cut is folded in each stage",
    );
  },
);

test("planned bytes of a cut are those of the values that cross it, each once", () => {
  for (const [name, told] of CASES) {
    const model = modelOf({ model: told });
    assert.equal(model.borders.length, model.stages - 1, name);
    for (const { after, bytes, values } of model.borders) {
      const over = crossing(model.values, after).filter((v) => v.from >= 0);
      assert.equal(over.length, values, name);
      assert.equal(
        over.reduce((n, v) => n + v.bytes, 0),
        bytes,
        name,
      );
    }
  }
});

test(
  "every layer lies in its stage's band, no two over each other, each line after what it " +
    "needs",
  () => {
    for (const [name, told] of CASES)
      for (const folding of [AUTO, OPEN, SHUT])
        for (const width of sample([608, 960])) {
          const { nodes, place } = laid(told, folding, width);
          const boxes = place.bands.flatMap((b) =>
            b.lines.flatMap((l) => l.boxes.map((box) => ({ ...box, band: b }))),
          );
          assert.deepEqual(
            boxes.map((b) => b.node),
            nodes.map((_, i) => i),
            name,
          );
          for (const b of boxes) {
            assert.equal(nodes[b.node].stage, b.band.stage);
            assert.ok(
              b.y >= b.band.top && b.y + b.h <= b.band.top + b.band.height,
              `${name}: ${nodes[b.node].name} in its band`,
            );
            assert.ok(
              b.x >= b.band.x + place.left && b.x + b.w <= b.band.x + place.right,
              `${name} ${width}: ${nodes[b.node].name} within the width`,
            );
          }
          for (const [i, a] of boxes.entries())
            for (const b of boxes.slice(i + 1))
              assert.ok(
                a.x + a.w <= b.x + 0.01 ||
                  b.x + b.w <= a.x + 0.01 ||
                  a.y + a.h <= b.y + 0.01 ||
                  b.y + b.h <= a.y + 0.01,
                `${name}: ${nodes[a.node].name} over ${nodes[b.node].name}`,
              );
          for (const band of place.bands)
            for (const line of band.lines)
              for (const { wire, reaches, points } of line.paths) {
                const has = (i) => i >= line.first && i < line.end;
                if (reaches)
                  assert.ok(has(wire.to) && points[0].x < points.at(-1).x, "wires go to the right");
              }
          place.cuts.forEach((cut, k) =>
            assert.ok(
              (cut.x > place.bands[k].x ||
                cut.top >= place.bands[k].top + place.bands[k].height - 0.01) &&
                cut.x === place.bands[k + 1].x &&
                cut.top + cut.height <= place.bands[k + 1].top + 0.01,
            ),
          );
          for (const parts of [place.bands, place.cuts])
            for (const part of parts)
              assert.ok(
                part.top >= 0 &&
                  part.top + part.height <= place.height + 0.01 &&
                  part.x + place.width <= width,
                `${name} ${width}: all of it within the picture`,
              );
        }
  },
);

test("a value that a stage only passes on has a way through it", () => {
  const { model, place, nodes } = laid(skips(5, 4), OPEN);
  const band = place.bands[1];
  const from = new Set(model.layers.filter((l) => l.stage < 1).map((l) => l.index));
  const through = model.values.filter((v) => from.has(v.from) && model.layers[v.to].stage > 1);
  const sources = new Set(through.map((v) => v.from));
  assert.ok(sources.size >= 2);
  const passing = band.lines[0].paths.filter(
    (p) =>
      !p.reaches &&
      nodes[p.wire.from].stage === 0 &&
      Math.abs(p.points[0].x - band.lines[0].left.x) < 1,
  );
  assert.equal(passing.length, sources.size);
});

test("a value that several layers of a later stage need leaves its own once", () => {
  const { model, nodes, place } = laid(transformer(4, 8), OPEN);
  let several = 0;
  for (const { lines, stage } of place.bands)
    for (const { paths } of lines.slice(-1)) {
      const out = paths.filter(
        (p) =>
          !p.reaches &&
          p.points[0].x < p.points.at(-1).x &&
          nodes[p.wire.from]?.stage === stage &&
          p.points.length > 2,
      );
      const from = out.map((p) => p.wire.from);
      assert.equal(new Set(from).size, from.length, `stage ${stage}`);
      several += new Set(
        from.filter(
          (n) =>
            model.values.filter(
              (v) => v.from === nodes[n].layers[0].index && model.layers[v.to].stage > stage,
            ).length > 1,
        ),
      ).size;
    }
  assert.ok(several > 0);
});

test("lines break where few values cross, and none is too long", () => {
  const ten = Array.from({ length: 10 }, () => ({ block: "" }));
  const arrows = [...Array.from({ length: 9 }, (_, i) => [i, i + 1]), [3, 6], [2, 6]].map(
    ([from, to]) => ({ from, to }),
  );
  assert.deepEqual(
    breakLines(0, 10, 6, ten, arrows),
    [
      [0, 4],
      [4, 10],
    ],
    "not in the middle, where three cross",
  );
  const { nodes, wires } = laid(transformer(4, 2), OPEN);
  const lines = breakLines(0, nodes.findLastIndex((n) => n.stage === 0) + 1, 8, nodes, wires);
  assert.equal(lines[0][0], 0);
  lines.forEach(([a], i) => i && assert.equal(a, lines[i - 1][1]));
  for (const [a] of lines.slice(1))
    assert.ok(
      new Set(wires.filter((w) => w.from < a && w.to >= a).map((w) => w.from)).size <= 2,
      "not between queries, keys and values",
    );
});

test("what lies under a point", () => {
  const { place, nodes } = laid(transformer(4, 4), OPEN);
  const { x } = place.cuts[1];
  const box = place.bands[1].lines[0].boxes[0];
  assert.deepEqual(underGraph(place, box.x + 5, box.y + 5), { node: box.node });
  assert.deepEqual(underGraph(place, x + 300, place.cuts[1].top + 10), { cut: 1 });
  assert.deepEqual(underGraph(place, place.bands[2].x + 20, place.bands[2].top + 10), { stage: 2 });
  assert.deepEqual(underGraph(place, place.folds[0].x + 2, place.folds[0].y + 3), {
    fold: place.folds[0].block,
  });
  const path = place.bands[1].lines[0].paths.find(
    (p) => p.reaches && p.wire.from >= place.bands[1].lines[0].first,
  );
  const [a, b] = path.points;
  assert.equal(underGraph(place, (a.x + b.x) / 2, (a.y + b.y) / 2)?.wire ?? path.wire, path.wire);
  assert.ok(nodes.length);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  chunkInScore,
  chunkWay,
  drawWayInScore,
  drawWayOnLinks,
  wayWords,
} from "../../assets/drawing/chunk_way.js";
import { barsOf } from "../../assets/drawing/lanes.js";
import { openCall } from "../../assets/engine/model.js";
import { paper } from "./paper.js";
import { knownOf, ringRows } from "./simulated.js";

const INK = { focus: "focus" };

function ring(n) {
  const known = knownOf(n, ringRows(n, {}));
  const call = openCall(known.table, known.table.calls[0]);
  return { known, call, look: { call, known, ink: INK, width: 960, ranks: n, at: 0 } };
}

test("a chunk's way is its hops from rank to rank, each from where the one before ended", () => {
  for (const n of [2, 4, 8]) {
    const { call } = ring(n);
    for (let chunk = 0; chunk < n; chunk++) {
      const way = chunkWay(call, { chunk, op: call.op, group: call.group });
      assert.equal(way.length, 2 * (n - 1), "reduce-scatter, then all-gather");
      way.slice(1).forEach((hop, i) => assert.equal(hop.from, way[i].to));
      const words = wayWords(way)[0] ?? "";
      assert.match(words, new RegExp(`^its way: rank ${way[0].to} at `));
    }
    assert.deepEqual(chunkWay(call, { chunk: 0, op: call.op + 1 }), [], "another call's");
    assert.deepEqual(chunkWay(call, { rank: 0 }), []);
  }
});

test("every bar of the score is found under the pointer, and lit up with its chunk's", () => {
  const { call, look } = ring(4);
  const rows = call.rows.filter((r) => r.kind === "send");
  barsOf({ ...call, rows }, 960, 4).forEach(({ x, y, w, h }, i) => {
    const choice = chunkInScore(look, x + w / 2, y + h / 2);
    assert.equal(choice?.chunk, rows[i].chunk);
    const g = paper();
    drawWayInScore(g, { ...look, choice });
    assert.ok(g.marks.every((mark) => mark.ink === "focus"));
  });
  assert.equal(chunkInScore(look, 2, 2), null);
});

test("links that are still to come are pale", () => {
  const { call } = ring(4);
  const way = chunkWay(call, { chunk: 1 });
  const alphas = [];
  const g = { beginPath() {}, moveTo() {}, lineTo() {}, stroke: () => alphas.push(g.globalAlpha) };
  const nodes = [0, 1, 2, 3].map((x) => ({ x, y: 0 }));
  drawWayOnLinks(g, INK, nodes, way, way[2].start);
  assert.equal(
    alphas.filter((a) => a > 0.5).length,
    way.filter((f) => f.start <= way[2].start).length,
  );
  assert.ok(alphas.includes(0.3));
});

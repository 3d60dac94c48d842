import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { NOTHING, frameAt, receive } from "../../assets/model.js";
import { barsOf, lanesHeight, timeAt, xOf } from "../../assets/lanes.js";
import { marksOf, placesOf, ringHeight, wayOf, wordsAt } from "../../assets/ring.js";
import { batch } from "./rows.js";

const call = receive(NOTHING, ...batch([0]), 0).calls[0];
const flights = (n) => Array.from({ length: n }, (_, r) => ({ ...call.flights[0], from: r, to: (r + 1) % n }));

test("every rank has a place inside the picture, and none touches another", () => {
  for (const n of [1, 2, 3, 4, 8, 16, 64])
    for (const width of [300, 520, 960]) {
      const place = placesOf(n, width, ringHeight(n), flights(n));
      for (const { x, y } of place.nodes) assert.ok(x >= place.node && x <= width - place.node && y >= place.node && y <= ringHeight(n) - place.node);
      const [a, b] = place.nodes;
      if (b && n <= 16) assert.ok(Math.hypot(a.x - b.x, a.y - b.y) > 2 * place.node, `${n} ranks, ${width} px`);
    }
});

test("a chunk is at the share of its way, and off the ranks", () => {
  const place = placesOf(3, 520, ringHeight(3), call.flights);
  const [from, to] = wayOf(place, 0, 1, true);
  for (const t of [0, 250, 999]) {
    const [mark] = marksOf(frameAt(call, t), place);
    assert.ok(Math.abs(mark.x - (from.x + ((to.x - from.x) * t) / 1000)) < 1e-9);
    assert.ok(Math.abs(mark.y - (from.y + ((to.y - from.y) * t) / 1000)) < 1e-9);
    for (const node of place.nodes) assert.ok(Math.hypot(mark.x - node.x, mark.y - node.y) > place.node);
  }
});

test("two ways between the same ranks lie side by side", () => {
  const place = placesOf(2, 520, ringHeight(2), flights(2));
  assert.deepEqual([...place.both].sort(), ["0>1", "1>0"]);
  const [a] = wayOf(place, 0, 1), [, b] = wayOf(place, 1, 0);
  assert.ok(Math.hypot(a.x - b.x, a.y - b.y) > 20);
});

test("what lies under the pointer is said in words", () => {
  const place = placesOf(3, 520, ringHeight(3), call.flights), frame = frameAt(call, 250), [mark] = marksOf(frame, place);
  assert.match(wordsAt(frame, place, mark.x, mark.y), /^chunk 0 from rank 0 to rank 1: 25 % of its 1.00 µs, 400 B, step 0 \(reduce-scatter\)$/);
  assert.match(wordsAt(frame, place, place.nodes[1].x, place.nodes[1].y), /^rank 1 has waited 150 ns for chunk 0 from rank 0$/);
  assert.equal(wordsAt(frame, place, 1, 1), "");
});

test("bars lie at their times, in their rank's lane; none is too short to see", () => {
  const bars = barsOf(call, 960), height = lanesHeight(3);
  assert.equal(bars.length, 5);
  assert.ok(bars.every((b) => b.w >= 1 && b.y > 0 && b.y + b.h < height));
  assert.equal(bars[0].x, xOf(0, 2000, 960));
  assert.ok(barsOf({ ...call, rows: [{ ...call.rows[0], end: call.rows[0].start }] }, 960)[0].w >= 1);
});

test("a place on the strip is a time, and back", () => {
  for (const t of [0, 1, 777, 2000]) assert.ok(Math.abs(timeAt(xOf(t, 2000, 960), 2000, 960) - t) < 1e-9);
  assert.equal(timeAt(-50, 2000, 960), 0);
  assert.equal(timeAt(5000, 2000, 960), 2000);
});

test("the assets ask no other machine for anything, and know no algorithm's schedule", () => {
  for (const name of ["model.js", "words.js", "ring.js", "lanes.js", "host.js", "stage.js", "theme.css"]) {
    const text = readFileSync(new URL(`../../assets/${name}`, import.meta.url), "utf8");
    assert.doesNotMatch(text, /https?:\/\/|@import|fetch\(|XMLHttpRequest/, name);
    assert.doesNotMatch(text, /% ranks|% n\b/, name);
  }
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { preparedOf } from "../../assets/scenes/collectives/frame.js";
import { contentKeys, spaceKeys } from "../../assets/scenes/collectives/legend.js";
import { ringHeight, placesOf, wayOf } from "../../assets/scenes/collectives/ring.js";
import { shapeOf } from "../../assets/engine/shape.js";
import { awayFrom } from "../../assets/engine/shape_places.js";
import { INK } from "./canvas.js";
import { callOf } from "./rows.js";
import { allRows, lookAt, ringRows, starRows } from "./simulated.js";
import { NAMES, SCHEDULES, rootsOf, scheduleRows } from "./schedules.js";

const linksOf = (call) => [...new Set(call.flights.map((f) => `${f.from}>${f.to}`))];

const shapeOfCall = (call, root = -1) => shapeOf(call.ranks, linksOf(call), root, call.algorithm);

// ---- shapes

test("the shape is found from who sent to whom", () => {
  const kinds = {
    "all_reduce/tree": "tree",
    "broadcast/tree": "tree",
    "reduce/tree": "tree",
    "gather/tree": "tree",
    "scatter/tree": "tree",
    "broadcast/flat": "star",
    "gather/flat": "star",
    "reduce/flat": "star",
    "scatter/flat": "star",
    "all_reduce/butterfly": "cube",
    "all_reduce/rabenseifner": "cube",
    "all_gather/ring": "circle",
    "reduce_scatter/ring": "circle",
    "all_to_all/pairwise": "circle",
    "barrier/dissemination": "circle",
  };
  for (const name of NAMES)
    for (const n of [4, 5, 6, 7, 8, 12, 16])
      for (const root of rootsOf(name, n))
        assert.equal(
          shapeOfCall(callOf(scheduleRows(name, n, { root })), SCHEDULES[name].rooted ? root : -1)
            .kind,
          kinds[name],
          `${name}, ${n}`,
        );
  for (const n of [3, 4, 8, 16])
    assert.deepEqual(
      [shapeOfCall(callOf(ringRows(n))).kind, shapeOfCall(callOf(allRows(n))).kind],
      ["circle", "circle"],
    );
  assert.equal(shapeOfCall(callOf(starRows(8))).kind, "star");
});

/** Rings within groups of `size`, rings between them. */
const nested = (n, size) =>
  Array.from({ length: n }, (_, r) => [
    `${r}>${Math.floor(r / size) * size + ((r + 1) % size)}`,
    `${r}>${(r + size) % n}`,
  ])
    .flat()
    .filter((w) => new Set(w.split(">")).size > 1);

test("groups within groups; where a cube has the same links the name says which", () => {
  for (const [n, size] of [
    [8, 4],
    [6, 3],
    [9, 3],
    [16, 4],
    [12, 3],
    [12, 4],
    [16, 8],
  ])
    assert.deepEqual(
      [shapeOf(n, nested(n, size)).kind, shapeOf(n, nested(n, size)).size],
      ["groups", size],
      `${n}`,
    );
  assert.deepEqual(
    [shapeOf(4, nested(4, 2)).kind, shapeOf(4, nested(4, 2), -1, "hierarchical").kind],
    ["cube", "groups"],
  );
  for (const n of [3, 4, 5, 7, 8])
    assert.equal(
      shapeOf(
        n,
        Array.from({ length: n }, (_, r) => `${r}>${(r + 1) % n}`),
        -1,
        "hierarchical",
      ).kind,
      "circle",
      "one ring is one ring",
    );
});

test("a tree's root is the operation's, or who gets all and gives to all", () => {
  assert.equal(shapeOfCall(callOf(scheduleRows("broadcast/tree", 8, { root: 5 })), 5).centre, 5);
  assert.equal(shapeOfCall(callOf(scheduleRows("broadcast/tree", 8, { root: 5 }))).centre, 5);
  assert.equal(shapeOfCall(callOf(scheduleRows("reduce/tree", 8, { root: 3 }))).centre, 3);
  assert.equal(shapeOfCall(callOf(scheduleRows("all_reduce/tree", 8))).centre, 0);
  assert.equal(
    shapeOf(6, ["0>1", "1>2", "2>3", "3>4", "4>5"]).kind,
    "circle",
    "a chain is a circle with a gap",
  );
  assert.equal(
    shapeOf(
      24,
      Array.from({ length: 23 }, (_, r) => `0>${r + 1}`),
    ).kind,
    "circle",
    "many ranks are ticks on a circle",
  );
});

const LAYOUTS = [
  ...["all_reduce/tree", "broadcast/flat", "all_reduce/butterfly"].map((name) => [
    name,
    (n) => linksOf(callOf(scheduleRows(name, n))),
  ]),
  ["groups", (n) => nested(n, n % 4 === 0 && n > 4 ? 4 : n % 3 === 0 ? 3 : 2)],
];

test(
  "every rank has a place in the picture, none touches another, and no link passes over a " +
    "third",
  () => {
    for (const [name, links] of LAYOUTS)
      for (const n of name === "groups" ? [4, 6, 8, 9, 12, 16] : [4, 5, 6, 7, 8, 9, 12, 16])
        for (const width of [399, 608]) {
          const ways = links(n);
          const shape = shapeOf(n, ways, -1, name === "groups" ? "hierarchical" : "");
          const place = placesOf(n, width, ringHeight(n), ways, 1, 4, shape);
          const where = `${name}, ${n} ranks, ${width} px: ${shape.key}`;
          assert.equal(place.nodes.length, n);
          for (const { x, y } of place.nodes)
            assert.ok(
              x >= place.node &&
                x <= width - place.node &&
                y >= place.node &&
                y <= ringHeight(n) - place.node,
              where,
            );
          place.nodes.forEach((a, i) =>
            place.nodes.forEach((b, j) =>
              assert.ok(
                i === j || Math.hypot(a.x - b.x, a.y - b.y) > 2 * place.node + 6,
                `${where}: ${i} and ${j}`,
              ),
            ),
          );
          for (const [from, to] of place.links) {
            const [a, b] = wayOf(place, from, to);
            place.nodes.forEach(
              (p, r) =>
                r === from ||
                r === to ||
                assert.ok(
                  awayFrom(p, a, b) > place.node + 1,
                  `${where}: ${from} → ${to} passes over ${r}, ${awayFrom(p, a, b)}`,
                ),
            );
          }
        }
  },
);

test(
  "a place once given is kept while calls of the same kind go on; a call that goes on is not " +
    "laid out anew",
  () => {
    const whole = scheduleRows("all_reduce/tree", 8);
    const more = scheduleRows("all_reduce/tree", 8, { op: 1, start: 20_000_000 }).filter(
      (r) => r.kind !== "collective" && r.step < 1,
    );
    const look = lookAt(8, [...whole, ...more], 0.5, { ink: INK });
    const first = preparedOf(look, null);
    const open = callOf([...more]);
    assert.equal(first.place.shape.kind, "tree");
    const second = preparedOf({ ...look, call: open, t: open.start + 10 }, first);
    assert.equal(second.place.shape.key, first.place.shape.key, "as the complete one before it");
    const alone = lookAt(8, more, 0.5, { ink: INK });
    assert.equal(
      preparedOf(alone, null).place.shape.kind,
      "circle",
      "before one is complete nobody knows",
    );
  },
);

test("every mark of a shape has its key", () => {
  const n = 8;
  const rows = scheduleRows("gather/tree", n, { root: 3 });
  const look = lookAt(n, rows, 0.5, { ink: INK });
  const words = contentKeys(look, preparedOf(look, null)).map((k) => k.words);
  for (const mark of [
    "the rank has the chunk",
    "not yet",
    "here to be handed on",
    "need not be here at the end",
  ])
    assert.ok(words.includes(mark), `${mark}: ${words}`);
  assert.ok(spaceKeys(look, preparedOf(look, null)).length > 2);
});

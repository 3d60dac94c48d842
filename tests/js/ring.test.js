import assert from "node:assert/strict";
import { test } from "node:test";
import { frameAt, openCall } from "../../assets/engine/model.js";
import {
  marksOf,
  niceRate,
  overlaps,
  placesOf,
  queued,
  ringHeight,
  underRing,
  wayOf,
} from "../../assets/scenes/collectives/ring.js";
import { labelsOf, middleBox } from "../../assets/scenes/collectives/ring_labels.js";
import { preparedOf } from "../../assets/scenes/collectives/frame.js";
import { wordsAround } from "../../assets/scenes/collectives/ring_draw.js";
import { recorded } from "./recorded.js";
import { callOf, rows } from "./rows.js";
import { allRows, lookAt, ringRows, starRows } from "./simulated.js";

const around = (n) => Array.from({ length: n }, (_, r) => `${r}>${(r + 1) % n}`);
const placed = (n, width = 520, links = around(n), crowd = n) =>
  placesOf(n, width, ringHeight(n), links, n > 9 ? 2 : 1, crowd);
const linksIn = (call) => [...new Set(call.flights.map((f) => `${f.from}>${f.to}`))];

test("every rank has a place inside the picture, and none touches another", () => {
  for (const n of [1, 2, 3, 4, 8, 16, 32, 64])
    for (const width of [300, 399, 608]) {
      const place = placed(n, width);
      for (const { x, y } of place.nodes)
        assert.ok(
          x >= place.node &&
            x <= width - place.node &&
            y >= place.node &&
            y <= ringHeight(n) - place.node,
        );
      const [a, b] = place.nodes;
      if (b && n <= 32)
        assert.ok(Math.hypot(a.x - b.x, a.y - b.y) > 2 * place.node, `${n} ranks, ${width} px`);
    }
});

test("a chunk is at the share of its way, and off the ranks", () => {
  const call = callOf();
  const place = placesOf(3, 520, ringHeight(3), linksIn(call));
  const [from, to] = wayOf(place, 0, 1, true);
  for (const t of [0, 250, 999]) {
    const [mark] = marksOf(frameAt(call, t), place);
    assert.ok(Math.abs(mark.x - (from.x + ((to.x - from.x) * t) / 1000)) < 1e-9);
    assert.ok(Math.abs(mark.y - (from.y + ((to.y - from.y) * t) / 1000)) < 1e-9);
    for (const node of place.nodes)
      assert.ok(Math.hypot(mark.x - node.x, mark.y - node.y) > place.node);
  }
});

test("chunks queue on their link: each on the line, at its share or behind the one before it", () => {
  let waited = 0;
  for (const rowsOf of [
    ringRows(8, { slow: [2, 6] }),
    ringRows(4, { slow: [2, 9] }),
    starRows(8),
    allRows(4),
  ]) {
    const call = callOf(rowsOf);
    const place = placed(call.ranks, 399, linksIn(call));
    for (let k = 0; k < 200; k++) {
      const ways = new Map();
      for (const m of marksOf(frameAt(call, (k / 200) * (call.end - call.start)), place)) {
        const [a, b] = wayOf(place, m.from, m.to, true);
        const length = Math.hypot(b.x - a.x, b.y - a.y);
        const [x, y] = [m.x - a.x, m.y - a.y];
        const along = (x * (b.x - a.x) + y * (b.y - a.y)) / length;
        const away = Math.abs(x * (b.y - a.y) - y * (b.x - a.x)) / length;
        assert.ok(away < 1e-6 && along > -1e-6 && along < length + 1e-6, `${m.from}>${m.to}`);
        assert.ok(along < m.share * length + 1e-6, "none is ahead of its share");
        const key = `${m.from}>${m.to}`;
        ways.set(key, [...(ways.get(key) ?? []), { along, wanted: m.share * length }]);
      }
      for (const all of ways.values()) {
        if (all.length === 1) assert.ok(Math.abs(all[0].along - all[0].wanted) < 1e-6);
        else waited += all.filter(({ along, wanted }) => wanted - along > 1).length;
      }
    }
  }
  assert.ok(waited > 100, `${waited} chunks waited for others`);
});

test("a queue that is too long for its link has dots, in order, from end to end", () => {
  const sizes = [
    { w: 36, h: 16 },
    { w: 18, h: 15 },
    { w: 7, h: 7 },
  ];
  const along = { x: 1, y: 0 };
  const forms = (n) => queued(Array(n).fill(100), 100, along, sizes, 0).map((q) => q.form);
  assert.deepEqual([forms(1), forms(3)], [[0], [0, 1, 1]]);
  assert.deepEqual(new Set(forms(9)), new Set([2]));
  for (const n of [9, 40]) {
    const at = queued(Array(n).fill(100), 100, along, sizes, 0).map((q) => q.at);
    assert.ok(
      at.every((x, i) => x >= -1e-9 && x <= 100 && (!i || x < at[i - 1])),
      `${n}`,
    );
  }
});

test(
  "no cell lies over another or over a rank: " + "it is shortened to its number, then to a dot",
  () => {
    const forms = new Set();
    for (const rowsOf of [
      ringRows(8, { slow: [2, 9] }),
      ringRows(16, { slow: [2, 9] }),
      starRows(8),
      allRows(4),
      ringRows(2),
    ]) {
      const call = callOf(rowsOf);
      const place = placed(call.ranks, 399, linksIn(call), 4);
      for (let k = 0; k < 300; k++) {
        const marks = marksOf(frameAt(call, (k / 300) * (call.end - call.start)), place);
        const boxes = marks
          .filter((m) => m.form < 2)
          .map((m) => ({ x: m.x - m.w / 2, y: m.y - m.h / 2, w: m.w, h: m.h }));
        boxes.forEach((a, i) => boxes.forEach((b, j) => assert.ok(i === j || !overlaps(a, b))));
        for (const { x, y, w, h } of boxes)
          for (const node of place.nodes)
            assert.ok(
              Math.hypot(
                Math.max(0, Math.abs(node.x - x - w / 2) - w / 2),
                Math.max(0, Math.abs(node.y - y - h / 2) - h / 2),
              ) >= place.node,
            );
        for (const m of marks) forms.add(m.form);
      }
    }
    assert.deepEqual([...forms].sort(), [0, 1, 2]);
  },
);

test("two ways between the same ranks lie side by side, and cells that meet do not touch", () => {
  for (const n of [2, 4, 8]) {
    const place = placed(n, 520, [
      ...around(n),
      ...around(n).map((w) => w.split(">").reverse().join(">")),
    ]);
    const [a, b] = wayOf(place, 0, 1, true);
    const [c, d] = wayOf(place, 1, 0, true);
    const at = (p, q) => ({
      x: (p.x + q.x) / 2 - place.cell.w / 2,
      y: (p.y + q.y) / 2 - place.cell.h / 2,
      w: place.cell.w,
      h: place.cell.h,
    });
    assert.ok(!overlaps(at(a, b), at(c, d)));
    assert.notDeepEqual(wayOf(place, 0, 1)[0], wayOf(place, 1, 0)[1]);
  }
});

test("many chunks at once are dots; only neighbours that talk leave the inside free", () => {
  assert.equal(placed(8).dots, false);
  assert.equal(placed(8, 520, linksIn(callOf(allRows(8))), 56).dots, true);
  assert.equal(placed(64).dots, true);
  assert.deepEqual(
    [placed(8).around, placed(8, 520, linksIn(callOf(starRows(8)))).around],
    [true, false],
  );
  assert.ok(middleBox(placed(8), ["link 2 → 3: 24 Mbit/s", "the others 99 Mbit/s"]));
  assert.equal(middleBox(placed(8, 520, ["0>4"]), ["no place"]), null);
  assert.equal(middleBox(placed(2), ["no place"]), null);
});

test("a label that has no place is left out", () => {
  const place = placed(8);
  const [label] = labelsOf(place, [{ rank: 2, lines: ["waits", "4.7 ms"], colour: "wait" }], []);
  assert.ok(
    label &&
      !place.nodes.some((n) => overlaps(label.box, { x: n.x - 15, y: n.y - 15, w: 30, h: 30 })),
  );
  assert.deepEqual(
    labelsOf(place, [{ rank: 2, lines: ["waits", "4.7 ms"], colour: "wait" }], [label.box]),
    [],
  );
});

test("what lies under the pointer: a chunk, a rank, a link, nothing", () => {
  const call = callOf(rows);
  const place = placesOf(3, 520, ringHeight(3), linksIn(call));
  const marks = marksOf(frameAt(call, 250), place);
  const [mark] = marks;
  assert.equal(underRing(marks, place, mark.x + 2, mark.y - 2).chunk, mark);
  assert.deepEqual(underRing(marks, place, place.nodes[1].x + 3, place.nodes[1].y), { rank: 1 });
  const [a, b] = wayOf(place, 1, 2);
  assert.deepEqual(underRing(marks, place, (a.x + b.x) / 2, (a.y + b.y) / 2 + 3), {
    link: { from: 1, to: 2 },
  });
  assert.equal(underRing(marks, place, 1, 1), null);
});

test("the widest link's rate is a round number of bits", () => {
  assert.deepEqual(
    [12.3e6, 12.5e6, 12.6e6, 3e3, 0].map((x) => niceRate(x) * 8),
    [100e6, 100e6, 200e6, 50e3, 0],
  );
});

test("no word lies over a chunk, a halo or another word: simulated calls, and those of real runs", () => {
  const simulated = [
    [8, ringRows(8, { slow: [2, 9], came: [0, 0, 4000, 0, 0, 900, 0, 0] })],
    [4, ringRows(4, { came: [0, 9000, 0, 500] })],
    [8, starRows(8, { came: [0, 0, 0, 3000, 0, 0, 0, 9000] })],
    [4, allRows(4, { came: [0, 2000, 0, 0] })],
  ].map(([n, list]) => lookAt(n, list, 0));
  const real = ["poisoned", "shard_replaced"].flatMap((name) => {
    const known = recorded(name);
    const heads = known.table.calls.filter((c) => c.complete && c.sends).slice(-12);
    return heads.map((head) => {
      const call = openCall(known.table, head);
      return { ...lookAt(2, ringRows(2), 0), known, table: known.table, call, ranks: call.ranks };
    });
  });
  let words = 0;
  for (const look of [...simulated, ...real])
    for (const width of [380, 928])
      for (let k = 0; k <= 60; k++) {
        const t = look.call.start + (k / 60) * (look.call.end - look.call.start);
        const seen = preparedOf({ ...look, t, width }, null);
        const { place, marks } = seen;
        const { middle, labels } = wordsAround(seen, look.known);
        const boxes = labels.map((l) => l.box);
        words += boxes.length;
        if (middle) boxes.push(middle);
        const cells = marks.map((m) => ({ x: m.x - m.w / 2, y: m.y - m.h / 2, w: m.w, h: m.h }));
        boxes.forEach((a, i) => {
          assert.ok(boxes.every((b, j) => i === j || !overlaps(a, b)));
          if (a !== middle) assert.ok(cells.every((cell) => !overlaps(a, cell)));
        });
        const halo = place.node + 5.5 + 1;
        for (const [i, { x, y, w, h }] of cells.entries())
          if (marks[i].form < 2)
            for (const node of place.nodes)
              assert.ok(
                Math.hypot(
                  Math.max(0, Math.abs(node.x - x - w / 2) - w / 2),
                  Math.max(0, Math.abs(node.y - y - h / 2) - h / 2),
                ) > halo,
                "a chunk lies over the halo of a rank",
              );
      }
  assert.ok(words > 300, `${words} words stood beside ranks`);
});

// @ts-check
/**
 * Hosts: levels as rows say them, which links are between hosts, and how hosts are drawn.
 */
import assert from "node:assert/strict";
import { test } from "node:test";

import { hostLevel, levelsOfCall } from "../../assets/engine/levels.js";
import { placesOf, ringHeight, wayOf } from "../../assets/scenes/collectives/ring.js";
import { shapeOf } from "../../assets/engine/shape.js";
import { awayFrom } from "../../assets/engine/shape_places.js";

const row = (/** @type {string} */ kind, /** @type {string} */ phase) => ({ kind, phase });

test("a call says by which levels it went, most say nothing", () => {
  const hosts = (/** @type {number[]} */ ...levels) => ({ levels, inTurn: false });
  assert.deepEqual(
    levelsOfCall([row("send", "reduce_scatter"), row("collective", "levels 4,2")]),
    hosts(4, 2),
  );
  assert.deepEqual(levelsOfCall([row("collective", "levels 8")]), hosts(8));
  assert.deepEqual(levelsOfCall([row("collective", "levels 2,3 in turn")]), {
    levels: [2, 3],
    inTurn: true,
  });
  for (const phase of ["", "untold", "levels", "levels 4,", "levels a,b", "levels 4,2 in"])
    assert.deepEqual(levelsOfCall([row("collective", phase)]), hosts());
  assert.deepEqual(
    levelsOfCall([row("send", "levels 4,2")]),
    hosts(),
    "an inner row's phase is another thing",
  );
});

test("the level of a link is the outermost at which its ends differ", () => {
  assert.deepEqual(
    [0, 1, 3, 4, 7].map((b) => hostLevel([4, 2], 0, b)),
    [0, 0, 0, 1, 1],
  );
  assert.deepEqual(
    [1, 2, 3, 4, 6, 7].map((b) => hostLevel([2, 2, 2], 0, b)),
    [0, 1, 1, 2, 2, 2],
  );
  assert.equal(hostLevel([], 0, 5), 0);
});

/** Who sends to whom in rings within rings. @param {number[]} levels */
function rings(levels, inTurn = false) {
  const n = levels.reduce((a, b) => a * b, 1);
  const ways = [];
  let stride = inTurn ? n : 1;
  for (const p of levels) {
    if (inTurn) stride /= p;
    for (let r = 0; r < n; r++) {
      const place = Math.floor(r / stride) % p;
      const to = r + (((place + 1) % p) - place) * stride;
      if (to !== r) ways.push(`${r}>${to}`);
    }
    if (!inTurn) stride *= p;
  }
  return ways;
}

const blocks = (/** @type {number[]} */ levels) => ({ levels, inTurn: false });

test("hosts are drawn as they are said to be, also where links alone would tell of others", () => {
  for (const { levels, inTurn } of [
    [4, 2],
    [2, 4],
    [2, 2, 2],
    [2, 3],
    [3, 2],
    [4, 4],
    [2, 5],
    [2, 6],
    [5, 4],
    [2, 2, 3],
    [2, 3, 2],
    [3, 2, 2],
    [2, 2, 2, 2],
    [2, 2, 4],
  ].flatMap((levels) =>
    (levels.length === 2 ? [false, true] : [false]).map((inTurn) => ({ levels, inTurn })),
  )) {
    const n = levels.reduce((a, b) => a * b, 1);
    const ways = rings(levels, inTurn);
    const shape = shapeOf(n, ways, -1, "hierarchical", { levels, inTurn });
    const few = levels.length === 2 && levels[0] === 2 ? 6 : 4;
    const size = n / levels[0] > few ? levels[0] * levels[1] : levels[0];
    assert.deepEqual([shape.kind, shape.size], ["groups", size], String(levels));
    for (const width of [399, 608]) {
      const place = placesOf(n, width, ringHeight(n), ways, 1, 4, shape);
      const where = `${levels}${inTurn ? " in turn" : ""}, ${width} px`;
      const boxes = place.boxes.slice(-n / size);
      place.nodes.forEach(({ x, y }, r) => {
        const host = inTurn ? r % levels[1] : Math.floor(r / size);
        const { x: left, y: top, w, h } = boxes[host];
        assert.ok(
          x > left && x < left + w && y > top && y < top + h,
          `${where}: rank ${r} in its host`,
        );
        place.nodes.forEach((b, j) =>
          assert.ok(
            r === j || Math.hypot(x - b.x, y - b.y) > 2 * place.node + 6,
            `${where}: ${r} and ${j}`,
          ),
        );
      });
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
  }
  const racks = placesOf(
    8,
    608,
    ringHeight(8),
    rings([2, 2, 2]),
    1,
    4,
    shapeOf(8, rings([2, 2, 2]), -1, "hierarchical", blocks([2, 2, 2])),
  );
  assert.equal(racks.boxes.length, 6, "two racks around four hosts");
});

test("levels that are not of these ranks are left alone, and so are too many hosts", () => {
  for (const levels of [
    [2, 8],
    [3, 5],
  ])
    assert.equal(
      shapeOf(levels[0] * levels[1], rings(levels), -1, "hierarchical", blocks(levels)).kind,
      "circle",
    );
  for (const levels of [[3, 2], [8], [1, 8], [8, 1]])
    assert.notEqual(shapeOf(8, rings([4, 2]), -1, "hierarchical", blocks(levels)).size, levels[0]);
});

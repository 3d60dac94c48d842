import assert from "node:assert/strict";
import { test } from "node:test";
import {
  nameOfRow,
  rowsOfRanks,
  placeOf as timelinePlace,
} from "../../assets/scenes/timeline/layout.js";
import { ranksNamed, rowsPicked } from "../../assets/scenes/timeline/rank_rows.js";
import { rowsFound } from "../../assets/scenes/timeline/find.js";
import { TimelineIndex } from "../../assets/scenes/timeline/index.js";
import { tableOf } from "./rows.js";
import { trained } from "./training.js";
import { addMean } from "../../assets/scenes/timeline/paint.js";

test("a thousand ranks share rows, each the mean of its neighbours", () => {
  const place = timelinePlace(1000, 1400);
  const numbers = Array.from({ length: 1000 }, (_, r) => r);
  const rows = rowsOfRanks(place, numbers);
  assert.ok(rows.length <= 64 && rows.every((row) => row.length <= place.band));
  assert.deepEqual(rows.flat(), numbers);
  assert.equal(nameOfRow(rows[1]), "16 to 31");
  assert.equal(nameOfRow([3]), "rank 3");
  for (const [top, height] of [
    [place.map.top, place.map.height],
    [place.lanes.top, place.lanes.height],
  ])
    assert.ok(height - top <= 540, `${height}`);
  assert.equal(timelinePlace(128, 1400).rows, 128);
  const mean = new Float64Array(2);
  for (const sums of [new Float64Array([4, 0]), new Float64Array([2, 8])])
    addMean(mean, sums, 2, 2);
  assert.deepEqual([...mean], [3, 4]);
});

test("the map and the lanes take no more than the room that there is, down to the least of a row", () => {
  for (const ranks of [1, 2, 4, 5, 8, 9, 16, 24, 25, 64, 128, 1000]) {
    const free = timelinePlace(ranks, 1200);
    const most = free.map.height + free.lanes.height;
    assert.deepEqual(timelinePlace(ranks, 1200, 0, most), free, "as it is where it fits");
    for (let room = most - 1; room > 0; room -= 7) {
      const { map, lanes, level } = timelinePlace(ranks, 1200, 0, room);
      const least = { full: 38, slim: 11, density: 2 }[level];
      assert.ok(map.height + lanes.height <= room || lanes.row === least, `${ranks} in ${room}`);
      assert.ok(lanes.row >= least && lanes.under <= Math.max(lanes.row, 2), `${ranks} in ${room}`);
    }
  }
});

test("rows are picked by number, sorted by waiting, and pinned at the top", () => {
  const ranks = Array.from({ length: 64 }, (_, rank) => rank);
  const all = { only: "", pinned: [], waited: null };
  assert.deepEqual(rowsPicked(ranks, all), ranks);
  assert.deepEqual(rowsPicked(ranks, { ...all, only: "0-2, 12" }), [0, 1, 2, 12]);
  assert.deepEqual(rowsPicked(ranks, { ...all, only: "60 to 70" }), ranks, "not a list of ranks");
  assert.deepEqual(rowsPicked(ranks, { ...all, only: "99" }), ranks, "none of them");
  const waited = new Map([
    [0, 1],
    [1, 5],
    [2, 3],
    [12, 3],
  ]);
  assert.deepEqual(rowsPicked(ranks, { only: "0-2,12", pinned: [], waited }), [1, 2, 12, 0]);
  assert.deepEqual(rowsPicked(ranks, { only: "0-2", pinned: [40, 0], waited }), [40, 0, 1, 2]);
  assert.equal(ranksNamed("rank 3"), null);
});

test("the lanes are searched by a row's name, its kind and its collective", () => {
  const index = new TimelineIndex(tableOf(trained({ ranks: 2, iterations: 2 })));
  index.update();
  const names = (text, ranks = [0, 1]) =>
    rowsFound(index, text, ranks).map(({ rank, row, t }) => {
      assert.equal(index.table.start[row], t);
      return [rank, index.table.kindName(index.table.kind[row])];
    });
  assert.ok(names("backward").length >= 4 && names("backward").every(([, k]) => k === "backward"));
  assert.ok(names("All-Reduce").length && names("all_reduce").every(([, k]) => k === "collective"));
  assert.ok(names("forward", [1]).every(([rank]) => rank === 1));
  const times = rowsFound(index, "a", [0, 1]).map(({ t }) => t);
  assert.deepEqual(
    times,
    times.toSorted((a, b) => a - b),
  );
  assert.deepEqual([names(" "), names("no such name")], [[], []]);
});

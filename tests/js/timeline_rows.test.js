import assert from "node:assert/strict";
import { test } from "node:test";
import {
  nameOfRow,
  rowsOfRanks,
  placeOf as timelinePlace,
} from "../../assets/scenes/timeline/layout.js";
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

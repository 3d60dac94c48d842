// DDP's buckets by identity: what is in which, and that the timeline says so.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  bucketNames,
  bucketNumber,
  bucketWords,
  parameterWords,
  rebuiltWords,
} from "../../assets/scenes/timeline/buckets.js";
import { drawLanes } from "../../assets/scenes/timeline/draw.js";
import { hitWords } from "../../assets/scenes/timeline/hit_words.js";
import { TimelineIndex } from "../../assets/scenes/timeline/index.js";
import { keysOf } from "../../assets/scenes/timeline/legend.js";
import { placeOf as timelinePlace } from "../../assets/scenes/timeline/layout.js";
import { INK, paper } from "./paper.js";
import { row, tableOf } from "./rows.js";
import { MS, heard, trained } from "./training.js";

const told = {
  cap_mb: 1,
  first: [["a.weight", "a.bias", "b.weight", "b.bias"]],
  rebuilt: [
    ["b.bias", "b.weight"],
    ["a.bias", "a.weight"],
  ],
  rebuilt_at: 1,
  bytes: [2000, 1000],
};

test("a bucket's parameters are those of its iteration", () => {
  assert.deepEqual(bucketNames(told, 0, 0), told.first[0]);
  assert.deepEqual(bucketNames(told, 0, 1), ["b.bias", "b.weight"]);
  assert.deepEqual(bucketNames(told, 1, 99), ["a.bias", "a.weight"]);
  assert.deepEqual(bucketNames({ ...told, rebuilt: null, rebuilt_at: -1 }, 0, 5), told.first[0]);
  for (const [given, bucket] of [
    [null, 0],
    [undefined, 0],
    [told, -1],
    [told, 2],
  ])
    assert.deepEqual(bucketNames(given, bucket, 3), []);
  assert.equal(bucketWords(told, 1, 3), "; bucket 1 holds a.bias, a.weight");
  assert.equal(bucketWords(null, 1, 3), "");
});

test("names of collectives that are buckets", () => {
  assert.deepEqual(
    ["bucket 12", "bucket 0", "0.weight", "my bucket 1", "bucket", ""].map(bucketNumber),
    [12, 0, -1, -1, -1, -1],
  );
});

test("many parameters are counted, never one alone", () => {
  const names = Array.from({ length: 40 }, (_, i) => `p${i}`);
  assert.equal(parameterWords(names.slice(0, 7)), "p0, p1, p2, p3, p4, p5, p6");
  assert.equal(parameterWords(names.slice(0, 8)), "p0, p1, p2, p3, p4, p5 and 2 more");
  assert.match(parameterWords(names), / and 34 more$/);
});

/** @param {object[]} rows */
function drawn(rows, from = 0, to = 200 * MS) {
  const table = tableOf(heard(rows));
  const index = new TimelineIndex(table);
  const place = timelinePlace(4, 960);
  index.update();
  const { hits } = drawLanes(
    paper(),
    {
      index,
      win: { from, to },
      place,
      ink: INK,
      font: "sans-serif",
      waiting: "wait",
      cores: 8,
      crowded: false,
    },
    [0, 1, 2, 3],
  );
  return { table, index, hits };
}

test("pointing at backward or an all-reduce names what the bucket holds", () => {
  const { table, hits } = drawn(trained({ overlap: true, iterations: 4, chunks: false }));
  const words = hits.map((hit) => hitWords(table, hit, told));
  const plain = hits.map((hit) => hitWords(table, hit));
  assert.ok(
    words.some((one) =>
      /all-reduce of bucket 1 took .*; bucket 1 holds a\.bias, a\.weight$/.test(one),
    ),
  );
  assert.ok(
    words.some((one) =>
      /all-reduce of bucket 0 took .*; bucket 0 holds a\.weight, a\.bias, b\.weight, b\.bias$/.test(
        one,
      ),
    ),
    "of the first iteration the first ones",
  );
  assert.ok(
    words.some((one) =>
      /backward of iteration 3 .*until bucket 0 was full; bucket 0 holds b\.bias, b\.weight$/.test(
        one,
      ),
    ),
  );
  assert.ok(
    words.every((one) => !/(forward|optimizer).* holds /.test(one)),
    "only what fills or moves a bucket",
  );
  assert.ok(
    plain.every((one) => !one.includes("holds")),
    "nothing is said where nobody told",
  );
});

test("pointing at a single chunk names what its bucket holds", () => {
  const { table, hits } = drawn(
    trained({ overlap: true, iterations: 3, chunks: true }),
    0,
    30 * MS,
  );
  const chunks = hits.filter((hit) =>
    ["send", "recv"].includes(table.kindName(table.kind[hit.row])),
  );
  assert.ok(chunks.length > 4, "chunks are drawn");
  for (const hit of chunks) {
    const call = table.calls.find((one) => one.op === table.passages.op[table.passage[hit.row]]);
    const bucket = bucketNumber(call?.name ?? "");
    assert.ok(bucket >= 0 && call);
    assert.ok(
      hitWords(table, hit, told).endsWith(bucketWords(told, bucket, call.iteration)),
      hitWords(table, hit, told),
    );
    assert.match(hitWords(table, hit, told), / holds /);
  }
});

test("where buckets are rebuilt is a mark of its own, with words and a key", () => {
  const at = {
    iteration: 1,
    op: -1,
    collective: "",
    algorithm: "",
    group: "",
    lane: "compute",
    name: "buckets rebuilt",
  };
  const rows = trained({ overlap: true, iterations: 4, chunks: false });
  const second = rows.find(
    (one) => one.rank === 2 && one.iteration === 1 && one.kind === "forward",
  );
  assert.ok(second);
  const { table, index, hits } = drawn([
    ...rows,
    row(2, "metric", second.start, second.start, { ...at, seq: 999 }),
  ]);
  const found = hits
    .map((hit) => hitWords(table, hit, told))
    .filter((one) => one.includes("rebuilt"));
  assert.deepEqual(found, [
    "rank 2 rebuilt its buckets in iteration 2: from now on in the order in which " +
      "gradients came, 2 of them instead of 1, at most 2.00 kB each",
  ]);
  assert.ok(keysOf(index, "full", false, false).has("tl-rebuilt"));
  const job = keysOf(drawn([]).index, "full", false, false, false);
  assert.ok(!job.has("forward") && !job.has("tl-step"), "of a job only what it has");
  assert.ok(!keysOf(drawn(rows).index, "full", false, false).has("tl-rebuilt"));
  assert.equal(
    rebuiltWords(2, null, 1),
    "rank 2 rebuilt its buckets in iteration 2: from now on in the order in which gradients came",
  );
});

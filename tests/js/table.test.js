import assert from "node:assert/strict";
import { test } from "node:test";
import { Table } from "../../assets/engine/table.js";
import { batch, calls, packed, row, rows, tableOf } from "./rows.js";

test("what Python packs comes out as it went in, wherever the bytes lie", () => {
  const { header, bytes } = packed(rows);
  const shifted = new Uint8Array(bytes.length + 3);
  shifted.set(bytes, 3);
  for (const block of [bytes.buffer, bytes, new DataView(shifted.buffer, 3, bytes.length)]) {
    const table = new Table();
    table.take(header, block);
    assert.equal(table.rows, rows.length);
    for (const name of ["start", "end", "nbytes", "step", "chunk", "peer"])
      assert.deepEqual(
        [...table[name].subarray(0, table.rows)],
        rows.map((r) => r[name]),
        name,
      );
    assert.deepEqual(
      rows.map((_, i) => table.kindName(table.kind[i])),
      rows.map((r) => r.kind),
    );
    assert.deepEqual(
      rows.map((_, i) => table.passages.rank[table.passage[i]]),
      rows.map((r) => r.rank),
    );
    assert.deepEqual(
      rows.map((_, i) => table.text(table.name[i])),
      rows.map((r) => r.name),
    );
  }
});

test("a call is complete when all that took part have ended it, not before", () => {
  const table = new Table();
  table.take(...[packed(rows.slice(0, 7))].map(({ header, bytes }) => [header, bytes])[0]);
  assert.equal(table.calls.length, 1);
  assert.equal(table.calls[0].complete, false);
  assert.equal(table.newest, null);
  const { header, bytes } = packed(rows.slice(7));
  table.take(header, bytes);
  assert.equal(table.calls[0].complete, true);
  assert.equal(table.newest, table.calls[0]);
  assert.deepEqual(
    [table.calls[0].start, table.calls[0].end, table.calls[0].ranks, table.calls[0].nbytes],
    [1000, 3000, 3, 1200],
  );
});

test("messages and the metrics' own collectives are no calls", () => {
  const table = tableOf([
    ...rows.map((r) => ({ ...r, group: "metrics" })),
    row(0, "send", 1, 2, { collective: "p2p", peer: 1 }),
    row(0, "forward", 3, 4, { collective: "", op: -1 }),
  ]);
  assert.equal(table.calls.length, 0);
  assert.equal(table.rows, rows.length + 2);
});

test("calls are in order of their start, however late a rank is read", () => {
  const list = calls(5);
  const late = list.filter((r) => r.rank === 2 || r.op !== 1);
  const table = tableOf([...late, ...list.filter((r) => !late.includes(r))]);
  assert.deepEqual(
    table.calls.map((c) => c.op),
    [0, 1, 2, 3, 4],
  );
  assert.deepEqual(
    [-1, 0, 999, 1000, 9999, 11_000, 1e9].map((t) => table.callAt(t)?.op ?? -1),
    [-1, -1, -1, 0, 0, 1, 4],
  );
  assert.deepEqual(
    table.calls.map((c) => table.indexOf(c)),
    [0, 1, 2, 3, 4],
  );
});

test("calls are in order even if a saved run comes rank after rank", () => {
  const list = calls(2000);
  const starts = new Map([
    [0, 500],
    [1, 0],
    [2, 900],
  ]);
  const table = new Table();
  for (const rank of [0, 1, 2]) {
    // rank 1 began each call first
    const { header, bytes } = packed(
      list
        .filter((r) => r.rank === rank)
        .map((r) => ({ ...r, start: r.start + (r.op % 2 ? 0 : 15_000 - starts.get(rank)) })),
    );
    table.take(header, bytes);
  }
  assert.ok(table.calls.every((c, i) => !i || table.calls[i - 1].start <= c.start));
});

test("a lane's rows are in the order in which they ended", () => {
  const table = tableOf(calls(3));
  const lane = table.lanes.get("1 comm");
  const ends = [...lane.rows.subarray(0, lane.length)].map((r) => table.end[r]);
  assert.equal(lane.length, 12);
  assert.deepEqual(
    ends,
    calls(3)
      .filter((r) => r.rank === 1)
      .map((r) => r.end),
  );
});

test("rows that are let go leave whole calls, lanes and times behind", () => {
  const list = calls(10);
  const whole = tableOf(list);
  const table = tableOf(list);
  table.forget(5 * rows.length - 3);
  assert.equal(table.forgotten + table.rows, whole.rows);
  assert.deepEqual(
    table.calls.map((c) => c.op),
    [5, 6, 7, 8, 9],
  );
  assert.equal(table.life, 1);
  for (const lane of table.lanes.values())
    for (const r of lane.rows.subarray(0, lane.length))
      assert.equal(table.passages.rank[table.passage[r]], lane.rank);
  const same = table.calls[0].passages.flatMap((p) =>
    Array.from(
      { length: table.passages.count[p] },
      (_, i) => table.start[table.passages.first[p] + i],
    ),
  );
  assert.deepEqual(
    same.sort(),
    list
      .filter((r) => r.op === 5)
      .map((r) => r.start)
      .sort(),
  );
});

test("the table grows past its first size", () => {
  const table = tableOf(calls(2000));
  assert.equal(table.calls.length, 2000);
  assert.equal(table.rows, 2000 * rows.length);
  assert.equal(table.end[table.rows - 1], 3000 + 1999 * 10_000);
  assert.ok(batch(rows)[0].rows);
});

test("ranks in different calls have a call each, and none of it is complete", () => {
  const of = { op: 0, group: "default", generation: 0 };
  const send = (/** @type {number} */ r, /** @type {string} */ collective) =>
    row(r, "send", 1, 2, { ...of, collective, peer: 1 - r, nbytes: 4 });
  const outer = (/** @type {number} */ r, /** @type {string} */ collective, phase = "") =>
    row(r, "collective", 0, 9, { ...of, collective, phase });
  const apart = tableOf([
    send(0, "all_reduce"),
    outer(0, "all_reduce"),
    send(1, "barrier"),
    outer(1, "barrier"),
  ]);
  assert.deepEqual(
    apart.calls.map((call) => [call.collective, call.complete, call.failed]),
    [
      ["all_reduce", false, true],
      ["barrier", false, true],
    ],
  );
  assert.equal(apart.completed, 0);
  const failed = tableOf([
    send(0, "all_reduce"),
    send(1, "all_reduce"),
    outer(0, "all_reduce", "failed"),
    outer(1, "all_reduce", "failed"),
  ]);
  assert.equal(failed.completed, 0, "an error is no end of a call");
});

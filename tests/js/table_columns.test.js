import assert from "node:assert/strict";
import { test } from "node:test";
import { openCall } from "../../assets/engine/model.js";
import { preparedOf } from "../../assets/scenes/collectives/frame.js";
import { INK } from "./canvas.js";
import { lookAt, ringRows } from "./simulated.js";

test("the table has all its columns from the first row of a call on", () => {
  const whole = ringRows(4, { context: { op: 0 } });
  const later = (/** @type {any} */ r) => ({ ...r, start: r.start + 1e7, end: r.end + 1e7 });
  const next = ringRows(4, { context: { op: 1 } }).map(later);
  const [begun] = next.filter((r) => r.kind === "send").sort((a, b) => a.end - b.end);
  for (const rows of [[...whole, begun], whole]) {
    const look = lookAt(4, rows, 1, { ink: INK });
    const call = openCall(look.table, look.table.calls.at(-1));
    const { grid, reading } = preparedOf({ ...look, call, t: call.start }, null);
    assert.equal(call.complete, rows === whole);
    assert.deepEqual([grid.columns, reading.holdings.chunks], [4, [0, 1, 2, 3]]);
  }
  const alone = lookAt(4, [begun], 1, { ink: INK });
  const call = openCall(alone.table, alone.table.calls.at(-1));
  assert.equal(
    preparedOf({ ...alone, call }, null).grid.columns,
    1,
    "none is known before the first",
  );
});

// A NaN in an all-reduce, in the rows of a real run: which chunks carry it, whom it reaches when.
import assert from "node:assert/strict";
import { test } from "node:test";
import { recorded } from "./recorded.js";
import { holdingsAt } from "../../assets/engine/holdings.js";
import { openCall } from "../../assets/engine/model.js";
import {
  carriesNaN,
  cellHasNaN,
  minibatchesStruck,
  nanWords,
  poisonOf,
  reachedWords,
} from "../../assets/engine/poison.js";
import { readingOf } from "../../assets/engine/rates.js";
import { sendKey } from "../../assets/engine/replayed_cells.js";

const known = recorded("poisoned");
const { table } = known;
const opened = (iteration) =>
  table.calls
    .filter((call) => call.iteration === iteration && call.collective === "all_reduce")
    .filter((call) => call.group !== "metrics")
    .map((head) => openCall(table, head));

test("the rank that was struck, its sample, and the chunks of each gradient", () => {
  const [struck, ...more] = minibatchesStruck(table);
  assert.equal(more.length, 0);
  assert.deepEqual([struck.rank, struck.iteration, struck.detected], [1, 1, false]);
  assert.ok(struck.chunks.size > 0 && struck.sample >= 0);
});

test("a chunk carries it from the rank that was struck on, and no rank before it is reached", () => {
  for (const call of opened(1)) {
    const { holdings } = readingOf(call, known);
    const poison = poisonOf(table, call, holdings);
    assert.equal(poison.rank, 1, call.name);
    const carrying = call.flights.filter((f) =>
      carriesNaN(poison, f.chunk, holdings.carried.get(sendKey(f))),
    );
    assert.ok(
      carrying.some(({ from }) => from === 1),
      call.name,
    );
    const reached = new Map([[1, -Infinity]]);
    for (const f of carrying.sort((a, b) => a.end - b.end)) {
      assert.ok(reached.get(f.from) <= f.end, "it is sent by who has it");
      if (!reached.has(f.to)) reached.set(f.to, f.end);
    }
    assert.deepEqual([...reached.keys()].sort(), [0, 1, 2]);
    const cells = (t) => {
      const states = holdingsAt(holdings, t);
      return [...states].filter((state, cell) => cellHasNaN(poison, holdings, cell, state)).length;
    };
    const hit = poison.chunks?.size ?? holdings.chunks.length;
    assert.equal(cells(-1), hit, "before the first message: its own part");
    assert.equal(cells(call.end - call.start), 3 * hit, "at the end all have it");
  }
});

test("calls of other iterations are clean", () => {
  for (const call of opened(0))
    assert.equal(poisonOf(table, call, readingOf(call, known).holdings), null);
});

test("whom it has reached, in a sentence", () => {
  const [call] = opened(1);
  const { holdings } = readingOf(call, known);
  const poison = poisonOf(table, call, holdings);
  const said = (t) => reachedWords(poison, holdings, holdingsAt(holdings, t));
  assert.match(said(-1), /^Rank 1: .* a NaN, from sample \d+\. Nobody else has received it yet\.$/);
  assert.match(said(call.end - call.start), /It has reached all ranks\.$/);
  assert.equal(nanWords({ rank: 1, sample: NaN }), "a NaN, from rank 1");
});

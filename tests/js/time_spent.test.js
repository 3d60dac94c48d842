import assert from "node:assert/strict";
import { test } from "node:test";
import { timeSpent } from "../../assets/engine/time_spent.js";
import { spentParts } from "../../assets/scenes/timeline/step_facts.js";
import { splitReach, splitRows } from "../../assets/scenes/timeline/split.js";
import { row, tableOf } from "./rows.js";
import { US, ringRows } from "./simulated.js";

const MS = 1000 * US;
/** An iteration of four ranks: each computes so many ms, then an all-reduce; a known fault each. */
function iteration({ compute = [6, 6, 6, 6], queued = [0, 0, 0, 0], ...ring }) {
  const own = { lane: "compute", op: -1, collective: "", algorithm: "", group: "" };
  const rows = compute.map((ms, r) =>
    row(r, "backward", 0, ms * MS, { ...own, value: queued[r] * MS }),
  );
  const call = ringRows(4, { came: compute.map((ms) => ms * 1000), ...ring });
  const end = Math.max(...call.map((r) => r.end));
  const stretches = compute.map((_, rank) => ({
    rank,
    iteration: 0,
    start: 0,
    end,
    queue: queued[rank] * MS,
    queued: queued[rank] * MS,
    computing: compute[rank] * MS,
    hidden: 0,
    exposed: 0,
    waiting: call
      .filter((r) => r.rank === rank && r.kind === "wait")
      .reduce((sum, r) => sum + r.end - r.start, 0),
    held: 0,
  }));
  const spent = timeSpent(tableOf([...rows, ...call]), stretches);
  const facts = stretches.map((one) => ({ ...one, spent: spent.get(one.rank) }));
  const [[, most]] = spentParts(facts)
    .filter(([, words]) => words !== "computing")
    .sort((a, b) => b[0] - a[0]);
  return { facts, most };
}

test("what most time was lost on is what was done to the run, and nothing else", () => {
  for (const [fault, words] of [
    [{ hop: 3000 }, "waiting for bytes on their way"], // every link is slow
    [{ slow: [1, 20] }, "waiting for bytes on their way"], // one link is: others wait behind it
    [{ compute: [6, 6, 60, 6], hop: 20 }, "waiting for others"], // a straggler
    [{ compute: [40, 6, 6, 6], hop: 20 }, "waiting for others"],
    [{ compute: [30, 30, 30, 30], queued: [25, 25, 25, 25], hop: 20 }, "waiting for a core"],
  ])
    assert.equal(iteration(fault).most, words, JSON.stringify(fault));
});

test("the parts are within the time, and the bar hatches as the sentence says", () => {
  const bars = (fault) => {
    const { facts } = iteration(fault);
    for (const { spent, start, end } of facts) {
      const sum = spent.compute + spent.wait + spent.link + spent.core;
      assert.ok(sum <= end - start + 1, `${sum} of ${end - start}`);
      assert.ok(spent.moving <= spent.link + 1);
    }
    const rows = splitRows(facts, splitReach(0, facts), 480, (text) => 7 * text.length);
    const wide = (kind) =>
      rows.reduce((sum, { parts }) => sum + parts.find((part) => part.kind === kind).w, 0);
    return { moving: wide("moving"), waiting: wide("waiting") };
  };
  const slow = bars({ slow: [1, 20] });
  assert.ok(slow.moving > 5 * slow.waiting, JSON.stringify(slow));
  const late = bars({ compute: [6, 6, 60, 6], hop: 20 });
  assert.ok(late.waiting > 5 * late.moving, JSON.stringify(late));
});

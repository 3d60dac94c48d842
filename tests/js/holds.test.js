import assert from "node:assert/strict";
import { test } from "node:test";
import { heldWithin, holdsOf, keepStoredHolds, noteHold } from "../../assets/engine/holds.js";
import { TimelineIndex } from "../../assets/scenes/timeline/index.js";
import { keysOf } from "../../assets/scenes/timeline/legend.js";
import { drawHolds } from "../../assets/scenes/timeline/paint.js";
import { splitReach, splitRows } from "../../assets/scenes/timeline/split.js";
import { heldIterationWords } from "../../assets/scenes/timeline/step_facts.js";
import { INK, paper } from "./paper.js";
import { tableOf } from "./rows.js";
import { MS, heard, trained } from "./training.js";

test("where the reader held the ranks nothing moves: no orange, and its key", () => {
  const table = tableOf(heard(trained({ iterations: 30 })));
  const index = new TimelineIndex(table);
  index.update();
  const has = () => keysOf(index, "full", false, false).has("tl-held");
  assert.ok(!has());
  noteHold(table, true, 100 * MS);
  noteHold(table, false, 400 * MS);
  assert.ok(has());
  const facts = [{ rank: 0, iteration: 4, start: 90 * MS, end: 490 * MS }];
  assert.equal(
    heldIterationWords(table, facts),
    "Iteration 5 took 400 ms: you held the ranks 300 ms of it.",
  );
  assert.equal(
    heldIterationWords(table, [{ ...facts[0], end: 101 * MS }]),
    "",
    "a tenth of it and less",
  );
  const g = paper();
  const box = { left: 0, right: 1000, top: 0, bottom: 40 };
  const look = { ink: { ...INK, ground: "ground" }, font: "", holding: "amber hatch" };
  drawHolds(g, look, holdsOf(table), (t) => t / MS, box);
  const [over, hatch] = g.marks.filter(({ h }) => h === 40);
  assert.deepEqual([over.ink, over.x, over.w], ["ground", 100, 300], "what was there is covered");
  assert.deepEqual([hatch.ink, hatch.x, hatch.w], ["amber hatch", 100, 300]);
});

test("what an iteration was made of leaves out how long the reader held it", () => {
  const read = (held) => {
    const table = tableOf(heard(trained({ iterations: 10 })));
    const index = new TimelineIndex(table);
    index.update();
    const { start, end } = index.factsOf(3, 0)[0];
    const whole = index.factsOf(3, 0);
    for (const rank of index.ranks.values()) for (const step of rank.steps) step.facts = null;
    const from = end - 5 * MS; // in the all-reduce
    if (held) {
      noteHold(table, true, from);
      noteHold(table, false, Math.max(end, from + 250 * MS));
    }
    return { whole, facts: index.factsOf(3, 0), held: end - from, start };
  };
  assert.ok(read(false).facts.every(({ held }) => held === 0));
  const { whole, facts, held } = read(true);
  for (const [r, f] of facts.entries()) {
    const all = (one) => one.byKind.reduce((a, b) => a + b) + one.exposed + one.waiting + one.held;
    assert.ok(f.held > 0 && f.held <= held + 1);
    assert.ok(
      f.exposed + f.waiting < whole[r].exposed + whole[r].waiting,
      "less than the rows say",
    );
    assert.ok(all(f) <= f.end - f.start + 1, "nothing is counted twice");
  }
  const [row] = splitRows(facts, splitReach(0, facts), 600, (text) => 6 * text.length);
  assert.match(row.held, /^you held it [\d.]+$/);
});

test("ranks are held since their last row, not since the page has heard of it", () => {
  const table = tableOf(heard(trained({ iterations: 2 })));
  const { to } = table;
  noteHold(table, true, to + 800 * MS);
  assert.equal(holdsOf(table)[0].from, to);
  table.to = to + 100 * MS; // rows that were on their way
  noteHold(table, true, to + 900 * MS);
  assert.equal(holdsOf(table)[0].from, to + 100 * MS);
  table.to = to + 1000 * MS; // the reader lets them take a step
  noteHold(table, true, to + 1000 * MS);
  assert.equal(holdsOf(table)[0].from, to + 800 * MS);
  table.to = to;
});

test("a page that is loaded later has the holds of the record, and goes on from them", () => {
  const table = tableOf(heard(trained({ iterations: 30 })));
  const stored = /** @type {[number, number][]} */ ([
    [100 * MS, 400 * MS],
    [500 * MS, 2 ** 62],
  ]);
  keepStoredHolds(table, stored);
  noteHold(table, true, 900 * MS);
  assert.equal(heldWithin(table, 0, 1000 * MS), 800 * MS);
  noteHold(table, false, 950 * MS);
  assert.equal(heldWithin(table, 0, 1000 * MS), 750 * MS);
  keepStoredHolds(table, stored);
  assert.equal(holdsOf(table).length, 2, "it knows them already");
});

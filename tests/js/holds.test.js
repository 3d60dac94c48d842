import assert from "node:assert/strict";
import { test } from "node:test";
import { holdsOf, noteHold } from "../../assets/engine/holds.js";
import { TimelineIndex } from "../../assets/scenes/timeline/index.js";
import { keysOf } from "../../assets/scenes/timeline/legend.js";
import { drawHolds } from "../../assets/scenes/timeline/paint.js";
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

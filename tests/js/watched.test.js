import assert from "node:assert/strict";
import { test } from "node:test";
import { nothing, receive } from "../../assets/engine/page_state.js";
import { doingNow } from "../../assets/engine/rank_activity.js";
import { onlyOperations } from "../../assets/engine/run_words.js";
import { collectivesScene } from "../../assets/scenes/collectives/scene.js";
import { meaning, tellOverview, waysOn } from "../../assets/scenes/overview/captions.js";
import { trafficLines } from "../../assets/scenes/overview/traffic_table.js";
import { TimelineIndex } from "../../assets/scenes/timeline/index.js";
import { keysOf } from "../../assets/scenes/timeline/legend.js";
import { scriptStep, scriptWords } from "../../assets/scenes/timeline/script_steps.js";
import { RUN, batch, row, tableOf } from "./rows.js";
import { SCENES } from "./scenes.js";

const MS = 1e6;
const JOB = { ...RUN, title: "my job", strategy: "", iterations: -1, readonly: true };
const OBSERVED = { ...JOB, notes: ["operations only"] };

/** Rows of a script as ranks record them: of its computing the optimizer alone. */
function jobRows(ranks = 2, iterations = 6) {
  const rows = [];
  for (let i = 0; i < iterations; i++)
    for (let r = 0; r < ranks; r++) {
      const at = (i * 50 + r) * MS;
      const more = { iteration: i, op: i };
      rows.push(row(r, "collective", at + 30 * MS, at + 40 * MS, { ...more, nbytes: 4000 }));
      const own = { op: -1, collective: "", algorithm: "", group: "", lane: "compute" };
      rows.push(row(r, "optimizer", at + 41 * MS, at + 42 * MS, { iteration: i, ...own }));
    }
  return rows;
}
const heard = (run, rows = jobRows()) =>
  receive(nothing(), ...batch(rows, { run, state: "running" }), 0);

test("of a job whose operations alone are recorded a page promises no chunk", () => {
  const known = heard(OBSERVED);
  assert.ok(onlyOperations(known) && !onlyOperations(heard(JOB)));
  assert.ok(!collectivesScene.offered(known) && collectivesScene.offered(heard(JOB)));
  const [all, first] = trafficLines(known);
  assert.match(all.words, /^6 operations, /);
  assert.equal(first.words, "handed over 24.0 kB, operations lasted 60.0 ms in all");
  assert.doesNotMatch(
    [...waysOn(known, []).flat(), ...meaning(OBSERVED, SCENES, true)].join(" "),
    /chunk|send each other is drawn/,
  );
  assert.match(
    doingNow(known, 2, known.table.to)[0].words,
    /^in its operations \d+ % of the time$/,
  );
  assert.equal(waysOn(known, [])[0][0], "", "there is no such way");
});

test("a job that sends messages alone counts those", () => {
  const sends = [0, 1, 2].map((i) =>
    row(0, "send", i * MS, (i + 1) * MS, { collective: "p2p", op: i, peer: 1, nbytes: 100 }),
  );
  assert.match(trafficLines(heard(JOB, sends))[0].words, /^3 messages, /);
});

test("what was not recorded of operations is not said", () => {
  const rows = jobRows().map((one) => ({ ...one, nbytes: -1 }));
  const known = receive(nothing(), ...batch(rows, { run: OBSERVED, state: "replay" }), 0);
  assert.match(trafficLines(known)[1].words, /^sizes not recorded, operations lasted /);
  const losses = { first: NaN, last: NaN };
  const look = { known, held: false, live: true };
  const { say, small } = tellOverview(look, { onShow: -1, newest: -1 }, losses, ["", ""]);
  assert.match(say, /^3 ranks of a job: 6 operations in /);
  assert.match(small, /not what the ranks sent/);
});

test("a job that only sent messages is told by these", () => {
  const sends = [0, 1, 2].map((i) =>
    row(0, "send", i * MS, (i + 1) * MS, { collective: "p2p", op: i, peer: 1, nbytes: 100 }),
  );
  const known = receive(nothing(), ...batch(sends, { run: JOB, state: "replay" }), 0);
  const losses = { first: NaN, last: NaN };
  const look = { known, held: false, live: true };
  const { say } = tellOverview(look, { onShow: -1, newest: -1 }, losses, ["", ""]);
  assert.match(say, /^3 ranks of a job: 3 messages in /);
});

test("a rank of a job in which nothing is recorded any more runs its own code, and waits for none", () => {
  const known = heard(JOB, [
    ...jobRows(2, 2),
    row(0, "wait", 100 * MS, 3000 * MS, { iteration: 2, op: 2, peer: 1 }),
    row(0, "send", 3000 * MS, 3001 * MS, { iteration: 2, op: 2, peer: 1, nbytes: 4 }),
  ]);
  const [first, second] = doingNow(known, 2, known.table.to, ["wait", "wait"]);
  assert.match(first.words, /^waits \d+ %, for rank 1$/);
  assert.deepEqual([second.words, second.mark, second.waits], ["runs its own code", "compute", 0]);
});

test("a job that is watched is not started here, nor promised to train", () => {
  const known = receive(nothing(), ...batch([], { run: JOB, state: "starting", words: "" }), 0);
  const { say, small } = tellOverview(
    { known, held: false, live: true },
    { onShow: -1, newest: -1 },
    { first: NaN, last: NaN },
    meaning(JOB, SCENES),
  );
  assert.equal(say, "3 processes of a job, and nothing sent yet.");
  assert.doesNotMatch(`${say} ${small}`, /[Tt]raining|Starting|copy of the model/);
});

test("an iteration of a script lasts from update to update, whatever lane is read first", () => {
  const rows = jobRows();
  const sorts = [(a, b) => a.start - b.start, (a, b) => a.lane.localeCompare(b.lane)];
  for (const sort of sorts) {
    const index = new TimelineIndex(tableOf([...rows].sort(sort)), true);
    index.update();
    for (const { steps } of index.ranks.values()) {
      assert.deepEqual(
        steps.map(({ iteration }) => iteration),
        [0, 1, 2, 3, 4, 5],
      );
      steps.slice(1).forEach((step, i) => assert.equal(step.start, steps[i].end));
      assert.equal(steps[3].end - steps[3].start, 50 * MS);
    }
    const facts = index.factsOf(3, 0);
    assert.equal(
      scriptWords(facts),
      "Iteration 4 took 51.0 ms: the mean rank was in operations for 10.0 ms of it; the rest " +
        "is the script's own.",
    );
    assert.ok(!keysOf(index, "full", false, false, false).has("tl-exposed"), "nobody knows it");
  }
});

test("a job that torchrun restarts counts its iterations again", () => {
  const steps = [];
  for (const generation of [0, 1])
    for (const i of [0, 1, 2])
      scriptStep(
        steps,
        i,
        generation,
        generation * 100 + i * 10 + 4,
        generation * 100 + i * 10 + 8,
      );
  assert.deepEqual(
    steps.map(({ generation, iteration, start }) => [generation, iteration, start]),
    [
      [0, 0, 4],
      [0, 1, 8],
      [0, 2, 18],
      [1, 0, 104],
      [1, 1, 108],
      [1, 2, 118],
    ],
  );
});

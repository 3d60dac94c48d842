import assert from "node:assert/strict";
import { test } from "node:test";
import {
  againWords,
  ghostOf,
  isStarting,
  knobDoes,
  knobWords,
  knobsOf,
  isForNextRun,
  offerOf,
  offerWords,
  offersLinks,
  trialWords,
} from "../../assets/engine/trials.js";
import { drawGhost } from "../../assets/drawing/ghost_line.js";
import { lossAxes } from "../../assets/engine/losses.js";
import { INK, canvas } from "./canvas.js";

const known = (/** @type {any} */ trials, state = "running") =>
  /** @type {any} */ ({ state, run: { ranks: 4, trials } });

test("what one rank more does is said before: the run that goes on ends first", () => {
  const more = { ranks: 5, words: "" };
  assert.equal(offerOf(known({ more }), "more"), more);
  assert.match(offerWords(known({ more }), more), /^This run ends after its iteration/);
  assert.match(offerWords(known({ more }, "finished"), more), /^The same experiment runs with 5/);
});

test("a refusal is the spec's sentence, with the next number that can be, if there is one", () => {
  const words = "5 ranks cannot be: each replica needs the same number.";
  assert.equal(offerWords(known({}), { ranks: 0, words }), words);
  assert.match(
    offerWords(known({}, "finished"), { ranks: 6, words }),
    /same number\. The next that can: 6 ranks\. The same/,
  );
});

test("who only watches, a replay and a comparison have no offer", () => {
  assert.equal(offerOf(known(null), "more"), null);
  assert.equal(offerOf(known({ names: ["4 ranks", "5 ranks"], at: "both" }), "fewer"), null);
});

test("a change is for the next run where this one is over and can be run again; of links alone", () => {
  const link = { from: 0, to: 1 };
  assert.ok(isForNextRun(known({ links: true }, "finished"), link));
  assert.ok(!isForNextRun(known({ links: true }, "finished"), { rank: 0 }));
  assert.ok(!isForNextRun(known({ links: true }), link), "it is done to the run that goes on");
  for (const trials of [null, { links: false }, { names: ["a", "b"], at: "both" }])
    assert.ok(!isForNextRun(known(trials, "finished"), link) && !offersLinks(known(trials)));
  assert.match(againWords(known({ links: true })), /^This run ends after its iteration/);
  assert.match(againWords(known({ links: true }, "failed")), /^The same experiment runs/);
});

test("of a run that was asked for: that it starts, then how it went", () => {
  assert.equal(trialWords(known(null)), "");
  const starting = "link 0 → 1 at 1 ms";
  assert.match(
    trialWords(known({ starting, words: "" })),
    /^The run with link 0 → 1 at 1 ms starts/,
  );
  assert.equal(trialWords(known({ starting: "", words: "All places are taken." })).length, 21);
});

test("the next run's knobs stay while it starts, and cannot be turned; a replay has none", () => {
  const knobs = [{ name: "ranks", label: "Ranks", now: 4, values: [2, 4] }];
  for (const starting of ["", "5 ranks"]) {
    assert.equal(knobsOf(known({ knobs, starting })), knobs);
    assert.equal(isStarting(known({ knobs, starting })), starting !== "");
  }
  for (const trials of [null, { starting: "", at: "both" }])
    assert.deepEqual(knobsOf(known(trials)), []);
  assert.deepEqual(["all_to_all", 4].map(knobWords), ["all-to-all", "4"]);
});

test("a knob says that the run ends only of a run that goes on", () => {
  assert.match(knobDoes(known({})), /this value; this run ends after its iteration/);
  assert.match(knobDoes(known({}, "finished")), /this value\.$/);
});

test("the losses of the run before are drawn within the axes of both, and end where the axis ends", () => {
  const losses = /** @type {[number, number][]} */ ([0, 1, 2, 3, 8].map((i) => [i, 9 - i]));
  const ghost = ghostOf(/** @type {any} */ ({ run: { ghost: { name: "2 ranks", losses } } }));
  const axes = lossAxes(500, 180, 4, /** @type {any} */ ({ high: 2, low: 0, last: 3 }), 9);
  const g = canvas();
  drawGhost(g, INK, "sans-serif", axes, /** @type {any} */ (ghost));
  const lines = g.drawn.filter(({ kind, dashed }) => kind === "line" && dashed);
  assert.equal(lines.length, 3, "iteration 9 is beyond the axis");
  for (const { x1, y1, x2, y2 } of lines) {
    for (const x of [x1, x2]) assert.ok(x >= axes.x0 && x <= axes.x1, `${x}`);
    for (const y of [y1, y2]) assert.ok(y >= axes.y1 && y <= axes.y0, `${y}`);
  }
  assert.ok(
    g.drawn.some(({ kind }) => kind === "text"),
    "its name",
  );
  assert.equal(ghostOf(known(null)), null);
});

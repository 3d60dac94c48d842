import assert from "node:assert/strict";
import { test } from "node:test";
import {
  againWords,
  isForNextRun,
  offerOf,
  offerWords,
  offersLinks,
  trialWords,
} from "../../assets/engine/trials.js";

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

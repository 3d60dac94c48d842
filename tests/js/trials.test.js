import assert from "node:assert/strict";
import { test } from "node:test";
import { offerOf, offerWords } from "../../assets/engine/trials.js";

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

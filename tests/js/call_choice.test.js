import assert from "node:assert/strict";
import { test } from "node:test";
import { newestChosen, nextChosen, slowestCall } from "../../assets/engine/call_choice.js";
import { backToLive, advance, playheadOf, AT_START, tell } from "../../assets/engine/player.js";
import { openCall } from "../../assets/engine/model.js";
import { nothing, receive } from "../../assets/engine/page_state.js";
import { batch, calls } from "./rows.js";

const LARGEST = { by: "largest", name: "" };
const SIZES = [40, 192_000, 40_320];
const NAMES = ["11.bias", "7.weight", "9.weight"];

/** Iterations of three calls each, of these sizes; the third call of the second lasts longest. */
function trained(iterations, { iteration = (i) => i, last = SIZES.length } = {}) {
  const many = (iterations - 1) * SIZES.length + last;
  return calls(many).map((r) => {
    const of = r.op % SIZES.length;
    const slow = r.op === 5 && r.end === 3000 + r.op * 10_000 ? 5000 : 0;
    const named = r.kind === "collective" ? { nbytes: SIZES[of], name: NAMES[of] } : {};
    return { ...r, ...named, end: r.end + slow, iteration: iteration(Math.floor(r.op / 3)) };
  });
}
const heard = (rows, more = {}) => receive(nothing(), ...batch(rows, more), 0);
const opener = (known) => (key) =>
  known.table.callOf.has(key) ? openCall(known.table, known.table.callOf.get(key)) : null;
const opOf = (call) => call && call.op;

test("live, the largest tensor of the newest iteration is told, also while its calls come in", () => {
  const whole = heard(trained(3)).table;
  assert.equal(opOf(newestChosen(whole, LARGEST, false)), 7);
  // a bias is all that is there of iteration 3: the gradient of the one before stays
  const begun = heard(trained(3, { last: 1 })).table;
  assert.equal(begun.newest.op, 6);
  assert.equal(opOf(newestChosen(begun, LARGEST, false)), 4);
  assert.equal(opOf(newestChosen(begun, { by: "each", name: "" }, false)), 6);
  assert.equal(opOf(newestChosen(begun, { by: "name", name: "11.bias" }, false)), 6);
  // the newest may have its longest call yet to come
  assert.equal(opOf(newestChosen(begun, { by: "slowest", name: "" }, false)), 5);
  assert.equal(newestChosen(heard([]).table, LARGEST, false), null);
});

test("a replay goes from the largest of an iteration to that of the next, and begins anew", () => {
  const known = { ...heard(trained(3), { state: "replay", now: null }), choice: LARGEST };
  const open = opener(known);
  let player = advance(AT_START, known, 0, open);
  const seen = [];
  for (let at = 0; at < 4; at++) {
    seen.push(open(player.key).op);
    player = advance(player, known, (at + 1) * 1e6, open);
  }
  assert.deepEqual(seen, [1, 4, 7, 1]);
  assert.equal(open(backToLive(player, known, 0).key).op, 7);
});

test("what comes before the first iteration is passed over, unless it is all there is", () => {
  const set = trained(3, { iteration: (i) => i - 1 });
  assert.equal(opOf(nextChosen(heard(set).table, LARGEST, null)), 4);
  // a script that says nothing of iterations: calls are taken by the thirty-two
  const script = heard(trained(30, { iteration: () => -1 })).table;
  assert.equal(opOf(nextChosen(script, LARGEST, null)), 1);
  assert.equal(opOf(nextChosen(script, LARGEST, script.calls[1])), 34);
  assert.equal(opOf(newestChosen(script, LARGEST, false)), 64);
});

test("no choice: every call in its turn; the slowest call of the run is found", () => {
  const known = heard(trained(2), { state: "replay", now: null });
  const open = opener(known);
  const next = advance(tell(AT_START, "0/default/0", 0), known, 1e6, open);
  assert.equal(open(next.key).op, 1);
  assert.ok(playheadOf(next, known, 1e6, open) >= 10_000);
  assert.equal(slowestCall(known.table).op, 5);
  assert.equal(slowestCall(heard([]).table), null);
});

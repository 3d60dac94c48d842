import assert from "node:assert/strict";
import { test } from "node:test";
import { nothing, receive } from "../../assets/engine/page_state.js";
import { openCall } from "../../assets/engine/model.js";
import {
  AT_START,
  advance,
  backToLive,
  behindOf,
  holdAt,
  isSlow,
  playOn,
  playedAt,
  playheadOf,
  tell,
} from "../../assets/engine/player.js";
import { stepped } from "../../assets/engine/steps.js";
import { CONTROL, batch, calls, row, rows } from "./rows.js";

const heard = (list, more = {}, at = 0) => receive(nothing(), ...batch(list, more), at);
const opener = (known) => (key) =>
  known.table.callOf.has(key) ? openCall(known.table, known.table.callOf.get(key)) : null;
/** As the stage does: on, then look. */
const frame = (player, known, at) => {
  const next = advance(player, known, at, opener(known));
  return { ...next, t: playheadOf(next, known, at, opener(known)) };
};

test(
  "messages: rows once, gaps counted, another run or a new history starts afresh, other " +
    "messages are not ours",
  () => {
    let known = heard(calls(2));
    known = receive(known, ...batch(calls(4).slice(16), { seq: 5 }), 0);
    assert.deepEqual(
      known.table.calls.map((c) => c.op),
      [0, 1, 2, 3],
    );
    assert.equal(known.missed, 3);
    known = receive(known, ...batch(calls(4).slice(16), { seq: 5 }), 0); // heard before
    assert.equal(known.table.rows, 4 * rows.length);
    known = receive(known, ...batch(calls(1), { seq: 5, reset: true }), 0); // the answer to hello
    assert.equal(known.table.rows, rows.length);
    assert.equal(receive(known, { type: "other" }, [], 0), known);
    assert.equal(
      receive(known, ...batch(calls(3), { run: { ...known.run, id: "b" } }), 0).table.calls.length,
      3,
    );
  },
);

test("the driver's clock is told best by the message that took least time", () => {
  let known = heard([], { now: 5e6 }, 2);
  known = receive(known, ...batch([], { now: 9e6, seq: 2 }), 9);
  assert.equal(known.clock, 3e6);
});

test("live: the newest complete call in four seconds, then the then-newest, and none twice", () => {
  let known = heard(calls(1));
  let player = frame(AT_START, known, 0);
  assert.equal(player.key, "0/default/0");
  assert.equal(player.t, 1000);
  assert.equal(frame(player, known, 2000).t, 2000); // half of its 2000 ns
  known = receive(known, ...batch(calls(4).slice(8), { seq: 2 }), 10);
  assert.equal(frame(player, known, 3900).key, "0/default/0");
  player = frame(player, known, 5000);
  assert.equal(player.key, "0/default/3");
  // nothing newer: the last frame stays
  assert.equal(advance(player, known, 99_000, opener(known)), player);
});

test(
  "the first call that a page tells begins where " + "a chunk leaves, later ones at their start",
  () => {
    const late = (n) =>
      calls(n).map((r) =>
        r.kind === "collective" && r.rank === 2 ? { ...r, start: r.start - 500 } : r,
      ); // waits for the others
    let known = heard(late(1));
    let player = frame(AT_START, known, 7);
    assert.equal(player.t, 1000);
    known = receive(known, ...batch(late(2).slice(8), { seq: 2 }), 10);
    assert.equal(frame(player, known, 9000).t, 10_500);
  },
);

test("a run that is over is told again, in order; a failed one keeps its last frame", () => {
  for (const state of ["finished", "replay"]) {
    const known = heard(calls(2), { state, now: null });
    const first = tell(AT_START, "0/default/0", 0);
    assert.equal(frame(first, known, 5000).key, "0/default/1");
    assert.equal(frame(tell(AT_START, "0/default/1", 0), known, 5000).key, "0/default/0");
  }
  assert.equal(
    frame(AT_START, heard(calls(3), { state: "replay", now: null }), 0).key,
    "0/default/0",
  );
  const failed = heard(calls(2), { state: "failed", now: null });
  const last = tell(AT_START, "0/default/1", 0);
  assert.equal(frame(last, failed, 9000).key, "0/default/1");
  assert.equal(frame(last, failed, 9000).t, 13_000);
});

test("a held view stays, whatever comes; play goes on from there; L is the newest again", () => {
  const known = heard(calls(3));
  const held = holdAt(AT_START, 11_500);
  assert.equal(advance(held, known, 9000, opener(known)), held);
  assert.equal(playheadOf(held, known, 9000, opener(known)), 11_500);
  const on = playOn(held, known, 9000, 0, opener(known));
  assert.equal(on.key, "0/default/1");
  assert.ok(Math.abs(playheadOf(on, known, 9000, opener(known)) - 11_500) < 1e-6);
  assert.equal(frame(on, known, 9000 + 4800).key, "0/default/2"); // not the newest: the next
  assert.equal(backToLive(held, known, 0).key, "0/default/2");
  assert.equal(backToLive(held, known, 0).live, true);
});

test("a picture at the newest row is not behind, however long the ranks have recorded nothing", () => {
  const known = heard(calls(3), { now: 23_000 + 18e9 }, 0);
  assert.equal(behindOf(known, 23_000, 0), 0);
  assert.equal(behindOf(known, 13_000, 0), 10_000 + 18e9);
});

test("a chosen speed is even: so much run time a second, up to the end", () => {
  const known = heard(calls(3));
  const on = playOn(holdAt(AT_START, 1000), known, 100, 2, opener(known));
  assert.deepEqual(
    [100, 600, 1e9].map((at) => playheadOf(on, known, at, opener(known))),
    [1000, 2000, 23_000],
  );
});

test(
  "calls that last for seconds are followed at " + "their own pace, behind by more than a flight",
  () => {
    // 2 s, flights of 1 s
    const slow = rows.map((r) => ({ ...r, start: r.start * 1e6, end: r.end * 1e6 }));
    const known = heard(slow, { now: 3.5e9 }, 0);
    assert.equal(isSlow(known, 0), true);
    const player = frame(AT_START, known, 0);
    assert.equal(player.key, "");
    assert.ok(player.lag > 1e9 && player.lag < 2e9);
    assert.equal(player.t, 3.5e9 - player.lag > 3e9 ? 3e9 : 3.5e9 - player.lag);
    const later = frame(player, known, 200);
    assert.ok(Math.abs(later.t - player.t - 0.2e9) < 1, "as fast as the ranks");
  },
);

test("an unfinished call of two seconds is followed too; a fresh one is not", () => {
  const open = rows.slice(0, 3);
  assert.equal(isSlow(heard(open, { now: 2e9 }), 0), true);
  assert.equal(isSlow(heard(open, { now: 5000 }), 0), false);
});

test("while the ranks are held every step is played, stretched, to the newest row", () => {
  const control = { ...CONTROL, held: true };
  const known = heard(rows.slice(0, 3), { control, now: 5000 });
  let player = frame(AT_START, known, 0);
  assert.equal(player.t, 1000);
  player = frame(player, known, 450);
  assert.ok(player.t > 1000 && player.t < 2000);
  player = frame(player, known, 2000);
  assert.equal(player.t, 2000);
  const more = receive(known, ...batch(rows.slice(3, 5), { control, seq: 2, now: 9000 }), 3000);
  const before = frame(player, more, 3000);
  assert.ok(Math.abs(before.t - 2000) < 1e-6, "no jump");
  assert.equal(frame(before, more, 4000).t, 3000);
});

test("a run without a collective is followed", () => {
  const known = heard([row(0, "forward", 0, 5e8, { op: -1, collective: "" })], { now: 1e9 });
  const player = frame(AT_START, known, 0);
  assert.equal(player.key, "");
  assert.ok(player.t > 0 && player.t <= 5e8);
});

test("steps: a chunk's arrival, a step of the algorithm, an iteration; from call to call", () => {
  const known = heard(calls(3));
  const go = (t, unit, way) => stepped(known, t, unit, way, opener(known));
  assert.equal(go(1000, "chunk", 1), 2000);
  assert.equal(go(2000, "chunk", 1), 3000);
  assert.equal(go(3000, "chunk", 1), 11_000);
  assert.equal(go(11_000, "chunk", -1), 3000);
  assert.equal(go(1000, "step", 1), 2000);
  assert.equal(go(1500, "iteration", 1), 11_000);
  assert.equal(go(21_500, "iteration", -1), 11_000);
  assert.equal(go(1500, "iteration", -1), 1500);
});

test("where the playhead is in the telling, and back", () => {
  const known = heard(calls(1));
  const call = opener(known)("0/default/0");
  for (const t of [0, 5, 500, 1999])
    assert.ok(
      Math.abs(
        playheadOf({ ...tell(AT_START, call.key, 0) }, known, playedAt(call, t), opener(known)) -
          1000 -
          t,
      ) < 1e-6,
    );
});

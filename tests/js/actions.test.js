import assert from "node:assert/strict";
import { test } from "node:test";
import {
  canAddRank,
  fittedMotion,
  linkNow,
  linkWords,
  linksOf,
  measuredCall,
  onlyWatches,
  ranksWords,
  typedValue,
  undoOf,
  valueOfAll,
  whyNot,
  whyNotThis,
  willDo,
} from "../../assets/engine/actions.js";
import { noteHold } from "../../assets/engine/holds.js";
import { nothing, receive } from "../../assets/engine/page_state.js";
import { recovered } from "./recovered.js";
import { CONTROL, RUN, batch, calls, tableOf } from "./rows.js";

const link = {
  from: 0,
  to: 1,
  latency_ms: 5,
  bandwidth: "100 Mbit/s",
  down: false,
  words: "5 ms, 100 Mbit/s",
};
const control = { ...CONTROL, slow: { 2: 4 }, pids: { 2: 4711 }, links: [link] };
const heard = (more = {}) => receive(nothing(), ...batch([], { control, ...more }), 0);
const action = (args) => ({ verb: "link", args: { source: 0, target: 1, ...args } });

test("what takes an action back is what was so before, and nothing else", () => {
  assert.deepEqual(undoOf({ verb: "slow", args: { rank: 2, factor: 8 } }, control), [
    { verb: "slow", args: { rank: 2, factor: 4 } },
  ]);
  assert.deepEqual(undoOf({ verb: "slow", args: { rank: 1, factor: 8 } }, control)[0].args, {
    rank: 1,
    factor: 1,
  });
  assert.deepEqual(undoOf(action({ latency: "20 ms" }), control), [action({ latency: "5 ms" })]);
  assert.deepEqual(undoOf(action({ bandwidth: "1 Mbit/s", both: true }), control), [
    action({ bandwidth: "100 Mbit/s" }),
    { verb: "link", args: { source: 1, target: 0, bandwidth: "unlimited" } },
  ]);
  assert.deepEqual(undoOf(action({ down: true }), control), [action({ down: false })]);
  assert.deepEqual(undoOf({ verb: "freeze", args: { rank: 2 } }, control), [
    { verb: "thaw", args: { rank: 2 } },
  ]);
  assert.deepEqual(undoOf({ verb: "kill", args: { rank: 2 } }, control), []);
});

const all = (args) => ({ verb: "link", args: { every: true, ...args } });

test("a change of all links is taken back link by link where they differed", () => {
  const three = { ...control, pids: { 0: 1, 1: 2, 2: 3 } };
  assert.deepEqual(undoOf(all({ latency: "20 ms" }), three), [
    all({ latency: "0 ms" }),
    action({ latency: "5 ms" }),
  ]);
  assert.deepEqual(undoOf(all({ bandwidth: "1 Mbit/s" }), { ...three, links: [] }), [
    all({ bandwidth: "unlimited" }),
  ]);
  const both = [link, { ...link, from: 1, to: 0 }];
  const two = { ...control, pids: { 0: 1, 1: 2 }, links: both };
  assert.deepEqual(undoOf(all({ latency: "20 ms" }), two), [all({ latency: "5 ms" })]);
  const gone = { ...three, ended: { 1: "killed" } };
  assert.deepEqual(undoOf(all({ latency: "20 ms" }), gone), [all({ latency: "0 ms" })]);
});

test("a knob of all links shows the value that they have, be it between its own, or that they differ", () => {
  const two = (/** @type {number[]} */ ...ms) => {
    const links = ms.map((latency_ms, i) => ({ ...link, from: i, to: 1 - i, latency_ms }));
    return heard({ run: { ...RUN, ranks: 2 }, control: { ...control, links } });
  };
  assert.equal(valueOfAll(two(), "latency"), "0 ms");
  assert.equal(valueOfAll(two(3, 3), "latency"), "3 ms");
  assert.equal(valueOfAll(two(3, 4), "latency"), null);
  assert.equal(valueOfAll(two(3, 4), "bandwidth"), "100 Mbit/s", "in this they are alike");
  assert.equal(valueOfAll(two(3), "bandwidth"), null, "the other link is plain");
  assert.deepEqual(["unlimited", "3 ms"].map(linkWords), ["no limit", "3 ms"]);
});

test("what an action will do is said before", () => {
  assert.match(
    willDo({ verb: "kill", args: { rank: 2 } }, control),
    /^Ends process 4711 at once.*cannot be undone\.$/,
  );
  assert.match(
    willDo({ verb: "freeze", args: { rank: 1 } }, control),
    /^Stops its process \(SIGSTOP\)/,
  );
  assert.equal(
    willDo(action({ latency: "20 ms" }), control),
    "Every message from rank 0 to rank 1 needs 20 ms more.",
  );
  assert.match(willDo(action({ latency: "0 ms" }), control), /no more time than this machine/);
  assert.equal(
    willDo(action({ bandwidth: "10 Mbit/s", both: true }), control),
    "At most 10 Mbit/s either way between ranks 0 and 1.",
  );
  assert.match(
    willDo(action({ down: true }), control),
    /^Nothing passes from rank 0 to rank 1 until you restore/,
  );
});

test("what a corrupt minibatch will do is what the run does with bad ones", () => {
  const said = (bad_minibatch) =>
    willDo({ verb: "corrupt", args: { rank: 2 } }, control, { ...RUN, bad_minibatch });
  assert.match(
    said("keep"),
    /^The first sample that rank 2 loads next holds a NaN\. Nothing looks/,
  );
  assert.match(said("skip"), /leave that minibatch out\.$/);
  assert.match(said("fail"), /the run ends with its rank, layer and sample\.$/);
});

test("a rank can be added where ranks come and go and one of them is missing", () => {
  const { known } = recovered({});
  const as = (run) => canAddRank({ ...known, run: { ...known.run, ...run } });
  assert.deepEqual([as({ elastic: true }), as({ elastic: false })], [true, false]);
  assert.equal(as({ elastic: true, recoveries: [] }), true); // its rows tell
  assert.equal(canAddRank(heard({ run: { ...RUN, elastic: true } })), false); // all train
  const back = recovered({ fresh: true }).known;
  assert.equal(canAddRank({ ...back, run: { ...back.run, elastic: true } }), false);
});

test("a link that is not emulated is as fast as this machine", () => {
  assert.equal(linkNow(control, 0, 1), link);
  assert.deepEqual(linkNow(control, 1, 0), {
    latency_ms: 0,
    bandwidth: "unlimited",
    down: false,
    words: "as fast as this machine",
  });
});

test("typed values get the unit that is meant", () => {
  assert.deepEqual(
    ["30", " 30 ms", "0,5", "1s", "30us", "x", "", "-3"].map((text) => typedValue(text, "latency")),
    ["30 ms", "30 ms", "0.5 ms", "1 s", "30 µs", null, null, null],
  );
  assert.deepEqual(
    ["25", "1 Gbit/s", "Unlimited"].map((text) => typedValue(text, "bandwidth")),
    ["25 Mbit/s", "1 Gbit/s", "unlimited"],
  );
});

test("why nothing can be done, in words; nothing when it can", () => {
  assert.equal(whyNot(nothing()), "Loading …");
  assert.equal(whyNot(heard({ state: "empty" })), "Nothing runs yet.");
  assert.deepEqual(
    ["starting", "running"].map((state) => whyNot(heard({ state }))),
    ["", ""],
  );
  for (const state of ["finished", "failed", "replay", "empty"])
    assert.notEqual(whyNot(heard({ state })), "", state);
  assert.match(whyNot(heard({ run: { ...RUN, readonly: true } })), /only watches/);
  const gone = heard({ control: { ...control, ended: { 2: "killed by SIGKILL" } } });
  assert.equal(whyNotThis(gone, { rank: 2 }), "Rank 2 is gone: killed by SIGKILL.");
  assert.equal(whyNotThis(gone, { from: 1, to: 2 }), "Rank 2 is gone: killed by SIGKILL.");
  assert.equal(whyNotThis(gone, { rank: 1 }), "");
});

test("the amber frame says what the ranks do", () => {
  const say = (more, state = "running") =>
    ranksWords(heard({ control: { ...control, ...more }, state }));
  assert.deepEqual(
    [
      say({}),
      say({ slow_motion: 10_000 }),
      say({ held: true, standing: [0] }),
      say({ held: true, standing: [0, 1, 2] }),
    ],
    ["full speed", "slowed ×10,000", "held, 1 of 3 stands", "held, all stand"],
  );
  assert.equal(say({ held: true, standing: [0, 2] }), "held, 2 of 3 stand");
  assert.equal(say({ frozen: [1] }), "1 of 3 frozen");
  assert.equal(say({ frozen: [0, 1], slow_motion: 10 }), "2 of 3 frozen, slowed ×10");
  assert.equal(ranksWords(nothing()), "not known yet");
  assert.deepEqual(
    ["starting", "finished", "failed", "replay", "empty"].map((state) => say({}, state)),
    ["starting", "ended", "ended", "none, a replay", "none yet"],
  );
});

test("slow motion that fits: a call of about four seconds, whatever it was seen in", () => {
  const flights = [10e3, 20e3, 30e3].map((end) => ({ start: 0, end }));
  assert.equal(fittedMotion(flights, 6, 1), 50_000);
  assert.equal(
    fittedMotion(
      flights.map((f) => ({ start: 0, end: f.end * 100 })),
      6,
      100,
    ),
    50_000,
  );
  assert.equal(fittedMotion([{ start: 0, end: 9e9 }], 6, 1), 1);
  assert.equal(fittedMotion([], 0, 1), 1000);
});

test("what a fit goes by is a call in which the reader did not hold the ranks", () => {
  const before = { key: "", motion: 1 };
  const known = { ...heard(), table: tableOf(calls(2)), control: { ...control, slow_motion: 10 } };
  const { table } = known;
  const seen = measuredCall(known, before);
  assert.deepEqual(seen, { key: table.newest.key, motion: 10 });
  const faster = { ...known, control: { ...control, slow_motion: 1 } };
  assert.equal(measuredCall(faster, seen), seen, "the slow motion in which it ran");
  const middle = (table.newest.start + table.newest.end) / 2;
  noteHold(table, true, middle);
  assert.equal(measuredCall(known, before), before, "a call that was under way");
  noteHold(table, false, middle + 5e9);
  assert.equal(measuredCall(known, before), before, "after it, too");
  assert.equal(measuredCall({ ...heard(), table: tableOf([]) }, seen), seen);
});

test("all links of few ranks, of many those that were seen or are emulated", () => {
  assert.equal(linksOf(heard(), new Set()).length, 6);
  assert.deepEqual(linksOf(heard({ run: { ...RUN, ranks: 64 } }), new Set(["7>8", "63>0"])), [
    [0, 1],
    [7, 8],
    [63, 0],
  ]);
});

test("a page that only watches opens no menu, in whichever scene", async () => {
  const { openRankMenu } = await import("../../assets/chrome/rank_menu.js");
  const known = (readonly) => heard({ run: { ...RUN, readonly } });
  assert.equal(onlyWatches({ known: known(true) }), true);
  assert.equal(onlyWatches({ known: known(false) }), false);
  assert.equal(onlyWatches({ known: known(false), readonly: true }), true); // a side of two
  // the dialog says that the ranks are gone
  assert.equal(onlyWatches({ known: { ...known(true), state: "replay" } }), false);
  // What a menu first needs of a stage is its root: one that is asked for it would open.
  const asked = (readonly) => {
    let opens = false;
    const stage = {
      known: known(readonly),
      get root() {
        opens = true;
        throw new Error("a menu opens");
      },
    };
    try {
      openRankMenu(stage, { rank: 0 }, 0, 0);
    } catch (error) {
      assert.match(String(error), /a menu opens/);
    }
    return opens;
  };
  assert.deepEqual([true, false].map(asked), [false, true]);
});

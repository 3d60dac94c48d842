// Losses of ranks: who was a member when, what each phase took, what was repeated, and how it is
// drawn and told.
import assert from "node:assert/strict";
import { test } from "node:test";
import { INK, canvas, collisions, onto } from "./canvas.js";
import { MS, iteration, recovered } from "./recovered.js";
import { tableOf } from "./rows.js";
import { sample } from "./sample.js";
import { callBands, callBars } from "../../assets/chrome/call_strip.js";
import { bandsOf, hasBands } from "../../assets/drawing/generation_bands.js";
import { frameAt, openCall } from "../../assets/engine/model.js";
import { readingOf } from "../../assets/engine/rates.js";
import { collectiveSentence } from "../../assets/scenes/collectives/captions.js";
import { TimelineIndex } from "../../assets/scenes/timeline/index.js";
import { goneRanks } from "../../assets/scenes/timeline/iteration_report.js";
import {
  generationAt,
  generationsOf,
  lostAt,
  recoveringAt,
  recoveryNote,
} from "../../assets/engine/generations.js";
import { goodputOf, hasRecoveries, lossesOfRanks } from "../../assets/engine/recoveries.js";
import { lostRanks } from "../../assets/engine/lost_ranks.js";
import { doingAt, doingNow } from "../../assets/engine/rank_activity.js";
import { drawWaterfall } from "../../assets/scenes/recovery/draw.js";
import {
  recoveryCost,
  headOf as recoveryHead,
  linesOf as recoveryLines,
  sentenceOf as recoverySentence,
} from "../../assets/scenes/recovery/captions.js";
import {
  laneUnder,
  placeOf as recoveryPlace,
  spanOf as recoverySpan,
  recoveryT,
  recoveryX,
} from "../../assets/scenes/recovery/place.js";
import { recoveryScene } from "../../assets/scenes/recovery/scene.js";

const ms = (ns) => Math.round(ns / 1e4) / 100;

test("phases, from the fault to the first iteration that all members have finished", () => {
  const [loss, ...more] = lossesOfRanks(recovered({ fresh: true }).known);
  assert.equal(more.length, 0);
  assert.equal(loss.since, "fault");
  const since = Object.fromEntries(
    Object.entries(loss.ends).map(([phase, end]) => [phase, ms(end - loss.origin)]),
  );
  assert.deepEqual(since, { detect: 4, abort: 7.2, rebuild: 19.2, restore: 24.2, first: 38.2 });
  assert.deepEqual([loss.repeated, loss.received], [32, 1000]);
  assert.deepEqual(
    loss.lanes.map(({ role, bars }) => [role, ...bars.map(({ phase }) => phase)]),
    [
      ["survivor", "detect", "abort", "rebuild", "restore", "first"],
      ["fresh", "rebuild", "restore", "first"],
      ["survivor", "detect", "abort", "rebuild", "restore", "first"],
    ],
  );
});

test("survivors that notice before the driver set the end of detection", () => {
  const [{ origin, ends }] = lossesOfRanks(recovered({ fresh: true, aborts: 22.5 }).known);
  assert.deepEqual([ms(ends.detect - origin), ms(ends.abort - origin)], [1.5, 3.7]);
});

test("goodput: what is done again does not count", () => {
  const { known } = recovered();
  assert.ok(Math.abs(goodputOf(known) - (19.2 + 19.2) / 69.2) < 1e-9);
  assert.equal(goodputOf(recovered({ upto: -1 }).known), NaN);
});

test("a rank is lost until another process has taken its place", () => {
  const { known } = recovered({ fresh: true });
  const at = (t) => [...lostAt(known, t * MS).keys()];
  assert.deepEqual([at(20), at(22), at(30), at(36), at(70)], [[], [1], [1], [], []]);
  const shrunk = recovered().known;
  const gone = (t) => [...lostAt(shrunk, t * MS).keys()];
  assert.deepEqual([gone(20), gone(22), gone(30), gone(70)], [[], [1], [1], [1]]);
  assert.equal(lostAt(shrunk, 70 * MS).get(1)?.how, "killed");
});

test("generations have members, a beginning, and what a rank does to join", () => {
  const { known } = recovered();
  const [first, second] = generationsOf(known);
  assert.deepEqual(
    [first.members, second.members],
    [
      [0, 1, 2],
      [0, 2],
    ],
  );
  assert.equal(second.began, 29 * MS);
  assert.equal(generationAt(known, 28 * MS).number, 0);
  assert.equal(generationAt(known, 29 * MS).number, 1);
  const { table } = recovered({ fresh: true }).known;
  assert.equal(recoveringAt(table, 1, 43 * MS)?.act.name, "received");
  assert.equal(recoveringAt(table, 0, 43 * MS)?.act.name, "kept");
  assert.equal(recoveringAt(table, 1, 20 * MS), null);
});

test("what ranks do, and what is said: lost until replaced, waited for by nobody", () => {
  const { known } = recovered({ fresh: true });
  const { table, run } = known;
  const words = (t) => doingAt(table, 3, t * MS, true, run).map((doing) => doing.words);
  assert.equal(words(22)[1], "killed");
  assert.match(words(43)[1], /was receiving parameters/);
  assert.match(words(43)[0], /was taking over/);
  const shrunk = recovered().known;
  assert.deepEqual([...lostRanks(shrunk).keys()], [1]);
  assert.deepEqual([...lostRanks(known).keys()], []);
  const now = doingNow(shrunk, 3, 69 * MS);
  assert.equal(now[1].mark, "killed");
  assert.ok(now.every((doing) => doing.forWhom !== 1));
  assert.equal(recoveryNote(shrunk, true), "Rank 1 was lost; ranks 0 and 2 went on.");
  assert.equal(recoveryNote(known, true), "Rank 1 was lost and replaced.");
  assert.match(recoveryNote(recovered({ upto: 25 }).known, false), /others form another group/);
  assert.equal(recoveryNote(recovered({ upto: 20 }).known, false), "");
});

test("bands: a generation begins with the first member that joins, also on the strip of calls", () => {
  const { known } = recovered();
  const { table } = known;
  assert.deepEqual(
    bandsOf(known, 0, 69 * MS).map(({ number, from, to }) => [number, from / MS, to / MS]),
    [
      [0, 0, 29],
      [1, 29, 69],
    ],
  );
  const bars = callBars(table.calls, 960, true);
  const [first, second] = callBands(known, table.calls, 960);
  const begins = table.calls.findIndex((call) => call.generation === 1);
  assert.ok(begins > 0 && Math.abs(second.from - bars[begins].x) < 0.01);
  assert.ok(first.to === second.from && Math.abs(second.to - 952) < 0.01);
  assert.equal(hasBands(known), true);
  const plain = recovered({ upto: 20 }).known;
  assert.equal(hasBands({ ...plain, run: { ...plain.run, recovery: "" } }), false);
});

test("the timeline does not wait for a rank that is no member any more", () => {
  const { known } = recovered();
  const index = new TimelineIndex(known.table);
  index.update();
  index.gone = goneRanks(known);
  assert.deepEqual([...index.gone], [1]);
  assert.equal(index.newestDone(), 2);
  assert.deepEqual(
    index.factsOf(2, 65 * MS).map(({ rank }) => rank),
    [0, 2],
  );
});

test("a call that broke off says whom it lost, and that the others go on", () => {
  const { known, rows } = recovered();
  const table = tableOf([
    ...rows,
    ...rows
      .filter(({ kind, iteration, rank }) => kind === "send" && iteration === 1 && rank !== 2)
      .map((one) => ({ ...one, op: 2, iteration: 2, start: 20.2 * MS, end: 20.4 * MS })),
  ]);
  const head = table.calls.find(({ key }) => key === "0/default/2");
  const own = { ...known, table };
  const call = { ...openCall(table, head), end: 28 * MS };
  const look = { known: own, call, live: false };
  const reading = readingOf(call, own);
  const told = collectiveSentence(look, reading, frameAt(call, 5 * MS));
  assert.match(told, /^Rank 1 was killed in this call: .* give.* it up, and ranks 0 and 2 go on/);
});

test("while it goes on, what is not known yet is not claimed", () => {
  const noticed = recovered({ upto: 25 }).known;
  const [loss] = lossesOfRanks(noticed);
  assert.equal(loss.after, null);
  assert.ok(Number.isNaN(loss.ends.abort) && Number.isNaN(loss.ends.first));
  assert.match(recoveryCost(loss, noticed), /survivors leave/);
  const joining = recovered({ upto: 42, fresh: true }).known;
  const [open] = lossesOfRanks(joining);
  assert.ok(open.ends.rebuild > 0 && Number.isNaN(open.ends.restore));
  assert.match(
    recoverySentence(joining, [open], 42 * MS, true, NaN),
    /^Rank 1 was killed in iteration 3: the members take over .* so far\.$/,
  );
  assert.match(
    recoverySentence({ ...joining, state: "failed" }, [open], 42 * MS, false, NaN),
    /the members take over .*, until the run ended\.$/,
  );
});

test("it is offered where ranks were lost, and nowhere else", () => {
  assert.equal(hasRecoveries(recovered().known), true);
  assert.equal(hasRecoveries(recovered({ upto: 20 }).known), false);
  assert.equal(recoveryScene.offered?.(recovered({ upto: 25 }).known), true);
});

test("in words: who, with whom, and what it cost", () => {
  const { known } = recovered({ fresh: true });
  const [loss] = lossesOfRanks(known);
  assert.deepEqual(recoveryHead(loss), ["Rank 1 was killed in iteration 3", "generation 0 → 1"]);
  assert.equal(
    recoveryCost(loss, known),
    "Ranks 0, 1 and 2 went on, rank 1 in a new process, and tried iteration 3 again. No " +
      "iteration lost, 32 samples repeated, 1.00 kB received. Its first iteration ended 38.2 ms " +
      "after the fault.",
  );
  const end = recoverySentence(known, [loss], 70 * MS, true, goodputOf(known));
  assert.match(end, /^Ranks 0, 1 and 2 trained again\. Goodput/);
  const at = (own, newest) => recoverySentence({ ...known, ...own }, [loss], 70 * MS, newest, NaN);
  assert.match(at({ state: "running" }, true), /^Ranks 0, 1 and 2 train again\./);
  const stopped = { run: { ...known.run, iterations: 9 }, counters: { iteration: 3 } };
  assert.match(
    at(stopped, true),
    /^Ranks 0, 1 and 2 trained again, until the run ended after 4 of 9 iterations\./,
  );
  assert.match(at(stopped, false), /^Ranks 0, 1 and 2 train again\./, "at the playhead");
  assert.doesNotMatch(end, /fail/);
  assert.match(
    recoverySentence(known, [loss], 15 * MS, false, NaN),
    /^At the playhead all ranks train\. Rank 1 was killed in iteration 3, 6\.00 ms later\.$/,
    "the picture below is of that failure",
  );
  assert.match(recoveryLines(loss, -1, 10 * MS)[0], /^rebuild: 12.0 ms/);
  assert.match(recoveryLines(loss, 1, 22 * MS)[0], /received from a survivor, 1.00 kB/);
});

for (const ranks of [2, 4, 16, 64])
  for (const width of sample([640, 960]))
    test(`no label lies over a mark: ${ranks} ranks, ${width} px`, () => {
      const { known } = recovered({ ranks, fresh: ranks % 3 > 0 });
      const losses = lossesOfRanks(known);
      const span = recoverySpan(losses, 0);
      const g = canvas();
      onto(g);
      for (const loss of losses) {
        const place = recoveryPlace(loss, width, span, ranks);
        const look = { ink: INK, font: "sans-serif", ratio: 1, t: -1, chosen: 1 };
        drawWaterfall(g, look, loss, place, 0);
        assert.deepEqual(collisions(g.drawn), []);
        for (const d of g.drawn)
          if (d.kind === "text") assert.ok(d.x >= 0 && d.x + d.w <= width, `${d.text} is cut off`);
        assert.ok(Math.abs(recoveryT(place, recoveryX(place, 5 * MS)) - 5 * MS) < 1);
        assert.equal(laneUnder(place, place.lanes + place.lane * (ranks - 0.5)), ranks - 1);
        assert.equal(laneUnder(place, place.top + 1), -1);
      }
    });

test("a restore is orange where bytes came, and nowhere else", () => {
  const width = 608;
  for (const fresh of [true, false]) {
    const losses = lossesOfRanks(recovered({ fresh }).known);
    const [loss] = losses;
    const place = recoveryPlace(loss, width, recoverySpan(losses, 0), loss.lanes.length);
    const g = canvas();
    const ink = { ...INK, optimizer: "optimizer", forward: "forward", load: "load" };
    drawWaterfall(g, { ink, font: "sans-serif", ratio: 1, t: 0, chosen: -1 }, loss, place, 0);
    const bars = loss.lanes.flatMap(({ bars }) => bars).filter((b) => b.phase === "restore");
    const came = bars.filter(({ name }) => name === "received").length;
    const all = (name) => g.drawn.filter((d) => d.ink === name).length;
    assert.equal(all("comm"), came + (loss.received > 0), `fresh: ${fresh}`);
    assert.equal(all("optimizer"), bars.length - came + (loss.received === 0));
    assert.equal(loss.received > 0, came > 0);
  }
});

test("a rank that joins is no loss: it came, and the others went on with it", () => {
  const { known } = recovered({ fresh: true, joins: true });
  const [one, ...more] = lossesOfRanks(known);
  assert.equal(more.length, 0);
  assert.deepEqual([one.lost, one.joined, one.since, ms(one.ends.detect)], [[], [1], "detect", 25]);
  assert.equal(recoveryHead(one)[0], "Rank 1 joined in iteration 3");
  assert.match(recoveryCost(one, known), /went on, rank 1 in a new process with iteration 3\./);
  assert.deepEqual([...lostAt(known, 70 * MS).keys()], []);
  assert.equal(recoveryNote(known, false), "");
});

test("a job that torchrun restarts is one run: each attempt a band, and what it took", () => {
  const attempt = (generation, start) =>
    iteration(0, generation, start, [0, 1]).map((one) => ({ ...one, seq: one.seq + generation }));
  const fact = {
    generation: 1,
    lost: { 1: "killed" },
    failed_in: -1,
    iteration: -1,
    members: [0, 1],
    fresh: [0, 1],
    state: "restarted",
  };
  const { known } = recovered();
  const watched = {
    ...known,
    run: { ...known.run, ranks: 2, recovery: "", recoveries: [fact] },
    table: tableOf([...attempt(0, 0), ...attempt(1, 50)]),
  };
  assert.equal(hasBands(watched), true);
  assert.deepEqual(
    bandsOf(watched, 0, 60 * MS).map(({ number, from }) => [number, from / MS]),
    [
      [0, 0],
      [1, 50],
    ],
  );
  const [loss] = lossesOfRanks(watched);
  assert.deepEqual([ms(loss.origin), ms(loss.ends.first - loss.origin)], [9.1, 40.9]);
  assert.match(recoveryHead(loss)[0], /^Rank 1 was killed$/);
  assert.match(
    recoveryCost(loss, watched),
    /^torchrun started ranks 0 and 1 anew: .* 40\.9 ms after/,
  );
  assert.deepEqual([...lostAt(watched, 55 * MS).keys()], []);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { frameAt, openCall } from "../../assets/engine/model.js";
import { noteHold } from "../../assets/engine/holds.js";
import { readingOf } from "../../assets/engine/rates.js";
import {
  collectiveSentence,
  hopWords,
  middleFact,
} from "../../assets/scenes/collectives/captions.js";
import { lastToJoin } from "../../assets/engine/lateness.js";
import { US, lookAt, ringRows } from "./simulated.js";

test("a rank that comes straight from the call before is not late", () => {
  const stagger = [0, 5000, 10_000, 15_000];
  const before = ringRows(4, { hop: 5000, context: { op: 0 } });
  const ends = stagger.map((late) => (60_000 + late) * US);
  const first = before.map((r) => (r.kind === "collective" ? { ...r, end: ends[r.rank] } : r));
  const after = 400 * US; // each joins so long after it left the call before
  const next = (came) =>
    ringRows(4, { hop: 5000, came, context: { op: 1 } }).map((r) => ({
      ...r,
      start: r.start + ends[0] + after,
      end: r.end + ends[0] + after,
    }));
  const said = (came) => {
    const { known } = lookAt(4, [...first, ...next(came)], 0);
    const call = openCall(known.table, known.table.calls[1]);
    const look = { ...lookAt(4, first, 0, { known: { run: { cores: 2 } } }), known, call };
    const reading = readingOf(call, known);
    return collectiveSentence({ ...look, t: call.start }, reading, frameAt(call, 0));
  };
  assert.match(
    said(stagger),
    /^The calls run into one another: rank 3 was still in the one before when rank 0 joined\. A hop takes 5\.\d+ ms, and this call takes [\d.]+ ms\.$/,
  );
  assert.match(said([0, 5000, 10_000, 40_000]), /^Rank 3 came 40\.0 ms after rank 0[,:]/);
});

test("of a hop as it usually is the slow link's is no part: then both are said", () => {
  assert.equal(hopWords([4, 5, 6, 7].map((ms) => ms * 1000 * US)), "5.50 ms");
  assert.equal(hopWords([100, 150, 160, 20_000].map((us) => us * US)), "100 µs to 20.0 ms");
});

test("how long a chunk takes leaves out the time in which the reader held the ranks", () => {
  const [at, held] = [450 * US, 3e9];
  const rows = ringRows(4).map((r) => ({
    ...r,
    start: r.start + (r.start > at ? held : 0),
    end: r.end + (r.end > at ? held : 0),
  }));
  const look = lookAt(4, rows, 0.5);
  const reading = readingOf(look.call, look.known);
  const range = () => middleFact(reading, look.known)[1].words;
  assert.match(range(), /s$/);
  noteHold(look.known.table, true, at);
  noteHold(look.known.table, false, at + held);
  assert.equal(range(), "320 µs", "what was on its way when they were held tells nothing");
});

test("a rank that came late out of the call before, and computed like the others, is not late", () => {
  const [ms, late] = [1000 * US, 20_000 * US];
  const before = ringRows(3, { hop: 3000, context: { op: 0 } });
  const first = before.map((r) =>
    r.kind === "collective" ? { ...r, end: 60 * ms + (r.rank === 2 ? late : 0) } : r,
  );
  const next = ringRows(3, { hop: 3000, came: [0, 0, 20_000], context: { op: 1 } }).map((r) => ({
    ...r,
    start: r.start + 160 * ms,
    end: r.end + 160 * ms,
  }));
  const { known } = lookAt(3, [...first, ...next], 0);
  const call = openCall(known.table, known.table.calls[1]);
  const last = lastToJoin(known.table, call);
  assert.deepEqual([last.rank, last.after, last.late, last.inside], [2, late, 0, false]);
  const look = { ...lookAt(3, first, 0), known, call, t: call.start };
  assert.match(
    collectiveSentence(look, readingOf(call, known), frameAt(call, 0)),
    /^Rank 2 came 20\.0 ms after rank 0, as late as it came out of the call before\./,
  );
});

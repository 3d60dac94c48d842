import assert from "node:assert/strict";
import { test } from "node:test";
import { Happenings } from "../../assets/engine/happenings.js";
import { receive } from "../../assets/engine/page_state.js";
import { batch, row } from "./rows.js";
import { fault, heard, read, words } from "./feed_of.js";
import { recorded } from "./recorded.js";
import { recovered } from "./recovered.js";

test("what was noticed, with call, step, and for whom", () => {
  const stalled = row(2, "detect", 9, 9, {
    peer: 1,
    name: "stalled: stopped",
    value: 1.04,
    op: 37,
  });
  assert.deepEqual(words([stalled]), [
    "rank 2: no progress for 1.0 s, in all_reduce call 38; it waits for rank 1, whose " +
      "process is stopped",
  ]);
  assert.match(
    words([
      { ...stalled, name: "stalled" },
      row(2, "wait", 1, 20, { op: 37, step: 2, peer: 1 }),
    ])[0],
    /in all_reduce call 38, step 3; it waits for rank 1$/,
  );
  const now = { lanes_now: [{ rank: 2, lane: "comm", kind: "wait", op: 37, step: 3 }] };
  assert.match(words([stalled], now)[0], /call 38, step 4;/);
});

test("an alarm is one while its wait lasts", () => {
  const stalled = row(2, "detect", 9, 9, { peer: 1, name: "stalled", op: 37, value: 1 });
  const other = row(2, "wait", 3, 20, { op: 37, lane: "elsewhere" });
  const kinds = (...list) =>
    read(heard(list))
      .filter((line) => line.words.includes("no progress"))
      .map((line) => line.kind);
  assert.deepEqual(kinds(stalled), ["detect"]);
  assert.deepEqual(kinds(stalled, other), ["detect"], "another lane's wait");
  assert.deepEqual(
    kinds(stalled, row(2, "wait", 10, 20, { op: 38, peer: 1 })),
    ["detect"],
    "a wait that began later",
  );
  assert.deepEqual(kinds(stalled, row(2, "wait", 3, 20, { op: 37, peer: 1 })), ["waited"]);
  const known = heard([stalled]);
  const happenings = new Happenings(known);
  const before = (happenings.read(known, 0), happenings.version);
  const on = receive(
    known,
    ...batch([{ ...stalled, rank: 0 }, row(2, "wait", 3, 20, { op: 37, peer: 1 })], { seq: 2 }),
    0,
  );
  assert.deepEqual(
    happenings
      .read(on, 0)
      .map((line) => line.kind)
      .sort(),
    ["detect", "waited"],
    "it comes later",
  );
  assert.ok(happenings.version > before);
  const three = [0, 1, 2].flatMap((rank) => [
    row(rank, "detect", 9, 9 + rank, { peer: 3, name: "stalled", op: 37, value: 1 + rank }),
    row(rank, "wait", 3, 20, { op: 37, peer: 3 }),
  ]);
  assert.deepEqual(
    read(heard(three)).map(({ kind, words }) => [kind, words]),
    [["waited", "3 ranks: no progress for 3.0 s, until it went on"]],
    "of those that were over together one line is left",
  );
});

test("similar alarms are one line, red while one of them holds", () => {
  const stalled = (rank, t, value, name = "stalled") =>
    row(rank, "detect", t, t, { peer: 3, name, op: 37, value });
  const wait = (rank, start, end) => row(rank, "wait", start, end, { op: 37, peer: 3 });
  const lines = (...list) => read(heard(list)).map(({ kind, words }) => [kind, words]);
  const three = [stalled(0, 9, 1), stalled(1, 10, 1, "stalled: stopped"), stalled(2, 11, 1)];
  assert.deepEqual(
    lines(...three),
    [
      [
        "detect",
        "3 ranks make no progress: rank 1 for 1.0 s, in all_reduce call 38; it waits for rank 3, " +
          "whose process is stopped",
      ],
    ],
    "one alarm for those of a moment, with the cause that says most",
  );
  const left = lines(...three, wait(0, 3, 20), wait(1, 3, 20));
  assert.deepEqual(left.map(([kind]) => kind).sort(), ["detect", "waited"]);
  assert.match(left.find(([kind]) => kind === "detect")[1], /^rank 2: no progress for 1.0 s/);
  const again = [9e9, 18e9].flatMap((t, i) => [stalled(0, t, 2 + i), wait(0, t - 1e9, t + 1e9)]);
  assert.deepEqual(lines(stalled(0, 9, 1), wait(0, 3, 20), ...again), [
    ["waited", "rank 0: no progress for up to 3.0 s, 3 times, last at 18.0 s; each went on"],
  ]);
  const between = fault(10e9, "freeze", 1);
  assert.equal(
    lines(...again.slice(0, 2), between, ...again.slice(2)).length,
    3,
    "what happens between them keeps them apart",
  );
});

test(
  "who waits for a rank that works, or has no core, raises no alarm: one line for all, until " +
    "something else happens",
  () => {
    const late = (rank, peer, why, t) =>
      row(rank, "detect", t, t, { peer, name: `late: ${why}`, value: 1, op: 3 });
    const list = [
      late(0, 1, "computes", 1e9),
      late(2, 1, "computes", 1.1e9),
      late(3, 2, "waits itself", 1.2e9),
      late(0, 3, "waits for a core", 9e9),
      late(0, 10, "waits for a core", 9e9),
      late(0, 5, "waits for a core", 9e9),
      fault(10e9, "freeze", 1),
      late(0, 1, "computes", 11e9),
    ];
    const told = read(heard(list)).filter((line) => line.words.includes("waited"));
    assert.deepEqual(
      told.map((line) => [line.kind, line.words]),
      [
        [
          "waited",
          "3 ranks waited over 1 s, 2 times, last at 9.00 s: rank 1 computes; " +
            "ranks 3, 5, 10: each waits for a core",
        ],
        ["waited", "rank 0 waited over 1 s: rank 1 computes"],
      ],
    );
    assert.equal(
      words([late(3, 2, "waits itself", 5)])[0],
      "rank 3 waited over 1 s for others, from before the first event on",
    );
  },
);

test("what was noticed of a rank that was lost is no alarm once the others have gone on", () => {
  const alarms = (known, now = 0) =>
    read(known, now)
      .filter(({ kind }) => kind === "detect" || kind === "abort")
      .map((line) => line.words);
  const how = { ended: { 1: "killed by SIGKILL" }, how: { 1: "killed" } };
  const control = { held: false, slow_motion: 1, slow: {}, ...how };
  const before = { ...recovered({ upto: 36 }).known, control };
  const end = "Rank 1's process: killed by SIGKILL";
  assert.deepEqual(alarms(before), [
    "it was noticed that rank 1 was killed",
    end,
    "2 ranks left generation 0",
  ]);
  for (const fresh of [false, true]) {
    const { known } = recovered({ fresh });
    assert.deepEqual(alarms({ ...known, state: "running", control }, 99e6), []);
    const noticed = "it was noticed that rank 1 was killed";
    const lines = read({ ...known, state: "running", control }, 99e6);
    const timeOf = (words) => lines.find((line) => line.words === words)?.t;
    assert.equal(timeOf(end), timeOf(noticed), "not that of a page that was loaded since");
  }
  const again = fault(80e6, "killed", 2);
  const later = { ...again, kind: "detect" };
  assert.deepEqual(alarms(heard([...recovered().rows, later])), [
    "it was noticed that rank 2 was killed",
  ]);
  const left = { ...later, end: 90e6, name: "lost", rank: 0, peer: 1, lane: "comm" };
  const without = { ...heard([left]), state: "running", control };
  assert.deepEqual(alarms(without, 95e6), [], "nobody takes its place: others go on without it");
  for (const run of ["peer_replaced", "server_replaced", "server_shrinks", "worker_replaced"])
    assert.deepEqual(alarms(recorded(run)), [], run);
});

test("ranks that hung until they were ended did not go on", () => {
  const hang = [0, 1].flatMap((rank) => [
    row(rank, "detect", 9, 9, { peer: 1 - rank, name: "stalled", op: 37, value: 1 }),
    row(rank, "wait", 3, 20, { op: 37, peer: 1 - rank }),
  ]);
  const over = (failure) =>
    read(heard(hang, { state: "failed", failure, now: null }))
      .map((line) => line.words)
      .filter((words) => words.includes("no progress"));
  const failure = { rank: -1, peer: -1, how: "silent", text: "deadlock for 1.0 s" };
  assert.deepEqual(over({ ...failure, kind: "RunTimeout" }), [
    "2 ranks: no progress for 1.0 s, and none went on",
  ]);
  assert.deepEqual(over({ ...failure, kind: "RankError", rank: 0, how: "raised" }), [
    "2 ranks: no progress for 1.0 s, until it went on",
  ]);
});

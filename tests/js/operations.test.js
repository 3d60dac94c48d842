import assert from "node:assert/strict";
import { test } from "node:test";
import { preparedOf } from "../../assets/scenes/collectives/frame.js";
import { contentKeys } from "../../assets/scenes/collectives/legend.js";
import { cellAt, holdingsAt, holdingsOf } from "../../assets/engine/holdings.js";
import { frameAt, openCall } from "../../assets/engine/model.js";
import { hopsOf, readingOf } from "../../assets/engine/rates.js";
import { collectiveSentence, wrongWords } from "../../assets/scenes/collectives/captions.js";
import { lastMoments } from "../../assets/scenes/collectives/moments.js";
import { cellWords, chunkWords } from "../../assets/scenes/collectives/mark_captions.js";
import { INK } from "./canvas.js";
import { callOf, tableOf } from "./rows.js";
import { lookAt, ringRows } from "./simulated.js";
import { NAMES, rootsOf, scheduleRows } from "./schedules.js";

/** What each rank must hold of each chunk at the end, as the operation's meaning says. */
const MUST = {
  all_reduce: () => "sum",
  broadcast: (r, c, n, root) => root,
  reduce: (r, c, n, root) => (r === root ? "sum" : null),
  gather: (r, c, n, root) => (r === root ? c : null),
  scatter: (r, c, n, root) => (r === c ? root : null),
  all_gather: (r, c) => c,
  reduce_scatter: (r, c) => (r === c ? "sum" : null),
  all_to_all: (r, c, n) => (c % n === r ? Math.floor(c / n) : null),
  barrier: () => "sum",
};

for (const name of NAMES)
  test(`${name}: cells are solid exactly where the rank holds what it must hold at the end`, () => {
    const [collective] = name.split("/");
    for (const n of [2, 3, 4, 5, 7, 8, 16])
      for (const root of rootsOf(name, n)) {
        const call = callOf(scheduleRows(name, n, { root }));
        const held = holdingsOf(call);
        const end = holdingsAt(held, Infinity);
        assert.ok(held.judged && held.sound, `${n} ranks, root ${root}`);
        end.forEach((state, cell) => {
          const rank = Math.floor(cell / held.chunks.length);
          const chunk = held.chunks[cell % held.chunks.length];
          const must = MUST[collective](rank, chunk, n, root);
          const { complete, parts, lacking } = cellAt(held, cell, state, Infinity);
          assert.equal(!!held.asked[cell], must !== null);
          assert.deepEqual(lacking, []);
          if (must !== null) assert.ok(complete, `rank ${rank}, chunk ${chunk}`);
          if (typeof must === "number")
            assert.deepEqual(
              parts.filter((p) => p.within).map((p) => p.rank),
              [must],
            );
          if (must === "sum") assert.ok(parts.every((p) => p.within === 1));
        });
      }
  });

test(
  "a chunk that never came is missing, once its " +
    "rank has finished: of every operation, in words",
  () => {
    for (const name of NAMES) {
      const n = 4;
      const rows = scheduleRows(name, n);
      const last = rows.filter((r) => r.kind === "recv").at(-1);
      const needed = rows.filter((r) => r.kind === "recv" && r.step === last.step);
      const gone = needed.at(-1);
      const look = lookAt(
        n,
        rows.filter((r) => r !== gone),
        1,
        { ink: INK },
      );
      const reading = readingOf(look.call, look.known);
      const span = look.call.end - look.call.start;
      assert.equal(reading.holdings.sound, false, name);
      const said = wrongWords(reading, span);
      assert.match(said, /missing|without|not heard/, `${name}: ${said}`);
      assert.ok(
        contentKeys(look, preparedOf(look, null)).some((k) => /missing/.test(k.words)),
        name,
      );
    }
  },
);

test(
  "what is nowhere asked for is not missed: a root's own chunk never travels, others' are " +
    "their own",
  () => {
    const gather = holdingsOf(callOf(scheduleRows("gather/flat", 4, { root: 2 })));
    assert.deepEqual([gather.chunks, gather.root, gather.owners.get(2)], [[0, 1, 2, 3], 2, 2]);
    const begin = holdingsAt(gather, 0);
    assert.equal(gather.whole[begin[2 * 4 + 2]], 1, "the root has its own from the start");
    assert.equal(gather.whole[begin[1 * 4 + 1]], 0, "others hold theirs only to hand it on");
    const none = holdingsOf(
      callOf(
        scheduleRows("reduce/tree", 4).map((r) =>
          r.kind === "collective" ? { ...r, peer: -1 } : r,
        ),
      ),
    );
    assert.equal(none.root, 0, "a root that nobody named is who only receives");
  },
);

test("a barrier tells who has heard of whom", () => {
  const n = 5;
  const look = lookAt(n, scheduleRows("barrier/dissemination", n), 0.5, { ink: INK });
  const reading = readingOf(look.call, look.known);
  const counts = [];
  for (let t = 0; t <= look.call.end - look.call.start; t += 500)
    counts.push(
      cellAt(reading.holdings, 0, holdingsAt(reading.holdings, t)[0], t).parts.filter(
        (p) => p.within,
      ).length,
    );
  assert.deepEqual([...new Set(counts)], [1, 2, 4, 5], "twice as many in every round");
  const frame = frameAt(look.call, look.t - look.call.start);
  const states = holdingsAt(reading.holdings, frame.t);
  const said = [
    collectiveSentence(look, reading, frame),
    ...lastMoments(reading, Infinity, 99).map(([, what]) => what),
    ...frame.comets.flatMap((c) => chunkWords(reading, c)),
    ...cellWords(reading, frame, 0, states[0]),
  ].join("\n");
  assert.match(said, /^5 ranks meet in/);
  assert.match(said, /rank 1 heard from rank 0 \([^)]*\): it knows of ranks 0 and 1/);
  assert.doesNotMatch(said, /sum|added|contribution|in place of/);
});

test("each operation in one sentence", () => {
  const told = (name) => {
    const look = lookAt(4, scheduleRows(name, 4, { root: 1 }), 1);
    return collectiveSentence(look, readingOf(look.call, look.known), frameAt(look.call, 0));
  };
  for (const [name, words] of [
    ["broadcast/tree", /^Rank 1 hands 240 kB \(gradients\) on to 3 others in /],
    ["scatter/flat", /^Rank 1 hands each of 4 ranks its part of 240 kB/],
    ["gather/tree", /^Rank 1 gathers 240 kB \(gradients\) from 4 ranks in/],
    ["reduce/tree", /^4 ranks combine 240 kB \(gradients\) on rank 1 in/],
    ["all_to_all/pairwise", /^4 ranks exchange 240 kB/],
    ["all_gather/ring", /^4 ranks gather/],
  ])
    assert.match(told(name), words);
});

test("a call that broke off is not complete, and nothing is missing in it", () => {
  const whole = scheduleRows("all_reduce/tree", 4);
  const broken = scheduleRows("all_reduce/tree", 4, { op: 1, start: 20_000_000 }).filter(
    (r) =>
      r.rank < 2 &&
      (r.kind === "collective" ||
        (r.rank === 1 && r.kind === "send") ||
        (r.rank === 0 && r.peer === 1 && r.kind === "recv")),
  );
  const table = tableOf([...whole, ...broken]);
  const [first, second] = table.calls;
  assert.deepEqual(
    [first.complete, first.ranks, second.complete],
    [true, 4, false],
    "two of four are through, and talked to each other alone",
  );
  const held = holdingsOf(openCall(table, second), [0, 1, 2, 3]);
  assert.ok(held.left.every((t) => t === Infinity));
  assert.ok(
    [...holdingsAt(held, Infinity)].every(
      (state, cell) => !cellAt(held, cell, state, 1e12).lacking.length,
    ),
  );
});

test("a ring that a rank never joined has the columns of chunks that nobody sent", () => {
  const rows = ringRows(4);
  const from = (r) => (r.kind === "send" ? r.rank : r.peer);
  const broken = rows.filter(
    (r) => r.rank !== 2 && r.kind !== "collective" && r.step === 0 && from(r) !== 2,
  );
  const table = tableOf(broken);
  const call = openCall(table, table.calls[0]);
  assert.deepEqual(
    [
      call.complete,
      [...new Set(broken.filter((r) => r.kind === "send").map((r) => r.chunk))].sort(),
    ],
    [false, [0, 1, 3]],
  );
  const held = holdingsOf(call, [0, 1, 2, 3]);
  const state = holdingsAt(held, Infinity);
  const here = held.chunks.indexOf(2);
  assert.deepEqual(held.chunks, [0, 1, 2, 3]);
  for (const place of [0, 1, 2, 3])
    assert.deepEqual(
      [...held.within.subarray(state[4 * place + here] * 4, state[4 * place + here] * 4 + 4)],
      [0, 1, 2, 3].map((p) => Number(p === place)),
      "its own part of it alone",
    );
});

test("a call whose rows come lane after lane has all its ranks in the end", () => {
  const rows = scheduleRows("all_reduce/tree", 4);
  const outer = rows.filter((r) => r.kind === "collective").map((r) => ({ ...r, lane: "comm" }));
  const lanes = [0, 1, 2, 3].flatMap((rank) => [
    ...outer.filter((r) => r.rank === rank),
    ...rows
      .filter((r) => r.kind !== "collective" && r.rank === rank)
      .map((r) => ({ ...r, lane: "send" })),
  ]);
  const [call] = tableOf(lanes).calls;
  assert.deepEqual([call.complete, call.ranks], [true, 4]);
});

test(
  "a chunk that is exchanged takes as long as it takes, though its receiver sends one of " +
    "that number meanwhile",
  () => {
    const call = callOf(
      scheduleRows("all_reduce/butterfly", 8, { came: [0, 40, 10, 60, 30, 5, 50, 20] }),
    );
    const hops = hopsOf(call);
    call.flights.forEach((f, i) => assert.equal(hops[i], f.end - f.start));
    const ring = callOf(ringRows(4));
    hopsOf(ring).forEach((hop, i) => assert.ok(hop <= ring.flights[i].end - ring.flights[i].start));
  },
);

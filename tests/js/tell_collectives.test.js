import assert from "node:assert/strict";
import { test } from "node:test";
import { failureOf, killedIn, wasIn } from "./failures.js";
import { besideRanks, preparedOf } from "../../assets/scenes/collectives/frame.js";
import { doingNow } from "../../assets/engine/rank_activity.js";
import { frameAt } from "../../assets/engine/model.js";
import { readingOf } from "../../assets/engine/rates.js";
import {
  bitRate,
  cellOf,
  collectiveSentence,
  factLine,
  middleFact,
  ranksOf,
  spokenFrame,
} from "../../assets/scenes/collectives/captions.js";
import { lastMoments } from "../../assets/scenes/collectives/moments.js";
import {
  cellWords,
  chunkWords,
  linkWords,
  rankWords,
  valueWords,
} from "../../assets/scenes/collectives/mark_captions.js";
import { sample } from "./sample.js";
import { US, lookAt, ringRows, starRows } from "./simulated.js";

const all = (n, rows, share, more) => {
  const look = lookAt(n, rows, share, more);
  const reading = readingOf(look.call, look.known);
  const seen = preparedOf(look, null);
  return { look, reading, seen, frame: frameAt(look.call, look.t - look.call.start) };
};
const says = (n, rows, share, more) => {
  const { look, reading, frame } = all(n, rows, share, more);
  return collectiveSentence(look, reading, frame);
};

test("the sentence: a slow link, who waits, what equal links need", () => {
  const said = Array.from({ length: 20 }, (_, k) => says(8, ringRows(8, { slow: [2, 6] }), k / 20));
  assert.ok(
    said.includes(
      "Link 2 → 3 is slow, so 4 of 8 ranks are waiting: this call takes 25.2 ms where " +
        "equal links need 4.20 ms.",
    ),
    said.join("\n"),
  );
  assert.ok(
    said.every((s) =>
      /^Link 2 → 3 is slow(, so \d of 8 ranks (is|are) waiting)?: this call takes 25\.2 ms where equal links need 4\.20 ms\.$/.test(
        s,
      ),
    ),
    said.join("\n"),
  );
});

test("the count in the sentence is the picture's: never more than wait", () => {
  const rows = ringRows(8, { slow: [2, 6] });
  for (let k = 0; k < 40; k++) {
    const { frame } = all(8, rows, k / 40);
    const count = Number(/so (\d)/.exec(says(8, rows, k / 40))?.[1] ?? 0);
    assert.ok(count <= frame.waiting.size);
  }
});

test("the sentence: a rank that joined in late, and that ranks share cores", () => {
  const rows = ringRows(4, { came: [0, 0, 9000, 0] });
  assert.match(
    says(4, rows, 0.3),
    /^Rank 2 came 9\.00 ms after rank 0, so \d of 4 ranks (is|are) waiting for it: this call takes [\d.]+ ms\.$/,
  );
  const crowd = { known: { run: { cores: 2 } } };
  assert.match(
    says(4, rows, 0.3, crowd),
    /takes [\d.]+ ms\.$/,
    "cores are few, and it waited for none",
  );
  const own = {
    kind: "backward",
    lane: "compute",
    op: -1,
    rank: 2,
    end: 9000 * US,
    collective: "",
  };
  const computed = (value) => [{ ...rows[0], ...own, start: 1000 * US, value }, ...rows];
  assert.match(says(4, computed(1000 * US), 0.3, crowd), /takes [\d.]+ ms\.$/);
  assert.match(
    says(4, computed(6000 * US), 0.3, crowd),
    /takes [\d.]+ ms; it waited 6\.00 ms for one of 2 cores\.$/,
  );
});

test(
  "a rank that is late is not among those that wait for it, and once it has come nobody " +
    "waits for it",
  () => {
    for (const n of sample([8, 2, 4], 2))
      for (const late of new Set([0, 1, n - 1])) {
        const rows = ringRows(n, {
          came: Array.from({ length: n }, (_, r) => (r === late ? 9000 : 0)),
        });
        for (let k = 0; k <= 20; k++) {
          const { look, frame } = all(n, rows, k / 20);
          const said = says(n, rows, k / 20);
          const there = frame.t >= look.call.came.get(late);
          assert.match(said, new RegExp(`^Rank ${late} came 9\\.00 ms after rank`));
          const [, now = 0] = said.match(/so (\d+) of \d+ ranks (?:is|are) waiting for it/) ?? [];
          const [, kept = 0] = said.match(/and kept (\d+) of \d+ ranks waiting/) ?? [];
          assert.ok(Number(now) < n && Number(kept) < n, said);
          assert.equal(there ? Number(now) : Number(kept), 0, said);
          if (there && n > 2) assert.ok(Number(kept) > 0, said);
        }
      }
  },
);

test(
  "of a rank that was killed by hand it is said that the reader did it, whatever a survivor " +
    "took it for",
  () => {
    const kill = {
      ...ringRows(4)[0],
      kind: "fault",
      name: "kill",
      rank: -1,
      peer: 2,
      lane: "driver",
      start: 5e6,
      end: 5e6,
      op: -1,
      step: -1,
      chunk: -1,
      slot: -1,
      collective: "",
    };
    const found = {
      state: "failed",
      words: "rank 2 ended while rank 3 was in all_reduce 2003, step 4 (found by rank 3)",
      failure: failureOf({
        ...{ rank: 2, peer: 3, how: "ended", doing: "all_reduce 2003, step 4", found_by: 3 },
        summary: "Rank 2 ended while rank 3 was in all_reduce 2003, step 4",
        end: "its process ended",
      }),
    };
    const rows = ringRows(4);
    assert.equal(
      says(4, rows, 1, { known: found }),
      "Rank 2 ended while rank 3 was in all_reduce 2003, step 4.",
    );
    assert.equal(
      says(4, [...rows, kill], 1, { known: found }),
      "You killed rank 2; rank 3 noticed it in all_reduce 2003, step 4.",
    );
    const said = {
      state: "failed",
      words: "what its message says",
      failure: killedIn(2, 7, [wasIn(0, "all_reduce 5"), wasIn(1, "all_reduce 5")]),
    };
    assert.match(
      says(4, [...rows, kill], 1, { known: said }),
      /^You killed rank 2 in iteration 7; rank 0: in all_reduce 5/,
    );
    assert.match(says(4, rows, 1, { known: said }), /^Rank 2 was killed by SIGKILL in iteration 7/);
    for (const known of [found, said]) {
      // the driver may not have heard of the process's end: the picture has it dead all the same
      const look = { ...lookAt(4, [...rows, kill], 1, { known }), live: true, held: false };
      const { ranks } = preparedOf(look, null);
      assert.deepEqual(
        ranks.map((s) => s.ended),
        ["", "", "killed by you", ""],
      );
      assert.deepEqual(
        besideRanks(preparedOf(look, null))
          .filter((w) => w.rank === 2)
          .map((w) => w.lines),
        [["killed"]],
      );
      assert.deepEqual(
        preparedOf(lookAt(4, [...rows, kill], 0.3, { known }), null).ranks.map((s) => s.ended),
        ["", "", "", ""],
        "before, it lived",
      );
      assert.deepEqual(
        doingNow(look.known, 4, look.t).map((d) => d.mark),
        ["stopped", "stopped", "killed", "stopped"],
      );
    }
  },
);

test("the sentence: nobody holds anybody up; theory unknown is not made up", () => {
  assert.match(
    says(4, ringRows(4), 0.5),
    /^4 ranks combine 240 kB \(gradients\) in [\d.]+ ms; no rank waits long\.$/,
  );
  assert.doesNotMatch(
    says(
      4,
      ringRows(4, { slow: [2, 6] }).map((r) => ({ ...r, algorithm: "mine" })),
      0.5,
    ),
    /need/,
  );
});

test(
  "the sentence: what is wrong comes first; a " + "failed run's own words; ranks that are held",
  () => {
    const gone = ringRows(4).filter((r) => !(r.kind === "recv" && r.rank === 2 && r.step === 1));
    assert.equal(
      says(4, gone, 1),
      "Rank 0's chunk 0 is not the sum of all: the parts of ranks 0 and 1 are missing; 4 of " +
        "16 chunks are wrong.",
    );
    assert.equal(
      says(4, ringRows(4), 0.5, { known: { state: "failed", words: "rank 2 was killed" } }),
      "Rank 2 was killed.",
    );
    const failed = { known: { state: "failed", words: "rank 2 was killed" } };
    const { look, reading, frame } = all(4, ringRows(4), 0.5, failed);
    const earlier = { ...look, live: false, call: { ...look.call, key: "one before" } };
    assert.doesNotMatch(collectiveSentence(earlier, reading, frame), /killed/, "it is to come");
    assert.match(
      says(4, ringRows(4), 0.5, {
        live: true,
        known: { state: "running", control: { held: true, standing: [0, 1, 3] } },
      }),
      /^You hold the ranks: ranks 0, 1 and 3 stand before their next chunk, the other waits\. Newest: chunk \d from rank \d to \d\.$/,
    );
    assert.match(
      says(4, ringRows(4), 0.5, {
        live: true,
        known: { state: "running", control: { held: true, standing: [1] } },
      }),
      /^You hold the ranks: rank 1 stands before its next chunk, the others wait\. Newest: /,
    );
    assert.match(
      collectiveSentence({ known: { run: {}, state: "empty" }, call: null }, null, null),
      /^Nothing runs yet/,
    );
  },
);

test("a call that goes on is told as one", () => {
  const rows = ringRows(4, { slow: [2, 6] }).filter((r) => r.kind !== "collective" || r.rank !== 3);
  const run = { emulated: [{ from: 2, to: 3, made: "emulated: 1 Mbit/s", down: false }] };
  const told = (state) => says(4, rows, 0.5, { known: { run, state } });
  assert.match(told("running"), /this call has lasted [\d.]+ ms so far/);
  assert.match(told("finished"), /, until the run ended\.$/);
});

test(
  "the fact in the middle: the slowest link " + "against the others, amber if it is our making",
  () => {
    const emulated = [{ from: 2, to: 3, made: "emulated: 25 Mbit/s", down: false }];
    const { reading, look } = all(8, ringRows(8, { slow: [2, 6] }), 0.5, {
      known: { run: { emulated } },
    });
    assert.deepEqual(middleFact(reading, look.known), [
      { words: "link 2 → 3: 1.80 ms per hop", ours: false },
      { words: "the others 300 µs", ours: false },
      { words: "emulated: 25 Mbit/s", ours: true },
    ]);
    assert.equal(
      factLine(middleFact(all(4, ringRows(4), 0.5).reading, look.known).slice(0, 2)),
      "a chunk of 60.0 kB usually takes 320 µs",
    );
  },
);

test("the last moments: received and added, or it replaces its own; how much is in by then", () => {
  const { reading } = all(4, ringRows(4), 0);
  const said = lastMoments(reading, 1e12, 99).map(([, words]) => words);
  assert.ok(
    said.some((w) =>
      /^rank 1 received chunk 0 from rank 0 \(60\.0 kB in 320 µs\) and added it: 2 of 4 contributions$/.test(
        w,
      ),
    ),
    said.join("\n"),
  );
  assert.ok(
    said.some((w) =>
      /^rank 1 received chunk 0 from rank 0 .*, which replaces its own: complete$/.test(w),
    ),
    said.join("\n"),
  );
  assert.deepEqual(lastMoments(reading, 0, 2), []);
  assert.equal(lastMoments(reading, 400 * US, 2).length, 2);
});

test("a wait that was long and a rank that came late are told", () => {
  const { reading } = all(4, ringRows(4, { came: [0, 0, 9000, 0] }), 0);
  const said = lastMoments(reading, 1e12, 99).map(([, words]) => words);
  assert.ok(said.includes("rank 2 joined in, 9.00 ms after the first"));
  assert.ok(
    said.some((w) => /^rank 3 had waited [\d.]+ ms for chunk 2 from rank 2$/.test(w)),
    said.join("\n"),
  );
});

test("under the pointer: cells, chunks, links, ranks, in words with numbers", () => {
  const { reading, seen, frame } = all(4, ringRows(4, { slow: [2, 6] }), 0.35);
  const cell = cellOf(reading, 1, 0);
  assert.match(
    cellWords(reading, frame, cell, seen.states[cell])[0],
    /^rank 1, chunk 0: sum of ranks 0 and 1 \(2 of 4\)$/,
  );
  const [mark] = seen.marks;
  assert.match(
    chunkWords(reading, mark).join("\n"),
    /^chunk \d from rank \d to rank \d: \d+ % of its [\d.]+ ms, 60\.0 kB\n(complete: the sum of all|sum of ranks? .*\(\d of 4\))\nstep \d, (reduce-scatter|all-gather)$/,
  );
  assert.match(
    linkWords(reading, seen.reading && { run: null, control: null }, 2, 3, frame.t)[0],
    /^link 2 → 3: a chunk takes 1\.82 ms from send to receipt, 264 Mbit\/s; a hop at least 1\.80 ms$/,
  );
  const waiting = seen.ranks.find((s) => s.wait);
  assert.match(
    rankWords(waiting, frame, [])[0],
    /^rank \d has waited [\d.]+ (ms|µs) for chunk \d from rank \d$/,
  );
  assert.equal(
    rankWords({ ...waiting, wait: null, blocked: { peer: 2, chunk: 3 }, rank: 1 }, frame, [])[0],
    "rank 1 waits for chunk 3 from rank 2",
  );
  assert.match(
    spokenFrame(reading, frame),
    /chunk \d from rank \d to rank \d, (complete|\d of 4 parts)/,
  );
});

test("first values are said where the rank stands, and nowhere else", () => {
  const lane = {
    rank: 1,
    lane: "comm",
    kind: "send",
    peer: 2,
    group: "default",
    op: 0,
    step: 1,
    chunk: 0,
    since: 0,
    dtype: "float32",
    shape: "(15000,)",
    values: [0.5, -1e-5, null, 12345, 3],
  };
  const { look } = all(4, ringRows(4), 0.5, {
    known: { lanes_now: [lane], control: { held: true, standing: [1] } },
  });
  assert.deepEqual(valueWords(look, 1, 0), [
    "first values: 0.500  -1.00e-5  not finite  1.23e+4  3.00 …",
    "float32 (15000,)",
  ]);
  for (const [rank, chunk] of [
    [0, 0],
    [1, 1],
  ])
    assert.deepEqual(valueWords(look, rank, chunk), []);
});

test("what is in twice is said of cells and of chunks on their way", () => {
  const rows = starRows(4);
  const own = {
    ...rows.find((r) => r.rank === 2 && r.kind === "send"),
    kind: "reduce",
    peer: 2,
    start: -50,
    end: -40,
    seq: -1,
  };
  const doubled = [own, ...rows].map((r) => ({ ...r, start: r.start + 100, end: r.end + 100 }));
  const { reading, frame, seen } = all(4, doubled, 1);
  const cell = cellOf(reading, 0, 0);
  assert.ok(
    cellWords(reading, frame, cell, seen.states[cell]).includes(
      "✕ the part of rank 2 is in more than once",
    ),
  );
});

test("ranks and rates as people say them", () => {
  assert.deepEqual([[3], [0, 2], [0, 1, 2, 3], [0, 1, 5]].map(ranksOf), [
    "rank 3",
    "ranks 0 and 2",
    "ranks 0 to 3",
    "ranks 0, 1 and 5",
  ]);
  assert.deepEqual([125, 3.1e6, 1.25e9, 12.34e6].map(bitRate), [
    "1 kbit/s",
    "24.8 Mbit/s",
    "10 Gbit/s",
    "98.7 Mbit/s",
  ]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { preparedOf } from "../../assets/scenes/collectives/frame.js";
import { contentKeys, spaceKeys } from "../../assets/scenes/collectives/legend.js";
import { holdingsAt, holdingsOf, isComplete } from "../../assets/engine/holdings.js";
import { sendKey } from "../../assets/engine/replayed_cells.js";
import { frameAt } from "../../assets/engine/model.js";
import { readingOf } from "../../assets/engine/rates.js";
import { collectiveSentence, spokenFrame } from "../../assets/scenes/collectives/captions.js";
import { lastMoments } from "../../assets/scenes/collectives/moments.js";
import { cellWords, chunkWords } from "../../assets/scenes/collectives/mark_captions.js";
import { failedWords } from "../../assets/engine/failure_caption.js";
import { INK } from "./canvas.js";
import { lookAt, ringRows } from "./simulated.js";
import { nothing } from "../../assets/engine/page_state.js";
import { hasLost, killedIn, wasIn } from "./failures.js";
import { row } from "./rows.js";

const US = 1000;
const HOP = 100 * US;
const TOOK = 20 * US;

/**
 * A ring all-gather, or reduce-scatter: a chunk goes once round, whole or summed up. Chunk c is
 * rank c's, the ranks' order turned by `turn`.
 */
function onceRound(n, { collective = "all_gather", turn = 0, nbytes = 4000, slots = 1 } = {}) {
  const rows = [];
  const mod = (x) => ((x % n) + n) % n;
  const sums = collective === "reduce_scatter";
  const context = { collective, algorithm: "ring", nbytes: nbytes / n / slots, phase: collective };
  for (let rank = 0, seq = 0; rank < n; rank++) {
    for (let step = 0; step < n - 1; step++)
      for (let slot = 0; slot < slots; slot++) {
        const start = step * (HOP + TOOK);
        const chunk = mod(rank + turn - step - Number(sums));
        const came = mod(rank + turn - step - 1 - Number(sums));
        rows.push(
          row(rank, "send", start, start + HOP, {
            ...context,
            step,
            chunk,
            slot,
            peer: mod(rank + 1),
            seq: seq++,
          }),
        );
        rows.push(
          row(rank, "recv", start + HOP, start + HOP + TOOK, {
            ...context,
            step,
            chunk: came,
            slot,
            peer: mod(rank - 1),
            seq: seq++,
            name: sums ? "fused" : "",
          }),
        );
      }
    rows.push(
      row(rank, "collective", 0, (n - 1) * (HOP + TOOK) + 1, {
        ...context,
        nbytes,
        seq: seq++,
        name: "blocks.1",
      }),
    );
  }
  return rows;
}
const seen = (n, rows, share) => {
  const look = { ...lookAt(n, rows, share), ink: INK };
  const reading = readingOf(look.call, look.known);
  return {
    look,
    reading,
    frame: frameAt(look.call, share * (look.call.end - look.call.start)),
    states: holdingsAt(reading.holdings, share * (look.call.end - look.call.start)),
  };
};

for (const [n, turn, slots] of [
  [2, 0, 1],
  [4, 0, 1],
  [4, 1, 3],
  [5, 0, 2],
  [12, 0, 1],
])
  test(
    `in a gather of ${n} ranks a rank has its own chunk, then those that have come, and ` +
      "nothing is added",
    () => {
      const { look, reading } = seen(n, onceRound(n, { turn, slots }), 0);
      const { holdings } = reading;
      const cells = holdings.first.length - 1;
      assert.ok(holdings.way === "keep" && holdings.sound);
      for (let c = 0; c < n; c++) assert.equal(holdings.owners.get(c), (c - turn + n) % n);
      for (let step = 0; step <= n - 1; step++) {
        // after so many steps
        const t = step * (HOP + TOOK) + 0.5;
        const states = holdingsAt(holdings, t);
        for (let cell = 0; cell < cells; cell++) {
          const rank = Math.floor(cell / n);
          const away = (rank - holdings.owners.get(holdings.chunks[cell % n]) + n) % n;
          const parts = holdings.within.subarray(states[cell] * n, (states[cell] + 1) * n);
          assert.equal(
            holdings.whole[states[cell]] === slots,
            away <= step,
            `rank ${rank}, chunk ${cell % n}, after ${step}`,
          );
          assert.equal(
            parts.reduce((a, b) => a + b, 0),
            away <= step ? slots : 0,
          );
        }
      }
      for (const f of look.call.flights)
        assert.ok(isComplete(holdings, holdings.carried.get(sendKey(f))), "what travels is whole");
    },
  );

test("a gather in words: whose a chunk is; no sums, no contributions", () => {
  const n = 4;
  const { look, reading, frame, states } = seen(n, onceRound(n), 0.5);
  const moments = lastMoments(reading, Infinity, 99).map(([, what]) => what);
  const said = [
    collectiveSentence(look, reading, frame),
    ...moments,
    spokenFrame(reading, frame),
    ...frame.comets.flatMap((c) => chunkWords(reading, c)),
    ...Array.from({ length: n * n }, (_, cell) =>
      cellWords(reading, frame, cell, states[cell]),
    ).flat(),
  ];
  const keys = [
    ...spaceKeys(look, preparedOf(look, null)),
    ...contentKeys(look, preparedOf(look, null)),
  ].map((k) => k.words);
  for (const words of [...said, ...keys])
    assert.doesNotMatch(words, /sum of|contribution|added|combine|of 4 parts|\(1 of 4\)/);
  assert.match(said[0], /^4 ranks gather 4\.00 kB \(blocks\.1\)/);
  assert.ok(
    moments.some((words) =>
      /^rank 2 received chunk 0 from rank 1 .*, the part of rank 0: it has all of it$/.test(words),
    ),
    moments.join("\n"),
  );
  assert.equal(cellWords(reading, frame, 0, states[0])[0], "rank 0, chunk 0: its own part");
  assert.ok(
    said.includes("rank 1, chunk 0: here, the part of rank 0") &&
      said.includes("rank 3, chunk 0: not here yet, the part of rank 0"),
    said.join("\n"),
  );
  assert.ok(
    keys.includes("the rank has the chunk") &&
      keys.includes("chunk 3 on its way, as its owner has it"),
  );
});

test("a reduce-scatter adds, and each rank ends with one chunk complete", () => {
  const n = 4;
  const { reading, look, frame } = seen(n, onceRound(n, { collective: "reduce_scatter" }), 0.99999);
  const { holdings } = reading;
  const end = holdingsAt(holdings, Infinity);
  assert.equal(holdings.way, "sum");
  const whole = [...end].flatMap((state, cell) =>
    holdings.whole[state] === 1 ? [`${Math.floor(cell / n)}/${cell % n}`] : [],
  );
  assert.deepEqual(whole, ["0/0", "1/1", "2/2", "3/3"]);
  assert.match(collectiveSentence(look, reading, frame), /^4 ranks combine/);
  assert.equal(holdingsOf(look.call).sound, true);
});

test("an all-reduce is as before", () => {
  const { reading } = seen(4, ringRows(4), 1);
  assert.equal(reading.holdings.way, "sum");
  assert.ok(
    [...holdingsAt(reading.holdings, Infinity)].every(
      (state) => reading.holdings.whole[state] === 1,
    ),
  );
});

test("a failed run in one sentence: who, how, what was under way; never many lines", () => {
  const told = (failure, words = "x") =>
    failedWords({ ...nothing(), state: "failed", words, failure });
  const at = { rank: 2, peer: 3, doing: "recv p2p of 61,706 float32", found_by: 3 };
  const reports = [0, 1, 3, 4, 5, 6, 7].map((rank) => hasLost(rank, at));
  assert.equal(
    told(killedIn(2, 9, reports)),
    "Rank 2 was killed by SIGKILL in iteration 9; rank 3 noticed it in recv p2p of 61,706 float32.",
  );
  const first = { rank: 1, peer: 0, doing: "all_reduce 1045, step 0", found_by: 0 };
  const waits = {
    ...wasIn(1, "call 1044, step 5, chunk 1"),
    words: "waiting in call 1044, step 5, chunk 1",
  };
  assert.equal(
    told(killedIn(1, 9, [hasLost(0, first), waits])),
    "Rank 1 was killed by SIGKILL in iteration 9; it was waiting in call 1044, step 5, " +
      "chunk 1; rank 0 noticed it in all_reduce 1045, step 0.",
  );
  assert.equal(told(killedIn(2, 9)), "Rank 2 was killed by SIGKILL in iteration 9.");
  assert.equal(told(null, "rank 2 was killed"), "Rank 2 was killed.");
  const endless = killedIn(0, 1, [{ ...wasIn(1, ""), words: "", said: "x".repeat(500) }]);
  assert.ok(told(endless).length < 190);
});

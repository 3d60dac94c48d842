import assert from "node:assert/strict";
import { test } from "node:test";
import { preparedOf } from "../../assets/collective_frame.js";
import { contentKeys, spaceKeys } from "../../assets/collective_keys.js";
import { holdingsAt, holdingsOf, isComplete, sendKey } from "../../assets/holdings.js";
import { frameAt } from "../../assets/model.js";
import { readingOf } from "../../assets/rates.js";
import { cellWords, chunkWords, collectiveSentence, lastMoments, spokenFrame } from "../../assets/tell_collectives.js";
import { failedWords } from "../../assets/tell_failed.js";
import { INK } from "./canvas.js";
import { lookAt, ringRows } from "./simulated.js";
import { nothing } from "../../assets/known.js";
import { row } from "./rows.js";

const US = 1000, HOP = 100 * US, TOOK = 20 * US;

/** A ring all-gather, or reduce-scatter: a chunk goes once round, whole or summed up. Chunk c is rank c's, the ranks' order turned by `turn`. */
function onceRound(n, { collective = "all_gather", turn = 0, nbytes = 4000, slots = 1 } = {}) {
  const rows = [], mod = (x) => ((x % n) + n) % n, sums = collective === "reduce_scatter", context = { collective, algorithm: "ring", nbytes: nbytes / n / slots, phase: collective };
  for (let rank = 0, seq = 0; rank < n; rank++) {
    for (let step = 0; step < n - 1; step++) for (let slot = 0; slot < slots; slot++) {
      const start = step * (HOP + TOOK), chunk = mod(rank + turn - step - Number(sums)), came = mod(rank + turn - step - 1 - Number(sums));
      rows.push(row(rank, "send", start, start + HOP, { ...context, step, chunk, slot, peer: mod(rank + 1), seq: seq++ }));
      rows.push(row(rank, "recv", start + HOP, start + HOP + TOOK, { ...context, step, chunk: came, slot, peer: mod(rank - 1), seq: seq++, name: sums ? "fused" : "" }));
    }
    rows.push(row(rank, "collective", 0, (n - 1) * (HOP + TOOK) + 1, { ...context, nbytes, seq: seq++, name: "blocks.1" }));
  }
  return rows;
}
const seen = (n, rows, share) => {
  const look = { ...lookAt(n, rows, share), ink: INK }, reading = readingOf(look.call, look.known);
  return { look, reading, frame: frameAt(look.call, share * (look.call.end - look.call.start)), states: holdingsAt(reading.holdings, share * (look.call.end - look.call.start)) };
};

for (const [n, turn, slots] of [[2, 0, 1], [4, 0, 1], [4, 1, 3], [5, 0, 2], [12, 0, 1]])
  test(`in a gather of ${n} ranks a rank has its own chunk, then those that have come, and nothing is added`, () => {
    const { look, reading } = seen(n, onceRound(n, { turn, slots }), 0), { holdings } = reading, cells = holdings.first.length - 1;
    assert.ok(holdings.way === "keep" && holdings.sound);
    for (let c = 0; c < n; c++) assert.equal(holdings.owners.get(c), (c - turn + n) % n);
    for (let step = 0; step <= n - 1; step++) { // after so many steps
      const t = step * (HOP + TOOK) + 0.5, states = holdingsAt(holdings, t);
      for (let cell = 0; cell < cells; cell++) {
        const rank = Math.floor(cell / n), away = (rank - holdings.owners.get(holdings.chunks[cell % n]) + n) % n, parts = holdings.within.subarray(states[cell] * n, (states[cell] + 1) * n);
        assert.equal(holdings.whole[states[cell]] === slots, away <= step, `rank ${rank}, chunk ${cell % n}, after ${step}`);
        assert.equal(parts.reduce((a, b) => a + b, 0), away <= step ? slots : 0);
      }
    }
    for (const f of look.call.flights) assert.ok(isComplete(holdings, holdings.carried.get(sendKey(f))), "what travels is whole");
  });

test("a gather in words: whose a chunk is; no sums, no contributions", () => {
  const n = 4, { look, reading, frame, states } = seen(n, onceRound(n), 0.5), moments = lastMoments(reading, Infinity, 99).map(([, what]) => what);
  const said = [collectiveSentence(look, reading, frame), ...moments, spokenFrame(reading, frame), ...frame.comets.flatMap((c) => chunkWords(reading, c)), ...Array.from({ length: n * n }, (_, cell) => cellWords(reading, frame, cell, states[cell])).flat()];
  const keys = [...spaceKeys(look, preparedOf(look, null)), ...contentKeys(look, preparedOf(look, null))].map((k) => k.words);
  for (const words of [...said, ...keys]) assert.doesNotMatch(words, /sum of|contribution|added|combine|of 4 parts|\(1 of 4\)/);
  assert.match(said[0], /^4 ranks gather 4\.00 kB \(blocks\.1\)/);
  assert.ok(moments.some((words) => /^rank 2 received chunk 0 from rank 1 .*, the part of rank 0: it has all of it$/.test(words)), moments.join("\n"));
  assert.equal(cellWords(reading, frame, 0, states[0])[0], "rank 0, chunk 0: its own part");
  assert.ok(said.includes("rank 1, chunk 0: here, the part of rank 0") && said.includes("rank 3, chunk 0: not here yet, the part of rank 0"), said.join("\n"));
  assert.ok(keys.includes("the rank has the chunk") && keys.includes("chunk 3 on its way, as its owner has it"));
});

test("a reduce-scatter adds, and each rank ends with one chunk complete", () => {
  const n = 4, { reading, look, frame } = seen(n, onceRound(n, { collective: "reduce_scatter" }), 0.99999), { holdings } = reading, end = holdingsAt(holdings, Infinity);
  assert.equal(holdings.way, "sum");
  const whole = [...end].flatMap((state, cell) => (holdings.whole[state] === 1 ? [`${Math.floor(cell / n)}/${cell % n}`] : []));
  assert.deepEqual(whole, ["0/0", "1/1", "2/2", "3/3"]);
  assert.match(collectiveSentence(look, reading, frame), /^4 ranks combine/);
  assert.equal(holdingsOf(look.call).sound, true);
});

test("an all-reduce is as before", () => {
  const { reading } = seen(4, ringRows(4), 1);
  assert.equal(reading.holdings.way, "sum");
  assert.ok([...holdingsAt(reading.holdings, Infinity)].every((state) => reading.holdings.whole[state] === 1));
});

test("a failed run in one sentence: who, how, what was under way; never many lines", () => {
  const told = (words) => failedWords({ ...nothing(), state: "failed", words }), found = (rank, by) => `rank ${rank}: rank 2 (process 30624) ended while rank 3 was in recv p2p of 61,706 float32${by ? " (found by rank 3)" : ""}`;
  const long = `rank 2 (process 30624) was killed by SIGKILL in iteration 9. Under way: ${[0, 1, 3, 4, 5, 6, 7].map((rank) => found(rank, rank !== 3)).join("; ")}`;
  assert.equal(told(long), "Rank 2 was killed by SIGKILL in iteration 9; rank 3 noticed it in recv p2p of 61,706 float32.");
  assert.equal(told("rank 1 (process 41) was killed by SIGKILL in iteration 9. Under way: rank 0: rank 1 (process 41) ended while rank 0 was in all_reduce 1045, step 0; rank 1: in wait 1044, step 5, chunk 1"),
    "Rank 1 was killed by SIGKILL in iteration 9; it was waiting in call 1044, step 5, chunk 1; rank 0 noticed it in all_reduce 1045, step 0.");
  assert.equal(told("rank 2 (process 30363) was killed by SIGKILL in iteration 9. Under way: nothing was said"), "Rank 2 was killed by SIGKILL in iteration 9.");
  assert.equal(told("rank 2 was killed"), "Rank 2 was killed.");
  assert.ok(told(`rank 0 raised an error. Under way: rank 1: ${"x".repeat(500)}`).length < 180);
});

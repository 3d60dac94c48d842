import assert from "node:assert/strict";
import { test } from "node:test";
import { frameOf as serverFrame } from "../../assets/scenes/server/frame.js";
import { sentenceOf as serverSentence } from "../../assets/scenes/server/captions.js";
import { indexOf as serverIndexOf } from "../../assets/scenes/server/index.js";
import { tableOf } from "./rows.js";
import { knownOf } from "./simulated.js";
import { RULES, served } from "./served.js";

const EPOCH = 30;
/** As Elephas records it: a worker pushes once per epoch, which has many iterations. */
const perEpoch = (rule) =>
  served({ rule, iterations: 6 }).map((row) =>
    row.iteration >= 0 ? { ...row, iteration: row.iteration * EPOCH } : row,
  );

for (const [name, rule] of Object.entries({ bsp: RULES.bsp, asp: RULES.asp }))
  test(`of pushes once per epoch, a moment is that of pushes once per iteration (${name})`, () => {
    const each = tableOf(served({ rule: name, iterations: 6 }));
    const rows = perEpoch(name);
    const table = tableOf(rows);
    const known = knownOf(6, rows, { state: "running", now: table.to });
    const [once, often] = [serverIndexOf(table), serverIndexOf(each)];
    assert.deepEqual([once.stride, often.stride], [EPOCH, 1]);
    for (let i = 0; i < 300; i++) {
      const t = table.from + ((table.to - table.from) * (i + 0.5)) / 300;
      const frame = serverFrame(once, rule, t, 6 * EPOCH);
      const same = serverFrame(often, rule, t, 6);
      assert.equal(frame.min, same.min * EPOCH);
      assert.deepEqual(frame.slowest, same.slowest);
      for (const [k, worker] of frame.workers.entries()) {
        const { doing, ahead, iteration } = same.workers[k];
        assert.deepEqual(
          [worker.doing, worker.ahead, worker.iteration],
          [doing, ahead * EPOCH, iteration * EPOCH],
        );
      }
      const queues = [frame, same].map(({ shards }) => shards.map(({ queue }) => queue.length));
      assert.deepEqual(queues[0], queues[1]);
      const words = serverSentence({ ...known }, frame, rule, true);
      const [, fast, slow] =
        words.match(/^Workers? (.+) (?:is|are) \d+ ahead of workers? (.+?),/) ?? [];
      assert.ok(!fast || fast !== slow, words);
    }
  });

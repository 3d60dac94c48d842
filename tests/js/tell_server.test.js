import assert from "node:assert/strict";
import { test } from "node:test";
import { frameOf as serverFrame } from "../../assets/scenes/server/frame.js";
import { serverScene } from "../../assets/scenes/server/scene.js";
import { indexOf as serverIndexOf } from "../../assets/scenes/server/index.js";
import { meaning, waysOn } from "../../assets/scenes/overview/captions.js";
import {
  cometWords,
  lastUpdates,
  momentWords,
  logWords,
  ruleWords,
  sentenceOf as serverSentence,
  shardWords,
  spokenWords as spokenServer,
  versionsAt,
  workerWords,
  workersOf,
} from "../../assets/scenes/server/captions.js";
import { keysOf as serverKeys } from "../../assets/scenes/server/legend.js";
import { SCENES } from "./scenes.js";
import { CONTROL, RUN, tableOf } from "./rows.js";
import { knownOf } from "./simulated.js";
import { MS, RULES, served } from "./served.js";

const rows = served();
const table = tableOf(rows);
const index = serverIndexOf(table);
const known = knownOf(6, rows, { state: "running", now: table.to });
const times = Array.from(
  { length: 400 },
  (_, i) => table.from + ((table.to - table.from) * (i + 0.5)) / 400,
);
const frames = times.map((t) => serverFrame(index, RULES.ssp, t, 24));
const first = (so) => frames.find(so);

test(
  "the sentence names who stands at the wall and whom they wait for, in the picture's own " +
    "numbers",
  () => {
    const frame = first(
      (f) => f.min > 3 && f.workers.filter((w) => w.doing === "blocked").length === 1,
    );
    const [blocked] = frame.workers.filter((w) => w.doing === "blocked");
    assert.equal(
      serverSentence(known, frame, RULES.ssp, true),
      `Worker ${blocked.rank} stands at the wall: ${workersOf(frame.slowest)} ` +
        `${frame.slowest.length > 1 ? "are" : "is"} still in iteration ${frame.min + 1}, and ` +
        "no worker may start more than 3 ahead.",
    );
    const frozen = { ...known, control: { ...CONTROL, frozen: frame.slowest } };
    assert.match(
      serverSentence(frozen, frame, RULES.ssp, true),
      /iteration \d+, frozen by you, and no worker/,
    );
    // not of a moment that is past
    assert.doesNotMatch(serverSentence(frozen, frame, RULES.ssp, false), /frozen/);
    assert.match(
      serverSentence({ ...known, control: { ...CONTROL, held: true } }, frame, RULES.ssp, true),
      /^You hold the ranks\. Worker/,
    );
  },
);

test(
  "lockstep, no bound, a lost worker, the end, " + "before the first push: each is said as it is",
  () => {
    const step = serverIndexOf(tableOf(served({ rule: "bsp" })));
    const kept = times
      .map((t) => serverFrame(step, RULES.bsp, t, 24))
      .find((f) => f.workers.filter((w) => w.doing === "blocked").length === 3);
    assert.match(
      serverSentence(known, kept, RULES.bsp, true),
      /^Workers 2, 3 and 4 wait at the wall: worker 5 is still in iteration \d+, and no worker starts \d+ before its gradient is in\.$/,
    );
    const apart = { ...kept, workers: kept.workers.filter((w) => w.rank < 3), slowest: [4, 5] };
    assert.match(
      serverSentence(known, apart, RULES.bsp, true),
      /^Worker 2 waits at the wall: workers 4 and 5 are .* before their gradients are in\.$/,
    );
    const wall = /iteration (\d+), and no worker starts (\d+)/;
    const [, now, next] = serverSentence(known, kept, RULES.bsp, true).match(wall);
    assert.equal(Number(next), Number(now) + 1);
    const workers = kept.workers.map((w) => ({ ...w, doing: "blocked" }));
    const all = { ...kept, workers: workers.slice(0, 3), slowest: [2, 3, 4], min: 61 };
    const shards = [{ ...kept.shards[0], queue: [2] }];
    assert.equal(
      serverSentence(known, { ...all, shards }, RULES.bsp, true),
      "All three have pushed; the server has 1 of 3 gradients of iteration 62.",
    );
    const none = [{ ...kept.shards[0], queue: [] }];
    assert.equal(
      serverSentence(known, { ...all, shards: none }, RULES.bsp, true),
      "All three have pushed; the gradients of iteration 62 are on their way.",
    );
    const free = serverIndexOf(tableOf(served({ rule: "asp" })));
    const some = times
      .map((t) => serverFrame(free, RULES.asp, t, 24))
      .find((f) => f.workers.some((w) => w.worst > 1) && f.shards.every((s) => s.queue.length < 2));
    const said = serverSentence(known, some, RULES.asp, true);
    const stale = Math.max(...some.workers.map((w) => w.worst));
    assert.match(
      said,
      new RegExp(
        "no worker waits for another; worker \\d computes on parameters that lack " +
          `${stale} updates`,
      ),
    );
    const gone = serverFrame(
      serverIndexOf(tableOf(served({ lost: { worker: 3, at: 300 } }))),
      RULES.ssp,
      5e8,
      24,
    );
    assert.match(
      serverSentence(known, gone, RULES.ssp, true),
      /^Worker 5 is gone, and the bound no longer counts it\./,
    );
    assert.match(
      serverSentence(known, frames.at(-1), RULES.ssp, true),
      /last gradient; the parameters are version \d+ and \d+|update/,
    );
    assert.equal(
      serverSentence({ ...known, state: "running" }, null, RULES.ssp, true),
      "The ranks run. Waiting for the first push.",
    );
    assert.equal(
      serverSentence(
        { ...known, state: "failed", words: "rank 0 was killed" },
        frames[9],
        RULES.ssp,
        true,
      ),
      "Rank 0 was killed.",
    );
  },
);

test("pushes that wait at a shard are said when nobody is stopped", () => {
  const crowd = serverIndexOf(tableOf(served({ rule: "asp", apply: 40 })));
  const frame = times
    .map((t) => serverFrame(crowd, RULES.asp, t, 24))
    .find((f) => f.shards[0].queue.length > 1);
  assert.match(
    serverSentence(known, frame, RULES.asp, true),
    /^\d pushes wait at shard [01], which holds (67|33) % of the keys\.$/,
  );
});

test("w at time t in words, a shard's, a worker's, a push's: all from the frame", () => {
  const frame = first((f) => f.min > 4 && f.comets.length && f.workers.some((w) => w.worst > 0));
  const lines = versionsAt(frame);
  frame.workers.forEach((w, i) => {
    assert.ok(
      lines.includes(
        `worker ${w.rank} holds ${w.held.map((v, k) => `${v}${w.behind[k] ? ` (${w.behind[k]} behind)` : ""}`).join(", ")}`,
      ),
      lines.join("\n"),
    );
    w.behind.forEach((b, k) => assert.equal(b, frame.shards[k].version - w.held[k]));
    const said = workerWords(frame, i, RULES.ssp, "frozen").join("\n");
    assert.match(said, new RegExp(`^worker ${w.rank}, iteration ${w.iteration + 1}: `));
    assert.match(said, /\nfrozen\n/);
    assert.match(said, new RegExp(`may start up to iteration ${w.limit + 1}$`));
  });
  assert.match(
    shardWords(frame, 0, index).join("\n"),
    new RegExp(`version ${frame.shards[0].version}; 67 % of the keys`),
  );
  const push = first((f) => f.comets.some((c) => c.kind === "push")).comets.find(
    (c) => c.kind === "push",
  );
  assert.match(
    cometWords(push)[0],
    new RegExp(
      `^push: worker ${push.from}'s gradient of iteration ${push.iteration + 1} to shard ${push.to}$`,
    ),
  );
  assert.match(spokenServer(frame), /shard 1 at version \d+.*from rank \d to rank \d/);
  const late = table.to;
  const words = logWords(index, 2, 3, late);
  assert.equal(words.length, 2);
  assert.match(words[0], /^shard 0 applied worker 2's gradient of iteration 4: /);
  const [[when, what]] = lastUpdates(index, late, 1);
  const newest = rows
    .filter((r) => r.kind === "apply")
    .sort((a, b) => a.end - b.end)
    .at(-1);
  assert.equal(when, momentWords(newest.end));
  assert.deepEqual([51.26 * MS, 2594.51 * MS].map(momentWords), ["51.3 ms", "2.5945 s"]);
  assert.match(what, new RegExp(`version is now ${newest.version}`));
});

test("what workers push is named as the run has it: no gradient where weights are subtracted", () => {
  const rule = { ...RULES.asp, pushes: "weight difference" };
  const rows = served({ rule: "asp" });
  const index = serverIndexOf(tableOf(rows));
  const run = { ...RUN, strategy: "elephas", ranks: 6, server: rule };
  const all = times.flatMap((t) => {
    const frame = serverFrame(index, rule, t, 24);
    const seen = {
      frame,
      rule,
      index,
      comets: [],
      incidents: new Map(),
      place: { level: "discs" },
    };
    return [
      serverSentence({ ...known, run }, frame, rule, true),
      spokenServer(frame),
      ...frame.workers.flatMap((_, i) => workerWords(frame, i, rule, "")),
      ...frame.shards.flatMap((_, k) => shardWords(frame, k, index)),
      ...frame.comets.flatMap((comet) => cometWords(comet, frame.pushes)),
      ...logWords(index, 2, 3, t, frame.pushes),
      ...lastUpdates(index, t, 2, frame).flat(),
      ...serverKeys({ ink: {}, font: "", ratio: 1 }, seen, false).map((key) => key.words),
    ];
  });
  assert.deepEqual(
    all.filter((words) => /gradient/.test(words)),
    [],
  );
  for (const words of [
    "push: a weight difference",
    /worker 2's weight difference of iteration 4/,
    /trains on its partition/,
    /pushes its weight difference/,
    /of weight differences have come in/,
    /it applies the weight difference of worker/,
  ])
    assert.ok(
      all.some((one) => one.match(words)),
      String(words),
    );
  const often = { ...run, server: { ...rule, mode: "hogwild", once_per: "minibatch" } };
  assert.equal(ruleWords(often.server), "hogwild, once per minibatch");
  assert.match(meaning(often, SCENES).join(" "), /5 train\. .* changed once per minibatch\.$/);
});

test("the rule in a title, what it all means on the overview, and where to look next", () => {
  assert.deepEqual(Object.values(RULES).map(ruleWords), [
    "BSP",
    "SSP, at most 3 ahead",
    "ASP",
    "DSSP, 3 to 8 ahead",
  ]);
  const run = { ...RUN, strategy: "parameter_server", ranks: 6, server: RULES.ssp };
  assert.match(meaning(run, SCENES).join(" "), /2 hold the parameters, 4 compute gradients/);
  const waits = (rank, forWhom) => ({
    rank,
    mark: "wait",
    halo: false,
    words: "",
    waits: 0.9,
    forWhom,
    long: false,
  });
  const serving = { ...known, run };
  const look = serverScene.lookNext(serving);
  assert.equal(
    waysOn(serving, [waits(0, 2)], look)[0][1],
    "who holds which version, and who is stopped",
  ); // a server's own work
  assert.equal(
    waysOn(serving, [waits(3, 0)], look)[0].join(": "),
    "See workers and shards: why rank 3 waits for rank 0",
  );
});

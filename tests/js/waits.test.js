import assert from "node:assert/strict";
import { test } from "node:test";
import { doingAt, doingNow, sharesOf } from "../../assets/engine/rank_activity.js";
import { forLong } from "../../assets/engine/standing.js";
import { Happenings } from "../../assets/engine/happenings.js";
import { nothing, receive } from "../../assets/engine/page_state.js";
import { newestIsWhole, lossesOf, trainers } from "../../assets/engine/losses.js";
import { mixingBars } from "../../assets/scenes/peers/score.js";
import { peersScene } from "../../assets/scenes/peers/scene.js";
import { serverScene } from "../../assets/scenes/server/scene.js";
import { pipelineScene } from "../../assets/scenes/pipeline/scene.js";
import { shardsScene } from "../../assets/scenes/shards/scene.js";
import { meaning, startWords, waysOn } from "../../assets/scenes/overview/captions.js";
import { busySpans, joined, waitPieces } from "../../assets/engine/waits.js";
import { SCENES } from "./scenes.js";
import { CONTROL, RUN, batch, row, tableOf } from "./rows.js";

const S = 1e9;
const own = { op: -1, collective: "", algorithm: "", group: "" };
const compute = (rank, kind, start, end, more = {}) =>
  row(rank, kind, start, end, { lane: "compute", ...own, ...more });
const message = (rank, kind, start, end, more = {}) =>
  row(rank, kind, start, end, {
    lane: kind === "send" ? "send" : "recv",
    op: 0,
    collective: "p2p",
    algorithm: "",
    ...more,
  });
/** Rank 0 posts a receive at the start, computes 0.6 s, stands 0.2 s for it, computes again. */
const ahead = [
  compute(0, "forward", 0, 0.2 * S),
  compute(0, "backward", 0.2 * S, 0.6 * S),
  message(0, "wait", 0, 0.8 * S, { peer: 1 }),
  compute(0, "optimizer", 0.8 * S, S),
];
const heard = (list, more = {}) => receive(nothing(), ...batch(list, { now: S, ...more }), 0);
const lanesOf = (table, rank) => [...table.lanes.values()].filter((l) => l.rank === rank);
const waitRow = (table) =>
  [...Array(table.rows).keys()].find((r) => table.kind[r] === table.code.wait);

test(
  "of a receive that was posted ahead only " + "that costs something for which the rank stood",
  () => {
    const table = tableOf(ahead);
    const lanes = lanesOf(table, 0);
    const [computing, busy] = [false, true].map((calls) => busySpans(table, lanes, 0, S, calls));
    assert.deepEqual(waitPieces(table, waitRow(table), computing, busy, true), [
      { start: 0, end: 0.6 * S, free: true },
      { start: 0.6 * S, end: 0.8 * S, free: false },
    ]);
    assert.deepEqual(waitPieces(table, waitRow(table), computing, busy, false), [
      { start: 0, end: 0.8 * S, free: true },
    ]);
    assert.deepEqual(
      joined([
        [5, 7],
        [1, 2],
        [2, 4],
        [6, 9],
      ]),
      [
        [1, 4],
        [5, 9],
      ],
    );
  },
);

test(
  "a message that is open while its rank is in a collective costs nothing; a collective's " +
    "own wait does",
  () => {
    const rows = [
      message(0, "wait", 0, 100e6, { peer: 3 }),
      row(0, "wait", 20e6, 60e6, { peer: 1 }),
      row(0, "collective", 10e6, 90e6),
    ];
    const table = tableOf(rows);
    const shares = sharesOf(table, lanesOf(table, 0), 0, 100e6);
    assert.deepEqual([...shares.peers].sort(), [
      [1, 40e6],
      [3, 20e6],
    ]);
    assert.ok(
      Math.abs(shares.wait - 0.6) < 1e-9 && Math.abs(shares.free - 0.8) < 1e-9,
      JSON.stringify(shares),
    );
    assert.equal(doingAt(table, 1, 40e6, false)[0].words, "waits for rank 1");
  },
);

test("what a rank does over a second: it computes, though a receive is open all the while", () => {
  const [doing] = doingNow(heard(ahead), 1, S);
  assert.deepEqual([doing.mark, doing.halo, doing.waits], ["compute", true, 0.2]);
  assert.equal(doing.words, "computes gradients, waits 20 %");
});

test("who stands for nobody does not wait, whatever receives are open", () => {
  const run = {
    ...RUN,
    ranks: 1,
    strategy: "malt",
    peers: {
      kind: "halton",
      edges: [],
      every: 5,
      synchronous: false,
      stands: [],
      rate: null,
      words: "Each scatters.",
    },
  };
  const known = heard(ahead, { run });
  assert.deepEqual(
    [
      doingAt(known.table, 1, 0.7 * S, false, run)[0].mark,
      doingAt(known.table, 1, 0.7 * S, false)[0].mark,
    ],
    ["none", "wait"],
  );
  assert.equal(doingAt(known.table, 1, 0.3 * S, false, run)[0].words, "computes gradients");
  assert.deepEqual([doingNow(known, 1, S)[0].waits, doingNow(known, 1, S)[0].halo], [0, false]);
  const open = [
    {
      rank: 0,
      lane: "recv",
      kind: "wait",
      peer: 1,
      group: "default",
      collective: "p2p",
      algorithm: "",
      op: 1,
      step: 0,
      chunk: 0,
      since: S,
      dtype: "",
      shape: "",
      values: [],
    },
  ];
  assert.equal(forLong(known.table, open, 3 * S, false), null);
  assert.match(forLong(known.table, open, 3 * S, true).words, /^waits for rank 1, 2\.00 s so far/);
  assert.equal(peersScene.lookNext({ ...known, run }).title, "See who mixes with whom");
  assert.deepEqual(meaning({ ...run, ranks: 6 }, SCENES)[1], "Each scatters.");
});

test("an open receive is waited for since its rank had nothing else to do", () => {
  const known = heard([compute(0, "backward", 0, 2 * S)]);
  const open = [
    {
      rank: 0,
      lane: "recv",
      kind: "wait",
      peer: 1,
      group: "default",
      collective: "p2p",
      algorithm: "",
      op: 1,
      step: 0,
      chunk: 0,
      since: 0.5 * S,
      dtype: "",
      shape: "",
      values: [],
    },
  ];
  assert.equal(forLong(known.table, open, 2.1 * S), null);
  assert.match(forLong(known.table, open, 3 * S).words, /1\.00 s so far/);
});

test("in the score such a wait is open, and only what costs something is a wait", () => {
  const parts = (run) =>
    mixingBars(tableOf(ahead), 0, S, run)
      .filter((b) => b.part === "wait" || b.part === "open")
      .map((b) => [b.part, b.start, b.end]);
  assert.deepEqual(parts(null), [
    ["open", 0, 0.6 * S],
    ["wait", 0.6 * S, 0.8 * S],
  ]);
  assert.deepEqual(parts({ ...RUN, peers: { stands: [1] } }), [["open", 0, 0.8 * S]]);
});

const loss = (rank, iteration) =>
  compute(rank, "metric", (iteration + 1) * S, (iteration + 1) * S, {
    name: "loss",
    value: 2,
    iteration,
  });
const INPUTS = {
  ...RUN,
  ranks: 4,
  iterations: 20,
  strategy: "data_servers",
  inputs: { servers: 1 },
};
const served = [...Array(20).keys()].flatMap((i) => [1, 2, 3].map((rank) => loss(rank, i)));

test("a run with servers of examples is told with all its iterations", () => {
  for (const state of ["running", "finished", "replay"]) {
    const known = heard(served, { run: INPUTS, state });
    assert.equal(
      lossesOf(known.table).newest(trainers(known.run), newestIsWhole(known)),
      19,
      state,
    );
  }
  const lines = new Happenings(heard(served, { run: INPUTS, state: "replay" })).read(
    heard(served, { run: INPUTS, state: "replay" }),
    21 * S,
  );
  assert.match(lines.at(-1).words, /^The run is over: 20 iterations/);
  assert.match(meaning(INPUTS, SCENES)[0], /one serves examples, 3 compute gradients/);
});

test(
  "the last iteration of a run that is over counts, though a rank had no sample in it; of " +
    "one that failed it does not",
  () => {
    const known = (state) =>
      heard(
        served.filter((r) => r.rank > 1 || r.iteration < 19),
        { run: { ...INPUTS, inputs: null, ranks: 3 }, state },
      );
    const newest = (k) => lossesOf(k.table).newest(3, newestIsWhole(k));
    assert.deepEqual(
      ["finished", "replay", "failed", "running"].map((state) => newest(known(state))),
      [19, 19, 18, 18],
    );
  },
);

test("a server of examples serves, it does not wait; a worker waits for its examples", () => {
  const rows = [
    message(0, "wait", 0, 0.9 * S, { peer: 1 }),
    row(0, "load", 0.9 * S, 0.95 * S, { lane: "server", ...own, peer: 1 }),
    message(0, "send", 0.95 * S, S, { peer: 1 }),
    compute(1, "pull", 0.1 * S, 0.9 * S, { peer: 0, name: "examples" }),
    message(1, "wait", 0, 0.9 * S, { peer: 0 }),
  ];
  const known = heard(rows, { run: { ...INPUTS, ranks: 2 } });
  const at = (t) =>
    doingAt(known.table, 2, t, false, known.run).map((d) => `${d.mark}: ${d.words}`);
  assert.deepEqual(at(0.5 * S), [
    "serve: serves examples",
    "wait: waits for its examples from rank 0",
  ]);
  assert.deepEqual(at(0.97 * S)[0], "move: sends a message to rank 1");
  assert.deepEqual(
    doingNow(known, 2, S).map((d) => d.mark),
    ["serve", "wait"],
  );
});

test("of a server of examples it is not said that it makes no progress while nobody asks", () => {
  const stalls = [0, 1].map((rank) =>
    message(rank, "detect", S, S, { peer: 1 - rank, value: 1, name: "stalled" }),
  );
  const lines = (run) =>
    new Happenings(heard(stalls, { run }))
      .read(heard(stalls, { run }), S)
      .map((line) => line.words.slice(0, 6));
  assert.deepEqual(lines({ ...INPUTS, ranks: 2 }), ["rank 1"]);
  assert.deepEqual(lines({ ...RUN, ranks: 2 }), ["2 rank"], "both in one line");
});

test("what is agreed on in between is no call of the training", () => {
  const small = (more) =>
    [0, 1].flatMap((r) => [
      row(r, "send", 0, 10, { peer: 1 - r, chunk: 0, slot: 0, step: 0, nbytes: 8, ...more }),
      row(r, "recv", 10, 20, { peer: 1 - r, chunk: 0, slot: 0, step: 0, nbytes: 8, ...more }),
      row(r, "collective", 0, 20, { nbytes: 8, ...more }),
    ]);
  assert.deepEqual(
    ["default", "control", "metrics"].map((group) => tableOf(small({ group })).completed),
    [1, 0, 0],
  );
  const known = (collective) => heard(small({ collective }), { run: { ...RUN, ranks: 2 } });
  const first = (k) => new Happenings(k).read(k, S)[0].words;
  assert.match(first(known("all_gather")), /^First all-gather: 2 ranks gathered 8 B/);
  assert.match(first(known("all_reduce")), /^First all-reduce: 2 ranks combined 8 B/);
});

test("the first way on leads to the picture of this kind of run", () => {
  const sharded = heard([], { run: { ...RUN, shards: { layers: [] } } });
  assert.deepEqual(waysOn(sharded, [], shardsScene.lookNext(sharded))[0], [
    "See the shards",
    "which layer is whole where, and what each rank holds",
  ]);
  const piped = heard([], { run: { ...RUN, pipeline: { stages: 3 } } });
  assert.equal(waysOn(piped, [], pipelineScene.lookNext(piped))[0][0], "See the stages");
  for (const scene of [serverScene, peersScene, shardsScene, pipelineScene])
    assert.equal(scene.lookNext(heard([], { run: RUN })), null);
  assert.equal(startWords(heard([], { run: RUN, control: CONTROL, state: "replay" })), "");
});

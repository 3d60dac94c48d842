// Ranks that are lost, and replaced or not, in the scenes that show them: rows of real runs, replayed.
import assert from "node:assert/strict";
import { test } from "node:test";
import { INK, canvas, collisions, onto } from "./canvas.js";
import { killedIn } from "./failures.js";
import { recorded } from "./recorded.js";
import { generationRows, generationsOf } from "../../assets/engine/generations.js";
import { goneInPicture } from "../../assets/engine/lost_ranks.js";
import { lossesOfRanks } from "../../assets/engine/recoveries.js";
import { recoveryCost, linesOf as recoveryLines } from "../../assets/scenes/recovery/captions.js";
import { frameOf as peersFrame } from "../../assets/scenes/peers/frame.js";
import { peerFacts, indexOf as peersIndexOf } from "../../assets/scenes/peers/index.js";
import { roundsOf } from "../../assets/scenes/server/call_source.js";
import {
  lastUpdates,
  sentenceOf as serverSentence,
  shardWords,
} from "../../assets/scenes/server/captions.js";
import { drawPicture as drawServer } from "../../assets/scenes/server/draw.js";
import { ruleOf, frameOf as serverFrame } from "../../assets/scenes/server/frame.js";
import { indexOf as serverIndexOf } from "../../assets/scenes/server/index.js";
import { copiesOn } from "../../assets/scenes/server/keys.js";
import { aheadOf, placeOf as serverPlace } from "../../assets/scenes/server/place.js";
import { holderWords } from "../../assets/scenes/shards/captions.js";
import { drawPicture as drawShards } from "../../assets/scenes/shards/draw.js";
import { factsOf as shardFacts, frameAt as shardsFrame } from "../../assets/scenes/shards/frame.js";
import { indexOf as shardsIndexOf } from "../../assets/scenes/shards/index.js";
import { keysOf as shardKeys } from "../../assets/scenes/shards/legend.js";
import { bytesScale, placeOf as shardsPlace } from "../../assets/scenes/shards/place.js";
import { rowWords } from "../../assets/scenes/timeline/captions.js";

/** When the rank was lost, when the next generation began, and the run's end. */
function moments(known, rank) {
  const { losses, kills } = generationRows(known.table);
  const kill = kills.find((one) => one.rank === rank);
  const noticed = losses.find((one) => one.rank === rank);
  const joins = [...generationRows(known.table).actsOf(1, "rebuild").values()];
  const restores = [...generationRows(known.table).actsOf(1, "restore").values()];
  return {
    before: kill.t - 1,
    lost: noticed.t + 1,
    joined: Math.max(...joins.map(({ end }) => end)),
    restored: Math.max(...restores.map(({ end }) => end)) + 1,
    end: known.table.to,
  };
}

const frameOf = (known, t) =>
  serverFrame(
    serverIndexOf(known.table),
    ruleOf(known),
    t,
    known.run.iterations,
    known.run.recoveries,
  );
const look = (known, t) => ({ known, t, live: false, table: known.table });

test("a server of a replica chain is lost: who has its keys, and from where", () => {
  const known = recorded("server_shrinks");
  const { before, lost, restored, end } = moments(known, 1);
  const shards = (t) => frameOf(known, t).shards;
  assert.deepEqual(
    shards(before).map(({ rank, gone, copies }) => [rank, gone, copies]),
    [
      [0, NaN, [1]],
      [1, NaN, [0]],
    ],
  );
  assert.ok(shards(before).every(({ share }) => Math.abs(share - 0.5) < 0.01));
  assert.ok(shards(lost)[1].gone <= lost);
  for (const t of [restored, end]) {
    const [first, second] = shards(t);
    assert.ok(second.gone < restored && Number.isNaN(first.gone));
    assert.deepEqual([first.copies, second.copies], [[], []], "one server has no replica");
    const [taken] = first.regained;
    assert.deepEqual(
      [taken.source, taken.server, taken.holder, taken.owner, taken.updates_lost],
      ["replica", 1, 0, 0, 0],
    );
  }
  assert.deepEqual(
    shards(end).map(({ share }) => share),
    [1, 0],
  );
  const frame = frameOf(known, end);
  assert.match(
    serverSentence(known, frame, ruleOf(known), false),
    /^Shard 1 is gone; shard 0 has its keys, from the copy on rank 0: no update lost\. /,
  );
  const index = serverIndexOf(known.table);
  assert.match(shardWords(frame, 0, index).join("\n"), /took over [\d,]+ keys of shard 1 from the/);
  assert.deepEqual(shardWords(frame, 1, index), ["shard 1 is gone"]);
  const story = lastUpdates(index, restored, 1, frameOf(known, restored));
  assert.match(story[0][1], /^shard 0 took over/);
});

test("rounds go on without the lost server, each iteration in one", () => {
  for (const name of ["server_shrinks", "server_replaced", "worker_replaced"]) {
    const known = recorded(name);
    const rounds = roundsOf(known.table);
    assert.deepEqual(
      rounds.calls.map(({ iteration }) => iteration),
      [0, 1, 2, 3, 4, 5],
      name,
    );
    for (const { start, end } of rounds.calls) assert.ok(end >= start, name);
    const { workers, min } = frameOf(known, known.table.to);
    assert.ok(min === 6 && workers.every(({ doing }) => doing === "ended"), name);
  }
});

test("a server that is replaced is there again; its keys came from a worker's pull", () => {
  const known = recorded("server_replaced");
  const { before, lost, restored, end } = moments(known, 1);
  const gone = (t) => frameOf(known, t).shards.map((s) => !Number.isNaN(s.gone));
  assert.deepEqual([before, lost, restored, end].map(gone), [
    [false, false],
    [false, true],
    [false, false],
    [false, false],
  ]);
  const frame = frameOf(known, end);
  assert.deepEqual(
    frame.shards[1].regained.map(({ source, owner }) => [source, owner]),
    [["pull", 1]],
  );
  assert.ok(frame.shards.every(({ share }) => Math.abs(share - 0.5) < 0.01));
  const act = generationRows(known.table).actsOf(1, "restore").get(1);
  const [move] = frameOf(known, (act.start + act.end) / 2).moves;
  assert.deepEqual([move.owner, move.source, Math.abs(move.share - 0.5) < 0.01], [1, "pull", true]);
  assert.match(
    lastUpdates(serverIndexOf(known.table), restored, 2, frameOf(known, restored)).join(),
    /latest pull, version \d: .*optimizer's state begins anew/,
  );
});

test("messages of a generation are not taken for those of the one before", () => {
  for (const name of ["server_shrinks", "server_replaced", "worker_replaced"]) {
    const known = recorded(name);
    const { joined } = moments(known, name === "worker_replaced" ? 3 : 1);
    for (const { pushes, pulls } of serverIndexOf(known.table).pairs.values()) {
      for (const push of pushes)
        if (push?.generation === 1)
          assert.ok(push.start >= joined && push.arrive >= push.left && push.end > push.start);
      for (const pull of pulls)
        if (pull.generation === 1) assert.ok(pull.depart >= joined && pull.depart <= pull.end);
    }
  }
});

test("a chain's copies go round: the first server has those of the last", () => {
  assert.deepEqual(
    [...copiesOn([0, 1, 3], 3)],
    [
      [0, [3, 1]],
      [1, [0, 3]],
      [3, [1, 0]],
    ],
  );
  assert.deepEqual([...copiesOn([2], 3)], [[2, []]]);
  assert.deepEqual([...copiesOn([0, 1], 1)].flat(), [0, [], 1, []]);
});

for (const width of [928, 608])
  for (const name of ["server_shrinks", "server_replaced"])
    test(`no word lies over another: ${name}, ${width} px`, () => {
      const known = recorded(name);
      const { before, lost, restored, end } = moments(known, 1);
      const act = generationRows(known.table).actsOf(1, "restore").get(0);
      for (const t of [before, lost, (act.start + act.end) / 2, restored, end]) {
        const frame = frameOf(known, t);
        const index = serverIndexOf(known.table);
        const rule = ruleOf(known);
        const place = serverPlace(
          width,
          frame.workers.length,
          frame.shards.map(({ share }) => share),
          aheadOf(rule, frame, 1),
        );
        const incidents = new Map(
          frame.shards
            .filter((s) => !Number.isNaN(s.gone))
            .map((s) => [s.rank, { words: "gone", colour: "fault" }]),
        );
        const drawn = canvas();
        onto(drawn);
        const seen = { place, frame, index, rule, comets: [], incidents };
        drawServer(drawn, { ink: INK, font: "sans-serif", ratio: 1, choice: null }, seen);
        assert.deepEqual(
          collisions(drawn.drawn.filter((d) => d.ink !== "rule" || d.kind === "text")),
          [],
          `${name} ${t}`,
        );
      }
    });

test("replicas that mix: a lost one is crossed until a new process is there", () => {
  const at = (known, t) => {
    const index = peersIndexOf(known);
    const { peers } = peersFrame(index, peerFacts(known.run), t, 3, known.run.iterations);
    return peers.map(({ lost }) => lost);
  };
  const replaced = recorded("peer_replaced");
  const { before, lost, restored, end } = moments(replaced, 1);
  assert.deepEqual(
    [before, lost, restored, end].map((t) => at(replaced, t)[1]),
    [false, true, false, false],
  );
  const shrunk = recorded("peer_lost");
  const then = moments(shrunk, 1);
  assert.deepEqual(
    [at(shrunk, then.before), at(shrunk, then.end)],
    [
      [false, false, false],
      [false, true, false],
    ],
  );
  for (const known of [replaced, shrunk]) {
    const { spreads } = peersIndexOf(known);
    assert.deepEqual(
      spreads.map(({ iteration }) => iteration),
      [0, 1, 2, 3, 4, 5],
      "the disagreement is told to the end",
    );
  }
});

test("shards and stages: the cross goes with the new process, in a replay", () => {
  for (const name of ["shard_replaced", "stage_replaced"]) {
    const known = recorded(name);
    const { before, lost, restored, end } = moments(known, 1);
    assert.deepEqual(
      [before, lost, restored, end].map((t) => goneInPicture(look(known, t))),
      [[], [1], [], []],
      name,
    );
    assert.equal(generationsOf(known).length, 2);
  }
});

test("while the picture has not come to the end of a run that failed, nobody is gone in it yet", () => {
  const known = { ...recorded("peer_lost"), state: "failed", failure: killedIn(1, 3) };
  const { to, from } = known.table;
  const seen = (t, state) => goneInPicture({ ...look({ ...known, state }, t), live: true });
  assert.deepEqual(seen(from, "failed"), []);
  assert.ok(seen(to, "failed").includes(1));
});

test("the timeline names the messages that carry copies", () => {
  const { table } = recorded("stage_replaced");
  const copy = table.strings.indexOf("buddy copy");
  const rows = Array.from({ length: table.rows }, (_, r) => r).filter(
    (r) => table.name[r] === copy,
  );
  const words = rows.map((r) => rowWords(table, r));
  assert.ok(words.some((text) => /^rank 0 sent a message \(buddy copy\) to rank 1 in/.test(text)));
  assert.ok(words.some((text) => /^rank 1 took a message \(buddy copy\) from rank 0/.test(text)));
});

test("a rank is drawn with the copy that it keeps of another's part", () => {
  const known = recorded("shard_replaced");
  const { before, end } = moments(known, 1);
  const facts = shardFacts(known.run);
  const frameAt = (t) => shardsFrame(shardsIndexOf(known.table), facts, 2, t);
  assert.deepEqual(
    frameAt(known.table.from).holders.map(({ copy }) => copy),
    [null, null],
    "none has come yet",
  );
  for (const t of [before, end])
    assert.deepEqual(
      frameAt(t).holders.map(({ copy }) => copy?.of),
      [1, 0],
      "each keeps that of the rank before it",
    );
  const frame = frameAt(before);
  assert.match(holderWords(frame, 1).at(-1), /^keeps a copy of rank 0's part, .+ old: a process/);
  const place = shardsPlace(960, 2, frame.layers);
  const seen = { frame, place, scale: bytesScale(frame.unsharded) };
  const look = { ink: INK, font: "sans-serif", ratio: 1, width: 960, choice: null, known };
  const keys = shardKeys(look, seen, false).map(({ name }) => name.split(" ")[0]);
  assert.ok(keys.includes("copy"));
  const g = canvas();
  onto(g);
  drawShards(g, look, seen, []);
  assert.deepEqual(collisions(g.drawn), []);
});

test("a stage's and a shard's copy: whose, and after which iteration it was made", () => {
  for (const name of ["shard_replaced", "stage_replaced"]) {
    const known = recorded(name);
    const [loss] = lossesOfRanks(known);
    assert.match(
      recoveryCost(loss, known),
      /rank 1 in a new process, from rank 0's copy, made after iteration 3, with iteration 4\./,
    );
    const lane = loss.lanes.findIndex(({ rank }) => rank === 1);
    const bar = loss.lanes[lane].bars.find(({ phase }) => phase === "restore");
    const [words] = recoveryLines(loss, lane, (bar.start + bar.end) / 2 - loss.origin);
    assert.match(words, /^rank 1, restore \(received from rank 0's copy, made after iteration 3, /);
  }
  const [replaced] = lossesOfRanks(recorded("server_replaced"));
  assert.ok(replaced.ends.first > replaced.ends.restore, "servers end an iteration with an update");
  const served = recorded("server_shrinks");
  assert.match(
    recoveryCost(lossesOfRanks(served)[0], served),
    /[\d,]+ keys of rank 1 went to rank 0, from the copy on rank 0: no update lost\./,
  );
});

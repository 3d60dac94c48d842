// Messages between two ranks: how they are cut into bursts, what a burst tells.
import assert from "node:assert/strict";
import { test } from "node:test";
import { preparedOf } from "../../assets/scenes/collectives/frame.js";
import { spaceKeys } from "../../assets/scenes/collectives/legend.js";
import { readingOf } from "../../assets/engine/rates.js";
import { openCallOf, sourceOf } from "../../assets/engine/call_source.js";
import { burstsOf } from "../../assets/engine/bursts_of_run.js";
import { collectiveSentence } from "../../assets/scenes/collectives/captions.js";
import { cellWords } from "../../assets/scenes/collectives/mark_captions.js";
import { frameAt } from "../../assets/engine/model.js";
import { receive, nothing } from "../../assets/engine/page_state.js";
import { RUN, batch, calls } from "./rows.js";
import { MS, bursts, cell, knownOf, lookOf, message } from "./p2p.js";

test(
  "messages that follow each other are one burst; " + "a silence, a collective and a cell end it",
  () => {
    const close = [...message(0, 1, 0, 1), ...message(1, 2, 0, 1.2), ...message(0, 1, 1, 1.5)];
    assert.deepEqual(
      bursts(knownOf(close)).map((b) => b.sends),
      [3],
    );
    assert.deepEqual(
      bursts(knownOf([...close, ...message(2, 3, 0, 9)])).map((b) => b.sends),
      [3, 1],
      "quiet for long",
    );
    const between = calls(1).map((r) => ({
      ...r,
      start: r.start + 1.7 * MS,
      end: r.end + 1.7 * MS,
    }));
    assert.deepEqual(
      bursts(knownOf([...close, ...between, ...message(2, 3, 0, 1.9)])).map((b) => b.sends),
      [3, 1],
      "a collective between them",
    );
    const cells = [0, 1, 2, 3].flatMap((rank) => [
      ...cell(rank, 1, 0.9, 1.65),
      ...cell(rank, 2, 1.7),
    ]);
    assert.deepEqual(
      bursts(knownOf([...cells, ...close, ...message(2, 3, 0, 1.8), ...message(2, 3, 1, 99)])).map(
        (b) => [b.name, b.sends],
      ),
      [
        ["cell 1", 3],
        ["cell 2", 2],
      ],
      "within a cell silence ends nothing",
    );
  },
);

test(
  "while something is on its way a burst goes on; where there are many it ends as soon as " +
    "all of it is there",
  () => {
    const many = (took) =>
      Array.from({ length: 40 }, (_, op) => message(0, 1, op, 1 + 0.5 * op, took)).flat();
    assert.deepEqual(
      [
        bursts(knownOf(many(30))).map((b) => b.sends),
        bursts(knownOf(many(0.1))).map((b) => b.sends),
      ],
      [[40], [32, 8]],
    );
  },
);

test("of which cell messages are is known also where that comes after them", () => {
  const rows = [...message(0, 1, 0, 1), ...message(0, 1, 1, 1.3)];
  const first = knownOf(rows);
  assert.deepEqual(
    bursts(first).map((b) => b.sends),
    [2],
  );
  const later = receive(
    first,
    ...batch([...cell(0, 1, 0.5, 1.15), ...cell(0, 2, 1.2)], {
      seq: 2,
      run: first.run,
      state: "finished",
      now: null,
    }),
    0,
  );
  assert.deepEqual(
    bursts(later).map((b) => [b.name, b.sends]),
    [
      ["cell 1", 1],
      ["cell 2", 1],
    ],
  );
});

test("the cut does not depend on the order in which rows come", () => {
  const rows = [
    ...[0, 1, 2, 3].flatMap((rank) => [...cell(rank, 1, 0, 3), ...cell(rank, 2, 4, 9)]),
    ...message(0, 1, 0, 1),
    ...message(1, 2, 0, 1.2, 4),
    ...message(2, 0, 0, 2),
    ...message(0, 1, 1, 5),
    ...message(3, 1, 0, 5.05),
  ];
  const whole = bursts(knownOf(rows)).map((b) => [b.key, b.start, b.end, b.sends, b.complete]);
  for (let turn = 0; turn < 24; turn++) {
    const mixed = rows
      .map((r, i) => [Math.sin(7 * i + turn), r])
      .sort((a, b) => a[0] - b[0])
      .map(([, r]) => r);
    let known = nothing();
    mixed.forEach((_, i) => {
      if (i % 3 === 0)
        ((known = receive(
          known,
          ...batch(mixed.slice(i, i + 3), {
            seq: i + 1,
            reset: i === 0 || undefined,
            run: { ...RUN, ranks: 4 },
            state: "finished",
            now: null,
          }),
          0,
        )),
          burstsOf(known));
    });
    assert.deepEqual(
      bursts(known).map((b) => [b.key, b.start, b.end, b.sends, b.complete]),
      whole,
    );
  }
});

test("a message is a chunk of its own: its sender has it, its receiver must", () => {
  const known = knownOf([
    ...message(0, 1, 0, 1),
    ...message(0, 2, 0, 1.05, 0),
    ...message(3, 0, 0, 1.1),
  ]);
  const [head] = bursts(known);
  const call = openCallOf(known, head.key, []);
  const reading = readingOf(call, known);
  assert.deepEqual(
    [reading.holdings.chunks, [...reading.holdings.owners], reading.holdings.ranks],
    [
      [0, 1, 2],
      [
        [0, 0],
        [1, 0],
        [2, 3],
      ],
      [0, 1, 2, 3],
    ],
  );
  assert.deepEqual(
    [...reading.holdings.asked],
    [0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0],
    "whom each is for",
  );
  assert.deepEqual(
    call.flights.map((f) => [f.from, f.to, f.chunk]),
    [
      [0, 1, 0],
      [3, 0, 2],
    ],
  );
  const t = call.end - call.start;
  const frame = frameAt(call, t);
  const look = lookOf(known, call, call.end);
  assert.deepEqual(
    frame.comets.map((c) => [c.chunk, c.share, c.lying]),
    [[1, 1, true]],
    "it lies there",
  );
  assert.match(
    collectiveSentence(look, reading, frame),
    /^Message 1, from rank 0 to rank 2, was never received\.$/,
  );
  assert.match(
    cellWords(reading, frame, 2 * 3 + 1, reading.holdings.first[2 * 3 + 1])[0],
    /rank 2, message 1: not received yet, 40 B from rank 0/,
  );
  assert.ok(
    spaceKeys(look, preparedOf(look, null)).some((k) => k.words === "has come, not received"),
  );
});

test(
  "while a cell goes on its last burst may grow; what explains messages otherwise is left " +
    "alone",
  () => {
    const rows = [...[0, 1].flatMap((rank) => cell(rank, 1, 0)), ...message(0, 1, 0, 1, 0)];
    const live = knownOf(rows, { state: "running", now: 2 * MS });
    assert.equal(bursts(live)[0].complete, false);
    assert.equal(bursts(knownOf(rows))[0].complete, true, "nothing more will come");
    assert.equal(burstsOf({ ...live, run: { ...live.run, pipeline: {} } }), null);
    assert.equal(sourceOf(live, []).calls.length, 1);
  },
);

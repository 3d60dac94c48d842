import assert from "node:assert/strict";
import { test } from "node:test";
import { frameAt, openCall } from "../../assets/engine/model.js";
import {
  causeOf,
  groupOf,
  heldUp,
  hopsOf,
  linkRates,
  madeLinks,
  median,
  readingOf,
  sentAt,
} from "../../assets/engine/rates.js";
import { boundsOf } from "../../assets/engine/bounds.js";
import { RUN, callOf, tableOf } from "./rows.js";
import { US, allRows, knownOf, ringRows, starRows } from "./simulated.js";

const reading = (n, rows, more) => {
  const known = knownOf(n, rows, more);
  return readingOf(openCall(known.table, known.table.calls[0]), known);
};
const emulated = [{ from: 2, to: 3, made: "emulated: 25 Mbit/s", down: false }];

test("a link's rate is that of its flights, its hop the least time that a chunk took", () => {
  const call = callOf(ringRows(4, { slow: [2, 5], hop: 300, nbytes: 240_000 }));
  const links = linkRates(call, hopsOf(call));
  assert.deepEqual([...links.keys()].sort(), ["0>1", "1>2", "2>3", "3>0"]);
  // with what passes from the end of the send to that of the receive, as in the words beside it
  for (const [key, link] of links) {
    const flown = call.flights.filter((f) => `${f.from}>${f.to}` === key);
    assert.equal(link.took, median(flown.map((f) => f.end - f.start)));
    assert.ok(Math.abs(link.rate - 60_000e9 / link.took) < 1, key);
    assert.ok(link.took > (key === "2>3" ? 1500 : 300) * US);
  }
  assert.equal(links.get("2>3").hop, 1500 * US);
});

test("one send that took long does not make a link slow", () => {
  const rows = ringRows(4);
  const one = rows.find((r) => r.kind === "send" && r.rank === 1 && r.step === 2);
  one.end += 50_000 * US;
  assert.equal(reading(4, rows).slowest, null);
});

test(
  "a slow link is named if even its fastest " + "chunk was slow and who received stood waiting",
  () => {
    const found = reading(4, ringRows(4, { slow: [2, 5] })).slowest;
    assert.deepEqual([found.from, found.to], [2, 3]);
    assert.equal(reading(4, ringRows(4)).slowest, null);
    assert.equal(
      reading(4, ringRows(4, { came: [0, 0, 5000, 0] })).slowest,
      null,
      "a rank that came late is no link",
    );
    assert.equal(
      reading(8, starRows(8, { came: [0, 0, 0, 0, 0, 0, 0, 9000] })).slowest,
      null,
      "one chunk a link proves nothing",
    );
  },
);

test(
  "where ranks share cores only a link that is slowed on purpose is named: else it may be " +
    "the scheduler",
  () => {
    const rows = ringRows(4, { slow: [2, 5] });
    assert.equal(reading(4, rows, { run: { cores: 2 } }).slowest, null);
    assert.deepEqual(reading(4, rows, { run: { cores: 2, emulated } }).slowest?.from, 2);
  },
);

test(
  "the ideal: theory's steps, each as fast as the fastest hop; nothing where theory is " +
    "unknown",
  () => {
    const even = reading(4, ringRows(4, { slow: [2, 5] }));
    assert.deepEqual([even.steps, even.hop, even.ideal], [6, 300 * US, 1800 * US]);
    assert.equal(even.bound, 1.5 * 240_000);
    const own = reading(
      4,
      ringRows(4).map((r) => ({ ...r, algorithm: "mine" })),
    );
    assert.deepEqual([own.steps, own.ideal, own.bound], [0, 0, 0]);
    // a group of three in a run of four: the formulas are for four
    const part = reading(4, ringRows(3));
    assert.deepEqual([part.steps, part.bound], [0, 0]);
  },
);

test("bytes sent meet the bound of the ring", () => {
  const { sends, most, bound } = reading(4, ringRows(4));
  assert.equal(most, bound);
  for (const mine of sends.values()) assert.equal(sentAt(mine, 1e12, 6).nbytes, bound);
});

test("each rank has its own bound, by the sizes that chunks have in the call", () => {
  // a bias of ten floats: chunks of 12, 12, 8 and 8 bytes
  const size = [12, 12, 8, 8];
  const rows = ringRows(4, { nbytes: 40 }).map((r) =>
    r.kind === "send" || r.kind === "recv" ? { ...r, nbytes: size[r.chunk] } : r,
  );
  const theory = { "all_reduce/ring": { steps: 6, share: 1.5 } };
  const sends = ["2112", "2211", "1221", "1122"];
  const told = { "all_reduce/ring": { ...theory["all_reduce/ring"], sends } };
  const own = reading(4, rows, { run: { theory: told } });
  assert.deepEqual(own.bounds, [60, 64, 60, 56]);
  for (const [place, rank] of own.holdings.ranks.entries())
    assert.equal(sentAt(own.sends.get(rank), 1e12, 6).nbytes, own.bounds[place]);
  assert.deepEqual(reading(4, rows, { run: { theory } }).bounds, [60, 60, 60, 60]);
  // of a tree each rank has another share; counted from the root
  const tree = { steps: 2, share: 2, shares: [2, 0, 1, 0] };
  const call = { nbytes: 100, left_out: "", rows: [] };
  assert.deepEqual(boundsOf(call, [0, 1, 2, 3], 1, tree), [0, 200, 0, 100]);
});

test("how far a rank is: the step that it is in, its bytes so far", () => {
  const { sends } = reading(4, ringRows(4, { hop: 300 }));
  const mine = sends.get(0);
  assert.deepEqual(sentAt(mine, -1, 6), { step: 0, begun: 0, nbytes: 0 });
  assert.deepEqual(sentAt(mine, 150 * US, 6), { step: 1, begun: 1 / 6, nbytes: 30_000 });
  assert.equal(sentAt(mine, 1e12, 6).step, 6);
  assert.deepEqual(sentAt(undefined, 0, 6), { step: 0, begun: 0, nbytes: 0 });
});

test(
  "who waits because of whom: from rank to rank, to a chunk on its way, or to one that has " +
    "not come",
  () => {
    const call = callOf(ringRows(4, { slow: [2, 20] }));
    const span = call.end - call.start;
    const held = Array.from(
      { length: 50 },
      (_, k) => heldUp(frameAt(call, (k / 50) * span), (cause) => cause.link === "2>3").length,
    );
    assert.equal(Math.max(...held), 3);
    const late = callOf(ringRows(4, { came: [0, 0, 9000, 0] }));
    const frame = frameAt(late, 5000 * US);
    assert.deepEqual(
      [...frame.waiting.keys()].map((r) => causeOf(frame, r)).map((c) => [c.end, c.why]),
      [
        [2, "late"],
        [2, "late"],
        [2, "late"],
      ].slice(0, frame.waiting.size),
    );
    assert.equal(causeOf(frame, 2).why, "busy");
  },
);

test("ranks that wait for each other are a circle, and end the search", () => {
  const waits = new Map(
    [
      [0, 1],
      [1, 0],
    ].map(([rank, peer]) => [rank, { rank, peer, name: "" }]),
  );
  assert.equal(causeOf({ t: 0, comets: [], waiting: waits, away: new Set() }, 0).why, "circle");
});

const level = (words) => ({ made: `emulated: ${words}`, down: false });

test("links that are our making: of the experiment, by hand, all of them", () => {
  const known = (run, links = []) => ({ run: { ...RUN, ...run }, control: { links } });
  assert.deepEqual(
    [...madeLinks(known({ emulated })).values()],
    [{ from: 2, to: 3, words: "emulated: 25 Mbit/s", down: false }],
  );
  assert.equal(
    madeLinks(known({}, [{ from: 0, to: 1, words: "", down: true }])).get("0>1").words,
    "cut",
  );
  assert.deepEqual(
    [...madeLinks(known({ link_levels: [level("1 ms")] }), ["0>1", "1>0"]).values()].map(
      (l) => l.words,
    ),
    ["emulated: 1 ms", "emulated: 1 ms"],
  );
  const racks = [level("1 µs"), level("1 ms"), { made: "cut", down: true }];
  const usual = madeLinks(known({ link_levels: racks, levels: [2, 2, 2] }), ["0>1", "0>2", "0>4"]);
  assert.deepEqual(
    [...usual.values()].map(({ words, down }) => [words, down]),
    [
      ["emulated: 1 µs", false],
      ["emulated: 1 ms", false],
      ["cut", true],
    ],
  );
});

test("a call that goes on has the members of an earlier one of its group", () => {
  const whole = ringRows(4);
  const later = ringRows(4, { context: { op: 1 } })
    .filter((r) => r.rank < 2 && r.kind !== "collective")
    .map((r) => ({ ...r, start: r.start + 1e8, end: r.end + 1e8 }));
  const table = tableOf([...whole, ...later]);
  const call = openCall(table, table.calls[1]);
  assert.equal(call.complete, false);
  assert.deepEqual(groupOf(table, call), [0, 1, 2, 3]);
});

test("everybody to everybody is a crowd", () => {
  assert.ok(reading(8, ringRows(8)).crowd <= 16); // one a link, and its successor while it is taken
  assert.ok(reading(8, allRows(8)).crowd > 24);
  assert.equal(median([3, 1, 2]), 2);
});

test(
  "a receiver that joined in late does not make its link's hops look short, nor the other " +
    "links slow",
  () => {
    const hop = 10_000 * US;
    const came = hop * 0.6;
    const base = { nbytes: 400, slot: 0, phase: "", name: "", lane: "comm", seq: 0 };
    const way = (rank, peer, start) => [
      { ...base, kind: "send", rank, peer, chunk: rank, step: 0, start, end: start + 40 * US },
      {
        ...base,
        kind: "wait",
        rank: peer,
        peer: rank,
        chunk: rank,
        step: 0,
        start: Math.max(start, peer === 1 ? came : 0),
        end: start + hop,
      },
      {
        ...base,
        kind: "recv",
        rank: peer,
        peer: rank,
        chunk: rank,
        step: 0,
        start: start + hop,
        end: start + hop + 40 * US,
      },
    ];
    const rows = [
      ...[0, 1, 2, 3].flatMap((r) => way(r, (r + 1) % 4, 0)),
      ...[0, 1, 2, 3].map((rank) => ({
        ...base,
        kind: "collective",
        rank,
        peer: -1,
        chunk: -1,
        step: -1,
        start: rank === 1 ? came : 0,
        end: 2 * hop,
      })),
    ];
    const call = callOf(
      rows.map((r) => ({
        op: 0,
        iteration: 0,
        generation: 0,
        microbatch: -1,
        stage: -1,
        version: -1,
        collective: "all_reduce",
        algorithm: "ring",
        group: "default",
        value: NaN,
        ...r,
      })),
    );
    assert.ok(
      hopsOf(call).every((ns) => ns >= hop),
      "a hop lasts from its send to its receive",
    );
    const links = linkRates(call, hopsOf(call));
    for (const [name, link] of links) if (link.awaited) assert.ok(link.hop >= hop, name);
    assert.equal(links.get("0>1").awaited, 0);
  },
);

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  carriedBy,
  drawPairs,
  pairWords,
  pairsGrid,
  spokenPairs,
  underPairs,
} from "../../assets/scenes/collectives/link_matrix.js";
import { barsOf, idealLines, shadowsOf, xOf } from "../../assets/drawing/lanes.js";
import { knownOfSide, pairNotes, pairsOf } from "../../assets/scenes/pair/call_source.js";
import { playheadOf, tell } from "../../assets/engine/player.js";
import { stepped } from "../../assets/engine/steps.js";
import { madeLinks, readingOf } from "../../assets/engine/rates.js";
import { INK, canvas, collisions } from "./canvas.js";
import { knownOf, lookAt, ringRows, US } from "./simulated.js";
import { SCHEDULES, scheduleRows } from "./schedules.js";

const PAIR = { left: { group: "ring", label: "ring" }, right: { group: "tree", label: "tree" } };
const APART = 20_000 * US; // between the starts of two pairs
/** Two pairs: a ring beside a tree, each from the same start. */
const both = (n = 4) =>
  [0, 1].flatMap((op) => [
    ...ringRows(n, { context: { op, group: "ring" } }).map((r) => ({
      ...r,
      start: r.start + op * APART,
      end: r.end + op * APART,
    })),
    ...scheduleRows("all_reduce/tree", n, { op, group: "tree", start: op * APART }),
  ]);
const known = (n = 4) => knownOf(n, both(n), { run: { pair: PAIR } });
const open = (page) => (key) => pairsOf(page).open(key);

test("two calls from one start are one piece of the tale, as long as the longer one", () => {
  const page = known();
  const pairs = pairsOf(page);
  const { calls } = page.table;
  assert.deepEqual(
    pairs.calls.map((c) => [c.key, c.group, c.iteration, c.complete]),
    [
      ["pair/1", "pairs", 1, true],
      ["pair/2", "pairs", 2, true],
    ],
  );
  for (const [k, pair] of pairs.calls.entries()) {
    const own = pairs.keys(pair.key).map((key) => page.table.callOf.get(key));
    assert.deepEqual(
      own.map((c) => [c.group, c.op]),
      [
        ["ring", k],
        ["tree", k],
      ],
    );
    assert.deepEqual([pair.start, pair.end], [own[0].start, Math.max(own[0].end, own[1].end)]);
    const call = pairs.open(pair.key);
    assert.equal(call.flights.length, 24 + 6, "those of both");
    for (const f of call.flights) assert.ok(f.start >= 0 && f.end <= call.end - call.start);
  }
  const turned = pairsOf(
    knownOf(4, both(), { run: { pair: { left: PAIR.right, right: PAIR.left } } }),
  ).calls.map((c) => [c.start, c.end]);
  assert.deepEqual(
    turned,
    pairs.calls.map((c) => [c.start, c.end]),
    "whichever is on the left",
  );
  assert.equal(calls.length, 4);
  assert.equal(pairsOf(knownOf(4, both())), null, "another page has none");
});

test("one playhead goes through both, and steps from arrival to arrival of either", () => {
  const page = known();
  const pairs = pairsOf(page);
  const tale = { ...page, table: pairs };
  const player = tell(
    {
      live: false,
      held: null,
      key: "",
      began: 0,
      at0: 0,
      rate: 1,
      rows: 0,
      pace: 0,
      lag: 0,
      t: 0,
    },
    "pair/1",
    0,
  );
  const [first] = pairs.calls;
  const moments = pairs.open("pair/1").moments;
  assert.equal(playheadOf(player, tale, 1e9, open(page)), first.end);
  let t = first.start;
  for (const moment of moments.slice(0, 5))
    assert.equal((t = stepped(tale, t, "chunk", 1, open(page))), first.start + moment);
  assert.equal(stepped(tale, first.start + 10, "iteration", 1, open(page)), pairs.calls[1].start);
});

test("bars and ideal steps on a longer axis keep their times", () => {
  const look = lookAt(4, ringRows(4), 1);
  const reading = readingOf(look.call, look.known);
  const span = look.call.end - look.call.start;
  const wide = 960;
  const [own, longer] = [span, 3 * span].map((s) => barsOf(look.call, wide, 4, s));
  const zero = xOf(0, span, wide);
  own.forEach((bar, i) => assert.ok(Math.abs((bar.x - zero) / 3 - (longer[i].x - zero)) < 1e-6));
  assert.ok(
    Math.abs(
      (idealLines(reading, wide).at(-1).x - zero) / 3 -
        (idealLines(reading, wide, 3 * span).at(-1).x - zero),
    ) < 1e-6,
  );
});

test("ideal steps are as long as their messages need: halves take half as long", () => {
  const n = 8;
  const name = "all_reduce/rabenseifner";
  const theory = { [name]: { steps: 6, share: 1.75 } };
  const rows = scheduleRows(name, n, { hop: 100 });
  const look = lookAt(n, rows, 1, { known: { run: { theory } } });
  const { edges, ideal } = readingOf(look.call, look.known);
  const lasts = edges.map((end, i) => end - (edges[i - 1] ?? 0));
  assert.equal(edges.length, 6);
  assert.equal(ideal, edges[5]);
  assert.ok(
    lasts[0] > lasts[1] && lasts[1] > lasts[2] && lasts[3] < lasts[4] && lasts[4] < lasts[5],
    `${lasts}`,
  );
  const none = lookAt(
    n,
    rows.filter((r) => r.step !== 3),
    1,
    { known: { run: { theory } } },
  );
  assert.deepEqual(
    readingOf(none.call, none.known).edges,
    [],
    "steps that are not theory's have no ideal",
  );
});

test(
  "the plan's shadow lies below each rank that sends in a step, from the step's start to its " +
    "end",
  () => {
    const look = lookAt(4, ringRows(4, { slow: [2, 6] }), 1);
    const reading = readingOf(look.call, look.known);
    const span = look.call.end - look.call.start;
    const shadows = shadowsOf(reading, 960, 4);
    assert.equal(
      shadows.length,
      new Set(look.call.rows.filter((r) => r.kind === "send").map((r) => `${r.rank} ${r.step}`))
        .size,
    );
    const starts = [0, ...reading.edges].map((t) => xOf(t, span, 960));
    for (const s of shadows)
      assert.ok(
        starts.some((x) => Math.abs(x - s.x) < 0.01) &&
          starts.some((x) => Math.abs(x - 1 - s.x - s.w) < 0.01),
      );
    assert.deepEqual(
      shadowsOf({ ...reading, ideal: 2 * span }, 960, 4),
      [],
      "none where the call was faster",
    );
  },
);

// ---- links as a table

test(
  "what each link carries: its sends' bytes and times, by any moment; in the end all that " +
    "was sent",
  () => {
    for (const name of Object.keys(SCHEDULES)) {
      const look = lookAt(8, scheduleRows(name, 8), 1);
      const reading = readingOf(look.call, look.known);
      const span = look.call.end - look.call.start;
      const sends = look.call.rows.filter((r) => r.kind === "send");
      const sum = (t, what) =>
        [...carriedBy(reading, t).values()].reduce((all, l) => all + l[what], 0);
      assert.ok(
        Math.abs(sum(span, "nbytes") - sends.reduce((all, r) => all + r.nbytes, 0)) < 1e-6,
        name,
      );
      assert.equal(sum(span, "messages"), sends.length);
      let before = 0;
      for (let k = 0; k <= 20; k++) {
        const t = (span * k) / 20;
        const now = sum(t, "nbytes");
        assert.ok(now >= before - 1e-6, "never less than before");
        before = now;
        for (const l of carriedBy(reading, t).values())
          assert.ok(l.busy >= 0 && l.busy <= t + 1e-6, "never busier than all the time");
      }
    }
  },
);

test("pieces that leave at once are busy once", () => {
  const look = lookAt(2, ringRows(2, { slots: 4 }), 1);
  const reading = readingOf(look.call, look.known);
  const sends = look.call.rows.filter((r) => r.kind === "send" && r.rank === 0);
  const doubled = {
    ...reading,
    call: {
      ...look.call,
      rows: [...look.call.rows, ...sends.map((r) => ({ ...r, slot: r.slot + 4 }))],
    },
  };
  assert.equal(carriedBy(doubled, 1e12).get("0>1").busy, carriedBy(reading, 1e12).get("0>1").busy);
});

test(
  "no word of the table lies over another, and the pair under the pointer is the one drawn " +
    "there",
  () => {
    for (const n of [2, 4, 8, 16, 32])
      for (const width of [300, 399, 608]) {
        const look = lookAt(n, n < 32 ? scheduleRows("all_to_all/pairwise", n) : ringRows(n), 0.7, {
          ink: INK,
        });
        const reading = readingOf(look.call, look.known);
        const grid = pairsGrid(n, width, 392);
        const g = canvas();
        const span = look.call.end - look.call.start;
        drawPairs(g, look, grid, reading, 0.7 * span, 0.7 * span);
        const texts = g.drawn.filter((d) => d.kind === "text");
        assert.deepEqual(
          collisions(g.drawn).filter((c) => !/ring of ranks/.test(c)),
          [],
          `${n} ranks, ${width} px`,
        );
        for (const t of texts)
          assert.ok(
            t.size >= 11 && t.x >= -0.5 && t.x + t.w <= width + 1 && t.y + t.h <= 393,
            `${t.text}: ${n}, ${width}`,
          );
        for (const [from, to] of [
          [0, 1],
          [n - 1, 0],
        ])
          assert.deepEqual(
            underPairs(
              grid,
              grid.left + (to + 0.5) * grid.pitch,
              grid.top + (from + 0.5) * grid.pitch,
            ),
            { from, to },
          );
        assert.equal(
          underPairs(grid, grid.left + 0.5 * grid.pitch, grid.top + 0.5 * grid.pitch),
          null,
          "nobody sends to itself",
        );
        assert.match(pairWords(reading, 0, 1, span)[0], /rank 0 → rank 1: /);
        assert.match(spokenPairs(reading, span), /rank 0 to rank 1: .* busy \d+ %/);
      }
  },
);

test("a link that is emulated on one side is drawn so on that side alone", () => {
  const slow = { from: 0, to: 1, made: "emulated: 10 Mbit/s", down: false, words: "" };
  const sides = { left: { ...PAIR.left, own: { emulated: [] } }, right: { ...PAIR.right } };
  sides.right.own = { emulated: [slow] };
  const page = knownOf(4, both(), { run: { pair: sides } });
  assert.deepEqual([...madeLinks(knownOfSide(page, 0)).keys()], []);
  assert.deepEqual([...madeLinks(knownOfSide(page, 1)).keys()], ["0>1"]);
  assert.equal(knownOfSide(known(), 0).run.pair, PAIR, "of one that tells nothing: as it is");
});

test("what was made by us stands once where both have it, and a link has its name once", () => {
  const [both, slow] = ["slowed ×10", "link 0 → 1 emulated: 1 Mbit/s"];
  const side = (label, ...notes) => ({ group: label, label, notes });
  const left = side("link 0 → 1 unlimited", both);
  assert.deepEqual(pairNotes({ left, right: side("link 0 → 1 at 1 Mbit/s", both, slow) }), [
    both,
    slow,
  ]);
  assert.deepEqual(pairNotes({ left, right: side("5 ranks", slow) }), [
    `${left.label}: ${both}`,
    `5 ranks: ${slow}`,
  ]);
  assert.deepEqual(pairNotes(null), []);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { besideRanks, preparedOf } from "../../assets/scenes/collectives/frame.js";
import { contentKeys, pairKeys, spaceKeys } from "../../assets/scenes/collectives/legend.js";
import { drawScore, scoreHeight } from "../../assets/drawing/lanes.js";
import { CellLayer, drawArriving, drawFrame } from "../../assets/scenes/collectives/matrix.js";
import { drawCounters } from "../../assets/scenes/collectives/counters.js";
import { drawSpace, drawWays } from "../../assets/scenes/collectives/ring_draw.js";
import { lastMoments } from "../../assets/scenes/collectives/moments.js";
import { drawPairs, pairsGrid } from "../../assets/scenes/collectives/link_matrix.js";
import { openCall } from "../../assets/engine/model.js";
import { readingOf } from "../../assets/engine/rates.js";
import { INK, canvas, collisions, onto } from "./canvas.js";
import { allRows, lookAt, ringRows, starRows } from "./simulated.js";
import { sample } from "./sample.js";

const LATE = (n) => Array.from({ length: n }, (_, r) => (r === n - 1 ? 900 : r * 10));
const CALLS = [
  ["even ring", (n) => ringRows(n)],
  ["slow ring", (n) => ringRows(n, { slow: [n > 2 ? 2 : 0, 6] })],
  ["late ring", (n) => ringRows(n, { came: LATE(n), slots: 3 })],
  ["star", (n) => starRows(n, { came: LATE(n) })],
  ["all", (n) => allRows(n, { came: LATE(n) })],
];
const MADE = (n) => ({
  run: {
    emulated: [
      {
        from: n > 2 ? 2 : 0,
        to: n > 2 ? 3 % n : 1,
        made: "emulated: 25 Mbit/s",
        down: false,
      },
    ],
  },
});
const MOMENTS = [0, 0.13, 0.31, 0.5, 0.72, 0.97];

/** Both pictures and the score of a look, as they are drawn, each on a canvas of its own. */
function drawn(look) {
  const seen = preparedOf(look, null);
  const ring = canvas();
  const matrix = canvas();
  const score = canvas();
  drawWays(
    ring,
    INK,
    seen.place,
    seen.reading,
    seen.scale,
    seen.emulated,
    new Set(seen.ranks.filter((s) => s.ended).map((s) => s.rank)),
  );
  const below = drawSpace(ring, look, seen, {});
  onto(matrix);
  new CellLayer().update(look, seen.grid, seen.reading, seen.states, seen.t, seen.tall);
  drawArriving(matrix, INK, seen.grid, seen.reading, seen.frame);
  drawCounters(matrix, look, seen.grid, seen.reading, seen.t, seen.t);
  drawFrame(matrix, look, seen.grid, seen.reading);
  onto(score);
  drawScore(score, look);
  return {
    seen,
    below,
    pictures: {
      ring: [ring.drawn, seen.left, seen.height],
      matrix: [matrix.drawn, seen.right, seen.tall],
      score: [score.drawn, look.width, scoreHeight(look.ranks)],
    },
  };
}

for (const n of [2, 4, 8, 16])
  for (const width of sample([608, 928]))
    test(
      "no word lies over a mark or another word, all are in the picture, none is below 11 " +
        `px: ${n} ranks, ${width} px`,
      () => {
        for (const [name, rows] of CALLS)
          for (const share of MOMENTS) {
            const look = lookAt(n, rows(n), share, { width, ink: INK, known: MADE(n) });
            for (const [picture, [marks, w, h]] of Object.entries(drawn(look).pictures)) {
              const texts = marks.filter((d) => d.kind === "text");
              const where = `${picture} of a ${name} at ${share}`;
              assert.ok(texts.length, where);
              assert.deepEqual(collisions(marks), [], where);
              for (const text of texts) {
                assert.ok(text.size >= 11, `${text.text} has ${text.size} px: ${where}`);
                assert.ok(
                  text.x >= -0.5 &&
                    text.x + text.w <= w + 1 &&
                    text.y >= -2 &&
                    text.y + text.h <= h + 1,
                  `${text.text} is cut off: ${where}, ${JSON.stringify(text)} in ${w} × ${h}`,
                );
              }
            }
          }
      },
    );

test("words above the counters keep apart, also of 64 ranks in 126 steps", () => {
  const look = lookAt(64, ringRows(64), 0.5, { width: 928, ink: INK, known: MADE(64) });
  const words = drawn(look).pictures.matrix[0].filter((d) => d.kind === "text" && d.y < 30);
  const [ideal, bound] = ["ideal", "bound"].map((word) =>
    words.find(({ text }) => text.startsWith(word)),
  );
  assert.ok(ideal.x + ideal.w + 8 <= bound.x, `${ideal.x} ${ideal.w} ${bound.x}`);
  assert.ok(words.some(({ text }) => text === "step of 126"));
});

test("a collision would be seen", () => {
  const g = canvas();
  g.fillText("waits", 50, 50);
  g.arc(60, 46, 5, 0, 7);
  g.fill();
  assert.equal(collisions(g.drawn).length, 1);
  const h = canvas();
  for (const x of [10, 20]) h.fillText("rank 1", x, 20);
  assert.equal(collisions(h.drawn).length, 1);
});

test("every mark has its key, at any width", () => {
  const look = lookAt(8, ringRows(8, { slow: [2, 6], came: LATE(8).map((t) => 9 * t) }), 0.5, {
    ink: INK,
    known: {
      ...MADE(8),
      control: {
        held: true,
        standing: [1],
        frozen: [3],
        slow: { 4: 2 },
        ended: { 5: "was killed" },
      },
    },
    live: true,
  });
  const seen = preparedOf({ ...look, t: look.call.end }, null);
  const words = spaceKeys(look, seen)
    .map((k) => k.words)
    .join("; ");
  for (const mark of [
    "from send to receipt",
    "on its way",
    "waits",
    "has not joined in yet",
    "emulated",
    "ended",
    "held by you",
    "frozen by you",
    "computes slower",
  ])
    assert.ok(words.includes(mark), `${mark} is not in: ${words}`);
  assert.deepEqual(
    contentKeys(look, seen).map((k) => k.words),
    ["sum of ranks 0, 1, 2 so far: place = rank", "complete", "arriving"],
  );
});

test("wrong cells have keys of their own", () => {
  const rows = ringRows(4).filter((r) => !(r.kind === "recv" && r.rank === 2 && r.step === 1));
  const look = lookAt(4, rows, 1, { ink: INK });
  assert.ok(
    contentKeys(look, preparedOf(look, null)).some((k) => k.words === "missing at the end"),
  );
  const { pictures } = drawn(look);
  assert.ok(
    pictures.matrix[0].some((d) => d.ink === "fault"),
    "drawn in red",
  );
});

test("at most three waits are said, the longest", () => {
  const rows = ringRows(16, { slow: [2, 9] });
  for (const share of MOMENTS) {
    const seen = preparedOf(lookAt(16, rows, share, { ink: INK }), null);
    const said = besideRanks(seen);
    assert.ok(said.length <= 3);
    const shortest = Math.min(...said.map((s) => seen.t - seen.frame.waiting.get(s.rank).start));
    const span = seen.reading.call.end - seen.reading.call.start;
    for (const [rank, w] of seen.frame.waiting)
      if (!said.some((s) => s.rank === rank) && w.end - w.start > 0.02 * span)
        assert.ok(said.length === 3 && seen.t - w.start <= shortest);
  }
});

test(
  "words beside ranks change four times a second while the picture moves, and at once where " +
    "it is held",
  () => {
    const rows = ringRows(4, { slow: [2, 6] });
    const at = (share, at, held, before) =>
      preparedOf(lookAt(4, rows, share, { ink: INK, at, held }), before);
    const first = at(0.4, 1000, false, null);
    const second = at(0.42, 1100, false, first);
    const third = at(0.47, 1260, false, second);
    assert.equal(second.text.t, first.text.t);
    assert.ok(third.text.t > second.text.t);
    assert.equal(at(0.48, 1270, true, third).text.t, at(0.48, 0, true, null).t);
  },
);

test(
  "a place once given to a rank is kept by all " + "that talk in one shape; the height by all",
  () => {
    for (const n of [4, 8, 16]) {
      const [first, ...others] = CALLS.map(([, rows]) =>
        preparedOf(lookAt(n, rows(n), 0.5, { ink: INK }), null),
      );
      for (const other of others) {
        if (other.place.shape.kind === first.place.shape.kind)
          assert.deepEqual(other.place.nodes, first.place.nodes);
        assert.equal(other.height, first.height);
      }
    }
  },
);

test(
  "what is done to the ranks now is not drawn into the past; a rank has ended from its last " +
    "row on",
  () => {
    const rows = ringRows(4);
    const known = {
      control: { held: true, standing: [0, 1, 2, 3], ended: { 1: "was killed" }, frozen: [2] },
    };
    const past = preparedOf(lookAt(4, rows, 0.5, { ink: INK, known }), null);
    assert.ok(past.ranks.every((s) => !s.held && !s.frozen && !s.ended));
    const now = preparedOf(lookAt(4, rows, 1, { ink: INK, known }), null);
    assert.deepEqual(
      now.ranks.map((s) => [s.held, s.frozen, s.ended]),
      [
        [true, false, ""],
        [true, false, "was killed"],
        [true, true, ""],
        [true, false, ""],
      ],
    );
  },
);

test("while the ranks are held a wait is seen before it has a row", () => {
  const rows = ringRows(4).filter((r) => r.kind !== "collective");
  const lane = {
    rank: 3,
    lane: "comm",
    kind: "wait",
    peer: 2,
    group: "default",
    op: 0,
    step: 5,
    chunk: 1,
    since: 0,
    values: [],
  };
  const at = (held, op = 0) =>
    preparedOf(
      lookAt(4, rows, 1, {
        ink: INK,
        known: { control: { held, standing: [0] }, lanes_now: [{ ...lane, op }] },
      }),
      null,
    ).ranks.map((s) => !!s.blocked);
  assert.deepEqual(at(true), [false, false, false, true]);
  assert.deepEqual([at(false)[3], at(true, 7)[3]], [false, false]);
});

test(
  "the first rank of a group that is not the world is no other's colour, and others are " +
    "outside",
  () => {
    const rows = ringRows(3).map((r) => ({
      ...r,
      rank: 2 * r.rank,
      peer: r.peer < 0 ? -1 : 2 * r.peer,
    }));
    const seen = preparedOf(lookAt(6, rows, 0.5, { ink: INK }), null);
    assert.deepEqual(
      seen.ranks.map((s) => s.member),
      [true, false, true, false, true, false],
    );
    assert.equal(seen.grid.rows, 3);
  },
);

for (const width of sample([608, 928]))
  test(
    "where rows do not say whose parts are held, the picture says so and nothing is called " +
      `complete: ${width} px`,
    () => {
      const untold = (/** @type {any} */ r) =>
        r.kind === "collective" ? { ...r, phase: "untold" } : r;
      const coarser = (/** @type {any} */ r) =>
        r.rank === 1 && r.kind === "send" ? { ...r, slot: -1, value: 4 } : r;
      for (const [n, change] of [2, 4, 8].flatMap((n) =>
        [untold, coarser].map((how) => [n, how]),
      )) {
        const rows = ringRows(n).map(change);
        const look = lookAt(n, rows, 0.97, { width, ink: INK, known: {} });
        const { seen, pictures } = drawn(look);
        const [marks, w, h] = pictures.matrix;
        const texts = marks.filter((d) => d.kind === "text");
        assert.ok(
          texts.some((d) => d.text.startsWith("Not recorded.")),
          `${n} ranks`,
        );
        assert.deepEqual(collisions(marks, w, h), []);
        const told = lastMoments(seen.reading, Infinity, 99).map(([, what]) => what);
        assert.ok(
          told.length >= n && !told.some((what) => /complete|contributions/.test(what)),
          told.join("; "),
        );
        const known = preparedOf(
          lookAt(n, ringRows(n), 0.97, { width, ink: INK, known: {} }),
          null,
        );
        assert.ok(
          lastMoments(known.reading, Infinity, 99).some(([, what]) => what.endsWith(": complete")),
        );
      }
    },
  );

test("a rank's number of three digits lies on its mark beside the cells", () => {
  const far = (rank) => (rank < 0 ? rank : rank + 992);
  const rows = ringRows(8).map((r) => ({ ...r, rank: far(r.rank), peer: far(r.peer) }));
  const look = lookAt(1000, rows, 0.5, { width: 928, ink: INK, known: {} });
  const { pictures, seen } = drawn(look);
  const marks = pictures.matrix[0];
  const numbers = marks.filter((d) => d.kind === "text" && /^99\d$/.test(d.text) && d.x < 26);
  assert.equal(numbers.length, 8);
  for (const { text, x, y, w, h } of numbers)
    assert.ok(
      marks.some(
        (d) =>
          d.kind === "box" &&
          d.filled &&
          d.x <= x &&
          d.x + d.w >= x + w &&
          d.y <= y &&
          d.y + d.h >= y + h &&
          d.x + d.w < 26,
      ),
      text,
    );
  const keys = spaceKeys(look, seen).map((key) => key.words);
  assert.ok(keys.includes("992 ranks not in this group"), keys.join());
});

test("links stay when a rank dies in a call, and are there before its first chunk", () => {
  const whole = ringRows(4, { context: { op: 0 } });
  const next = ringRows(4, { context: { op: 1 } }).map((r) => ({
    ...r,
    start: r.start + 10_000_000,
    end: r.end + 10_000_000,
  }));
  const first = Math.min(...next.map((r) => r.start));
  // rank 2 ends before it sends: the others come as far as the first step
  const broken = next.filter(
    (r) => r.kind !== "collective" && r.rank !== 2 && r.end <= first + 320_000,
  );
  const look = lookAt(4, [...whole, ...broken], 1, { ink: INK });
  const call = openCall(look.table, look.table.calls.at(-1));
  assert.ok(!call.complete && readingOf(call, look.known).links.size < 4, "not all were used");
  const seen = preparedOf({ ...look, call, t: call.start }, null);
  assert.deepEqual(
    seen.place.links,
    preparedOf(lookAt(4, whole, 1, { ink: INK }), null).place.links,
  );
  assert.equal(seen.place.links.length, 4);
});

test("the table of links marks those that are emulated, and its key says so", () => {
  for (const [made, dashed] of [
    [{}, 0],
    [MADE(4), 1],
    [{ run: { link_levels: [{ made: "emulated: 5 ms", down: false }] } }, 4],
  ]) {
    const look = lookAt(4, ringRows(4), 0.5, { ink: INK, known: made });
    const seen = preparedOf(look, null);
    const g = canvas();
    drawPairs(g, look, pairsGrid(4, seen.left, seen.height), seen);
    assert.equal(g.drawn.filter((mark) => mark.dashed && mark.ink === "hold").length, dashed);
    const said = pairKeys(look, seen).some((key) => /^emulated/.test(key.words));
    assert.equal(said, dashed > 0);
    assert.equal(
      spaceKeys(look, seen).some((key) => /^emulated/.test(key.words)),
      dashed > 0,
    );
  }
});

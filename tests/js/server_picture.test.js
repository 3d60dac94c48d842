import assert from "node:assert/strict";
import { test } from "node:test";
import {
  chartHeight,
  drawStairs,
  drawStaleness,
  stairsOf,
  stalenessOf,
} from "../../assets/scenes/server/charts.js";
import { Chart } from "../../assets/drawing/chart.js";
import { drawShares, sharesUntil } from "../../assets/scenes/server/shares_chart.js";
import { drawPicture as drawServer } from "../../assets/scenes/server/draw.js";
import { boundOf, frameOf as serverFrame } from "../../assets/scenes/server/frame.js";
import {
  aheadOf,
  binHeights,
  columnX,
  columnsFor,
  placeOf as serverPlace,
  wayPoint,
  workerSpot,
} from "../../assets/scenes/server/place.js";
import { roundsOf } from "../../assets/scenes/server/call_source.js";
import { drawScore as drawServerScore, roundBars } from "../../assets/scenes/server/score.js";
import { scoreHeight } from "../../assets/drawing/lanes.js";
import { INK as SOME, canvas, collisions, onto } from "./canvas.js";
import { knownOf } from "./simulated.js";
import { RULES, served } from "./served.js";
import { sample, smaller } from "./sample.js";

const INK = {
  ...SOME,
  ...Object.fromEntries([0, 1, 2, 3, 4, 5, 6, 7].map((k) => [`age-${k}`, `age-${k}`])),
};
const RUNS = [
  ["3 × 1, bsp", { workers: 3, shares: [1], rule: "bsp" }],
  ["3 × 3, dssp", { workers: 3, shares: [0.667, 0.167, 0.166], rule: "dssp", slack: 5 }],
  ["4 × 2, ssp", {}],
  ["4 × 2, a worker lost", { lost: { worker: 1, at: 200 }, iterations: 40 }],
  ["8 × 4, asp", { workers: 8, shares: [0.4, 0.3, 0.2, 0.1], rule: "asp" }],
  ["16 × 2, ssp", { workers: 16, shares: [0.5, 0.5] }],
  [
    "16 × 8, asp, a worker lost",
    { workers: 16, shares: Array(8).fill(0.125), rule: "asp", lost: { worker: 3, at: 300 } },
  ],
  ["24 × 1, ssp", { workers: 24, shares: [1] }],
  [
    "far apart",
    { workers: 4, shares: [1], rule: "asp", iterations: 120, compute: (w) => (w === 3 ? 400 : 10) },
  ],
];

/** What the scene sees at t. */
function seenAt(how, t, width, incidents = new Map()) {
  const rule = { ...RULES[how.rule ?? "ssp"], servers: (how.shares ?? [1, 1]).length };
  const S = rule.servers;
  const rows = (how.rows ??= served(how));
  const known = (how.known ??= knownOf(S + (how.workers ?? 4), rows, {
    run: { server: rule, iterations: 24 },
  }));
  const { table } = known;
  const rounds = roundsOf(table);
  const { index } = rounds;
  const at = table.from + t * (table.to - table.from);
  const frame = serverFrame(index, rule, at, how.iterations ?? 24);
  const place = serverPlace(
    width,
    frame.workers.length,
    frame.shards.map((s) => s.share),
    aheadOf(rule, frame, rounds.lead(at)),
    known.run.iterations,
  );
  const nth = (rank, all) => all.findIndex((one) => one.rank === rank);
  const comets = frame.comets.map((c) => ({
    ...c,
    ...(c.kind === "push"
      ? wayPoint(place, nth(c.from, frame.workers), nth(c.to, frame.shards), c.share)
      : wayPoint(place, nth(c.to, frame.workers), nth(c.from, frame.shards), 1 - c.share)),
  }));
  const current = rounds.open(rounds.callAt(at).key);
  const look = {
    table,
    known,
    call: null,
    current,
    t: at,
    live: false,
    held: true,
    ranks: known.run.ranks,
    ink: INK,
    font: "sans-serif",
    width,
    ratio: 1,
    at: 0,
    choice: null,
  };
  return { look, rounds, seen: { place, frame, index, rule, comets, incidents } };
}

const MOMENTS = [0.02, 0.11, 0.23, 0.31, 0.42, 0.57, 0.66, 0.78, 0.89, 0.99];
for (const [name, how] of smaller(RUNS, ["16 × 2, ssp", "24 × 1, ssp", "8 × 4, asp"]))
  for (const width of [218, ...sample([608, 928])])
    test(
      "no word lies over a mark or another word, all are in the picture, none is below 11 " +
        `px: ${name}, ${width} px`,
      () => {
        for (const moment of MOMENTS) {
          const { look, rounds, seen } = seenAt(how, moment, width);
          const where = `${name} at ${moment}`;
          const { index, rule } = seen;
          const workers = seen.frame.workers.length;
          const g = canvas();
          onto(g);
          const texts = (drawn, w, h) => {
            const all = drawn.filter((d) => d.kind === "text");
            assert.ok(all.length, where);
            for (const text of all) {
              assert.ok(text.size >= 11, `${text.text} has ${text.size} px: ${where}`);
              assert.ok(
                text.x >= -0.5 &&
                  text.x + text.w <= w + 1 &&
                  text.y >= -2 &&
                  text.y + text.h <= h + 1,
                `${text.text} is cut off: ${where}, ${JSON.stringify(text)} in ${w} × ${h}`,
              );
            }
          };
          drawServer(g, look, seen);
          assert.deepEqual(
            collisions(g.drawn.filter((d) => d.ink !== "rule" || d.kind === "text")),
            [],
            where,
          ); // hairlines may pass behind
          texts(g.drawn, width, seen.place.height);
          for (const [draw, wide] of [
            [(c) => drawStairs(c, index, rounds, rule, look.t, -1), width > 700 ? 400 : 608],
            [(c) => drawStaleness(c, stalenessOf(index, look.t), { ...rule, drop_above: 4 }), 264],
            [(c) => drawShares(c, sharesUntil(index, look.t, boundOf(rule, 24))), 264],
            [(c) => drawStaleness(c, stalenessOf(index, look.t), { ...rule, drop_above: 4 }), 204],
            [(c) => drawShares(c, sharesUntil(index, look.t, boundOf(rule, 24))), 204],
          ]) {
            const chart = new Chart({
              g: canvas(),
              ink: INK,
              font: "sans-serif",
              ratio: 1,
              width: wide,
              height: chartHeight(workers),
            });
            draw(chart);
            const marks = chart.g.drawn;
            const own = marks.filter((d) => d.kind === "text");
            texts(marks, wide, chart.height);
            assert.deepEqual(collisions(own), [], `${where}: words of a chart, ${draw}`);
          }
          const score = canvas();
          drawServerScore(score, look, index, boundOf(rule, 24));
          texts(score.drawn, width, scoreHeight(look.ranks));
          assert.deepEqual(collisions(score.drawn.filter((d) => d.kind === "text")), [], where);
        }
      },
    );

test("the wall keeps its place, workers stand before it, and who is blocked touches it", () => {
  const how = {};
  const walls = new Set();
  let touched = 0;
  for (let i = 1; i < 300; i++) {
    const { place, frame } = seenAt(how, i / 300, 928).seen;
    frame.workers.forEach((w, k) => {
      const wall = columnX(place, w.limit + 1, frame.min);
      const { x } = workerSpot(place, k, w, frame.min);
      walls.add(wall);
      assert.ok(x + place.ring <= wall + 0.5);
      if (w.doing === "blocked")
        (assert.ok(wall - x - place.ring < 10, "it touches"), (touched += 1));
      else if (w.iteration < w.limit)
        assert.ok(wall - x - place.ring > place.column * 0.4, "it does not");
    });
  }
  assert.equal(walls.size, 1);
  assert.ok(touched > 20);
});

test(
  "a blocked worker can be found without reading: hatched to the wall, its ring dashed, and " +
    "nobody else's is",
  () => {
    const how = {};
    let blocked = 0;
    for (const moment of Array.from({ length: 60 }, (_, i) => (i + 1) / 61)) {
      const { look, seen } = seenAt(how, moment, 928);
      const g = canvas();
      onto(g);
      drawServer(g, look, seen);
      const rings = g.drawn.filter((d) => d.kind === "round" && d.ink === "wait" && d.dashed);
      const stopped = seen.frame.workers.filter((w) => w.doing === "blocked");
      assert.equal(rings.length, stopped.length);
      stopped.forEach((w, i) =>
        assert.equal(
          rings[i].cx,
          workerSpot(seen.place, seen.frame.workers.indexOf(w), w, seen.frame.min).x,
        ),
      );
      blocked += stopped.length;
    }
    assert.ok(blocked > 10);
  },
);

test("a worker is tinted by what it lacks of each shard, and has a notch for every update", () => {
  const how = { rule: "asp" };
  let most = 0;
  for (const moment of MOMENTS) {
    const { look, seen } = seenAt(how, moment, 928);
    const g = canvas();
    onto(g);
    drawServer(g, look, seen);
    seen.frame.workers.forEach((w, i) => {
      const y = seen.place.top + i * seen.place.lane;
      const notches = g.drawn.filter(
        (d) =>
          d.kind === "box" &&
          /^age/.test(d.ink) &&
          d.x < seen.place.left - 20 &&
          d.y > y &&
          d.y < y + seen.place.lane,
      );
      assert.equal(notches.length, Math.min(8, w.worst));
      const { x } = workerSpot(seen.place, i, w, seen.frame.min);
      const tints = g.drawn
        .filter(
          (d) =>
            d.kind === "round" &&
            d.filled &&
            /^age/.test(d.ink) &&
            d.cx === x &&
            Math.abs(d.cy - y - 22) < 8,
        )
        .map((d) => d.ink);
      assert.deepEqual(
        tints,
        w.held
          .map((v, k) => (v < 0 ? "none" : `age-${Math.min(7, w.behind[k])}`))
          .filter((t) => t !== "none"),
      );
      most = Math.max(most, w.worst);
    });
  }
  assert.ok(most >= 3);
});

test("a track has no more columns than a short run has iterations, and none before its first", () => {
  for (const iterations of [1, 6, 9]) {
    const short = serverPlace(928, 4, [1], 4, iterations);
    assert.equal(short.columns, Math.max(6, iterations + 1));
  }
  assert.equal(serverPlace(928, 4, [1], 4, 1000).columns, serverPlace(928, 4, [1], 4).columns);
  const { look, seen } = seenAt({}, 0.11, 928);
  const g = canvas();
  drawServer(g, look, seen);
  const { left, past, column, bottom, top } = seen.place;
  const lines = g.drawn.filter((d) => d.w === 0.75 && d.h === bottom - top);
  assert.ok(past > seen.frame.min, "the run has just begun");
  assert.equal(
    Math.min(...lines.map((d) => d.x)),
    Math.round(left + (past - seen.frame.min) * column),
  );
});

test("columns grow in steps, bins show their share and leave room for their words", () => {
  assert.equal(columnsFor(580, 46, 5), 12);
  assert.equal(columnsFor(580, 46, 13), 18);
  assert.ok(columnsFor(580, 46, 5000) >= 5000);
  for (const shares of [[1], [0.667, 0.333], [0.97, 0.01, 0.01, 0.01], Array(8).fill(0.125)]) {
    const heights = binHeights(shares, 340);
    assert.ok(
      heights.every((h) => h >= 24) &&
        heights.reduce((a, b) => a + b, 0) + 8 * (shares.length - 1) <= 341,
    );
    assert.ok(heights[0] >= heights.at(-1));
  }
  assert.deepEqual(binHeights([0.667, 0.333], 98).map(Math.round), [60, 30]);
});

test(
  "the charts say what the rows say: stairs below the band's edge, staleness of each push " +
    "that is in, shares that add up",
  () => {
    const how = {};
    const { rounds, look, seen } = seenAt(how, 0.8, 928);
    const { index } = seen;
    const rows = how.rows;
    const { stairs, min } = stairsOf(index, rounds, look.t);
    for (const { rank, points } of stairs)
      for (const [t, c] of points) {
        const slowest = min.findLast(([at]) => at <= t)?.[1] ?? min[0][1];
        assert.ok(
          c <= slowest + 3,
          `worker ${rank} starts ${c} while the slowest is in ${slowest}`,
        );
      }
    const applied = rows.filter((r) => r.kind === "apply" && r.end <= look.t);
    const found = stalenessOf(index, look.t);
    assert.equal(found.n, applied.length);
    assert.ok(
      Math.abs(found.mean - applied.reduce((sum, r) => sum + r.value, 0) / applied.length) < 1e-9,
    );
    assert.equal(
      found.counts.reduce((a, b) => a + b, 0),
      applied.length,
    );
    const shares = sharesUntil(index, look.t, boundOf(RULES.ssp, 24));
    for (const { shares: parts } of shares)
      assert.ok(Math.abs(parts.reduce((a, b) => a + b, 0) - 1) < 1e-9);
    // the slow one computes, the others are stopped
    assert.ok(shares[3].shares[0] > shares[0].shares[0] && shares[3].shares[3] < 0.02);
    assert.ok(shares[0].shares[3] > 0.05);
    const free = sharesUntil(
      seenAt({ rule: "asp" }, 0.8, 928).seen.index,
      look.t,
      boundOf(RULES.asp, 24),
    );
    for (const { shares: parts } of free) assert.equal(parts[3], 0);
  },
);

test(
  "blocked in the chart is blocked in the picture, moment by moment; the score's bars tile a " +
    "worker's round",
  () => {
    const how = {};
    for (let i = 1; i < 200; i++) {
      const { look, seen } = seenAt(how, i / 200, 928);
      const { index, frame } = seen;
      const bars = roundBars(index, look.current.start, look.current.end, boundOf(RULES.ssp, 24));
      for (const w of frame.workers) {
        const mine = bars.filter((b) => b.rank === w.rank).sort((a, b) => a.start - b.start);
        const now = mine.find((b) => b.start <= look.t && look.t < b.end);
        mine.forEach(
          (b, k) =>
            k &&
            assert.ok(
              b.start >= mine[k - 1].end - 0.5,
              "bars of a worker do not lie over each other",
            ),
        );
        if (now && w.doing !== "ended" && w.doing !== "start")
          assert.equal(
            now.part,
            { compute: 0, pull: 1, push: 2, blocked: 3, waits: 4 }[w.doing],
            `worker ${w.rank} at ${look.t}`,
          );
      }
    }
  },
);

test("a shard to which gradients are on their way is not called idle", () => {
  const how = { workers: 3, shares: [1], rule: "asp" };
  const seen = Array.from({ length: 40 }, (_, i) => {
    const { look, seen } = seenAt(how, (i + 1) / 41, 928);
    const g = canvas();
    onto(g);
    drawServer(g, look, seen);
    const [shard] = seen.frame.shards;
    const coming = seen.frame.comets.some(({ kind }) => kind === "push");
    const busy = shard.queue.length + shard.applying.length > 0;
    const said = (word) => g.drawn.some(({ text }) => text?.includes(word));
    if (!busy) assert.deepEqual([said("on the way"), said("idle")], [coming, !coming], `${i}`);
    return !busy && coming;
  });
  assert.ok(seen.includes(true));
});

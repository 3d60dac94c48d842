import assert from "node:assert/strict";
import { test } from "node:test";
import { Line, SPAN, SPANS } from "../../assets/scenes/timeline/density.js";
import { drawLanes } from "../../assets/scenes/timeline/draw.js";
import { hitWords } from "../../assets/scenes/timeline/hit_words.js";
import { TimelineIndex } from "../../assets/scenes/timeline/index.js";
import {
  placeOf as timelinePlace,
  windowFor,
  windowX,
  zoomWindow,
} from "../../assets/scenes/timeline/layout.js";
import { drawOver } from "../../assets/scenes/timeline/overlay.js";
import { drawStacks } from "../../assets/scenes/timeline/paint.js";
import { drawSplit, splitReach, splitRows } from "../../assets/scenes/timeline/split.js";
import { INK, inside, over, paper } from "./paper.js";
import { row, tableOf } from "./rows.js";
import { MS, heard, trained } from "./training.js";
import { sample } from "./sample.js";

const runs = new Map();

/** A run with everything: overlap, a slow rank, waiting for cores, faults. */
function busyRun(ranks, chunks, iterations) {
  const key = [ranks, chunks, iterations].join();
  if (!runs.has(key)) {
    const rows = trained({
      ranks,
      iterations,
      overlap: true,
      chunks,
      compute: (r) => (r === 1 ? 1.3 : 1),
      queue: (r) => (r === 2 ? 3 : 0.6),
    });
    const moment = rows.find((r) => r.iteration === 3 && r.kind === "backward").start;
    const table = tableOf([
      ...heard(rows),
      row(-1, "fault", moment, moment, { lane: "driver", op: -1, peer: 1, name: "slow", value: 2 }),
      row(0, "detect", moment + 9 * MS, moment + 9 * MS, { peer: 1, op: -1, name: "stalled" }),
    ]);
    const index = new TimelineIndex(table);
    index.update();
    runs.set(key, { moment, table, index });
  }
  return runs.get(key);
}

function drawn(ranks, width, { zoom = 1, choice = null, chunks = true, iterations = 5 } = {}) {
  const { moment, table, index } = busyRun(ranks, chunks, iterations);
  const numbers = Array.from({ length: ranks }, (_, r) => r);
  const place = timelinePlace(ranks, width);
  const around = index.extent(3, moment);
  const win =
    zoom === 1
      ? windowFor(null, around, moment)
      : zoomWindow(windowFor(null, around, moment), zoom, moment + 17 * MS, {
          from: 0,
          to: table.to,
        });
  const canvas = {
    index,
    win,
    place,
    ink: INK,
    font: "sans-serif",
    waiting: "hatch",
    cores: 2,
    crowded: true,
  };
  const g = paper();
  const told = drawLanes(g, canvas, numbers);
  const look = { table, t: moment + 17 * MS, choice, ranks, width, ink: INK, font: "sans-serif" };
  drawOver(g, canvas, numbers, look, { rank: 1 }, told.hits);
  return { g, place, index, win, told, table, numbers, look };
}

// hairlines, dots, the playhead, a fault's dashes: no areas
const LINES = new Set(["rule", "edge", "focus", "hold", "fault"]);

function readable({ g, place }, what) {
  for (const text of g.texts) {
    assert.ok(text.size >= 11, `${what}: "${text.text}" is ${text.size} px`);
    assert.ok(
      text.x >= -1 && text.x + text.w <= place.right + 8,
      `${what}: "${text.text}" leaves the picture`,
    );
  }
  const shown = g.texts.filter((t) => t.text);
  shown.forEach((a, i) =>
    shown
      .slice(i + 1)
      .forEach((b) => assert.ok(!over(a, b), `${what}: "${a.text}" lies over "${b.text}"`)),
  );
  for (const text of shown) {
    g.marks.forEach((mark, k) => {
      if (LINES.has(mark.ink) || mark.w < 2 || mark.h < 2 || !over(text, mark, 1)) return;
      // within its own bar, or on a plate of the ground that lies over the bar
      const plate = g.marks
        .slice(k + 1, text.after)
        .some((m) => m.ink === INK.ground && inside(text, m, 2.5));
      assert.ok(
        (inside(text, mark, 2.5) && mark.ink !== "hatch") || plate,
        `${what}: "${text.text}" lies over a mark of ${mark.ink} at ${mark.x.toFixed(0)}, ` +
          `${mark.y.toFixed(0)}, ${mark.w.toFixed(0)} × ${mark.h.toFixed(0)}`,
      );
    });
  }
}

test("no label lies over a mark or another label, at any width, size and zoom", () => {
  for (const ranks of sample([64, 8, 4, 16, 2], 2))
    for (const width of sample([608, 928]))
      for (const zoom of ranks < 64 ? [1, 1 / 5, 1 / 20, 4] : [1])
        for (const more of [
          {},
          { chunks: false },
          { choice: { rank: 2, op: 6, chunk: 1, group: "default" } },
        ])
          readable(drawn(ranks, width, { zoom, ...more }), `${ranks} ranks, ${width} px, ×${zoom}`);
});

test("chunks whose bars are too low for their numbers have them below, under their own bars", () => {
  for (const ranks of [7, 8]) {
    const { g, place, told, table } = drawn(ranks, 1200, { zoom: 1 / 20 });
    const sends = told.hits.filter(
      (h) => h.row >= 0 && table.kindName(table.kind[h.row]) === "send",
    );
    const numbers = g.texts.filter((t) => /^\d+$/.test(t.text) && t.y > place.lanes.top);
    assert.ok(numbers.length > ranks, `${numbers.length} numbers of ${sends.length} sends`);
    for (const { text, x, w, y } of numbers)
      assert.ok(
        sends.some(
          (s) =>
            String(table.chunk[s.row]) === text &&
            x >= s.x - 2 &&
            x + w <= s.x + s.w + 2 &&
            y > s.y &&
            y < s.y + place.lanes.row,
        ),
        `${text} at ${x}, ${y} is of no chunk above it`,
      );
  }
});

test("who is many is drawn in less detail", () => {
  const names = (ranks) => drawn(ranks, 928, { chunks: false }).g.texts.map((t) => t.text);
  assert.ok(
    names(4).includes("forward") &&
      names(4).includes("bucket 1") &&
      names(4).includes("straggler") &&
      names(4).some((t) => t.startsWith("waits for a core 3.00 ms")),
  );
  assert.ok(!names(16).includes("forward") && names(16).includes("rank 15"));
  assert.ok(
    names(64).includes("rank 1") && names(64).filter((t) => t.startsWith("rank")).length < 24,
  );
  assert.deepEqual(
    [4, 16, 64].map((n) => timelinePlace(n, 928).lanes.row),
    [58, 17, 4],
  );
});

test("bars are where their rows are, to the pixel; none is left out", () => {
  const { g, index, win, place, told, table } = drawn(4, 928, { chunks: false });
  for (const hit of told.hits.filter(
    (h) => h.row >= 0 && table.kindName(table.kind[h.row]) === "forward",
  )) {
    const x = Math.max(place.left, windowX(win, place, table.start[hit.row]));
    const end = Math.min(place.right, windowX(win, place, table.end[hit.row]));
    assert.ok(Math.abs(hit.x - x) < 1e-6 && Math.abs(hit.x + hit.w - end) <= 1.001);
    assert.ok(g.marks.some((m) => m.ink === "forward" && m.x === hit.x && m.w === hit.w));
  }
  for (const list of ["computed", "calls"])
    for (const [number, rank] of index.ranks)
      for (const r of index.within(rank[list], win.from, win.to))
        assert.ok(told.hits.some((h) => h.row === r && h.rank === number && h.w >= 1));
  const fills = told.hits.filter(
    (h) => h.row >= 0 && table.kindName(table.kind[h.row]) === "backward" && h.rank === 0,
  );
  assert.ok(
    fills.some((h) => hitWords(table, h).endsWith(", here until bucket 0 was full")),
    "backward is cut where a bucket is full",
  );
});

test(
  "waiting is pale while the rank computes, " + "and exposed time is underlined to its length",
  () => {
    const { g, index, win, place } = drawn(4, 928, { chunks: false });
    const rank = index.ranks.get(0);
    const dt = (win.to - win.from) / place.room;
    const hatched = g.marks.filter(
      (m) => m.ink === "hatch" && m.y < place.lanes.top + place.lanes.row && m.y >= place.lanes.top,
    );
    for (const mark of hatched) {
      const from = win.from + (mark.x - place.left) * dt;
      const sums = rank.compute.within(from, from + mark.w * dt);
      const share = sums.reduce((a, b) => a + b, 0) / (mark.w * dt);
      assert.ok(mark.alpha < 1 ? share > 0.5 : share < 0.5, `${mark.x}: ${share}, ${mark.alpha}`);
    }
    assert.ok(hatched.some((m) => m.alpha < 1) && hatched.some((m) => m.alpha === 1));
    const lines = g.marks.filter(
      (m) =>
        m.ink === "ink" &&
        Math.abs(m.h - 2.5) < 1e-9 &&
        Math.abs(m.y - place.lanes.top - place.lanes.under) < 1,
    );
    const all = rank.all.within(win.from, win.to);
    const long = lines.reduce((sum, m) => sum + m.w, 0) * dt;
    const exposed = all[SPAN.comm] + all[SPAN.wait];
    assert.ok(Math.abs(long - exposed) < 2 * (lines.length + 1) * dt, `${long} for ${exposed}`);
  },
);

test(
  "zoomed in there are single chunks, of the selection with arrows to where they were " +
    "received",
  () => {
    const far = drawn(4, 928);
    const near = drawn(4, 928, { zoom: 1 / 12 });
    assert.equal(near.told.single, true);
    const kinds = new Set(
      near.told.hits
        .filter((h) => h.row >= 0)
        .map((h) => near.table.kindName(near.table.kind[h.row])),
    );
    assert.ok(kinds.has("send") && kinds.has("recv"));
    const chosen = drawn(4, 928, { choice: { rank: 0, op: 6, group: "default" } });
    const framed = chosen.told.hits.filter(
      (h) =>
        h.row >= 0 &&
        chosen.table.passages.op[chosen.table.passage[h.row]] === 6 &&
        chosen.table.kindName(chosen.table.kind[h.row]) === "collective",
    );
    assert.equal(framed.length, 4);
    for (const hit of framed)
      assert.ok(
        chosen.g.strokes.some((s) => s.ink === "focus" && Math.abs(s.x - hit.x + 1) < 1e-9),
        "the same bucket is framed on every rank",
      );
    assert.ok(!far.g.strokes.some((s) => s.ink === "focus"));
  },
);

test("stacks: heights are the shares, and add up to what is busy", () => {
  const line = new Line();
  const out = new Float64Array(40 * SPANS.length);
  for (let i = 0; i < 90; i++)
    line.cover(i * 10, i * 10 + 3 + (i % 7), [SPAN.forward, SPAN.comm, SPAN.wait][i % 3]);
  line.columns(0, 22.5, 40, out);
  const g = paper();
  drawStacks(g, INK, "hatch", out, 40, 22.5, 0, 0, 20);
  for (let k = 0; k < 40; k++) {
    const high = (ink) =>
      g.marks
        .filter((m) => m.ink === ink && m.x <= k && m.x + Math.round(m.w) > k)
        .reduce((sum, m) => sum + m.h, 0);
    for (const [ink, kind] of [
      ["forward", SPAN.forward],
      ["comm", SPAN.comm],
      ["hatch", SPAN.wait],
    ])
      assert.ok(
        Math.abs(high(ink) - (out[k * SPANS.length + kind] / 22.5) * 20) < 1e-9,
        `column ${k}, ${ink}`,
      );
  }
});

test("the split of an iteration: parts as long as they were, figures beside or within", () => {
  const facts = drawn(4, 928).index.factsOf(3, 0);
  const width = 480;
  const reach = splitReach(0, facts);
  const measure = (text) => text.length * 7;
  for (const [k, r] of splitRows(facts, reach, width, measure).entries()) {
    const f = facts[k];
    const scale = (width - 52 - 192) / reach;
    for (const part of r.parts)
      assert.ok(
        Math.abs(part.w + 1 - (f[part.kind] ?? 0) * scale) < 1.01,
        `${part.kind} of rank ${f.rank}`,
      );
    assert.ok(!r.said || r.parts[2].x + r.parts[2].w + 7 + measure(r.said) <= width + 1);
  }
  assert.equal(splitReach(reach, facts), reach);
  for (const ranks of [4, 16, 64])
    for (const wide of [440, 480, 608]) {
      const g = paper();
      drawSplit(
        g,
        INK,
        "sans-serif",
        "hatch",
        "amber hatch",
        false,
        drawn(ranks, 928).index.factsOf(3, 0),
        reach,
        wide,
        1,
      );
      readable({ g, place: { right: wide } }, `split of ${ranks} ranks, ${wide} px`);
    }
});

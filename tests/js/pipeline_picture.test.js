import assert from "node:assert/strict";
import { test } from "node:test";
import { Chart } from "../../assets/drawing/chart.js";
import {
  bubbleHeight,
  bubbleScale,
  drawBubble,
  drawHistory,
  historyAt,
  historyBars,
  historyHeight,
} from "../../assets/scenes/pipeline/charts.js";
import { boxOf, drawBars, drawPlan, drawRowNames } from "../../assets/scenes/pipeline/draw.js";
import {
  drawBefallen,
  drawChosen,
  drawAxis as drawPipelineAxis,
  drawHead as drawPipelineHead,
} from "../../assets/scenes/pipeline/draw_axis.js";
import { idleShare } from "../../assets/scenes/pipeline/idle.js";
import { keysOf as pipelineKeys } from "../../assets/scenes/pipeline/legend.js";
import {
  barTop,
  momentAt,
  momentX,
  scaleOf as pipelineScale,
  planTop,
  ribbonBase,
  hitUnder as underPipeline,
} from "../../assets/scenes/pipeline/place.js";
import { PageScale } from "../../assets/scenes/pipeline/scale.js";
import { INK, canvas, collisions, onto } from "./canvas.js";
import { seenAt, slow } from "./piped_seen.js";
import { sample, smaller } from "./sample.js";

const RUNS = [
  ["2 stages", { K: 2, M: 4 }],
  ["4, a slow one", { time: slow, noise: 0.02, pads: [10, 10, 10] }],
  ["4, as planned", { wire: 0 }],
  ["8 stages", { K: 8, M: 16, wire: 1 }],
  ["16 stages", { K: 16, M: 32 }],
  ["24 stages", { K: 24, M: 24 }],
  ["interleaved", { schedule: "looped", wire: 1 }],
  ["interleaved on 8", { schedule: "looped", K: 8, M: 8 }],
  ["weights apart", { schedule: "split" }],
  ["gpipe, long", { schedule: "gpipe", time: () => 400 }],
  ["frozen", { freeze: { rank: 2, at: 450, seconds: 0.2 } }],
  ["microseconds", { time: () => 0.02, wire: 0.001 }],
  ["no flush", null],
  ["100 microbatches", { K: 2, M: 100 }],
];

const texts = (drawn) => drawn.filter((d) => d.kind === "text");

for (const [name, how] of smaller(RUNS, ["24 stages", "8 stages", "100 microbatches"]))
  for (const width of sample([608, 928]))
    test(
      "no word lies over a mark or another word, all are in the picture, none is below 11 " +
        `px: ${name}, ${width} px`,
      () => {
        const { look, pass, place, scale, passes } = seenAt(how, 0.4, width);
        const g = canvas();
        const layer = canvas();
        onto(layer);
        const inside = (drawn, w, h) => {
          for (const text of texts(drawn)) {
            assert.ok(text.size >= 11, `${text.text} has ${text.size} px`);
            assert.ok(
              text.x >= -0.5 &&
                text.x + text.w <= w + 1 &&
                text.y >= -2 &&
                text.y + text.h <= h + 1,
              `${text.text} is cut off: ${JSON.stringify(text)} in ${w} × ${h}`,
            );
          }
        };
        drawPlan(layer, look, pass, place, scale);
        drawBars(layer, look, pass, place, scale);
        assert.deepEqual(
          collisions(layer.drawn.filter((d) => d.ink !== "rule")),
          [],
          "numbers on bars",
        ); // hairlines may pass behind
        drawRowNames(g, look, pass, place);
        drawPipelineAxis(g, look, pass, place, scale);
        const bars = layer.drawn.filter((d) => d.kind === "box" && d.filled);
        assert.deepEqual(
          collisions([...bars, ...g.drawn.filter((d) => d.kind !== "line")]),
          [],
          "names beside bars",
        );
        inside([...layer.drawn, ...g.drawn], width, place.height);
        assert.ok(texts(g.drawn).length >= (place.level === "lines" ? 3 : pass.facts.ranks));
        const wide = width > 700 ? 440 : 608;
        const chart = canvas();
        drawBubble(
          new Chart({ g: chart, ink: INK, font: "sans-serif", width: wide, height: 0 }),
          pass,
        );
        inside(chart.drawn, wide, bubbleHeight(pass.rows.length));
        assert.deepEqual(collisions(texts(chart.drawn)), []);
        const past = passes.calls.map((head) => ({
          iteration: head.iteration,
          start: head.start,
          end: head.end,
          idle: idleShare(pass.all),
          parts: pass.all,
        }));
        const history = canvas();
        drawHistory(
          new Chart({ ...look, g: history, height: historyHeight() }),
          look,
          past,
          pass.plan?.idle ?? NaN,
          "formula",
        );
        inside(history.drawn, width, historyHeight());
        assert.deepEqual(collisions(texts(history.drawn)), []);
        const counted = texts(history.drawn).map(({ text }) => text);
        assert.ok(!counted.includes("0"), "iterations are counted from 1");
      },
    );

test(
  "a bar is as long as its action lasted, its plan lies below it, what it holds under that; " +
    "rows do not meet",
  () => {
    for (const [, how] of RUNS.filter(([name]) => name !== "no flush")) {
      const { pass, place, scale } = seenAt(how, 1, 928);
      for (const task of pass.rows.flat()) {
        const { x, w, y, h, row } = boxOf(pass, place, scale, task);
        const whole = momentX(place, task.end - task.start, scale) - place.left;
        assert.ok(
          Math.abs(x - momentX(place, task.start - pass.from, scale)) < 1e-6 &&
            (w === 1 || Math.abs(w - whole) <= 1.001),
          `${w} ${whole}`,
        );
        assert.ok(y >= barTop(place, row) && y + h <= barTop(place, row) + place.bar + 0.01);
      }
      for (let row = 0; row < place.rows; row++) {
        assert.ok(planTop(place, row) >= barTop(place, row) + place.bar);
        assert.ok(ribbonBase(place, row) - place.ribbon >= planTop(place, row) + place.plan);
        assert.ok(
          row + 1 === place.rows ||
            barTop(place, row + 1) >
              (place.ribbon ? ribbonBase(place, row) : planTop(place, row) + place.plan - 1),
        );
      }
    }
  },
);

test(
  "the hue is the microbatch, the texture the kind, and the number is there where there is " +
    "room",
  () => {
    const { look, pass, place, scale } = seenAt({ schedule: "split" }, 1, 928);
    const g = canvas();
    onto(g);
    drawBars(g, look, pass, place, scale);
    for (const task of pass.rows.flat()) {
      const { x, y, w, h } = boxOf(pass, place, scale, task);
      const own = g.drawn.filter(
        (d) =>
          d.kind === "box" &&
          Math.abs(d.y - y) < 0.1 &&
          d.h === h &&
          d.x >= x - 0.01 &&
          d.x + d.w <= x + w + 0.01,
      );
      assert.equal(own[0].ink, `s${task.microbatch % 8}`);
      assert.equal(own.length, task.kind === "F" ? 1 : 2, `${task.kind} has its texture`);
      assert.ok(
        texts(g.drawn).some(
          (d) =>
            d.text === String(task.microbatch) &&
            d.x >= x &&
            d.x + d.w <= x + w &&
            d.y >= y &&
            d.y + d.h <= y + h,
        ),
        `${task.stage}${task.kind}${task.microbatch}`,
      );
    }
  },
);

test(
  "arrows go from what was needed and to what " + "needs it; a frame is around what is chosen",
  () => {
    const { look, pass, place, scale } = seenAt({}, 1, 928);
    const task = pass.rows[2].find((t) => t.kind === "B" && t.microbatch === 3);
    const g = canvas();
    let curves = 0;
    g.bezierCurveTo = () => (curves += 1);
    drawChosen(g, look, pass, place, scale, task);
    assert.equal(curves, 2);
    const frame = g.drawn.find((d) => d.kind === "box" && !d.filled);
    const box = boxOf(pass, place, scale, task);
    assert.ok(frame.x < box.x && frame.x + frame.w > box.x + box.w && frame.ink === "focus");
  },
);

test("who stood still is framed in amber, who is gone has a red cross", () => {
  const { look, pass, place, scale } = seenAt(
    { freeze: { rank: 2, at: 450, seconds: 0.2 } },
    1,
    928,
  );
  const g = canvas();
  drawBefallen(g, look, pass, place, scale, [1]);
  assert.ok(
    g.drawn.some(
      (d) => d.ink === "hold" && d.dashed && d.y < barTop(place, 2) && d.y > barTop(place, 1),
    ),
  );
  assert.ok(
    g.drawn.some(
      (d) =>
        d.ink === "fault" &&
        d.kind === "line" &&
        d.y1 > barTop(place, 1) &&
        d.y1 < barTop(place, 1) + place.bar,
    ),
  );
  drawPipelineHead(g, look, pass, place, scale);
  assert.ok(g.drawn.some((d) => d.ink === "focus"));
});

test(
  "under the pointer: the axis, names, bars, plan, what is held; a place and its moment are " +
    "one",
  () => {
    const { place, scale } = seenAt({}, 1, 928);
    assert.equal(underPipeline(place, 300, 5, scale).part, "axis");
    for (let row = 0; row < 4; row++) {
      assert.deepEqual(
        [
          underPipeline(place, 20, barTop(place, row) + 3, scale).part,
          underPipeline(place, 300, barTop(place, row) + 3, scale).part,
        ],
        ["name", "bar"],
      );
      assert.deepEqual(
        [
          underPipeline(place, 300, planTop(place, row) + 3, scale).part,
          underPipeline(place, 300, ribbonBase(place, row) - 3, scale).part,
          underPipeline(place, 300, planTop(place, row) + 3, scale).row,
        ],
        ["plan", "held", row],
      );
    }
    assert.equal(underPipeline(place, 300, place.bottom + 20, scale), null);
    assert.ok(Math.abs(momentAt(place, momentX(place, 5e7, scale), scale) - 5e7) < 1e-3);
  },
);

test(
  "the axis ends where the data ends; while iterations follow each other it stays if they fill " +
    "nine tenths of it",
  () => {
    assert.equal(pipelineScale(100, 95, false), 100);
    assert.equal(pipelineScale(100, 101, false), 101 * 1.02);
    assert.equal(pipelineScale(100, 80, false), 80 * 1.02);
    assert.equal(pipelineScale(100, 95, true), 95 * 1.02);
    assert.deepEqual(
      [bubbleScale(0.03), bubbleScale(0.374), bubbleScale(0.75), bubbleScale(1)],
      [0.1, 0.4, 0.8, 1],
    );
  },
);

test(
  "history: a bar an iteration, its place leads " + "to its moment, many iterations share bars",
  () => {
    for (const n of [1, 40, 5000]) {
      const past = Array.from({ length: n }, (_, i) => ({
        iteration: i,
        start: i * 100,
        end: i * 100 + 90,
        idle: 0.2 + 0.1 * (i % 2),
        parts: null,
      }));
      const bars = historyBars(past, 928, true);
      assert.equal(bars.at(-1).last.iteration, n - 1);
      assert.ok(bars.every((bar) => bar.x >= 92 && bar.x + bar.w <= 921));
      for (const bar of bars.filter((_, i) => i % 7 === 0)) {
        const t = historyAt(past, 928, true, bar.x + bar.w / 2);
        assert.ok(
          t >= bar.first.start && t <= bar.last.end,
          `${n}: ${t} in ${bar.first.start} to ${bar.last.end}`,
        );
      }
    }
    assert.equal(historyAt([], 928, true, 300), null);
  },
);

test("every mark of the picture has a key", () => {
  const names = (how, incidents = { frozen: false, gone: false }) => {
    const { look, pass, place } = seenAt(how, 1, 928);
    return pipelineKeys(look, pass, place, incidents).map((item) => item.words);
  };
  const plain = names({});
  for (const words of [
    "forward",
    "backward",
    "plan",
    "update of the parameters",
    "idle: warm-up and drain",
    "idle: imbalance",
    "idle: communication",
    "activations held, and the schedule's most",
  ])
    assert.ok(plain.includes(words), words);
  assert.ok(!plain.includes("weight gradient") && !plain.includes("idle: fault"));
  assert.ok(
    names({ schedule: "split" }).includes("weight gradient") &&
      names({ schedule: "split" }).includes("input gradient"),
  );
  assert.ok(names({ schedule: "looped" }).some((words) => /below each other/.test(words)));
  assert.ok(
    names({ freeze: { rank: 2, at: 450, seconds: 0.2 } }, { frozen: true, gone: false }).includes(
      "idle: fault",
    ),
  );
  assert.ok(!names(null).includes("plan") && names(null).some((words) => /version/.test(words)));
});

test(
  "pictures on a page keep scales of their own until the reader wants one; then the longest " +
    "on show decides",
  () => {
    const told = [];
    const body = () => ({ isConnected: true, hidden: false });
    const [a, b, c] = [0, 1, 2].map((i) => new PageScale(body(), () => told.push(i)));
    a.fit(100);
    b.fit(300);
    assert.deepEqual(
      [a.now, b.now, a.shared, a.others.length],
      [102, 306, false, 1],
      "one that shows nothing is none",
    );
    assert.deepEqual(told, []);
    a.share(true);
    assert.deepEqual([a.now, b.now, a.shared, b.shared], [306, 306, true, true]);
    assert.ok(told.includes(0) && told.includes(1), "both are drawn anew");
    b.body.hidden = true;
    assert.equal(a.now, 102);
    b.body.hidden = false;
    b.leave();
    assert.deepEqual([a.now, a.shared], [102, false]);
    a.share(false);
    for (const one of [a, c]) one.leave();
  },
);

test("the iteration on screen has the reader's own colour in the history", () => {
  const { look, passes, pass } = seenAt({ iterations: 6 }, 0.4, 928);
  const past = passes.calls.map((head) => ({ ...head, idle: 0.2, parts: pass.all }));
  const g = canvas();
  drawHistory(new Chart({ ...look, g, height: historyHeight() }), look, past, NaN, "plan");
  const bars = g.drawn.filter(({ kind, w }) => kind === "box" && w > 20 && w < 400);
  assert.equal(bars.length, 6);
  assert.deepEqual(
    bars.map(({ ink }) => ink).filter((ink) => ink !== "edge"),
    ["focus"],
  );
});

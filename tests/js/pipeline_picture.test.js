import assert from "node:assert/strict";
import { test } from "node:test";
import { bubbleHeight, bubbleScale, drawBubble, drawHistory, historyAt, historyBars, historyHeight } from "../../assets/pipeline_charts.js";
import { boxOf, drawBars, drawBefallen, drawChosen, drawPipelineAxis, drawPipelineHead, drawPlan, drawRowNames } from "../../assets/pipeline_draw.js";
import { idleShare } from "../../assets/pipeline_idle.js";
import { pipelineKeys } from "../../assets/pipeline_keys.js";
import { barTop, momentAt, momentX, pipelinePlace, pipelineScale, planTop, ribbonBase, underPipeline } from "../../assets/pipeline_place.js";
import { joinedOf, joinedWords, meshLines, passedOn } from "../../assets/pipeline_mesh.js";
import { PipelinePast, pipelineStep } from "../../assets/pipeline_past.js";
import { passesOf } from "../../assets/pipeline_rounds.js";
import { PageScale } from "../../assets/pipeline_scale.js";
import { passOf } from "../../assets/pipeline_seen.js";
import { actionWords, idleWords, pipelineFactsWords, pipelineLines, pipelineSentence, scheduleName, stageRowWords, taskWords, wordsUnder } from "../../assets/tell_pipeline.js";
import { INK, canvas, collisions, onto } from "./canvas.js";
import { piped, unflushed } from "./piped.js";
import { CONTROL } from "./rows.js";
import { knownOf } from "./simulated.js";

const slow = (kind, stage) => ({ F: 10, B: 20, I: 10, W: 10 })[kind] * (stage === 2 ? 1.3 : 1);
const RUNS = [["2 stages", { K: 2, M: 4 }], ["4, a slow one", { time: slow, noise: 0.02, pads: [10, 10, 10] }], ["4, as planned", { wire: 0 }], ["8 stages", { K: 8, M: 16, wire: 1 }], ["16 stages", { K: 16, M: 32 }], ["24 stages", { K: 24, M: 24 }], ["interleaved", { schedule: "looped", wire: 1 }],
  ["interleaved on 8", { schedule: "looped", K: 8, M: 8 }], ["weights apart", { schedule: "split" }], ["gpipe, long", { schedule: "gpipe", time: () => 400 }], ["frozen", { freeze: { rank: 2, at: 450, seconds: 0.2 } }], ["microseconds", { time: () => 0.02, wire: 0.001 }], ["no flush", null], ["100 microbatches", { K: 2, M: 100 }]];

/** What the scene sees of an iteration at a share of its time. */
function seenAt(how, share, width, more = {}) {
  const told = how ? piped(how) : unflushed({ M: 8 }), known = knownOf(told.facts.ranks, told.rows, { run: { strategy: "pipeline", pipeline: told.facts }, ...more }), passes = passesOf(known), head = passes.calls[1], pass = passOf(passes, told.facts, head, 0);
  const place = pipelinePlace(width, pass.facts.ranks, Math.max(...pass.lanes.map((l) => l.length))), scale = pipelineScale(0, Math.max(pass.to - pass.from, pass.plan?.span ?? 0)), t = pass.from + share * (pass.to - pass.from);
  const look = { table: known.table, known, call: null, told: passes.open(head.key), t, live: false, held: true, ranks: pass.facts.ranks, ink: INK, font: "sans-serif", width, ratio: 1, at: 0, choice: null };
  return { look, pass, place, scale, passes };
}
const texts = (drawn) => drawn.filter((d) => d.kind === "text");

for (const [name, how] of RUNS)
  for (const width of [928, 608])
    test(`no word lies over a mark or another word, all are in the picture, none is below 11 px: ${name}, ${width} px`, () => {
      const { look, pass, place, scale, passes } = seenAt(how, 0.4, width), g = canvas(), layer = canvas();
      onto(layer);
      const inside = (drawn, w, h) => {
        for (const text of texts(drawn)) {
          assert.ok(text.size >= 11, `${text.text} has ${text.size} px`);
          assert.ok(text.x >= -0.5 && text.x + text.w <= w + 1 && text.y >= -2 && text.y + text.h <= h + 1, `${text.text} is cut off: ${JSON.stringify(text)} in ${w} × ${h}`);
        }
      };
      drawPlan(layer, look, pass, place, scale);
      drawBars(layer, look, pass, place, scale);
      assert.deepEqual(collisions(layer.drawn.filter((d) => d.ink !== "rule")), [], "numbers on bars"); // hairlines may pass behind
      drawRowNames(g, look, pass, place);
      drawPipelineAxis(g, look, pass, place, scale);
      const bars = layer.drawn.filter((d) => d.kind === "box" && d.filled);
      assert.deepEqual(collisions([...bars, ...g.drawn.filter((d) => d.kind !== "line")]), [], "names beside bars");
      inside([...layer.drawn, ...g.drawn], width, place.height);
      assert.ok(texts(g.drawn).length >= (place.level === "lines" ? 3 : pass.facts.ranks));
      const wide = width > 700 ? 440 : 608, chart = canvas();
      drawBubble({ g: chart, ink: INK, font: "sans-serif", ratio: 1, width: wide }, pass);
      inside(chart.drawn, wide, bubbleHeight(pass.rows.length));
      assert.deepEqual(collisions(texts(chart.drawn)), []);
      const past = passes.calls.map((head) => ({ iteration: head.iteration, start: head.start, end: head.end, idle: idleShare(pass.all), parts: pass.all })), history = canvas();
      drawHistory(history, look, past, pass.plan?.idle ?? NaN, "formula");
      inside(history.drawn, width, historyHeight());
      assert.deepEqual(collisions(texts(history.drawn)), []);
    });

test("a bar is as long as its action lasted, its plan lies below it, what it holds under that; rows do not meet", () => {
  for (const [, how] of RUNS.filter(([name]) => name !== "no flush")) {
    const { pass, place, scale } = seenAt(how, 1, 928);
    for (const task of pass.rows.flat()) {
      const { x, w, y, h, row } = boxOf(pass, place, scale, task), whole = momentX(place, task.end - task.start, scale) - place.left;
      assert.ok(Math.abs(x - momentX(place, task.start - pass.from, scale)) < 1e-6 && (w === 1 || Math.abs(w - whole) <= 1.001), `${w} ${whole}`);
      assert.ok(y >= barTop(place, row) && y + h <= barTop(place, row) + place.bar + 0.01);
    }
    for (let row = 0; row < place.rows; row++) {
      assert.ok(planTop(place, row) >= barTop(place, row) + place.bar);
      assert.ok(ribbonBase(place, row) - place.ribbon >= planTop(place, row) + place.plan);
      assert.ok(row + 1 === place.rows || barTop(place, row + 1) > (place.ribbon ? ribbonBase(place, row) : planTop(place, row) + place.plan - 1));
    }
  }
});

test("the hue is the microbatch, the texture the kind, and the number is there where there is room", () => {
  const { look, pass, place, scale } = seenAt({ schedule: "split" }, 1, 928), g = canvas();
  onto(g);
  drawBars(g, look, pass, place, scale);
  for (const task of pass.rows.flat()) {
    const { x, y, w, h } = boxOf(pass, place, scale, task), own = g.drawn.filter((d) => d.kind === "box" && Math.abs(d.y - y) < 0.1 && d.h === h && d.x >= x - 0.01 && d.x + d.w <= x + w + 0.01);
    assert.equal(own[0].ink, `s${task.microbatch % 8}`);
    assert.equal(own.length, task.kind === "F" ? 1 : 2, `${task.kind} has its texture`);
    assert.ok(texts(g.drawn).some((d) => d.text === String(task.microbatch) && d.x >= x && d.x + d.w <= x + w && d.y >= y && d.y + d.h <= y + h), `${task.stage}${task.kind}${task.microbatch}`);
  }
});

test("arrows go from what was needed and to what needs it; a frame is around what is chosen", () => {
  const { look, pass, place, scale } = seenAt({}, 1, 928), task = pass.rows[2].find((t) => t.kind === "B" && t.microbatch === 3), g = canvas();
  let curves = 0;
  g.bezierCurveTo = () => (curves += 1);
  drawChosen(g, look, pass, place, scale, task);
  assert.equal(curves, 2);
  const frame = g.drawn.find((d) => d.kind === "box" && !d.filled), box = boxOf(pass, place, scale, task);
  assert.ok(frame.x < box.x && frame.x + frame.w > box.x + box.w && frame.ink === "focus");
});

test("who stood still is framed in amber, who is gone has a red cross", () => {
  const { look, pass, place, scale } = seenAt({ freeze: { rank: 2, at: 450, seconds: 0.2 } }, 1, 928), g = canvas();
  drawBefallen(g, look, pass, place, scale, [1]);
  assert.ok(g.drawn.some((d) => d.ink === "hold" && d.dashed && d.y < barTop(place, 2) && d.y > barTop(place, 1)));
  assert.ok(g.drawn.some((d) => d.ink === "fault" && d.kind === "line" && d.y1 > barTop(place, 1) && d.y1 < barTop(place, 1) + place.bar));
  drawPipelineHead(g, look, pass, place, scale);
  assert.ok(g.drawn.some((d) => d.ink === "focus"));
});

test("under the pointer: the axis, names, bars, plan, what is held; a place and its moment are one", () => {
  const { place, scale } = seenAt({}, 1, 928);
  assert.equal(underPipeline(place, 300, 5, scale).part, "axis");
  for (let row = 0; row < 4; row++) {
    assert.deepEqual([underPipeline(place, 20, barTop(place, row) + 3, scale).part, underPipeline(place, 300, barTop(place, row) + 3, scale).part], ["name", "bar"]);
    assert.deepEqual([underPipeline(place, 300, planTop(place, row) + 3, scale).part, underPipeline(place, 300, ribbonBase(place, row) - 3, scale).part, underPipeline(place, 300, planTop(place, row) + 3, scale).row], ["plan", "held", row]);
  }
  assert.equal(underPipeline(place, 300, place.bottom + 20, scale), null);
  assert.ok(Math.abs(momentAt(place, momentX(place, 5e7, scale), scale) - 5e7) < 1e-3);
});

test("the scale stays while the picture fills it, grows when it must, shrinks when a quarter is empty", () => {
  assert.equal(pipelineScale(100, 80), 100);
  assert.equal(pipelineScale(100, 101), 101 * 1.02);
  assert.equal(pipelineScale(100, 70), 70 * 1.02);
  assert.deepEqual([bubbleScale(0.03), bubbleScale(0.374), bubbleScale(0.75), bubbleScale(1)], [0.1, 0.4, 0.8, 1]);
});

test("history: a bar an iteration, its place leads to its moment, many iterations share bars", () => {
  for (const n of [1, 40, 5000]) {
    const past = Array.from({ length: n }, (_, i) => ({ iteration: i, start: i * 100, end: i * 100 + 90, idle: 0.2 + 0.1 * (i % 2), parts: null })), bars = historyBars(past, 928, true);
    assert.equal(bars.at(-1).last.iteration, n - 1);
    assert.ok(bars.every((bar) => bar.x >= 92 && bar.x + bar.w <= 921));
    for (const bar of bars.filter((_, i) => i % 7 === 0)) {
      const t = historyAt(past, 928, true, bar.x + bar.w / 2);
      assert.ok(t >= bar.first.start && t <= bar.last.end, `${n}: ${t} in ${bar.first.start} to ${bar.last.end}`);
    }
  }
  assert.equal(historyAt([], 928, true, 300), null);
});

test("a step leads to the next action, microbatch or iteration, and back", () => {
  const { passes, pass } = seenAt({}, 0.4, 928), t = pass.from + 1, starts = pass.rows.flat().map((task) => task.start).sort((a, b) => a - b);
  assert.equal(pipelineStep(passes, pass, t, "chunk", 1), starts.find((at) => at > t));
  assert.equal(pipelineStep(passes, pass, pass.to, "chunk", -1), starts.at(-1));
  assert.equal(pipelineStep(passes, pass, t, "iteration", 1), passes.calls[2].start);
  assert.equal(pipelineStep(passes, pass, t, "iteration", -1), pass.from);
  const ends = [...Array(8).keys()].map((m) => Math.max(...pass.rows.flat().filter((task) => task.microbatch === m).map((task) => task.end)));
  assert.equal(pipelineStep(passes, pass, t, "step", 1), Math.min(...ends));
});

test("the history works every iteration out once, in pieces", () => {
  const { passes, pass } = seenAt({ iterations: 12 }, 0.4, 928), past = new PipelinePast();
  let calls = 0, read;
  do read = past.read(passes, pass.facts, 0, "run"), (calls += 1);
  while (read.more && calls < 100);
  assert.deepEqual(read.list.map((one) => one.iteration), [...Array(12).keys()]);
  assert.equal(read.list[1].idle, idleShare(pass.all));
  assert.equal(past.read(passes, pass.facts, 0, "run").list, read.list);
});

test("one sentence: as planned, a slow stage, messages, a freeze, going on, failed, nothing yet", () => {
  const say = (how, more = {}) => {
    const { pass, look } = seenAt(how, 1, 928, more);
    return pipelineSentence(look.known, pass, true);
  };
  assert.equal(say({ wire: 0 }), "The ranks are idle 27 % of the time, and the schedule alone costs 27 %: it went as planned.");
  assert.match(say({ time: slow, pads: [10, 10, 10] }), /^The ranks are idle 3\d % of the time, the schedule alone costs 27 %: the rest is mostly waiting for the slow stage 2\.$/);
  assert.match(say({ freeze: { rank: 2, at: 450, seconds: 0.2 } }), /mostly a process that stood still\.$/);
  assert.match(say(null), /^The ranks are idle \d+ % of the time, mostly /);
  assert.match(say({}, { state: "running", control: { ...CONTROL, frozen: [1] } }), /^You froze rank 1 \(stage 1\)/);
  assert.match(say({}, { state: "running", control: { ...CONTROL, held: true } }), /^You hold the ranks\. /);
  assert.equal(say({}, { state: "failed", words: "Rank 2 was killed." }), "Rank 2 was killed.");
  const nothing = (state) => pipelineSentence({ ...seenAt({}, 1, 928).look.known, state, words: "" }, null, true);
  assert.match(nothing("running"), /Waiting for the first action/);
  assert.match(nothing("starting"), /starting/);
});

test("in words: shares that add up, the plan by its name, a row, an action, a gap", () => {
  const { pass } = seenAt({ time: slow, pads: [10, 10, 10] }, 1, 928), lines = pipelineLines(pass), number = (i) => parseFloat(lines[i][0]);
  assert.match(lines[0].join(" "), /idle formula 27\.3 %$/);
  assert.ok(Math.abs(number(1) + number(2) + number(3) - number(0)) < 0.16);
  assert.match(lines[2][2], /stage 2 takes 1\.30× as long/);
  assert.match(lines[4].join(" "), /1\.\d+× the planned time .* padded times/);
  const task = pass.rows[1].find((t) => t.kind === "B" && t.microbatch === 3);
  assert.equal(actionWords(task), "backward of microbatch 3 on stage 1");
  assert.match(taskWords(pass, task).join("; "), /20\.0 ms, started .* later than planned; its gradient left stage 2 at .* and arrived at .*; it used version 1/);
  assert.match(idleWords(pass, pass.idle.find(({ why }) => why === "comm")).join("; "), /^stage \d idle for .*communication: its input is on its way/);
  assert.match(stageRowWords(pass, 0).join("; "), /^stages? 0 on rank 0: 16 actions.*busy .*activations 4\/4/);
  assert.equal(pipelineFactsWords(pass.facts), "1F1B, 4 stages, 8 microbatches");
  assert.deepEqual(["1f1b", "zb_h1", "interleaved_1f1b", "gpipe", "pipedream", "my_own"].map(scheduleName), ["1F1B", "ZB-H1", "interleaved 1F1B", "GPipe", "PipeDream", "my own"]);
});

test("two replicas: what each rank's gradients were added up with, once all had come; what the stages passed on", () => {
  const { pass, look, place, scale } = seenAt({ replicas: 2, noise: 0.2 }, 1, 928), joined = joinedOf(pass), g = canvas();
  joined.forEach((one, row) => {
    const [a, b] = pass.joins.filter(({ rank }) => rank % 4 === row);
    assert.deepEqual([one.tensors, one.nbytes, one.ns], [1, 1000 * (row + 1), 1e6]);
    assert.deepEqual([one.waits, one.last], [Math.abs(a.start - b.start), a.start > b.start ? a.rank : b.rank]);
    assert.match(joinedWords(pass, one, row), new RegExp(`^ranks ${row}, ${row + 4}: 1 tensor, ${row + 1}\\.00 kB all-reduced in 1\\.00 ms once all had come; before that others waited .* for rank [${row}${row + 4}]$`));
  });
  assert.deepEqual(passedOn(pass), { activation: 3 * 8 * 4096, gradient: 3 * 8 * 4096 });
  assert.deepEqual(meshLines(pass), ["→ pipeline: activations 98.3 kB, gradients back 98.3 kB", "↕ data: gradients all-reduced, 10.0 kB in all, 1.00 ms at most"]);
  assert.deepEqual(meshLines(null), ["→ pipeline: activations, gradients back", "↕ data: gradients all-reduced"]);
  drawBars(g, look, pass, place, scale);
  const mine = pass.joins.filter(({ rank }) => rank < 4), drawn = g.drawn.filter((d) => d.ink === "comm" && d.h === place.bar / 2);
  assert.deepEqual(drawn.map((d) => Math.round(d.x)), mine.map(({ start }) => Math.round(momentX(place, start - pass.from, scale))).filter((x) => x < place.right), "each after its rank's last action");
  assert.ok(drawn.length >= 3);
  const part = { ...pass, joins: pass.joins.filter(({ rank }) => rank !== 6) };
  assert.equal(joinedOf(part)[2], null, "not all are through");
  assert.ok(pipelineKeys(look, pass, place, { frozen: false, gone: false }).some(({ words }) => words === "all-reduce over the replicas"));
  const join = mine.find(({ rank }) => rank === 3), under = underPipeline(place, momentX(place, join.start + 1 - pass.from, scale), barTop(place, 3) + 3, scale);
  assert.match(wordsUnder(pass, under, undefined, false).join("; "), /^all-reduce over the replicas; ranks 3, 7: 1 tensor/);
});

test("a gap says whether its own message was on its way, or others' made it late", () => {
  const { pass } = seenAt({ wire: 2.5 }, 1, 928), said = pass.idle.filter(({ why }) => why === "comm").map((idle) => idleWords(pass, idle)[1]);
  assert.ok(said.some((words) => /its input is on its way, 4\.10 kB/.test(words)));
  assert.ok(said.some((words) => /for messages to other ranks took their time/.test(words)));
});

test("every mark of the picture has a key", () => {
  const names = (how, befell = { frozen: false, gone: false }) => {
    const { look, pass, place } = seenAt(how, 1, 928);
    return pipelineKeys(look, pass, place, befell).map((item) => item.words);
  };
  const plain = names({});
  for (const words of ["forward", "backward", "plan", "update of the parameters", "idle: warm-up and drain", "idle: imbalance", "idle: communication", "activations held, and the schedule's most"]) assert.ok(plain.includes(words), words);
  assert.ok(!plain.includes("weight gradient") && !plain.includes("idle: fault"));
  assert.ok(names({ schedule: "split" }).includes("weight gradient") && names({ schedule: "split" }).includes("input gradient"));
  assert.ok(names({ schedule: "looped" }).some((words) => /below each other/.test(words)));
  assert.ok(names({ freeze: { rank: 2, at: 450, seconds: 0.2 } }, { frozen: true, gone: false }).includes("idle: fault"));
  assert.ok(!names(null).includes("plan") && names(null).some((words) => /version/.test(words)));
});

test("pictures on a page keep scales of their own until the reader wants one; then the longest on show decides", () => {
  const told = [], body = () => ({ isConnected: true, hidden: false }), [a, b, c] = [0, 1, 2].map((i) => new PageScale(body(), () => told.push(i)));
  a.fit(100);
  b.fit(300);
  assert.deepEqual([a.now, b.now, a.shared, a.others.length], [102, 306, false, 1], "one that shows nothing is none");
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
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { drawBars } from "../../assets/scenes/pipeline/draw.js";
import { keysOf as pipelineKeys } from "../../assets/scenes/pipeline/legend.js";
import { barTop, momentX, hitUnder as underPipeline } from "../../assets/scenes/pipeline/place.js";
import { joinedOf, joinedWords, meshLines, passedOn } from "../../assets/scenes/pipeline/mesh.js";
import {
  actionWords,
  idleWords,
  factsWords as pipelineFactsWords,
  linesOf as pipelineLines,
  sentenceOf as pipelineSentence,
  scheduleName,
  stageRowWords,
  taskWords,
  wordsUnder,
} from "../../assets/scenes/pipeline/captions.js";
import { canvas, onto } from "./canvas.js";
import { seenAt, slow } from "./piped_seen.js";
import { CONTROL } from "./rows.js";

test(
  "one sentence: as planned, a slow stage, " + "messages, a freeze, going on, failed, nothing yet",
  () => {
    const say = (how, more = {}) => {
      const { pass, look } = seenAt(how, 1, 928, more);
      return pipelineSentence(look.known, pass, true);
    };
    assert.equal(
      say({ wire: 0 }),
      "The ranks are idle 27 % of the time, and the schedule alone costs 27 %: it went as planned.",
    );
    assert.match(
      say({ time: slow, pads: [10, 10, 10] }),
      /^The ranks are idle 3\d % of the time, the schedule alone costs 27 %: the rest is mostly waiting for the slow stage 2\.$/,
    );
    assert.match(
      say({ freeze: { rank: 2, at: 450, seconds: 0.2 } }),
      /mostly a process that stood still\.$/,
    );
    assert.match(say(null), /^The ranks are idle \d+ % of the time, mostly /);
    assert.match(
      say({}, { state: "running", control: { ...CONTROL, frozen: [1] } }),
      /^You froze rank 1 \(stage 1\)/,
    );
    assert.match(
      say({}, { state: "running", control: { ...CONTROL, held: true } }),
      /^You hold the ranks\. /,
    );
    assert.equal(say({}, { state: "failed", words: "Rank 2 was killed." }), "Rank 2 was killed.");
    const nothing = (state) =>
      pipelineSentence({ ...seenAt({}, 1, 928).look.known, state, words: "" }, null, true);
    assert.match(nothing("running"), /No microbatch has started yet/);
    assert.match(nothing("starting"), /starting/);
  },
);

test("in words: shares that add up, the plan by its name, a row, an action, a gap", () => {
  const { pass } = seenAt({ time: slow, pads: [10, 10, 10] }, 1, 928);
  const lines = pipelineLines(pass);
  const number = (i) => parseFloat(lines[i][0]);
  assert.match(lines[0].join(" "), /idle formula 27\.3 %$/);
  assert.ok(Math.abs(number(1) + number(2) + number(3) - number(0)) < 0.16);
  assert.match(lines[2][2], /stage 2 takes 1\.30× as long/);
  assert.match(lines[4].join(" "), /1\.\d+× the planned time .* padded times/);
  const task = pass.rows[1].find((t) => t.kind === "B" && t.microbatch === 3);
  assert.equal(actionWords(task), "backward of microbatch 3 on stage 1");
  assert.match(
    taskWords(pass, task).join("; "),
    /20\.0 ms, started .* later than planned; its gradient left stage 2 at .* and arrived at .*; it used version 1/,
  );
  assert.match(
    idleWords(
      pass,
      pass.idle.find(({ why }) => why === "comm"),
    ).join("; "),
    /^stage \d idle for .*communication: its input is on its way/,
  );
  assert.match(
    stageRowWords(pass, 0).join("; "),
    /^stages? 0 on rank 0: 16 actions.*busy .*activations 4\/4/,
  );
  assert.equal(pipelineFactsWords(pass.facts), "1F1B, 4 stages, 8 microbatches");
  assert.deepEqual(
    ["1f1b", "zb_h1", "interleaved_1f1b", "gpipe", "pipedream", "my_own"].map(scheduleName),
    ["1F1B", "ZB-H1", "interleaved 1F1B", "GPipe", "PipeDream", "my own"],
  );
});

test(
  "two replicas: what each rank's gradients were added up with, once all had come; what the " +
    "stages passed on",
  () => {
    const { pass, look, place, scale } = seenAt({ replicas: 2, noise: 0.2 }, 1, 928);
    const joined = joinedOf(pass);
    const g = canvas();
    joined.forEach((one, row) => {
      const [a, b] = pass.joins.filter(({ rank }) => rank % 4 === row);
      assert.deepEqual([one.tensors, one.nbytes, one.ns], [1, 1000 * (row + 1), 1e6]);
      assert.deepEqual(
        [one.waits, one.last],
        [Math.abs(a.start - b.start), a.start > b.start ? a.rank : b.rank],
      );
      assert.match(
        joinedWords(pass, one, row),
        new RegExp(
          `^ranks ${row}, ${row + 4}: 1 tensor, ${row + 1}\\.00 kB all-reduced in 1\\.00 ms ` +
            `once all had come; before that others waited .* for rank [${row}${row + 4}]$`,
        ),
      );
    });
    assert.deepEqual(passedOn(pass), { activation: 3 * 8 * 4096, gradient: 3 * 8 * 4096 });
    assert.deepEqual(meshLines(pass), [
      "→ pipeline: activations 98.3 kB, gradients back 98.3 kB",
      "↕ data: gradients all-reduced, 10.0 kB in all, 1.00 ms at most",
    ]);
    assert.deepEqual(meshLines(null), [
      "→ pipeline: activations, gradients back",
      "↕ data: gradients all-reduced",
    ]);
    onto(g);
    drawBars(g, look, pass, place, scale);
    const mine = pass.joins.filter(({ rank }) => rank < 4);
    const drawn = g.drawn.filter((d) => d.ink === "comm" && d.h === place.bar / 2);
    assert.deepEqual(
      drawn.map((d) => Math.round(d.x)),
      mine
        .map(({ start }) => Math.round(momentX(place, start - pass.from, scale)))
        .filter((x) => x < place.right),
      "each after its rank's last action",
    );
    assert.ok(drawn.length >= 3);
    const part = { ...pass, joins: pass.joins.filter(({ rank }) => rank !== 6) };
    assert.equal(joinedOf(part)[2], null, "not all are through");
    assert.ok(
      pipelineKeys(look, pass, place, { frozen: false, gone: false }).some(
        ({ words }) => words === "all-reduce over the replicas",
      ),
    );
    const join = mine.find(({ rank }) => rank === 3);
    const under = underPipeline(
      place,
      momentX(place, join.start + 1 - pass.from, scale),
      barTop(place, 3) + 3,
      scale,
    );
    assert.match(
      wordsUnder(pass, under, undefined, false).join("; "),
      /^all-reduce over the replicas; ranks 3, 7: 1 tensor/,
    );
  },
);

test("a gap says whether its own message was on its way, or others' made it late", () => {
  const { pass } = seenAt({ wire: 2.5 }, 1, 928);
  const said = pass.idle
    .filter(({ why }) => why === "comm")
    .map((idle) => idleWords(pass, idle)[1]);
  assert.ok(said.some((words) => /its input is on its way, 4\.10 kB/.test(words)));
  assert.ok(said.some((words) => /for messages to other ranks took their time/.test(words)));
});

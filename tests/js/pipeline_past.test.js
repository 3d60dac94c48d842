import assert from "node:assert/strict";
import { test } from "node:test";
import { idleShare } from "../../assets/scenes/pipeline/idle.js";
import { PipelinePast, stepOf as pipelineStep } from "../../assets/scenes/pipeline/past.js";
import { seenAt } from "./piped_seen.js";

test("a step leads to the next action, microbatch or iteration, and back", () => {
  const { passes, pass } = seenAt({}, 0.4, 928);
  const t = pass.from + 1;
  const starts = pass.rows
    .flat()
    .map((task) => task.start)
    .sort((a, b) => a - b);
  assert.equal(
    pipelineStep(passes, pass, t, "chunk", 1),
    starts.find((at) => at > t),
  );
  assert.equal(pipelineStep(passes, pass, pass.to, "chunk", -1), starts.at(-1));
  assert.equal(pipelineStep(passes, pass, t, "iteration", 1), passes.calls[2].start);
  assert.equal(pipelineStep(passes, pass, t, "iteration", -1), pass.from);
  const ends = [...Array(8).keys()].map((m) =>
    Math.max(
      ...pass.rows
        .flat()
        .filter((task) => task.microbatch === m)
        .map((task) => task.end),
    ),
  );
  assert.equal(pipelineStep(passes, pass, t, "step", 1), Math.min(...ends));
});

test("the history works every iteration out once, in pieces", () => {
  const { passes, pass } = seenAt({ iterations: 12 }, 0.4, 928);
  const past = new PipelinePast();
  let calls = 0;
  let read;
  do ((read = past.read(passes, pass.facts, 0, "run")), (calls += 1));
  while (read.more && calls < 100);
  assert.deepEqual(
    read.list.map((one) => one.iteration),
    [...Array(12).keys()],
  );
  assert.equal(read.list[1].idle, idleShare(pass.all));
  assert.equal(past.read(passes, pass.facts, 0, "run").list, read.list);
});

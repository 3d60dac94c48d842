import assert from "node:assert/strict";
import { test } from "node:test";
import {
  sentenceOf as rlSentence,
  spotWords as rlSpotWords,
} from "../../assets/scenes/reinforcement/captions.js";
import { frameOf as rlFrame } from "../../assets/scenes/reinforcement/frame.js";
import {
  indexOf as rlIndexOf,
  rolesOf as rlRoles,
} from "../../assets/scenes/reinforcement/index.js";
import { recorded } from "./recorded.js";

test("a learner that has pushed and not been granted its next update waits for that server", () => {
  for (const name of ["played_gorila", "played_bundles"]) {
    const known = recorded(name);
    const roles = rlRoles(known.run);
    const index = rlIndexOf(known.table);
    const rank = roles.learners[0];
    const { what, end, start } = index.spans.get(rank);
    const gaps = what.flatMap((one, i) =>
      one === "push" && start[i + 1] > end[i] + 2 ? [(end[i] + start[i + 1]) / 2] : [],
    );
    assert.ok(gaps.length > 5, name);
    const held = gaps.filter((t) => {
      const frame = rlFrame(index, roles, t, known.run.iterations);
      const learner = frame.learners.find((one) => one.rank === rank);
      if (!learner.held) return false;
      assert.equal(learner.does, "waits");
      assert.ok(roles.servers.includes(learner.forWhom));
      assert.match(rlSpotWords(frame, { rank, role: "learner" })[0], /to grant its next update/);
      const said = rlSentence(known, frame, index, roles, false);
      if (/waits for server/.test(said)) assert.match(said, /waits for server \d+ to grant its/);
      return true;
    });
    assert.ok(held.length > gaps.length / 2, `${name}: ${held.length} of ${gaps.length}`);
  }
});

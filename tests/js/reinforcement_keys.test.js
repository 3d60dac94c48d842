import assert from "node:assert/strict";
import { test } from "node:test";
import { lastEpisodes, roundLevels } from "../../assets/scenes/reinforcement/charts.js";
import { frameOf as rlFrame } from "../../assets/scenes/reinforcement/frame.js";
import {
  indexOf as rlIndexOf,
  rolesOf as rlRoles,
} from "../../assets/scenes/reinforcement/index.js";
import { keysOf as rlKeys } from "../../assets/scenes/reinforcement/legend.js";
import { placeOf as rlPlace } from "../../assets/scenes/reinforcement/place.js";
import { INK } from "./canvas.js";
import { recorded } from "./recorded.js";

test("the levels of an axis are few round numbers around all values", () => {
  assert.deepEqual(roundLevels(-1, 1), [-1, 0, 1]);
  assert.deepEqual(roundLevels(0, 39.8), [0, 20, 40]);
  assert.deepEqual(roundLevels(0, 148), [0, 50, 100, 150]);
  for (const [low, high] of [
    [9, 347],
    [-0.7, -0.2],
    [0, 1e-3],
    [0, 1],
  ]) {
    const levels = roundLevels(low, high);
    assert.ok(levels[0] <= low + 1e-12 && levels[levels.length - 1] >= high - 1e-12, `${levels}`);
    assert.ok(levels.length >= 2 && levels.length <= 5, `${levels}`);
  }
});

test("a key is for what is drawn: the game in low boxes and bundles too, strips where they fit", () => {
  for (const [run, width, game] of [
    ["played_bundles", 928, true],
    ["played_ape_x", 928, true],
    ["played_bundles", 340, false],
  ]) {
    const known = recorded(run);
    const [roles, index] = [rlRoles(known.run), rlIndexOf(known.table)];
    const frame = rlFrame(index, roles, known.table.to, known.run.iterations);
    const seen = { roles, index, frame, place: rlPlace(roles, width) };
    const names = rlKeys({ ink: INK }, seen).map(({ name }) => name);
    assert.equal(names.includes("game"), game, `${run} ${width}: ${names}`);
    const drawn = names.some((name) => name.startsWith("old"));
    const held = frame.replays.some(({ columns }) => columns.length);
    assert.equal(drawn, held, `${run} ${width}: ${names}`);
  }
});

test("mean, lowest and highest return are those of the same twenty episodes", () => {
  // nine balls in ten are caught: parts of the time without a miss are none without a band
  const bins = Array.from({ length: 40 }, (_, i) => {
    const value = i < 10 ? -1 : 1;
    return { t: i, mean: value, low: value, high: value, many: 5 };
  });
  const shown = lastEpisodes(bins);
  assert.deepEqual(shown[9], { t: 9, mean: -1, low: -1, high: -1, many: 5 });
  assert.deepEqual(shown[10], { t: 10, mean: -0.5, low: -1, high: 1, many: 5 });
  assert.deepEqual(shown[12], { t: 12, mean: 0.5, low: -1, high: 1, many: 5 });
  assert.deepEqual(shown[13], { t: 13, mean: 1, low: 1, high: 1, many: 5 });
});

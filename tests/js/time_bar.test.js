import assert from "node:assert/strict";
import { test } from "node:test";
import {
  STRIP,
  callBars,
  drawStripMarks,
  iterationTicks,
  placeOfMoment,
  previewOf,
} from "../../assets/chrome/call_strip.js";
import { KEYS } from "../../assets/chrome/key_sheet.js";
import { actionsOf } from "../../assets/chrome/keyboard.js";
import { INK, canvas } from "./canvas.js";
import { recorded } from "./recorded.js";

const callsOf = (iterations, each) =>
  Array.from({ length: iterations * each }, (_, i) => ({
    start: 10 * i,
    end: 10 * i + 8,
    op: i,
    iteration: Math.floor(i / each),
  }));

test("ticks: the first call of every k-th iteration, their numbers apart", () => {
  for (const [iterations, each, width] of [
    [3, 1, 700],
    [30, 1, 700],
    [30, 4, 300],
    [3000, 2, 960],
  ]) {
    const calls = callsOf(iterations, each);
    const ticks = iterationTicks(calls, width, true);
    assert.ok(ticks.length > 1 && ticks.length < width / 28, `${iterations}: ${ticks.length}`);
    const room = width - STRIP.left - STRIP.right;
    ticks.forEach(({ x, iteration }, i) => {
      assert.ok(Math.abs(x - STRIP.left - ((iteration - 1) / iterations) * room) < 0.01);
      if (i) assert.ok(x - ticks[i - 1].x >= 28);
    });
  }
  const rounds = callsOf(9, 1).map((call) => ({ ...call, words: { where: "round" } }));
  assert.deepEqual(iterationTicks(rounds, 700, true), [], "a round is no iteration");
});

test("marks stand at their moments: amber for what was done, a red cross for what was noticed", () => {
  const calls = callsOf(10, 1);
  const g = canvas();
  const lines = [
    { t: 24, kind: "fault", words: "", rank: 0 },
    { t: 58, kind: "detect", words: "", rank: 0 },
    { t: 70, kind: "milestone", words: "", rank: -1 },
  ];
  drawStripMarks(g, INK, calls, lines, 700, true);
  assert.deepEqual([...new Set(g.drawn.map(({ ink }) => ink))], ["hold", "fault"]);
  const bars = callBars(calls, 700, true);
  assert.ok(Math.abs(placeOfMoment(calls, 24, 700, true) - bars[2].x - bars[2].w / 2) < 1);
  assert.ok(placeOfMoment(calls, 59, 700, true) <= bars[6].x);
});

test("a place of the strip says call, iteration, time and loss", () => {
  const known = recorded("peer_replaced");
  const call = known.table.calls.find(({ iteration }) => iteration >= 1);
  assert.match(
    previewOf(known, call),
    /^call \d+ of \d+ · iteration \d+ · .*s after the start · lasts .*s · loss \d/,
  );
});

test("the sheet of keys has every key, and no other", () => {
  const some = { table: {} };
  const stage = {
    playback: {},
    scenes: {},
    known: some,
    screen: {},
    tools: {},
    walk: { isOpen: true },
  };
  const keys = new Set(Object.keys(actionsOf(stage)).map((key) => key.toUpperCase()));
  const names = { SPACE: " ", "←": "ARROWLEFT", "→": "ARROWRIGHT", "−": "-" };
  const listed = KEYS.flatMap(([, all]) => all.flatMap(([key]) => key.toUpperCase().split(" ")))
    .filter((key) => !["TO", "TAB", "ENTER", "CTRL-Z", "1", "9"].includes(key))
    .map((key) => names[key] ?? key);
  assert.deepEqual([...new Set([...listed, "="])].sort(), [...keys].sort());
});

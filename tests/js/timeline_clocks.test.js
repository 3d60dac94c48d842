// The timeline of a recorded run of two hosts, of which the second has a clock of its own: how well
// its times are known is drawn, and no arrow is finer.
import assert from "node:assert/strict";
import { test } from "node:test";
import { drawLanes } from "../../assets/scenes/timeline/draw.js";
import { TimelineIndex } from "../../assets/scenes/timeline/index.js";
import { placeOf as timelinePlace, windowX } from "../../assets/scenes/timeline/layout.js";
import { keysOf } from "../../assets/scenes/timeline/legend.js";
import { drawOver } from "../../assets/scenes/timeline/overlay.js";
import { clockWords, knownOf } from "../../assets/scenes/timeline/uncertainty.js";
import { openCall } from "../../assets/engine/model.js";
import { INK, canvas } from "./canvas.js";
import { recorded } from "./recorded.js";

const RANKS = [0, 1];

/** One all-reduce of the run, selected and as wide as the picture. */
function picture(bounds) {
  const known = recorded("other_clock");
  const { table } = known;
  const index = new TimelineIndex(table);
  index.update();
  index.bounds = bounds ?? known.run.clock_bounds;
  const head = table.calls.findLast((call) => call.collective === "all_reduce" && call.complete);
  const call = openCall(table, head);
  const room = (head.end - head.start) / 4;
  const win = { from: head.start - room, to: head.end + room };
  const place = timelinePlace(RANKS.length, 900);
  const lanes = { index, win, place, ink: INK, font: "sans-serif", waiting: "", cores: 2 };
  const { hits } = drawLanes(canvas(), lanes, RANKS);
  const g = canvas();
  const choice = { op: head.op, group: head.group };
  drawOver(g, lanes, RANKS, { table, t: win.from - 10 * room, choice }, null, hits);
  const scale = place.room / (win.to - win.from);
  const flights = call.flights.map((f) => ({
    ...f,
    x0: windowX(win, place, call.start + f.start),
    x1: windowX(win, place, call.start + f.end),
  }));
  return { known, index, g, flights, scale };
}

/** Horizontal lines: the middles of error bars. */
const bars = (g) =>
  g.drawn
    .filter((d) => d.kind === "line" && !d.filled && d.y1 === d.y2 && d.x1 !== d.x2)
    .map(({ x1, x2 }) => ({ x: (x1 + x2) / 2, half: (x2 - x1) / 2 }));

/** The lines of arrows: from lane to lane, and no edge of a band. */
const arrows = (g) =>
  g.drawn.filter((d) => d.kind === "line" && Math.abs(d.y1 - d.y2) > 9 && d.alpha > 0.5);

const near = (a, b) => Math.abs(a - b) < 1e-6;

test("each end of an arrow at the rank with another clock has an error bar, as wide as is known", () => {
  const { known, g, flights, scale } = picture();
  const bound = known.run.clock_bounds[1];
  assert.ok(bound > 0 && flights.length > 2);
  const drawnBars = bars(g);
  for (const f of flights) {
    const [there, here] = f.from === 1 ? [f.x0, f.x1] : [f.x1, f.x0];
    assert.ok(drawnBars.some(({ x, half }) => near(x, there) && near(half, bound * scale)));
    assert.ok(!drawnBars.some(({ x }) => near(x, here)), "the driver's own clock is exact");
  }
});

test("an arrow that lasts no longer than its ends may be wrong by has no head, and is dashed", () => {
  for (const bound of [1, 60_000, 1e9]) {
    const { g, flights } = picture({ 1: bound });
    const sure = flights.filter((f) => f.end - f.start > bound).length;
    const slanted = arrows(g);
    assert.equal(slanted.filter((d) => d.dashed).length, flights.length - sure);
    assert.equal(slanted.filter((d) => !d.dashed).length, sure);
  }
  const bounds = { 1: 5, 2: 7 };
  assert.deepEqual(knownOf({ from: 1, to: 2, start: 0, end: 12 }, bounds), {
    start: 5,
    end: 7,
    sure: false,
  });
  assert.ok(knownOf({ from: 1, to: 2, start: 0, end: 13 }, bounds).sure);
  assert.ok(knownOf({ from: 0, to: 3, start: 4, end: 4 }, bounds).sure, "one clock, as it is");
});

test("with one clock there is nothing to say", () => {
  const { g, index } = picture({});
  assert.deepEqual(bars(g), []);
  assert.ok(!g.drawn.some((d) => d.dashed));
  assert.ok(!keysOf(index, "full", true, true).has("tl-bar"));
  assert.ok(keysOf(picture().index, "full", true, true).has("tl-bar"));
  assert.equal(clockWords({}, 1), "");
  assert.equal(clockWords({ 1: 86_000 }, 1), "; times of rank 1: ± 86.0 µs");
});

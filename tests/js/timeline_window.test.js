import assert from "node:assert/strict";
import { test } from "node:test";
import { LabelRow } from "../../assets/drawing/label_row.js";
import { besideFaults } from "../../assets/scenes/timeline/computing_lane.js";
import {
  fitting,
  panWindow,
  roundedSpan,
  placeOf as timelinePlace,
  windowFor,
  windowT,
  windowX,
  zoomWindow,
} from "../../assets/scenes/timeline/layout.js";
import { nothing } from "../../assets/engine/page_state.js";
import { goneAt } from "../../assets/scenes/timeline/overlay.js";
import { CONTROL } from "./rows.js";
import { MS } from "./training.js";

const extent = (iteration, from, span, done = true) => ({ iteration, from, to: from + span, done });

test("the window's scale goes in steps, says so, and else nothing moves", () => {
  let win = windowFor(null, extent(0, 0, 41 * MS), 0);
  assert.deepEqual([win.from, win.to, win.change], [0, 50 * MS, ""]);
  for (let i = 1; i < 20; i++) {
    win = windowFor(win, extent(i, i * 40 * MS, (35 + (i % 7)) * MS), i * 40 * MS);
    assert.deepEqual(
      [win.from, win.to - win.from, win.change],
      [i * 40 * MS, 50 * MS, ""],
      `iteration ${i}`,
    );
  }
  win = windowFor(win, extent(20, 900 * MS, 61 * MS), 900 * MS);
  assert.deepEqual(
    [win.to - win.from, win.change],
    [80 * MS, "the scale grew from 50.0 ms to 80.0 ms"],
  );
  win = windowFor(win, extent(21, 1000 * MS, 50 * MS), 1000 * MS);
  assert.deepEqual([win.to - win.from, win.change], [80 * MS, ""]);
  win = windowFor(win, extent(22, 2000 * MS, 8 * MS, false), 2000 * MS); // it has only begun
  assert.equal(win.to - win.from, 80 * MS);
  win = windowFor(win, extent(22, 2000 * MS, 30 * MS), 2000 * MS);
  assert.deepEqual(
    [win.to - win.from, win.change],
    [40 * MS, "the scale shrank from 80.0 ms to 40.0 ms"],
  );
});

test("a rank is gone after its last row, not in a picture of the time before", () => {
  const index = { ranks: new Map([[1, { all: { end: 500 * MS } }]]) };
  const known = { ...nothing(), control: { ...CONTROL, ended: { 1: "killed" } } };
  const gone = (t) => [...goneAt({ known, t }, index)];
  assert.deepEqual([gone(100 * MS), gone(500 * MS), gone(900 * MS)], [[], [1], [1]]);
});

test("round spans are at least what they are for, and not much more", () => {
  for (let span = 3; span < 1e12; span *= 1.07) {
    const rounded = roundedSpan(span);
    assert.ok(rounded >= span * (1 - 1e-9) && rounded <= span * 1.34, `${span} → ${rounded}`);
    assert.equal(roundedSpan(rounded), rounded);
  }
});

test("the reader's own width stays; the window turns pages with the playhead", () => {
  const run = { from: 0, to: 1e9 };
  const win = zoomWindow(
    windowFor(null, extent(3, 100 * MS, 40 * MS), 110 * MS),
    1 / 8,
    110 * MS,
    run,
  );
  assert.ok(Math.abs(win.to - win.from - 6.25 * MS) < 1 && win.chosen && win.follows);
  assert.equal((110 * MS - win.from) / (win.to - win.from), 0.2); // the moment stays where it is
  assert.equal(windowFor(win, extent(3, 100 * MS, 40 * MS), 112 * MS).from, win.from);
  const next = windowFor(win, extent(3, 100 * MS, 40 * MS), 120 * MS);
  assert.ok(
    next.from < 120 * MS && next.to > 120 * MS && Math.abs(next.to - next.from - 6.25 * MS) < 1,
  );
  const moved = panWindow(win, 30 * MS, run);
  assert.deepEqual([moved.from, moved.follows], [win.from + 30 * MS, false]);
  assert.ok(panWindow(win, 1e12, run).from < run.to && panWindow(win, -1e12, run).to > run.from);
  assert.ok(
    zoomWindow(win, 1e9, 0, run).to - win.from <= 1.1e9 &&
      zoomWindow(win, 1e-9, 0, run).to - zoomWindow(win, 1e-9, 0, run).from >= 199,
  );
});

test("a place is a moment, and back", () => {
  const win = { from: 5e6, to: 9e6 };
  for (const width of [640, 960])
    for (const t of [5e6, 6.1e6, 9e6])
      assert.ok(
        Math.abs(
          windowT(win, timelinePlace(4, width), windowX(win, timelinePlace(4, width), t)) - t,
        ) < 1e-3,
      );
});

test("the label of a bar stands beside the lines of faults that cross the bar", () => {
  assert.equal(besideFaults([], 0, 100, 30), 50);
  assert.equal(besideFaults([-5, 120], 0, 100, 30), 50);
  assert.equal(besideFaults([40], 0, 100, 30), 70);
  assert.equal(besideFaults([90, 30], 0, 100, 30), 60);
  assert.ok(Number.isNaN(besideFaults([20], 0, 50, 30)), "no room for it");
});

test("labels: none over another; shortened to the number, then left out", () => {
  const labels = new LabelRow(0, 200);
  const at = [50, 60, 120, 195, 10].map((x) => labels.place(x, 40, ["right", "left"]));
  assert.deepEqual(
    at,
    [55, null, 125, null, null].map((x, i) => (i === 1 ? null : i === 4 ? null : x)),
  );
  const measure = (text) => text.length * 6;
  assert.deepEqual(
    [100, 40, 11].map((room) => fitting("bucket 12", room, measure)),
    ["bucket 12", "12", ""],
  );
  assert.equal(fitting("0.weight", 30, measure), "");
});

test("chunks of up to six ranks have room for their numbers, and eight rows are no higher", () => {
  for (let ranks = 1; ranks <= 8; ranks++) {
    const { lanes } = timelinePlace(ranks, 1200);
    assert.ok(ranks * lanes.row <= 304, `${ranks} ranks are ${ranks * lanes.row} px`);
    assert.ok(lanes.core + 8 <= lanes.row, "what stands under a rank's lanes is in its row");
    assert.equal(lanes.talkHeight / 2 >= 9, ranks <= 6); // comm_lane.js writes them from there on
  }
});

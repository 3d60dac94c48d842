// What a guided walk tells of a run: its mark, its moment, its number, and where its card stands.
import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { bytes } from "../../assets/engine/format.js";
import { openCall } from "../../assets/engine/model.js";
import { cardPlace, filled, markOf, momentsOf, numberOf } from "../../assets/engine/walk_steps.js";
import { recorded } from "./recorded.js";

const known = recorded("poisoned");
const { table } = known;
const look = { known, table, ranks: known.run.ranks };
const call = openCall(
  table,
  table.calls.find((one) => one.sends && one.complete),
);

test("a mark is the first that has all that the step names", () => {
  const marks = [
    { mark: "cell", rank: 0, whole: false },
    { rank: 1, peer: 2 },
    { mark: "cell", rank: 1, whole: true },
  ];
  assert.equal(markOf({ mark: "cell", where: { whole: true } }, marks), marks[2]);
  assert.equal(markOf({ mark: "comet", peer: 2 }, marks), marks[1]);
  assert.equal(markOf({ mark: "cell", rank: 2 }, marks), null);
});

test("moments begin where the step says, then go away from there, within the call", () => {
  const span = { start: 100, end: 300, flights: [{ start: 20, end: 40 }] };
  const [wanted, ...near] = momentsOf({ playhead: 0.25 }, span);
  assert.equal(wanted, 150);
  assert.ok(near.includes(130), "the middle of a flight");
  const far = near.map((t) => Math.abs(t - wanted));
  assert.deepEqual(
    far,
    far.toSorted((a, b) => a - b),
  );
  assert.ok(near.every((t) => t >= 100 && t <= 300));
});

test("numbers are those of the rows", () => {
  const mine = call.rows.filter((row) => row.kind === "send" && row.rank === 1);
  const sum = mine.reduce((all, row) => all + row.nbytes, 0);
  const query = { say: "{n}", take: "sum", column: "nbytes", kind: "send" };
  const of = (more, who = { rank: 1 }) => numberOf({ ...query, ...more }, look, call, who);
  assert.equal(of({ by: ["rank"] }), bytes(sum));
  assert.equal(of({ take: "count", by: ["rank"] }), String(mine.length));
  assert.equal(of({ by: ["rank"] }, { rank: 7 }), "", "no such row: no number");
  assert.equal(numberOf({ fact: "ranks" }, look, call, {}), "3");
  assert.equal(numberOf({ field: "held", as: "bytes" }, look, call, { held: 2000 }), "2.00 kB");
  assert.equal(numberOf({ field: "held" }, look, call, {}), "");
  const waits = Number(of({ take: "share", column: "duration", kind: "wait" }).split(" ")[0]);
  assert.ok(waits > 0 && waits < 100);
});

test("the last value of a name is the newest finite one before the playhead", () => {
  const query = { take: "last", column: "value", name: "loss", of: "run" };
  const rows = [...Array(table.rows).keys()].filter(
    (r) => table.text(table.name[r]) === "loss" && Number.isFinite(table.value[r]),
  );
  const newest = (t) => rows.findLast((r) => table.end[r] <= t);
  rows.sort((a, b) => table.end[a] - table.end[b]);
  for (const r of rows.slice(1)) {
    const [now, before] = [table.end[r], newest(table.end[r] - 1)];
    const at = (t) => numberOf(query, { ...look, t }, call, {});
    assert.equal(at(now), String(Number(table.value[newest(now)].toPrecision(3))));
    assert.equal(at(now - 1), String(Number(table.value[before].toPrecision(3))));
  }
});

test("no sum of a run is told whose rows the page has not got", () => {
  const query = { take: "sum", column: "nbytes", kind: "send", of: "run" };
  assert.notEqual(numberOf(query, look, call, {}), "");
  const short = { ...look, known: { ...known, counters: { older: 5 } } };
  assert.equal(numberOf(query, short, call, {}), "");
});

test("a card lies within the room, beside its mark wherever there is a place", () => {
  const [card, room] = [
    { w: 320, h: 180 },
    { w: 900, h: 420 },
  ];
  const apart = (a, b) =>
    a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;
  for (const w of [8, 200, 500])
    for (const h of [8, 120, 200])
      for (let x = 0; x + w <= room.w; x += 50)
        for (let y = 0; y + h <= room.h; y += 40) {
          const at = { ...cardPlace({ x, y, w, h }, card, room), ...card };
          assert.ok(at.x >= 0 && at.y >= 0 && at.x + 320 <= 900 && at.y + 180 <= 420);
          const beside = Math.max(x, room.w - x - w) >= 334 || Math.max(y, room.h - y - h) >= 194;
          assert.ok(!beside || apart(at, { x, y, w, h }), `${[x, y, w, h]}`);
        }
});

test("every walk names marks that its scene declares, and numbers that are said", () => {
  const folder = new URL("../../assets/scenes/", import.meta.url);
  for (const scene of readdirSync(folder)) {
    const file = new URL(`${scene}/walk.json`, folder);
    if (!existsSync(file)) continue;
    const { marks, steps } = JSON.parse(readFileSync(file, "utf8"));
    for (const { title, text, mark, number, ...rest } of steps) {
      assert.ok(
        title && text && [mark].flat().every((name) => name in marks),
        `${scene}: ${title}`,
      );
      assert.match(number.say, /\{n\}/, `${scene}: ${title}`);
      assert.doesNotMatch(filled(text, { rank: 0, peer: 1, chunk: 2, ranks: 4 }), /[{}]/);
      assert.ok((rest.playhead ?? 0) <= 1);
    }
  }
});

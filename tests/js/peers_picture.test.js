import assert from "node:assert/strict";
import { test } from "node:test";
import { doingAt } from "../../assets/engine/rank_activity.js";
import { scoreHeight } from "../../assets/drawing/lanes.js";
import { Chart } from "../../assets/drawing/chart.js";
import { drawSent, drawSpread, sentOf } from "../../assets/scenes/peers/charts.js";
import { barScale, drawPicture as drawPeers } from "../../assets/scenes/peers/draw.js";
import { frameOf as peersFrame } from "../../assets/scenes/peers/frame.js";
import { indexOf as peersIndexOf } from "../../assets/scenes/peers/index.js";
import {
  flownSpot,
  linkWay,
  placeOf as peersPlace,
  hitUnder as underPeers,
} from "../../assets/scenes/peers/place.js";
import { mixingsOf } from "../../assets/scenes/peers/call_source.js";
import { drawScore as drawPeersScore, mixingBars } from "../../assets/scenes/peers/score.js";
import { INK, canvas, collisions, onto } from "./canvas.js";
import { allPeers, knownFrom, mixed, ringPeers } from "./mixed.js";
import { sample } from "./sample.js";

const near = (a, b, slack, what) => assert.ok(Math.abs(a - b) <= slack, `${what}: ${a} and ${b}`);

const MOMENTS = [0.03, 0.21, 0.34, 0.5, 0.68, 0.83, 0.97];

for (const [name, n, peers] of [
  ["2, ring", 2, ringPeers(2)],
  ["4, all", 4, allPeers(4)],
  ["5, ring", 5, ringPeers(5)],
  ["8, ring", 8, ringPeers(8)],
  ["8, all", 8, allPeers(8)],
  ["16, ring", 16, ringPeers(16)],
  ["64, ring", 64, ringPeers(64)],
  ["3, one lost", 3, { ...ringPeers(3), one: true }],
])
  for (const width of sample([608, 928]))
    test(
      "no word lies over a mark or another word, " + `and none is cut off: ${name}, ${width} px`,
      () => {
        const { rows } = mixed({
          n,
          peers,
          ...(peers.one ? { lost: { rank: 1, iteration: 5 } } : {}),
        });
        const known = knownFrom(n, rows, peers);
        const index = peersIndexOf(known);
        const mine = width >= 728 ? Math.round(width * 0.48) : width;
        const told = mixingsOf(known);
        for (const moment of MOMENTS) {
          const t = known.table.to * moment;
          const frame = peersFrame(index, peers, t, n, 12);
          const place = peersPlace(n, mine);
          const where = `${name} at ${moment}`;
          const look = {
            table: known.table,
            known,
            call: null,
            current: told.open(told.callAt(t).key),
            t,
            live: false,
            held: true,
            ranks: n,
            ink: INK,
            font: "sans-serif",
            width,
            ratio: 1,
            at: 0,
            choice: null,
          };
          const texts = (drawn, w, h) => {
            for (const text of drawn.filter((d) => d.kind === "text")) {
              assert.ok(text.size >= 11, `${text.text}: ${where}`);
              assert.ok(
                text.x >= -0.5 &&
                  text.x + text.w <= w + 1 &&
                  text.y >= -1 &&
                  text.y + text.h <= h + 1,
                `${text.text} is cut off: ${where} ${JSON.stringify(text)} in ${w} × ${h}`,
              );
            }
          };
          const g = canvas();
          onto(g);
          drawPeers(g, look, {
            place,
            frame,
            index,
            facts: peers,
            doings: doingAt(known.table, n, t, false),
          });
          texts(g.drawn, mine, place.height);
          assert.deepEqual(collisions(g.drawn), [], where);
          for (const [draw, h] of [
            [
              (g2, w) =>
                drawSpread(
                  new Chart({ g: g2, ink: INK, font: "sans-serif", width: w, height: 232 }),
                  index,
                  frame,
                  peers,
                  12,
                  1,
                  true,
                  [3, 7],
                ),
              232,
            ],
            [
              (g2, w) =>
                drawSent(
                  new Chart({
                    g: g2,
                    ink: INK,
                    font: "sans-serif",
                    width: w,
                    height: n > 8 ? 128 : Math.max(34, 4 + 17 * n),
                  }),
                  sentOf(index, frame, 1.5),
                  1,
                ),
              n > 8 ? 128 : Math.max(34, 4 + 17 * n),
            ],
          ]) {
            const paper = canvas();
            const w = width >= 728 ? width - mine - 24 : width;
            draw(paper, w);
            texts(paper.drawn, w, h);
            assert.deepEqual(collisions(paper.drawn.filter((d) => d.kind === "text")), [], where);
          }
          const score = canvas();
          drawPeersScore(score, look);
          texts(score.drawn, width, scoreHeight(n));
          assert.deepEqual(collisions(score.drawn.filter((d) => d.kind === "text")), [], where);
        }
      },
    );

test("bars are as long as replicas are far, on one scale, and waiting is never solid", () => {
  const n = 4;
  const { rows } = mixed({ n });
  const known = knownFrom(n, rows, ringPeers(n));
  const index = peersIndexOf(known);
  for (const moment of MOMENTS.slice(1)) {
    const t = known.table.to * moment;
    const frame = peersFrame(index, ringPeers(n), t, n, 12);
    const place = peersPlace(n, 440);
    const g = canvas();
    onto(g);
    drawPeers(
      g,
      { known, choice: null, ink: INK, font: "sans-serif" },
      { place, frame, index, facts: ringPeers(n), doings: doingAt(known.table, n, t, false) },
    );
    const bars = g.drawn
      .filter((d) => d.kind === "line" && /^s\d$/.test(d.ink))
      .map((d) => Math.hypot(d.x2 - d.x1, d.y2 - d.y1));
    assert.equal(bars.length, n);
    const scale = barScale(frame);
    bars.forEach((b, r) =>
      near(b, Math.max(1.5, (place.reach * frame.peers[r].distance) / scale), 1e-6, `rank ${r}`),
    ); // the least is seen too
    assert.ok(
      Math.max(...bars) <= place.reach + 0.01 &&
        (moment < 0.8 || Math.max(...bars) > 0.3 * place.reach),
    );
    assert.ok(g.drawn.every((d) => d.ink !== "wait" || (!d.filled && d.dashed)));
  }
});

test("what is under the pointer is what is drawn there", () => {
  const n = 4;
  const { rows } = mixed({ n });
  const known = knownFrom(n, rows, ringPeers(n));
  const index = peersIndexOf(known);
  const place = peersPlace(n, 440);
  let comets = 0;
  for (let i = 1; i < 60; i++) {
    const frame = peersFrame(index, ringPeers(n), (known.table.to * i) / 60, n, 12);
    for (const comet of frame.comets) {
      const { x, y } = flownSpot(place, comet);
      assert.ok("comet" in underPeers(place, frame.comets, frame.links, x, y));
      comets += 1;
    }
    place.circle.nodes.forEach(({ x, y }, rank) =>
      assert.deepEqual(underPeers(place, [], frame.links, x, y), { rank }),
    );
    const { from, to } = frame.links[0];
    const [a, b] = linkWay(place, from, to);
    const hit = underPeers(place, [], frame.links, (a.x + b.x) / 2, (a.y + b.y) / 2);
    assert.deepEqual([hit.link.from, hit.link.to], [from, to]);
  }
  assert.ok(comets > 10);
});

test("the score has what each rank did, cut to the mixing", () => {
  const { rows } = mixed({ n: 3 });
  const known = knownFrom(3, rows, ringPeers(3));
  const { start, end } = mixingsOf(known).calls[4];
  const bars = mixingBars(known.table, start, end);
  const parts = {
    forward: "compute",
    backward: "compute",
    optimizer: "mix",
    send: "move",
    recv: "move",
    wait: "wait",
  };
  const due = rows
    .filter((r) => parts[r.kind] && r.end > start && r.start < end && r.end > r.start)
    .map((r) => `${r.rank} ${parts[r.kind]} ${Math.max(start, r.start)} ${Math.min(end, r.end)}`);
  assert.deepEqual(bars.map((b) => `${b.rank} ${b.part} ${b.start} ${b.end}`).sort(), due.sort());
});

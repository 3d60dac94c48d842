import assert from "node:assert/strict";
import { test } from "node:test";
import { receive, nothing } from "../../assets/known.js";
import { doingAt } from "../../assets/doing.js";
import { scoreHeight } from "../../assets/lanes.js";
import { drawSent, drawSpread, mixingAlone, sentOf } from "../../assets/peers_charts.js";
import { barScale, drawPeers } from "../../assets/peers_draw.js";
import { nextMixing, peersFrame } from "../../assets/peers_frame.js";
import { mixes, peersIndexOf } from "../../assets/peers_index.js";
import { flownSpot, linkWay, peersPlace, underPeers } from "../../assets/peers_place.js";
import { mixingOf, mixingsOf } from "../../assets/peers_rounds.js";
import { drawPeersScore, mixingBars } from "../../assets/peers_score.js";
import { isCall, taleOf } from "../../assets/tale.js";
import { factWords, lastMixed, nextWords, peerWords, peersSentence } from "../../assets/tell_peers.js";
import { INK, canvas, collisions, onto } from "./canvas.js";
import { allPeers, mixed, ringPeers } from "./mixed.js";
import { CONTROL, RUN, batch, calls } from "./rows.js";

/** What a page knows of these rows; in messages of `piece` rows, as they come live. */
function knownFrom(n, rows, peers, { iterations = 12, piece = rows.length, state = "finished" } = {}) {
  let known = nothing();
  const run = { ...RUN, ranks: n, iterations, peers, theory: { "all_reduce/ring": { steps: 2 * (n - 1), share: (2 * (n - 1)) / n } } };
  const all = piece < rows.length ? [...rows].sort((a, b) => a.end - b.end) : rows;
  for (let i = 0, seq = 1; i < all.length; i += piece) {
    const [message, bytes] = batch(all.slice(i, i + piece), { seq: seq++, run, state, control: CONTROL });
    known = receive(known, message, bytes, 0);
    if (piece < rows.length) mixingsOf(known);
  }
  return known;
}

const near = (a, b, slack, what) => assert.ok(Math.abs(a - b) <= slack, `${what}: ${a} and ${b}`);
/** Of sketches, rank by rank: how far each is from their mean. */
function truth(sketches) {
  const mean = sketches[0].map((_, j) => sketches.reduce((sum, s) => sum + s[j], 0) / sketches.length);
  return sketches.map((s) => Math.hypot(...s.map((v, j) => v - mean[j])));
}
const sketchesOf = (x, projections) => x.map((v) => projections.map((p) => p.reduce((sum, q, i) => sum + q * v[i], 0)));

for (const n of [2, 3, 4, 5, 8, 16])
  test(`the disagreement of ${n} replicas is that of their sketches, at every iteration, however the rows come`, () => {
    const { rows, history, projections } = mixed({ n }), peers = ringPeers(n);
    for (const piece of [rows.length, 97, 7]) {
      const index = peersIndexOf(knownFrom(n, rows, peers, { piece }));
      assert.deepEqual(index.spreads.map((s) => s.iteration), history.map((_, k) => k));
      history.forEach((x, k) => truth(sketchesOf(x, projections)).forEach((d, r) => near(index.spreads[k].of.get(r), d, 1e-9, `rank ${r} in ${k}`)));
    }
  });

test("it estimates the true distance, and falls by λ₂ where nobody follows a gradient", () => {
  const n = 8, { rows, history } = mixed({ n, drift: 0, iterations: 30, size: 200 }), peers = ringPeers(n), index = peersIndexOf(knownFrom(n, rows, peers, { iterations: 30 }));
  history.forEach((x, k) => {
    const real = Math.sqrt(truth(x).reduce((sum, d) => sum + d * d, 0) / n);
    assert.ok(index.spreads[k].rms > 0.4 * real && index.spreads[k].rms < 1.8 * real, `${index.spreads[k].rms} of ${real}`);
  });
  near(index.spreads[29].rms / index.spreads[28].rms, peers.rate, 1e-3, "one mixing");
  const alone = mixingAlone(index.spreads, 30, peers);
  assert.equal(alone.iteration, 0);
  assert.equal(mixingAlone(index.spreads, 30, { ...peers, rate: null }), null);
  near(mixingAlone(index.spreads, 30, { ...peers, every: 4 }).rate ** 4, peers.rate, 1e-12, "a mixing in four iterations");
});

test("of workers that run on their own time the replicas are compared as they are at one moment", () => {
  const n = 3, peers = ringPeers(n, { synchronous: false }), lag = (r, k) => [5, 5, 20][r], { rows, history, projections } = mixed({ n, peers: { ...peers, edges: [] }, lag, iterations: 10 });
  const known = knownFrom(n, rows, { ...peers, edges: [] }, { iterations: 10 }), index = peersIndexOf(known), t = index.replicas.get(2).done[1].t;
  const done = [0, 1, 2].map((r) => index.replicas.get(r).done.filter((s) => s.t <= t).length);
  assert.ok(done[0] > done[2] + 2, "the fast one is ahead");
  const now = truth(done.map((count, r) => sketchesOf([history[count - 1][r]], projections)[0])), frame = peersFrame(index, known.run.peers, t, n, 10);
  now.forEach((d, r) => near(frame.peers[r].distance, d, 1e-9, `rank ${r}`));
  assert.equal(frame.iteration, -1);
  near(index.spreads[1].rms, Math.sqrt(now.reduce((sum, d) => sum + d * d, 0) / n), 1e-9, "and so in the chart");
});

test("after an averaging all are alike, and the next one is foretold", () => {
  const n = 4, peers = allPeers(n, 4), { rows } = mixed({ n, peers }), known = knownFrom(n, rows, peers), index = peersIndexOf(known);
  assert.deepEqual(index.spreads.map((s) => s.rms < 1e-9), Array.from({ length: 12 }, (_, k) => k % 4 === 3));
  for (const [k, next] of [[0, 3], [1, 2], [2, 1], [3, 4], [4, 3]]) assert.equal(peersFrame(index, peers, index.spreads[k].t + 1, n, 12).next, next, `after ${k}`);
  const at = (t) => peersSentence(known, peersFrame(index, peers, t, n, 12), peers, doingAt(known.table, n, t, false), false);
  assert.match(at(index.spreads[3].t + 1), /^All replicas are alike; next averaging in 4 iterations\.$/);
  assert.match(at(index.spreads[1].t + 1), /≈ .* from .*mean.*; next averaging in 2 iterations\.$/);
  const call = known.table.calls[1];
  assert.match(at((call.start + call.end) / 2), /^Averaging 2: all take the mean of their replicas/);
  assert.match(at(known.table.to), /all iterations are done/);
  assert.equal(nextMixing({ ...peers, first: 9 }, 0), 10, "after a warm-up");
  assert.equal(nextMixing({ ...peers, first: 9 }, 10), 4);
  assert.equal(nextWords({ next: 1 }, ringPeers(4)), "mixing in every iteration");
});

test("everything on its way is a send row and its recv row, at its share of the time between them", () => {
  for (const peers of [ringPeers(5), allPeers(5, 3)]) {
    const { rows } = mixed({ n: 5, peers }), known = knownFrom(5, rows, peers), index = peersIndexOf(known), name = (r, out) => `${out ? r.rank : r.peer}>${out ? r.peer : r.rank}/${r.op}/${r.collective === "p2p" ? "" : r.chunk}`;
    const flights = new Map();
    for (const r of rows.filter((one) => one.kind === "send" || one.kind === "recv")) {
      const key = name(r, r.kind === "send"), f = flights.get(key) ?? { start: Infinity, end: -Infinity };
      flights.set(key, r.kind === "send" ? { ...f, start: Math.min(f.start, r.start) } : { ...f, end: Math.max(f.end, r.end) });
    }
    let seen = 0;
    for (let i = 1; i < 400; i++) {
      const t = (known.table.to * i) / 400, { comets } = peersFrame(index, peers, t, 5, 12), due = [...flights.values()].filter((f) => f.start <= t && t < f.end);
      assert.equal(comets.length, due.length, `at ${t}`);
      assert.deepEqual(comets.map((c) => Math.round(c.share * 1e6)).sort(), due.map((f) => Math.round((1e6 * (t - f.start)) / (f.end - f.start))).sort());
      seen += due.length;
    }
    assert.ok(seen > 100);
  }
});

test("a message that has not arrived with all its pieces is not drawn", () => {
  const { rows } = mixed({ n: 4 }), half = rows.filter((r) => !(r.kind === "recv" && r.slot === 1)), known = knownFrom(4, half, ringPeers(4)), index = peersIndexOf(known);
  for (let i = 1; i < 100; i++) assert.equal(peersFrame(index, ringPeers(4), (known.table.to * i) / 100, 4, 12).comets.length, 0);
});

test("bytes of links and ranks are those of the send rows that had begun", () => {
  const n = 4, { rows } = mixed({ n }), known = knownFrom(n, rows, ringPeers(n), { piece: 50 }), index = peersIndexOf(known);
  for (const part of [0.2, 0.55, 1]) {
    const t = known.table.to * part, frame = peersFrame(index, ringPeers(n), t, n, 12), firsts = new Map();
    for (const r of rows.filter((one) => one.kind === "send")) firsts.set(`${r.rank}>${r.peer}/${r.op}`, Math.min(firsts.get(`${r.rank}>${r.peer}/${r.op}`) ?? Infinity, r.start));
    for (let rank = 0; rank < n; rank++) assert.equal(frame.peers[rank].sent, rows.filter((r) => r.kind === "send" && r.rank === rank && firsts.get(`${r.rank}>${r.peer}/${r.op}`) <= t).reduce((sum, r) => sum + r.nbytes, 0));
    assert.equal(frame.links.reduce((sum, l) => sum + l.nbytes, 0), frame.peers.reduce((sum, p) => sum + p.sent, 0));
  }
  const apart = rows.filter((r) => r.kind === "send" || r.kind === "recv").map((r) => ({ ...r, group: "metrics" })), measured = peersIndexOf(knownFrom(n, [...rows, ...apart], ringPeers(n)));
  assert.equal(peersFrame(measured, ringPeers(n), known.table.to, n, 12).peers[1].sent, peersFrame(index, ringPeers(n), known.table.to, n, 12).peers[1].sent, "what is measured does not train");
  const last = sentOf(index, peersFrame(index, ringPeers(n), known.table.to, n, 12), 1.5);
  assert.deepEqual(last.map((one) => one.bound), Array(n).fill(1.5 * 4000 * 12));
});

test("bytes are right too where what left first is heard of last", () => {
  const rows = mixed({ n: 2, peers: ringPeers(2) }).rows.filter((r) => r.slot < 1).map((r) => ({ ...r, nbytes: r.nbytes > 0 ? r.nbytes * (r.op + 1) : r.nbytes })), late = (r) => r.kind === "send" && r.op < 3, told = [...rows.filter((r) => !late(r)), ...rows.filter(late)];
  const known = knownFrom(2, told.slice(0, -6), ringPeers(2)), index = peersIndexOf(known), end = known.table.to, before = peersFrame(index, ringPeers(2), end, 2, 12).peers[0].sent;
  const [message, bytes] = batch(told.slice(-6), { seq: 2, run: known.run, state: "finished" }), more = receive(known, message, bytes, 0), after = peersFrame(peersIndexOf(more), ringPeers(2), end, 2, 12).peers[0].sent;
  assert.ok(before < after);
  assert.equal(after, rows.filter((r) => r.kind === "send" && r.rank === 0).reduce((sum, r) => sum + r.nbytes, 0));
});

test("mixings follow each other without a gap, each ends with its last rank, and the run is told in them", () => {
  for (const [peers, count] of [[ringPeers(4), 12], [allPeers(4, 4), 3], [allPeers(4, 5), 2], [allPeers(4, 4, 5), 2]]) {
    const { rows } = mixed({ n: 4, peers });
    for (const piece of [rows.length, 61]) {
      const known = knownFrom(4, rows, peers, { piece }), told = mixingsOf(known), whole = told.calls.filter((c) => c.complete), index = peersIndexOf(known);
      assert.equal(whole.length, count);
      told.calls.forEach((c, i) => assert.ok(i === 0 || c.start === told.calls[i - 1].end));
      whole.forEach((c, i) => {
        const last = index.spreads.filter((s) => mixingOf(peers, s.iteration) === i).at(-1);
        assert.deepEqual([c.iteration, c.end], [i + 1, last.t]);
        const call = told.open(c.key);
        assert.ok(call.flights.length && call.flights.every((f) => f.start >= 0 && f.end <= c.end - c.start));
        assert.equal(isCall(call), false);
      });
      assert.equal(taleOf(known).table, told);
    }
  }
});

test("who is lost is left out, and the others go on", () => {
  const n = 5, peers = allPeers(n, 3), { rows, history, projections } = mixed({ n, peers, lost: { rank: 2, iteration: 6 } }), known = knownFrom(n, rows, peers), index = peersIndexOf(known);
  assert.equal(index.spreads.length, 12);
  const frame = peersFrame(index, peers, known.table.to, n, 12), others = [0, 1, 3, 4], due = truth(sketchesOf(others.map((r) => history[11][r]), projections));
  assert.ok(frame.peers[2].lost && Number.isNaN(frame.peers[2].distance));
  others.forEach((r, i) => near(frame.peers[r].distance, due[i], 1e-9, `rank ${r}`));
  assert.match(factWords(frame, peers, index), /1 rank lost/);
  assert.match(peerWords(frame, 2, index, undefined, peers, "")[0], /lost/);
});

test("a run whose replicas do not differ is told as before", () => {
  const known = knownFrom(3, calls(4), null);
  assert.equal(mixes(known), false);
  assert.equal(mixingsOf(known), null);
  assert.equal(taleOf(known), known);
});

test("an estimate is said to be one, with how sure it is", () => {
  const { rows } = mixed({ n: 4 }), known = knownFrom(4, rows, ringPeers(4)), index = peersIndexOf(known), frame = peersFrame(index, ringPeers(4), index.spreads[5].t + 1, 4, 12);
  assert.match(factWords(frame, ringPeers(4), index), /after iteration 6: estimated from 8 random projections, give or take 25 %/);
  assert.match(peerWords(frame, 1, index, undefined, ringPeers(4), "").join("\n"), /≈ .* from the mean of the replicas: .* % of its length\nestimated from 8/);
  assert.match(peersSentence(known, frame, ringPeers(4), [], false), /≈/);
  assert.match(lastMixed(index, index.spreads[5].t + 1, 2).map(([, what]) => what).join(), /iteration 6 done by all|parameters of rank/);
  assert.match(peersSentence({ ...known, state: "failed", words: "rank 2 was killed" }, frame, ringPeers(4), [], true), /Rank 2 was killed/);
});

const MOMENTS = [0.03, 0.21, 0.34, 0.5, 0.68, 0.83, 0.97];
for (const [name, n, peers] of [["2, ring", 2, ringPeers(2)], ["4, all", 4, allPeers(4)], ["5, ring", 5, ringPeers(5)], ["8, ring", 8, ringPeers(8)], ["8, all", 8, allPeers(8)], ["16, ring", 16, ringPeers(16)], ["64, ring", 64, ringPeers(64)], ["3, one lost", 3, { ...ringPeers(3), one: true }]])
  for (const width of [928, 608])
    test(`no word lies over a mark or another word, and none is cut off: ${name}, ${width} px`, () => {
      const { rows } = mixed({ n, peers, ...(peers.one ? { lost: { rank: 1, iteration: 5 } } : {}) }), known = knownFrom(n, rows, peers), index = peersIndexOf(known), mine = width >= 728 ? Math.round(width * 0.48) : width;
      const told = mixingsOf(known);
      for (const moment of MOMENTS) {
        const t = known.table.to * moment, frame = peersFrame(index, peers, t, n, 12), place = peersPlace(n, mine), where = `${name} at ${moment}`;
        const look = { table: known.table, known, call: null, told: told.open(told.callAt(t).key), t, live: false, held: true, ranks: n, ink: INK, font: "sans-serif", width, ratio: 1, at: 0, choice: null };
        const texts = (drawn, w, h) => {
          for (const text of drawn.filter((d) => d.kind === "text")) {
            assert.ok(text.size >= 11, `${text.text}: ${where}`);
            assert.ok(text.x >= -0.5 && text.x + text.w <= w + 1 && text.y >= -1 && text.y + text.h <= h + 1, `${text.text} is cut off: ${where} ${JSON.stringify(text)} in ${w} × ${h}`);
          }
        };
        const g = canvas();
        onto(g);
        drawPeers(g, look, { place, frame, index, facts: peers, doings: doingAt(known.table, n, t, false) });
        texts(g.drawn, mine, place.height);
        assert.deepEqual(collisions(g.drawn), [], where);
        for (const [draw, h] of [[(g2, w) => drawSpread({ g: g2, ink: INK, font: "sans-serif", ratio: 1, width: w, height: 232 }, index, frame, peers, 12, 1, true, [3, 7]), 232], [(g2, w) => drawSent({ g: g2, ink: INK, font: "sans-serif", ratio: 1, width: w, height: n > 8 ? 128 : Math.max(34, 4 + 17 * n) }, sentOf(index, frame, 1.5), 1), n > 8 ? 128 : Math.max(34, 4 + 17 * n)]]) {
          const paper = canvas(), w = width >= 728 ? width - mine - 24 : width;
          draw(paper, w);
          texts(paper.drawn, w, h);
          assert.deepEqual(collisions(paper.drawn.filter((d) => d.kind === "text")), [], where);
        }
        const score = canvas();
        drawPeersScore(score, look);
        texts(score.drawn, width, scoreHeight(n));
        assert.deepEqual(collisions(score.drawn.filter((d) => d.kind === "text")), [], where);
      }
    });

test("bars are as long as replicas are far, on one scale, and waiting is never solid", () => {
  const n = 4, { rows } = mixed({ n }), known = knownFrom(n, rows, ringPeers(n)), index = peersIndexOf(known);
  for (const moment of MOMENTS.slice(1)) {
    const t = known.table.to * moment, frame = peersFrame(index, ringPeers(n), t, n, 12), place = peersPlace(n, 440), g = canvas();
    onto(g);
    drawPeers(g, { known, choice: null, ink: INK, font: "sans-serif" }, { place, frame, index, facts: ringPeers(n), doings: doingAt(known.table, n, t, false) });
    const bars = g.drawn.filter((d) => d.kind === "line" && /^s\d$/.test(d.ink)).map((d) => Math.hypot(d.x2 - d.x1, d.y2 - d.y1));
    assert.equal(bars.length, n);
    const scale = barScale(frame);
    bars.forEach((b, r) => near(b, Math.max(1.5, (place.reach * frame.peers[r].distance) / scale), 1e-6, `rank ${r}`)); // the least is seen too
    assert.ok(Math.max(...bars) <= place.reach + 0.01 && (moment < 0.8 || Math.max(...bars) > 0.3 * place.reach));
    assert.ok(g.drawn.every((d) => d.ink !== "wait" || (!d.filled && d.dashed)));
  }
});

test("what is under the pointer is what is drawn there", () => {
  const n = 4, { rows } = mixed({ n }), known = knownFrom(n, rows, ringPeers(n)), index = peersIndexOf(known), place = peersPlace(n, 440);
  let comets = 0;
  for (let i = 1; i < 60; i++) {
    const frame = peersFrame(index, ringPeers(n), (known.table.to * i) / 60, n, 12);
    for (const comet of frame.comets) {
      const { x, y } = flownSpot(place, comet);
      assert.ok("comet" in underPeers(place, frame.comets, frame.links, x, y));
      comets += 1;
    }
    place.circle.nodes.forEach(({ x, y }, rank) => assert.deepEqual(underPeers(place, [], frame.links, x, y), { rank }));
    const { from, to } = frame.links[0], [a, b] = linkWay(place, from, to), hit = underPeers(place, [], frame.links, (a.x + b.x) / 2, (a.y + b.y) / 2);
    assert.deepEqual([hit.link.from, hit.link.to], [from, to]);
  }
  assert.ok(comets > 10);
});

test("the score has what each rank did, cut to the mixing", () => {
  const { rows } = mixed({ n: 3 }), known = knownFrom(3, rows, ringPeers(3)), { start, end } = mixingsOf(known).calls[4], bars = mixingBars(known.table, start, end);
  const parts = { forward: "compute", backward: "compute", optimizer: "mix", send: "move", recv: "move", wait: "wait" };
  const due = rows.filter((r) => parts[r.kind] && r.end > start && r.start < end && r.end > r.start).map((r) => `${r.rank} ${parts[r.kind]} ${Math.max(start, r.start)} ${Math.min(end, r.end)}`);
  assert.deepEqual(bars.map((b) => `${b.rank} ${b.part} ${b.start} ${b.end}`).sort(), due.sort());
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { openCall } from "../../assets/engine/model.js";
import { receive } from "../../assets/engine/page_state.js";
import { stepped } from "../../assets/engine/steps.js";
import { doingAt } from "../../assets/engine/rank_activity.js";
import { mixingAlone, sentOf } from "../../assets/scenes/peers/charts.js";
import { nextMixing, frameOf as peersFrame } from "../../assets/scenes/peers/frame.js";
import { mixes, indexOf as peersIndexOf } from "../../assets/scenes/peers/index.js";
import { mixingOf, mixingsOf } from "../../assets/scenes/peers/call_source.js";
import { isCall, sourceOf } from "../../assets/engine/call_source.js";
import {
  factWords,
  lastMixed,
  nextWords,
  peerWords,
  sentenceOf as peersSentence,
} from "../../assets/scenes/peers/captions.js";
import { allPeers, knownFrom, mixed, ringPeers } from "./mixed.js";
import { batch, calls } from "./rows.js";

const near = (a, b, slack, what) => assert.ok(Math.abs(a - b) <= slack, `${what}: ${a} and ${b}`);

/** Of sketches, rank by rank: how far each is from their mean. */
function truth(sketches) {
  const mean = sketches[0].map(
    (_, j) => sketches.reduce((sum, s) => sum + s[j], 0) / sketches.length,
  );
  return sketches.map((s) => Math.hypot(...s.map((v, j) => v - mean[j])));
}

const sketchesOf = (x, projections) =>
  x.map((v) => projections.map((p) => p.reduce((sum, q, i) => sum + q * v[i], 0)));

for (const n of [2, 3, 4, 5, 8, 16])
  test(
    `the disagreement of ${n} replicas is that of their sketches, at every iteration, ` +
      "however the rows come",
    () => {
      const { rows, history, projections } = mixed({ n });
      const peers = ringPeers(n);
      for (const piece of [rows.length, 97, 7]) {
        const index = peersIndexOf(knownFrom(n, rows, peers, { piece }));
        assert.deepEqual(
          index.spreads.map((s) => s.iteration),
          history.map((_, k) => k),
        );
        history.forEach((x, k) =>
          truth(sketchesOf(x, projections)).forEach((d, r) =>
            near(index.spreads[k].of.get(r), d, 1e-9, `rank ${r} in ${k}`),
          ),
        );
      }
    },
  );

test("it estimates the true distance, and falls by λ₂ where nobody follows a gradient", () => {
  const n = 8;
  const { rows, history } = mixed({ n, drift: 0, iterations: 30, size: 200 });
  const peers = ringPeers(n);
  const index = peersIndexOf(knownFrom(n, rows, peers, { iterations: 30 }));
  history.forEach((x, k) => {
    const real = Math.sqrt(truth(x).reduce((sum, d) => sum + d * d, 0) / n);
    assert.ok(
      index.spreads[k].rms > 0.4 * real && index.spreads[k].rms < 1.8 * real,
      `${index.spreads[k].rms} of ${real}`,
    );
  });
  near(index.spreads[29].rms / index.spreads[28].rms, peers.rate, 1e-3, "one mixing");
  const alone = mixingAlone(index.spreads, 30, peers);
  assert.equal(alone.iteration, 0);
  assert.equal(mixingAlone(index.spreads, 30, { ...peers, rate: null }), null);
  near(
    mixingAlone(index.spreads, 30, { ...peers, every: 4 }).rate ** 4,
    peers.rate,
    1e-12,
    "a mixing in four iterations",
  );
});

test(
  "of workers that run on their own time the " + "replicas are compared as they are at one moment",
  () => {
    const n = 3;
    const peers = ringPeers(n, { synchronous: false });
    const lag = (r, k) => [5, 5, 20][r];
    const { rows, history, projections } = mixed({
      n,
      peers: { ...peers, edges: [] },
      lag,
      iterations: 10,
    });
    const known = knownFrom(n, rows, { ...peers, edges: [] }, { iterations: 10 });
    const index = peersIndexOf(known);
    const t = index.replicas.get(2).done[1].t;
    const done = [0, 1, 2].map((r) => index.replicas.get(r).done.filter((s) => s.t <= t).length);
    assert.ok(done[0] > done[2] + 2, "the fast one is ahead");
    const now = truth(done.map((count, r) => sketchesOf([history[count - 1][r]], projections)[0]));
    const frame = peersFrame(index, known.run.peers, t, n, 10);
    now.forEach((d, r) => near(frame.peers[r].distance, d, 1e-9, `rank ${r}`));
    assert.equal(frame.iteration, -1);
    near(
      index.spreads[1].rms,
      Math.sqrt(now.reduce((sum, d) => sum + d * d, 0) / n),
      1e-9,
      "and so in the chart",
    );
  },
);

test("after an averaging all are alike, and the next one is foretold", () => {
  const n = 4;
  const peers = allPeers(n, 4);
  const { rows } = mixed({ n, peers });
  const known = knownFrom(n, rows, peers);
  const index = peersIndexOf(known);
  assert.deepEqual(
    index.spreads.map((s) => s.rms < 1e-9),
    Array.from({ length: 12 }, (_, k) => k % 4 === 3),
  );
  for (const [k, next] of [
    [0, 3],
    [1, 2],
    [2, 1],
    [3, 4],
    [4, 3],
  ])
    assert.equal(peersFrame(index, peers, index.spreads[k].t + 1, n, 12).next, next, `after ${k}`);
  const at = (t) =>
    peersSentence(
      known,
      peersFrame(index, peers, t, n, 12),
      peers,
      doingAt(known.table, n, t, false),
      false,
    );
  assert.match(
    at(index.spreads[3].t + 1),
    /^All replicas are alike; next averaging in 4 iterations\.$/,
  );
  assert.match(at(index.spreads[1].t + 1), /≈ .* from .*mean.*; next averaging in 2 iterations\.$/);
  const call = known.table.calls[1];
  assert.match(
    at((call.start + call.end) / 2),
    /^Averaging 2: all take the mean of their replicas/,
  );
  assert.match(at(known.table.to), /all iterations are done/);
  assert.equal(nextMixing({ ...peers, first: 9 }, 0), 10, "after a warm-up");
  assert.equal(nextMixing({ ...peers, first: 9 }, 10), 4);
  assert.equal(nextWords({ next: 1 }, ringPeers(4)), "mixing in every iteration");
});

test(
  "everything on its way is a send row and its recv row, at its share of the time between " +
    "them",
  () => {
    for (const peers of [ringPeers(5), allPeers(5, 3)]) {
      const { rows } = mixed({ n: 5, peers });
      const known = knownFrom(5, rows, peers);
      const index = peersIndexOf(known);
      const name = (r, out) =>
        `${out ? r.rank : r.peer}>${out ? r.peer : r.rank}/${r.op}/${r.collective === "p2p" ? "" : r.chunk}`;
      const flights = new Map();
      for (const r of rows.filter((one) => one.kind === "send" || one.kind === "recv")) {
        const key = name(r, r.kind === "send");
        const f = flights.get(key) ?? { start: Infinity, end: -Infinity };
        flights.set(
          key,
          r.kind === "send"
            ? { ...f, start: Math.min(f.start, r.start) }
            : { ...f, end: Math.max(f.end, r.end) },
        );
      }
      let seen = 0;
      for (let i = 1; i < 400; i++) {
        const t = (known.table.to * i) / 400;
        const { comets } = peersFrame(index, peers, t, 5, 12);
        const due = [...flights.values()].filter((f) => f.start <= t && t < f.end);
        assert.equal(comets.length, due.length, `at ${t}`);
        assert.deepEqual(
          comets.map((c) => Math.round(c.share * 1e6)).sort(),
          due.map((f) => Math.round((1e6 * (t - f.start)) / (f.end - f.start))).sort(),
        );
        seen += due.length;
      }
      assert.ok(seen > 100);
    }
  },
);

test("a message that has not arrived with all its pieces is not drawn", () => {
  const { rows } = mixed({ n: 4 });
  const half = rows.filter((r) => !(r.kind === "recv" && r.slot === 1));
  const known = knownFrom(4, half, ringPeers(4));
  const index = peersIndexOf(known);
  for (let i = 1; i < 100; i++)
    assert.equal(
      peersFrame(index, ringPeers(4), (known.table.to * i) / 100, 4, 12).comets.length,
      0,
    );
});

test("bytes of links and ranks are those of the send rows that had begun", () => {
  const n = 4;
  const { rows } = mixed({ n });
  const known = knownFrom(n, rows, ringPeers(n), { piece: 50 });
  const index = peersIndexOf(known);
  for (const part of [0.2, 0.55, 1]) {
    const t = known.table.to * part;
    const frame = peersFrame(index, ringPeers(n), t, n, 12);
    const firsts = new Map();
    for (const r of rows.filter((one) => one.kind === "send"))
      firsts.set(
        `${r.rank}>${r.peer}/${r.op}`,
        Math.min(firsts.get(`${r.rank}>${r.peer}/${r.op}`) ?? Infinity, r.start),
      );
    for (let rank = 0; rank < n; rank++)
      assert.equal(
        frame.peers[rank].sent,
        rows
          .filter(
            (r) =>
              r.kind === "send" &&
              r.rank === rank &&
              firsts.get(`${r.rank}>${r.peer}/${r.op}`) <= t,
          )
          .reduce((sum, r) => sum + r.nbytes, 0),
      );
    assert.equal(
      frame.links.reduce((sum, l) => sum + l.nbytes, 0),
      frame.peers.reduce((sum, p) => sum + p.sent, 0),
    );
  }
  const apart = rows
    .filter((r) => r.kind === "send" || r.kind === "recv")
    .map((r) => ({ ...r, group: "metrics" }));
  const measured = peersIndexOf(knownFrom(n, [...rows, ...apart], ringPeers(n)));
  assert.equal(
    peersFrame(measured, ringPeers(n), known.table.to, n, 12).peers[1].sent,
    peersFrame(index, ringPeers(n), known.table.to, n, 12).peers[1].sent,
    "what is measured does not train",
  );
  const last = sentOf(index, peersFrame(index, ringPeers(n), known.table.to, n, 12), 1.5);
  assert.deepEqual(
    last.map((one) => one.bound),
    Array(n).fill(1.5 * 4000 * 12),
  );
});

test("bytes are right too where what left first is heard of last", () => {
  const rows = mixed({ n: 2, peers: ringPeers(2) })
    .rows.filter((r) => r.slot < 1)
    .map((r) => ({ ...r, nbytes: r.nbytes > 0 ? r.nbytes * (r.op + 1) : r.nbytes }));
  const late = (r) => r.kind === "send" && r.op < 3;
  const told = [...rows.filter((r) => !late(r)), ...rows.filter(late)];
  const known = knownFrom(2, told.slice(0, -6), ringPeers(2));
  const index = peersIndexOf(known);
  const end = known.table.to;
  const before = peersFrame(index, ringPeers(2), end, 2, 12).peers[0].sent;
  const [message, bytes] = batch(told.slice(-6), { seq: 2, run: known.run, state: "finished" });
  const more = receive(known, message, bytes, 0);
  const after = peersFrame(peersIndexOf(more), ringPeers(2), end, 2, 12).peers[0].sent;
  assert.ok(before < after);
  assert.equal(
    after,
    rows.filter((r) => r.kind === "send" && r.rank === 0).reduce((sum, r) => sum + r.nbytes, 0),
  );
});

test(
  "mixings follow each other without a gap, each ends with its last rank, and the run is " +
    "told in them",
  () => {
    for (const [peers, count] of [
      [ringPeers(4), 12],
      [allPeers(4, 4), 3],
      [allPeers(4, 5), 2],
      [allPeers(4, 4, 5), 2],
    ]) {
      const { rows } = mixed({ n: 4, peers });
      for (const piece of [rows.length, 61]) {
        const known = knownFrom(4, rows, peers, { piece });
        const told = mixingsOf(known);
        const whole = told.calls.filter((c) => c.complete);
        const index = peersIndexOf(known);
        assert.equal(whole.length, count);
        told.calls.forEach((c, i) => assert.ok(i === 0 || c.start === told.calls[i - 1].end));
        whole.forEach((c, i) => {
          const last = index.spreads.filter((s) => mixingOf(peers, s.iteration) === i).at(-1);
          assert.deepEqual([c.iteration, c.end], [i + 1, last.t]);
          const call = told.open(c.key);
          assert.ok(
            call.flights.length &&
              call.flights.every((f) => f.start >= 0 && f.end <= c.end - c.start),
          );
          assert.equal(isCall(call), false);
        });
        assert.equal(sourceOf(known, [mixingsOf]), told);
      }
    }
  },
);

test("a step on is later and a step back earlier, where one mixing ends and the next begins too", () => {
  for (const peers of [ringPeers(8), allPeers(8, 2)]) {
    const { rows } = mixed({ n: 8, peers });
    const known = knownFrom(8, rows, peers);
    const tale = { ...known, table: mixingsOf(known) };
    const { calls } = tale.table;
    assert.ok(calls.some((c, i) => i && c.start === calls[i - 1].end));
    const open = (key) => openCall(tale.table, tale.table.callOf.get(key));
    const [from, to] = [calls[0].start + 1, calls.at(-1).end - 1];
    for (const unit of ["chunk", "step"])
      for (let t = from; t < to; t += (to - from) / 500) {
        const on = stepped(tale, t, unit, 1, open);
        assert.ok(on > t, `${unit}: ${on} after ${t}`);
        const back = stepped(tale, on, unit, -1, open);
        assert.ok(back < on, `${unit}: ${back} before ${on}`);
      }
  }
});

test("who is lost is left out, and the others go on", () => {
  const n = 5;
  const peers = allPeers(n, 3);
  const { rows, history, projections } = mixed({ n, peers, lost: { rank: 2, iteration: 6 } });
  const known = knownFrom(n, rows, peers);
  const index = peersIndexOf(known);
  assert.equal(index.spreads.length, 12);
  const frame = peersFrame(index, peers, known.table.to, n, 12);
  const others = [0, 1, 3, 4];
  const due = truth(
    sketchesOf(
      others.map((r) => history[11][r]),
      projections,
    ),
  );
  assert.ok(frame.peers[2].lost && Number.isNaN(frame.peers[2].distance));
  others.forEach((r, i) => near(frame.peers[r].distance, due[i], 1e-9, `rank ${r}`));
  assert.match(factWords(frame, peers, index), /1 rank lost/);
  assert.match(peerWords(frame, 2, index, undefined, peers, "")[0], /lost/);
});

test("a run whose replicas do not differ is told as before", () => {
  const known = knownFrom(3, calls(4), null);
  assert.equal(mixes(known), false);
  assert.equal(mixingsOf(known), null);
  assert.equal(sourceOf(known, [mixingsOf]), known.table);
});

test("an estimate is said to be one, with how sure it is", () => {
  const { rows } = mixed({ n: 4 });
  const known = knownFrom(4, rows, ringPeers(4));
  const index = peersIndexOf(known);
  const frame = peersFrame(index, ringPeers(4), index.spreads[5].t + 1, 4, 12);
  assert.match(
    factWords(frame, ringPeers(4), index),
    /after iteration 6: estimated from 8 random projections, give or take 25 %/,
  );
  assert.match(
    peerWords(frame, 1, index, undefined, ringPeers(4), "").join("\n"),
    /≈ .* from the mean of the replicas: .* % of its length\nestimated from 8/,
  );
  assert.match(peersSentence(known, frame, ringPeers(4), [], false), /≈/);
  const held = { ...known, state: "running", control: { held: true } };
  assert.match(peersSentence(held, frame, ringPeers(4), [], true), /^You hold the ranks\. .*≈/);
  assert.match(
    lastMixed(index, index.spreads[5].t + 1, 2)
      .map(([, what]) => what)
      .join(),
    /iteration 6 done by all|parameters of rank/,
  );
  assert.match(
    peersSentence(
      { ...known, state: "failed", words: "rank 2 was killed" },
      frame,
      ringPeers(4),
      [],
      true,
    ),
    /Rank 2 was killed/,
  );
});

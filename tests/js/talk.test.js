// Messages between two ranks: how they are cut into bursts, what a burst tells; who waits for whom where nothing has left.
import assert from "node:assert/strict";
import { test } from "node:test";
import { preparedOf } from "../../assets/collective_frame.js";
import { spaceKeys } from "../../assets/collective_keys.js";
import { placesOf } from "../../assets/ring.js";
import { readingOf } from "../../assets/rates.js";
import { arrowWay, atStuck, stuckNow, stuckWords, waitingCircle } from "../../assets/stuck.js";
import { openTold, taleOf } from "../../assets/tale.js";
import { talkOf } from "../../assets/talk.js";
import { cellWords, collectiveSentence } from "../../assets/tell_collectives.js";
import { frameAt } from "../../assets/model.js";
import { receive, nothing } from "../../assets/known.js";
import { INK } from "./canvas.js";
import { CONTROL, RUN, batch, calls, row } from "./rows.js";

const MS = 1e6, P2P = { collective: "p2p", algorithm: "", iteration: -1, nbytes: 40, slot: 0, chunk: 0, step: 0 };
/** A message, sent at `at` (ms) and there after `took`; `took` 0: never received. */
function message(from, to, op, at, took = 0.1, more = {}) {
  const sent = row(from, "send", at * MS, at * MS + 0.02 * MS, { ...P2P, op, peer: to, lane: "send", ...more });
  return took ? [sent, row(to, "recv", (at + took / 2) * MS, (at + took) * MS, { ...P2P, op, peer: from, lane: "recv", ...more })] : [sent];
}
const cell = (rank, number, from, over) => [row(rank, "metric", from * MS, from * MS, { op: -1, name: "cell", value: number, collective: "", lane: "compute" }),
  ...(over === undefined ? [] : [row(rank, "metric", over * MS, over * MS, { op: -1, name: "cell over", value: number, collective: "", lane: "compute" })])];
const knownOf = (rows, more = {}) => receive(nothing(), ...batch(rows, { run: { ...RUN, ranks: 4, cells: true }, state: "finished", now: null, ...more }), 0);
const bursts = (known) => (talkOf(known)?.calls ?? []).filter((call) => call.collective === "p2p");
const lookOf = (known, call, t, more = {}) => ({ table: known.table, known, call, told: call, t, live: false, held: false, ranks: 4, ink: INK, font: "sans-serif", width: 928, ratio: 1, at: 0, choice: null, ...more });

test("messages that follow each other are one burst; a silence, a collective and a cell end it", () => {
  const close = [...message(0, 1, 0, 1), ...message(1, 2, 0, 1.2), ...message(0, 1, 1, 1.5)];
  assert.deepEqual(bursts(knownOf(close)).map((b) => b.sends), [3]);
  assert.deepEqual(bursts(knownOf([...close, ...message(2, 3, 0, 9)])).map((b) => b.sends), [3, 1], "quiet for long");
  const between = calls(1).map((r) => ({ ...r, start: r.start + 1.7 * MS, end: r.end + 1.7 * MS }));
  assert.deepEqual(bursts(knownOf([...close, ...between, ...message(2, 3, 0, 1.9)])).map((b) => b.sends), [3, 1], "a collective between them");
  const cells = [0, 1, 2, 3].flatMap((rank) => [...cell(rank, 1, 0.9, 1.65), ...cell(rank, 2, 1.7)]);
  assert.deepEqual(bursts(knownOf([...cells, ...close, ...message(2, 3, 0, 1.8), ...message(2, 3, 1, 99)])).map((b) => [b.name, b.sends]), [["cell 1", 3], ["cell 2", 2]], "within a cell silence ends nothing");
});

test("while something is on its way a burst goes on; where there are many it ends as soon as all of it is there", () => {
  const many = (took) => Array.from({ length: 40 }, (_, op) => message(0, 1, op, 1 + 0.5 * op, took)).flat();
  assert.deepEqual([bursts(knownOf(many(30))).map((b) => b.sends), bursts(knownOf(many(0.1))).map((b) => b.sends)], [[40], [32, 8]]);
});

test("of which cell messages are is known also where that comes after them", () => {
  const rows = [...message(0, 1, 0, 1), ...message(0, 1, 1, 1.3)], first = knownOf(rows);
  assert.deepEqual(bursts(first).map((b) => b.sends), [2]);
  const later = receive(first, ...batch([...cell(0, 1, 0.5, 1.15), ...cell(0, 2, 1.2)], { seq: 2, run: first.run, state: "finished", now: null }), 0);
  assert.deepEqual(bursts(later).map((b) => [b.name, b.sends]), [["cell 1", 1], ["cell 2", 1]]);
});

test("the cut does not depend on the order in which rows come", () => {
  const rows = [...[0, 1, 2, 3].flatMap((rank) => [...cell(rank, 1, 0, 3), ...cell(rank, 2, 4, 9)]), ...message(0, 1, 0, 1), ...message(1, 2, 0, 1.2, 4), ...message(2, 0, 0, 2), ...message(0, 1, 1, 5), ...message(3, 1, 0, 5.05)];
  const whole = bursts(knownOf(rows)).map((b) => [b.key, b.start, b.end, b.sends, b.complete]);
  for (let turn = 0; turn < 24; turn++) {
    const mixed = rows.map((r, i) => [Math.sin(7 * i + turn), r]).sort((a, b) => a[0] - b[0]).map(([, r]) => r);
    let known = nothing();
    mixed.forEach((_, i) => { if (i % 3 === 0) known = receive(known, ...batch(mixed.slice(i, i + 3), { seq: i + 1, reset: i === 0 || undefined, run: { ...RUN, ranks: 4 }, state: "finished", now: null }), 0), talkOf(known); });
    assert.deepEqual(bursts(known).map((b) => [b.key, b.start, b.end, b.sends, b.complete]), whole);
  }
});

test("a message is a chunk of its own: its sender has it, its receiver must", () => {
  const known = knownOf([...message(0, 1, 0, 1), ...message(0, 2, 0, 1.05, 0), ...message(3, 0, 0, 1.1)]), [head] = bursts(known), call = openTold(known, head.key), reading = readingOf(call, known);
  assert.deepEqual([reading.holdings.chunks, [...reading.holdings.owners], reading.holdings.ranks], [[0, 1, 2], [[0, 0], [1, 0], [2, 3]], [0, 1, 2, 3]]);
  assert.deepEqual([...reading.holdings.asked], [0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0], "whom each is for");
  assert.deepEqual(call.flights.map((f) => [f.from, f.to, f.chunk]), [[0, 1, 0], [3, 0, 2]]);
  const t = call.end - call.start, frame = frameAt(call, t), look = lookOf(known, call, call.end);
  assert.deepEqual(frame.comets.map((c) => [c.chunk, c.share, c.lying]), [[1, 1, true]], "it lies there");
  assert.match(collectiveSentence(look, reading, frame), /^Message 1, from rank 0 to rank 2, was never received\.$/);
  assert.match(cellWords(reading, frame, 2 * 3 + 1, reading.holdings.first[2 * 3 + 1])[0], /rank 2, message 1: not received yet, 40 B from rank 0/);
  assert.ok(spaceKeys(look, preparedOf(look, null)).some((k) => k.words === "has come, not received"));
});

test("while a cell goes on its last burst may grow; what explains messages otherwise is left alone", () => {
  const rows = [...[0, 1].flatMap((rank) => cell(rank, 1, 0)), ...message(0, 1, 0, 1, 0)], live = knownOf(rows, { state: "running", now: 2 * MS });
  assert.equal(bursts(live)[0].complete, false);
  assert.equal(bursts(knownOf(rows))[0].complete, true, "nothing more will come");
  assert.equal(talkOf({ ...live, run: { ...live.run, pipeline: {} } }), null);
  assert.equal(taleOf(live).table.calls.length, 1);
});

const lane = (rank, peer, since = 0) => ({ rank, lane: "recv", kind: "wait", peer, group: "", collective: "", algorithm: "", op: -1, step: -1, chunk: -1, since: since * MS, dtype: "", shape: "", values: [] });
const waiting = (pairs, rows = [], now = 5000) => knownOf([...[0, 1, 2, 3].flatMap((rank) => cell(rank, 1, 0)), ...rows], { state: "running", now: now * MS, control: CONTROL, lanes_now: pairs.map(([a, b, since]) => lane(a, b, since)) });

test("ranks that wait and have sent nothing are drawn with whom they wait for", () => {
  const known = waiting([[0, 1, 10], [1, 2, 10], [2, 0, 20]]), look = lookOf(known, null, known.table.to, { live: true, at: 0 }), stuck = stuckNow(look), seen = preparedOf(look, null);
  assert.deepEqual([...stuck].map(([rank, { peer }]) => [rank, peer]), [[0, 1], [1, 2], [2, 0]]);
  assert.deepEqual(waitingCircle(stuck), [0, 1, 2]);
  assert.deepEqual(seen.ranks.map((s) => [!!s.blocked, s.away]), [[true, false], [true, false], [true, false], [false, false]]);
  assert.match(stuckWords(stuck, look), /^Ranks 0, 1 and 2 wait in a circle, each for the next, 4\.9 s so far/);
  assert.ok(spaceKeys(look, seen).some((k) => k.words === "to whom it waits for"));
});

test("that a rank stalls is said within its wait, and does not end it; its wait row does", () => {
  const stall = row(0, "detect", 1010 * MS, 1010 * MS, { lane: "recv", op: -1, collective: "", name: "stalled", peer: 1 }), over = row(0, "wait", 10 * MS, 1020 * MS, { ...P2P, op: 0, lane: "recv", peer: 1 });
  const at = (rows) => { const known = waiting([[0, 1, 10]], rows); return stuckNow(lookOf(known, null, known.table.to, { live: true })).size; };
  assert.deepEqual([at([stall]), at([stall, over])], [1, 0]);
});

test("no circle is claimed of a chain; who has ended its cell is waited for in vain; the past is not now", () => {
  const chain = waiting([[0, 1, 10], [1, 3, 10]], cell(3, 1, 0, 2)), look = lookOf(chain, null, chain.table.to, { live: true });
  assert.deepEqual(waitingCircle(stuckNow(look)), []);
  assert.match(stuckWords(stuckNow(look), look), /^Rank 1 has waited 4\.9 s for rank 3, which has ended this cell: in vain/);
  assert.deepEqual(waitingCircle(new Map([[0, { peer: 1 }], [1, { peer: 2 }], [2, { peer: 1 }]].map(([rank, one]) => [rank, { rank, ...one }]))), [1, 2], "who waits for a circle is not in it");
  const open = waiting([[1, 3, 10], [3, 0, 10]], cell(3, 1, 0, 2));
  assert.deepEqual([...stuckNow(lookOf(open, null, open.table.to, { live: true })).keys()], [1], "a receive that was left open waits for nothing");
  assert.equal(stuckNow({ ...look, live: false, t: 0.5 * MS }).size, 0);
  assert.equal(stuckWords(stuckNow(look), { ...look, known: { ...chain, clock: 500 * MS } }), "", "half a second is nothing to speak of");
});

test("what was told before a cell in which nothing has left is not told with it", () => {
  const known = knownOf([...[0, 1].flatMap((rank) => [...cell(rank, 1, 0, 3), ...cell(rank, 2, 4)]), ...message(0, 1, 0, 1)], { state: "running", now: 5000 * MS, lanes_now: [lane(0, 1, 5), lane(1, 0, 5)] });
  const call = openTold(known, bursts(known)[0].key), look = lookOf(known, call, call.end, { live: true }), now = atStuck(look);
  assert.deepEqual([now.call, now.told, now.t], [null, null, 5000 * MS]);
  assert.equal(atStuck({ ...look, t: call.start }).call, call, "while it is being told it stays");
});

test("a record that broke off says itself who waited", () => {
  const known = knownOf([], { state: "failed", run: { ...RUN, ranks: 2, waiting: [{ rank: 0, peer: 1, words: "rank 0 sends to rank 1 at line 3" }, { rank: 1, peer: 0, words: "" }] } }), look = lookOf(known, null, 0);
  assert.deepEqual([...stuckNow(look).keys()], [0, 1]);
});

test("arrows that meet do not lie over each other, and end at the rims", () => {
  const a = { x: 0, y: 0 }, b = { x: 100, y: 0 }, one = arrowWay(a, b, 20), other = arrowWay(b, a, 20);
  assert.ok(one.middle.y * other.middle.y < 0);
  assert.ok(Math.abs(Math.hypot(one.from.x, one.from.y) - 20) < 1e-9 && Math.abs(Math.hypot(one.to.x - 100, one.to.y) - 20) < 1e-9);
});

test("a group lies in its own shape under its ranks' own names, all others below it, apart", () => {
  for (const [ranks, members, width] of [[4, [1, 3], 400], [8, [0, 2, 4, 6], 420], [16, [3, 5, 11], 400], [64, [0, 1, 2, 3], 600]]) {
    const links = members.map((rank, i) => `${rank}>${members[(i + 1) % members.length]}`), place = placesOf(ranks, width, 350, links, 1, 0, undefined, members), own = placesOf(members.length, width, 320, members.map((_, i) => `${i}>${(i + 1) % members.length}`));
    members.forEach((rank, i) => assert.deepEqual(place.nodes[rank], own.nodes[i]));
    assert.deepEqual(place.links, members.map((rank, i) => [rank, members[(i + 1) % members.length]]));
    const others = place.nodes.filter((_, rank) => !members.includes(rank)), lowest = Math.max(...members.map((rank) => place.nodes[rank].y + place.node));
    for (const { x, y } of others) assert.ok(y - place.outside > lowest && y + place.outside <= 350 && x - place.outside >= 0 && x + place.outside <= width);
    for (let i = 1; i < others.length; i++) assert.ok(others[i].x - others[i - 1].x >= 2 * place.outside);
  }
});

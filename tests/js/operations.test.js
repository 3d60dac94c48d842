import assert from "node:assert/strict";
import { test } from "node:test";
import { preparedOf } from "../../assets/collective_frame.js";
import { contentKeys, spaceKeys } from "../../assets/collective_keys.js";
import { cellAt, holdingsAt, holdingsOf } from "../../assets/holdings.js";
import { frameAt, openCall } from "../../assets/model.js";
import { ringHeight, placesOf, wayOf } from "../../assets/ring.js";
import { awayFrom, shapeOf } from "../../assets/shape.js";
import { hopsOf, readingOf } from "../../assets/rates.js";
import { cellWords, chunkWords, collectiveSentence, lastMoments, wrongWords } from "../../assets/tell_collectives.js";
import { INK } from "./canvas.js";
import { callOf, tableOf } from "./rows.js";
import { allRows, lookAt, ringRows, starRows } from "./simulated.js";
import { SCHEDULES, scheduleRows } from "./schedules.js";

const NAMES = Object.keys(SCHEDULES), rootsOf = (name, n) => (SCHEDULES[name].rooted ? [0, n - 1] : [0]);
const linksOf = (call) => [...new Set(call.flights.map((f) => `${f.from}>${f.to}`))];
const shapeOfCall = (call, root = -1) => shapeOf(call.ranks, linksOf(call), root, call.algorithm);
/** What each rank must hold of each chunk at the end, as the operation's meaning says. */
const MUST = {
  all_reduce: () => "sum", broadcast: (r, c, n, root) => root, reduce: (r, c, n, root) => (r === root ? "sum" : null), gather: (r, c, n, root) => (r === root ? c : null),
  scatter: (r, c, n, root) => (r === c ? root : null), all_gather: (r, c) => c, reduce_scatter: (r, c) => (r === c ? "sum" : null), all_to_all: (r, c, n) => (c % n === r ? Math.floor(c / n) : null), barrier: () => "sum",
};

for (const name of NAMES)
  test(`${name}: cells are solid exactly where the rank holds what it must hold at the end`, () => {
    const [collective] = name.split("/");
    for (const n of [2, 3, 4, 5, 7, 8, 16])
      for (const root of rootsOf(name, n)) {
        const call = callOf(scheduleRows(name, n, { root })), held = holdingsOf(call), end = holdingsAt(held, Infinity);
        assert.ok(held.judged && held.sound, `${n} ranks, root ${root}`);
        end.forEach((state, cell) => {
          const rank = Math.floor(cell / held.chunks.length), chunk = held.chunks[cell % held.chunks.length], must = MUST[collective](rank, chunk, n, root), { complete, parts, lacking } = cellAt(held, cell, state, Infinity);
          assert.equal(!!held.asked[cell], must !== null);
          assert.deepEqual(lacking, []);
          if (must !== null) assert.ok(complete, `rank ${rank}, chunk ${chunk}`);
          if (typeof must === "number") assert.deepEqual(parts.filter((p) => p.within).map((p) => p.rank), [must]);
          if (must === "sum") assert.ok(parts.every((p) => p.within === 1));
        });
      }
  });

test("a chunk that never came is missing, once its rank is through: of every operation, in words", () => {
  for (const name of NAMES) {
    const n = 4, rows = scheduleRows(name, n), last = rows.filter((r) => r.kind === "recv").at(-1), needed = rows.filter((r) => r.kind === "recv" && r.step === last.step);
    const gone = needed.at(-1), look = lookAt(n, rows.filter((r) => r !== gone), 1, { ink: INK }), reading = readingOf(look.call, look.known), span = look.call.end - look.call.start;
    assert.equal(reading.holdings.sound, false, name);
    const said = wrongWords(reading, span);
    assert.match(said, /missing|without|not heard/, `${name}: ${said}`);
    assert.ok(contentKeys(look, preparedOf(look, null)).some((k) => /missing/.test(k.words)), name);
  }
});

test("what is nowhere asked for is not missed: a root's own chunk never travels, others' are their own", () => {
  const gather = holdingsOf(callOf(scheduleRows("gather/flat", 4, { root: 2 })));
  assert.deepEqual([gather.chunks, gather.root, gather.owners.get(2)], [[0, 1, 2, 3], 2, 2]);
  const begin = holdingsAt(gather, 0);
  assert.equal(gather.whole[begin[2 * 4 + 2]], 1, "the root has its own from the start");
  assert.equal(gather.whole[begin[1 * 4 + 1]], 0, "others hold theirs only to hand it on");
  const none = holdingsOf(callOf(scheduleRows("reduce/tree", 4).map((r) => (r.kind === "collective" ? { ...r, peer: -1 } : r))));
  assert.equal(none.root, 0, "a root that nobody named is who only receives");
});

test("a barrier tells who has heard of whom", () => {
  const n = 5, look = lookAt(n, scheduleRows("barrier/dissemination", n), 0.5, { ink: INK }), reading = readingOf(look.call, look.known), counts = [];
  for (let t = 0; t <= look.call.end - look.call.start; t += 500) counts.push(cellAt(reading.holdings, 0, holdingsAt(reading.holdings, t)[0], t).parts.filter((p) => p.within).length);
  assert.deepEqual([...new Set(counts)], [1, 2, 4, 5], "twice as many in every round");
  const frame = frameAt(look.call, look.t - look.call.start), states = holdingsAt(reading.holdings, frame.t);
  const said = [collectiveSentence(look, reading, frame), ...lastMoments(reading, Infinity, 99).map(([, what]) => what), ...frame.comets.flatMap((c) => chunkWords(reading, c)), ...cellWords(reading, frame, 0, states[0])].join("\n");
  assert.match(said, /^5 ranks meet in/);
  assert.match(said, /rank 1 heard from rank 0 \([^)]*\): it knows of ranks 0 and 1/);
  assert.doesNotMatch(said, /sum|added|contribution|in place of/);
});

test("each operation in one sentence", () => {
  const told = (name) => { const look = lookAt(4, scheduleRows(name, 4, { root: 1 }), 1); return collectiveSentence(look, readingOf(look.call, look.known), frameAt(look.call, 0)); };
  for (const [name, words] of [["broadcast/tree", /^Rank 1 hands 240 kB \(gradients\) on to 3 others in /], ["scatter/flat", /^Rank 1 hands each of 4 ranks its part of 240 kB/], ["gather/tree", /^Rank 1 gathers 240 kB \(gradients\) from 4 ranks in/],
    ["reduce/tree", /^4 ranks combine 240 kB \(gradients\) on rank 1 in/], ["all_to_all/pairwise", /^4 ranks exchange 240 kB/], ["all_gather/ring", /^4 ranks gather/]]) assert.match(told(name), words);
});

test("a call that broke off is not complete, and nothing is missing in it", () => {
  const whole = scheduleRows("all_reduce/tree", 4), broken = scheduleRows("all_reduce/tree", 4, { op: 1, start: 20_000_000 }).filter((r) => r.rank < 2 && (r.kind === "collective" || (r.rank === 1 && r.kind === "send") || (r.rank === 0 && r.peer === 1 && r.kind === "recv")));
  const table = tableOf([...whole, ...broken]), [first, second] = table.calls;
  assert.deepEqual([first.complete, first.ranks, second.complete], [true, 4, false], "two of four are through, and talked to each other alone");
  const held = holdingsOf(openCall(table, second), [0, 1, 2, 3]);
  assert.ok(held.left.every((t) => t === Infinity));
  assert.ok([...holdingsAt(held, Infinity)].every((state, cell) => !cellAt(held, cell, state, 1e12).lacking.length));
});

test("a call whose rows come lane after lane has all its ranks in the end", () => {
  const rows = scheduleRows("all_reduce/tree", 4), outer = rows.filter((r) => r.kind === "collective").map((r) => ({ ...r, lane: "comm" })), lanes = [0, 1, 2, 3].flatMap((rank) => [...outer.filter((r) => r.rank === rank), ...rows.filter((r) => r.kind !== "collective" && r.rank === rank).map((r) => ({ ...r, lane: "send" }))]);
  const [call] = tableOf(lanes).calls;
  assert.deepEqual([call.complete, call.ranks], [true, 4]);
});

test("a chunk that is exchanged takes as long as it takes, though its receiver sends one of that number meanwhile", () => {
  const call = callOf(scheduleRows("all_reduce/butterfly", 8, { came: [0, 40, 10, 60, 30, 5, 50, 20] })), hops = hopsOf(call);
  call.flights.forEach((f, i) => assert.equal(hops[i], f.end - f.start));
  const ring = callOf(ringRows(4));
  hopsOf(ring).forEach((hop, i) => assert.ok(hop <= ring.flights[i].end - ring.flights[i].start));
});

// ---- shapes

test("the shape is found from who sent to whom", () => {
  const kinds = { "all_reduce/tree": "tree", "broadcast/tree": "tree", "reduce/tree": "tree", "gather/tree": "tree", "scatter/tree": "tree", "broadcast/flat": "star", "gather/flat": "star", "reduce/flat": "star", "scatter/flat": "star",
    "all_reduce/butterfly": "cube", "all_reduce/rabenseifner": "cube", "all_gather/ring": "circle", "reduce_scatter/ring": "circle", "all_to_all/pairwise": "circle", "barrier/dissemination": "circle" };
  for (const name of NAMES)
    for (const n of [4, 5, 6, 7, 8, 12, 16])
      for (const root of rootsOf(name, n)) assert.equal(shapeOfCall(callOf(scheduleRows(name, n, { root })), SCHEDULES[name].rooted ? root : -1).kind, kinds[name], `${name}, ${n}`);
  for (const n of [3, 4, 8, 16]) assert.deepEqual([shapeOfCall(callOf(ringRows(n))).kind, shapeOfCall(callOf(allRows(n))).kind], ["circle", "circle"]);
  assert.equal(shapeOfCall(callOf(starRows(8))).kind, "star");
});

/** Rings within groups of `size`, rings between them. */
const nested = (n, size) => Array.from({ length: n }, (_, r) => [`${r}>${Math.floor(r / size) * size + ((r + 1) % size)}`, `${r}>${(r + size) % n}`]).flat().filter((w) => new Set(w.split(">")).size > 1);

test("groups within groups; where a cube has the same links the name says which", () => {
  for (const [n, size] of [[8, 4], [6, 3], [9, 3], [16, 4], [12, 3], [12, 4], [16, 8]]) assert.deepEqual([shapeOf(n, nested(n, size)).kind, shapeOf(n, nested(n, size)).size], ["groups", size], `${n}`);
  assert.deepEqual([shapeOf(4, nested(4, 2)).kind, shapeOf(4, nested(4, 2), -1, "hierarchical").kind], ["cube", "groups"]);
  for (const n of [3, 4, 5, 7, 8]) assert.equal(shapeOf(n, Array.from({ length: n }, (_, r) => `${r}>${(r + 1) % n}`), -1, "hierarchical").kind, "circle", "one ring is one ring");
});

test("a tree's root is the operation's, or who gets all and gives to all", () => {
  assert.equal(shapeOfCall(callOf(scheduleRows("broadcast/tree", 8, { root: 5 })), 5).centre, 5);
  assert.equal(shapeOfCall(callOf(scheduleRows("broadcast/tree", 8, { root: 5 }))).centre, 5);
  assert.equal(shapeOfCall(callOf(scheduleRows("reduce/tree", 8, { root: 3 }))).centre, 3);
  assert.equal(shapeOfCall(callOf(scheduleRows("all_reduce/tree", 8))).centre, 0);
  assert.equal(shapeOf(6, ["0>1", "1>2", "2>3", "3>4", "4>5"]).kind, "circle", "a chain is a circle with a gap");
  assert.equal(shapeOf(24, Array.from({ length: 23 }, (_, r) => `0>${r + 1}`)).kind, "circle", "many ranks are ticks on a circle");
});

const LAYOUTS = [...["all_reduce/tree", "broadcast/flat", "all_reduce/butterfly"].map((name) => [name, (n) => linksOf(callOf(scheduleRows(name, n)))]), ["groups", (n) => nested(n, n % 4 === 0 && n > 4 ? 4 : n % 3 === 0 ? 3 : 2)]];

test("every rank has a place in the picture, none touches another, and no link passes over a third", () => {
  for (const [name, links] of LAYOUTS)
    for (const n of name === "groups" ? [4, 6, 8, 9, 12, 16] : [4, 5, 6, 7, 8, 9, 12, 16])
      for (const width of [399, 608]) {
        const ways = links(n), shape = shapeOf(n, ways, -1, name === "groups" ? "hierarchical" : ""), place = placesOf(n, width, ringHeight(n), ways, 1, 4, shape), where = `${name}, ${n} ranks, ${width} px: ${shape.key}`;
        assert.equal(place.nodes.length, n);
        for (const { x, y } of place.nodes) assert.ok(x >= place.node && x <= width - place.node && y >= place.node && y <= ringHeight(n) - place.node, where);
        place.nodes.forEach((a, i) => place.nodes.forEach((b, j) => assert.ok(i === j || Math.hypot(a.x - b.x, a.y - b.y) > 2 * place.node + 6, `${where}: ${i} and ${j}`)));
        for (const [from, to] of place.links) {
          const [a, b] = wayOf(place, from, to);
          place.nodes.forEach((p, r) => r === from || r === to || assert.ok(awayFrom(p, a, b) > place.node + 1, `${where}: ${from} → ${to} passes over ${r}, ${awayFrom(p, a, b)}`));
        }
      }
});

test("a place once given is kept while calls of the same kind go on; a call that goes on is not laid out anew", () => {
  const whole = scheduleRows("all_reduce/tree", 8), more = scheduleRows("all_reduce/tree", 8, { op: 1, start: 20_000_000 }).filter((r) => r.kind !== "collective" && r.step < 1);
  const look = lookAt(8, [...whole, ...more], 0.5, { ink: INK }), first = preparedOf(look, null), open = callOf([...more]);
  assert.equal(first.place.shape.kind, "tree");
  const second = preparedOf({ ...look, call: open, t: open.start + 10 }, first);
  assert.equal(second.place.shape.key, first.place.shape.key, "as the complete one before it");
  const alone = lookAt(8, more, 0.5, { ink: INK });
  assert.equal(preparedOf(alone, null).place.shape.kind, "circle", "before one is complete nobody knows");
});

test("every mark of a shape has its key", () => {
  const n = 8, rows = scheduleRows("gather/tree", n, { root: 3 }), look = lookAt(n, rows, 0.5, { ink: INK }), words = contentKeys(look, preparedOf(look, null)).map((k) => k.words);
  for (const mark of ["the rank has the chunk", "not yet", "here to be handed on", "need not be here at the end"]) assert.ok(words.includes(mark), `${mark}: ${words}`);
  assert.ok(spaceKeys(look, preparedOf(look, null)).length > 2);
});

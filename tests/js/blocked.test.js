// Who waits for whom where nothing has left.
import assert from "node:assert/strict";
import { test } from "node:test";
import { preparedOf } from "../../assets/scenes/collectives/frame.js";
import { spaceKeys } from "../../assets/scenes/collectives/legend.js";
import { placesOf } from "../../assets/scenes/collectives/ring.js";
import {
  arrowWay,
  atStuck,
  stuckNow,
  stuckWords,
  waitingCircle,
} from "../../assets/engine/blocked.js";
import { openCallOf } from "../../assets/engine/call_source.js";
import { placeOf as timelinePlace, windowX } from "../../assets/scenes/timeline/layout.js";
import { standingBars, waitsUntil } from "../../assets/scenes/timeline/standing.js";
import { CONTROL, RUN, row } from "./rows.js";
import { MS, P2P, bursts, cell, knownOf, lookOf, message } from "./p2p.js";

const lane = (rank, peer, since = 0) => ({
  rank,
  lane: "recv",
  kind: "wait",
  peer,
  group: "",
  collective: "",
  algorithm: "",
  op: -1,
  step: -1,
  chunk: -1,
  since: since * MS,
  dtype: "",
  shape: "",
  values: [],
});

const waiting = (pairs, rows = [], now = 5000) =>
  knownOf([...[0, 1, 2, 3].flatMap((rank) => cell(rank, 1, 0)), ...rows], {
    state: "running",
    now: now * MS,
    control: CONTROL,
    lanes_now: pairs.map(([a, b, since]) => lane(a, b, since)),
  });

test("a wait that goes on is in the timeline's lanes up to now, and the window has room for it", () => {
  const known = waiting([
    [0, 1, 10],
    [3, 1, 20],
  ]);
  const look = lookOf(known, null, known.table.to, { live: true, at: 0 });
  assert.equal(waitsUntil(look), 5000 * MS);
  const canvas = { win: { from: 15 * MS, to: 8000 * MS }, place: timelinePlace(4, 928) };
  const bars = standingBars(look, canvas, [0, 1, 2, 3]);
  assert.deepEqual(
    bars.map((bar) => bar.rank),
    [0, 3],
  );
  const { left, lanes } = canvas.place;
  const end = windowX(canvas.win, canvas.place, 5000 * MS);
  assert.equal(bars[0].x, left, "it began before the window");
  for (const { x, w } of bars) assert.ok(Math.abs(x + w - end) < 1e-9);
  assert.equal(bars[1].y, lanes.top + 3 * lanes.row + lanes.talk);
  const over = lookOf({ ...known, state: "finished" }, null, known.table.to, { live: true, at: 0 });
  assert.equal(waitsUntil(over), -Infinity);
  assert.deepEqual(standingBars(over, canvas, [0, 1, 2, 3]), []);
});

test("ranks that wait and have sent nothing are drawn with whom they wait for", () => {
  const known = waiting([
    [0, 1, 10],
    [1, 2, 10],
    [2, 0, 20],
  ]);
  const look = lookOf(known, null, known.table.to, { live: true, at: 0 });
  const stuck = stuckNow(look);
  const seen = preparedOf(look, null);
  assert.deepEqual(
    [...stuck].map(([rank, { peer }]) => [rank, peer]),
    [
      [0, 1],
      [1, 2],
      [2, 0],
    ],
  );
  assert.deepEqual(waitingCircle(stuck), [0, 1, 2]);
  assert.deepEqual(
    seen.ranks.map((s) => [!!s.blocked, s.away]),
    [
      [true, false],
      [true, false],
      [true, false],
      [false, false],
    ],
  );
  assert.match(
    stuckWords(stuck, look),
    /^Ranks 0, 1 and 2 wait in a circle, each for the next, 4\.9 s so far/,
  );
  assert.ok(spaceKeys(look, seen).some((k) => k.words === "to the rank that it waits for"));
});

test("ranks whose host is cut off have a key, and only then", () => {
  const has = (cut_off) => {
    const known = { ...waiting([]), control: { ...CONTROL, cut_off } };
    const look = lookOf(known, null, known.table.to, { live: true, at: 0 });
    return spaceKeys(look, preparedOf(look, null)).some((k) => k.words === "its host is cut off");
  };
  assert.deepEqual([has({ 2: "host b" }), has({})], [true, false]);
});

test(
  "what holds a circle up is told as what it is: a rank that is frozen or gone, a link that " +
    "is cut or slow",
  () => {
    const ring = [
      [0, 3, 10],
      [1, 0, 10],
      [2, 1, 10],
      [3, 2, 10],
    ];
    const known = waiting(ring);
    const told = (control) => {
      const look = lookOf({ ...known, control: { ...CONTROL, ...control } }, null, known.table.to, {
        live: true,
      });
      const stuck = stuckNow(look);
      return {
        circle: waitingCircle(stuck),
        stuck: [...stuck.keys()],
        words: stuckWords(stuck, look),
      };
    };
    assert.deepEqual(told({}).circle, [0, 3, 2, 1]);
    const link = (more) => ({
      from: 0,
      to: 1,
      latency_ms: 0,
      bandwidth: "",
      down: false,
      words: "",
      ...more,
    });
    for (const [control, stuck, words] of [
      [
        { frozen: [0] },
        [1, 2, 3],
        /^Rank 1 has waited 4\.9 s for rank 0, which is frozen; 2 others wait too\.$/,
      ],
      [
        { ended: { 0: "was killed by SIGKILL" } },
        [1, 2, 3],
        /^Rank 1 has waited 4\.9 s for rank 0, which is gone \(was killed by SIGKILL\); 2 others wait too\.$/,
      ],
      [
        { links: [link({ down: true, words: "cut" })] },
        [0, 1, 2, 3],
        /^Rank 1 has waited 4\.9 s for rank 0: link 0 → 1 is cut; 3 others wait too\.$/,
      ],
      [
        { links: [link({ latency_ms: 3000, words: "3 s" })] },
        [0, 1, 2, 3],
        /^Rank \d has waited 4\.9 s for rank \d/,
      ],
      [
        { slow_motion: 1000 },
        [0, 1, 2, 3],
        /^Rank 0 has waited 4\.9 s for rank 3: what it waits for is on its way/,
      ],
    ]) {
      const now = told(control);
      assert.deepEqual([now.circle, now.stuck], [[], stuck], JSON.stringify(control));
      assert.match(now.words, words);
      assert.doesNotMatch(now.words, /circle|none can go on|does not wait itself/);
    }
  },
);

test("that a rank stalls is said within its wait, and does not end it; its wait row does", () => {
  const stall = row(0, "detect", 1010 * MS, 1010 * MS, {
    lane: "recv",
    op: -1,
    collective: "",
    name: "stalled",
    peer: 1,
  });
  const over = row(0, "wait", 10 * MS, 1020 * MS, { ...P2P, op: 0, lane: "recv", peer: 1 });
  const at = (rows) => {
    const known = waiting([[0, 1, 10]], rows);
    return stuckNow(lookOf(known, null, known.table.to, { live: true })).size;
  };
  assert.deepEqual([at([stall]), at([stall, over])], [1, 0]);
});

test(
  "no circle is claimed of a chain; who has ended its cell is waited for in vain; the past " +
    "is not now",
  () => {
    const chain = waiting(
      [
        [0, 1, 10],
        [1, 3, 10],
      ],
      cell(3, 1, 0, 2),
    );
    const look = lookOf(chain, null, chain.table.to, { live: true });
    assert.deepEqual(waitingCircle(stuckNow(look)), []);
    assert.match(
      stuckWords(stuckNow(look), look),
      /^Rank 1 has waited 4\.9 s for rank 3, which has ended this cell: in vain/,
    );
    assert.deepEqual(
      waitingCircle(
        new Map(
          [
            [0, { peer: 1 }],
            [1, { peer: 2 }],
            [2, { peer: 1 }],
          ].map(([rank, one]) => [rank, { rank, ...one }]),
        ),
      ),
      [1, 2],
      "who waits for a circle is not in it",
    );
    const open = waiting(
      [
        [1, 3, 10],
        [3, 0, 10],
      ],
      cell(3, 1, 0, 2),
    );
    assert.deepEqual(
      [...stuckNow(lookOf(open, null, open.table.to, { live: true })).keys()],
      [1],
      "a receive that was left open waits for nothing",
    );
    assert.equal(stuckNow({ ...look, live: false, t: 0.5 * MS }).size, 0);
    assert.equal(
      stuckWords(stuckNow(look), { ...look, known: { ...chain, clock: 500 * MS } }),
      "",
      "half a second is nothing to speak of",
    );
  },
);

test("what was told before a cell in which nothing has left is not told with it", () => {
  const known = knownOf(
    [
      ...[0, 1].flatMap((rank) => [...cell(rank, 1, 0, 3), ...cell(rank, 2, 4)]),
      ...message(0, 1, 0, 1),
    ],
    { state: "running", now: 5000 * MS, lanes_now: [lane(0, 1, 5), lane(1, 0, 5)] },
  );
  const call = openCallOf(known, bursts(known)[0].key, []);
  const look = lookOf(known, call, call.end, { live: true });
  const now = atStuck(look);
  assert.deepEqual([now.call, now.current, now.t], [null, null, 5000 * MS]);
  assert.equal(atStuck({ ...look, t: call.start }).call, call, "while it is being told it stays");
});

test("a record that broke off says itself who waited", () => {
  const known = knownOf([], {
    state: "failed",
    run: {
      ...RUN,
      ranks: 2,
      waiting: [
        { rank: 0, peer: 1, words: "rank 0 sends to rank 1 at line 3" },
        { rank: 1, peer: 0, words: "" },
      ],
    },
  });
  const look = lookOf(known, null, 0);
  assert.deepEqual([...stuckNow(look).keys()], [0, 1]);
});

test("arrows that meet do not lie over each other, and end at the rims", () => {
  const a = { x: 0, y: 0 };
  const b = { x: 100, y: 0 };
  const one = arrowWay(a, b, 20);
  const other = arrowWay(b, a, 20);
  assert.ok(one.middle.y * other.middle.y < 0);
  assert.ok(
    Math.abs(Math.hypot(one.from.x, one.from.y) - 20) < 1e-9 &&
      Math.abs(Math.hypot(one.to.x - 100, one.to.y) - 20) < 1e-9,
  );
});

test("a group lies in its own shape under its ranks' own names, all others below it, apart", () => {
  for (const [ranks, members, width] of [
    [4, [1, 3], 400],
    [8, [0, 2, 4, 6], 420],
    [16, [3, 5, 11], 400],
    [64, [0, 1, 2, 3], 600],
  ]) {
    const links = members.map((rank, i) => `${rank}>${members[(i + 1) % members.length]}`);
    const place = placesOf(ranks, width, 350, links, 1, 0, undefined, members);
    const own = placesOf(
      members.length,
      width,
      320,
      members.map((_, i) => `${i}>${(i + 1) % members.length}`),
    );
    members.forEach((rank, i) => assert.deepEqual(place.nodes[rank], own.nodes[i]));
    assert.deepEqual(
      place.links,
      members.map((rank, i) => [rank, members[(i + 1) % members.length]]),
    );
    const others = place.nodes.filter((_, rank) => !members.includes(rank));
    const lowest = Math.max(...members.map((rank) => place.nodes[rank].y + place.node));
    for (const { x, y } of others)
      assert.ok(
        y - place.outside > lowest &&
          y + place.outside <= 350 &&
          x - place.outside >= 0 &&
          x + place.outside <= width,
      );
    for (let i = 1; i < others.length; i++)
      assert.ok(others[i].x - others[i - 1].x >= 2 * place.outside);
  }
});

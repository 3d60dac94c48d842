import assert from "node:assert/strict";
import { test } from "node:test";
import { killedIn, reworded } from "./failures.js";
import { nothing, receive } from "../../assets/engine/page_state.js";
import { circleOf, shownLinks, underCircle } from "../../assets/drawing/rank_circle.js";
import { graphOf } from "../../assets/engine/run_graph.js";
import { RecentLinks } from "../../assets/scenes/overview/links.js";
import {
  startWords,
  inCounts,
  meaning,
  tellOverview,
  waysOn,
} from "../../assets/scenes/overview/captions.js";
import { SCENES } from "./scenes.js";
import { tellsNoLoss, trafficLines } from "../../assets/scenes/overview/traffic_table.js";
import { CONTROL, RUN, batch, row, rows } from "./rows.js";

const heard = (more = {}) => receive(nothing(), ...batch(rows, more), 0);
const say = (more, { held = false, onShow = 6, newest = 6 } = {}) => {
  const known = heard(more);
  return tellOverview(
    { known, held, live: !held },
    { onShow, newest },
    { first: 2.3, last: 0.5 },
    meaning(known.run, SCENES),
  );
};
test("while a rank is frozen the waits for it are said, with how long", () => {
  const control = { ...CONTROL, frozen: [2] };
  const caption = (stuck) =>
    tellOverview(
      { known: heard({ control, state: "running" }), held: false, live: true, stuck },
      { onShow: 6, newest: 6 },
      { first: 2.3, last: 0.5 },
      ["3 processes train.", "A ring."],
    );
  const waits = "Rank 3 has waited 19.5 s for rank 2, which is frozen; 2 others wait too.";
  assert.match(caption("").small, /^The others go on until they need/);
  assert.match(caption(waits).say, /^Rank 2 is frozen/);
  assert.equal(caption(waits).small, waits);
});

const STATES = ["empty", "starting", "running", "finished", "failed", "replay"];

test("a page that has heard nothing says nothing of the run", () => {
  const told = tellOverview(
    { known: nothing(), held: false, live: true },
    { onShow: -1, newest: -1 },
    { first: NaN, last: NaN },
    meaning(null, SCENES),
  );
  assert.equal(told.say, "Loading …");
  assert.equal(
    say({ state: "empty", run: { ...RUN, ranks: 0 }, words: "" }).say,
    "Nothing runs yet.",
  );
});

test("what training together means, for every number of ranks and strategy", () => {
  const together =
    "Each takes {share} of every batch; {averages} their gradients, so {all} stay identical.";
  const of = (ranks, strategy, algorithm = "ring", more = { together }) =>
    meaning({ ...RUN, ranks, strategy, algorithm, ...more }, SCENES).join(" ");
  assert.equal(
    of(4, "data_parallel"),
    "4 processes are training one model together. Each takes a quarter of every batch; a " +
      "ring averages their gradients, so all four stay identical.",
  );
  assert.match(
    of(2, "data_parallel", "one_shot"),
    /Each takes half of every batch; an all-reduce \(one shot\) averages their gradients, so both stay/,
  );
  const auto = meaning(
    {
      ...RUN,
      ranks: 4,
      together,
      algorithm: "auto",
      auto: "one_shot up to 32 KiB, ring above",
    },
    SCENES,
  ).join(" ");
  assert.match(auto, /an all-reduce \(auto: one shot up to 32 KiB, ring above\) averages/);
  assert.match(of(4, "data_parallel", "auto"), /an all-reduce \(auto\) averages/);
  assert.match(of(16, "mine"), /Each takes 1\/16 of every batch; .* so all 16 stay/);
  assert.match(
    of(4, "mine", "ring", { server: { servers: 1 } }),
    /one holds the parameters, 3 compute gradients\. Workers/,
  );
  assert.match(of(1, "mine"), /^One process trains one model\. It takes every batch whole/);
  assert.match(
    of(3, "mine", "ring", {}),
    /^3 processes are training one model together\. Strategy: Data parallel\./,
  );
});

test("ranks that run cells are not said to train", () => {
  const cells = { ...RUN, ranks: 4, strategy: "", cells: true };
  assert.equal(meaning(cells, SCENES)[0], "4 ranks run the cells of a notebook.");
  assert.equal(meaning({ ...cells, ranks: 1 }, SCENES)[0], "1 rank runs the cells of a notebook.");
});

test("every state has its own sentence, held or not", () => {
  const told = STATES.map((state) =>
    say({
      state,
      failure: state === "failed" ? killedIn(2, 5) : null,
    }),
  );
  assert.equal(new Set(told.map((t) => t.say)).size, STATES.length);
  for (const { say: words, small } of told)
    assert.ok(words.length > 10 && small.length > 10, words);
  assert.equal(told[4].say, "Rank 2 was killed by SIGKILL in iteration 5.");
  const other = say({ state: "failed", words: "Etwas", failure: reworded(killedIn(2, 5)) });
  assert.deepEqual([other.say, other.small], ["Es ging nicht gut aus.", told[4].small]);
  assert.match(
    say({ state: "running" }, { held: true }).say,
    /^The picture is held in iteration 7; the ranks run on\.$/,
  );
  assert.match(say({ state: "finished" }, { held: true }).say, /the run is over/);
  assert.match(
    say({ control: { ...CONTROL, held: true, standing: [0, 1, 2] } }).small,
    /^Every process stands/,
  );
  assert.match(
    say({ control: { ...CONTROL, held: true, standing: [0] } }).small,
    /1 of 3 processes stand/,
  );
});

test("a run that goes on without a rank says which it lost, and which are left", () => {
  const after = (known) => say({ state: "running", run: { ...RUN, recovers: true }, ...known }).say;
  const control = { ...CONTROL, ended: { 1: "killed by SIGKILL" }, how: { 1: "killed" } };
  assert.equal(after({ control }), "Rank 1 was lost; ranks 0 and 2 are left.");
  assert.match(after({ control: { ...control, how: { 1: "ended" } } }), /training one model/);
});

test("a frozen rank is told before what training together means", () => {
  const frozen = (ranks) => say({ state: "running", control: { ...CONTROL, frozen: ranks } }).say;
  assert.equal(frozen([0]), "Rank 0 is frozen: its process is stopped.");
  assert.equal(frozen([0, 2]), "Ranks 0 and 2 are frozen: their processes are stopped.");
  assert.match(frozen([]), /are training one model together/);
});

test("the end in numbers: all iterations, or fewer", () => {
  assert.match(
    say({ state: "finished" }, { newest: 199 }).say,
    /^Done: 200 iterations in .* on 3 ranks\.$/,
  );
  assert.match(say({ state: "finished" }, { newest: 6 }).say, /^Stopped: 7 of 200 iterations/);
  assert.match(
    say({ state: "finished", counters: { accuracy: 0.804 } }).small,
    /from 2\.30 to 0\.50; validation accuracy 80\.4 %/,
  );
});

test("the large button starts a run, where the page may and none goes on; it never stops one", () => {
  const words = (more) => startWords(heard(more));
  assert.deepEqual(
    STATES.map((state) => words({ state })),
    STATES.map(() => ""),
  );
  assert.deepEqual(
    STATES.map((state) => words({ state, run: { ...RUN, can_start: true } })),
    ["▶ Start", "", "", "", "", ""],
  );
  assert.equal(startWords(nothing()), "");
});

const doing = (rank, mark, waits = 0, forWhom = -1) => ({
  rank,
  mark,
  halo: false,
  words: "",
  waits,
  forWhom,
  long: false,
});

test("the first way on names who waits most, for whom", () => {
  const doings = [doing(0, "compute", 0.1, 2), doing(1, "wait", 0.5, 0), doing(2, "wait", 0.7, 1)];
  // rank 2 waits longer, but for one that waits
  assert.deepEqual(waysOn(heard(), doings)[0], ["See the ring", "why rank 1 waits for rank 0"]);
  assert.deepEqual(
    waysOn(heard(), [doing(0, "wait", 0.3, 2), doing(1, "wait", 0.5, 2), doing(2, "frozen")])[0][1],
    "why rank 1 waits for rank 2",
  );
  assert.deepEqual(waysOn(heard(), doings.slice(0, 1))[0], [
    "See the ring",
    "what every rank holds, chunk by chunk",
  ]);
  assert.equal(waysOn(heard({ run: { ...RUN, algorithm: "naive" } }), [])[0][0], "See the chunks");
  assert.equal(waysOn(heard({ state: "failed" }), [])[0][0], "The last moments");
});

test("a picture that is held in the last iteration goes on to none", () => {
  const held = (onShow) => say({ state: "finished" }, { held: true, onShow }).small;
  assert.match(held(3), /^It went on to iteration 7\./);
  assert.match(held(6), /^That is its last\./);
});

test("of many ranks: how many do what, and the three whom the others wait for", () => {
  const doings = Array.from({ length: 64 }, (_, r) =>
    doing(r, r < 40 ? "wait" : r < 62 ? "compute" : "none", r === 50 ? 0 : 0.5 + r / 1000, 1),
  );
  const told = inCounts(doings);
  assert.deepEqual(
    told.counts.map(([, n]) => n),
    [22, 0, 40, 2],
  );
  assert.equal(told.slowest[0].rank, 50);
  const moment = doings.map((d) =>
    doing(
      d.rank,
      d.rank === 50 ? "compute" : d.rank === 3 ? "none" : "wait",
      d.rank === 50 || d.rank === 3 ? 0 : 1,
    ),
  );
  assert.deepEqual(
    inCounts(moment).slowest.map((d) => d.rank),
    [50, 3, 0],
  );
  doings[7] = doing(7, "killed");
  doings[8] = doing(8, "frozen");
  assert.deepEqual(
    inCounts(doings).slowest.map((d) => d.rank),
    [7, 8, 50],
  );
  const over = doings.map((d) => doing(d.rank, "ended"));
  assert.deepEqual(inCounts(over).slowest, [], "at the end none is waited for");
  assert.deepEqual(inCounts(doings).counts[3], [
    "killed",
    1,
    "killed, 1 frozen, 2 between two things",
  ]);
});

test("ranks on the circle lie inside, apart, and are found under the pointer", () => {
  for (const n of [1, 2, 3, 4, 8, 16, 32, 64]) {
    const size = n > 4 ? 168 : 124;
    const circle = circleOf(n, size);
    const { nodes, node } = circle;
    for (const { x, y } of nodes)
      assert.ok(
        x >= node + 5 && x <= size - node - 5 && y >= node + 5 && y <= size - node - 5,
        `${n}`,
      );
    if (n > 1)
      assert.ok(Math.hypot(nodes[0].x - nodes[1].x, nodes[0].y - nodes[1].y) > 2 * node, `${n}`);
    nodes.forEach(({ x, y }, rank) =>
      assert.deepEqual(underCircle(circle, new Set(), x, y), { rank }),
    );
  }
  const circle = circleOf(4, 124);
  const [a, b] = circle.nodes;
  assert.deepEqual(underCircle(circle, new Set(["0>1"]), (a.x + b.x) / 2, (a.y + b.y) / 2), {
    from: 0,
    to: 1,
  });
  assert.equal(underCircle(circle, new Set(["0>1"]), 62, 62), null);
});

test("the circle's links are the run's own graph, where its facts say who sends to whom", () => {
  const ring = [0, 1, 2, 3].map((rank) => [rank, (rank + 1) % 4, 1 / 3]);
  const gossip = { ...RUN, ranks: 4, peers: { edges: ring } };
  assert.deepEqual([...graphOf(gossip)], ["0>1", "1>2", "2>3", "3>0"]);
  const servers = graphOf({ ...RUN, ranks: 5, server: { servers: 2 } });
  assert.equal(servers.size, 12, "three workers with two servers, both ways");
  assert.ok(servers.has("2>0") && servers.has("1>4"));
  assert.ok(![...servers].some((link) => link === "0>1" || link === "3>4"));
  assert.equal(graphOf({ ...RUN, server: {}, peers: null }), null);
  const links = new RecentLinks({
    source: { newest: { key: "all of it" } },
    open: () => ({ flights: [{ from: 0, to: 2 }] }),
  });
  links.update({ ...heard(), run: gossip });
  assert.deepEqual([...links.all], ["0>1", "1>2", "2>3", "3>0"], "whatever the newest call is");
  links.update({ ...heard(), run: { ...RUN, peers: null } });
  assert.ok(links.all.has("0>2"), "without a graph: the newest call's");
});

test("links that were emulated are so in a replay too", () => {
  const links = new RecentLinks({
    source: { newest: { key: "a ring" } },
    open: () => ({ flights: [0, 1, 2].map((from) => ({ from, to: (from + 1) % 3 })) }),
  });
  const made = (run) => {
    links.update({ ...heard({ state: "replay" }), control: null, run: { ...RUN, ...run } });
    return links.emulated.map(({ from, to, down }) => [from, to, down]);
  };
  const [from, to] = [0, 1];
  assert.deepEqual(made({ emulated: [{ from, to, made: "emulated: 5 ms", down: false }] }), [
    [0, 1, false],
  ]);
  const everywhere = { link_levels: [{ made: "emulated: 5 ms", down: false }], emulated: [] };
  assert.equal(made(everywhere).length, 3, "of the network, those that are used");
  assert.deepEqual(made({ emulated: [], link_levels: [] }), []);
});

test("an emulated network shows no link that nobody uses", () => {
  const pairs = [0, 1, 2].flatMap((from) =>
    [0, 1, 2].filter((to) => to !== from).map((to) => ({ from, to })),
  );
  const used = new Set(["0>1", "1>2"]);
  assert.deepEqual([...shownLinks(3, used, pairs)], [...used]);
  assert.ok(shownLinks(3, used, [{ from: 2, to: 0 }]).has("2>0"), "what was changed by hand");
  assert.equal(shownLinks(3, new Set(), pairs).size, 6);
});

test("a job that tells no loss is shown by what it sends, and is promised none", () => {
  const job = { ...RUN, ranks: 2, strategy: "", iterations: -1 };
  const list = [
    row(0, "send", 0, 10, { nbytes: 3000, peer: 1 }),
    row(0, "wait", 10, 110),
    row(1, "send", 20, 40, { nbytes: 500, peer: 0 }),
    row(1, "collective", 0, 200, { nbytes: 64 }),
  ];
  const known = { ...receive(nothing(), ...batch(list, { state: "replay", run: job }), 0) };
  assert.ok(tellsNoLoss(known, -1) && !tellsNoLoss(known, 3), "with a loss it is drawn");
  assert.ok(!tellsNoLoss({ ...known, run: RUN }, -1), "one of ours will tell it");
  const [all, first, second] = trafficLines(known);
  assert.equal(all.words, "no call was completed");
  assert.equal(first.words, "sent 3.00 kB, waited 100 ns (50 %)");
  assert.deepEqual([first.share, second.share], [0.5, 0]);
  assert.deepEqual(trafficLines(known)[1], first, "rows are counted once");
  assert.match(
    tellOverview(
      { known, held: false, live: true },
      { onShow: -1, newest: -1 },
      { first: NaN, last: NaN },
      meaning(job, SCENES),
    ).say,
    /^2 ranks of a job: no call was completed in /,
  );
  assert.doesNotMatch(meaning(job, SCENES).join(" "), /train/);
});

test("a thousand ranks are squares in rows, apart, within the picture, each under the pointer", () => {
  const circle = circleOf(1000, 168);
  assert.ok(circle.inRows && !circleOf(128, 168).inRows);
  circle.nodes.forEach(({ x, y }, rank) => {
    for (const at of [x, y])
      assert.ok(at - circle.node >= 0 && at + circle.node <= 168, `rank ${rank}`);
    assert.deepEqual(underCircle(circle, new Set(), x, y), { rank });
  });
  assert.ok(circle.nodes[1].x - circle.nodes[0].x >= 2 * circle.node + 0.9);
});

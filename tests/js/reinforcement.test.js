import assert from "node:assert/strict";
import { test } from "node:test";
import { doingAt } from "../../assets/engine/rank_activity.js";
import {
  lastLearned,
  cometWords,
  sentenceOf,
  spotWords,
  spokenWords,
} from "../../assets/scenes/reinforcement/captions.js";
import { updatesOf } from "../../assets/scenes/reinforcement/call_source.js";
import { Chart } from "../../assets/drawing/chart.js";
import {
  CHART,
  bytesByKind,
  drawKinds,
  drawOld,
  drawReturns,
} from "../../assets/scenes/reinforcement/charts.js";
import { drawPicture } from "../../assets/scenes/reinforcement/draw.js";
import { frameOf, tintStep } from "../../assets/scenes/reinforcement/frame.js";
import { indexOf, rolesOf } from "../../assets/scenes/reinforcement/index.js";
import { keysOf } from "../../assets/scenes/reinforcement/legend.js";
import { marksOf } from "../../assets/scenes/reinforcement/marks.js";
import { spotAlong, placeOf, wayOf, hitUnder } from "../../assets/scenes/reinforcement/place.js";
import { reinforcementScene } from "../../assets/scenes/reinforcement/scene.js";
import { roundsOf } from "../../assets/scenes/server/call_source.js";
import { INK, canvas, collisions, onto } from "./canvas.js";
import { recorded } from "./recorded.js";
import { sample } from "./sample.js";

const RUNS = ["played_ape_x", "played_gorila", "played_bundles"];
const MOMENTS = [0.04, 0.3, 0.5, 0.62, 0.75, 0.9, 1];

const lookOf = (known, t, width = 928, choice = null) => ({
  known,
  table: known.table,
  t,
  live: false,
  held: true,
  ranks: known.run.ranks,
  ink: INK,
  font: "sans-serif",
  width,
  ratio: 1,
  at: 0,
  choice,
});

function seenOf(known, t, width = 928) {
  const roles = rolesOf(known.run);
  const index = indexOf(known.table);
  return {
    roles,
    index,
    frame: frameOf(index, roles, t, known.run.iterations),
    place: placeOf(roles, width),
  };
}

const momentOf = ({ table }, share) => table.from + (table.to - table.from) * share;

/** The rows of a table, one by one. */
function* rowsOf({ table }) {
  for (let r = 0; r < table.rows; r++) {
    const p = table.passage[r];
    yield {
      kind: table.kindName(table.kind[r]),
      name: table.text(table.name[r]),
      rank: table.passages.rank[p],
      op: table.passages.op[p],
      iteration: table.passages.iteration[p],
      version: table.passages.version[p],
      collective: table.text(table.passages.collective[p]),
      group: table.text(table.passages.group[p]),
      peer: table.peer[r],
      start: table.start[r],
      end: table.end[r],
      nbytes: table.nbytes[r],
      value: table.value[r],
    };
  }
}

for (const name of RUNS)
  test(`what moves are rows, and bytes are those of the sends: ${name}`, () => {
    const known = recorded(name);
    const messages = [...rowsOf(known)].filter(
      (r) => r.collective === "p2p" && r.group === "default" && r.op >= 0,
    );
    const sends = messages.filter((r) => r.kind === "send");
    let seen = 0;
    for (const one of sends.filter((_, i) => i % Math.ceil(sends.length / 60) === 0)) {
      const { frame, index } = seenOf(known, (one.start + one.end) / 2);
      for (const c of frame.comets) {
        const own = sends.filter((r) => r.rank === c.from && r.peer === c.to && r.op === c.op);
        const came = messages.filter(
          (r) => r.kind === "recv" && r.rank === c.to && r.peer === c.from && r.op === c.op,
        );
        const [start, end] = [
          Math.min(...own.map((r) => r.start)),
          Math.max(...came.map((r) => r.end)),
        ];
        assert.ok(start <= frame.t && frame.t < end);
        assert.equal(c.kind, own[0].name);
        assert.ok(Math.abs(c.share - (frame.t - start) / (end - start)) < 1e-9);
        seen += 1;
      }
      for (const { kind, nbytes } of bytesByKind(index, frame.t)) {
        const keys = new Set(
          sends
            .filter((r) => r.name === kind && r.start <= frame.t)
            .map((r) => `${r.rank}>${r.peer}/${r.op}`),
        );
        const sum = sends
          .filter((r) => r.name === kind && keys.has(`${r.rank}>${r.peer}/${r.op}`))
          .reduce((all, r) => all + r.nbytes, 0);
        assert.equal(nbytes, sum, kind);
      }
    }
    assert.ok(seen >= 10, `${seen} messages on the way`);
  });

for (const name of RUNS)
  test(`ages, frames and returns are those of the rows: ${name}`, () => {
    const known = recorded(name);
    const all = [...rowsOf(known)];
    const { servers, learners, actors } = known.run.roles;
    const newestAt = (holder, t) =>
      Math.max(
        0,
        ...all
          .filter((r) => r.rank === holder && r.end <= t)
          .map((r) =>
            servers.length
              ? r.kind === "apply"
                ? r.version
                : 0
              : r.kind === "optimizer"
                ? r.iteration + 1
                : 0,
          ),
      );
    let behind = 0;
    for (const share of MOMENTS) {
      const t = momentOf(known, share);
      const { frame } = seenOf(known, t);
      for (const actor of frame.actors) {
        const own = all.filter((r) => r.rank === actor.rank && r.end <= t);
        const holders = servers.length ? servers : learners;
        const lacks = holders.map((holder) => {
          const pulls = own.filter((r) => r.kind === "pull" && r.peer === holder);
          return newestAt(holder, t) - (pulls.at(-1)?.version ?? 0);
        });
        assert.equal(actor.behind, Math.max(...lacks), `actor ${actor.rank} at ${share}`);
        behind = Math.max(behind, actor.behind);
        const frames = own.filter((r) => r.name === "frames").map((r) => r.value);
        assert.equal(actor.frames, frames.at(-1) ?? 0);
        const returns = own.filter((r) => r.name === "return").map((r) => r.value);
        assert.equal(actor.episodes, returns.length);
        if (returns.length) assert.equal(actor.episode, returns.at(-1));
      }
      for (const replay of frame.replays.filter(() => !frame.bundles)) {
        const came = all.filter(
          (r) => r.rank === replay.rank && r.name === "inserted" && r.end <= t,
        );
        assert.equal(
          replay.inserted,
          came.reduce((sum, r) => sum + r.value, 0),
        );
        assert.equal(replay.held, Math.min(replay.capacity, replay.inserted));
      }
    }
    assert.ok(behind > 0, "somebody was behind");
    assert.equal(actors.length, seenOf(known, 0).frame.actors.length);
  });

test("replay tells how likely it draws what is how old, and its learner is waited for", () => {
  const known = recorded("played_ape_x");
  const told = MOMENTS.map((share) => seenOf(known, momentOf(known, share)).frame.replays[0]);
  const last = told.at(-1);
  assert.equal(last.columns.length, 12);
  assert.ok(last.columns.every(({ mass }) => mass > 0));
  const mean = last.columns.reduce((sum, { mass }) => sum + mass, 0) / 12;
  assert.ok(Math.abs(mean - 1) < 0.2, String(mean));
  const old = (from, to) => last.columns.slice(from, to).reduce((sum, one) => sum + one.behind, 0);
  assert.ok(old(6, 12) >= old(0, 6) && old(6, 12) > 0, "older to the right");
  const waits = [...Array(200).keys()].map(
    (i) => seenOf(known, momentOf(known, i / 200)).frame.learners[0],
  );
  assert.ok(waits.some((one) => one.does === "waits" && one.forWhom === 1));
  assert.ok(waits.some((one) => one.does === "works"));
  assert.equal(waits.at(-1).updates > 0, true);
});

test("an actor that is killed is lost from then on, and the sentence says so", () => {
  const known = recorded("played_ape_x");
  const rows = [...rowsOf(known)].sort((a, b) => a.end - b.end);
  const kill = rows.find((r) => r.name === "kill");
  const killed = rows.find((r) => r.name === "lost");
  const before = seenOf(known, kill.start - 1e6).frame.actors.find((one) => one.rank === 3);
  const { frame, index, roles } = seenOf(known, killed.end + 1e6);
  assert.notEqual(before.does, "lost");
  assert.equal(frame.actors.find((one) => one.rank === 3).does, "lost");
  assert.equal(
    doingAt(known.table, known.run.ranks, killed.end, true, known.run)[3].mark,
    "killed",
  );
  assert.match(sentenceOf(known, frame, index, roles, false), /^Actor 3 is lost/);
  const held = { ...known, state: "running", control: { held: true } };
  const words = sentenceOf(held, frame, index, roles, true);
  assert.match(words, /^You hold the ranks\. Actor 3 is lost/);
});

test("a bundle is one place, and no experience travels", () => {
  const known = recorded("played_bundles");
  const { place, index, frame } = seenOf(known, known.table.to);
  assert.deepEqual(
    place.spots.map(({ role }) => role),
    ["bundle", "bundle", "server"],
  );
  const kinds = new Set([...index.ways.values()].map(({ kind }) => kind));
  assert.ok(kinds.has("gradients") && kinds.has("parameters"));
  for (const none of ["experience", "minibatch", "priorities"]) assert.ok(!kinds.has(none), none);
  assert.ok(frame.replays.every((one) => one.held > 0));
});

const castOf = (servers, learners, replays, actors, bundle = false) => {
  const at = (from, n) => Array.from({ length: n }, (_, i) => from + i);
  const options = { bundle, capacity: 1000, learn_from: 100, block: 4, replay: "prioritised" };
  if (bundle) {
    const all = at(servers, learners);
    return { servers: at(0, servers), learners: all, replays: all, actors: all, options };
  }
  return {
    servers: at(0, servers),
    learners: at(servers, learners),
    replays: at(servers + learners, replays),
    actors: at(servers + learners + replays, actors),
    options,
  };
};

for (const width of [608, 928])
  test(`places lie within the picture and beside each other, ${width} px`, () => {
    for (const roles of [
      castOf(0, 1, 1, 1),
      castOf(1, 1, 1, 1),
      castOf(0, 1, 2, 11),
      castOf(2, 3, 2, 7),
      castOf(4, 8, 8, 44),
      castOf(1, 1, 0, 0, true),
      castOf(2, 12, 0, 0, true),
    ]) {
      const place = placeOf(roles, width);
      assert.ok(place.height <= 570, String(place.height));
      for (const a of place.spots) {
        assert.ok(a.x >= 0 && a.x + a.w <= width && a.y >= 20 && a.y + a.h <= place.height);
        assert.deepEqual(hitUnder(place, [], a.x + a.w / 2, a.y + a.h / 2).spot.rank, a.rank);
        for (const b of place.spots)
          if (a !== b)
            assert.ok(
              a.x + a.w <= b.x ||
                b.x + b.w <= a.x ||
                a.y + a.h <= b.y + 0.01 ||
                b.y + b.h <= a.y + 0.01,
            );
      }
      const [actor] = roles.actors;
      const holder = (roles.servers.length ? roles.servers : roles.learners)[0];
      const way = wayOf(place, holder, actor);
      const [first, last] = [spotAlong(way, 0), spotAlong(way, 1)];
      assert.ok(Math.hypot(first.x - way[0].x, first.y - way[0].y) < 1e-6);
      assert.ok(Math.hypot(last.x - way.at(-1).x, last.y - way.at(-1).y) < 1e-6);
    }
  });

for (const name of RUNS)
  for (const width of sample([608, 928]))
    test(`no word lies over a mark or another word: ${name}, ${width} px`, () => {
      const known = recorded(name);
      for (const share of MOMENTS) {
        const t = momentOf(known, share);
        const look = lookOf(known, t, width, { rank: share > 0.5 ? 1 : 3 });
        const seen = seenOf(known, t, width);
        const g = canvas();
        onto(g);
        drawPicture(g, look, { ...seen, frame: { ...seen.frame, comets: [] } });
        const where = `${name} at ${share}`;
        const inside = (drawn, w, h) => {
          for (const text of drawn.filter((d) => d.kind === "text" && d.text)) {
            assert.ok(text.size >= 11, `${text.text}: ${where}`);
            assert.ok(!/NaN|undefined|Infinity/.test(text.text), `${text.text}: ${where}`);
            assert.ok(
              text.x >= -0.5 &&
                text.x + text.w <= w + 1 &&
                text.y >= -1 &&
                text.y + text.h <= h + 1,
              `${text.text} is cut off: ${where} ${JSON.stringify(text)} in ${w} × ${h}`,
            );
          }
        };
        inside(g.drawn, width, seen.place.height);
        const named = g.drawn.filter((d) => d.kind !== "text" || d.text);
        assert.deepEqual(collisions(named), [], where);
        drawPicture(canvas(), look, seen);
        for (const draw of [drawReturns, drawOld, drawKinds]) {
          const paper = canvas();
          const w = width >= 728 ? 293 : 292;
          draw(
            new Chart({ g: paper, ink: INK, font: "sans-serif", width: w, height: CHART }),
            seen.index,
            seen.roles,
            t,
          );
          inside(paper.drawn, w, CHART);
          assert.deepEqual(collisions(paper.drawn.filter((d) => d.kind === "text")), [], where);
        }
      }
    });

test("everything that is said is whole", () => {
  for (const name of RUNS) {
    const known = recorded(name);
    for (const share of MOMENTS) {
      const t = momentOf(known, share);
      const seen = seenOf(known, t);
      const { frame, index, roles, place } = seen;
      const words = [
        sentenceOf(known, frame, index, roles, false),
        spokenWords(frame),
        ...place.spots.flatMap((spot) => spotWords(frame, spot)),
        ...frame.comets.flatMap((comet) => cometWords(comet, frame)),
        ...lastLearned(index, roles, t, 4).flat(),
        ...keysOf(lookOf(known, t), seen).map((item) => item.words),
        ...reinforcementScene.meaning(known.run),
      ];
      for (const one of words) assert.ok(one && !/NaN|undefined|Infinity|null/.test(one), one);
      assert.ok(marksOf(lookOf(known, t), seen).length >= place.spots.length);
    }
  }
});

test("it is offered where there are actors, and one learner's run is told in its updates", () => {
  const known = recorded("played_ape_x");
  assert.ok(reinforcementScene.offered(known));
  assert.ok(!reinforcementScene.offered({ ...known, run: { ...known.run, roles: null } }));
  const updates = updatesOf(known);
  const made = [...rowsOf(known)].filter((r) => r.kind === "optimizer").length;
  assert.equal(updates.calls.filter((call) => call.complete).length, made);
  const call = updates.open(updates.calls[5].key);
  assert.ok(call.flights.length > 0);
  assert.ok(call.flights.every((f) => f.start >= 0 && f.end <= call.end - call.start));
  assert.equal(updatesOf(recorded("played_gorila")), null);
});

test("an actor's game is what it told last, a ball and a paddle", () => {
  const known = recorded("played_ape_x");
  const { actors } = seenOf(known, known.table.to).frame;
  for (const { picture, seen } of actors) {
    assert.ok(seen <= known.table.to);
    assert.deepEqual(
      picture.map((row) => row.length),
      Array(5).fill(4),
    );
    const lit = picture.flat().filter((shade) => shade === 15).length;
    assert.ok(lit === 1 || lit === 2, String(lit));
    assert.equal(picture[4].filter((shade) => shade === 15).length >= 1, true);
  }
  const [first] = seenOf(known, known.table.from).frame.actors;
  assert.deepEqual(first.picture, []);
});

test("everywhere an actor plays, and replay waits for nobody", () => {
  for (const name of ["played_ape_x", "played_gorila"]) {
    const known = recorded(name);
    const { actors, replays } = known.run.roles;
    const { table, run } = known;
    const words = MOMENTS.map((share) =>
      doingAt(table, run.ranks, momentOf(known, share), false, run),
    );
    assert.ok(words.some((all) => actors.some((rank) => all[rank].words.startsWith("plays"))));
    assert.ok(words.every((all) => replays.every((rank) => all[rank].mark !== "wait")));
    assert.ok(!words.flat().some((one) => actors.includes(one.rank) && /samples/.test(one.words)));
  }
});

test("a parameter server's workers are learners: actors pull, and have no rounds", () => {
  const known = recorded("played_gorila");
  const { index, calls } = roundsOf(known.table);
  assert.deepEqual([...index.workers.keys()], known.run.roles.learners);
  assert.ok(calls.length >= known.run.iterations, String(calls.length));
});

test("a step of the tint is a round number, and enough", () => {
  for (const most of [0, 1, 7, 8, 14, 15, 35, 36, 700, 701]) {
    const step = tintStep(most);
    assert.ok(7 * step >= most && /^([1234568]0*)$/.test(String(step)), `${most}: ${step}`);
  }
});

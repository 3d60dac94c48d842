import assert from "node:assert/strict";
import { test } from "node:test";
import { indexOf as serverIndexOf } from "../../assets/scenes/server/index.js";
import { acceptedBy, turnAt, versionAt } from "../../assets/scenes/server/lookups.js";
import { partsUntil } from "../../assets/scenes/server/worker_time.js";
import {
  boundOf,
  fateOf,
  heldAt,
  frameOf as serverFrame,
} from "../../assets/scenes/server/frame.js";
import { flightsBetween, roundsOf } from "../../assets/scenes/server/call_source.js";
import { Table } from "../../assets/engine/table.js";
import { packed, row, tableOf } from "./rows.js";
import { heard } from "./training.js";
import { MS, RULES, served } from "./served.js";

const moments = (table, n = 200) =>
  Array.from({ length: n }, (_, i) => table.from + ((table.to - table.from) * (i + 0.5)) / n);
const kinds = new WeakMap(); // of a list of rows, those of each kind
const of = (rows, kind, more = {}) => {
  if (!kinds.has(rows)) kinds.set(rows, new Map());
  const known = kinds.get(rows);
  if (!known.has(kind))
    known.set(
      kind,
      rows.filter((r) => r.kind === kind),
    );
  const wanted = Object.entries(more);
  return known.get(kind).filter((r) => wanted.every(([k, v]) => r[k] === v));
};

for (const [rule, how] of [
  ["ssp", {}],
  ["bsp", {}],
  ["asp", {}],
  ["dssp", { slack: 5 }],
  ["ssp", { workers: 3, shares: [1] }],
  ["asp", { workers: 8, shares: [0.4, 0.2, 0.2, 0.2] }],
])
  test(
    `${rule} ${JSON.stringify(how)}: every push, its version and its staleness are the ` +
      "rows'; rows may come in any order of lanes",
    () => {
      const rows = served({ rule, ...how });
      const index = serverIndexOf(tableOf(heard(rows)));
      const S = (how.shares ?? [1, 1]).length;
      assert.deepEqual(
        [...index.servers.keys()],
        Array.from({ length: S }, (_, k) => k),
      );
      const pushes = [...index.pairs.values()].flatMap((p) => p.pushes);
      assert.equal(pushes.length, of(rows, "push").length);
      for (const push of pushes) {
        const at = { peer: push.worker, rank: push.server, iteration: push.iteration };
        const [apply] = of(rows, "apply", at);
        const [out] = of(rows, "push", {
          rank: push.worker,
          peer: push.server,
          iteration: push.iteration,
        });
        assert.deepEqual([push.start, push.left, push.on], [out.start, out.end, out.version]);
        assert.deepEqual(
          [push.end, push.version, push.stale],
          [apply.end, apply.version, apply.value],
        );
        const [recv] = of(rows, "recv", {
          rank: push.server,
          peer: push.worker,
          op: push.iteration,
        });
        assert.equal(push.arrive, recv.end);
        assert.ok(
          push.start < push.left &&
            push.left <= push.arrive &&
            push.arrive <= push.begin &&
            push.begin < push.end,
        );
      }
    },
  );

test("w at time t: what each worker holds and each shard is at, from the rows alone", () => {
  const rows = served();
  const table = tableOf(rows);
  const index = serverIndexOf(table);
  const S = 2;
  for (const t of moments(table)) {
    for (let k = 0; k < S; k++)
      assert.equal(
        versionAt(index.servers.get(k), t),
        Math.max(
          0,
          ...of(rows, "apply", { rank: k })
            .filter((r) => r.end <= t)
            .map((r) => r.version),
        ),
      );
    for (const rank of index.workers.keys()) {
      const pulls = of(rows, "pull", { rank }).filter((r) => r.end <= t);
      assert.deepEqual(
        heldAt(index, rank, t),
        [0, 1].map((k) => pulls.filter((r) => r.peer === k).at(-1)?.version ?? -1),
      );
      const clocks = of(rows, "clock", { rank }).filter((r) => r.end <= t);
      assert.equal(turnAt(index.workers.get(rank), t)?.iteration, clocks.at(-1)?.iteration);
    }
    const { workers, shards } = serverFrame(index, RULES.ssp, t, 24);
    for (const w of workers)
      assert.deepEqual(
        w.behind,
        w.held.map((v, k) => (v < 0 ? 0 : shards[k].version - v)),
      );
    for (const pair of index.pairs.values())
      assert.equal(
        acceptedBy(pair, t, 1),
        of(rows, "apply", { rank: pair.server, peer: pair.worker }).filter((r) => r.end <= t)
          .length,
      );
  }
});

test("nobody is beyond its wall, the wall is reached, and who is blocked stands at it", () => {
  for (const [rule, reach] of [
    ["ssp", 3],
    ["bsp", 0],
    ["dssp", 8],
  ]) {
    const table = tableOf(served({ rule, slack: rule === "dssp" ? 5 : 0 }));
    const index = serverIndexOf(table);
    let most = 0;
    let blocked = 0;
    for (const t of moments(table, 600)) {
      const frame = serverFrame(index, RULES[rule], t, 24);
      for (const w of frame.workers) {
        assert.ok(
          w.iteration <= w.limit,
          `worker ${w.rank} is in ${w.iteration}, its wall after ${w.limit}`,
        );
        assert.ok(w.limit <= frame.min + reach, `${w.limit} ${frame.min}`);
        most = Math.max(most, w.ahead);
        if (w.doing !== "blocked") continue;
        blocked += 1;
        assert.equal(w.iteration, w.limit);
        assert.equal(w.slack, 0);
        assert.ok(frame.slowest.some((rank) => rank !== w.rank) || frame.min <= w.iteration);
      }
    }
    assert.ok(blocked > 10, rule);
    if (rule === "ssp") assert.equal(most, 3);
    if (rule === "dssp") assert.ok(most > 3, `nothing was granted beyond the bound: ${most}`);
  }
  const table = tableOf(served({ rule: "asp" }));
  const index = serverIndexOf(table);
  for (const t of moments(table))
    for (const w of serverFrame(index, RULES.asp, t, 24).workers)
      assert.ok(w.limit === null && w.doing !== "blocked");
});

test(
  "a push is outlined from its start, filled when applied, dashed when dropped; what waits " +
    "at a shard is there and not applied",
  () => {
    const rows = served({ dropped: 2, rule: "asp" });
    const table = tableOf(rows);
    const index = serverIndexOf(table);
    assert.ok(of(rows, "metric", { name: "dropped" }).length > 3);
    for (const t of moments(table)) {
      const { shards } = serverFrame(index, RULES.asp, t, 24);
      for (const { server, pushes } of index.pairs.values())
        for (const push of pushes) {
          const fate = fateOf(push, t);
          const shard = shards[server];
          assert.equal(
            fate,
            t < push.start
              ? ""
              : t < push.arrive
                ? "flying"
                : t < push.end
                  ? "there"
                  : push.dropped
                    ? "dropped"
                    : "applied",
          );
          assert.equal(shard.queue.includes(push), t >= push.arrive && t < push.begin);
          assert.equal(
            shard.applying.includes(push),
            t >= push.arrive && push.begin <= t && t < push.end,
          );
        }
    }
  },
);

test(
  "in lockstep the gradients of a clock are kept " + "until all are in, and one update takes them",
  () => {
    const table = tableOf(served({ rule: "bsp" }));
    const index = serverIndexOf(table);
    let kept = 0;
    for (const t of moments(table, 500)) {
      const { shards, workers } = serverFrame(index, RULES.bsp, t, 24);
      for (const s of shards) {
        if (s.queue.length) (assert.ok(s.kept), (kept += 1));
        assert.ok(s.applying.length === 0 || s.applying.length === workers.length);
      }
    }
    assert.ok(kept > 20);
  },
);

test("a lost worker is not counted any more: the wall goes on without it", () => {
  const table = tableOf(served({ lost: { worker: 3, at: 300 } }));
  const index = serverIndexOf(table);
  const frame = serverFrame(index, RULES.ssp, table.to, 24);
  assert.equal(frame.workers[3].doing, "lost");
  assert.ok(frame.min >= 20, `${frame.min}`);
  assert.ok(!frame.slowest.includes(5));
  assert.ok(roundsOf(table).calls.length > 20);
});

test(
  "a worker's time: the parts add up to the " + "whole, blocked as long as it stood at the wall",
  () => {
    const rows = served({ rule: "bsp" });
    const table = tableOf(rows);
    const index = serverIndexOf(table);
    const bound = boundOf(RULES.bsp, 24);
    for (const t of moments(table, 50))
      for (const worker of index.workers.values()) {
        const begun = worker.granted[0].granted;
        const parts = partsUntil(index, worker, t, bound);
        if (t > begun && !(turnAt(worker, t).pushed <= t && turnAt(worker, t).iteration === 23))
          assert.ok(Math.abs(parts.reduce((a, b) => a + b) - (t - begun)) < 1, `${t}`);
      }
    const blocked = [...index.workers.values()].map(
      (w) => partsUntil(index, w, table.to, bound)[3],
    );
    const computed = [...index.workers.values()].map(
      (w) => partsUntil(index, w, table.to, bound)[0],
    );
    assert.ok(blocked[3] < blocked[0] && computed[3] > computed[0]); // the slowest waits least
  },
);

test(
  "rounds follow each other without a gap; each ends when the last push of the slowest is " +
    "in; they are told like calls",
  () => {
    const rows = served();
    const table = tableOf(rows);
    const rounds = roundsOf(table);
    const applied = (k) => Math.max(...of(rows, "apply", { iteration: k }).map((r) => r.end));
    assert.deepEqual(
      rounds.calls.filter((c) => c.complete).map((c) => c.iteration),
      Array.from({ length: 24 }, (_, k) => k),
    );
    rounds.calls.forEach((c, i) => {
      if (i) assert.equal(c.start, rounds.calls[i - 1].end);
      if (c.complete) assert.equal(c.end, applied(c.iteration));
      const call = rounds.open(c.key);
      assert.ok(
        call.clock.plays.at(-1) >= 3999.9 && call.clock.times.at(-1) >= c.end - c.start - 1,
      );
    });
    for (const t of moments(table))
      assert.equal(
        rounds.callAt(t).iteration,
        Math.min(rounds.slowest(t), rounds.calls.at(-1).iteration),
      );
  },
);

test("what flies at a moment is what has left and has not arrived", () => {
  const rows = served();
  const table = tableOf(rows);
  const index = serverIndexOf(table);
  const sends = of(rows, "send").map((sent) => ({
    sent,
    there: rows.find(
      (r) =>
        r.rank === sent.peer &&
        r.peer === sent.rank &&
        ((r.kind === "recv" && r.op === sent.op) || (r.kind === "pull" && r.iteration === sent.op)),
    ),
  }));
  let seen = 0;
  for (const t of moments(table, 300)) {
    const flying = flightsBetween(index, t, t).filter((f) => f.start <= t && t < f.end);
    const key = (f) => `${f.from}>${f.to}#${f.op}`;
    const truth = sends
      .filter(({ sent, there }) => sent.start <= t && (!there || there.end > t))
      .map(({ sent: r }) => `${r.rank}>${r.peer}#${r.op}`);
    assert.deepEqual(flying.map(key).sort(), truth.sort());
    seen += truth.length;
  }
  assert.ok(seen > 50);
});

test(
  "rows that come bit by bit tell the same as all at once; after older ones are let go the " +
    "rest still does",
  () => {
    const rows = heard(served({ iterations: 60 }), 10 * MS);
    const whole = tableOf(rows);
    const strings = [""];
    const table = new Table();
    for (let i = 0; i < rows.length; i += 97) {
      const { header, bytes } = packed(rows.slice(i, i + 97), strings);
      table.take(header, bytes.buffer);
      roundsOf(table);
    }
    const t = whole.to * 0.8;
    const a = serverFrame(serverIndexOf(whole), RULES.ssp, t, 60);
    const b = serverFrame(serverIndexOf(table), RULES.ssp, t, 60);
    assert.deepEqual(b.workers, a.workers);
    assert.deepEqual(
      roundsOf(table).calls.map((c) => [c.iteration, c.end]),
      roundsOf(whole).calls.map((c) => [c.iteration, c.end]),
    );
    whole.forget(Math.floor(whole.rows / 2));
    const c = serverFrame(serverIndexOf(whole), RULES.ssp, t, 60);
    assert.deepEqual(c.workers, a.workers);
    assert.equal(c.min, a.min);
    assert.ok(roundsOf(whole).calls[0].iteration > 5);
  },
);

test("two models on one server: a version, a bound and a slowest for each", () => {
  const rule = { ...RULES.ssp, models: 2 };
  const one = served({ workers: 2, shares: [1] });
  const rows = one
    .flatMap((r) =>
      [0, 1].map((m) => {
        // workers 1 and 3 train the first model, 2 and 4 the second, which lags
        const rank = (x) => (x <= 0 ? x : 1 + 2 * (x - 1) + m);
        return {
          ...r,
          rank: rank(r.rank),
          peer: rank(r.peer),
          start: r.start * (1 + m),
          end: r.end * (1 + m),
        };
      }),
    )
    .sort((a, b) => a.end - b.end);
  const table = tableOf(rows);
  const index = serverIndexOf(table);
  const alone = serverIndexOf(tableOf(one));
  for (const t of moments(table, 100)) {
    const frame = serverFrame(index, { ...rule, servers: 1 }, t, 24);
    [0, 1].forEach((m) => {
      const own = serverFrame(alone, { ...RULES.ssp, servers: 1 }, t / (1 + m), 24);
      assert.equal(frame.shards[0].versions[m], own.shards[0].version);
      assert.deepEqual(
        frame.workers
          .filter((_, i) => i % 2 === m)
          .map((w) => [w.iteration, w.held, w.behind, w.limit, w.doing]),
        own.workers.map((w) => [w.iteration, w.held, w.behind, w.limit, w.doing]),
      );
    });
  }
});

test(
  "a rank that pulls and nothing else serves nobody: examples are pulled too, from servers " +
    "of data",
  () => {
    const pulls = [0, 1, 2].map((i) =>
      row(1, "pull", i * MS, (i + 0.5) * MS, {
        peer: 0,
        iteration: i,
        nbytes: 4096,
        name: "examples",
      }),
    );
    assert.equal(roundsOf(tableOf(pulls)), null);
    const clock = row(1, "clock", 4 * MS, 4 * MS, { iteration: 4 });
    assert.notEqual(
      roundsOf(tableOf([...pulls, clock, { ...pulls[0], start: 5 * MS, end: 6 * MS }])),
      null,
      "with a clock they are of parameters",
    );
  },
);

// Replicas that mix, written out as their ranks would record it: real vectors that really mix, with
// the sketches of them.
import { receive, nothing } from "../../assets/engine/page_state.js";
import { mixingsOf } from "../../assets/scenes/peers/call_source.js";
import { CONTROL, RUN, batch, row } from "./rows.js";

const MS = 1e6;
const SKETCH = 8;

/** Small, good enough, and the same every time. */
export const random = (a) => () => {
  a = (a + 0x6d2b79f5) | 0;
  let t = Math.imul(a ^ (a >>> 15), 1 | a);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
};
const normal = (u) => Math.sqrt(-2 * Math.log(1 - u())) * Math.cos(2 * Math.PI * u());

/** Who mixes with whom in a ring, a third each; n = 2: a half. */
export function ringPeers(n, more = {}) {
  const edges = [];
  const w = n === 2 ? 1 / 2 : 1 / 3;
  for (let a = 0; a < n; a++)
    for (const b of new Set([(a + 1) % n, (a + n - 1) % n])) edges.push([a, b, w]);
  return {
    kind: "ring",
    edges,
    every: 1,
    first: 0,
    synchronous: true,
    rate: n === 2 ? 0 : (1 + 2 * Math.cos((2 * Math.PI) / n)) / 3,
    words: "All mix with their neighbours every iteration.",
    ...more,
  };
}
/** All take their mean now and then. */
export function allPeers(n, every = 4, first = every - 1) {
  const edges = Array.from({ length: n * n }, (_, i) => [Math.floor(i / n), i % n, 1 / n]).filter(
    ([a, b]) => a !== b,
  );
  return {
    kind: "all",
    edges,
    every,
    first,
    synchronous: true,
    rate: null,
    words: `All take the mean of their parameters every ${every} iterations.`,
  };
}

/**
 * Rows of n ranks that each follow gradients of their own (`drift` long) and mix as `peers` says:
 * over edges with messages, or all with an averaging. `lag(rank, iteration)`: ms that an iteration
 * takes; `lost`: {rank, iteration} ends before that. Also the parameters that each rank had after
 * each iteration.
 */
export function mixed({
  n = 4,
  peers = ringPeers(n),
  iterations = 12,
  drift = 0.1,
  apart = 1,
  size = 64,
  bytes = 4_000,
  lag = (r, k, u) => 8 + 4 * u() + r,
  lost = null,
  seed = 5,
} = {}) {
  const u = random(seed);
  const rows = [];
  const seqs = new Map();
  const ops = new Map();
  const projections = Array.from({ length: SKETCH }, () =>
    Array.from({ length: size }, () => normal(u) / Math.sqrt(SKETCH)),
  );
  const put = (rank, lane, kind, start, end, more = {}) => {
    const name = `${rank} ${lane}`;
    seqs.set(name, (seqs.get(name) ?? -1) + 1);
    rows.push(
      row(rank, kind, Math.round(start), Math.round(end), {
        lane,
        seq: seqs.get(name),
        op: -1,
        collective: "",
        algorithm: "",
        group: "",
        ...more,
      }),
    );
  };
  const op = (a, b) => (
    ops.set(`${a}>${b}`, (ops.get(`${a}>${b}`) ?? -1) + 1),
    ops.get(`${a}>${b}`)
  );
  const all = peers.kind === "all";
  let x = Array.from({ length: n }, () => Array.from({ length: size }, () => apart * normal(u)));
  const free = Array(n).fill(0);
  const history = [];
  for (let k = 0; k < iterations; k++) {
    const alive = Array.from({ length: n }, (_, r) => r).filter(
      (r) => !(lost && r === lost.rank && k >= lost.iteration),
    );
    const arrive = new Map();
    if (lost && k === lost.iteration)
      put(alive[0], "compute", "detect", Math.max(...free), Math.max(...free), {
        name: "lost",
        peer: lost.rank,
      });
    for (const r of alive) {
      const start = free[r];
      const took = lag(r, k, u) * MS;
      put(r, "compute", "forward", start, start + took / 3, { iteration: k });
      put(r, "compute", "backward", start + took / 3, start + took, { iteration: k });
      free[r] = start + took;
      x[r] = x[r].map((v) => v + drift * normal(u));
    }
    if (all && k >= peers.first && (k - peers.first) % peers.every === 0) {
      const call = {
        op: (k - peers.first) / peers.every,
        collective: "all_reduce",
        algorithm: "ring",
        group: "default",
        iteration: k,
      };
      const ready = alive.map((r) => free[r]);
      const begin = Math.max(...ready);
      alive.forEach((r, i) => {
        const to = alive[(i + 1) % alive.length];
        const from = alive[(i + alive.length - 1) % alive.length];
        if (begin > ready[i])
          put(r, "comm", "wait", ready[i], begin, {
            ...call,
            peer: from,
            step: 0,
            chunk: i,
            slot: 0,
          });
        put(r, "comm", "send", begin, begin + 2 * MS, {
          ...call,
          peer: to,
          step: 0,
          chunk: i,
          slot: 0,
          nbytes: bytes / n,
        });
        put(r, "comm", "recv", begin + 2 * MS, begin + 3 * MS, {
          ...call,
          peer: from,
          step: 0,
          chunk: alive.indexOf(from),
          slot: 0,
          nbytes: bytes / n,
        });
        put(r, "comm", "collective", ready[i], begin + 3 * MS, {
          ...call,
          nbytes: bytes,
          name: `average ${1 + call.op}`,
        });
        free[r] = begin + 3 * MS;
      });
      const mean = x[0].map((_, j) => alive.reduce((sum, r) => sum + x[r][j], 0) / alive.length);
      x = x.map((old, r) => (alive.includes(r) ? [...mean] : old));
    } else if (!all && (k - peers.first) % peers.every === 0) {
      const links = peers.edges.filter(([a, b]) => alive.includes(a) && alive.includes(b));
      for (const [a, b] of links) {
        const number = op(a, b);
        const start = free[a];
        const end = start + 3 * MS;
        const more = {
          op: number,
          collective: "p2p",
          group: "default",
          iteration: k,
          step: 0,
          chunk: 0,
          name: "parameters",
        };
        for (const slot of [0, 1])
          put(a, "send", "send", start + slot * 1.2 * MS, start + (slot + 1) * 1.2 * MS, {
            ...more,
            peer: b,
            slot,
            nbytes: bytes / 2,
          });
        arrive.set(`${a}>${b}`, { end, more });
      }
      const old = x;
      for (const b of alive) {
        const mine = links.filter(([, to]) => to === b);
        const came = mine.map(([a]) => arrive.get(`${a}>${b}`));
        mine.forEach(([a], i) => {
          const { end, more } = came[i];
          const at = Math.max(end, free[b]);
          if (end > free[b])
            put(b, "recv", "wait", free[b], end, { ...more, peer: a, slot: 0, name: "" });
          for (const slot of [0, 1])
            put(b, "recv", "recv", at + slot * 0.1 * MS, at + (slot + 1) * 0.1 * MS, {
              ...more,
              peer: a,
              slot,
              nbytes: bytes / 2,
            });
        });
        const ready = Math.max(free[b], ...came.map((c) => c.end)) + 0.3 * MS;
        put(b, "compute", "optimizer", ready, ready + 0.5 * MS, { name: "mix", iteration: k });
        const keep = 1 - mine.reduce((sum, [, , w]) => sum + w, 0);
        x = x.map((v, r) =>
          r === b
            ? v.map(
                (value, j) => keep * value + mine.reduce((sum, [a, , w]) => sum + w * old[a][j], 0),
              )
            : v,
        );
        arrive.set(b, ready + 0.5 * MS);
      }
      for (const b of alive) free[b] = arrive.get(b);
    }
    for (const r of alive)
      projections.forEach((p, j) =>
        put(r, "compute", "metric", free[r], free[r], {
          name: "sketch",
          chunk: j,
          iteration: k,
          value: p.reduce((sum, v, i) => sum + v * x[r][i], 0),
        }),
      );
    history.push(x.map((v) => [...v]));
  }
  rows.sort(
    (a, b) => a.rank - b.rank || (a.lane < b.lane ? -1 : a.lane > b.lane ? 1 : a.seq - b.seq),
  );
  return { rows, history, projections };
}

/** What a page knows of these rows; in messages of `piece` rows, as they come live. */
export function knownFrom(
  n,
  rows,
  peers,
  { iterations = 12, piece = rows.length, state = "finished" } = {},
) {
  let known = nothing();
  const run = {
    ...RUN,
    ranks: n,
    iterations,
    peers,
    theory: { "all_reduce/ring": { steps: 2 * (n - 1), share: (2 * (n - 1)) / n } },
  };
  const all = piece < rows.length ? [...rows].sort((a, b) => a.end - b.end) : rows;
  for (let i = 0, seq = 1; i < all.length; i += piece) {
    const [message, bytes] = batch(all.slice(i, i + piece), {
      seq: seq++,
      run,
      state,
      control: CONTROL,
    });
    known = receive(known, message, bytes, 0);
    if (piece < rows.length) mixingsOf(known);
  }
  return known;
}

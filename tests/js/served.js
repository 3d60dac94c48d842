// A parameter server's run written out, as its ranks would record it: workers under a consistency
// rule, simulated event by event.
import { row } from "./rows.js";

export const MS = 1e6;
const GRANT = 0.05 * MS; // a grant's way

/** Small, good enough, and the same every time. */
const random = (a) => () => {
  a = (a + 0x6d2b79f5) | 0;
  let t = Math.imul(a ^ (a >>> 15), 1 | a);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
};

/**
 * Rows of `workers` workers and one server a share. Ranks 0 .. servers-1 serve. `compute(worker,
 * iteration, chance)` is in ms; `rule` bsp | ssp | asp | dssp; `dropped`: staleness above which a
 * gradient is dropped; `lost`: {worker, at} (ms): that worker ends then, and the servers notice.
 */
export function served({
  workers = 4,
  shares = [0.667, 0.333],
  rule = "ssp",
  s = 3,
  slack = 0,
  iterations = 24,
  compute = (w, c, u) => [20, 22, 24, 40][w % 4] * (0.9 + 0.2 * u()) * (u() < 0.1 ? 4 : 1),
  apply = 3,
  wire = 5,
  bytes = 400_000,
  dropped = Infinity,
  lost = null,
  seed = 11,
} = {}) {
  const S = shares.length;
  const u = random(seed);
  const rows = [];
  const seq = new Map();
  const queue = [];
  const free = Array(S).fill(0);
  const version = Array(S).fill(0);
  const clocks = Array.from({ length: S }, () => Array(workers).fill(0));
  const kept = Array.from({ length: S }, () => []);
  const held = Array.from({ length: workers }, () => Array(S).fill(0));
  const granted = new Map();
  const limit = Array.from({ length: S }, () => Array(workers).fill(-1));
  const parked = Array.from({ length: S }, () => []);
  const gone = new Set();
  const ops = new Map();
  const later = (at, run) => queue.push({ at, run, n: queue.length });
  const op = (a, b) => (
    ops.set(`${a}>${b}`, (ops.get(`${a}>${b}`) ?? -1) + 1),
    ops.get(`${a}>${b}`)
  );
  const put = (rank, lane, kind, start, end, more = {}) => {
    const name = `${rank} ${lane}`;
    seq.set(name, (seq.get(name) ?? 0) + 1);
    rows.push(
      row(rank, kind, Math.round(start), Math.round(end), {
        lane,
        seq: seq.get(name),
        op: -1,
        collective: "",
        algorithm: "",
        group: "",
        ...more,
      }),
    );
  };
  const p2p = (number) => ({ op: number, collective: "p2p", group: "default" });
  const may = (k, w, c) => {
    const alive = clocks[k].filter((_, i) => !gone.has(i));
    const ahead = c - Math.min(...alive);
    return rule === "asp" || ahead <= (rule === "bsp" ? 0 : s) || c <= limit[k][w];
  };
  const ask = (k, w, c, at) =>
    may(k, w, c) ? later(at + GRANT, (now) => grant(k, w, c, now)) : parked[k].push([w, c]);
  const grant = (k, w, c, at) => {
    if (gone.has(w) || c >= iterations) return;
    const n = op(k, S + w);
    const v = version[k];
    const end = at + wire * MS * shares[k];
    const take = (now) => {
      held[w][k] = v;
      put(S + w, "compute", "pull", at, now, {
        peer: k,
        version: v,
        nbytes: Math.round(bytes * shares[k]),
        iteration: c,
      });
      const here = granted.get(`${w}/${c}`);
      here.pulled += 1;
      if (here.pulled === S) forward(w, c, now);
    };
    const here = granted.get(`${w}/${c}`) ?? { n: 0, pulled: 0 };
    granted.set(`${w}/${c}`, here);
    here.n += 1;
    if (here.n === S)
      put(S + w, "compute", "clock", at, at, { iteration: c, value: c, version: version[0] });
    put(k, "send", "send", at + 0.01 * MS, end - 0.02 * MS, {
      ...p2p(n),
      peer: S + w,
      step: 0,
      chunk: 0,
      slot: 0,
      nbytes: Math.round(bytes * shares[k]),
    });
    later(end, take);
  };
  const forward = (w, c, at) =>
    later(at + compute(w, c, u) * MS, (now) => {
      if (gone.has(w)) return;
      put(S + w, "compute", "forward", at, at + (now - at) / 3, { iteration: c });
      put(S + w, "compute", "backward", at + (now - at) / 3, now, { iteration: c });
      for (let k = 0; k < S; k++) {
        const n = op(S + w, k);
        const left = now + 2 * wire * MS * shares[k] - 0.1 * MS;
        const arrive = left + 0.1 * MS;
        const on = held[w][k];
        put(S + w, "compute", "push", now, left, {
          peer: k,
          version: on,
          nbytes: Math.round(bytes * shares[k]),
          iteration: c,
        });
        put(S + w, "send", "send", now, left, {
          ...p2p(n),
          peer: k,
          step: 0,
          chunk: 0,
          slot: 0,
          nbytes: Math.round(bytes * shares[k]),
        });
        later(arrive, (there) => {
          put(k, "recv", "recv", there - 0.1 * MS, there, {
            ...p2p(n),
            peer: S + w,
            step: 0,
            chunk: 0,
            slot: 0,
            nbytes: Math.round(bytes * shares[k]),
          });
          later(Math.max(there, free[k]), (taken) => take(k, w, c, on, taken));
        });
      }
    });
  const take = (k, w, c, on, at) => {
    const start = Math.max(at, free[k]);
    const end = start + apply * MS * shares[k];
    if (gone.has(w)) return;
    put(k, "server", "metric", start, start, {
      name: "queue",
      value: 0,
      peer: S + w,
      iteration: c,
    });
    if (rule === "bsp") {
      kept[k].push({ w, c, on });
      if (kept[k].length < workers - gone.size) return;
      const all = kept[k].splice(0);
      free[k] = end;
      later(end, (now) => {
        version[k] += 1;
        all.forEach((p, i) =>
          put(k, "server", "apply", i ? now : start, now, {
            peer: S + p.w,
            iteration: p.c,
            version: version[k],
            value: version[k] - 1 - p.on,
          }),
        );
        for (const p of all) clocks[k][p.w] = p.c + 1;
        for (const p of all) if (p.c + 1 < iterations) ask(k, p.w, p.c + 1, now);
      });
      return;
    }
    free[k] = end;
    later(end, (now) => {
      const stale = version[k] - on;
      if (stale > dropped)
        put(k, "server", "metric", now, now, {
          name: "dropped",
          value: 16,
          peer: S + w,
          iteration: c,
          version: version[k],
        });
      else
        put(k, "server", "apply", start, now, {
          peer: S + w,
          iteration: c,
          version: (version[k] += 1),
          value: stale,
        });
      clocks[k][w] = c + 1;
      const lead = c + 1 - Math.min(...clocks[k].filter((_, i) => !gone.has(i)));
      if (rule === "dssp" && lead > s && c + 1 > limit[k][w] && slack) {
        limit[k][w] = c + Math.min(slack, s + slack - lead + 1);
        put(k, "server", "metric", now, now, {
          name: "slack",
          value: limit[k][w] - c,
          peer: S + w,
          iteration: c,
        });
      }
      for (const [other, next] of parked[k].splice(0)) ask(k, other, next, now);
      if (c + 1 < iterations) ask(k, w, c + 1, now);
    });
  };
  for (let k = 0; k < S; k++)
    for (let w = 0; w < workers; w++) later(0.1 * MS * w, (at) => grant(k, w, 0, at + GRANT));
  if (lost)
    later(lost.at * MS, (at) => {
      gone.add(lost.worker);
      for (let k = 0; k < S; k++) {
        put(k, "server", "detect", at, at, { name: "lost", peer: S + lost.worker });
        for (const [other, next] of parked[k].splice(0)) ask(k, other, next, at);
      }
    });
  while (queue.length) {
    let first = 0;
    for (let i = 1; i < queue.length; i++)
      if (
        queue[i].at < queue[first].at ||
        (queue[i].at === queue[first].at && queue[i].n < queue[first].n)
      )
        first = i;
    const [{ at, run }] = queue.splice(first, 1);
    run(at);
  }
  return rows;
}

/** What the page is told of the rule. */
export const RULES = {
  bsp: {
    servers: 2,
    models: 1,
    consistency: "bsp",
    low: 0,
    high: 0,
    together: true,
    waits: true,
    drop_above: null,
    words: "",
  },
  ssp: {
    servers: 2,
    models: 1,
    consistency: "ssp",
    low: 3,
    high: 3,
    together: false,
    waits: true,
    drop_above: null,
    words: "",
  },
  asp: {
    servers: 2,
    models: 1,
    consistency: "asp",
    low: null,
    high: null,
    together: false,
    waits: false,
    drop_above: null,
    words: "",
  },
  dssp: {
    servers: 2,
    models: 1,
    consistency: "dssp",
    low: 3,
    high: 8,
    together: false,
    waits: true,
    drop_above: null,
    words: "",
  },
};

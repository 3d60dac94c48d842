// A run written out, as ranks would record it: data parallel training with an all-reduce that
// starts when all have come.
import { row } from "./rows.js";

export const MS = 1e6;
const whole = (x) => Math.round(x);

/**
 * Rows of `iterations` iterations of `ranks` ranks. `compute(rank, iteration)` tells how many times
 * as long that rank computes, `queue(rank, iteration)` how many ms of its backward it waited for a
 * core; `overlap`: the all-reduce has a lane of its own and begins in mid-backward, as DDP's does.
 */
export function trained({
  ranks = 4,
  iterations = 10,
  compute = () => 1,
  queue = () => 0,
  overlap = false,
  measured = true,
  cores = true,
  chunks = true,
} = {}) {
  const rows = [];
  const seq = new Map();
  const put = (rank, lane, kind, start, end, more = {}) => {
    const name = `${rank} ${lane}`;
    seq.set(name, (seq.get(name) ?? 0) + 1);
    rows.push(row(rank, kind, whole(start), whole(end), { lane, seq: seq.get(name), ...more }));
  };
  let begin = Array.from({ length: ranks }, (_, r) => r * 1000);
  for (let i = 0; i < iterations; i++) {
    const at = { iteration: i, op: -1, collective: "", algorithm: "", group: "" };
    const ends = [];
    const came = [];
    const value = (ms) => ({ value: measured ? ms * MS : NaN });
    for (let r = 0; r < ranks; r++) {
      const k = compute(r, i);
      const q = queue(r, i);
      const load = begin[r] + 0.1 * MS;
      const forward = load + 10 * k * MS;
      const half = forward + 10 * k * MS;
      const backward = half + 10 * k * MS + q * MS;
      put(r, "compute", "load", begin[r], load, { ...at, ...value(0) });
      put(r, "compute", "forward", load, forward, { ...at, ...value(0) });
      if (overlap)
        put(r, "compute", "metric", half, half, { ...at, name: "bucket full", value: 0 });
      if (overlap)
        put(r, "compute", "metric", backward - 1000, backward - 1000, {
          ...at,
          name: "bucket full",
          value: 1,
        });
      put(r, "compute", "backward", forward, backward, { ...at, ...value(q) });
      came.push(overlap ? [half, backward] : [backward]);
      ends.push(backward);
    }
    let free = 0;
    let last = 0;
    const buckets = overlap ? 2 : 1;
    for (let b = 0; b < buckets; b++) {
      const all = Math.max(free, ...came.map((c) => c[b]));
      const hop = 0.4 * MS;
      const context = {
        op: buckets * i + b,
        iteration: i,
        collective: "all_reduce",
        algorithm: "ring",
        group: "default",
      };
      for (let r = 0; r < ranks; r++) {
        const start = Math.max(came[r][b], free);
        const left = (r + ranks - 1) % ranks;
        const right = (r + 1) % ranks;
        let t = all;
        if (all > start)
          put(r, "comm", "wait", start, all, { ...context, peer: left, step: 0, chunk: r });
        for (let s = 0; chunks && s < 2 * (ranks - 1); s++, t += hop) {
          put(r, "comm", "recv", t, t + hop / 2, {
            ...context,
            peer: left,
            step: s,
            chunk: (r + s) % ranks,
            slot: 0,
            nbytes: 4000,
            name: "fused",
          });
          put(r, "comm", "send", t, t + hop, {
            ...context,
            peer: right,
            step: s,
            chunk: (r + s + 1) % ranks,
            slot: 0,
            nbytes: 4000,
          });
        }
        if (!chunks) t += 2.4 * MS;
        put(r, "comm", "collective", start, t + 2000, {
          ...context,
          nbytes: 16000,
          name: overlap ? `bucket ${b}` : "0.weight",
        });
        ends[r] = Math.max(ends[r], t + 2000);
        last = t + 2000;
      }
      free = last;
    }
    for (let r = 0; r < ranks; r++) {
      const done = ends[r] + 1 * MS;
      put(r, "compute", "optimizer", ends[r], done, { ...at, ...value(0) });
      if (cores)
        put(r, "compute", "metric", done + 1000, done + 1000, {
          ...at,
          name: "runqueue",
          value: queue(r, i) * MS,
        });
      begin[r] = done + 2000;
    }
  }
  return rows;
}

/**
 * The order in which a page hears of rows: by time in pieces of `tick`, lane after lane in each.
 */
export const heard = (rows, tick = 25 * MS) =>
  rows
    .map((r, k) => ({ r, k, at: Math.floor(r.end / tick) }))
    .sort(
      (a, b) =>
        a.at - b.at ||
        `${a.r.rank} ${a.r.lane}`.localeCompare(`${b.r.rank} ${b.r.lane}`) ||
        a.k - b.k,
    )
    .map(({ r }) => r);

// A pipeline's run written out, as its ranks would record it: simulated from a schedule's rows, so
// that what is true of it is known.
import { actionOf, needsOf } from "../../assets/scenes/pipeline/follow.js";
import { row } from "./rows.js";

export const MS = 1e6;

/** Small, good enough, and the same every time. */
const random = (a) => () => {
  a = (a + 0x6d2b79f5) | 0;
  let t = Math.imul(a ^ (a >>> 15), 1 | a);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
};
const range = (n) => Array.from({ length: n }, (_, i) => i);

/** Rows of actions, one a rank. */
export const SCHEDULES = {
  gpipe: (K, M) =>
    range(K).map((s) => [...range(M).map((m) => `${s}F${m}`), ...range(M).map((m) => `${s}B${m}`)]),
  "1f1b": (K, M) =>
    range(K).map((s) => {
      const warm = Math.min(M, K - s - 1);
      const out = range(warm).map((m) => `${s}F${m}`);
      for (let f = warm, b = 0; b < M; b++) {
        if (f < M) out.push(`${s}F${f++}`);
        out.push(`${s}B${b}`);
      }
      return out;
    }),
  /** As 1F1B, the weight gradients where they fit: after the drain has begun. */
  split: (K, M) =>
    SCHEDULES["1f1b"](K, M).map((own, s) =>
      own
        .flatMap((a) =>
          a.includes("B")
            ? [
                a.replace("B", "I"),
                ...(Number(a.split("B")[1]) >= s ? [`${s}W${Number(a.split("B")[1]) - s}`] : []),
              ]
            : [a],
        )
        .concat(range(Math.min(s, M)).map((i) => `${s}W${Math.max(0, M - s) + i}`)),
    ),
  /** Two stages a rank, stage s on rank s % K: all forwards, then all backwards. */
  looped: (K, M) =>
    range(K).map((r) => [
      ...range(2).flatMap((c) => range(M).map((m) => `${r + c * K}F${m}`)),
      ...[1, 0].flatMap((c) => range(M).map((m) => `${r + c * K}B${m}`)),
    ]),
};

/**
 * The rows of a run, what the page is told of it (`facts`), and the truth (`passes`: of each
 * iteration its tasks with all that made them start). `time(kind, stage)`: ms; `wire`: ms of a hop;
 * `noise`: share; `freeze`: {rank, at, seconds} in ms of the run; `replicas` of it all.
 */
export function piped({
  schedule = "1f1b",
  K = 4,
  M = 8,
  iterations = 3,
  time = (kind) => ({ F: 10, B: 20, I: 10, W: 10 })[kind],
  pads = null,
  wire = 2.5,
  noise = 0,
  replicas = 1,
  freeze = null,
  seed = 5,
  rows: given = null,
  stages = null,
  peaks = null,
  cut = Infinity,
  version = (iteration) => iteration,
} = {}) {
  const plan = given ?? SCHEDULES[schedule](K, M);
  const S = stages ?? 1 + Math.max(...plan.flat().map((a) => actionOf(a).stage));
  const home = range(S).map((s) =>
    plan.findIndex((own) => own.some((a) => actionOf(a).stage === s)),
  );
  const u = random(seed);
  const seq = new Map();
  const rows = [];
  const passes = [];
  const ops = new Map();
  const put = (rank, lane, kind, start, end, more) => {
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
  const stands = (rank, start, took) =>
    freeze &&
    freeze.rank === rank &&
    start < freeze.at * MS + freeze.seconds * 1e9 &&
    start + took > freeze.at * MS
      ? took + freeze.at * MS + freeze.seconds * 1e9 - Math.max(start, freeze.at * MS)
      : took;
  for (let d = 0; d < replicas; d++) {
    let begin = 0.2 * MS * d;
    for (let i = 0; i < iterations; i++) {
      const done = new Map();
      const next = plan.map(() => 0);
      const free = plan.map(() => begin);
      const held = Array(S).fill(0);
      const tasks = [];
      for (let moved = true; moved; ) {
        moved = false;
        plan.forEach((own, place) => {
          for (; next[place] < own.length; next[place]++) {
            const a = actionOf(own[next[place]]);
            const needs = needsOf(a, S).map((ways) =>
              ways.map((way) => done.get(way)).find(Boolean),
            );
            const rank = d * K + place;
            if (needs.some((need) => !need)) return;
            const from = needs.find((need) => need.stage !== a.stage);
            const far = from && from.rank !== rank;
            const made = from ? from.end : begin;
            const arrive = far ? made + wire * MS : made;
            const start = Math.max(free[place], arrive, ...needs.map((need) => need.end));
            const took = stands(
              rank,
              start,
              time(a.kind, a.stage) * MS * (1 + noise * (2 * u() - 1)),
            );
            const end = start + took;
            const at = {
              iteration: i,
              microbatch: a.microbatch,
              stage: a.stage,
              version: version(i),
            };
            if (far) {
              const link = `${from.rank}>${rank}`;
              const op = ops.set(link, (ops.get(link) ?? -1) + 1).get(link);
              const p2p = {
                ...at,
                version: -1,
                op,
                collective: "p2p",
                group: "default",
                name: a.kind === "F" ? "activation" : "gradient",
                nbytes: 4096,
                step: 0,
                chunk: 0,
                slot: 0,
              };
              put(from.rank, "send", "send", made, arrive - 0.1 * MS, {
                ...p2p,
                peer: rank,
                stage: from.stage,
              });
              if (free[place] < arrive)
                put(rank, "recv", "wait", free[place], arrive - 0.2 * MS, {
                  ...p2p,
                  peer: from.rank,
                });
              put(rank, "recv", "recv", arrive - 0.2 * MS, arrive, { ...p2p, peer: from.rank });
            }
            put(
              rank,
              "compute",
              { F: "forward", B: "backward", I: "backward", W: "weight_grad" }[a.kind],
              start,
              end,
              { ...at, name: a.kind === "I" ? "input" : "" },
            );
            held[a.stage] += a.kind === "F" ? 1 : a.kind === "B" || a.kind === "W" ? -1 : 0;
            for (const [name, value] of [
              ["in flight", held[a.stage]],
              ["activations", 1000 * held[a.stage]],
            ])
              put(
                rank,
                "compute",
                "metric",
                a.kind === "F" ? start : end,
                a.kind === "F" ? start : end,
                { ...at, name, value },
              );
            const task = { ...a, rank, place, start, end, made, arrive, free: free[place] };
            done.set(own[next[place]], task);
            tasks.push(task);
            free[place] = end;
            moved = true;
          }
        });
      }
      if (next.some((n, place) => n < plan[place].length))
        throw new Error("the schedule waits for itself");
      passes.push({ iteration: i, replica: d, from: begin, to: Math.max(...free), tasks });
      const over = Math.max(...free);
      plan.forEach((_, place) => {
        for (const s of range(S).filter((stage) => home[stage] === place))
          put(d * K + place, "compute", "optimizer", free[place], free[place] + 1.5 * MS, {
            iteration: i,
            stage: s,
            version: i + 1,
          });
      });
      put(d * K + home[S - 1], "compute", "metric", over, over, {
        iteration: i,
        name: "loss",
        value: 2.3 / (1 + i),
        stage: S - 1,
      });
      begin = over + 4 * MS;
    }
  }
  if (replicas > 1)
    for (const { iteration, tasks } of passes.filter(({ replica }) => !replica))
      for (const place of range(K)) {
        const came = range(replicas).map((d) =>
          Math.max(
            ...passes
              .find((p) => p.iteration === iteration && p.replica === d)
              .tasks.filter((task) => task.place === place)
              .map(({ end }) => end),
          ),
        );
        came.forEach((start, d) =>
          put(
            d * K + place,
            `comm:replicas ${place}`,
            "collective",
            start,
            Math.max(...came) + MS,
            {
              iteration,
              stage: place,
              op: iteration,
              collective: "all_reduce",
              group: `replicas ${place}`,
              name: "weight",
              nbytes: 1000 * (place + 1),
            },
          ),
        );
      }
  if (freeze)
    put(freeze.rank, "compute", "fault", freeze.at * MS, freeze.at * MS, {
      name: "freeze",
      value: freeze.seconds,
    });
  rows.sort((a, b) => a.end - b.end);
  const walk = range(S).map((s) => {
    let n = 0;
    let most = 0;
    for (const a of plan[home[s]].map(actionOf))
      if (a.stage === s) most = Math.max(most, (n += a.kind === "F" ? 1 : a.kind === "I" ? 0 : -1));
    return most;
  });
  const facts = {
    schedule: given ? "own" : schedule,
    flush: true,
    ranks: K,
    replicas,
    stages: S,
    microbatches: M,
    rank_of: home,
    rows: plan,
    pads_ms: pads,
    bubble: null,
    peaks: peaks ?? walk,
    axes: [
      ["data", replicas],
      ["pipeline", K],
    ],
  };
  return { rows: rows.filter((r) => r.end <= cut * MS), facts, passes };
}

/**
 * PipeDream: no flush; microbatch n is iteration n // M, microbatch n % M; a stage's version grows
 * with each backward.
 */
export function unflushed({ K = 4, M = 4, iterations = 4, wire = 1 } = {}) {
  const all = M * iterations;
  const told = piped({ K, M: all, iterations: 1, wire, schedule: "1f1b" });
  const updates = Array(K).fill(0);
  const used = new Map();
  for (const r of told.rows
    .filter((x) => x.kind === "forward" || x.kind === "backward")
    .sort((a, b) => a.start - b.start)) {
    if (r.kind === "forward") used.set(`${r.stage} ${r.microbatch}`, updates[r.stage]);
    else updates[r.stage] += 1;
  }
  const rows = told.rows
    .filter((r) => r.kind !== "optimizer" && r.name !== "loss")
    .map((r) =>
      r.microbatch < 0
        ? r
        : {
            ...r,
            iteration: Math.floor(r.microbatch / M),
            microbatch: r.microbatch % M,
            version: used.get(`${r.stage} ${r.microbatch}`) ?? -1,
          },
    );
  return {
    rows,
    facts: { ...told.facts, schedule: "pipedream", flush: false, microbatches: M, rows: [] },
    used,
  };
}

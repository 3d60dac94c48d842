// Schedules of every operation as lists of messages, and their rows as ranks would record them,
// step after step: for tests without a run.
import { Record, US } from "./simulated.js";

const message = (step, from, to, chunk, adds = false, phase = "") => ({
  step,
  from,
  to,
  chunk,
  adds,
  phase,
});
const range = (n) => Array.from({ length: n }, (_, i) => i);
const rounds = (n) => Math.ceil(Math.log2(n) - 1e-9);

/** The way up a binomial tree: round k, child, parent. Round 0 first. */
const climb = (n) =>
  range(rounds(n)).flatMap((k) =>
    range(n)
      .filter((v) => v && (v & -v) === 1 << k)
      .map((v) => [k, v, v - (1 << k)]),
  );
const below = (v, n) => range(n).filter((w) => w === v || (w > v && w < v + (v & -v)));
const up = (n, root, first = 0) =>
  climb(n).map(([k, v, p]) =>
    message(first + k, (v + root) % n, (p + root) % n, 0, true, "reduce"),
  );
const down = (n, root, first = 0) =>
  climb(n)
    .reverse()
    .map(([k, v, p]) =>
      message(first + rounds(n) - 1 - k, (p + root) % n, (v + root) % n, 0, false, "broadcast"),
    );
/** The ranks that remain when the others have folded into a neighbour, and the folding. */
function folded(n) {
  const m = 2 ** Math.floor(Math.log2(n));
  const extra = n - m;
  const core = range(m).map((v) => (v < extra ? 2 * v + 1 : v + extra));
  return { m, core, fold: range(extra).map((v) => [2 * v, 2 * v + 1]) };
}
function doubling(n, between) {
  const { m, core, fold } = folded(n);
  const first = fold.length ? 1 : 0;
  const inner = between(m, core, first);
  const last = Math.max(0, ...inner.map((t) => t.step)) + 1;
  return [
    ...fold.flatMap(([a, b]) =>
      range(inner.parts ?? 1).map((c) => message(0, a, b, c, true, "fold")),
    ),
    ...inner,
    ...fold.flatMap(([a, b]) =>
      range(inner.parts ?? 1).map((c) => message(last, b, a, c, false, "unfold")),
    ),
  ];
}
const butterfly = (n) =>
  doubling(n, (m, core, first) =>
    range(Math.log2(m)).flatMap((k) =>
      range(m).map((v) => message(first + k, core[v], core[v ^ (1 << k)], 0, true, "exchange")),
    ),
  );
const rabenseifner = (n) =>
  doubling(n, (m, core, first) => {
    const lg = Math.log2(m);
    const halving = range(lg).flatMap((s) => {
      const size = m >> (s + 1); // what each gives away of what it has: the half of its partner
      return range(m).flatMap((v) =>
        range(size).map((i) =>
          message(
            first + s,
            core[v],
            core[v ^ size],
            Math.floor((v ^ size) / size) * size + i,
            true,
            "reduce_scatter",
          ),
        ),
      );
    });
    const gathering = range(lg).flatMap((k) =>
      range(m).flatMap((v) =>
        range(1 << k).map((i) =>
          message(
            first + lg + k,
            core[v],
            core[v ^ (1 << k)],
            ((v >> k) << k) + i,
            false,
            "all_gather",
          ),
        ),
      ),
    );
    return Object.assign([...halving, ...gathering], { parts: m });
  });

/**
 * operation/algorithm → (n, root) → messages; `parts`: chunks of the whole; rooted: it has a root.
 */
export const SCHEDULES = {
  "all_reduce/tree": { messages: (n) => [...up(n, 0), ...down(n, 0, rounds(n))] },
  "all_reduce/butterfly": { messages: butterfly },
  "all_reduce/rabenseifner": { messages: rabenseifner, parts: (n) => folded(n).m },
  "broadcast/tree": { messages: (n, root) => down(n, root), rooted: true },
  "broadcast/flat": {
    messages: (n, root) => range(n - 1).map((s) => message(s, root, (root + 1 + s) % n, 0)),
    rooted: true,
  },
  "reduce/tree": { messages: (n, root) => up(n, root), rooted: true },
  "reduce/flat": {
    messages: (n, root) => range(n - 1).map((s) => message(s, (root + 1 + s) % n, root, 0, true)),
    rooted: true,
  },
  "gather/flat": {
    messages: (n, root) =>
      range(n - 1).map((s) => message(s, (root + 1 + s) % n, root, (root + 1 + s) % n)),
    rooted: true,
    parts: (n) => n,
  },
  "gather/tree": {
    messages: (n, root) =>
      climb(n).flatMap(([k, v, p]) =>
        below(v, n).map((w) => message(k, (v + root) % n, (p + root) % n, (w + root) % n)),
      ),
    rooted: true,
    parts: (n) => n,
  },
  "scatter/flat": {
    messages: (n, root) =>
      range(n - 1).map((s) => message(s, root, (root + 1 + s) % n, (root + 1 + s) % n)),
    rooted: true,
    parts: (n) => n,
  },
  "scatter/tree": {
    messages: (n, root) =>
      climb(n)
        .reverse()
        .flatMap(([k, v, p]) =>
          below(v, n).map((w) =>
            message(rounds(n) - 1 - k, (p + root) % n, (v + root) % n, (w + root) % n),
          ),
        ),
    rooted: true,
    parts: (n) => n,
  },
  "all_gather/ring": {
    messages: (n) =>
      range(n - 1).flatMap((s) => range(n).map((r) => message(s, r, (r + 1) % n, (r - s + n) % n))),
    parts: (n) => n,
  },
  "reduce_scatter/ring": {
    messages: (n) =>
      range(n - 1).flatMap((s) =>
        range(n).map((r) => message(s, r, (r + 1) % n, (r - 1 - s + 2 * n) % n, true)),
      ),
    parts: (n) => n,
  },
  "all_to_all/pairwise": {
    messages: (n) =>
      range(n - 1).flatMap((s) =>
        range(n).map((r) => message(s, r, (r + 1 + s) % n, r * n + ((r + 1 + s) % n))),
      ),
    parts: (n) => n,
  },
  "barrier/dissemination": {
    messages: (n) =>
      range(rounds(n)).flatMap((s) => range(n).map((r) => message(s, r, (r + (1 << s)) % n, 0))),
    nbytes: 0,
  },
};

/** The rows of one call: in every step each rank sends, then receives. */
export function scheduleRows(
  name,
  n,
  {
    root = 0,
    hop = 300,
    nbytes = 240_000,
    came = Array(n).fill(0),
    op = 0,
    start = 0,
    ...context
  } = {},
) {
  const [collective, algorithm] = name.split("/");
  const { messages, parts, rooted, nbytes: none } = SCHEDULES[name];
  const size = none ?? nbytes / (parts?.(n) ?? 1);
  const record = new Record(n, came, { collective, algorithm, op, ...context });
  const all = messages(n, root);
  for (let step = 0; all.some((m) => m.step >= step); step++) {
    const now = all.filter((m) => m.step === step);
    const there = new Map();
    for (const m of now) {
      const from = record.ready[m.from];
      const end = from + (size ? hop : hop / 4) * US;
      record.put(m.from, "send", from, end, {
        step,
        chunk: m.chunk,
        slot: 0,
        peer: m.to,
        nbytes: size,
        phase: m.phase,
      });
      record.ready[m.from] = end;
      there.set(m, end);
    }
    for (const m of now) {
      const what = { step, chunk: m.chunk, slot: 0, peer: m.from, nbytes: size, phase: m.phase };
      const at = record.wait(m.to, there.get(m), what);
      record.put(m.to, "recv", at, at + 20 * US, { ...what, name: m.adds ? "fused" : "" });
      record.ready[m.to] = at + 20 * US;
    }
  }
  return record.done(none ?? nbytes).map((r) => ({
    ...r,
    start: r.start + start,
    end: r.end + start,
    peer: r.kind === "collective" && rooted ? root : r.peer,
  }));
}

export const NAMES = Object.keys(SCHEDULES);

export const rootsOf = (name, n) => (SCHEDULES[name].rooted ? [0, n - 1] : [0]);

// Calls as the engine records them, for tests without a run: a ring of relays, a star, everybody to
// everybody.
import { receive, nothing } from "../../assets/engine/page_state.js";
import { openCall } from "../../assets/engine/model.js";
import { CONTROL, RUN, batch, row } from "./rows.js";

export const US = 1000;
const THEORY = (n) => ({
  "all_reduce/ring": { steps: 2 * (n - 1), share: (2 * (n - 1)) / n },
  "all_reduce/naive": { steps: 2 * (n - 1), share: n - 1 },
  "all_reduce/one_shot": { steps: n - 1, share: n - 1 },
});

export class Record {
  constructor(n, came, context) {
    Object.assign(this, {
      n,
      context,
      rows: [],
      ready: came.map((t) => t * US),
      began: came.map((t) => t * US),
      seq: Array(n).fill(0),
    });
  }

  put(rank, kind, start, end, more) {
    this.rows.push(
      row(rank, kind, start, end, {
        lane: "comm",
        seq: this.seq[rank]++,
        ...this.context,
        ...more,
      }),
    );
  }

  /** Rank r waits until `there`, if it must; returns when it goes on. */
  wait(r, there, what) {
    if (there > this.ready[r]) this.put(r, "wait", this.ready[r], there, what);
    return Math.max(there, this.ready[r]);
  }

  done(nbytes) {
    for (let r = 0; r < this.n; r++)
      this.put(r, "collective", this.began[r], this.ready[r] + US, { nbytes, name: "gradients" });
    return this.rows
      .sort((a, b) => a.rank - b.rank || a.end - b.end || a.seq - b.seq)
      .map((r) => ({ ...r }));
  }
}

/**
 * A ring: what arrives is added and passed on in one go. `slow`: [from, how many times as slow];
 * `came`: when each rank joins in, µs.
 */
export function ringRows(
  n,
  {
    slow = [-1, 1],
    came = Array(n).fill(0),
    hop = 300,
    slots = 1,
    nbytes = 240_000,
    context = {},
    wire = (r) => (r === slow[0] ? slow[1] : 1),
  } = {},
) {
  const record = new Record(n, came, { algorithm: "ring", ...context });
  const last = 2 * (n - 1);
  const mod = (x) => ((x % n) + n) % n;
  const arrives = [];
  const size = nbytes / n / slots;
  const each = (f) => {
    for (let r = 0; r < n; r++) for (let slot = 0; slot < slots; slot++) f(r, slot);
  };
  for (let step = 0; step <= last; step++) {
    const left = {};
    each((r, slot) => {
      const phase = step < n ? "reduce_scatter" : "all_gather";
      const came = {
        step: step - 1,
        chunk: mod(r - step),
        slot,
        peer: mod(r - 1),
        nbytes: size,
        phase: step - 1 < n - 1 ? "reduce_scatter" : "all_gather",
      };
      const start = step
        ? record.wait(r, arrives[step - 1][`${mod(r - 1)} ${slot}`], came)
        : record.ready[r];
      const took = 20 * US;
      if (step)
        record.put(r, "recv", start, start + took, {
          ...came,
          name: step - 1 < n - 1 ? "fused" : "",
        });
      const end = step < last ? start + (hop * wire(r) * US) / slots : start + took;
      if (step < last)
        record.put(r, "send", start, end, {
          step,
          chunk: mod(r - step),
          slot,
          peer: mod(r + 1),
          nbytes: size,
          phase,
        });
      record.ready[r] = left[`${r} ${slot}`] = end;
    });
    arrives.push(left);
  }
  return record.done(nbytes);
}

/** A star: all send to rank 0, which adds and sends the sum back. */
export function starRows(n, { came = Array(n).fill(0), hop = 300, nbytes = 240_000 } = {}) {
  const record = new Record(n, came, { algorithm: "naive" });
  const there = Array(n).fill(0);
  const send = (r, to, step) => {
    const start = record.ready[r];
    record.put(r, "send", start, (record.ready[r] = start + hop * US), {
      step,
      chunk: 0,
      slot: 0,
      peer: to,
      nbytes,
      phase: step < n - 1 ? "reduce" : "broadcast",
    });
    return record.ready[r];
  };
  const take = (r, from, step, at, fused) => {
    const what = { step, chunk: 0, slot: 0, peer: from, nbytes };
    const start = record.wait(r, at, what);
    record.put(r, "recv", start, (record.ready[r] = start + 30 * US), {
      ...what,
      name: fused ? "fused" : "",
    });
  };
  for (let r = 1; r < n; r++) there[r] = send(r, 0, r - 1);
  for (let r = 1; r < n; r++) take(0, r, r - 1, there[r], true);
  for (let r = 1; r < n; r++) there[r] = send(0, r, n - 2 + r);
  for (let r = 1; r < n; r++) take(r, 0, n - 2 + r, there[r], false);
  return record.done(nbytes);
}

/** Everybody to everybody, then each adds in the order of ranks, its own part kept aside. */
export function allRows(n, { came = Array(n).fill(0), hop = 200, nbytes = 24_000 } = {}) {
  const record = new Record(n, came, { algorithm: "one_shot" });
  const there = {};
  for (let step = 0; step < n - 1; step++)
    for (let r = 0; r < n; r++) {
      const to = (r + 1 + step) % n;
      const start = record.ready[r];
      record.put(r, "send", start, (there[`${r}>${to}`] = record.ready[r] = start + hop * US), {
        step,
        chunk: 0,
        slot: 0,
        peer: to,
        nbytes,
        phase: "exchange",
      });
    }
  for (let r = 0; r < n; r++)
    for (let p = 0; p < n; p++) {
      const what = { step: (r - p - 1 + n) % n, chunk: 0, slot: 0, peer: p, nbytes };
      const start = p === r ? record.ready[r] : record.wait(r, there[`${p}>${r}`], what);
      if (p !== r)
        record.put(r, "recv", start, (record.ready[r] = start + 20 * US), {
          ...what,
          name: p ? "fused" : "",
        });
      else if (r)
        record.put(r, "reduce", start, (record.ready[r] = start + 20 * US), { ...what, step: -1 });
    }
  return record.done(nbytes);
}

/** What a page knows of a run of n ranks with these rows in it. */
export function knownOf(n, rows, { run = {}, control = {}, ...more } = {}) {
  const [message, buffers] = batch(rows, {
    run: { ...RUN, ranks: n, cores: 64, theory: THEORY(n), ...run },
    control: { ...CONTROL, ...control },
    now: null,
    state: "finished",
    ...more,
  });
  return receive(nothing(), message, buffers, 0);
}

/**
 * A look at the first call of these rows at a share of its time; its picture is `width` px wide.
 */
export function lookAt(n, rows, share, { width = 928, known = {}, ...more } = {}) {
  const page = knownOf(n, rows, known);
  const call = openCall(page.table, page.table.calls[0]);
  return {
    table: page.table,
    known: page,
    call,
    t: call.start + share * (call.end - call.start),
    live: false,
    held: true,
    ranks: n,
    ink: {},
    font: "sans-serif",
    width,
    ratio: 1,
    at: 0,
    choice: null,
    ...more,
  };
}

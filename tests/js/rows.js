// A small call, written out: chunk 0 goes 0 → 1 → 2 of three ranks; and how Python packs such rows.
export const row = (rank, kind, start, end, more = {}) =>
  ({ rank, kind, start, end, peer: -1, step: -1, chunk: -1, slot: -1, nbytes: -1, phase: "", name: "", lane: "comm", seq: 0, ...more });
export const hop = { chunk: 0, slot: 0, nbytes: 400, phase: "reduce_scatter" };
export const rows = [
  row(0, "send", 1000, 1400, { ...hop, peer: 1, step: 0 }),
  row(1, "wait", 1100, 1500, { ...hop, peer: 0, step: 0 }),
  row(1, "recv", 1500, 2000, { ...hop, peer: 0, step: 0, name: "fused" }),
  row(1, "send", 2000, 2200, { ...hop, peer: 2, step: 1 }),
  row(2, "recv", 2200, 3000, { ...hop, peer: 1, step: 1, name: "fused" }),
  ...[0, 1, 2].map((r) => row(r, "collective", 1000, [1500, 2300, 3000][r], { nbytes: 1200 })),
];
export const LAYOUT = [["start", "f8"], ["end", "f8"], ["nbytes", "f8"], ["step", "i4"], ["chunk", "i4"], ["slot", "i4"], ["seq", "i4"],
  ["rank", "i2"], ["peer", "i2"], ["kind", "u2"], ["phase", "u2"], ["name", "u2"], ["lane", "u2"]];

/** The bytes of some rows, as workbench/views packs them. */
export function packed(list) {
  const strings = [...new Set(["", ...list.flatMap((r) => [r.kind, r.phase, r.name, r.lane])])], parts = [];
  const set = { f8: "setFloat64", i4: "setInt32", i2: "setInt16", u2: "setUint16" };
  for (const [name, type] of LAYOUT) {
    const size = +type[1], view = new DataView(new ArrayBuffer(Math.ceil((size * list.length) / 8) * 8));
    list.forEach((r, i) => view[set[type]](i * size, typeof r[name] === "string" ? strings.indexOf(r[name]) : r[name], true));
    parts.push(new Uint8Array(view.buffer));
  }
  const bytes = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  parts.reduce((at, p) => (bytes.set(p, at), at + p.length), 0);
  return { strings, bytes };
}

export const head = (op, more = {}) => ({ generation: 0, group: "default", op, number: op + 1, collective: "all_reduce", algorithm: "ring",
  iteration: op, name: "", start: 1000, end: 3000, nbytes: 1200, ranks: 3, left_out: "", rows: [0, rows.length], ...more });

/** A batch with one call each of `ops`, which all have the same rows. */
export function batch(ops, more = {}) {
  const { strings, bytes } = packed(rows);
  const message = { type: "batch", run: { id: "a", ranks: 3, iterations: 200, title: "Data parallel", emulated: [], notes: [] }, seq: 1, now: 5000, state: "running",
    words: "", counters: { events: 9, dropped: 0, calls: 7, iteration: 6, loss: 0.25 },
    calls: ops.map((op) => head(op, { end: 3000 + op / 1000 })), layout: LAYOUT, strings, rows: rows.length, ...more };
  return [message, [bytes.buffer]];
}

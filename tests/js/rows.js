// Rows written out, and how Python packs such rows for the wire (workbench/views): for tests
// without a browser.
import { NUMBERS } from "../../assets/engine/columns.js";
import { Table } from "../../assets/engine/table.js";
import { openCall } from "../../assets/engine/model.js";

export const KINDS = (
  "forward backward weight_grad optimizer load collective send recv reduce copy wait push " +
  "pull apply clock " +
  "fault detect abort rebuild restore checkpoint metric memory"
).split(" ");
const CONTEXT = {
  op: 0,
  iteration: 0,
  generation: 0,
  microbatch: -1,
  stage: -1,
  version: -1,
  collective: "all_reduce",
  algorithm: "ring",
  group: "default",
};
export const row = (rank, kind, start, end, more = {}) => ({
  rank,
  kind,
  start,
  end,
  peer: -1,
  step: -1,
  chunk: -1,
  slot: -1,
  nbytes: -1,
  phase: "",
  name: "",
  value: NaN,
  lane: "comm",
  seq: 0,
  ...CONTEXT,
  ...more,
});
export const hop = { chunk: 0, slot: 0, nbytes: 400, phase: "reduce_scatter" };
/** A small call: chunk 0 goes 0 → 1 → 2 of three ranks. */
export const rows = [
  row(0, "send", 1000, 1400, { ...hop, peer: 1, step: 0 }),
  row(1, "wait", 1100, 1500, { ...hop, peer: 0, step: 0 }),
  row(1, "recv", 1500, 2000, { ...hop, peer: 0, step: 0, name: "fused" }),
  row(1, "send", 2000, 2200, { ...hop, peer: 2, step: 1 }),
  row(2, "recv", 2200, 3000, { ...hop, peer: 1, step: 1, name: "fused" }),
  ...[0, 1, 2].map((r) => row(r, "collective", 1000, [1500, 2300, 3000][r], { nbytes: 1200 })),
];
/** The same call again and again, `apart` ns after each other, an iteration each. */
export const calls = (n, apart = 10_000) =>
  Array.from({ length: n }, (_, op) =>
    rows.map((r) => ({
      ...r,
      op,
      iteration: op,
      start: r.start + op * apart,
      end: r.end + op * apart,
    })),
  ).flat();

export const LAYOUT = [
  ["start", "f8"],
  ["end", "f8"],
  ["nbytes", "f8"],
  ["value", "f8"],
  ["seq", "i4"],
  ["step", "i4"],
  ["chunk", "i4"],
  ["slot", "i4"],
  ["peer", "i2"],
  ["name", "u2"],
  ["phase", "u2"],
  ["kind", "u1"],
];
export const PASSAGE_LAYOUT = [
  ["op", "i4"],
  ["iteration", "i4"],
  ["generation", "i4"],
  ["microbatch", "i4"],
  ["stage", "i4"],
  ["version", "i4"],
  ["count", "u4"],
  ["rank", "i2"],
  ["lane", "u2"],
  ["collective", "u2"],
  ["algorithm", "u2"],
  ["group", "u2"],
];
const TEXTS = new Set(["name", "phase", "lane", "collective", "algorithm", "group"]);
const SHARED = ["rank", "lane", ...Object.keys(CONTEXT)]; // by the rows of a passage

/**
 * The header's part and the bytes of some rows; rows that follow each other and share their context
 * are one passage.
 */
export function packed(list, strings = [""]) {
  const numbers = new Map(strings.map((text, i) => [text, i]));
  const number = (text) => {
    if (!numbers.has(text)) numbers.set(text, strings.push(text) - 1);
    return numbers.get(text);
  };
  const share = (a, b) => {
    for (const k of SHARED) if (a[k] !== b[k]) return false;
    return true;
  };
  const passages = [];
  for (const r of list)
    passages.length && share(passages.at(-1), r)
      ? passages.at(-1).count++
      : passages.push({ ...r, count: 1 });
  const parts = [];
  const columns = (layout, items) =>
    layout.forEach(([name, type]) => {
      const size = +type[1];
      const column = new NUMBERS[type](Math.ceil((size * items.length) / 8) * (8 / size));
      if (name === "kind") items.forEach((r, i) => (column[i] = KINDS.indexOf(r.kind)));
      else if (TEXTS.has(name)) items.forEach((r, i) => (column[i] = number(r[name])));
      else items.forEach((r, i) => (column[i] = r[name]));
      parts.push(new Uint8Array(column.buffer));
    });
  columns(LAYOUT, list);
  columns(PASSAGE_LAYOUT, passages);
  const bytes = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  parts.reduce((at, p) => (bytes.set(p, at), at + p.length), 0);
  return {
    bytes,
    header: {
      rows: list.length,
      layout: LAYOUT,
      passages: passages.length,
      passage_layout: PASSAGE_LAYOUT,
      kinds: KINDS,
      strings: { first: 0, texts: [...strings] },
    },
  };
}

export const RUN = {
  id: "a",
  title: "Data parallel",
  strategy: "data_parallel",
  ranks: 3,
  iterations: 200,
  algorithm: "ring",
  cores: 8,
  readonly: false,
  emulated: [],
  notes: [],
  theory: {},
};
export const CONTROL = {
  held: false,
  standing: [],
  slow_motion: 1,
  slow: {},
  frozen: [],
  ended: {},
  how: {},
  pids: {},
  links: [],
  loads: [],
  corrupts: [],
};

/** A message with these rows. */
export function batch(list, more = {}) {
  const { header, bytes } = packed(list);
  const message = {
    type: "batch",
    seq: 1,
    run: RUN,
    state: "running",
    words: "",
    counters: {
      events: list.length,
      dropped: 0,
      per_second: 0,
      iteration: 0,
      loss: 0.25,
      accuracy: null,
      record_share: 0.008,
      older: 0,
    },
    control: CONTROL,
    origin: 0,
    now: 5000,
    lanes_now: [],
    ...header,
    ...more,
  };
  return [message, [bytes.buffer]];
}

/** The page's table with these rows in it. */
export function tableOf(list) {
  const table = new Table();
  const [message, [bytes]] = batch(list);
  table.take(message, bytes);
  return table;
}

/** The first call of these rows, opened. */
export function callOf(list = rows) {
  const table = tableOf(list);
  return openCall(table, table.calls[0]);
}

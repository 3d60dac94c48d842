// Messages between two ranks, as their rows and as a page that knows them: for tests without a run.
import { burstsOf } from "../../assets/engine/bursts_of_run.js";
import { receive, nothing } from "../../assets/engine/page_state.js";
import { INK } from "./canvas.js";
import { RUN, batch, row } from "./rows.js";

export const MS = 1e6;

export const P2P = {
  collective: "p2p",
  algorithm: "",
  iteration: -1,
  nbytes: 40,
  slot: 0,
  chunk: 0,
  step: 0,
};

/** A message, sent at `at` (ms) and there after `took`; `took` 0: never received. */
export function message(from, to, op, at, took = 0.1, more = {}) {
  const sent = row(from, "send", at * MS, at * MS + 0.02 * MS, {
    ...P2P,
    op,
    peer: to,
    lane: "send",
    ...more,
  });
  return took
    ? [
        sent,
        row(to, "recv", (at + took / 2) * MS, (at + took) * MS, {
          ...P2P,
          op,
          peer: from,
          lane: "recv",
          ...more,
        }),
      ]
    : [sent];
}

export const cell = (rank, number, from, over) => [
  row(rank, "metric", from * MS, from * MS, {
    op: -1,
    name: "cell",
    value: number,
    collective: "",
    lane: "compute",
  }),
  ...(over === undefined
    ? []
    : [
        row(rank, "metric", over * MS, over * MS, {
          op: -1,
          name: "cell over",
          value: number,
          collective: "",
          lane: "compute",
        }),
      ]),
];

export const knownOf = (rows, more = {}) =>
  receive(
    nothing(),
    ...batch(rows, {
      run: { ...RUN, ranks: 4, cells: true },
      state: "finished",
      now: null,
      ...more,
    }),
    0,
  );

export const bursts = (known) =>
  (burstsOf(known)?.calls ?? []).filter((call) => call.collective === "p2p");

export const lookOf = (known, call, t, more = {}) => ({
  table: known.table,
  known,
  call,
  current: call,
  t,
  live: false,
  held: false,
  ranks: 4,
  ink: INK,
  font: "sans-serif",
  width: 928,
  ratio: 1,
  at: 0,
  choice: null,
  ...more,
});

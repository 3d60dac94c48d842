// Rows of a run that loses a rank and goes on: iterations of 10 ms, a ring all-reduce in each. For
// tests without a browser.
import { RUN, row, tableOf } from "./rows.js";

export const MS = 1e6;
const own = { op: -1, collective: "", algorithm: "", group: "", lane: "compute" };
const span = (rank, kind, start, end, more = {}) =>
  row(rank, kind, start * MS, end * MS, { ...own, iteration: -1, ...more });

/** An iteration from `start` ms on: compute, a ring among the members, update. */
export function iteration(i, generation, start, members, op = i) {
  const at = { iteration: i, generation };
  return members.flatMap((rank, place) => {
    const end = start + 9 + rank / 10;
    const right = members[(place + 1) % members.length];
    const left = members[(place + members.length - 1) % members.length];
    const call = { ...at, op, collective: "all_reduce", algorithm: "ring", group: "default" };
    const chunk = (way, peer, from, to, of) =>
      span(rank, way, from, to, {
        ...call,
        lane: "comm",
        peer,
        step: 0,
        chunk: of,
        slot: 0,
        nbytes: 400,
        phase: "reduce_scatter",
      });
    return [
      span(rank, "forward", start, start + 4, at),
      span(rank, "metric", start + 4, start + 4, { ...at, name: "samples", value: 16 }),
      chunk("send", right, start + 4, start + 5, place),
      chunk("recv", left, start + 5, start + 6, (place + members.length - 1) % members.length),
      span(rank, "collective", start + 4, start + 6, { ...call, lane: "comm", nbytes: 400 }),
      span(rank, "optimizer", end - 1, end, at),
    ];
  });
}

/**
 * A run of `ranks` ranks that loses `victim` in iteration 2, at 21 ms. `fresh`: it is replaced.
 * `joins`: it was not lost, it comes anew. `aborts`: when the others break off, in ms. `upto`: what is
 * known, in ms.
 */
export function recovered({
  ranks = 3,
  victim = 1,
  fresh = false,
  joins = false,
  aborts = 26,
  upto = Infinity,
} = {}) {
  const all = Array.from({ length: ranks }, (_, rank) => rank);
  const left = all.filter((rank) => rank !== victim);
  const members = fresh ? all : left;
  const rows = [
    ...iteration(0, 0, 0, all),
    ...iteration(1, 0, 10, all),
    ...left.flatMap((rank) => [
      span(rank, "forward", 20, 24, { iteration: 2 }),
      span(rank, "metric", 24, 24, { iteration: 2, name: "samples", value: 16 }),
    ]),
    ...(joins ? [] : [span(victim, "fault", 21, 21, { name: "kill", iteration: 2 })]),
    span(-1, "detect", 25, 25, {
      name: joins ? "arrived" : "killed",
      peer: victim,
      lane: "driver",
    }),
    ...left.map((rank) => span(rank, "abort", aborts, aborts + 2 + rank / 10, { iteration: 2 })),
    ...members.map((rank) =>
      span(rank, "rebuild", rank === victim ? 35 : 29, 40 + rank / 10, {
        generation: 1,
        value: members.length,
      }),
    ),
    ...members.map((rank) =>
      span(rank, "restore", 41, 45 + rank / 10, {
        generation: 1,
        iteration: 2,
        name: rank === victim ? "received" : "kept",
        nbytes: rank === victim ? 1000 : -1,
      }),
    ),
    ...iteration(2, 1, 50, members, 0),
    ...iteration(3, 1, 60, members, 1),
  ].filter((one) => one.end <= upto * MS);
  rows.sort((a, b) => a.rank - b.rank || a.lane.localeCompare(b.lane) || a.end - b.end);
  const counts = {};
  for (const one of rows) one.seq = counts[`${one.rank}${one.lane}`] =
    (counts[`${one.rank}${one.lane}`] ?? -1) + 1; // prettier-ignore
  const fact = {
    generation: 1,
    lost: joins ? {} : { [victim]: "killed" },
    failed_in: 2,
    iteration: 2,
    members,
    fresh: fresh ? [victim] : [],
    state: "memory",
  };
  const known = {
    run: {
      ...RUN,
      ranks,
      recoveries: upto >= 29 ? [fact] : [],
      recovery: fresh ? "replace" : "shrink",
    },
    table: tableOf(rows),
    state: upto === Infinity ? "finished" : "running",
    words: "",
    failure: null,
    counters: null,
    control: null,
    lanesNow: [],
    clock: -Infinity,
    origin: 0,
  };
  return { known, rows, members };
}

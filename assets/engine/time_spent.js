// @ts-check
/**
 * What the time of ranks was spent on, by the classes of run.bottleneck(): the one place of the page
 * that tells waiting for a rank from waiting for bytes. As workbench/analysis/time_spent.py: at a
 * moment in which a rank waits, what counts is what its peer does, and whom that one waits for in
 * its turn, until one computes or a message is on its way; a rank that is frozen does neither. Pure
 * functions of the table.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {{rank: number, start: number, end: number, queue: number, queued: number}} Stretch
 *   a rank's time; queue: how long it waited for a core in it, NaN unknown; queued: while computing
 * @typedef {{compute: number, data: number, wait: number, link: number, core: number,
 *   moving: number}} Spent  ns; data: it read its samples, or waited until they could be read; moving: of the time in which it was blocked, what it waited for was on its way
 */
import { COMPUTES, placeInLane } from "./waits.js";

const MOST_SPENT_ROWS = 20_000; // of all ranks in a stretch
// states; 0 and more: it waits for that rank, RECEIVING: for what is on its way to it
const IS_FREE = -1;
const IS_COMPUTING = -2;
const IS_LOADING = -3;
const IS_MOVING = -4;
const IS_RECEIVING = -5;

/**
 * @param {Table} table
 * @param {Stretch[]} stretches  one of each rank, of the same iteration
 * @returns {Map<number, Spent> | null}  by rank; null: too much to look at
 */
export function timeSpent(table, stretches) {
  const from = Math.min(...stretches.map((one) => one.start));
  const to = Math.max(...stretches.map((one) => one.end));
  const frozen = frozenSpans(table, from, to);
  const spans = spansWithin(table, from, to);
  if (!spans || !stretches.length) return null;
  const times = [...new Set([...spans, ...frozen].flatMap(({ start, end }) => [start, end]))].sort(
    (a, b) => a - b,
  );
  const at = new Map(times.map((t, i) => [t, i]));
  const ranks = 1 + Math.max(...spans.map(({ rank, state }) => Math.max(rank, state)), 0);
  const free = () =>
    Array.from({ length: ranks }, () => new Int32Array(times.length).fill(IS_FREE));
  const [states, senders] = [free(), free()];
  const strength = (/** @type {number} */ state) =>
    state === IS_COMPUTING || state === IS_LOADING ? 2 : state === IS_MOVING ? 1 : 0;
  for (const { rank, start, end, state, sender = -1 } of spans.sort(
    (a, b) => strength(a.state) - strength(b.state),
  )) {
    states[rank].fill(state, at.get(start), at.get(end));
    senders[rank].fill(sender, at.get(start), at.get(end));
  }
  for (const { rank, start, end } of frozen)
    freeze(states, senders, rank, at.get(start) ?? 0, at.get(end) ?? 0);
  const inTheEnd = (/** @type {number} */ rank, /** @type {number} */ moment) => {
    let state = states[rank][moment];
    for (let hops = 0; state >= 0 && hops < ranks; hops++)
      state = states[state]?.[moment] ?? IS_FREE;
    return state;
  };
  return new Map(
    stretches.map(({ rank, start, end, queue, queued }) => {
      const sum = { compute: 0, data: 0, wait: 0, link: 0, core: 0, moving: 0 };
      for (let i = 0; i + 1 < times.length && times[i] < end; i++) {
        const ns = Math.min(end, times[i + 1]) - Math.max(start, times[i]);
        const own = states[rank]?.[i] ?? IS_FREE;
        if (ns <= 0 || own === IS_FREE) continue;
        const last = inTheEnd(rank, i);
        if (own === IS_COMPUTING) sum.compute += ns;
        else if (own === IS_LOADING) sum.data += ns;
        else if (last === IS_MOVING || last === IS_RECEIVING) sum.link += ns;
        else sum.wait += ns;
        if (own === IS_RECEIVING || (own >= 0 && last <= IS_MOVING)) sum.moving += ns;
      }
      return [rank, withoutCores(sum, queue || 0, Math.min(queued || 0, sum.compute + sum.data))];
    }),
  );
}

/**
 * Take what a rank waited for a core from the rest: it was woken late, or computed later.
 * @param {Spent} sum
 * @param {number} queue
 * @param {number} queued
 * @returns {Spent}
 */
function withoutCores({ compute, data, wait, link, moving }, queue, queued) {
  const beside = Math.min(wait + link, Math.max(0, queue - queued));
  const left = wait + link > 0 ? 1 - beside / (wait + link) : 0;
  const rest = { wait: left * wait, link: left * link, moving: left * moving };
  const computing = Math.max(0, compute - queued);
  return {
    ...rest,
    compute: computing,
    data: data + Math.min(0, compute - queued),
    core: queued + beside,
  };
}

/**
 * When ranks were frozen between two moments: for a fault's duration, or until they were let go on.
 * @param {Table} table
 * @param {number} from
 * @param {number} to
 */
function frozenSpans(table, from, to) {
  const spans = /** @type {{rank: number, start: number, end: number}[]} */ ([]);
  const marks = [...table.lanes.values()]
    .filter((lane) => lane.rank < 0) // the driver's: it says what was done to ranks
    .flatMap((lane) => [...lane.rows.subarray(0, lane.length)])
    .filter((row) => table.kind[row] === table.code.fault)
    .sort((a, b) => table.start[a] - table.start[b]);
  for (const row of marks) {
    const [rank, at, name] = [table.peer[row], table.start[row], table.text(table.name[row])];
    const lasts = table.value[row] * 1e9;
    if (name === "freeze")
      spans.push({ rank, start: at, end: Number.isFinite(lasts) ? at + lasts : Infinity });
    if (name === "thaw")
      for (const span of spans) if (span.rank === rank) span.end = Math.min(span.end, at);
  }
  return spans
    .map(({ rank, start, end }) => ({
      rank,
      start: Math.max(start, from),
      end: Math.min(end, to),
    }))
    .filter(({ start, end }) => end > start);
}

/**
 * Put in that a rank stands, and that what comes from it is not on its way.
 * @param {Int32Array[]} states
 * @param {Int32Array[]} senders  whose message a rank receives, -1 none
 * @param {number} rank
 * @param {number} first @param {number} last  moments, the last not included
 */
function freeze(states, senders, rank, first, last) {
  states[rank]?.fill(IS_FREE, first, last);
  states.forEach((state, other) => {
    for (let i = first; i < last; i++)
      if (senders[other][i] === rank && (state[i] === IS_MOVING || state[i] === IS_RECEIVING))
        state[i] = rank;
  });
}

/**
 * What ranks did between two moments, a wait in two: until its peer had sent, and after that.
 * @param {Table} table
 * @param {number} from
 * @param {number} to
 */
function spansWithin(table, from, to) {
  const spans =
    /** @type {{rank: number, start: number, end: number, state: number, sender?: number}[]} */ ([]);
  const sent = /** @type {Map<string, number>} */ (new Map());
  const waits = /** @type {{row: number, rank: number}[]} */ ([]);
  let seen = 0;
  for (const lane of table.lanes.values()) {
    for (let i = placeInLane(table, lane, from); i < lane.length; i++) {
      const row = lane.rows[i];
      if (table.start[row] >= to && table.kind[row] !== table.code.collective) break;
      if (++seen > MOST_SPENT_ROWS) return null;
      const kind = table.kindName(table.kind[row]);
      const span = { rank: lane.rank, start: table.start[row], end: table.end[row] };
      if (kind === "wait") waits.push({ row, rank: lane.rank });
      else if (COMPUTES.has(kind))
        spans.push({ ...span, state: kind === "load" ? IS_LOADING : IS_COMPUTING });
      else if (kind === "send") spans.push({ ...span, state: IS_MOVING });
      else if (kind === "recv") spans.push({ ...span, state: IS_MOVING, sender: table.peer[row] });
      if (kind === "send") {
        const key = sentMessageKey(table, row, lane.rank, table.peer[row]);
        sent.set(key, Math.min(sent.get(key) ?? Infinity, table.start[row]));
      }
    }
  }
  for (const { row, rank } of waits) {
    const [start, end, peer] = [table.start[row], table.end[row], table.peer[row]];
    const full = table.text(table.name[row]) === "slots full"; // it waits for its receiver
    const left = full ? end : (sent.get(sentMessageKey(table, row, peer, rank)) ?? end);
    const border = Math.min(end, Math.max(start, left));
    if (border > start && peer >= 0) spans.push({ rank, start, end: border, state: peer });
    if (end > border) spans.push({ rank, start: border, end, state: IS_RECEIVING, sender: peer });
  }
  return spans.filter(({ start, end }) => end > start);
}

/** @param {Table} table @param {number} row @param {number} from @param {number} to */
function sentMessageKey(table, row, from, to) {
  const { generation, group, op } = table.passages;
  const p = table.passage[row];
  return [
    from,
    to,
    generation[p],
    group[p],
    op[p],
    table.step[row],
    table.chunk[row],
    table.slot[row],
  ].join();
}

// @ts-check
/**
 * Whose parts are in every chunk, on every rank, at every moment of a call: its send, recv and reduce rows replayed.
 *
 * Nothing else is known here: no algorithm, no schedule. The rules, for one slot of one chunk (as in contributors.py):
 * a rank begins with its own part, once; a send carries what the rank holds; a recv named "fused" adds what was carried;
 * a plain one replaces what the rank holds, unless a reduce row of the same peer and step adds it; a reduce row whose
 * peer is the rank itself adds the rank's own part, kept aside. On a rank, time decides what came first. Where a receive
 * and a send overlap, the step does: what arrived at an earlier step is in what leaves, what arrives at the same is not.
 * Parts are counted, so that one that is in twice shows as 2.
 * Where chunks are handed on as they are (a gather, a broadcast), a chunk is its owner's part alone, and who does not own it
 * begins without it. In a barrier there is nothing to hold: what counts is of whom a rank has heard.
 *
 * @typedef {import("./model.js").Call} Call
 * @typedef {import("./model.js").Row} Row
 * @typedef {{start: number, end: number, step: number, order: number, number: number, adds: boolean}} Arrival
 * @typedef {{chunk: number, slot: number, place: number, time: number, counts: Int32Array}} Change
 * @typedef {{ranks: number[], place: Map<number, number>, chunks: number[], slots: number[], first: Int32Array,
 *   time: Float64Array, within: Uint16Array, twice: Uint16Array, whole: Uint16Array, left: number[], judged: boolean, sound: boolean,
 *   way: import("./operation.js").Way, root: number, owners: Map<number, number>, asked: Uint8Array, carried: Map<string, Int32Array>}} Holdings
 *   left: when each rank was through, never where a call broke off; judged: what each must hold then is known; owners: of chunks that are kept, whose each is; asked: of each cell, whether its
 *   rank must hold it at the end; sound: at no moment is anything wrong
 */
import { askedOf, isTold } from "./operation.js";

const OWN = -1, LOST = -2; // in place of a send's number: the rank's own part; a send that is not in the table

/** The ranks that take part in a call, in order: who has rows of it, or is named as the other end. @param {Row[]} rows */
export function membersOf(rows) {
  const ranks = new Set(/** @type {number[]} */ ([]));
  for (const { kind, rank, peer } of rows) {
    if (kind !== "send" && kind !== "recv" && kind !== "collective") continue;
    ranks.add(rank);
    if (peer >= 0) ranks.add(peer);
  }
  return [...ranks].sort((a, b) => a - b);
}

/**
 * Every change of what a rank holds of one slot, in the order of time, and what each send carried.
 * @param {Row[]} rows  of one call
 * @param {number[]} ranks  the members of its group, in order
 * @param {Map<number, number>} [owners]  of chunks that are handed on as they are
 * @param {boolean} [hears]  nothing is added or replaced: what has come is joined
 * @returns {{changes: Change[], cells: {chunk: number, slot: number}[], carried: Map<string, Int32Array>}}
 */
export function replayed(rows, ranks, owners = new Map(), hears = false) {
  const place = new Map(ranks.map((rank, i) => [rank, i])), cells = /** @type {Map<string, Row[]>} */ (new Map());
  for (const row of rows) {
    if (row.kind !== "send" && row.kind !== "recv" && row.kind !== "reduce") continue;
    const key = `${row.chunk}/${row.slot}`, cell = cells.get(key);
    if (cell) cell.push(row);
    else cells.set(key, [row]);
  }
  const changes = /** @type {Change[]} */ ([]), carried = /** @type {Map<string, Int32Array>} */ (new Map());
  for (const cell of cells.values()) replayCell(cell.sort((a, b) => a.seq - b.seq), place, owners.get(cell[0].chunk), hears, changes, carried);
  changes.sort((a, b) => a.time - b.time);
  return { changes, cells: [...cells.values()].map(([{ chunk, slot }]) => ({ chunk, slot })), carried };
}

/** What stands for a send among those that a call carried. @param {{from: number, to: number, step: number, chunk: number, slot: number, start: number}} f */
export const sendKey = (f) => `${f.from}>${f.to}/${f.step}/${f.chunk}/${f.slot}@${f.start}`;
/** @param {number} from @param {number} to @param {Row} row */
const messageKey = (from, to, row) => `${from}>${to}/${row.step}`;

/** @param {Row[]} rows  of one slot of one chunk, each rank's in order @param {Map<number, number>} place @param {number | undefined} owner  whose it is, if it is handed on @param {boolean} hears @param {Change[]} changes @param {Map<string, Int32Array>} carried */
function replayCell(rows, place, owner, hears, changes, carried) {
  const n = place.size, sends = rows.filter((r) => r.kind === "send" && place.has(r.rank));
  const numberOf = /** @type {Map<string, number>} */ (new Map());
  sends.forEach((s, i) => numberOf.set(messageKey(s.rank, s.peer, s), numberOf.get(messageKey(s.rank, s.peer, s)) ?? i));
  const leaving = Array.from(place, () => /** @type {{number: number, row: Row}[]} */ ([]));
  sends.forEach((row, number) => leaving[/** @type {number} */ (place.get(row.rank))].push({ number, row }));
  const queues = arrivalsOf(rows, numberOf, place).map((coming, p) => inOrder(leaving[p], coming)), at = new Int32Array(n);
  const owned = owner === undefined ? -1 : (place.get(owner) ?? -1);
  const held = queues.map((_, p) => (owner === undefined || p === owned ? ownPart(n, p) : new Int32Array(n))), loads = sends.map(() => new Int32Array(n)), done = new Uint8Array(sends.length), { chunk, slot } = rows[0];
  const goOn = (/** @type {number} */ p) => { // the next event of a rank
    const { number, arrival } = queues[p][at[p]++];
    if (!arrival) {
      loads[number] = held[p].slice();
      done[number] = 1;
      return;
    }
    const counts = number >= 0 ? loads[number].slice() : number === OWN ? ownPart(n, p) : new Int32Array(n);
    if (hears) for (let i = 0; i < n; i++) counts[i] = Math.max(counts[i], held[p][i]);
    else if (arrival.adds) for (let i = 0; i < n; i++) counts[i] += held[p][i];
    held[p] = counts;
    changes.push({ chunk, slot, place: p, time: arrival.end, counts });
  };
  for (let moved = true; moved; ) { // every rank goes on as far as it can: an arrival waits for its send
    moved = false;
    for (let p = 0; p < n; p++) {
      for (let e = queues[p][at[p]]; e && (!e.arrival || e.number < 0 || done[e.number]); e = queues[p][at[p]]) {
        goOn(p);
        moved = true;
      }
    }
    if (moved) continue;
    const stuck = queues.map((_, p) => p).filter((p) => at[p] < queues[p].length); // they wait for each other: the table is no record of a run
    stuck.forEach(goOn);
    moved = stuck.length > 0;
  }
  sends.forEach((s, i) => carried.set(sendKey({ ...s, from: s.rank, to: s.peer }), loads[i]));
}

/** @param {number} n @param {number} place */
function ownPart(n, place) {
  const counts = new Int32Array(n);
  counts[place] = 1;
  return counts;
}

/** What changes a rank's part, rank by rank, in order. @param {Row[]} rows @param {Map<string, number>} numberOf @param {Map<number, number>} place */
function arrivalsOf(rows, numberOf, place) {
  const received = rows.filter((r) => r.kind === "recv"), reduced = rows.filter((r) => r.kind === "reduce");
  const key = (/** @type {Row} */ r) => messageKey(r.peer, r.rank, r);
  const came = new Set(received.map(key)), added = new Set(reduced.map(key)), order = /** @type {[Row, number, boolean][]} */ ([]);
  const number = (/** @type {Row} */ r) => numberOf.get(key(r)) ?? LOST;
  for (const r of received) if (r.name === "fused") order.push([r, number(r), true]);
  for (const r of received) if (r.name !== "fused" && !added.has(key(r))) order.push([r, number(r), false]);
  for (const r of reduced) if (came.has(key(r))) order.push([r, number(r), true]);
  for (const r of reduced) if (r.rank === r.peer) order.push([r, OWN, true]);
  const queues = Array.from(place, () => /** @type {Arrival[]} */ ([]));
  order.sort(([a], [b]) => a.end - b.end || a.step - b.step);
  for (const [row, from, adds] of order) {
    const p = place.get(row.rank);
    if (p !== undefined) queues[p].push({ start: row.start, end: row.end, step: row.step, order: queues[p].length, number: from, adds });
  }
  return queues;
}

/** Sends and arrivals of one rank in the order of their effect. @param {{number: number, row: Row}[]} sends @param {Arrival[]} arrivals */
function inOrder(sends, arrivals) {
  const leaving = sends.map(({ number, row }) => {
    const before = arrivals.findLast((a) => {
      const cameBefore = a.end < row.start, meets = (a.start < row.end && !cameBefore) || a.end === row.start;
      return cameBefore || (meets && a.step < row.step);
    });
    return { at: before ? before.order + 1 : 0, number, arrival: /** @type {Arrival | null} */ (null) };
  });
  const coming = arrivals.map((arrival) => ({ at: arrival.order, number: arrival.number, arrival: /** @type {Arrival | null} */ (arrival) }));
  return [...leaving, ...coming].sort((a, b) => a.at - b.at || Number(!!a.arrival) - Number(!!b.arrival) || a.number - b.number);
}

/** @type {WeakMap<Call, Holdings>} */
const prepared = new WeakMap();

/**
 * A call's holdings, prepared once: for each rank × chunk the states that it goes through, summed over the chunk's slots.
 * Cell `place * chunks.length + column` has the states first[cell] … first[cell + 1] - 1; state s holds from time[s] on;
 * the part of contributor i is in within[s * n + i] of the chunk's slots, in twice[s * n + i] of them more than once;
 * whole[s] slots hold every part exactly once.
 * @param {Call} call
 * @param {number[]} [ranks]  the group's members, if more is known than the call's own rows say
 * @returns {Holdings}
 */
export function holdingsOf(call, ranks) {
  const found = prepared.get(call);
  if (found) return found;
  const who = ranks?.length ? ranks : membersOf(call.rows), n = who.length, { way, root, owners, chunks: all, asks, judged } = askedOf(call, who);
  const told = isTold(call.rows), { changes, cells, carried } = replayed(told ? call.rows : [], who, owners, way === "hear"), keeps = way === "keep";
  const chunks = [...new Set([...(told ? all : []), ...cells.map((c) => c.chunk)])].sort((a, b) => a - b), column = new Map(chunks.map((c, i) => [c, i]));
  const slots = chunks.map((c) => Math.max(1, cells.filter((cell) => cell.chunk === c).length)), asked = Uint8Array.from({ length: n * chunks.length }, (_, cell) => Number(asks(Math.floor(cell / chunks.length), chunks[cell % chunks.length])));
  const of = Array.from({ length: n * chunks.length }, () => /** @type {Change[]} */ ([]));
  for (const change of changes) of[change.place * chunks.length + /** @type {number} */ (column.get(change.chunk))].push(change);
  const first = new Int32Array(of.length + 1);
  of.forEach((list, cell) => (first[cell + 1] = first[cell] + 1 + list.length));
  const states = first[of.length], within = new Uint16Array(states * n), twice = new Uint16Array(states * n), whole = new Uint16Array(states);
  const time = new Float64Array(states).fill(-Infinity);
  of.forEach((list, cell) => {
    const place = Math.floor(cell / chunks.length), pieces = slots[cell % chunks.length], owner = owners.get(chunks[cell % chunks.length]), mine = !keeps || who[place] === owner;
    const none = new Int32Array(n), full = (/** @type {Int32Array} */ counts) => (keeps ? !!asked[cell] && counts.some((count) => count > 0) : way === "hear" ? counts.every((count) => count > 0) : isWhole(counts));
    const now = /** @type {Map<number, Int32Array>} */ (new Map()); // of each slot that has changed
    let s = first[cell];
    if (mine) within[s * n + place] = pieces;
    if (keeps ? mine && asked[cell] : n === 1) whole[s] = pieces;
    for (const change of list) {
      within.copyWithin((s + 1) * n, s * n, (s + 1) * n);
      twice.copyWithin((s + 1) * n, s * n, (s + 1) * n);
      whole[s + 1] = whole[s];
      s += 1;
      time[s] = change.time;
      const before = now.get(change.slot) ?? (mine ? ownPart(n, place) : none);
      for (let i = 0; i < n; i++) {
        within[s * n + i] += Number(change.counts[i] > 0) - Number(before[i] > 0);
        twice[s * n + i] += Number(change.counts[i] > 1) - Number(before[i] > 1);
      }
      whole[s] += Number(full(change.counts)) - Number(full(before));
      now.set(change.slot, change.counts);
    }
  });
  const through = new Map(call.rows.filter((r) => r.kind === "collective").map((r) => [r.rank, r.end]));
  const ends = of.every((_, cell) => !asked[cell] || whole[first[cell + 1] - 1] === slots[cell % chunks.length]);
  const holdings = { ranks: who, place: new Map(who.map((r, i) => [r, i])), chunks, slots, first, time, within, twice, whole, carried, way, root, owners, asked,
    left: who.map((r) => (call.complete ? (through.get(r) ?? call.end - call.start) : Infinity)), judged, sound: !twice.some((count) => count > 0) && (!judged || ends) };
  prepared.set(call, holdings);
  return holdings;
}

/** Whether what a send carried is all that its chunk is to be. @param {Holdings} holdings @param {ArrayLike<number>} counts */
export const isComplete = ({ way }, counts) => counts.length > 0 && (way === "keep" ? Array.from(counts).some((count) => count > 0) : Array.from(counts).every((count) => (way === "hear" ? count > 0 : count === 1)));

/** Whose parts must be in a cell at the end, as places. @param {Holdings} holdings @param {number} cell @returns {number[]} */
export function neededIn({ ranks, chunks, way, owners, place, asked }, cell) {
  if (!asked[cell]) return [];
  return way === "keep" ? [place.get(owners.get(chunks[cell % chunks.length]) ?? -1) ?? 0] : ranks.map((_, i) => i);
}

/** Every part is in, exactly once. @param {Int32Array} counts */
export const isWhole = (counts) => counts.every((count) => count === 1);

/**
 * The state of every cell at a moment of the call. @param {Holdings} holdings @param {number} t
 * @param {Int32Array} [out]  where to put it, so that a frame needs no new memory
 * @returns {Int32Array} of each cell: the number of its state
 */
export function holdingsAt(holdings, t, out = new Int32Array(holdings.first.length - 1)) {
  const { first, time } = holdings;
  for (let cell = 0; cell + 1 < first.length; cell++) {
    let low = first[cell], high = first[cell + 1] - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (time[middle] <= t) low = middle;
      else high = middle - 1;
    }
    out[cell] = low;
  }
  return out;
}

/**
 * What a cell in this state holds at this moment: which parts it has twice, which it lacks although its rank is through.
 * @param {Holdings} holdings @param {number} cell @param {number} state @param {number} t
 * @returns {{complete: boolean, parts: {rank: number, within: number, twice: number}[], slots: number, doubled: number[], lacking: number[]}}
 */
export function cellAt(holdings, cell, state, t) {
  const { ranks, chunks, within, twice, whole } = holdings, n = ranks.length, slots = holdings.slots[cell % chunks.length];
  const place = Math.floor(cell / chunks.length), over = holdings.judged && t >= holdings.left[place];
  const parts = ranks.map((rank, i) => ({ rank, within: within[state * n + i], twice: twice[state * n + i] }));
  return { complete: whole[state] === slots, parts, slots, doubled: parts.filter((p) => p.twice > 0).map((p) => p.rank),
    lacking: over ? neededIn(holdings, cell).filter((i) => parts[i].within < slots).map((i) => ranks[i]) : [] };
}

// @ts-check
/**
 * Whose parts are in every chunk, on every rank, at every moment of a call: its send, recv and
 * reduce rows replayed.
 *
 * Nothing else is known here: no algorithm, no schedule. The rules, for one slot of one chunk (as
 * in theory/provenance.py): a rank begins with its own part, once; a send carries what the rank
 * holds; a recv named "fused" adds what was carried; a plain one replaces what the rank holds,
 * unless a reduce row of the same peer and step adds it; a reduce row whose peer is the rank itself
 * adds the rank's own part, kept aside. On a rank, time decides what came first. Where a receive
 * and a send overlap, the step does: what arrived at an earlier step is in what leaves, what
 * arrives at the same is not. Parts are counted, so that one that is in twice shows as 2. Where
 * chunks are handed on as they are (a gather, a broadcast), a chunk is its owner's part alone, and
 * who does not own it begins without it. In a barrier there is nothing to hold: what counts is of
 * whom a rank has heard.
 *
 * @typedef {import("./model.js").Call} Call
 * @typedef {{start: number, end: number, step: number, order: number, number: number,
 *   adds: boolean}} Arrival
 * @typedef {{chunk: number, slot: number, place: number, time: number, counts: Int32Array}} Change
 * @typedef {{ranks: number[], place: Map<number, number>, chunks: number[], slots: number[],
 *   first: Int32Array, time: Float64Array, within: Uint16Array, twice: Uint16Array,
 *   whole: Uint16Array, left: number[], judged: boolean, sound: boolean,
 *   way: import("./operation.js").Way, root: number, owners: Map<number, number>,
 *   asked: Uint8Array, carried: Map<string, Int32Array>}} Holdings
 *   left: when each rank was through, never where a call broke off; judged: what each must hold
 *   then is known; owners: of chunks that are kept, whose each is; asked: of each cell, whether its
 *   rank must hold it at the end; sound: at no moment is anything wrong
 */
import { askedOf, recordsContents } from "./operation.js";
import { membersOf, ownPart, replayed } from "./replayed_cells.js";

/** @type {WeakMap<Call, Holdings>} */
const prepared = new WeakMap();

/**
 * A call's holdings, prepared once: for each rank × chunk the states that it goes through, summed
 * over the chunk's slots. Cell `place * chunks.length + column` has the states first[cell] …
 * first[cell + 1] - 1; state s holds from time[s] on; the part of contributor i is in within[s * n
 * + i] of the chunk's slots, in twice[s * n + i] of them more than once; whole[s] slots hold every
 * part exactly once.
 * @param {Call} call
 * @param {number[]} [ranks]  the group's members, if more is known than the call's own rows say
 * @param {number[]} [toCome]  chunks that it will have, if it is not complete
 * @returns {Holdings}
 */
export function holdingsOf(call, ranks, toCome = []) {
  const earlier = prepared.get(call);
  if (earlier) return earlier;
  const who = ranks?.length ? ranks : membersOf(call.rows);
  const n = who.length;
  const { way, root, owners, chunks: all, asks, judged } = askedOf(call, who, toCome);
  const hasContents = recordsContents(call.rows);
  const { changes, cells, carried } = replayed(
    hasContents ? call.rows : [],
    who,
    owners,
    way === "hear",
  );
  const keeps = way === "keep";
  const chunks = [...new Set([...(hasContents ? all : []), ...cells.map((c) => c.chunk)])].sort(
    (a, b) => a - b,
  );
  const column = new Map(chunks.map((c, i) => [c, i]));
  const slots = chunks.map((c) => Math.max(1, cells.filter((cell) => cell.chunk === c).length));
  const asked = Uint8Array.from({ length: n * chunks.length }, (_, cell) =>
    Number(asks(Math.floor(cell / chunks.length), chunks[cell % chunks.length])),
  );
  const of = Array.from({ length: n * chunks.length }, () => /** @type {Change[]} */ ([]));
  for (const change of changes)
    of[change.place * chunks.length + /** @type {number} */ (column.get(change.chunk))].push(
      change,
    );
  const first = new Int32Array(of.length + 1);
  of.forEach((list, cell) => (first[cell + 1] = first[cell] + 1 + list.length));
  const states = first[of.length];
  const within = new Uint16Array(states * n);
  const twice = new Uint16Array(states * n);
  const whole = new Uint16Array(states);
  const time = new Float64Array(states).fill(-Infinity);
  of.forEach((list, cell) => {
    const place = Math.floor(cell / chunks.length);
    const pieces = slots[cell % chunks.length];
    const owner = owners.get(chunks[cell % chunks.length]);
    const mine = !keeps || who[place] === owner;
    const none = new Int32Array(n);
    const full = (/** @type {Int32Array} */ counts) =>
      keeps
        ? !!asked[cell] && counts.some((count) => count > 0)
        : way === "hear"
          ? counts.every((count) => count > 0)
          : isWhole(counts);
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
  const through = new Map(
    call.rows.filter((r) => r.kind === "collective").map((r) => [r.rank, r.end]),
  );
  const ends = of.every(
    (_, cell) => !asked[cell] || whole[first[cell + 1] - 1] === slots[cell % chunks.length],
  );
  const holdings = {
    ranks: who,
    place: new Map(who.map((r, i) => [r, i])),
    chunks,
    slots,
    first,
    time,
    within,
    twice,
    whole,
    carried,
    way,
    root,
    owners,
    asked,
    left: who.map((r) => (call.complete ? (through.get(r) ?? call.end - call.start) : Infinity)),
    judged,
    sound: !twice.some((count) => count > 0) && (!judged || ends),
  };
  prepared.set(call, holdings);
  return holdings;
}

/**
 * Whether what a send carried is all that its chunk is to be.
 * @param {Holdings} holdings
 * @param {ArrayLike<number>} counts
 */
export const isComplete = ({ way }, counts) =>
  counts.length > 0 &&
  (way === "keep"
    ? Array.from(counts).some((count) => count > 0)
    : Array.from(counts).every((count) => (way === "hear" ? count > 0 : count === 1)));

/**
 * Whose parts must be in a cell at the end, as places.
 * @param {Holdings} holdings
 * @param {number} cell
 * @returns {number[]}
 */
export function neededIn({ ranks, chunks, way, owners, place, asked }, cell) {
  if (!asked[cell]) return [];
  return way === "keep"
    ? [place.get(owners.get(chunks[cell % chunks.length]) ?? -1) ?? 0]
    : ranks.map((_, i) => i);
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
    let low = first[cell];
    let high = first[cell + 1] - 1;
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
 * What a cell in this state holds at this moment: which parts it has twice, which it lacks although
 * its rank is through.
 * @param {Holdings} holdings @param {number} cell @param {number} state @param {number} t
 * @returns {{complete: boolean, parts: {rank: number, within: number, twice: number}[],
 *   slots: number, doubled: number[], lacking: number[]}}
 */
export function cellAt(holdings, cell, state, t) {
  const { ranks, chunks, within, twice, whole } = holdings;
  const n = ranks.length;
  const slots = holdings.slots[cell % chunks.length];
  const place = Math.floor(cell / chunks.length);
  const over = holdings.judged && t >= holdings.left[place];
  const parts = ranks.map((rank, i) => ({
    rank,
    within: within[state * n + i],
    twice: twice[state * n + i],
  }));
  return {
    complete: whole[state] === slots,
    parts,
    slots,
    doubled: parts.filter((p) => p.twice > 0).map((p) => p.rank),
    lacking: over
      ? neededIn(holdings, cell)
          .filter((i) => parts[i].within < slots)
          .map((i) => ranks[i])
      : [],
  };
}

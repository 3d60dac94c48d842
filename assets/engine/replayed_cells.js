// @ts-check
/**
 * What each rank holds of each chunk, replayed from the rows of a call: nothing here knows an
 * algorithm.
 *
 * @typedef {import("./model.js").Row} Row
 * @typedef {import("./holdings.js").Arrival} Arrival
 * @typedef {import("./holdings.js").Change} Change
 */

const OWN = -1;

// in place of a send's number: the rank's own part; a send that is not in the table
const LOST = -2;

/**
 * The ranks that take part in a call, in order: who has rows of it, or is named as the other end.
 * @param {Row[]} rows
 */
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
 * @returns {{changes: Change[], cells: {chunk: number, slot: number}[], carried: Map<string,
 *   Int32Array>}}
 */
export function replayed(rows, ranks, owners = new Map(), hears = false) {
  const place = new Map(ranks.map((rank, i) => [rank, i]));
  const cells = /** @type {Map<string, Row[]>} */ (new Map());
  for (const row of rows) {
    if (row.kind !== "send" && row.kind !== "recv" && row.kind !== "reduce") continue;
    const key = `${row.chunk}/${row.slot}`;
    const cell = cells.get(key);
    if (cell) cell.push(row);
    else cells.set(key, [row]);
  }
  const changes = /** @type {Change[]} */ ([]);
  const carried = /** @type {Map<string, Int32Array>} */ (new Map());
  for (const cell of cells.values())
    replayCell(
      cell.sort((a, b) => a.seq - b.seq),
      place,
      owners.get(cell[0].chunk),
      hears,
      changes,
      carried,
    );
  changes.sort((a, b) => a.time - b.time);
  return {
    changes,
    cells: [...cells.values()].map(([{ chunk, slot }]) => ({ chunk, slot })),
    carried,
  };
}

/**
 * What stands for a send among those that a call carried.
 * @param {{from: number, to: number, step: number, chunk: number, slot: number, start: number}} f
 */
export const sendKey = (f) => `${f.from}>${f.to}/${f.step}/${f.chunk}/${f.slot}@${f.start}`;

/** @param {number} from @param {number} to @param {Row} row */
const messageKey = (from, to, row) => `${from}>${to}/${row.step}`;

/**
 * @param {Row[]} rows  of one slot of one chunk, each rank's in order
 * @param {Map<number, number>} place
 * @param {number | undefined} owner  whose it is, if it is handed on
 * @param {boolean} hears
 * @param {Change[]} changes
 * @param {Map<string, Int32Array>} carried
 */
function replayCell(rows, place, owner, hears, changes, carried) {
  const n = place.size;
  const sends = rows.filter((r) => r.kind === "send" && place.has(r.rank));
  const numberOf = /** @type {Map<string, number>} */ (new Map());
  sends.forEach((s, i) =>
    numberOf.set(messageKey(s.rank, s.peer, s), numberOf.get(messageKey(s.rank, s.peer, s)) ?? i),
  );
  const leaving = Array.from(place, () => /** @type {{number: number, row: Row}[]} */ ([]));
  sends.forEach((row, number) =>
    leaving[/** @type {number} */ (place.get(row.rank))].push({ number, row }),
  );
  const queues = arrivalsOf(rows, numberOf, place).map((coming, p) => inOrder(leaving[p], coming));
  const at = new Int32Array(n);
  const owned = owner === undefined ? -1 : (place.get(owner) ?? -1);
  const held = queues.map((_, p) =>
    owner === undefined || p === owned ? ownPart(n, p) : new Int32Array(n),
  );
  const loads = sends.map(() => new Int32Array(n));
  const done = new Uint8Array(sends.length);
  const { chunk, slot } = rows[0];
  const goOn = (/** @type {number} */ p) => {
    // the next event of a rank
    const { number, arrival } = queues[p][at[p]++];
    if (!arrival) {
      loads[number] = held[p].slice();
      done[number] = 1;
      return;
    }
    const counts =
      number >= 0 ? loads[number].slice() : number === OWN ? ownPart(n, p) : new Int32Array(n);
    if (hears) for (let i = 0; i < n; i++) counts[i] = Math.max(counts[i], held[p][i]);
    else if (arrival.adds) for (let i = 0; i < n; i++) counts[i] += held[p][i];
    held[p] = counts;
    changes.push({ chunk, slot, place: p, time: arrival.end, counts });
  };
  for (let moved = true; moved; ) {
    // every rank goes on as far as it can: an arrival waits for its send
    moved = false;
    for (let p = 0; p < n; p++) {
      for (
        let e = queues[p][at[p]];
        e && (!e.arrival || e.number < 0 || done[e.number]);
        e = queues[p][at[p]]
      ) {
        goOn(p);
        moved = true;
      }
    }
    if (moved) continue;
    // they wait for each other: the table is no record of a run
    const stuck = queues.map((_, p) => p).filter((p) => at[p] < queues[p].length);
    stuck.forEach(goOn);
    moved = stuck.length > 0;
  }
  sends.forEach((s, i) => carried.set(sendKey({ ...s, from: s.rank, to: s.peer }), loads[i]));
}

/** @param {number} n @param {number} place */
export function ownPart(n, place) {
  const counts = new Int32Array(n);
  counts[place] = 1;
  return counts;
}

/**
 * What changes a rank's part, rank by rank, in order.
 * @param {Row[]} rows
 * @param {Map<string, number>} numberOf
 * @param {Map<number, number>} place
 */
function arrivalsOf(rows, numberOf, place) {
  const received = rows.filter((r) => r.kind === "recv");
  const reduced = rows.filter((r) => r.kind === "reduce");
  const key = (/** @type {Row} */ r) => messageKey(r.peer, r.rank, r);
  const came = new Set(received.map(key));
  const added = new Set(reduced.map(key));
  const order = /** @type {[Row, number, boolean][]} */ ([]);
  const number = (/** @type {Row} */ r) => numberOf.get(key(r)) ?? LOST;
  for (const r of received) if (r.name === "fused") order.push([r, number(r), true]);
  for (const r of received)
    if (r.name !== "fused" && !added.has(key(r))) order.push([r, number(r), false]);
  for (const r of reduced) if (came.has(key(r))) order.push([r, number(r), true]);
  for (const r of reduced) if (r.rank === r.peer) order.push([r, OWN, true]);
  const queues = Array.from(place, () => /** @type {Arrival[]} */ ([]));
  order.sort(([a], [b]) => a.end - b.end || a.step - b.step);
  for (const [row, from, adds] of order) {
    const p = place.get(row.rank);
    if (p !== undefined)
      queues[p].push({
        start: row.start,
        end: row.end,
        step: row.step,
        order: queues[p].length,
        number: from,
        adds,
      });
  }
  return queues;
}

/**
 * Sends and arrivals of one rank in the order of their effect.
 * @param {{number: number, row: Row}[]} sends
 * @param {Arrival[]} arrivals
 */
function inOrder(sends, arrivals) {
  const leaving = sends.map(({ number, row }) => {
    const before = arrivals.findLast((a) => {
      const cameBefore = a.end < row.start;
      const meets = (a.start < row.end && !cameBefore) || a.end === row.start;
      return cameBefore || (meets && a.step < row.step);
    });
    return {
      at: before ? before.order + 1 : 0,
      number,
      arrival: /** @type {Arrival | null} */ (null),
    };
  });
  const coming = arrivals.map((arrival) => ({
    at: arrival.order,
    number: arrival.number,
    arrival: /** @type {Arrival | null} */ (arrival),
  }));
  return [...leaving, ...coming].sort(
    (a, b) => a.at - b.at || Number(!!a.arrival) - Number(!!b.arrival) || a.number - b.number,
  );
}

// @ts-check
/**
 * One call, opened: its rows, its flights, the frame at a playhead. Pure functions: no browser, no
 * drawing, no algorithm's schedule.
 *
 * A *call* is one collective with all its rows of the event table; it may still be going on. A
 * *flight* is one chunk on its way: a send row and the recv row that matches it. Without both there
 * is none. Times are nanoseconds and count from the start of the call.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {import("./table.js").CallHead} CallHead
 * @typedef {{rank: number, peer: number, kind: string, start: number, end: number, step: number,
 *   chunk: number, slot: number, nbytes: number, phase: string, name: string, lane: string,
 *   seq: number, folded?: boolean}} Row
 *   folded: it stands for several
 * @typedef {{from: number, to: number, step: number, chunk: number, slot: number, phase: string,
 *   nbytes: number, start: number, end: number, until: number, fused: boolean, track: number,
 *   there?: number}}
 *   Flight  there: when its first byte was; until: when it went on from there, or else its end: a
 *   rank that passes a chunk on receives and sends it in one pass, whose rows have the same span
 * @typedef {{even: boolean, stretch: number, times: number[], plays: number[]}} Clock
 * @typedef {{key: string, generation: number, group: string, op: number, number: number,
 *   collective: string, algorithm: string, iteration: number, name: string, start: number,
 *   end: number, ranks: number, nbytes: number, complete: boolean, left_out: string, rows: Row[],
 *   flights: Flight[], waits: Row[], came: Map<number, number>, moments: number[], clock: Clock,
 *   lying?: Row[], words?: import("./call_source.js").Words}} Call
 *   lying: pieces that have left and that no rank has received: of messages, and of a call that
 *   broke off or still goes on
 */

// rows; of a larger call the first pieces of each chunk are opened, and said so
const OPENED = 20_000;

/**
 * Whether a row stands for several messages or pieces: a coarser record, made where the way to the
 * driver was slow.
 * @param {import("./table.js").Table} table @param {number} r
 */
const standsForMany = ({ kind, code, slot, value }, r) =>
  (kind[r] === code.send || kind[r] === code.recv) && slot[r] < 0 && Number.isFinite(value[r]);

/**
 * A call with its rows counted from its own start, its flights matched. `ranks` is how many places
 * its picture needs.
 * @param {Table} table @param {CallHead} head
 * @returns {Call}
 */
export function openCall(table, head) {
  const { code, passages } = table;
  const last = head.rows > OPENED ? lastSlot(table, head) : 0;
  const slots =
    head.rows > OPENED ? Math.max(1, Math.floor(((last + 1) * OPENED) / head.rows)) : Infinity;
  const rows = /** @type {Row[]} */ ([]);
  let ranks = 0;
  for (const p of head.passages) {
    const rank = passages.rank[p];
    const lane = table.text(passages.lane[p]);
    for (let r = passages.first[p]; r < passages.first[p] + passages.count[p]; r++) {
      if (table.slot[r] >= slots) continue;
      const kind = table.kind[r];
      const peer = table.peer[r];
      if (kind === code.metric) continue;
      rows.push({
        rank,
        peer,
        kind: table.kindName(kind),
        start: table.start[r] - head.start,
        end: table.end[r] - head.start,
        step: table.step[r],
        chunk: table.chunk[r],
        slot: table.slot[r],
        nbytes: table.nbytes[r],
        phase: table.text(table.phase[r]),
        name: table.text(table.name[r]),
        lane,
        seq: table.seq[r],
        ...(standsForMany(table, r) ? { folded: true } : {}),
      });
      ranks = Math.max(ranks, rank + 1, peer + 1);
    }
  }
  rows.sort((a, b) => a.start - b.start || a.rank - b.rank || a.seq - b.seq);
  const flights = flightsOf(rows);
  const waits = rows.filter((r) => r.kind === "wait");
  const moments = [...new Set(flights.map((f) => f.end))].sort((a, b) => a - b);
  // when a rank joined in
  const came = new Map(rows.filter((r) => r.kind === "collective").map((r) => [r.rank, r.start]));
  const {
    key,
    generation,
    group,
    op,
    collective,
    algorithm,
    iteration,
    name,
    start,
    end,
    nbytes,
    complete,
  } = head;
  return {
    key,
    generation,
    group,
    op,
    number: op + 1,
    collective,
    algorithm,
    iteration,
    name,
    start,
    end,
    ranks,
    nbytes,
    complete,
    left_out: slots <= last ? `first ${slots} of ${last + 1} pieces a chunk` : "",
    rows,
    flights,
    waits,
    came,
    moments,
    clock: clockOf(flights, end - start),
    lying: complete ? [] : strandedOf(rows, flights),
  };
}

/** @param {Table} table @param {CallHead} head */
function lastSlot(table, head) {
  let last = 0;
  for (const p of head.passages)
    for (
      let r = table.passages.first[p];
      r < table.passages.first[p] + table.passages.count[p];
      r++
    )
      last = Math.max(last, table.slot[r]);
  return last;
}

/**
 * Match each send with its recv: same step, chunk and slot, ranks crossed; the k-th of them with
 * the k-th.
 * @param {Row[]} rows
 * @returns {Flight[]} in the order in which they left
 */
export function flightsOf(rows) {
  const arrivals = /** @type {Map<string, Row[]>} */ (new Map());
  const key = (/** @type {number} */ from, /** @type {number} */ to, /** @type {Row} */ r) =>
    `${from}>${to}/${r.step}/${r.chunk}/${r.slot}`;
  const ordered = [...rows].sort((a, b) => a.start - b.start || a.seq - b.seq);
  for (const row of ordered) {
    if (row.kind !== "recv") continue;
    const name = key(row.peer, row.rank, row);
    arrivals.set(name, [...(arrivals.get(name) ?? []), row]);
  }
  const onward = /** @type {Map<string, Row[]>} */ (new Map());
  for (const r of ordered) {
    if (r.kind !== "send") continue;
    const name = `${r.rank}/${r.chunk}/${r.slot}`;
    const sends = onward.get(name);
    if (sends) sends.push(r);
    else onward.set(name, [r]);
  }
  const flights = [];
  for (const row of ordered) {
    if (row.kind !== "send") continue;
    const arrival = arrivals.get(key(row.rank, row.peer, row))?.shift();
    if (!arrival) continue;
    const { step, chunk, slot, phase, nbytes, start } = row;
    // what leaves before it is there, or at its own step, is something else
    const on = onward
      .get(`${row.peer}/${chunk}/${slot}`)
      ?.find((r) => r.step > step && r.start > start && r.start >= arrival.start);
    flights.push({
      from: row.rank,
      to: row.peer,
      step,
      chunk,
      slot,
      phase,
      nbytes,
      start,
      end: arrival.end,
      until: Math.min(arrival.end, on?.start ?? Infinity),
      fused: arrival.name === "fused",
      track: 0,
      there: arrival.start,
    });
  }
  return sideBySide(flights);
}

/**
 * Sends without a receive: what they carried stayed where it was sent to.
 * @param {Row[]} rows
 * @param {Flight[]} flights
 */
function strandedOf(rows, flights) {
  const key = (
    /** @type {number} */ from,
    /** @type {number} */ to,
    /** @type {{step: number, chunk: number, slot: number, start: number}} */ r,
  ) => `${from}>${to}/${r.step}/${r.chunk}/${r.slot}@${r.start}`;
  const taken = new Set(flights.map((f) => key(f.from, f.to, f)));
  return rows.filter((r) => r.kind === "send" && !taken.has(key(r.rank, r.peer, r)));
}

/**
 * Flights that share a link for a while get tracks of their own: 0, 1, 2 ...
 * @param {Flight[]} flights in order of their start
 */
function sideBySide(flights) {
  // of each track: when it is free again
  const links = /** @type {Map<string, number[]>} */ (new Map());
  return flights.map((flight) => {
    const link = `${flight.from}>${flight.to}`;
    const free = links.get(link) ?? [];
    links.set(link, free);
    const reusable = free.findIndex((end) => end <= flight.start);
    const track = reusable < 0 ? free.length : reusable;
    free[track] = flight.end;
    return { ...flight, track };
  });
}

const PLAYED_MS = 4000;
const LONGEST_MS = 6000;
// of a call: if most flights are shorter, an even clock would show them for a frame or two
const LEGIBLE = 0.06;
// of the playing time that then belongs to moments at which something is on its way
const MOVING = 0.85;
const BEAT_MS = 100; // which one such moment lasts, as long as there is room

/**
 * How a call's time is played. Even where that is legible; else the playhead goes slower where
 * chunks move, which may be a thousandth of a call in which ranks wait for a core or for each
 * other. Only its pace bends: a chunk's place is always its true one.
 * @param {Flight[]} flights @param {number} span nanoseconds
 * @returns {Clock}
 */
export function clockOf(flights, span) {
  const lengths = flights.map((f) => f.end - f.start).sort((a, b) => a - b);
  const plain = Math.max(PLAYED_MS, span / 1e6); // never faster than it was
  const even =
    !lengths.length || span / 1e6 > PLAYED_MS || lengths[lengths.length >> 1] >= LEGIBLE * span;
  if (even)
    return {
      even,
      stretch: (plain * 1e6) / Math.max(1, span),
      times: [0, Math.max(1, span)],
      plays: [0, plain],
    };
  const times = [...new Set([0, ...flights.flatMap((f) => [f.start, f.end]), span])].sort(
    (a, b) => a - b,
  );
  const moves = movesIn(flights, times);
  const moving = moves.filter(Boolean).length;
  const time = (/** @type {boolean} */ on) =>
    Math.max(
      1,
      moves.reduce((sum, move, i) => sum + (move === on ? times[i + 1] - times[i] : 0), 0),
    );
  const onWay = time(true);
  const still = time(false);
  const share = !moving ? 0 : moving < moves.length ? MOVING : 1;
  const played = Math.max(plain, Math.min(LONGEST_MS, (BEAT_MS * moving) / (share || 1)));
  const plays = [0];
  moves.forEach((move, i) => {
    const part = times[i + 1] - times[i];
    const weight = move
      ? share * (0.75 / moving + (0.25 * part) / onWay)
      : (1 - share) * (part / still);
    plays.push(plays[i] + weight * played);
  });
  return { even, stretch: (played * 1e6) / span, times, plays };
}

/**
 * Whether something is on its way between each two of these times.
 * @param {Flight[]} flights
 * @param {number[]} times
 */
function movesIn(flights, times) {
  const at = new Map(times.map((t, i) => [t, i]));
  const change = new Array(times.length).fill(0);
  for (const f of flights) {
    change[/** @type {number} */ (at.get(f.start))] += 1;
    change[/** @type {number} */ (at.get(f.end))] -= 1;
  }
  let air = 0;
  return change.slice(0, -1).map((by) => (air += by) > 0);
}

/**
 * The frame at a playhead: what is on its way and who waits. Nothing else decides what is drawn.
 * @param {Call} call @param {number} t
 * @returns {{t: number, comets: (Flight & {share: number, lying?: boolean})[], waiting: Map<number,
 *   Row>, away: Set<number>}} lying: it is where it was sent to, and not received yet
 */
export function frameAt(call, t) {
  const comets = /** @type {(Flight & {share: number, lying?: boolean})[]} */ (
    call.flights
      .filter((f) => f.start <= t && t < f.until)
      .map((f) => ({ ...f, share: (t - f.start) / (f.until - f.start) }))
  );
  const lies = new Set(/** @type {string[]} */ ([]));
  for (const r of call.lying ?? []) {
    const what = `${r.rank}>${r.peer}/${r.chunk}`; // of several pieces one is drawn
    if (r.start > t || lies.has(what)) continue;
    lies.add(what);
    const { rank: from, peer: to, step, chunk, slot, phase, nbytes, start, end } = r;
    comets.push({
      from,
      to,
      step,
      chunk,
      slot,
      phase,
      nbytes,
      start,
      end,
      until: end,
      fused: false,
      track: 0,
      share: Math.min(1, (t - start) / Math.max(1, end - start)),
      lying: t >= end,
    });
  }
  const waiting = new Map(
    call.waits.filter((w) => w.start <= t && t < w.end).map((w) => [w.rank, w]),
  );
  return {
    t,
    comets,
    waiting,
    away: new Set([...call.came].filter(([, start]) => t < start).map(([rank]) => rank)),
  };
}

/**
 * The next moment at which a chunk arrives, or the one before.
 * @param {Call} call
 * @param {number} t
 * @param {number} way
 */
export function stepFrom(call, t, way) {
  if (way > 0) return call.moments.find((m) => m > t + 0.5) ?? call.end - call.start;
  return call.moments.findLast((m) => m < t - 0.5) ?? 0;
}

/**
 * The moment that tells most in a still picture: the most chunks on their way.
 * @param {Call} call
 */
export function busiest(call) {
  const middles = call.flights.map((f) => (f.start + f.until) / 2);
  const load = (/** @type {number} */ t) =>
    call.flights.filter((f) => f.start <= t && t < f.until).length;
  return middles.reduce((best, t) => (load(t) > load(best) ? t : best), middles[0] ?? 0);
}

// @ts-check
/**
 * What the stage knows of a run, as pure functions: no browser, no drawing, no algorithm's schedule.
 *
 * A *call* is one collective that every rank has completed, with all its rows of the event table.
 * A *flight* is one chunk on its way: a send row and the recv row that matches it. Without both there is none.
 * Times are nanoseconds; a row's times count from the run's origin, a playhead's from the start of its call.
 *
 * @typedef {{rank: number, peer: number, kind: string, start: number, end: number, step: number, chunk: number,
 *   slot: number, nbytes: number, phase: string, name: string, lane: string, seq: number}} Row
 * @typedef {{from: number, to: number, step: number, chunk: number, slot: number, phase: string, nbytes: number,
 *   start: number, end: number, fused: boolean, track: number}} Flight
 * @typedef {{even: boolean, stretch: number, times: number[], plays: number[]}} Clock
 * @typedef {{key: string, generation: number, group: string, op: number, number: number, collective: string,
 *   algorithm: string, iteration: number, name: string, start: number, end: number, ranks: number, nbytes: number, left_out: string,
 *   rows: Row[], flights: Flight[], waits: Row[], came: Map<number, number>, moments: number[], clock: Clock}} Call
 * @typedef {{events: number, dropped: number, calls: number, iteration: number, loss: number | null}} Counters
 * @typedef {{id: string, ranks: number, iterations: number, title: string, emulated: {from: number, to: number, words: string}[],
 *   notes: string[]}} RunFacts
 * @typedef {{run: RunFacts | null, seq: number, missed: number, state: string, words: string,
 *   counters: Counters | null, calls: Call[], clock: number}} Known
 * @typedef {{key: string, began: number, held: number | null}} Player
 */

const ARRAYS = { f8: Float64Array, i4: Int32Array, i2: Int16Array, u2: Uint16Array };
const KEPT = 64; // calls that the page remembers

/** @type {Known} */
export const NOTHING = { run: null, seq: 0, missed: 0, state: "empty", words: "", counters: null, calls: [], clock: -Infinity };

/**
 * The columns of a batch: each is an array of fixed-size little-endian numbers, padded to eight bytes.
 * @param {[string, keyof typeof ARRAYS][]} layout  names and number types, in their order
 * @param {number} rows
 * @param {ArrayBuffer | ArrayBufferView} bytes
 * @returns {Record<string, ArrayLike<number>>}
 */
export function unpack(layout, rows, bytes) {
  const whole = ArrayBuffer.isView(bytes) ? bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) : bytes;
  const columns = /** @type {Record<string, ArrayLike<number>>} */ ({});
  let at = 0;
  for (const [name, type] of layout) {
    const column = new ARRAYS[type](/** @type {ArrayBuffer} */ (whole), at, rows);
    columns[name] = column;
    at += Math.ceil(column.byteLength / 8) * 8;
  }
  return columns;
}

/**
 * Match each send with its recv: same step, chunk and slot, ranks crossed; the k-th of them with the k-th.
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
  const flights = [];
  for (const row of ordered) {
    if (row.kind !== "send") continue;
    const arrival = arrivals.get(key(row.rank, row.peer, row))?.shift();
    if (!arrival) continue;
    const { step, chunk, slot, phase, nbytes, start } = row;
    flights.push({ from: row.rank, to: row.peer, step, chunk, slot, phase, nbytes, start, end: arrival.end,
      fused: arrival.name === "fused", track: 0 });
  }
  return sideBySide(flights);
}

/** Flights that share a link for a while get tracks of their own: 0, 1, 2 ... @param {Flight[]} flights in order of their start */
function sideBySide(flights) {
  const links = /** @type {Map<string, number[]>} */ (new Map()); // of each track: when it is free again
  return flights.map((flight) => {
    const link = `${flight.from}>${flight.to}`, free = links.get(link) ?? [];
    links.set(link, free);
    const found = free.findIndex((end) => end <= flight.start), track = found < 0 ? free.length : found;
    free[track] = flight.end;
    return { ...flight, track };
  });
}

/**
 * A call as the page keeps it: its rows counted from its own start, its flights matched.
 * @param {any} head  one entry of a batch's `calls`; `rows` is [first, after last] in the columns
 * @param {Record<string, ArrayLike<number>>} columns
 * @param {string[]} strings
 * @returns {Call}
 */
export function openCall(head, columns, strings) {
  const rows = /** @type {Row[]} */ ([]);
  for (let i = head.rows[0]; i < head.rows[1]; i++) {
    const number = (/** @type {string} */ name) => columns[name][i];
    const text = (/** @type {string} */ name) => strings[columns[name][i]] ?? "";
    rows.push({ rank: number("rank"), peer: number("peer"), kind: text("kind"), start: number("start") - head.start,
      end: number("end") - head.start, step: number("step"), chunk: number("chunk"), slot: number("slot"),
      nbytes: number("nbytes"), phase: text("phase"), name: text("name"), lane: text("lane"), seq: number("seq") });
  }
  const flights = flightsOf(rows), waits = rows.filter((r) => r.kind === "wait");
  const moments = [...new Set(flights.map((f) => f.end))].sort((a, b) => a - b);
  const came = new Map(rows.filter((r) => r.kind === "collective").map((r) => [r.rank, r.start])); // when a rank joined in
  return { ...head, key: `${head.generation}/${head.group}/${head.op}`, rows, flights, waits, came, moments, clock: clockOf(flights, head.end - head.start) };
}

/**
 * Take in one message. A run that is new to the page starts afresh; calls that are known are not doubled.
 * @param {Known} known
 * @param {any} message
 * @param {(ArrayBuffer | ArrayBufferView)[]} buffers
 * @param {number} at  the page's own clock, milliseconds
 * @returns {Known}
 */
export function receive(known, message, buffers, at) {
  if (message?.type !== "batch") return known;
  const before = known.run?.id === message.run.id ? known : NOTHING;
  const columns = message.rows ? unpack(message.layout, message.rows, buffers[0]) : {};
  const fresh = message.calls.map((/** @type {any} */ head) => openCall(head, columns, message.strings));
  const calls = new Map([...before.calls, ...fresh].map((call) => [call.key, call]));
  const gap = before.seq && message.seq > before.seq + 1 ? message.seq - before.seq - 1 : 0;
  return { run: message.run, seq: Math.max(before.seq, message.seq), missed: before.missed + gap, state: message.state,
    words: message.words, counters: message.counters,
    calls: [...calls.values()].sort((a, b) => a.end - b.end).slice(-KEPT),
    // The batch that took the least time to come tells the driver's clock best.
    clock: message.now === null ? -Infinity : Math.max(before.clock, message.now - at * 1e6) };
}

const PLAYED_MS = 4000, REST_MS = 700;
const LEGIBLE = 0.06; // of a call: if most flights are shorter, an even clock would show them for a frame or two

/**
 * How a call's time is played. Even where that is legible; else the playhead goes slower where more happens: half of
 * the playing time is shared out by time, half by events. Only its pace bends: a chunk's place is always its true one.
 * @param {Flight[]} flights @param {number} span nanoseconds
 * @returns {Clock}
 */
export function clockOf(flights, span) {
  const played = Math.max(PLAYED_MS, span / 1e6); // never faster than it was
  const lengths = flights.map((f) => f.end - f.start).sort((a, b) => a - b);
  const even = !lengths.length || span / 1e6 > PLAYED_MS || lengths[lengths.length >> 1] >= LEGIBLE * span;
  if (even) return { even, stretch: (played * 1e6) / Math.max(1, span), times: [0, Math.max(1, span)], plays: [0, played] };
  const times = [...new Set([0, ...flights.flatMap((f) => [f.start, f.end]), span])].sort((a, b) => a - b);
  const part = (/** @type {number} */ i) => (times[i] - times[i - 1]) / span / 2 + 0.5 / (times.length - 1);
  const plays = [0];
  for (let i = 1; i < times.length; i++) plays.push(plays[i - 1] + part(i) * played);
  return { even, stretch: (played * 1e6) / span, times, plays };
}

/** A value on a line of straight pieces. @param {number} x @param {number[]} xs ascending @param {number[]} ys */
function along(x, xs, ys) {
  const last = xs.length - 1;
  if (x >= xs[last]) return ys[last];
  const i = Math.max(1, xs.findIndex((known) => known > x));
  return ys[i - 1] + ((ys[i] - ys[i - 1]) * Math.max(0, x - xs[i - 1])) / (xs[i] - xs[i - 1]);
}

/** How long the playhead takes to a moment of the call, in milliseconds. @param {Call} call @param {number} t */
export const playedAt = (call, t) => along(t, call.clock.times, call.clock.plays);

/** Where in its call the player is. @param {Player} player @param {Call} call @param {number} at */
export function playheadOf(player, call, at) {
  if (player.held !== null) return player.held;
  return Math.min(call.end - call.start, along(at - player.began, call.clock.plays, call.clock.times));
}

/**
 * Which call to show at this moment. A live page goes on to the newest; a run that is over is told from its first
 * call to its last, again and again; a failed one keeps its last frame.
 * @param {Player | null} player
 * @param {Known} known
 * @param {number} at
 * @returns {Player | null}
 */
export function advance(player, known, at) {
  const { calls, state } = known;
  if (!calls.length) return null;
  const index = player ? calls.findIndex((call) => call.key === player.key) : -1;
  const start = (/** @type {Call} */ call) => ({ key: call.key, began: at, held: null });
  const over = state === "finished" || state === "replay";
  if (!player || index < 0) return start(state === "replay" ? calls[0] : calls[calls.length - 1]);
  if (player.held !== null) return player;
  const call = calls[index];
  if (at - player.began < call.clock.plays[call.clock.plays.length - 1] + REST_MS) return player;
  if (over) return start(calls[(index + 1) % calls.length]);
  return index === calls.length - 1 ? player : start(calls[calls.length - 1]);
}

/**
 * The frame at a playhead: what is on its way and who waits. Nothing else decides what is drawn.
 * @param {Call} call @param {number} t
 * @returns {{t: number, comets: (Flight & {share: number})[], waiting: Map<number, Row>, away: Set<number>}}
 */
export function frameAt(call, t) {
  const comets = call.flights.filter((f) => f.start <= t && t < f.end)
    .map((f) => ({ ...f, share: (t - f.start) / (f.end - f.start) }));
  const waiting = new Map(call.waits.filter((w) => w.start <= t && t < w.end).map((w) => [w.rank, w]));
  return { t, comets, waiting, away: new Set([...call.came].filter(([, start]) => t < start).map(([rank]) => rank)) };
}

/** The next moment at which a chunk arrives, or the one before. @param {Call} call @param {number} t @param {number} way */
export function stepFrom(call, t, way) {
  if (way > 0) return call.moments.find((m) => m > t + 0.5) ?? call.end - call.start;
  return call.moments.findLast((m) => m < t - 0.5) ?? 0;
}

/** The moment that tells most in a still picture: the most chunks on their way. @param {Call} call */
export function busiest(call) {
  const middles = call.flights.map((f) => (f.start + f.end) / 2);
  const load = (/** @type {number} */ t) => call.flights.filter((f) => f.start <= t && t < f.end).length;
  return middles.reduce((best, t) => (load(t) > load(best) ? t : best), middles[0] ?? 0);
}

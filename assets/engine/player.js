// @ts-check
/**
 * Where the picture is in the run's time, and how it goes on. Pure functions of what is known and
 * the page's own clock.
 *
 * A chunk flies for microseconds. So a live picture *tells* a call of the newest iteration that all
 * ranks have completed (call_choice.js), stretched to about four seconds, then the then-newest. Where calls last for seconds
 * themselves (slow motion, slow links) it *follows* the ranks at their own pace, as far behind as a
 * flight lasts: a flight is known when it has ended. While the ranks are held it goes on,
 * stretched, to the newest row that there is. A reader who holds, scrubs or chooses a speed has the
 * playhead to himself until he goes back to live.
 *
 * @typedef {import("./model.js").Call} Call
 * @typedef {import("./table.js").CallHead} CallHead
 * @typedef {import("./table.js").Table} Table
 * @typedef {import("./call_source.js").CallSource} CallSource
 * @typedef {import("./call_source.js").Telling} Telling
 * @typedef {{id: string, title: string, strategy: string, ranks: number, iterations: number,
 *   cells?: boolean, padded?: boolean, algorithm: string, cores: number, mover?: string, readonly: boolean,
 *   scene?: string, question?: string, home?: string, together?: string,
 *   bottleneck?: {shares?: Record<string, number>, words?: string, also?: string, advice?: string},
 *   inputs?: {servers: number} | null, waiting?: {rank: number, peer: number, words?: string}[] |
 *   null, memory_limit?: number | null, auto?: string | null, alone?: boolean,
 *   can_start?: boolean, trials?: import("./trials.js").Trials | null, planned?: string, emulated: {from: number, to: number,
 *   made: string, down: boolean, words: string}[], notes: string[], levels?: number[],
 *   link_levels?: {made: string, down: boolean}[], theory: Record<string, {steps: number, share: number,
 *   shares?: number[], sends?: string[]}>}
 *   & {[fact: string]: any}} RunFacts  with the facts that scenes bring, by the keys of their
 *   manifests; a scene says of what form its own are
 * @typedef {{events: number, dropped: number, per_second: number, iteration: number,
 *   loss: number | null, accuracy: number | null, record_share: number | null, older: number, coarser?: [number, number] | null,
 *   folded?: [number, number] | null}}
 *   Counters
 * @typedef {{held: boolean, standing: number[], slow_motion: number, slow: Record<string, number>,
 *   frozen: number[], ended: Record<string, string>, how: Record<string, string>, pids: Record<string, number>,
 *   links: {from: number, to: number, latency_ms: number, bandwidth: string, down: boolean,
 *   words: string}[], loads?: number[], corrupts?: number[], cut_off?: Record<string, string>}} Control
 *   cut_off: the hosts of ranks of which nothing comes, by rank;
 *   loads: ranks that load samples themselves; corrupts: those whose next minibatch is to be corrupt
 * @typedef {{rank: number, lane: string, kind: string, peer: number, group: string,
 *   collective: string, algorithm: string, op: number, step: number, chunk: number, since: number,
 *   dtype: string, shape: string, values: number[]}} LaneNow
 * @typedef {{kind: string, rank: number, peer: number, how: string, code: number, doing: string,
 *   found_by: number}} ErrorFields  workbench/common/errors.py says what they mean
 * @typedef {{rank: number, words: string, said: string, doing: string, error: ErrorFields | null}}
 *   LastReport  said: its words without process numbers; doing: "" if it raised
 * @typedef {ErrorFields & {text: string, summary: string, end: string, under_way: LastReport[]}}
 *   Failure  summary: a sentence, "" if only the text tells; end: how the rank ended, in words
 * @typedef {{run: RunFacts | null, seq: number, missed: number, state: string, words: string,
 *   failure: Failure | null,
 *   counters: Counters | null, control: Control | null, lanesNow: LaneNow[], clock: number,
 *   origin: number, table: Table}} Known
 * @typedef {{live: boolean, held: number | null, key: string, began: number, at0: number,
 *   rate: number, rows: number, pace: number, lag: number, t: number}} Player
 *   key: the current call, "" none; at0: where in its animation (ms) it was at `began`; rate:
 *   animation time per page time;
 *   pace: run ns per page ms if a speed was chosen, else 0; t: the playhead of the last frame.
 */

import { EACH_CALL, newestChosen, nextChosen } from "./call_choice.js";

const REST_MS = 700; // how long the picture rests between two calls

const CATCH_UP_MS = 900; // to what a single step has let happen

const LONG_NS = 1.5e9; // calls that last this long are followed at their own pace

const NEAR_NS = 0.3e9; // how far behind the ranks a picture is at least that follows them

/** @type {Player} */
export const AT_START = {
  live: true,
  held: null,
  key: "",
  began: 0,
  at0: 0,
  rate: 1,
  rows: 0,
  pace: 0,
  lag: 0,
  t: 0,
};

/** Whether nothing more will come. @param {{state: string}} known */
export const isOver = (known) => ["finished", "failed", "replay"].includes(known.state);

/**
 * The ranks' own time at this moment, ns since the origin.
 * @param {Telling} known
 * @param {number} at  the page's clock, ms
 */
export const nowOf = (known, at) =>
  Number.isFinite(known.clock) && !isOver(known)
    ? known.clock + at * 1e6
    : Math.max(0, known.table.to);

/**
 * How far a picture is behind the ranks, ns: not at all at the newest row, however long ago that was.
 * @param {Telling} known
 * @param {number} t  its playhead
 * @param {number} at  the page's clock, ms
 */
export const behindOf = (known, t, at) => (t >= known.table.to ? 0 : nowOf(known, at) - t);

/**
 * A value on a line of straight pieces.
 * @param {number} x
 * @param {number[]} xs ascending
 * @param {number[]} ys
 */
export function along(x, xs, ys) {
  const last = xs.length - 1;
  if (x >= xs[last]) return ys[last];
  let low = 1;
  let high = last;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] > x) high = middle;
    else low = middle + 1;
  }
  return (
    ys[low - 1] + ((ys[low] - ys[low - 1]) * Math.max(0, x - xs[low - 1])) / (xs[low] - xs[low - 1])
  );
}

/**
 * How long the telling of a call takes to a moment of it, in milliseconds.
 * @param {Call} call
 * @param {number} t from its start
 */
export const playedAt = (call, t) => along(t, call.clock.times, call.clock.plays);

/** How long its telling takes. @param {Call} call */
export const playsFor = (call) => call.clock.plays[call.clock.plays.length - 1];

/** The newest call with chunks in it, complete or not. @param {CallSource} table */
function latest(table) {
  for (let i = table.calls.length - 1; i >= 0; i--) if (table.calls[i].sends) return table.calls[i];
  return null;
}

/**
 * Whether the ranks are slow enough to be followed as they are.
 * @param {Telling} known
 * @param {number} at
 */
export function isSlow(known, at) {
  const { table } = known;
  const head = latest(table);
  if (!head) return table.rows > 0;
  if (!head.complete)
    return (
      nowOf(known, at) - head.start > LONG_NS ||
      (!!table.newest && table.newest.end - table.newest.start > LONG_NS)
    );
  return head.end - head.start > LONG_NS;
}

/**
 * The playhead, ns since the origin.
 * @param {Player} player
 * @param {Telling} known
 * @param {number} at
 * @param {(key: string) => Call | null} open
 */
export function playheadOf(player, known, at, open) {
  if (player.held !== null) return player.held;
  const { table } = known;
  const end = Math.max(0, table.to);
  if (player.pace) return Math.min(end, player.at0 + (at - player.began) * player.pace);
  const call = player.key ? open(player.key) : null;
  if (!call) return Math.min(end, Math.max(player.t, nowOf(known, at) - player.lag));
  return (
    call.start +
    Math.min(
      call.end - call.start,
      along(player.at0 + (at - player.began) * player.rate, call.clock.plays, call.clock.times),
    )
  );
}

/**
 * How the picture goes on at this moment: the player itself if nothing changes.
 * @param {Player} player
 * @param {Telling} known
 * @param {number} at
 * @param {(key: string) => Call | null} open
 * @returns {Player}
 */
export function advance(player, known, at, open) {
  const { table } = known;
  if (player.held !== null || !table.rows) return player;
  if (player.pace)
    return player.t >= table.to && isOver(known) ? { ...player, held: table.to } : player;
  const over = isOver(known);
  const call = player.key ? open(player.key) : null;
  if (!over && player.live) {
    if (known.control?.held && latest(table)) return catchUp(player, table, at, open);
    if (isSlow(known, at)) return follow(player, known, open);
  }
  if (call && !over && !player.live && !call.complete) return player;
  const done = !call || at - player.began >= (playsFor(call) - player.at0) / player.rate + REST_MS;
  if (!done) return player;
  const next = nextCall(player, known, call);
  if (next === call?.key && known.state === "failed") return player;
  if (next && known.state === "failed" && player.live) return ended(player, next, at, open);
  if (next) return player.began || over ? tell(player, next, at) : begun(player, next, at, open);
  return !call && over ? { ...player, held: null, key: "", lag: 0 } : player;
}

/**
 * What to tell after this call; "" nothing yet.
 * @param {Player} player
 * @param {Telling} known
 * @param {Call | null} call
 * @returns {string}
 */
function nextCall(player, known, call) {
  const { table, state, choice = EACH_CALL } = known;
  const last = latest(table);
  if (!last) return "";
  if (state === "failed") return last.key; // its last frame stays
  const newest = () => newestChosen(table, choice, isOver(known))?.key ?? "";
  const after = (/** @type {Call | null} */ one) => nextChosen(table, choice, one)?.key ?? "";
  if (!call) return state === "replay" ? after(null) : newest();
  if (state === "finished" || state === "replay") return after(call) || after(null);
  if (!player.live) return after(call);
  const next = newest();
  return next !== call.key ? next : "";
}

/**
 * Tell a call from its start.
 * @param {Player} player
 * @param {string} key
 * @param {number} at
 * @returns {Player}
 */
export const tell = (player, key, at) => ({
  ...player,
  held: null,
  key,
  began: at,
  at0: 0,
  rate: 1,
  rows: 0,
  pace: 0,
});

/**
 * The first call that a page tells begins where a chunk leaves: what a newcomer sees first moves.
 * @param {Player} player
 * @param {string} key
 * @param {number} at
 * @param {(key: string) => Call | null} open
 * @returns {Player}
 */
function begun(player, key, at, open) {
  const call = open(key);
  const first = Math.min(...(call?.flights.map((flight) => flight.start) ?? []));
  return {
    ...tell(player, key, at),
    at0: call && Number.isFinite(first) ? playedAt(call, first) : 0,
  };
}

/**
 * A run that failed: at the last moment of what it was in, of which the sentence speaks.
 * @param {Player} player
 * @param {string} key
 * @param {number} at
 * @param {(key: string) => Call | null} open
 * @returns {Player}
 */
function ended(player, key, at, open) {
  const call = open(key);
  return { ...tell(player, key, at), at0: call ? playsFor(call) : 0 };
}

/**
 * @param {Player} player
 * @param {Telling} known
 * @param {(key: string) => Call | null} open
 * @returns {Player}
 */
function follow(player, known, open) {
  const head = latest(known.table);
  const recent = [head, known.table.newest].map((h) => (h ? open(h.key) : null));
  const flight = Math.max(
    0,
    ...recent.flatMap((call) => call?.flights.map((f) => f.end - f.start) ?? []),
  );
  const lag = Math.max(NEAR_NS, flight * 1.1 + NEAR_NS / 2);
  if (player.key === "" && lag <= player.lag) return player;
  return { ...player, key: "", lag: Math.max(lag, player.key === "" ? player.lag : 0) };
}

/**
 * The ranks are held: to the newest row, stretched.
 * @param {Player} player
 * @param {CallSource} table
 * @param {number} at
 * @param {(key: string) => Call | null} open
 * @returns {Player}
 */
function catchUp(player, table, at, open) {
  const head = /** @type {CallHead} */ (latest(table));
  const call = open(head.key);
  if (!call || (player.key === head.key && player.rows === head.rows)) return player;
  const from = player.t >= call.start ? playedAt(call, player.t - call.start) : 0;
  const whole = playsFor(call) - from;
  return {
    ...player,
    key: head.key,
    began: at,
    at0: from,
    rate: Math.max(1e-6, whole / Math.min(CATCH_UP_MS, Math.max(1, whole))),
    rows: head.rows,
    pace: 0,
  };
}

/**
 * Hold the picture at a moment of the run.
 * @param {Player} player
 * @param {number} t
 * @returns {Player}
 */
export const holdAt = (player, t) => ({ ...player, live: false, held: t, t });

/**
 * Let the picture go on from where it is held: at the chosen pace, else by telling call after call.
 * @param {Player} player
 * @param {Telling} known
 * @param {number} at
 * @param {number} pace
 * @param {(key: string) => Call | null} open
 * @returns {Player}
 */
export function playOn(player, known, at, pace, open) {
  const t = player.held ?? player.t;
  if (pace) return { ...player, live: false, held: null, pace, key: "", began: at, at0: t, t };
  const head = known.table.callAt(t);
  const call = head && open(head.key);
  if (!call || !head) return { ...player, live: true, held: null, pace: 0, key: "", lag: NEAR_NS };
  return {
    ...player,
    live: false,
    held: null,
    pace: 0,
    key: head.key,
    began: at,
    at0: playedAt(call, t - call.start),
    rate: 1,
    t,
  };
}

/**
 * Back to the newest.
 * @param {Player} player
 * @param {Telling} known
 * @param {number} at
 * @returns {Player}
 */
export function backToLive(player, known, at) {
  const { table, choice = EACH_CALL } = known;
  const newest = newestChosen(table, choice, isOver(known))?.key ?? latest(table)?.key ?? "";
  const fresh = { ...AT_START, t: isOver(known) ? player.t : 0 };
  return newest ? { ...tell(fresh, newest, at), t: 0 } : fresh;
}

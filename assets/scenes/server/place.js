// @ts-check
/**
 * Where things lie in a parameter server's picture: lanes of workers on a track of iterations, the
 * wall, shards at its end. The wall keeps its place: the slowest worker's iteration is always the
 * same column, so that within a round nothing shifts but what an event moves. Pure geometry, in CSS
 * pixels.
 *
 * @typedef {import("./frame.js").ServerFrame} ServerFrame
 * @typedef {import("./frame.js").Rule} Rule
 * @typedef {{key: string, width: number, height: number, top: number, lane: number, ring: number,
 *   left: number, right: number, columns: number, column: number, past: number,
 *   level: "full" | "line" | "dots", bins: {x: number, y: number, w: number, h: number,
 *   level: "full" | "two" | "line"}[], bottom: number, ports: number, targets: number,
 *   wide: boolean, small: boolean}} Place
 *   left to right: the track; columns of `column` px, the slowest in number `past`; ring: radius of
 *   a worker's mark; ports, targets: where ways begin and end; small: words are short
 */

const TRACK_TOP = 28;
const TRACK_FOOT = 24;
const LEAST_BIN = 24;
const BIN_GAP = 8;
const SMALL_BELOW = 340; // px of the picture
// times the columns that have all their room: a track grows in steps
const GROWN = [1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/** @param {number} workers */
const laneOf = (workers) =>
  workers <= 4 ? 58 : workers <= 8 ? 44 : workers <= 16 ? 26 : workers <= 32 ? 15 : 9;

/**
 * How many columns: as many as have all their room; more, in steps, if workers are further apart.
 * @param {number} room px
 * @param {number} least px of a column
 * @param {number} needed
 * @param {number} iterations  of the run: a short one needs no more columns than it has
 */
export function columnsFor(room, least, needed, iterations = Infinity) {
  const base = Math.max(3, Math.floor(room / least));
  const grown =
    GROWN.map((k) => Math.round(base * k)).find((n) => n >= needed) ?? Math.round(needed * 1.2);
  return Math.min(grown, Math.max(needed, iterations + 1));
}

/**
 * Columns from the slowest to the wall; where there is none, to the fastest, in steps and with room
 * to spare.
 * @param {Rule} rule
 * @param {ServerFrame} frame
 * @param {number} lead  how far anybody led in the last rounds
 */
export function aheadOf(rule, { min, most, workers }, lead) {
  const reached = Math.max(most, min + lead, ...workers.map((w) => w.limit ?? 0)) - min + 1;
  if (rule.high !== null) return Math.max(rule.high + 1, reached);
  return (
    [4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256].find((n) => n > reached) ??
    Math.round(1.5 * reached)
  );
}

/**
 * Heights of bins by share, none so small that its words have no room; they fill `room` if they
 * can.
 * @param {number[]} shares
 * @param {number} room
 */
export function binHeights(shares, room) {
  const n = shares.length;
  const free = room - n * LEAST_BIN - (n - 1) * BIN_GAP;
  if (free <= 0) return shares.map(() => LEAST_BIN);
  const total = shares.reduce((a, b) => a + b, 0) || 1;
  const whole = room - (n - 1) * BIN_GAP;
  const heights = shares.map((s) => (s / total) * whole);
  const small = heights.map((h) => h < LEAST_BIN);
  const taken = small.filter(Boolean).length * LEAST_BIN;
  const rest = heights.reduce((sum, h, i) => sum + (small[i] ? 0 : h), 0);
  return heights.map((h, i) =>
    small[i] ? LEAST_BIN : Math.max(LEAST_BIN, (h / rest) * (whole - taken)),
  );
}

/**
 * @param {number} width
 * @param {number} workers
 * @param {number[]} shares  of the shards
 * @param {number} ahead  columns from the slowest to the wall
 * @param {number} iterations  of the run
 * @returns {Place}
 */
export function placeOf(width, workers, shares, ahead, iterations = Infinity) {
  const wide = width >= 728;
  const lane = laneOf(workers);
  const level = lane >= 44 ? "full" : lane >= 26 ? "line" : "dots";
  const small = width < SMALL_BELOW;
  const most = level === "full" ? (lane > 50 ? 20 : 16) : lane / 2 - (level === "line" ? 2 : 1);
  const ring = small ? Math.min(10, most) : most;
  const left = wide ? 92 : small ? 58 : 84;
  const bin = wide ? 150 : small ? 70 : 112;
  const ways = wide ? 128 : small ? 48 : 84;
  const right = width - bin - ways;
  const room = right - left;
  const columns = columnsFor(room, 2 * ring + (wide ? 6 : 2), ahead + 2, iterations);
  const past = columns - ahead - 1;
  const column = room / columns;
  const lanes = workers * lane;
  const heights = binHeights(shares, lanes - 4);
  const bins = [];
  let y = TRACK_TOP + 2;
  for (const h of heights) {
    bins.push({
      x: width - bin,
      y,
      w: bin - 1,
      h,
      level: /** @type {"full" | "two" | "line"} */ (h >= 76 ? "full" : h >= 44 ? "two" : "line"),
    });
    y += h + BIN_GAP;
  }
  const bottom = TRACK_TOP + lanes;
  const height = Math.max(bottom + TRACK_FOOT, y - BIN_GAP + 4);
  return {
    key: [width, workers, shares.length, columns, past, heights.map(Math.round)].join(),
    width,
    height,
    top: TRACK_TOP,
    lane,
    ring,
    left,
    right,
    columns,
    column,
    past,
    level,
    bins,
    bottom,
    ports: right + 8,
    targets: width - bin - 26,
    wide,
    small,
  };
}

/**
 * Where an iteration's column begins.
 * @param {Place} place
 * @param {number} iteration
 * @param {number} min  the slowest's
 */
export const columnX = (place, iteration, min) =>
  place.left + (iteration - min + place.past) * place.column;
/** The middle of a worker's lane. @param {Place} place @param {number} i */
export const laneY = (place, i) => place.top + (i + 0.5) * place.lane;
/**
 * Where a worker's mark stands: in the middle of its iteration, or at the wall.
 * @param {Place} place
 * @param {number} i
 * @param {import("./frame.js").WorkerNow} worker
 * @param {number} min
 */
export function workerSpot(place, i, worker, min) {
  const column = columnX(place, worker.iteration, min) + place.column / 2;
  const wall = worker.limit === null ? Infinity : columnX(place, worker.limit + 1, min);
  const x =
    worker.doing === "blocked"
      ? Math.max(column, wall - place.ring - 3)
      : Math.min(column, wall - place.ring - 3);
  const y = laneY(place, i) - (place.level === "full" ? 7 : 0);
  return {
    x: Math.max(place.left + place.ring, Math.min(place.right - place.ring, x)),
    y,
    off: x < place.left + place.ring - 1,
  };
}

/**
 * A way between a worker and a shard: f = 0 at the worker, 1 at the shard.
 * @param {Place} place
 * @param {number} worker
 * @param {number} shard
 * @param {number} f
 */
export function wayPoint(place, worker, shard, f) {
  const { bins, ports, targets } = place;
  const y0 = laneY(place, worker);
  const bin = bins[shard];
  const y1 = bin.y + Math.min(bin.h / 2, 20);
  return { x: ports + (targets - ports) * f, y: y0 + (y1 - y0) * f * f * (3 - 2 * f) };
}

/**
 * What lies under the pointer.
 * @param {Place} place
 * @param {number} workers
 * @param {{x: number, y: number, kind: string, from: number, to: number, op: number}[]} comets
 * @param {number} x
 * @param {number} y
 */
export function hitUnder(place, workers, comets, x, y) {
  const comet = comets.find((c) => Math.hypot(c.x - x, c.y - y) < 10);
  if (comet) return { comet };
  const shard = place.bins.findIndex(
    (b) => x >= b.x - 22 && x <= b.x + b.w && y >= b.y && y <= b.y + b.h,
  );
  if (shard >= 0) return { shard };
  const worker = Math.floor((y - place.top) / place.lane);
  return worker >= 0 && worker < workers && x < place.right
    ? { worker, column: Math.floor((x - place.left) / place.column) - place.past }
    : null;
}

// @ts-check
/**
 * The loss of each iteration, read from the metric rows as they come; and its curve. Pure but for
 * the drawing.
 * @typedef {import("./table.js").Table} Table
 * @typedef {{x0: number, x1: number, y0: number, y1: number, low: number, high: number,
 *   apart: number, span: number}} LossAxes
 */
import { grouped } from "./format.js";
import { isOver } from "./player.js";

const MEAN_OVER = 10; // iterations

/**
 * How many ranks tell a loss: all but those that serve; of a pipeline its last stages.
 * @param {import("./player.js").RunFacts | null} run
 */
export const trainers = (run) =>
  run
    ? (run.pipeline?.replicas ?? run.ranks - (run.server?.servers ?? run.inputs?.servers ?? 0))
    : 1;

/**
 * Return whether the newest recorded iteration is complete: nothing more comes, and no rank was lost
 * in it. Servers of parameters do not wait for all of them.
 * @param {import("./player.js").Known} known
 */
export const newestIsWhole = ({ run, state }) =>
  ["finished", "replay"].includes(state) || (!!run?.server && state === "failed");

/**
 * How many iterations a chart has room for: those of the run, -1 if unknown; of one that is over
 * those that it made, for no more will come.
 * @param {import("./player.js").Known} known
 * @param {Losses} losses
 */
export const iterationsShown = (known, losses) =>
  isOver(known) && losses.last >= 0 ? losses.last + 1 : (known.run?.iterations ?? -1);

/**
 * Means over the ranks that recorded a loss, with equal weights (the page does not know how many samples
 * each had).
 */
export class Losses {
  /** @param {Table} table */
  constructor(table) {
    this.table = table;
    this.next = 0; // the next row to read, counted over the whole run
    this.last = -1; // the newest iteration with a loss of any rank
    this.first = Infinity; // the oldest on this page
    this.low = 0; // of whole iterations: one rank's loss alone may lie outside
    this.high = -Infinity;
    this.measured = 0; // iterations that low and high know
    this.ranks = 0; // the most that recorded one
    this.sum = new Float64Array(256);
    this.time = new Float64Array(256); // when the last of its ranks recorded it
    this.count = new Uint16Array(256);
    this.begun = /** @type {number[]} */ ([]); // when the first rank began to compute it
  }

  /** Take in the rows that are new. */
  read() {
    const { table } = this;
    const { metric, forward } = table.code;
    const loss = table.strings.indexOf("loss");
    const from = Math.max(0, this.next - table.forgotten);
    const { kind, name, value, start, end, passage, passages } = table;
    this.next = table.forgotten + table.rows;
    for (let r = from; r < table.rows; r++) {
      const begins = kind[r] === forward;
      if (!begins && (kind[r] !== metric || name[r] !== loss || !Number.isFinite(value[r])))
        continue;
      const iteration = passages.iteration[passage[r]];
      if (iteration < 0) continue;
      if (begins) this.begun[iteration] = Math.min(start[r], this.begun[iteration] ?? Infinity);
      else this.#add(iteration, value[r], end[r]);
    }
    for (
      ;
      this.measured <= this.last &&
      (this.measured < this.last || this.count[this.measured] >= this.ranks);
      this.measured++
    ) {
      if (!this.count[this.measured]) continue;
      this.low = Math.min(this.low, this.at(this.measured));
      this.high = Math.max(this.high, this.at(this.measured));
    }
    return this;
  }

  /** @param {number} iteration @param {number} value @param {number} end */
  #add(iteration, value, end) {
    if (iteration >= this.sum.length) this.#grow(iteration + 1);
    this.sum[iteration] += value;
    this.count[iteration] += 1;
    this.time[iteration] = Math.max(this.time[iteration], end);
    this.last = Math.max(this.last, iteration);
    this.first = Math.min(this.first, iteration);
    this.ranks = Math.max(this.ranks, this.count[iteration]);
  }

  /** @param {number} least */
  #grow(least) {
    const room = Math.max(least, 2 * this.sum.length);
    const larger = (/** @type {any} */ old) => {
      const column = new old.constructor(room);
      column.set(old);
      return column;
    };
    this.sum = larger(this.sum);
    this.time = larger(this.time);
    this.count = larger(this.count);
  }

  /** Return the mean loss of an iteration, NaN if none was recorded. @param {number} iteration */
  at(iteration) {
    return this.count[iteration] ? this.sum[iteration] / this.count[iteration] : NaN;
  }

  /**
   * Return the newest complete iteration: recorded by all ranks that train, or followed by another; of a
   * run that is over the newest. -1: none yet.
   * @param {number} ranks
   * @param {boolean} [over]
   */
  newest(ranks, over = false) {
    for (let i = this.last; i >= 0 && i >= this.last - 64; i--)
      if (this.count[i] && (over || i < this.last || this.count[i] >= ranks)) return i;
    return -1;
  }

  /** Return the last iteration whose loss was recorded by this time, -1 none. @param {number} t */
  until(t) {
    let low = 0;
    let high = this.last + 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.time[middle] <= t) low = middle + 1;
      else high = middle;
    }
    while (low > 0 && !this.count[low - 1]) low--;
    return low - 1;
  }

  /**
   * The mean over the ten iterations up to this one, or as many as there are.
   * @param {number} iteration
   */
  mean(iteration) {
    let sum = 0;
    let count = 0;
    for (let i = Math.max(0, iteration - MEAN_OVER + 1); i <= iteration; i++)
      if (this.count[i]) ((sum += this.at(i)), count++);
    return count ? sum / count : NaN;
  }
}

const lossesOfTables = /** @type {WeakMap<Table, Losses>} */ (new WeakMap());

/** The losses of a table, up to date. @param {Table} table */
export function lossesOf(table) {
  let losses = lossesOfTables.get(table);
  if (!losses) lossesOfTables.set(table, (losses = new Losses(table)));
  return losses.read();
}

/** A loss in three digits or so. @param {number} x */
export const lossWords = (x) =>
  !Number.isFinite(x)
    ? "–"
    : Math.abs(x) >= 1000 || (x && Math.abs(x) < 0.001)
      ? x.toExponential(1)
      : Math.abs(x) >= 10
        ? x.toFixed(1)
        : Math.abs(x) >= 0.1
          ? x.toFixed(2)
          : x.toFixed(4);

/**
 * The next of 1, 2, 2.5, 5 times a power of ten: axes grow in steps, so that a curve does not
 * creep.
 * @param {number} x
 */
export function roundUp(x) {
  const unit = 10 ** Math.floor(Math.log10(x));
  return unit * ([1, 2, 2.5, 5, 10].find((k) => k * unit >= x * (1 - 1e-9)) ?? 10);
}

const FIRST_ROOM = 1000;
const ROOM_GROWS = 4; // iterations; and how many times as many then

/**
 * How many iterations an axis has room for: those of the whole run; of a long one the first
 * thousand, then four thousand and so on, or its beginning would be a line at the edge.
 * @param {number} iterations  of the run, -1 if unknown @param {number} done
 */
export function horizon(iterations, done) {
  if (iterations <= 0) return 2 ** Math.ceil(Math.log2(Math.max(64, done)));
  let room = FIRST_ROOM;
  while (room < done) room *= ROOM_GROWS;
  return Math.min(iterations, room);
}

/**
 * Where the axes are: the iterations have their places from the start, as far as the horizon is.
 * @param {number} width
 * @param {number} height
 * @param {number} iterations  of the run, -1 if unknown
 * @param {Losses} losses @param {number} [most]  a loss that has its place, too
 * @returns {LossAxes}
 */
export function lossAxes(width, height, iterations, losses, most = -Infinity) {
  const top = Math.max(losses.high, most);
  const high = Number.isFinite(top) && top > 0 ? roundUp(top * 1.02) : 2;
  const low = losses.low < 0 ? -roundUp(-losses.low) : 0;
  const span = horizon(iterations, losses.last + 1);
  return {
    x0: 40,
    x1: width - 76,
    y0: height - 20,
    y1: 8,
    low,
    high,
    apart: roundUp((high - low) / 5),
    span,
  };
}

/**
 * Whole numbers under the axis, far enough apart for their digits.
 * @param {{x0: number, x1: number, span: number}} axes
 */
export function iterationTicks({ x0, x1, span }) {
  const least = roundUp((span * 60) / (x1 - x0));
  const apart = least <= 1 ? 1 : Number.isInteger(least) ? least : 2 * least;
  return Array.from({ length: Math.floor(span / apart) + 1 }, (_, k) => k * apart);
}
/**
 * @param {LossAxes} axes
 * @param {number} iteration  its number, from 0: its loss stands at its end
 */
export const lossX = (axes, iteration) =>
  axes.x0 + ((axes.x1 - axes.x0) * (iteration + 1)) / axes.span;
/** @param {LossAxes} axes @param {number} loss */
export const lossY = (axes, loss) =>
  axes.y0 - ((axes.y0 - axes.y1) * (loss - axes.low)) / (axes.high - axes.low);
/** The iteration under a place of the chart. @param {LossAxes} axes @param {number} x */
export const iterationAtX = (axes, x) =>
  Math.round(((x - axes.x0) / (axes.x1 - axes.x0)) * axes.span) - 1;

/**
 * The curve as points, no more than two a pixel column: where iterations share one, its least and
 * its greatest.
 * @param {Losses} losses
 * @param {LossAxes} axes
 * @param {number} from
 * @param {number} to  iterations, both included
 * @returns {[number, number][]}
 */
export function lossPoints(losses, axes, from, to) {
  const points = /** @type {[number, number][]} */ ([]);
  let column = -1;
  let least = Infinity;
  let most = -Infinity;
  const put = (/** @type {number} */ x) => {
    if (least === Infinity) return;
    points.push([x, lossY(axes, most)]);
    if (most !== least) points.push([x, lossY(axes, least)]);
    least = Infinity;
    most = -Infinity;
  };
  const dense = axes.span > axes.x1 - axes.x0;
  for (let i = Math.max(from, 0); i <= to; i++) {
    if (!losses.count[i]) continue;
    const x = lossX(axes, i);
    const at = dense ? Math.floor(x) : i;
    const value = losses.at(i);
    if (at !== column) put(dense ? column : lossX(axes, column));
    column = at;
    least = Math.min(least, value);
    most = Math.max(most, value);
  }
  put(dense ? column : lossX(axes, column));
  return points;
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {LossAxes} axes
 * @param {Losses} losses
 * @param {{shown: number, newest: number, colour: string, lost: boolean, held: boolean,
 *   over?: boolean}} what
 *   shown: the iteration at the playhead; newest: of the run; over: no loss will come any more
 */
export function drawLoss(g, ink, font, axes, losses, what) {
  const { shown, newest, colour, lost, held } = what;
  const { x0, x1, y0, y1, low, high, apart, span } = axes;
  g.font = `11px ${font}`;
  g.textBaseline = "middle";
  g.lineWidth = 1;
  const places = Math.max(
    0,
    -Math.floor(Math.log10(apart) + 1e-9) +
      (Math.abs(apart / 10 ** Math.floor(Math.log10(apart)) - 2.5) < 1e-6 ? 1 : 0),
  );
  for (let k = Math.ceil(low / apart - 1e-9); k * apart <= high + apart * 1e-6; k++) {
    const y = Math.round(lossY(axes, k * apart)) + 0.5;
    g.fillStyle = k === 0 ? ink.edge : ink.rule;
    g.fillRect(x0, y - 0.5, x1 - x0, 1);
    g.fillStyle = ink["ink-3"];
    g.textAlign = "right";
    g.fillText((k * apart).toFixed(places), x0 - 6, y);
  }
  g.textAlign = "center";
  for (const i of iterationTicks(axes))
    g.fillText(grouped(i), x0 + ((x1 - x0) * i) / span, y0 + 12);
  if (newest < 0) {
    g.textAlign = "center";
    g.fillText(
      what.over ? "no loss was recorded" : "the loss of every iteration will appear here",
      (x0 + x1) / 2,
      lossY(axes, (low + high) / 2) - 9,
    );
    return;
  }
  const x = lossX(axes, shown);
  g.fillStyle = ink.panel;
  g.fillRect(x, y1, Math.max(0, x1 - x), y0 - y1); // what is still to come
  const stroke = (
    /** @type {number} */ from,
    /** @type {number} */ to,
    /** @type {string} */ color,
  ) => {
    g.strokeStyle = color;
    g.beginPath();
    for (const [px, py] of lossPoints(losses, axes, from, to)) g.lineTo(px, py);
    g.stroke();
  };
  g.lineJoin = "round";
  g.lineWidth = 1.5;
  if (newest > shown) stroke(shown, newest, ink.edge); // after the moment on show
  if (shown < 0) return;
  stroke(0, shown, ink.ink);
  if (held) {
    g.fillStyle = ink.focus;
    g.fillRect(x - 0.75, y1, 1.5, y0 - y1);
  }
  drawLossPoint(g, ink, font, axes, losses, { shown, newest, colour, lost });
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {LossAxes} axes
 * @param {Losses} losses
 * @param {{shown: number, newest: number, colour: string, lost: boolean}} what
 */
function drawLossPoint(g, ink, font, axes, losses, { shown, newest, colour, lost }) {
  const x = lossX(axes, shown);
  const y = lossY(axes, losses.at(shown));
  g.strokeStyle = g.fillStyle = colour;
  g.beginPath();
  if (lost) {
    g.lineWidth = 2;
    for (const way of [1, -1]) (g.moveTo(x - 5, y - 5 * way), g.lineTo(x + 5, y + 5 * way));
    g.stroke();
  } else {
    g.arc(x, y, 3.5, 0, 7);
    g.fill();
  }
  // In the margin where the curve never comes; beside the point while that is free.
  const free = newest === shown && x + 76 < axes.x1;
  const at = (free ? x : axes.x1) + 9;
  const top = Math.max(axes.y1 + 20, Math.min(axes.y0 - 22, y - 14));
  g.textAlign = "left";
  if (free) {
    g.fillStyle = ink.panel; // no grid line through the numbers
    g.fillRect(at - 2, top - 10, 70, 32);
  }
  g.fillStyle = ink.ink;
  g.font = `700 17px ${font}`;
  g.fillText(lossWords(losses.at(shown)), at, top);
  g.fillStyle = ink["ink-2"];
  g.font = `11px ${font}`;
  g.fillText(`mean ${lossWords(losses.mean(shown))}`, at, top + 16);
}

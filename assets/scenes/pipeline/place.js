// @ts-check
/**
 * Where things are in the pipeline's picture, in CSS pixels: a row a rank, in it its stages below
 * each other, the plan as their shadow, the activations that it holds. Pure functions; what is
 * placed depends on ranks, stages and width only.
 *
 * @typedef {"full" | "slim" | "slimmer" | "tight" | "lines"} PipelineLevel
 * @typedef {{key: string, width: number, left: number, right: number, top: number, rows: number,
 *   lanes: number, level: PipelineLevel, pitch: number, lane: number, bar: number, plan: number,
 *   ribbon: number, bottom: number, height: number}} PipelinePlace
 */

const TOP = 20;
/**
 * Heights: of a lane if a rank has one stage, of each if it has more, of the plan, of the ribbon,
 * between rows.
 * @type {Record<PipelineLevel, number[]>}
 */
const LEVELS = {
  full: [24, 14, 8, 20, 18],
  slim: [20, 13, 6, 9, 8],
  // eight stages and their charts are one screen of 900 px
  slimmer: [18, 11, 5, 6, 3],
  tight: [14, 7, 4, 0, 4],
  lines: [5, 2, 0, 0, 1],
};

/**
 * @param {number} width
 * @param {number} rows  ranks of a pipeline
 * @param {number} lanes  the most stages of a rank
 * @returns {PipelinePlace}
 */
export function placeOf(width, rows, lanes) {
  const level =
    rows <= 4
      ? "full"
      : rows <= 6
        ? "slim"
        : rows <= 8
          ? "slimmer"
          : rows <= 16
            ? "tight"
            : "lines";
  const [one, each, shadow, ribbon, gap] = LEVELS[level];
  const lane = lanes > 1 ? each : one;
  const bar = lane * lanes;
  const plan = shadow && Math.max(shadow, 3 * lanes);
  const pitch = bar + (plan ? plan + 1 : 0) + (ribbon ? ribbon + 5 : 0) + gap + 4;
  const bottom = TOP + rows * pitch;
  return {
    key: `${width} ${rows} ${lanes}`,
    width,
    left: 92,
    right: width - 4,
    top: TOP,
    rows,
    lanes,
    level,
    pitch,
    lane,
    bar,
    plan,
    ribbon,
    bottom,
    height: bottom + 2,
  };
}

/**
 * Where a moment lies.
 * @param {PipelinePlace} place
 * @param {number} t  ns from the picture's start
 * @param {number} scale  ns of its width
 */
export const momentX = (place, t, scale) => place.left + (t / scale) * (place.right - place.left);
/** The moment at a place. @param {PipelinePlace} place @param {number} x @param {number} scale */
export const momentAt = (place, x, scale) =>
  ((x - place.left) / (place.right - place.left)) * scale;
/**
 * The bars of a stage: its upper edge.
 * @param {PipelinePlace} place
 * @param {number} row
 * @param {number} [lane]
 */
export const barTop = (place, row, lane = 0) =>
  place.top + row * place.pitch + 4 + lane * place.lane;
/** The plan below them. @param {PipelinePlace} place @param {number} row */
export const planTop = (place, row) => place.top + row * place.pitch + 5 + place.bar;
/** The ground line of what is held. @param {PipelinePlace} place @param {number} row */
export const ribbonBase = (place, row) => planTop(place, row) + place.plan + 4 + place.ribbon;

const MARGIN = 1.02; // of a width, so that the last bar does not touch the edge
const FULL = 0.9; // share of the width that is filled while the scale stays

/**
 * How long the picture's time is: it ends where what is shown ends. While iterations follow each
 * other it stays as long as they fill nine tenths of it, so that little moves.
 * @param {number} had
 * @param {number} span
 * @param {boolean} still  one iteration is looked at, no other follows by itself
 */
export const scaleOf = (had, span, still) =>
  !still && had >= span && had * FULL <= span ? had : Math.max(1, span * MARGIN);

/**
 * What is under a point: a row and a moment; the axis has row -1.
 * @param {PipelinePlace} place
 * @param {number} x
 * @param {number} y
 * @param {number} scale
 */
export function hitUnder(place, x, y, scale) {
  const row = Math.floor((y - place.top) / place.pitch);
  if (row >= place.rows || x > place.right + 4) return null;
  if (y < place.top)
    return x >= place.left
      ? { row: -1, lane: 0, part: "axis", t: momentAt(place, x, scale) }
      : null;
  const inner = y - barTop(place, row);
  const lane = Math.floor(inner / place.lane);
  const part =
    x < place.left
      ? "name"
      : inner < 0
        ? "gap"
        : inner < place.bar
          ? "bar"
          : place.plan && inner < place.bar + place.plan + 2
            ? "plan"
            : place.ribbon && y <= ribbonBase(place, row) + 2
              ? "held"
              : "gap";
  return {
    row,
    lane: Math.min(place.lanes - 1, Math.max(0, lane)),
    part,
    t: momentAt(place, x, scale),
  };
}

// @ts-check
/**
 * Two charts beside the picture of replicas that mix: how far each was from the mean of all,
 * iteration by iteration, with what mixing alone would leave of it; and what each rank has sent,
 * against an all-reduce in every iteration.
 *
 * @typedef {import("./index.js").PeersIndex} PeersIndex
 * @typedef {import("./index.js").PeerFacts} PeerFacts
 * @typedef {import("./index.js").Spread} Spread
 * @typedef {import("./frame.js").PeersFrame} PeersFrame
 * @typedef {import("../../drawing/chart.js").Chart} Chart
 * @typedef {import("../../drawing/chart.js").Scale} Scale
 * @typedef {{rank: number, sent: number, bound: number}} Sent
 * @typedef {{x: Scale, y: Scale, log: boolean, span: number}} Axes
 *   x: of the iterations that are done; span: their number at the right end
 */
import { horizon, iterationTicks, roundUp } from "../../engine/losses.js";
import { distanceWords, peerInk } from "./draw.js";
import { firstMixing } from "./call_source.js";
import { scale } from "../../drawing/chart.js";
import { bytes, grouped } from "../../engine/format.js";

const FEW = 8; // ranks that have a line each
const DECADES = 5; // that a logarithmic axis shows at most
const MIXING_APART = 5; // px between two mixings, or they are not marked

/**
 * Whether mixing alone lets the disagreement fall by a factor each time.
 * @param {PeerFacts | null} facts
 */
export const decays = (facts) =>
  facts?.rate !== null && facts?.rate !== undefined && facts.rate > 0 && facts.rate < 1;

/**
 * Where the axes are: iterations have their places from the start, as far as the horizon is. Where
 * mixing lets the disagreement fall by a factor each time, they are logarithmic: such a fall is a
 * straight line.
 * @param {number} width
 * @param {number} height
 * @param {number} iterations
 * @param {Spread[]} spreads
 * @param {PeerFacts | null} facts
 * @returns {Axes}
 */
export function spreadAxes(width, height, iterations, spreads, facts) {
  let high = 0;
  let low = Infinity;
  for (const { of, rms } of spreads) {
    for (const d of of.values()) high = Math.max(high, d);
    if (rms > 0) low = Math.min(low, rms);
  }
  const log = decays(facts) && low < high;
  const top = high > 0 ? roundUp(high * 1.02) : 1;
  const span = horizon(iterations, (spreads[spreads.length - 1]?.iteration ?? 0) + 1);
  const up = 10 ** Math.ceil(Math.log10(top));
  const least = Math.max(up / 10 ** DECADES, 10 ** Math.floor(Math.log10(low) - 1e-9));
  const ends = log ? [Math.min(least, up / 10), up] : [0, top];
  return {
    x: scale(0, span, 46, width - 58),
    y: scale(ends[0], ends[1], height - 26, 8, { log, within: true }),
    log,
    span,
  };
}

/** The iteration under a place of the chart. @param {Axes} axes @param {number} px */
export const spreadAtX = ({ x }, px) => Math.round(x.at(px)) - 1;

/**
 * What mixing alone would leave of the disagreement: from where it was greatest on, times λ₂ an
 * iteration.
 * @param {Spread[]} spreads
 * @param {number} at  how many of them count
 * @param {PeerFacts | null} facts
 * @returns {{iteration: number, rms: number, rate: number} | null}
 */
export function mixingAlone(spreads, at, facts) {
  if (!facts || !decays(facts)) return null;
  let from = null;
  for (let i = 0; i < at; i++) if (spreads[i].rms > (from?.rms ?? 0)) from = spreads[i];
  return (
    from && {
      iteration: from.iteration,
      rms: from.rms,
      rate: /** @type {number} */ (facts.rate) ** (1 / Math.max(1, facts.every)),
    }
  );
}

/**
 * A line of values, no more than two points a pixel column: its least and its greatest there.
 * @param {Spread[]} spreads
 * @param {Axes} axes
 * @param {number} from
 * @param {number} to
 * @param {(one: Spread) => number} value
 * @returns {[number, number][]}
 */
export function spreadPoints(spreads, { x, y, span }, from, to, value) {
  const points = /** @type {[number, number][]} */ ([]);
  const dense = span > 2 * (x.to - x.from);
  let column = NaN;
  let least = Infinity;
  let most = -Infinity;
  const put = () => {
    if (most === -Infinity) return;
    points.push([column, y.px(most)]);
    if (least !== most) points.push([column, y.px(least)]);
    [least, most] = [Infinity, -Infinity];
  };
  for (let i = Math.max(0, from); i < to; i++) {
    const end = x.px(spreads[i].iteration + 1);
    const d = value(spreads[i]);
    const bin = dense ? Math.floor(end) : end;
    if (!Number.isFinite(d)) continue;
    if (bin !== column) put();
    column = bin;
    least = Math.min(least, d);
    most = Math.max(most, d);
  }
  put();
  return points;
}

/**
 * @param {Chart} chart
 * @param {PeersIndex} index
 * @param {PeersFrame} frame
 * @param {PeerFacts | null} facts
 * @param {number} iterations
 * @param {number} chosen
 * @param {boolean} held
 * @param {number[]} averaged  iterations in which they mixed, as measured
 */
export function drawSpread(chart, index, frame, facts, iterations, chosen, held, averaged) {
  const { spreads } = index;
  const { g, ink } = chart;
  const axes = spreadAxes(chart.width, chart.height, iterations, spreads, facts);
  const { from: x0, to: x1 } = axes.x;
  const { from: y0, to: y1 } = axes.y;
  const ranks = frame.peers.length;
  drawSpreadGrid(chart, axes);
  if (!spreads.length) {
    const words = "appears with the first iteration of all";
    return chart.write(words, (x0 + x1) / 2, (y0 + y1) / 2 - 9, "ink-3", "center");
  }
  const left = frame.at ? axes.x.px(spreads[frame.at - 1].iteration + 1) : x0;
  chart.box(left, y1, Math.max(0, x1 - left), y0 - y1, "panel"); // what is still to come
  const line = (
    /** @type {string} */ colour,
    /** @type {number} */ wide,
    /** @type {(one: Spread) => number} */ value,
    from = 0,
    to = frame.at,
  ) => chart.line(spreadPoints(spreads, axes, from, to, value), colour, { wide });
  const rms = (/** @type {Spread} */ one) => one.rms;
  const of = (/** @type {number} */ rank) => (/** @type {Spread} */ one) => one.of.get(rank) ?? NaN;
  g.lineJoin = "round";
  if (frame.at < spreads.length) line("edge", 1.25, rms, Math.max(0, frame.at - 1), spreads.length);
  if (ranks <= FEW)
    for (let rank = 0; rank < ranks; rank++)
      line(peerInk(ink, rank, ranks), rank === chosen ? 2.5 : 1, of(rank));
  else {
    line("edge", 1, (one) => Math.max(...one.of.values()));
    line("edge", 1, (one) => Math.min(...one.of.values()));
    if (chosen >= 0) line("focus", 2, of(chosen));
  }
  line("ink", 2, rms);
  drawMixingAlone(chart, axes, spreads, frame, facts);
  drawMixings(chart, axes, facts, averaged, frame.done);
  if (held) chart.box(left - 0.75, y1, 1.5, y0 - y1, "focus");
  const now = frame.at ? spreads[frame.at - 1].rms : NaN;
  if (!Number.isFinite(now)) return;
  const y = Math.max(y1 + 8, Math.min(y0 - 20, axes.y.px(now)));
  chart.write(distanceWords(now), x1 + 7, y, "ink", "left", true);
  chart.write("all", x1 + 7, y + 13);
}

/** @param {number} d */
const gridWords = (d) =>
  d === 0
    ? "0"
    : d >= 0.001 && d < 10_000
      ? String(Number(d.toPrecision(3)))
      : d.toExponential(0).replace("e+", "e").replace("-", "−");

/** @param {Chart} chart @param {Axes} axes */
function drawSpreadGrid(chart, { x, y, log, span }) {
  const [low, high] = [y.low, y.high * 1.0001];
  const marks = [];
  if (log) for (let d = low; d <= high; d *= 10) marks.push(d);
  else for (let k = 0, apart = roundUp(y.high / 4); k * apart <= high; k++) marks.push(k * apart);
  for (const d of marks) {
    const at = Math.round(y.px(d));
    chart.box(x.from, at, x.to - x.from, 1, d === low ? "edge" : "rule");
    chart.write(gridWords(d), x.from - 6, at + 0.5, "ink-3", "right");
  }
  for (const i of iterationTicks({ x0: x.from, x1: x.to, span }))
    chart.write(grouped(i), x.px(i), y.from + 17, "ink-3", "center");
}

/**
 * @param {Chart} chart
 * @param {Axes} axes
 * @param {Spread[]} spreads
 * @param {PeersFrame} frame
 * @param {PeerFacts | null} facts
 */
function drawMixingAlone(chart, { x, y, span }, spreads, frame, facts) {
  const alone = mixingAlone(spreads, frame.at, facts);
  if (!alone) return;
  const { iteration, rms, rate } = alone;
  const last = Math.min(span - 1, iteration + Math.ceil(Math.log(y.low / rms) / Math.log(rate)));
  chart.line(
    [
      [x.px(iteration + 1), y.px(rms)],
      [x.px(last + 1), y.px(rms * rate ** (last - iteration))], // straight: the axis is logarithmic
    ],
    "ideal",
    { wide: 0.9 },
  );
}

/**
 * When all mix, under the axis: as planned, and as it was.
 * @param {Chart} chart
 * @param {Axes} axes
 * @param {PeerFacts | null} facts
 * @param {number[]} averaged
 * @param {number} done
 */
function drawMixings(chart, { x, y, span }, facts, averaged, done) {
  const every = facts?.every ?? 1;
  if (every < 2 || ((x.to - x.from) * every) / span < MIXING_APART) return;
  for (let k = firstMixing(facts); k < span; k += every)
    chart.box(x.px(k + 1) - 0.4, y.from + 1, 0.8, 7, "ideal");
  for (const k of averaged) if (k < done) chart.box(x.px(k + 1) - 1.5, y.from + 2, 3, 6, "comm");
}

/**
 * What each rank has sent, and what an all-reduce of as much in each of its iterations would have
 * made it send.
 * @param {PeersIndex} index
 * @param {PeersFrame} frame
 * @param {number} share  of a replica's bytes that a rank sends in an all-reduce; 0 unknown
 * @returns {Sent[]}
 */
export const sentOf = (index, frame, share) =>
  frame.peers.map(({ rank, sent, done }) => ({ rank, sent, bound: share * index.largest * done }));

/** @param {Chart} chart @param {Sent[]} all @param {number} chosen */
export function drawSent(chart, all, chosen) {
  const { width, height } = chart;
  const most = Math.max(1, ...all.map((one) => Math.max(one.sent, one.bound)));
  const x = scale(0, roundUp(most), 50, width - 66);
  const pitch = (height - 4) / Math.max(1, all.length);
  const tall = Math.max(1, Math.min(14, pitch - (pitch > 6 ? 3 : 0.5)));
  const named = pitch >= 13 ? 1 : Math.ceil(13 / pitch);
  let written = -Infinity; // where a rank was named last
  all.forEach(({ rank, sent, bound }, i) => {
    const y = 2 + i * pitch + (pitch - tall) / 2;
    const middle = Math.max(6, Math.min(height - 6, y + tall / 2));
    const names = i % named === 0 && middle - written >= 12.5;
    if (names) {
      written = middle;
      chart.write(`rank ${rank}`, x.from - 6, middle, rank === chosen ? "focus" : "ink-2", "right");
    }
    chart.box(x.from, y, x.to - x.from, tall, "track");
    chart.box(x.from, y, Math.max(0, x.px(sent) - x.from), tall, "comm");
    if (bound > 0) chart.box(x.px(bound) - 0.5, y - 1, 1.25, tall + 2, "ideal");
    if (names) chart.write(bytes(sent), x.to + 6, middle);
  });
}

/** The chart in words. @param {Sent[]} all */
export const sentWords = (all) =>
  all
    .map(
      ({ rank, sent, bound }) =>
        `rank ${rank} sent ` +
        `${bytes(Math.round(sent))}${bound > 0 ? ` of ${bytes(Math.round(bound))}` : ""}`,
    )
    .join("; ");

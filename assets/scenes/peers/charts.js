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
 * @typedef {{g: CanvasRenderingContext2D, ink: Record<string, string>, font: string, ratio: number,
 *   width: number, height: number}} Chart
 * @typedef {{rank: number, sent: number, bound: number}} Sent
 * @typedef {{x0: number, x1: number, y0: number, y1: number, span: number, log: boolean,
 *   low: number, high: number}} Axes
 */
import { horizon, iterationTicks, roundUp } from "../../engine/losses.js";
import { distanceWords, peerInk } from "./draw.js";
import { firstMixing } from "./call_source.js";
import { writeAt } from "../../drawing/colors.js";
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
  return {
    x0: 46,
    x1: width - 58,
    y0: height - 26,
    y1: 8,
    span,
    log,
    low: log ? Math.min(least, up / 10) : 0,
    high: log ? up : top,
  };
}

/** @param {Axes} axes @param {number} iteration  its end */
export const spreadX = ({ x0, x1, span }, iteration) => x0 + ((x1 - x0) * (iteration + 1)) / span;
/** @param {Axes} axes @param {number} d */
export function spreadY({ y0, y1, log, low, high }, d) {
  const share = log
    ? (Math.log10(Math.max(d, low)) - Math.log10(low)) / (Math.log10(high) - Math.log10(low))
    : (d - low) / (high - low);
  return y0 - (y0 - y1) * Math.max(0, Math.min(1, share));
}
/** The iteration under a place of the chart. @param {Axes} axes @param {number} x */
export const spreadAtX = ({ x0, x1, span }, x) => Math.round(((x - x0) / (x1 - x0)) * span) - 1;

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
export function spreadPoints(spreads, axes, from, to, value) {
  const points = /** @type {[number, number][]} */ ([]);
  const dense = axes.span > 2 * (axes.x1 - axes.x0);
  let column = NaN;
  let least = Infinity;
  let most = -Infinity;
  const put = () => {
    if (most === -Infinity) return;
    points.push([column, spreadY(axes, most)]);
    if (least !== most) points.push([column, spreadY(axes, least)]);
    [least, most] = [Infinity, -Infinity];
  };
  for (let i = Math.max(0, from); i < to; i++) {
    const x = spreadX(axes, spreads[i].iteration);
    const d = value(spreads[i]);
    const bin = dense ? Math.floor(x) : x;
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
export function drawSpread(
  { g, ink, font, width, height },
  index,
  frame,
  facts,
  iterations,
  chosen,
  held,
  averaged,
) {
  const { spreads } = index;
  const axes = spreadAxes(width, height, iterations, spreads, facts);
  const { x0, x1, y0, y1 } = axes;
  const ranks = frame.peers.length;
  const few = ranks <= FEW;
  drawSpreadGrid(g, ink, font, axes);
  if (!spreads.length)
    return writeAt(
      g,
      font,
      "appears with the first iteration of all",
      (x0 + x1) / 2,
      (y0 + y1) / 2 - 9,
      ink["ink-3"],
      "center",
    );
  const left = frame.at ? spreadX(axes, spreads[frame.at - 1].iteration) : x0;
  g.fillStyle = ink.panel;
  g.fillRect(left, y1, Math.max(0, x1 - left), y0 - y1); // what is still to come
  const line = (
    /** @type {string} */ colour,
    /** @type {number} */ wide,
    /** @type {number} */ from,
    /** @type {number} */ to,
    /** @type {(one: Spread) => number} */ value,
  ) => {
    const points = spreadPoints(spreads, axes, from, to, value);
    g.strokeStyle = colour;
    g.lineWidth = wide;
    g.beginPath();
    points.forEach(([x, y], i) => (i ? g.lineTo(x, y) : g.moveTo(x, y)));
    g.stroke();
  };
  g.lineJoin = "round";
  if (frame.at < spreads.length)
    line(ink.edge, 1.25, Math.max(0, frame.at - 1), spreads.length, (one) => one.rms);
  if (few)
    for (let rank = 0; rank < ranks; rank++)
      line(
        peerInk(ink, rank, ranks),
        rank === chosen ? 2.5 : 1,
        0,
        frame.at,
        (one) => one.of.get(rank) ?? NaN,
      );
  else {
    line(ink.edge, 1, 0, frame.at, (one) => Math.max(...one.of.values()));
    line(ink.edge, 1, 0, frame.at, (one) => Math.min(...one.of.values()));
    if (chosen >= 0) line(ink.focus, 2, 0, frame.at, (one) => one.of.get(chosen) ?? NaN);
  }
  line(ink.ink, 2, 0, frame.at, (one) => one.rms);
  drawMixingAlone(g, ink, axes, spreads, frame, facts);
  drawMixings(g, ink, axes, facts, averaged, frame.done);
  if (held) ((g.fillStyle = ink.focus), g.fillRect(left - 0.75, y1, 1.5, y0 - y1));
  const now = frame.at ? spreads[frame.at - 1].rms : NaN;
  if (!Number.isFinite(now)) return;
  const y = Math.max(y1 + 8, Math.min(y0 - 20, spreadY(axes, now)));
  writeAt(g, font, distanceWords(now), x1 + 7, y, ink.ink, "left", true);
  writeAt(g, font, "all", x1 + 7, y + 13, ink["ink-2"]);
}

/** @param {number} d */
const gridWords = (d) =>
  d === 0
    ? "0"
    : d >= 0.001 && d < 10_000
      ? String(Number(d.toPrecision(3)))
      : d.toExponential(0).replace("e+", "e").replace("-", "−");

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {Axes} axes
 */
function drawSpreadGrid(g, ink, font, axes) {
  const { x0, x1, y0, log, low, high, span } = axes;
  const marks = [];
  if (log) for (let d = low; d <= high * 1.0001; d *= 10) marks.push(d);
  else
    for (let k = 0, apart = roundUp(high / 4); k * apart <= high * 1.0001; k++)
      marks.push(k * apart);
  for (const d of marks) {
    const y = Math.round(spreadY(axes, d));
    g.fillStyle = d === low ? ink.edge : ink.rule;
    g.fillRect(x0, y, x1 - x0, 1);
    writeAt(g, font, gridWords(d), x0 - 6, y + 0.5, ink["ink-3"], "right");
  }
  for (const i of iterationTicks({ ...axes, apart: 0 }))
    writeAt(g, font, grouped(i), x0 + ((x1 - x0) * i) / span, y0 + 17, ink["ink-3"], "center");
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {Axes} axes
 * @param {Spread[]} spreads
 * @param {PeersFrame} frame
 * @param {PeerFacts | null} facts
 */
function drawMixingAlone(g, ink, axes, spreads, frame, facts) {
  const alone = mixingAlone(spreads, frame.at, facts);
  if (!alone) return;
  const gone = (/** @type {number} */ k) => alone.rms * alone.rate ** (k - alone.iteration);
  const last = Math.min(
    axes.span - 1,
    alone.iteration + Math.ceil(Math.log(axes.low / alone.rms) / Math.log(alone.rate)),
  );
  g.strokeStyle = ink.ideal;
  g.lineWidth = 0.9;
  g.beginPath();
  g.moveTo(spreadX(axes, alone.iteration), spreadY(axes, alone.rms));
  g.lineTo(spreadX(axes, last), spreadY(axes, gone(last))); // straight: the axis is logarithmic
  g.stroke();
}

/**
 * When all mix, under the axis: as planned, and as it was.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {Axes} axes
 * @param {PeerFacts | null} facts
 * @param {number[]} averaged
 * @param {number} done
 */
function drawMixings(g, ink, axes, facts, averaged, done) {
  const every = facts?.every ?? 1;
  const first = firstMixing(facts);
  if (every < 2 || ((axes.x1 - axes.x0) * every) / axes.span < MIXING_APART) return;
  g.fillStyle = ink.ideal;
  for (let k = first; k < axes.span; k += every)
    g.fillRect(spreadX(axes, k) - 0.4, axes.y0 + 1, 0.8, 7);
  g.fillStyle = ink.comm;
  for (const k of averaged) if (k < done) g.fillRect(spreadX(axes, k) - 1.5, axes.y0 + 2, 3, 6);
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
export function drawSent({ g, ink, font, width, height }, all, chosen) {
  const left = 50;
  const right = width - 66;
  const most = Math.max(1, ...all.map((one) => Math.max(one.sent, one.bound)));
  const scale = roundUp(most);
  const pitch = (height - 4) / Math.max(1, all.length);
  const tall = Math.max(1, Math.min(14, pitch - (pitch > 6 ? 3 : 0.5)));
  const named = pitch >= 13 ? 1 : Math.ceil(13 / pitch);
  let written = -Infinity; // where a rank was named last
  all.forEach(({ rank, sent, bound }, i) => {
    const y = 2 + i * pitch + (pitch - tall) / 2;
    const middle = Math.max(6, Math.min(height - 6, y + tall / 2));
    const names = i % named === 0 && middle - written >= 12.5;
    const to = left + ((right - left) * sent) / scale;
    if (names) written = middle;
    if (names)
      writeAt(
        g,
        font,
        `rank ${rank}`,
        left - 6,
        middle,
        rank === chosen ? ink.focus : ink["ink-2"],
        "right",
      );
    g.fillStyle = ink.track;
    g.fillRect(left, y, right - left, tall);
    g.fillStyle = ink.comm;
    g.fillRect(left, y, Math.max(0, to - left), tall);
    if (bound > 0)
      ((g.fillStyle = ink.ideal),
        g.fillRect(left + ((right - left) * bound) / scale - 0.5, y - 1, 1.25, tall + 2));
    if (names) writeAt(g, font, bytes(sent), right + 6, middle, ink["ink-2"]);
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

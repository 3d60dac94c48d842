// @ts-check
/**
 * Where each worker's time went, up to the playhead: a bar a worker, in parts.
 *
 * @typedef {import("./index.js").ServerIndex} ServerIndex
 * @typedef {import("../../drawing/chart.js").Chart} Chart
 * @typedef {import("../../drawing/pen.js").Pen} Pen
 */
import { TURN_PARTS, partsUntil } from "./worker_time.js";
import { hatched } from "../../drawing/hatch.js";
import { percent } from "../../engine/format.js";

const KEY_LINE = 15; // px

/**
 * Return each worker's time up to t, as shares that add up to 1.
 * @param {ServerIndex} index
 * @param {number} t
 * @param {import("./index.js").Bound} bound
 */
export function sharesUntil(index, t, bound) {
  return [...index.workers.values()].map((worker) => {
    const parts = partsUntil(index, worker, Math.min(t, index.goneAt(worker.rank, t) || t), bound);
    const all = parts.reduce((a, b) => a + b, 0);
    return { rank: worker.rank, shares: [...parts].map((part) => (all ? part / all : 0)), all };
  });
}

/**
 * Draw what stands for a part of a worker's time.
 * @param {Pen} pen
 * @param {number} part
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 */
export function drawPart(pen, part, x, y, w, h) {
  const { g, ink, ratio } = pen;
  if (w <= 0) return;
  if (TURN_PARTS[part] === "pull") {
    g.fillStyle = ink.comm;
    for (let k = 0; k * 3 < w; k++) g.fillRect(x + k * 3, y, Math.min(1.5, w - k * 3), h);
    return;
  }
  if (part === 4) {
    // open: it waits, but not for a worker
    if (w >= 2) pen.outline(x + 0.5, y + 0.5, w - 1, Math.max(0.5, h - 1), "wait");
    return;
  }
  g.fillStyle =
    TURN_PARTS[part] === "compute"
      ? ink.forward
      : TURN_PARTS[part] === "push"
        ? ink.comm
        : hatched(ink.wait, ratio);
  g.fillRect(x, y, w, h);
}

/**
 * Return where the key to the parts of a worker's time goes, on as many lines as it needs.
 * @param {Chart} chart
 */
function partsKey(chart) {
  let x = 0;
  let line = 0;
  const key = TURN_PARTS.map((name, part) => {
    const words = part === 4 ? "server" : name;
    const wide = 13 + chart.wide(words);
    if (x + wide > chart.width) ((x = 0), (line += 1));
    const at = { words, part, x, line };
    x += wide + 7;
    return at;
  });
  return { key, lines: line + 1 };
}

/** @param {Chart} chart @param {ReturnType<typeof sharesUntil>} workers */
export function drawShares(chart, workers) {
  const { width, height } = chart;
  const left = 58;
  const long = width - 42 - left;
  const { key, lines } = partsKey(chart);
  const room = height - 24 - KEY_LINE * (lines - 1);
  const pitch = Math.min(27, room / Math.max(1, workers.length));
  const tall = Math.min(16, pitch - 2);
  const every = pitch >= 12 ? 1 : 2;
  workers.forEach(({ rank, shares }, i) => {
    const y = i * pitch + 2;
    const middle = y + tall / 2;
    let x = left;
    if (i % every === 0) chart.write(`worker ${rank}`, 0, middle);
    if (!shares.some(Boolean)) chart.box(left, y, long, tall, "track");
    shares.forEach((share, part) => {
      drawPart(chart, part, x, y, share * long - 0.75, tall);
      x += share * long;
    });
    if (shares[3] >= 0.005 && i % every === 0)
      chart.write(`${Math.round(shares[3] * 100)} %`, width, middle, "wait", "right", true);
  });
  key.forEach(({ words, part, x, line }) => {
    const y = height - 13 - KEY_LINE * (lines - 1 - line);
    drawPart(chart, part, x, y, 10, 10);
    chart.write(words, x + 13, y + 5);
  });
}

/** Return the chart in words. @param {ReturnType<typeof sharesUntil>} shares */
export const sharesWords = (shares) =>
  shares
    .map(
      ({ rank, shares: parts }) =>
        `worker ${rank}: ${TURN_PARTS.map((name, i) => `${name} ${percent(parts[i])}`).join(", ")}`,
    )
    .join("; ");

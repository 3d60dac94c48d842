// @ts-check
/**
 * The counters beside the matrix: what each rank has sent and received.
 *
 * @typedef {import("../../engine/rates.js").Reading} Reading
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./matrix.js").Grid} Grid
 */
import { along } from "../../engine/player.js";
import { sentAt } from "../../engine/rates.js";
import { duration } from "../../engine/format.js";
import { unitOf } from "./matrix.js";

/** What ranks send by theory, each or from the least to the most. @param {number[]} bounds @param {number} unit */
function boundWords(bounds, unit) {
  const least = plainNumber(Math.min(...bounds) / unit);
  const most = plainNumber(Math.max(...bounds) / unit);
  return least === most ? `bound ${most}` : `bound ${least}–${most}`;
}

/**
 * How far each rank is: its step and its bytes, against what theory says of them.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {Grid} grid
 * @param {Reading} reading
 * @param {number} t
 * @param {number} textTime  the moment whose numbers are written
 */
export function drawCounters(g, { ink, font }, grid, reading, t, textTime) {
  const { steps, bound, bounds, ideal, edges, most, holdings, sends } = reading;
  const done = ideal
    ? along(Math.min(t, ideal), [0, ...edges], [0, ...edges.map((_, k) => (k + 1) / edges.length)])
    : 0;
  const [unit, name] = unitOf(Math.max(bound, most));
  const scale = Math.max(bound, most, 1);
  const rows = Math.ceil(12 / grid.rh);
  const head = (/** @type {string} */ text, /** @type {number} */ x, /** @type {number} */ y) =>
    g.fillText(text, x, y);
  const bars = grid.steps.bar > 0;
  g.textBaseline = "middle";
  g.textAlign = "left";
  g.font = `11px ${font}`;
  g.fillStyle = ink["ink-3"];
  const first = reading.call.collective === "p2p" ? (bars ? "messages" : "sent") : "step";
  const has = steps && ideal && bars; // an ideal beside the number of steps, or below it
  const wide = (/** @type {string} */ text) => g.measureText(text).width;
  const below = has && grid.tail + wide(`of ${steps}`) + 11 + wide("ideal") + 8 > grid.sent.x;
  head(below ? `${first} of ${steps}` : first, grid.tail, 7);
  if (bars) head(`${name} sent`, grid.sent.x, 7);
  else head(name, grid.sent.end - 36, 7);
  if (steps && !below) head(`of ${steps}`, grid.tail, 22);
  if (bound && bars) head(boundWords(bounds, unit), grid.sent.x + 6, 22);
  const at = grid.tail + (below ? 0 : wide(`of ${steps}`) + 6);
  if (has) head("ideal", at + 5, 22);
  g.fillStyle = ink.ideal;
  if (bound && bars) g.fillRect(grid.sent.x + 1, 16, 1.25, 12);
  if (has) g.fillRect(at, 16, 1.25, 12);
  for (let i = 0; i < holdings.ranks.length; i++) {
    const mine = sends.get(holdings.ranks[i]);
    const now = sentAt(mine, t, steps);
    const y = grid.top + i * grid.rh + grid.cell.h / 2;
    const thick = Math.min(6, grid.cell.h);
    if (bars && steps) {
      g.fillStyle = ink.track;
      g.fillRect(grid.steps.x, y - thick / 2, grid.steps.bar, thick);
      g.fillStyle = ink.edge;
      g.fillRect(grid.steps.x, y - thick / 2, grid.steps.bar * now.begun, thick);
    }
    if (bars && bound) {
      g.fillStyle = ink.track;
      g.fillRect(grid.sent.x, y - thick / 2, grid.sent.bar, thick);
      g.fillStyle = ink.comm;
      g.fillRect(grid.sent.x, y - thick / 2, (grid.sent.bar * now.nbytes) / scale, thick);
    }
    g.fillStyle = ink.ideal;
    const reach = Math.min(6, grid.rh / 2 - 0.5);
    if (bars && steps && ideal)
      g.fillRect(grid.steps.x + grid.steps.bar * done - 0.6, y - reach, 1.25, 2 * reach);
    if (bars && bound)
      g.fillRect(
        grid.sent.x + (grid.sent.bar * bounds[i]) / scale - 0.6,
        y - reach,
        1.25,
        2 * reach,
      );
    if (i % rows) continue;
    const counts = sentAt(mine, textTime, steps);
    g.font = `700 11px ${font}`;
    g.textAlign = "right";
    g.fillStyle = ink.ink;
    g.fillText(String(counts.step), grid.steps.x - 4, y + 0.5);
    g.fillText(plainNumber(counts.nbytes / unit), grid.sent.end - 1, y + 0.5);
  }
}

/** @param {number} x */
const plainNumber = (x) =>
  x >= 100 || Number.isInteger(x) ? String(Math.round(x)) : x >= 10 ? x.toFixed(1) : x.toFixed(2);

/**
 * What stands beside a rank's row, in words.
 * @param {Reading} reading
 * @param {number} row
 * @param {number} t
 */
export function counterWords({ call, steps, bounds, most, ideal, holdings, sends }, row, t) {
  const { step, nbytes } = sentAt(sends.get(holdings.ranks[row]), t, steps);
  const bound = bounds[row];
  const [unit, name] = unitOf(Math.max(...bounds, most));
  const lines = [
    `rank ${holdings.ranks[row]}: ${call.collective === "p2p" ? `${step} ` + `${step === 1 ? "message" : "messages"}` : `step ${step}${steps ? ` of ${steps}` : ""}`}, ${plainNumber(nbytes / unit)} ${name} sent${bound ? `, by theory ${plainNumber(bound / unit)} ${name} in all` : ""}`,
  ];
  if (ideal)
    lines.push(`ideal: every step as fast as this call's fastest, ${steps} in ${duration(ideal)}`);
  return lines;
}

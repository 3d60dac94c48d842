// @ts-check
/**
 * The last moments of a call up to the playhead, in words. Pure functions.
 *
 * @typedef {import("../../engine/rates.js").Reading} Reading
 * @typedef {import("./captions.js").Moment} Moment
 */
import { cellAt } from "../../engine/holdings.js";
import { recordsContents } from "../../engine/operation.js";
import { awaited, bytes, duration, pieceName } from "../../engine/format.js";
import { FOR_LONG, cellOf, ranksOf, stateOfCell } from "./captions.js";

/**
 * What has arrived in a gather: whose it is.
 * @param {Reading} reading
 * @param {number} chunk
 * @param {number} from
 * @param {string} contents
 */
function gatheredWords({ holdings }, chunk, from, contents) {
  const owner = holdings.owners.get(chunk);
  return `${owner === undefined || owner === from ? "" : `, the part of rank ${owner}`}: ${contents}`;
}

/** @type {WeakMap<Reading, Moment[]>} */
const tellings = new WeakMap();

/**
 * Return all events of a call that have a caption, in the order of time; captions are built when needed.
 * @param {Reading} reading
 * @returns {Moment[]}
 */
function momentsOf(reading) {
  const earlier = tellings.get(reading);
  if (earlier) return earlier;
  const { call, holdings } = reading;
  const span = call.end - call.start;
  const piece = pieceName(call);
  const moments = /** @type {Moment[]} */ ([]);
  const added = new Set();
  const hasContents = recordsContents(call.rows);
  for (const r of call.rows)
    if (r.kind === "reduce") added.add(`${r.peer}>${r.rank}/${r.step}/${r.chunk}/${r.slot}`);
  const contents = (
    /** @type {number} */ rank,
    /** @type {number} */ chunk,
    /** @type {number} */ t,
  ) => {
    const cell = cellOf(reading, rank, chunk);
    const { parts, complete, slots } = cellAt(holdings, cell, stateOfCell(reading, cell, t), t);
    const sum = parts.reduce((all, p) => all + p.within, 0) / slots;
    if (holdings.way === "hear")
      return complete
        ? "of all"
        : `of ${ranksOf(parts.filter((p) => p.within).map((p) => p.rank))}`;
    if (holdings.way === "keep")
      return complete || parts.some((p) => p.within === slots)
        ? "it has all of it"
        : `${Math.round(100 * sum)} % of it is here`;
    const twice = parts.filter((p) => p.twice).map((p) => p.rank);
    return complete
      ? "complete"
      : twice.length
        ? `${ranksOf(twice)} ${twice.length > 1 ? "are" : "is"} in more than once`
        : `${Number.isInteger(sum) ? sum : sum.toFixed(1)} of ${parts.length} contributions`;
  };
  for (const f of call.flights) {
    const later = added.has(`${f.from}>${f.to}/${f.step}/${f.chunk}/${f.slot}`);
    if (holdings.way === "hear")
      moments.push({
        at: f.end,
        words: () =>
          `rank ${f.to} heard from rank ${f.from} (${duration(f.end - f.start)}): it knows ` +
          `${contents(f.to, f.chunk, f.end)}`,
      });
    else
      moments.push({
        at: f.end,
        words: () =>
          `rank ${f.to} received ${piece} ${f.chunk} from rank ${f.from} ` +
          `(${bytes(f.nbytes)} in ${duration(f.end - f.start)})` +
          (later || !hasContents || piece === "message"
            ? ""
            : holdings.way === "keep"
              ? gatheredWords(reading, f.chunk, f.from, contents(f.to, f.chunk, f.end))
              : f.fused
                ? ` and added it: ${contents(f.to, f.chunk, f.end)}`
                : `, which replaces its own: ${contents(f.to, f.chunk, f.end)}`),
      });
  }
  for (const r of call.rows) {
    if (r.kind === "reduce")
      moments.push({
        at: r.end,
        words: () =>
          `rank ${r.rank} added ` +
          `${r.peer === r.rank ? "its own part to" : `what rank ${r.peer} sent of`} chunk ` +
          `${r.chunk}${hasContents ? `: ${contents(r.rank, r.chunk, r.end)}` : ""}`,
      });
    if (r.kind === "wait" && r.end - r.start > FOR_LONG * span)
      moments.push({
        at: r.end,
        words: () =>
          `rank ${r.rank} had waited ${duration(r.end - r.start)} for ${awaited(r, true, piece)}`,
      });
    if (r.kind === "collective" && call.complete)
      moments.push({ at: r.end, words: () => `rank ${r.rank} has finished` });
  }
  for (const [rank, start] of call.came)
    if (start > FOR_LONG * span)
      moments.push({
        at: start,
        words: () => `rank ${rank} joined in, ${duration(start)} after the first`,
      });
  moments.sort((a, b) => a.at - b.at);
  tellings.set(reading, moments);
  return moments;
}

/**
 * The last moments up to t, oldest first.
 * @param {Reading} reading
 * @param {number} t
 * @param {number} lines
 * @returns {[string, string][]}
 */
export function lastMoments(reading, t, lines) {
  const moments = momentsOf(reading);
  let low = 0;
  let high = moments.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (moments[middle].at <= t) low = middle + 1;
    else high = middle;
  }
  return moments
    .slice(Math.max(0, low - lines), low)
    .map(({ at, words }) => [duration(at), words()]);
}

// @ts-check
/** Captions of samples: a sentence, what a cell is, which rank takes how many. Pure functions. */

import { dealsSame, elsewhere } from "./deal.js";
import { grouped } from "../../engine/format.js";

/** @typedef {import("./deal.js").Deal} Deal */
/** @typedef {import("./deal.js").DealtBatch} DealtBatch */

/** @param {number} n @param {string} what */
const so = (n, what) => `${grouped(n)} ${what}${n === 1 ? "" : "s"}`;
/** "7, 7 and 6". @param {(string | number)[]} all */
const and = (all) =>
  all.length < 2 ? all.join() : `${all.slice(0, -1).join(", ")} and ${all[all.length - 1]}`;
const LISTED_NUMBERS = 8; // numbers that are listed one by one

/** Which minibatch. @param {Deal} deal @param {DealtBatch} batch */
export const batchName = (deal, batch) =>
  `minibatch ${batch.number}${deal.several ? ` of epoch ${batch.epoch}` : ""}`;

/** How a minibatch is shared out. @param {Deal} deal @param {DealtBatch} batch */
export function dealWords(deal, batch) {
  const { parts } = batch;
  const least = Math.min(...parts);
  const most = Math.max(...parts);
  const all = parts.reduce((a, b) => a + b, 0);
  const each =
    least === most
      ? `${least} each`
      : parts.length <= LISTED_NUMBERS
        ? and(parts)
        : `${least} to ${most} each`;
  const first = `${so(all, "sample")} over ${so(parts.length, "rank")}, ${each}`;
  if (dealsSame(batch)) return `${first}: the same samples as one process takes`;
  const wrong = [
    batch.again ? `${batch.again} taken before in this epoch` : "",
    batch.lack ? `${batch.lack} of one process's not taken` : "",
    batch.extra > batch.again ? `${batch.extra - batch.again} that it has elsewhere` : "",
  ].filter(Boolean);
  return `${first}: not the samples that one process takes: ${and(wrong)}`;
}

/**
 * @param {Deal | null} deal
 * @param {number[]} at  iteration of each rank at the playhead
 * @param {boolean} runs
 */
export function sentenceOf(deal, at, runs) {
  if (!deal) return "After the first iteration you see which sample goes to which rank.";
  const count = deal.batches.length;
  if (!runs) return deal.facts.words ?? dealWords(deal, deal.batches[0]);
  const newest = Math.max(...at);
  const slowest = Math.min(...at);
  if (newest < 0)
    return (
      "The ranks have not begun. " +
      `${so(count, "minibatch").replace("minibatchs", "minibatches")} are known.`
    );
  const batch = deal.batches[slowest < 0 ? newest : slowest];
  if (!batch)
    return (
      `The ranks are in iteration ${grouped(newest + 1)}; ` +
      `${count === 1 ? "the first minibatch is" : `the first ${count} minibatches are`} shown.`
    );
  const spread =
    newest > slowest
      ? ` Rank ${deal.ranks[at.indexOf(newest)]} is ` +
        `${slowest < 0 ? "the first to begin" : `${newest - slowest} ahead`}.`
      : "";
  const name = batchName(deal, batch);
  return `${name[0].toUpperCase()}${name.slice(1)}: ${dealWords(deal, batch)}.${spread}`;
}

/**
 * A sample of a minibatch.
 * @param {Deal} deal
 * @param {DealtBatch} batch
 * @param {number} column
 * @param {number} row  -1: one process
 * @returns {string[]}
 */
export function sampleLines(deal, batch, column, row) {
  const { sample, alone, takers } = batch.columns[column];
  const lines = [`sample ${grouped(sample)} · ${batchName(deal, batch)}`];
  lines.push(alone ? `one process takes it as number ${column}` : takenAlone(deal, batch, sample));
  const shown = takers.filter((t) => row < 0 || t.row === row);
  for (const t of shown)
    lines.push(
      `rank ${deal.ranks[t.row]} takes it as number ` +
        `${t.place}${t.again ? ", again: this epoch has had it" : ""}`,
    );
  if (!shown.length)
    lines.push(
      takers.length
        ? `rank ${deal.ranks[row]} does not take it; rank ` +
            `${and(takers.map((t) => deal.ranks[t.row]))} does`
        : "no rank takes it here",
    );
  const others = (deal.seen.get(sample) ?? []).filter((one) => one.index !== batch.index);
  if (others.length)
    lines.push(
      `also: ${others
        .slice(0, 3)
        .map((one) => `${batchName(deal, deal.batches[one.index])} on rank ${deal.ranks[one.row]}`)
        .join("; ")}${others.length > 3 ? ` and ${others.length - 3} more` : ""}`,
    );
  return lines;
}

/** @param {Deal} deal @param {DealtBatch} batch @param {number} sample */
function takenAlone(deal, batch, sample) {
  const where = elsewhere(deal, batch, sample);
  return where < 0
    ? "one process does not take it, as far as is known"
    : `one process takes it in ${batchName(deal, deal.batches[where])}`;
}

/**
 * A rank's part of a minibatch, or one process's.
 * @param {Deal} deal
 * @param {DealtBatch} batch
 * @param {number} row
 * @returns {string[]}
 */
export function partLinesOf(deal, batch, row) {
  const part =
    row < 0
      ? batch.columns
          .filter((c) => c.alone)
          .map((c) => ({ sample: c.sample, place: 0, again: false }))
      : batch.columns
          .flatMap((c) =>
            c.takers
              .filter((t) => t.row === row)
              .map((t) => ({ sample: c.sample, place: t.place, again: t.again })),
          )
          .sort((a, b) => a.place - b.place);
  const ids = part
    .slice(0, 16)
    .map((one) => (one.again ? `(${one.sample})` : one.sample))
    .join(" ");
  const more = part.length > 16 ? ` and ${part.length - 16} more` : "";
  const who = row < 0 ? "one process" : `rank ${deal.ranks[row]}`;
  const again = part.filter((one) => one.again).length;
  return [
    `${who} · ${batchName(deal, batch)}: ${so(part.length, "sample")}`,
    ids ? ids + more : "nothing",
    ...(again ? ["in brackets: taken before in this epoch"] : []),
    ...(row < 0 ? [dealWords(deal, batch)] : []),
  ];
}

/** Which minibatches are on show. @param {Deal} deal @param {number} first @param {number} last */
export function shownWords(deal, first, last) {
  const count = deal.batches.length;
  const { more } = deal.facts;
  return [
    first === last
      ? `minibatch ${first} of ${grouped(count)}`
      : `minibatches ${first} to ${last} of ${grouped(count)}`,
    more > 0 ? `${grouped(more)} more are not listed here` : "",
  ]
    .filter(Boolean)
    .join(" · ");
}

/** A sample that is chosen, everywhere. @param {Deal} deal @param {number} sample */
export function chosenSampleWords(deal, sample) {
  const all = deal.seen.get(sample) ?? [];
  if (!all.length) return `sample ${grouped(sample)}: no rank takes it, as far as is known`;
  return `sample ${grouped(sample)}: ${all
    .slice(0, 6)
    .map(
      (one) =>
        `${batchName(deal, deal.batches[one.index])} on rank ` +
        `${deal.ranks[one.row]}${one.again ? " (again)" : ""}`,
    )
    .join("; ")}${all.length > 6 ? ` and ${all.length - 6} more` : ""}`;
}

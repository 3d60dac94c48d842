// @ts-check
/**
 * What is said of a job that marks no iterations and tells no loss: its calls, what each rank has
 * sent, and what share of the time it has waited.
 *
 * @typedef {import("../../engine/player.js").Known} Known
 */
import { bytes, counted, duration } from "../../engine/format.js";
import { onlyOperations } from "../../engine/run_words.js";
import { sentTotals } from "../../engine/sent_totals.js";

const LISTED_RANKS = 8; // of many ranks those that wait longest

/**
 * Whether this is a run of which no loss is ever known: somebody else's job, or a notebook's cells;
 * not of one that may be started here.
 * @param {Known} known
 * @param {number} newest  the newest iteration with a loss
 */
export const tellsNoLoss = ({ run, state }, newest) =>
  !!run && !run.strategy && newest < 0 && !(state === "empty" && run.can_start);

/**
 * What the ranks of a job did, counted: "25 operations", "3 calls", "6 messages"; "" if nothing.
 * @param {Known} known
 */
export function doneWords(known) {
  const [count, unit] = countOf(known);
  return count ? counted(count, unit) : "";
}

/** @param {Known} known @returns {[number, string]} */
function countOf(known) {
  const { table } = known;
  if (onlyOperations(known)) {
    const messages = table.calls.length ? 0 : messagesIn(table);
    return messages ? [messages, "message"] : [table.calls.length, "operation"];
  }
  if (table.calls.length) return [table.completed, "call"];
  return [messagesIn(table), "message"];
}

/** @param {Known["table"]} table */
const messagesIn = (table) => sentTotals(table).reduce((sum, { messages }) => sum + messages, 0);

/**
 * The lines: whose, what was sent and waited, and the share of the time that was waited.
 * @param {Known} known
 * @returns {{name: string, words: string, share: number}[]}
 */
export function trafficLines(known) {
  const { table } = known;
  const bare = onlyOperations(known);
  const lasts = Math.max(0, table.to - Math.max(0, table.from));
  const totals = sentTotals(table);
  const [calls, unit] = countOf(known);
  const rate = lasts > 0 ? (calls * 1e9) / lasts : 0;
  const listed =
    totals.length > LISTED_RANKS
      ? [...totals].sort((a, b) => b.waited - a.waited).slice(0, LISTED_RANKS)
      : totals;
  return [
    {
      name: "all",
      words: calls
        ? `${counted(calls, unit)}, ${rate >= 10 ? Math.round(rate) : rate.toFixed(1)} per second`
        : `no ${unit} was completed`,
      share: NaN,
    },
    ...listed.map(({ rank, sent, waited, handed, inside }) => {
      if (bare)
        return {
          name: `rank ${rank}`,
          words:
            `${handed ? `handed over ${bytes(handed)}` : "sizes not recorded"}, ` +
            `operations lasted ${duration(inside)} in all`,
          share: NaN,
        };
      const share = lasts > 0 ? Math.min(1, waited / lasts) : 0;
      return {
        name: `rank ${rank}`,
        words: `sent ${bytes(sent)}, waited ${duration(waited)} (${Math.round(100 * share)} %)`,
        share,
      };
    }),
  ];
}

/** Bring the list up to date. @param {HTMLElement} list @param {Known} known */
export function sayTraffic(list, known) {
  const lines = trafficLines(known);
  const text = JSON.stringify(lines);
  if (list.dataset.lines === text) return;
  list.dataset.lines = text;
  list.replaceChildren(
    ...lines.flatMap(({ name, words, share }) => {
      const line = document.createElement("dd");
      const bar = line.appendChild(document.createElement("i"));
      bar.style.width = Number.isFinite(share) ? `${Math.round(100 * share)}px` : "0";
      line.append(words);
      return [Object.assign(document.createElement("dt"), { textContent: name }), line];
    }),
  );
}

// @ts-check
/**
 * What lies under the pointer of the collectives' pictures, in words: an entry of the matrix, a
 * chunk on its way, a link, a rank. Pure functions; no claim that the rows do not bear.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../engine/player.js").Known} Known
 * @typedef {import("../../engine/player.js").LaneNow} LaneNow
 * @typedef {import("../../engine/rates.js").Reading} Reading
 * @typedef {import("./ring.js").Mark} Mark
 * @typedef {import("./captions.js").Frame} Frame
 */
import { awayWords } from "../../engine/does_words.js";
import { cellAt, isComplete } from "../../engine/holdings.js";
import { sendKey } from "../../engine/replayed_cells.js";
import { madeLinks } from "../../engine/rates.js";
import { messageWords } from "./message_captions.js";
import { carriesNaN, cellHasNaN, nanWords } from "../../engine/poison.js";
import { awaited, bytes, duration, pieceName } from "../../engine/format.js";
import { bitRate, ranksOf } from "./captions.js";

// ---- under the pointer

/**
 * Whose parts, in words.
 * @param {{rank: number, within: number, twice: number}[]} parts
 * @param {number} slots
 */
function partsWords(parts, slots) {
  const whole = parts.filter((p) => p.within === slots).map((p) => p.rank);
  const some = parts.filter((p) => p.within > 0 && p.within < slots);
  const partly = some.length
    ? `${whole.length ? ", and partly of " : "partly of "}${ranksOf(some.map((p) => p.rank))}`
    : "";
  return `${whole.length ? ranksOf(whole) : ""}${partly}`;
}

/**
 * A cell of the matrix.
 * @param {Reading} reading
 * @param {Frame} frame
 * @param {number} cell
 * @param {number} state
 * @param {import("../../engine/poison.js").Poison | null} [poison]
 */
export function cellWords(reading, frame, cell, state, poison = null) {
  const { holdings } = reading;
  const { complete, parts, slots, doubled, lacking } = cellAt(holdings, cell, state, frame.t);
  const rank = holdings.ranks[Math.floor(cell / holdings.chunks.length)];
  const chunk = holdings.chunks[cell % holdings.chunks.length];
  const untouched = parts.every((p) => p.within > 0 === (p.rank === rank));
  const owner = holdings.owners.get(chunk);
  const asked = !!holdings.asked[cell];
  if (reading.call.collective === "p2p")
    return [
      `rank ${rank}, message ${chunk}: ${messageWords(
        reading,
        rank,
        chunk,
        parts.reduce((sum, p) => sum + p.within, 0),
        slots,
      )}`,
      ...(lacking.length ? ["✕ it was never received"] : []),
      ...arrivingWords(frame, rank, chunk),
    ];
  if (holdings.way === "keep")
    return [
      `rank ${rank}, chunk ${chunk}: ${keptWords(
        rank,
        owner ?? -1,
        parts.reduce((sum, p) => sum + p.within, 0),
        slots,
        asked,
      )}`,
      ...(lacking.length ? [`✕ rank ${rank} has finished without it`] : []),
      ...arrivingWords(frame, rank, chunk),
    ];
  if (holdings.way === "hear")
    return [
      `rank ${rank} has heard of ` +
        `${complete ? "all" : ranksOf(parts.filter((p) => p.within).map((p) => p.rank))}`,
      ...(lacking.length
        ? [`✕ rank ${rank} has finished and has not heard of ${ranksOf(lacking)}`]
        : []),
      ...arrivingWords(frame, rank, chunk),
    ];
  const holds = complete
    ? "complete, the sum of all"
    : untouched
      ? "its own part only"
      : `sum of ${partsWords(parts, slots)}`;
  const lines = [
    `rank ${rank}, chunk ${chunk}: ` +
      `${holds}${complete ? "" : ` (${parts.filter((p) => p.within === slots).length} of ${parts.length})`}${slots > 1 ? `, in ${slots} pieces` : ""}`,
  ];
  if (doubled.length) lines.push(`✕ the part of ${ranksOf(doubled)} is in more than once`);
  if (lacking.length)
    lines.push(`✕ rank ${rank} has finished, and the part of ${ranksOf(lacking)} is missing`);
  if (poison && cellHasNaN(poison, holdings, cell, state))
    lines.push(`it holds ${nanWords(poison)}`);
  if (!asked && !complete) lines.push("nothing of it must be here at the end");
  return [...lines, ...arrivingWords(frame, rank, chunk)];
}

/**
 * What a rank has of a chunk that is handed on as it is.
 * @param {number} rank
 * @param {number} owner
 * @param {number} arrived  pieces
 * @param {number} slots  of how many
 * @param {boolean} asked
 */
function keptWords(rank, owner, arrived, slots, asked) {
  if (!arrived)
    return asked
      ? `not here yet, the part of rank ${owner}`
      : "nothing of it must be here at the end";
  if (arrived < slots)
    return `${arrived} of ${slots} pieces are here, of the part of rank ${owner}`;
  if (owner === rank) return asked ? "its own part" : "its own, to be handed on";
  return `here${asked ? "" : " to be handed on"}, the part of rank ${owner}`;
}

/** @param {Frame} frame @param {number} rank @param {number} chunk */
const arrivingWords = (frame, rank, chunk) =>
  frame.comets.flatMap((c) =>
    c.to === rank && c.chunk === chunk
      ? [
          c.lying
            ? `it has come from rank ${c.from}, and lies there`
            : `arriving from rank ${c.from}: ${Math.round(c.share * 100)} % of ` +
              `${duration(c.end - c.start)}`,
        ]
      : [],
  );

/**
 * A chunk on its way.
 * @param {Reading} reading
 * @param {Mark} mark
 * @param {import("../../engine/poison.js").Poison | null} [poison]
 */
export function chunkWords(reading, mark, poison = null) {
  if (reading.call.collective === "p2p")
    return [
      `message ${mark.chunk} from rank ${mark.from} to rank ${mark.to}, ` +
        `${bytes(mark.nbytes)}: ` +
        `${mark.lying ? "it lies there, not received" : `${Math.round(mark.share * 100)} % of its ${duration(mark.end - mark.start)}`}`,
    ];
  const { ranks, carried, way, owners } = reading.holdings;
  const counts = Array.from(carried.get(sendKey(mark)) ?? []);
  const whole = isComplete(reading.holdings, counts);
  const parts = ranks.filter((_, i) => counts[i] > 0);
  const twice = way === "sum" ? ranks.filter((_, i) => counts[i] > 1) : [];
  const lines = [
    `chunk ${mark.chunk} from rank ${mark.from} to rank ${mark.to}: ` +
      `${mark.lying ? "it lies there, not received" : `${Math.round(mark.share * 100)} % of its ${duration(mark.end - mark.start)}`}, ` +
      `${bytes(mark.nbytes)}`,
    way === "keep"
      ? `the part of rank ${owners.get(mark.chunk)}`
      : way === "hear"
        ? `news of ${ranksOf(parts)}`
        : whole
          ? "complete: the sum of all"
          : `sum of ${ranksOf(parts)} (${parts.length} of ${ranks.length})`,
    `step ${mark.step + 1}${mark.phase ? `, ${mark.phase.replaceAll("_", "-")}` : ""}`,
  ];
  if (poison && carriesNaN(poison, mark.chunk, counts))
    lines.push(`it carries ${nanWords(poison)}`);
  if (twice.length) lines.splice(2, 0, `✕ the part of ${ranksOf(twice)} is in more than once`);
  return lines;
}

/**
 * A link.
 * @param {Reading} reading
 * @param {Known} known
 * @param {number} from
 * @param {number} to
 * @param {number} t
 */
export function linkWords(reading, known, from, to, t) {
  const piece = pieceName(reading.call);
  const link = reading.links.get(`${from}>${to}`);
  const emulated = madeLinks(known, reading.links.keys()).get(`${from}>${to}`);
  const lines = [];
  if (link) {
    const gone = reading.call.flights.filter((f) => f.from === from && f.to === to && f.end <= t);
    lines.push(
      `link ${from} → ${to}: ` +
        `a ${piece} takes ${duration(link.took || link.hop)} from send to receipt` +
        `${link.rate > 0 ? `, ${bitRate(link.rate)}` : ""}; a hop at least ` +
        `${duration(link.hop)}`,
      `${gone.length} of ${link.flights} ` +
        `${link.flights === 1 ? `${piece} has` : `${piece}s have`} arrived, ` +
        `${bytes(gone.reduce((sum, f) => sum + Math.max(0, f.nbytes), 0))}`,
    );
  } else lines.push(`link ${from} → ${to}`);
  if (emulated) lines.push(`made by us: ${emulated.words}`);
  return lines;
}

/**
 * What a rank is in, in a few words and in full.
 * @param {import("./ring_draw.js").RankState} state
 * @param {Frame | null} frame
 * @param {LaneNow[]} now
 * @param {string} [piece]
 */
export function rankWords(state, frame, now, piece = "chunk") {
  const { rank, wait, blocked, ended, held, frozen, host, factor, away, member } = state;
  const lines = [`rank ${rank}`];
  if (!member) return [`rank ${rank} is not in this group`];
  if (ended) lines[0] = `rank ${rank}: ${ended}`;
  else if (host !== null) lines[0] = `rank ${rank}: ${awayWords(host)}`;
  else if (wait && frame)
    lines[0] =
      `rank ${rank} has waited ${duration(frame.t - wait.start)} for ` +
      `${awaited(wait, true, piece)}`;
  else if (blocked)
    lines[0] =
      blocked.words ||
      `rank ${rank} waits for ` +
        `${(blocked.chunk ?? -1) >= 0 ? `chunk ${blocked.chunk} from ` : ""}rank ` +
        `${blocked.peer}`;
  else if (away) lines[0] = `rank ${rank} has not joined in yet`;
  const sends = frame?.comets.filter((c) => c.from === rank) ?? [];
  for (const c of sends.slice(0, 3))
    lines.push(
      c.lying
        ? `its ${piece} ${c.chunk} lies at rank ${c.to}, not received`
        : `its ${piece} ${c.chunk} is on its way to rank ${c.to}`,
    );
  if (frozen) lines.push("frozen by you: its process is stopped");
  if (factor !== 1) lines.push(`slowed by you: computes ×${factor} as long`);
  if (held) {
    const at = now.find((l) => l.rank === rank && l.step >= 0);
    lines.push(
      `held by you${at ? ", before step " + `${at.step + 1}${at.chunk >= 0 ? `, chunk ${at.chunk}` : ""}` : ""}`,
    );
  }
  return lines;
}

/**
 * The first values of what a rank holds of a chunk, while the ranks are held there.
 * @param {Look} look
 * @param {number} rank
 * @param {number} chunk
 * @returns {string[]}
 */
export function valueWords({ known, call }, rank, chunk) {
  const lane = known.lanesNow.find(
    (l) =>
      l.rank === rank &&
      l.chunk === chunk &&
      l.op === call?.op &&
      l.group === call?.group &&
      l.values.length,
  );
  if (!lane) return [];
  const values = lane.values
    .slice(0, 5)
    .map((v) =>
      v === null
        ? "not finite"
        : Math.abs(v) >= 1e4 || (v !== 0 && Math.abs(v) < 1e-3)
          ? v.toExponential(2)
          : v.toPrecision(3),
    );
  return [`first values: ${values.join("  ")} …`, `${lane.dtype || "values"} ${lane.shape}`.trim()];
}

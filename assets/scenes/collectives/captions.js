// @ts-check
/**
 * What the collectives' picture says: one sentence, the last moments, the fact in the middle, every
 * mark under the pointer. Pure functions of a call's reading and the playhead; no claim that the
 * picture does not show.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../engine/player.js").Known} Known
 * @typedef {import("../../engine/rates.js").Reading} Reading
 * @typedef {ReturnType<typeof import("../../engine/model.js").frameAt>} Frame
 * @typedef {{at: number, words: () => string}} Moment
 */
import { callCause } from "../../engine/call_cause.js";
import { cellAt, holdingsAt, isComplete } from "../../engine/holdings.js";
import { sendKey } from "../../engine/replayed_cells.js";
import { frameAt } from "../../engine/model.js";
import { heldUp, madeLinks, median } from "../../engine/rates.js";
import { generationsOf, lostAt } from "../../engine/generations.js";
import { heldWithin } from "../../engine/holds.js";
import { failedHere } from "../../engine/failure_caption.js";
import { isOver } from "../../engine/player.js";
import { poisonOf, reachedWords } from "../../engine/poison.js";
import { messagesSentence } from "./message_captions.js";
import {
  awaited,
  bytes,
  deedWords,
  duration,
  isPlanned,
  lastedWords,
  parameterLabel,
  pieceName,
  sentence,
} from "../../engine/format.js";

const HELD = 0.5; // of a call: so much of it in which the reader held the ranks is its cause
const UNEVEN = 3; // so many times the usual hop, the longest is said, too
const FOR_CORES = 0.3; // of what a rank is late: so much waiting for a core is named

export const FOR_LONG = 0.05; // of a call: shorter waits are not mentioned

/**
 * How long a hop takes: as a rule, or from the fastest link to the slowest where they differ much.
 * @param {number[]} hops  of the links, in order
 */
export const hopWords = (hops) =>
  hops[hops.length - 1] > UNEVEN * median(hops)
    ? `${duration(hops[0])} to ${duration(hops[hops.length - 1])}`
    : duration(median(hops));

/** Bytes a second as networks say them, in bits. @param {number} rate */
export function bitRate(rate) {
  const bits = rate * 8;
  const [unit, name] =
    bits < 1e6 ? [1e3, "kbit/s"] : bits < 1e9 ? [1e6, "Mbit/s"] : [1e9, "Gbit/s"];
  const x = bits / unit;
  return `${x >= 100 ? Math.round(x) : x >= 10 ? +x.toFixed(1) : +x.toFixed(2)} ${name}`;
}

/** Ranks in words: "rank 3", "ranks 0, 1 and 2", "ranks 0 to 6". @param {number[]} ranks */
export function ranksOf(ranks) {
  if (ranks.length === 1) return `rank ${ranks[0]}`;
  if (ranks.length > 3 && ranks.every((r, i) => !i || r === ranks[i - 1] + 1))
    return `ranks ${ranks[0]} to ${ranks[ranks.length - 1]}`;
  return ranks.length
    ? `ranks ${ranks.slice(0, -1).join(", ")} and ${ranks[ranks.length - 1]}`
    : "no rank";
}

/**
 * What is wrong with the sums at this moment: a part that is in twice, or one that is missing
 * though its rank is through.
 * @param {Reading} reading @param {number} t
 */
export function wrongWords({ holdings, call }, t) {
  const { first, chunks, ranks, sound, left, twice, way, owners } = holdings;
  const wrong = [];
  if (
    call.collective === "p2p" ||
    sound ||
    (t < Math.min(...left) && !(way === "sum" && twice.some((count) => count > 0)))
  )
    return "";
  const states = holdingsAt(holdings, t);
  for (let cell = 0; cell + 1 < first.length; cell++) {
    const { doubled, lacking } = cellAt(holdings, cell, states[cell], t);
    if (lacking.length || (way === "sum" && doubled.length))
      wrong.push({
        rank: ranks[Math.floor(cell / chunks.length)],
        chunk: chunks[cell % chunks.length],
        doubled,
        lacking,
      });
  }
  if (!wrong.length) return "";
  const [{ rank, chunk, doubled, lacking }] = wrong;
  const parts = (/** @type {number[]} */ of, /** @type {string} */ how) =>
    of.length
      ? [
          `the part${of.length > 1 ? "s" : ""} of ${ranksOf(of)} ` +
            `${of.length > 1 ? "are" : "is"} ${how}`,
        ]
      : [];
  const more = wrong.length > 1 ? `; ${wrong.length} of ${first.length - 1} chunks are wrong` : "";
  if (way === "hear")
    return (
      `Rank ${rank} has finished and has not heard of ` +
      `${ranksOf(lacking)}${wrong.length > 1 ? `; nor have ${wrong.length - 1} others of all` : ""}.`
    );
  if (way === "keep")
    return (
      `Rank ${rank} has finished without chunk ${chunk}, the part of rank ` +
      `${owners.get(chunk)}${wrong.length > 1 ? `; ${wrong.length} chunks are missing` : ""}.`
    );
  return (
    `Rank ${rank}'s chunk ${chunk} is not the sum of all: ` +
    `${[...parts(lacking, "missing"), ...parts(doubled, "in more than once")].join(", ")}${more}.`
  );
}

/**
 * A call that no one completes, because a rank of its group was lost; "" of any other.
 * @param {Known} known
 * @param {NonNullable<Look["call"]>} call
 * @param {Reading} reading
 * @param {number} t  ns since the origin
 */
function brokenOffWords(known, call, { holdings }, t) {
  if (call.complete) return "";
  const lost = [...lostAt(known, t).values()].filter(
    ({ rank, generation }) => generation === call.generation && holdings.place.has(rank),
  );
  if (!lost.length) return "";
  const gone = ranksOf(lost.map(({ rank }) => rank));
  const next = generationsOf(known).find(({ number }) => number > call.generation);
  const others = holdings.ranks.filter((rank) => !lost.some((one) => one.rank === rank));
  const how = lost.every((one) => one.how === "killed") ? "killed" : "lost";
  return (
    `R${gone.slice(1)} ${lost.length > 1 ? "were" : "was"} ${how} in this call: ` +
    `${ranksOf(others)} give${others.length === 1 ? "s" : ""} it up` +
    `${next ? `, and ${ranksOf(next.members)} go${next.members.length === 1 ? "es" : ""} on` : ""}.`
  );
}

/**
 * Where the ranks stand that the reader holds, and which chunk came last: what a step did.
 * @param {number[]} standing @param {number} n  ranks of the call
 * @param {NonNullable<Look["call"]>} call @param {number} t
 */
function heldWords(standing, n, call, t) {
  const others = n - standing.length;
  const one = standing.length === 1;
  const where = `${ranksOf(standing)} ${one ? `stands before its` : "stand before their"} next chunk`;
  const rest = others && standing.length ? `, the other${others === 1 ? " waits" : "s wait"}` : "";
  const came = call.flights.filter(({ end }) => end <= t).sort((a, b) => a.end - b.end);
  const last = came.at(-1);
  return (
    `You hold the ranks: ${where}${rest}.` +
    (last ? ` Newest: ${pieceName(call)} ${last.chunk} from rank ${last.from} to ${last.to}.` : "")
  );
}

/**
 * Who holds up whom, in numbers; before that, what is wrong.
 * @param {Look} look @param {Reading | null} reading @param {Frame | null} frame
 */
export function collectiveSentence({ known, call, live, t }, reading, frame) {
  const { table } = known;
  const newest = !call || call.key === table.calls.at(-1)?.key; // calls before it know nothing of it
  const failed = failedHere({ known, live: live || newest, t, table });
  if (failed) return failed;
  if (!call || !reading || !frame) return sentence(known);
  const span = call.end - call.start;
  const n = reading.holdings.ranks.length;
  const { slowest, ideal } = reading;
  const { held, standing } = known.control ?? { held: false, standing: [] };
  if (held && live && known.state === "running") return heldWords(standing, n, call, frame.t);
  if (call.collective === "p2p") return messagesSentence(reading, frame.t);
  const broken = brokenOffWords(known, call, reading, call.start + frame.t);
  if (broken) return broken;
  const wrong = wrongWords(reading, frame.t);
  if (wrong) return wrong;
  const poison = poisonOf(known.table, call, reading.holdings);
  if (poison) return reachedWords(poison, reading.holdings, holdingsAt(reading.holdings, frame.t));
  const takes = call.complete
    ? `this call takes ${duration(span)}`
    : `this call ${isOver(known) ? "" : "has "}lasted ${lastedWords(span, known)}`;
  const against =
    ideal > 0 && ideal < 0.8 * span && (call.complete || !isOver(known))
      ? ` where ${slowest ? "equal links" : "hops as fast as the fastest"} need ${duration(ideal)}`
      : "";
  const byYou = heldWithin(table, call.start, call.end);
  if (byYou > HELD * span) return `You held the ranks ${duration(byYou)} in this call: ${takes}.`;
  const waiting = (/** @type {number[]} */ ranks, /** @type {string} */ then) =>
    ranks.length
      ? `, so ${ranks.length} of ${n} ranks ${ranks.length === 1 ? "is" : "are"} waiting${then}`
      : "";
  const { cause, last } = callCause(known, call, reading);
  if (slowest && cause === "slow link") {
    const link = `${slowest.from}>${slowest.to}`;
    const ranks = heldUp(frame, (cause) => cause.link === link);
    return `Link ${slowest.from} → ${slowest.to} is slow${waiting(ranks, "")}: ${takes}${against}.`;
  }
  if (last && cause === "late rank") {
    const cores = known.run?.cores ?? 0;
    const crowd =
      cores && last.core > FOR_CORES * last.late
        ? `; it waited ${duration(last.core)} for ` +
          `${cores === 1 ? "the only core" : `one of ${cores} cores`}`
        : "";
    const there = frame.t >= last.at;
    const then = there ? frameAt(call, Math.max(0, last.at - 1)) : frame;
    const ranks = heldUp(then, (cause) => cause.end === last.rank);
    const kept = there
      ? ranks.length
        ? `, and kept ${ranks.length} of ${n} ranks waiting`
        : ""
      : waiting(ranks, " for it");
    return (
      `Rank ${last.rank} came ${duration(last.after)} after rank ${last.first}${kept}: ` +
      `${takes}${crowd}.`
    );
  }
  if (last && cause === "late ranks") {
    const { ranks, late } = last.together;
    return `R${ranksOf(ranks).slice(1)} came ${duration(late)} or more after the others: ${takes}.`;
  }
  if (last && cause === "call before") {
    const hops = [...reading.links.values()].map((link) => link.hop).sort((a, b) => a - b);
    return (
      (last.inside
        ? `The calls run into one another: rank ${last.rank} was still in the one before when ` +
          `rank ${last.first} joined`
        : `Rank ${last.rank} came ${duration(last.after)} after rank ${last.first}, as late as it ` +
          "came out of the call before") +
      `. ${hops.length ? `A hop takes ${hopWords(hops)}, and t` : "T"}${takes.slice(1)}.`
    );
  }
  const longest = call.waits.reduce(
    (best, w) => (!best || w.end - w.start > best.end - best.start ? w : best),
    /** @type {import("../../engine/model.js").Row | null} */ (null),
  );
  const size =
    call.nbytes > 0
      ? bytes(call.nbytes)
      : call.nbytes < 0 && !call.complete
        ? "what each has"
        : "nothing"; // a row of the whole call is written at its end
  const whole = size + (call.name && !isPlanned(call) ? ` (${parameterLabel(call.name)})` : "");
  const moved = `${deedWords(call.collective, n, reading.holdings.root, whole, call.complete)}${call.complete ? ` in ${duration(span)}` : `, for ${lastedWords(span, known)}`}`;
  if (!longest || (longest.end - longest.start) * 10 < span) return `${moved}; no rank waits long.`;
  return (
    `${moved}; rank ${longest.rank} waits longest, ${duration(longest.end - longest.start)} ` +
    `for ${awaited(longest)}.`
  );
}

/**
 * The fact in the middle of the ring: how long a chunk is on its way, or the slowest link against
 * the others.
 * @param {Reading} reading
 * @param {Known} known
 * @returns {{words: string, ours: boolean}[]}
 */
export function middleFact(reading, known) {
  const { slowest, links, call } = reading;
  const lines = [];
  if (slowest) {
    const others = [...links.values()].filter((l) => l !== slowest).map((l) => l.hop);
    lines.push(
      `link ${slowest.from} → ${slowest.to}: ${duration(slowest.hop)} per hop`,
      `the others ${duration(median(others))}`,
    );
  } else {
    const held = heldWithin(known.table, call.start, call.end) > 0; // nobody's time
    const free = (/** @type {import("../../engine/model.js").Flight} */ f) =>
      heldWithin(known.table, call.start + f.start, call.start + f.end) === 0;
    const took = held
      ? call.flights.filter((f) => f.end < Infinity && free(f)).map((f) => f.end - f.start)
      : [...links.values()].map((l) => l.took).filter((t) => t > 0);
    const size = Math.max(0, ...call.flights.map((f) => f.nbytes));
    const [low, high] = [Math.min(...took), Math.max(...took)].map(duration);
    if (took.length)
      lines.push(
        `a ${pieceName(call)}${size ? ` of ${bytes(size)}` : ""} ${held ? "takes" : "usually takes"}`,
        low === high ? low : `${low} to ${high}`,
      );
  }
  const ours = [...madeLinks(known, links.keys())]
    .filter(([key]) => links.has(key))
    .map(([, l]) => l);
  const words = new Set(ours.map((l) => l.words));
  const facts = lines.map((words) => ({ words, ours: false }));
  const why = slowest && ours.find((l) => l.from === slowest.from && l.to === slowest.to);
  if (why) facts.push({ words: why.words, ours: true });
  else if (ours.length === 1)
    facts.push({ words: `${ours[0].from} → ${ours[0].to} ${ours[0].words}`, ours: true });
  else if (ours.length)
    facts.push({
      words:
        `${ours.length === links.size ? "all" : ours.length} links ` +
        `${words.size === 1 ? [...words][0] : "emulated"}`,
      ours: true,
    });
  return facts;
}

/** The same in a line, where the middle is not free. @param {{words: string}[]} lines */
export const factLine = (lines) =>
  lines
    .map((l) => l.words)
    .join(", ")
    .replace(/ takes, /, " takes ");

/** @param {Reading} reading @param {number} rank @param {number} chunk */
export const cellOf = ({ holdings }, rank, chunk) =>
  (holdings.place.get(rank) ?? 0) * holdings.chunks.length + holdings.chunks.indexOf(chunk);

/** @param {Reading} reading @param {number} cell @param {number} t */
export function stateOfCell({ holdings: { first, time } }, cell, t) {
  let state = first[cell];
  while (state + 1 < first[cell + 1] && time[state + 1] <= t) state++;
  return state;
}

/** The whole picture for who cannot see it. @param {Reading} reading @param {Frame} frame */
export function spokenFrame(reading, frame) {
  const moving = frame.comets.map((c) => {
    if (reading.call.collective === "p2p")
      return `message ${c.chunk} from rank ${c.from} ${c.lying ? "lies at" : "to"} rank ${c.to}`;
    const { holdings } = reading;
    const counts = Array.from(holdings.carried.get(sendKey(c)) ?? []);
    const whole = isComplete(holdings, counts);
    return (
      `chunk ${c.chunk} from rank ${c.from} ${c.lying ? "lies at" : "to"} rank ${c.to}, ` +
      `${holdings.way === "keep" ? `the part of rank ${holdings.owners.get(c.chunk)}` : whole ? "complete" : `${counts.filter((k) => k > 0).length} of ${counts.length} parts`}`
    );
  });
  const waiting = [...frame.waiting.values()].map(
    (w) => `rank ${w.rank} waits ${duration(frame.t - w.start)} for ${awaited(w)}`,
  );
  return [...moving, ...waiting].join("; ") || "nothing is on its way at this moment";
}

// @ts-check
/**
 * What the collectives' picture says: one sentence, the last moments, the fact in the middle, every mark under the pointer.
 * Pure functions of a call's reading and the playhead; no claim that the picture does not show.
 *
 * @typedef {import("./stage.js").Look} Look
 * @typedef {import("./player.js").Known} Known
 * @typedef {import("./player.js").LaneNow} LaneNow
 * @typedef {import("./rates.js").Reading} Reading
 * @typedef {import("./ring.js").Mark} Mark
 * @typedef {ReturnType<typeof import("./model.js").frameAt>} Frame
 * @typedef {{at: number, words: () => string}} Moment
 */
import { cellAt, holdingsAt, sendKey } from "./holdings.js";
import { heldUp, madeLinks } from "./rates.js";
import { awaited, bytes, duration, sentence } from "./words.js";

const LATE = 0.2; // of a call: a rank that joins in later than that after the first is late
const FOR_LONG = 0.05; // of a call: shorter waits are not told

/** Bytes a second as networks say them, in bits. @param {number} rate */
export function bitRate(rate) {
  const bits = rate * 8, [unit, name] = bits < 1e6 ? [1e3, "kbit/s"] : bits < 1e9 ? [1e6, "Mbit/s"] : [1e9, "Gbit/s"], x = bits / unit;
  return `${x >= 100 ? Math.round(x) : x >= 10 ? +x.toFixed(1) : +x.toFixed(2)} ${name}`;
}

/** Ranks in words: "rank 3", "ranks 0, 1 and 2", "ranks 0 to 6". @param {number[]} ranks */
export function ranksOf(ranks) {
  if (ranks.length === 1) return `rank ${ranks[0]}`;
  if (ranks.length > 3 && ranks.every((r, i) => !i || r === ranks[i - 1] + 1)) return `ranks ${ranks[0]} to ${ranks[ranks.length - 1]}`;
  return ranks.length ? `ranks ${ranks.slice(0, -1).join(", ")} and ${ranks[ranks.length - 1]}` : "no rank";
}

/**
 * What is wrong with the sums at this moment: a part that is in twice, or one that is missing though its rank is through.
 * @param {Reading} reading @param {number} t
 */
export function wrongWords({ holdings }, t) {
  const { first, chunks, ranks, sound, left, twice } = holdings, wrong = [];
  if (sound || (t < Math.min(...left) && !twice.some((count) => count > 0))) return "";
  const states = holdingsAt(holdings, t);
  for (let cell = 0; cell + 1 < first.length; cell++) {
    const { doubled, lacking } = cellAt(holdings, cell, states[cell], t);
    if (doubled.length + lacking.length) wrong.push({ rank: ranks[Math.floor(cell / chunks.length)], chunk: chunks[cell % chunks.length], doubled, lacking });
  }
  if (!wrong.length) return "";
  const [{ rank, chunk, doubled, lacking }] = wrong, parts = (/** @type {number[]} */ of, /** @type {string} */ how) => (of.length ? [`the part${of.length > 1 ? "s" : ""} of ${ranksOf(of)} ${of.length > 1 ? "are" : "is"} ${how}`] : []);
  const more = wrong.length > 1 ? `; ${wrong.length} of ${first.length - 1} chunks are wrong` : "";
  return `Rank ${rank}'s chunk ${chunk} is not the sum of all: ${[...parts(lacking, "missing"), ...parts(doubled, "in more than once")].join(", ")}${more}.`;
}

/**
 * Who holds up whom, in numbers; before that, what is wrong.
 * @param {Look} look @param {Reading | null} reading @param {Frame | null} frame
 */
export function collectiveSentence({ known, call, live }, reading, frame) {
  if (!call || !reading || !frame || (known.state === "failed" && known.words)) return sentence(known);
  const span = call.end - call.start, n = reading.holdings.ranks.length, { slowest, ideal } = reading, { held, standing } = known.control ?? { held: false, standing: [] };
  if (held && live && known.state === "running") return `You hold the ranks: ${standing.length === n ? `all ${n}` : `${standing.length} of ${n}`} stand at the edge of a chunk. What each of them holds by now is below.`;
  const wrong = wrongWords(reading, frame.t);
  if (wrong) return wrong;
  const takes = call.complete ? `this call takes ${duration(span)}` : `this call has lasted ${duration(span)} so far`;
  const against = ideal > 0 && ideal < 0.8 * span ? ` where ${slowest ? "equal links" : "hops as fast as the fastest"} need ${duration(ideal)}` : "";
  const waiting = (/** @type {number[]} */ ranks, /** @type {string} */ then) => (ranks.length ? `, so ${ranks.length} of ${n} ranks ${ranks.length === 1 ? "is" : "are"} waiting${then}` : "");
  const came = [...call.came].sort((a, b) => a[1] - b[1]), [last, when] = came[came.length - 1] ?? [-1, 0], late = when - (came[0]?.[1] ?? 0);
  if (slowest && late < span / 2) {
    const link = `${slowest.from}>${slowest.to}`, ranks = heldUp(frame, (cause) => cause.link === link);
    return `Link ${slowest.from} → ${slowest.to} is slow${waiting(ranks, "")}: ${takes}${against}.`;
  }
  if (late > LATE * span) {
    const cores = known.run?.cores ?? 0, crowd = cores && cores < n ? ` (${known.run?.ranks} ranks share ${cores === 1 ? "one core" : `${cores} cores`})` : "";
    return `Rank ${last} joined in ${duration(late)} after rank ${came[0][0]}${waiting(heldUp(frame, (cause) => cause.end === last), " for it")}: ${takes}${crowd}.`;
  }
  const longest = call.waits.reduce((best, w) => (!best || w.end - w.start > best.end - best.start ? w : best), /** @type {import("./model.js").Row | null} */ (null));
  const whole = (call.nbytes > 0 ? bytes(call.nbytes) : "nothing") + (call.name ? ` (${call.name})` : "");
  const moved = `${n} ranks ${call.complete ? "combine" : "are combining"} ${whole}${call.complete ? ` in ${duration(span)}` : `, for ${duration(span)} so far`}`;
  if (!longest || (longest.end - longest.start) * 10 < span) return `${moved}; nobody waits long.`;
  return `${moved}; rank ${longest.rank} waits longest, ${duration(longest.end - longest.start)} for ${awaited(longest)}.`;
}

/** The fact in the middle of the ring: the slowest link against the others. @param {Reading} reading @param {Known} known @returns {{words: string, ours: boolean}[]} */
export function middleFact(reading, known) {
  const { slowest, usual, links } = reading, rates = [...links.values()].filter((l) => l.rate > 0), lines = [];
  if (slowest) {
    const name = `link ${slowest.from} → ${slowest.to}`, others = [...links.values()].filter((l) => l !== slowest);
    if (slowest.rate > 0 && slowest.rate < usual / 2) lines.push(`${name}: ${bitRate(slowest.rate)}`, `the others ${bitRate(usual)}`);
    else lines.push(`${name}: ${duration(slowest.hop)} a hop`, `the others ${duration(others.map((l) => l.hop).sort((a, b) => a - b)[others.length >> 1])}`);
  } else if (rates.length) {
    const sorted = rates.map((l) => bitRate(l.rate)), [low, high] = [rates.reduce((a, b) => (b.rate < a.rate ? b : a)), rates.reduce((a, b) => (b.rate > a.rate ? b : a))];
    lines.push(links.size > 1 ? "links carry" : "the link carries", new Set(sorted).size === 1 ? sorted[0] : `${bitRate(low.rate)} to ${bitRate(high.rate)}`);
  }
  const ours = [...madeLinks(known, links.keys())].filter(([key]) => links.has(key)).map(([, l]) => l), words = new Set(ours.map((l) => l.words));
  const told = lines.map((words) => ({ words, ours: false })), why = slowest && ours.find((l) => l.from === slowest.from && l.to === slowest.to);
  if (why) told.push({ words: why.words, ours: true });
  else if (ours.length === 1) told.push({ words: `${ours[0].from} → ${ours[0].to} ${ours[0].words}`, ours: true });
  else if (ours.length) told.push({ words: `${ours.length === links.size ? "all" : ours.length} links ${words.size === 1 ? [...words][0] : "emulated"}`, ours: true });
  return told;
}

/** The same in a line, where the middle is not free. @param {{words: string}[]} lines */
export const factLine = (lines) => lines.map((l) => l.words).join(", ").replace(/(carry|carries), /, "$1 ");

/** @type {WeakMap<Reading, Moment[]>} */
const tellings = new WeakMap();

/** All that can be told of a call, in the order of time; words are made when they are needed. @param {Reading} reading @returns {Moment[]} */
function momentsOf(reading) {
  const found = tellings.get(reading);
  if (found) return found;
  const { call, holdings } = reading, span = call.end - call.start, moments = /** @type {Moment[]} */ ([]), added = new Set();
  for (const r of call.rows) if (r.kind === "reduce") added.add(`${r.peer}>${r.rank}/${r.step}/${r.chunk}/${r.slot}`);
  const has = (/** @type {number} */ rank, /** @type {number} */ chunk, /** @type {number} */ t) => {
    const cell = cellOf(reading, rank, chunk), { parts, complete, slots } = cellAt(holdings, cell, stateOfCell(reading, cell, t), t);
    const sum = parts.reduce((all, p) => all + p.within, 0) / slots;
    const twice = parts.filter((p) => p.twice).map((p) => p.rank);
    return complete ? "complete" : twice.length ? `${ranksOf(twice)} ${twice.length > 1 ? "are" : "is"} in more than once` : `${Number.isInteger(sum) ? sum : sum.toFixed(1)} of ${parts.length} contributions`;
  };
  for (const f of call.flights) {
    const later = added.has(`${f.from}>${f.to}/${f.step}/${f.chunk}/${f.slot}`);
    moments.push({ at: f.end, words: () => `rank ${f.to} received chunk ${f.chunk} from rank ${f.from} (${bytes(f.nbytes)} in ${duration(f.end - f.start)})` +
      (later ? "" : f.fused ? ` and added it: ${has(f.to, f.chunk, f.end)}` : ` in place of its own: ${has(f.to, f.chunk, f.end)}`) });
  }
  for (const r of call.rows) {
    if (r.kind === "reduce") moments.push({ at: r.end, words: () => `rank ${r.rank} added ${r.peer === r.rank ? "its own part to" : `what rank ${r.peer} sent of`} chunk ${r.chunk}: ${has(r.rank, r.chunk, r.end)}` });
    if (r.kind === "wait" && r.end - r.start > FOR_LONG * span) moments.push({ at: r.end, words: () => `rank ${r.rank} had waited ${duration(r.end - r.start)} for ${awaited(r, true)}` });
    if (r.kind === "collective" && call.complete) moments.push({ at: r.end, words: () => `rank ${r.rank} is through` });
  }
  for (const [rank, start] of call.came) if (start > FOR_LONG * span) moments.push({ at: start, words: () => `rank ${rank} joined in, ${duration(start)} after the first` });
  moments.sort((a, b) => a.at - b.at);
  tellings.set(reading, moments);
  return moments;
}

/** @param {Reading} reading @param {number} rank @param {number} chunk */
export const cellOf = ({ holdings }, rank, chunk) => (holdings.place.get(rank) ?? 0) * holdings.chunks.length + holdings.chunks.indexOf(chunk);

/** @param {Reading} reading @param {number} cell @param {number} t */
function stateOfCell({ holdings: { first, time } }, cell, t) {
  let state = first[cell];
  while (state + 1 < first[cell + 1] && time[state + 1] <= t) state++;
  return state;
}

/** The last moments up to t, oldest first. @param {Reading} reading @param {number} t @param {number} lines @returns {[string, string][]} */
export function lastMoments(reading, t, lines) {
  const moments = momentsOf(reading);
  let low = 0, high = moments.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (moments[middle].at <= t) low = middle + 1;
    else high = middle;
  }
  return moments.slice(Math.max(0, low - lines), low).map(({ at, words }) => [duration(at), words()]);
}

// ---- under the pointer

/** Whose parts, in words. @param {{rank: number, within: number, twice: number}[]} parts @param {number} slots */
function partsWords(parts, slots) {
  const whole = parts.filter((p) => p.within === slots).map((p) => p.rank), some = parts.filter((p) => p.within > 0 && p.within < slots);
  const partly = some.length ? `${whole.length ? ", and partly of " : "partly of "}${ranksOf(some.map((p) => p.rank))}` : "";
  return `${whole.length ? ranksOf(whole) : ""}${partly}`;
}

/** A cell of the matrix. @param {Reading} reading @param {Frame} frame @param {number} cell @param {number} state */
export function cellWords(reading, frame, cell, state) {
  const { holdings } = reading, { complete, parts, slots, doubled, lacking } = cellAt(holdings, cell, state, frame.t);
  const rank = holdings.ranks[Math.floor(cell / holdings.chunks.length)], chunk = holdings.chunks[cell % holdings.chunks.length];
  const own = parts.every((p) => (p.within > 0) === (p.rank === rank)), holds = complete ? "complete, the sum of all" : own ? "its own part only" : `sum of ${partsWords(parts, slots)}`;
  const lines = [`rank ${rank}, chunk ${chunk}: ${holds}${complete ? "" : ` (${parts.filter((p) => p.within === slots).length} of ${parts.length})`}${slots > 1 ? `, in ${slots} pieces` : ""}`];
  if (doubled.length) lines.push(`✕ the part of ${ranksOf(doubled)} is in more than once`);
  if (lacking.length) lines.push(`✕ rank ${rank} is through, and the part of ${ranksOf(lacking)} is missing`);
  for (const c of frame.comets) if (c.to === rank && c.chunk === chunk) lines.push(`arriving from rank ${c.from}: ${Math.round(c.share * 100)} % of ${duration(c.end - c.start)}`);
  return lines;
}

/** A chunk on its way. @param {Reading} reading @param {Mark} mark */
export function chunkWords(reading, mark) {
  const { ranks, carried } = reading.holdings, counts = Array.from(carried.get(sendKey(mark)) ?? []), whole = counts.length > 0 && counts.every((c) => c === 1);
  const parts = ranks.filter((_, i) => counts[i] > 0), twice = ranks.filter((_, i) => counts[i] > 1);
  const lines = [`chunk ${mark.chunk} from rank ${mark.from} to rank ${mark.to}: ${Math.round(mark.share * 100)} % of its ${duration(mark.end - mark.start)}, ${bytes(mark.nbytes)}`,
    whole ? "complete: the sum of all" : `sum of ${ranksOf(parts)} (${parts.length} of ${ranks.length})`, `step ${mark.step + 1}${mark.phase ? `, ${mark.phase.replaceAll("_", "-")}` : ""}`];
  if (twice.length) lines.splice(2, 0, `✕ the part of ${ranksOf(twice)} is in more than once`);
  return lines;
}

/** A link. @param {Reading} reading @param {Known} known @param {number} from @param {number} to @param {number} t */
export function linkWords(reading, known, from, to, t) {
  const link = reading.links.get(`${from}>${to}`), made = madeLinks(known, reading.links.keys()).get(`${from}>${to}`), lines = [];
  if (link) {
    const gone = reading.call.flights.filter((f) => f.from === from && f.to === to && f.end <= t);
    lines.push(`link ${from} → ${to}: ${link.rate > 0 ? `${bitRate(link.rate)} while sending, ` : ""}a hop takes at least ${duration(link.hop)}`,
      `${gone.length} of ${link.flights} ${link.flights === 1 ? "chunk has" : "chunks have"} arrived, ${bytes(gone.reduce((sum, f) => sum + Math.max(0, f.nbytes), 0))}`);
  } else lines.push(`link ${from} → ${to}`);
  if (made) lines.push(`made by us: ${made.words}`);
  return lines;
}

/** What a rank is in, in a few words and in full. @param {import("./ring_draw.js").RankState} state @param {Frame | null} frame @param {LaneNow[]} now */
export function rankWords(state, frame, now) {
  const { rank, wait, blocked, ended, held, frozen, factor, away, member } = state, lines = [`rank ${rank}`];
  if (!member) return [`rank ${rank} is not in this group`];
  if (ended) lines[0] = `rank ${rank}: ${ended}`;
  else if (wait && frame) lines[0] = `rank ${rank} has waited ${duration(frame.t - wait.start)} for ${awaited(wait, true)}`;
  else if (blocked) lines[0] = `rank ${rank} waits for ${blocked.chunk >= 0 ? `chunk ${blocked.chunk} from ` : ""}rank ${blocked.peer}`;
  else if (away) lines[0] = `rank ${rank} has not joined in yet`;
  const sends = frame?.comets.filter((c) => c.from === rank) ?? [];
  for (const c of sends.slice(0, 3)) lines.push(`its chunk ${c.chunk} is on its way to rank ${c.to}`);
  if (frozen) lines.push("frozen by you: its process is stopped");
  if (factor !== 1) lines.push(`slowed by you: computes ×${factor} as long`);
  if (held) {
    const at = now.find((l) => l.rank === rank && l.step >= 0);
    lines.push(`held by you${at ? `, before step ${at.step + 1}${at.chunk >= 0 ? `, chunk ${at.chunk}` : ""}` : ""}`);
  }
  return lines;
}

/** The first values of what a rank holds of a chunk, while the ranks are held there. @param {Look} look @param {number} rank @param {number} chunk @returns {string[]} */
export function valueWords({ known, call }, rank, chunk) {
  const here = known.lanesNow.find((l) => l.rank === rank && l.chunk === chunk && l.op === call?.op && l.group === call?.group && l.values.length);
  if (!here) return [];
  const values = here.values.slice(0, 5).map((v) => (v === null ? "not finite" : Math.abs(v) >= 1e4 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(2) : v.toPrecision(3)));
  return [`first values: ${values.join("  ")} …`, `${here.dtype || "values"} ${here.shape}`.trim()];
}

/** The whole picture for who cannot see it. @param {Reading} reading @param {Frame} frame */
export function spokenFrame(reading, frame) {
  const moving = frame.comets.map((c) => {
    const counts = Array.from(reading.holdings.carried.get(sendKey(c)) ?? []), whole = counts.length && counts.every((k) => k === 1);
    return `chunk ${c.chunk} from rank ${c.from} to rank ${c.to}, ${whole ? "complete" : `${counts.filter((k) => k > 0).length} of ${counts.length} parts`}`;
  });
  const waiting = [...frame.waiting.values()].map((w) => `rank ${w.rank} waits ${duration(frame.t - w.start)} for ${awaited(w)}`);
  return [...moving, ...waiting].join("; ") || "nothing is on its way at this moment";
}

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
import { cellAt, holdingsAt, isComplete, sendKey } from "./holdings.js";
import { isTold } from "./operation.js";
import { heldUp, madeLinks } from "./rates.js";
import { failedWords } from "./tell_failed.js";
import { messageWords, messagesSentence } from "./tell_messages.js";
import { awaited, bytes, deedWords, duration, isPlanned, pieceName, sentence } from "./words.js";

const LATE = 0.2; // of a call: a rank that joins in later than that after the first is late
const TELLS_RATE = 16_384; // bytes of a message, less of which say nothing of how much a link carries
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
export function wrongWords({ holdings, call }, t) {
  const { first, chunks, ranks, sound, left, twice, way, owners } = holdings, wrong = [];
  if (call.collective === "p2p" || sound || (t < Math.min(...left) && !(way === "sum" && twice.some((count) => count > 0)))) return "";
  const states = holdingsAt(holdings, t);
  for (let cell = 0; cell + 1 < first.length; cell++) {
    const { doubled, lacking } = cellAt(holdings, cell, states[cell], t);
    if (lacking.length || (way === "sum" && doubled.length)) wrong.push({ rank: ranks[Math.floor(cell / chunks.length)], chunk: chunks[cell % chunks.length], doubled, lacking });
  }
  if (!wrong.length) return "";
  const [{ rank, chunk, doubled, lacking }] = wrong, parts = (/** @type {number[]} */ of, /** @type {string} */ how) => (of.length ? [`the part${of.length > 1 ? "s" : ""} of ${ranksOf(of)} ${of.length > 1 ? "are" : "is"} ${how}`] : []);
  const more = wrong.length > 1 ? `; ${wrong.length} of ${first.length - 1} chunks are wrong` : "";
  if (way === "hear") return `Rank ${rank} is through and has not heard of ${ranksOf(lacking)}${wrong.length > 1 ? `; nor have ${wrong.length - 1} others of all` : ""}.`;
  if (way === "keep") return `Rank ${rank} is through without chunk ${chunk}, the part of rank ${owners.get(chunk)}${wrong.length > 1 ? `; ${wrong.length} chunks are missing` : ""}.`;
  return `Rank ${rank}'s chunk ${chunk} is not the sum of all: ${[...parts(lacking, "missing"), ...parts(doubled, "in more than once")].join(", ")}${more}.`;
}

/**
 * Who holds up whom, in numbers; before that, what is wrong.
 * @param {Look} look @param {Reading | null} reading @param {Frame | null} frame
 */
export function collectiveSentence({ known, call, live }, reading, frame) {
  if (known.state === "failed" && known.words) return failedWords(known);
  if (!call || !reading || !frame) return sentence(known);
  const span = call.end - call.start, n = reading.holdings.ranks.length, { slowest, ideal } = reading, { held, standing } = known.control ?? { held: false, standing: [] };
  if (held && live && known.state === "running") return `You hold the ranks: ${standing.length === n ? `all ${n}` : `${standing.length} of ${n}`} stand at the edge of a chunk. What each of them holds by now is below.`;
  if (call.collective === "p2p") return messagesSentence(reading, frame.t);
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
  const size = call.nbytes > 0 ? bytes(call.nbytes) : call.nbytes < 0 && !call.complete ? "what each has" : "nothing"; // a row of the whole call is written at its end
  const whole = size + (call.name && !isPlanned(call) ? ` (${call.name})` : "");
  const moved = `${deedWords(call.collective, n, reading.holdings.root, whole, call.complete)}${call.complete ? ` in ${duration(span)}` : `, for ${duration(span)} so far`}`;
  if (!longest || (longest.end - longest.start) * 10 < span) return `${moved}; nobody waits long.`;
  return `${moved}; rank ${longest.rank} waits longest, ${duration(longest.end - longest.start)} for ${awaited(longest)}.`;
}

/** The fact in the middle of the ring: the slowest link against the others. @param {Reading} reading @param {Known} known @returns {{words: string, ours: boolean}[]} */
export function middleFact(reading, known) {
  const { slowest, usual, links } = reading, small = reading.call.collective === "p2p" && !reading.call.flights.some((f) => f.nbytes >= TELLS_RATE), rates = small ? [] : [...links.values()].filter((l) => l.rate > 0), lines = [];
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

/** What has arrived in a gather: whose it is. @param {Reading} reading @param {number} chunk @param {number} from @param {string} has */
function gatheredWords({ holdings }, chunk, from, has) {
  const owner = holdings.owners.get(chunk);
  return `${owner === undefined || owner === from ? "" : `, the part of rank ${owner}`}: ${has}`;
}

/** @type {WeakMap<Reading, Moment[]>} */
const tellings = new WeakMap();

/** All that can be told of a call, in the order of time; words are made when they are needed. @param {Reading} reading @returns {Moment[]} */
function momentsOf(reading) {
  const found = tellings.get(reading);
  if (found) return found;
  const { call, holdings } = reading, span = call.end - call.start, piece = pieceName(call), moments = /** @type {Moment[]} */ ([]), added = new Set(), told = isTold(call.rows);
  for (const r of call.rows) if (r.kind === "reduce") added.add(`${r.peer}>${r.rank}/${r.step}/${r.chunk}/${r.slot}`);
  const has = (/** @type {number} */ rank, /** @type {number} */ chunk, /** @type {number} */ t) => {
    const cell = cellOf(reading, rank, chunk), { parts, complete, slots } = cellAt(holdings, cell, stateOfCell(reading, cell, t), t);
    const sum = parts.reduce((all, p) => all + p.within, 0) / slots;
    if (holdings.way === "hear") return complete ? "of all" : `of ${ranksOf(parts.filter((p) => p.within).map((p) => p.rank))}`;
    if (holdings.way === "keep") return complete || parts.some((p) => p.within === slots) ? "it has all of it" : `${Math.round(100 * sum)} % of it is here`;
    const twice = parts.filter((p) => p.twice).map((p) => p.rank);
    return complete ? "complete" : twice.length ? `${ranksOf(twice)} ${twice.length > 1 ? "are" : "is"} in more than once` : `${Number.isInteger(sum) ? sum : sum.toFixed(1)} of ${parts.length} contributions`;
  };
  for (const f of call.flights) {
    const later = added.has(`${f.from}>${f.to}/${f.step}/${f.chunk}/${f.slot}`);
    if (holdings.way === "hear") moments.push({ at: f.end, words: () => `rank ${f.to} heard from rank ${f.from} (${duration(f.end - f.start)}): it knows ${has(f.to, f.chunk, f.end)}` });
    else moments.push({ at: f.end, words: () => `rank ${f.to} received ${piece} ${f.chunk} from rank ${f.from} (${bytes(f.nbytes)} in ${duration(f.end - f.start)})` +
      (later || !told || piece === "message" ? "" : holdings.way === "keep" ? gatheredWords(reading, f.chunk, f.from, has(f.to, f.chunk, f.end)) : f.fused ? ` and added it: ${has(f.to, f.chunk, f.end)}` : ` in place of its own: ${has(f.to, f.chunk, f.end)}`) });
  }
  for (const r of call.rows) {
    if (r.kind === "reduce") moments.push({ at: r.end, words: () => `rank ${r.rank} added ${r.peer === r.rank ? "its own part to" : `what rank ${r.peer} sent of`} chunk ${r.chunk}${told ? `: ${has(r.rank, r.chunk, r.end)}` : ""}` });
    if (r.kind === "wait" && r.end - r.start > FOR_LONG * span) moments.push({ at: r.end, words: () => `rank ${r.rank} had waited ${duration(r.end - r.start)} for ${awaited(r, true, piece)}` });
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
  const own = parts.every((p) => (p.within > 0) === (p.rank === rank)), owner = holdings.owners.get(chunk);
  const asked = !!holdings.asked[cell];
  if (reading.call.collective === "p2p") return [`rank ${rank}, message ${chunk}: ${messageWords(reading, rank, chunk, parts.reduce((sum, p) => sum + p.within, 0), slots)}`,
    ...(lacking.length ? ["✕ it was never received"] : []), ...arrivingWords(frame, rank, chunk)];
  if (holdings.way === "keep") return [`rank ${rank}, chunk ${chunk}: ${keptWords(rank, owner ?? -1, parts.reduce((sum, p) => sum + p.within, 0), slots, asked)}`,
    ...(lacking.length ? [`✕ rank ${rank} is through without it`] : []), ...arrivingWords(frame, rank, chunk)];
  if (holdings.way === "hear") return [`rank ${rank} has heard of ${complete ? "all" : ranksOf(parts.filter((p) => p.within).map((p) => p.rank))}`,
    ...(lacking.length ? [`✕ rank ${rank} is through and has not heard of ${ranksOf(lacking)}`] : []), ...arrivingWords(frame, rank, chunk)];
  const holds = complete ? "complete, the sum of all" : own ? "its own part only" : `sum of ${partsWords(parts, slots)}`;
  const lines = [`rank ${rank}, chunk ${chunk}: ${holds}${complete ? "" : ` (${parts.filter((p) => p.within === slots).length} of ${parts.length})`}${slots > 1 ? `, in ${slots} pieces` : ""}`];
  if (doubled.length) lines.push(`✕ the part of ${ranksOf(doubled)} is in more than once`);
  if (lacking.length) lines.push(`✕ rank ${rank} is through, and the part of ${ranksOf(lacking)} is missing`);
  if (!asked && !complete) lines.push("nothing of it must be here at the end");
  return [...lines, ...arrivingWords(frame, rank, chunk)];
}

/** What a rank has of a chunk that is handed on as it is. @param {number} rank @param {number} owner @param {number} here  pieces @param {number} slots  of how many @param {boolean} asked */
function keptWords(rank, owner, here, slots, asked) {
  if (!here) return asked ? `not here yet, the part of rank ${owner}` : "nothing of it must be here at the end";
  if (here < slots) return `${here} of ${slots} pieces are here, of the part of rank ${owner}`;
  if (owner === rank) return asked ? "its own part" : "its own, to be handed on";
  return `here${asked ? "" : " to be handed on"}, the part of rank ${owner}`;
}

/** @param {Frame} frame @param {number} rank @param {number} chunk */
const arrivingWords = (frame, rank, chunk) => frame.comets.flatMap((c) => (c.to === rank && c.chunk === chunk ? [c.lying ? `it has come from rank ${c.from}, and lies there` : `arriving from rank ${c.from}: ${Math.round(c.share * 100)} % of ${duration(c.end - c.start)}`] : []));

/** A chunk on its way. @param {Reading} reading @param {Mark} mark */
export function chunkWords(reading, mark) {
  if (reading.call.collective === "p2p") return [`message ${mark.chunk} from rank ${mark.from} to rank ${mark.to}, ${bytes(mark.nbytes)}: ${mark.lying ? "it lies there, not received" : `${Math.round(mark.share * 100)} % of its ${duration(mark.end - mark.start)}`}`];
  const { ranks, carried, way, owners } = reading.holdings, counts = Array.from(carried.get(sendKey(mark)) ?? []), whole = isComplete(reading.holdings, counts);
  const parts = ranks.filter((_, i) => counts[i] > 0), twice = way === "sum" ? ranks.filter((_, i) => counts[i] > 1) : [];
  const lines = [`chunk ${mark.chunk} from rank ${mark.from} to rank ${mark.to}: ${mark.lying ? "it lies there, not received" : `${Math.round(mark.share * 100)} % of its ${duration(mark.end - mark.start)}`}, ${bytes(mark.nbytes)}`,
    way === "keep" ? `the part of rank ${owners.get(mark.chunk)}` : way === "hear" ? `news of ${ranksOf(parts)}` : whole ? "complete: the sum of all" : `sum of ${ranksOf(parts)} (${parts.length} of ${ranks.length})`, `step ${mark.step + 1}${mark.phase ? `, ${mark.phase.replaceAll("_", "-")}` : ""}`];
  if (twice.length) lines.splice(2, 0, `✕ the part of ${ranksOf(twice)} is in more than once`);
  return lines;
}

/** A link. @param {Reading} reading @param {Known} known @param {number} from @param {number} to @param {number} t */
export function linkWords(reading, known, from, to, t) {
  const piece = pieceName(reading.call), link = reading.links.get(`${from}>${to}`), made = madeLinks(known, reading.links.keys()).get(`${from}>${to}`), lines = [];
  if (link) {
    const gone = reading.call.flights.filter((f) => f.from === from && f.to === to && f.end <= t);
    lines.push(`link ${from} → ${to}: ${link.rate > 0 ? `${bitRate(link.rate)} while sending, ` : ""}a hop takes at least ${duration(link.hop)}`,
      `${gone.length} of ${link.flights} ${link.flights === 1 ? `${piece} has` : `${piece}s have`} arrived, ${bytes(gone.reduce((sum, f) => sum + Math.max(0, f.nbytes), 0))}`);
  } else lines.push(`link ${from} → ${to}`);
  if (made) lines.push(`made by us: ${made.words}`);
  return lines;
}

/** What a rank is in, in a few words and in full. @param {import("./ring_draw.js").RankState} state @param {Frame | null} frame @param {LaneNow[]} now @param {string} [piece] */
export function rankWords(state, frame, now, piece = "chunk") {
  const { rank, wait, blocked, ended, held, frozen, factor, away, member } = state, lines = [`rank ${rank}`];
  if (!member) return [`rank ${rank} is not in this group`];
  if (ended) lines[0] = `rank ${rank}: ${ended}`;
  else if (wait && frame) lines[0] = `rank ${rank} has waited ${duration(frame.t - wait.start)} for ${awaited(wait, true, piece)}`;
  else if (blocked) lines[0] = blocked.words || `rank ${rank} waits for ${(blocked.chunk ?? -1) >= 0 ? `chunk ${blocked.chunk} from ` : ""}rank ${blocked.peer}`;
  else if (away) lines[0] = `rank ${rank} has not joined in yet`;
  const sends = frame?.comets.filter((c) => c.from === rank) ?? [];
  for (const c of sends.slice(0, 3)) lines.push(c.lying ? `its ${piece} ${c.chunk} lies at rank ${c.to}, not received` : `its ${piece} ${c.chunk} is on its way to rank ${c.to}`);
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
    if (reading.call.collective === "p2p") return `message ${c.chunk} from rank ${c.from} ${c.lying ? "lies at" : "to"} rank ${c.to}`;
    const { holdings } = reading, counts = Array.from(holdings.carried.get(sendKey(c)) ?? []), whole = isComplete(holdings, counts);
    return `chunk ${c.chunk} from rank ${c.from} ${c.lying ? "lies at" : "to"} rank ${c.to}, ${holdings.way === "keep" ? `the part of rank ${holdings.owners.get(c.chunk)}` : whole ? "complete" : `${counts.filter((k) => k > 0).length} of ${counts.length} parts`}`;
  });
  const waiting = [...frame.waiting.values()].map((w) => `rank ${w.rank} waits ${duration(frame.t - w.start)} for ${awaited(w)}`);
  return [...moving, ...waiting].join("; ") || "nothing is on its way at this moment";
}

// @ts-check
/**
 * One frame of the collectives' pictures, before anything is drawn: places, cells, what moves, what
 * happened to each rank, and which words stand where. Pure functions of a look; what must not change
 * with every frame comes from the frame before.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../engine/rates.js").Reading} Reading
 * @typedef {import("./ring_draw.js").RankState} RankState
 * @typedef {ReturnType<typeof import("../../engine/model.js").frameAt>} Frame
 * @typedef {{t: number, at: number, key: string}} TextMoment  the moment of a call whose numbers are
 *   written, and when they were
 * @typedef {{placeKey: string, place: import("./ring.js").Place, grid: import("./matrix.js").Grid,
 *   wide: boolean, left: number, right: number, height: number, tall: number,
 *   reading: Reading | null, t: number, frame: Frame | null, now: number, states: Int32Array,
 *   marks: import("./ring.js").Mark[], scale: number, text: TextMoment,
 *   emulated: ReturnType<typeof madeLinks>, ranks: RankState[],
 *   stuck: import("../../engine/blocked.js").StuckRanks,
 *   poison: import("../../engine/poison.js").Poison | null}} Prepared
 *   now: the ranks' own time, ns; left, right: widths of the two pictures; height, tall: their
 *   heights; scale: bytes/s of the widest link
 */
import { lostAt, recoveringAt } from "../../engine/generations.js";
import { lostRanks } from "../../engine/lost_ranks.js";
import { holdingsAt } from "../../engine/holdings.js";
import { levelsOfCall } from "../../engine/levels.js";
import { gridOf, matrixHeight } from "./matrix.js";
import { likeCall } from "../../engine/like_call.js";
import { frameAt } from "../../engine/model.js";
import { madeLinks, readingOf } from "../../engine/rates.js";
import { nowOf } from "../../engine/player.js";
import { poisonOf } from "../../engine/poison.js";
import { marksOf, niceRate, placesOf, ringHeight } from "./ring.js";
import { CIRCLE, shapeOf } from "../../engine/shape.js";
import { lasting, stuckNow } from "../../engine/blocked.js";
import { duration } from "../../engine/format.js";

const SIDE_BY_SIDE = 728;
const BOTH_SIDE_BY_SIDE = 560; // of each of two pictures: all of them is on the screen then
const GAP = 24;
const WORDS = 52; // px that the words beside a ring need more than those above it
const LEAST_HIGH = 240; // px: a lower screen is scrolled
const NAMED = 3;
const TEXT_EVERY = 250;
const LONG_WAIT = 0.02; // of a call: shorter waits have a halo and no words

/**
 * @param {Look} look
 * @param {Prepared | null} before  the last frame
 * @returns {Prepared}
 */
export function preparedOf(look, before) {
  const { call, known, width, ranks } = look;
  const stuck = stuckNow(look);
  const wide = width >= (look.beside ? BOTH_SIDE_BY_SIDE : SIDE_BY_SIDE);
  const room = wide && !look.beside ? (look.room ?? 0) : 0;
  const left = wide
    ? Math.round(
        room ? Math.min(Math.max(420, room + WORDS), 0.5 * width) : Math.min(420, 0.43 * width),
      )
    : width;
  const right = wide ? width - left - GAP : width;
  const reading = call && readingOf(call, known);
  const t = call ? Math.max(0, look.t - call.start) : 0;
  const frame = call && frameAt(call, t);
  const height = room > LEAST_HIGH ? room : ringHeight(look.beside ?? ranks);
  const links = reading ? usedLinks(known, reading) : [];
  const digits = String(reading?.holdings.chunks.at(-1) ?? 0).length;
  const shape = reading ? shapeNow(known, reading, ranks) : CIRCLE;
  const members = reading && reading.holdings.ranks.length < ranks ? reading.holdings.ranks : [];
  const placeKey = [
    ranks,
    left,
    height,
    digits,
    links.join(),
    reading?.crowd,
    shape.key,
    members,
  ].join();
  const place =
    before?.placeKey === placeKey
      ? before.place
      : placesOf(ranks, left, height, links, digits, reading?.crowd, shape, members);
  const rows = reading?.holdings.ranks.length ?? ranks;
  const columns = reading?.holdings.chunks.length ?? Math.min(ranks, 8);
  const most = Math.max(
    0,
    look.fastest ?? 0,
    ...(reading ? [...reading.links.values()].map((l) => l.rate) : []),
  );
  const had = before?.scale ?? 0;
  const key = call?.key ?? "";
  const afresh =
    look.held ||
    !before ||
    before.text.key !== key ||
    look.at - before.text.at >= TEXT_EVERY ||
    t < before.text.t;
  return {
    placeKey,
    place,
    grid: gridOf(rows, columns, right, room && height),
    wide,
    left,
    right,
    height,
    tall: matrixHeight(rows, room && height),
    reading,
    t,
    frame,
    now: nowOf(known, look.at),
    states: reading ? holdingsAt(reading.holdings, t) : new Int32Array(0),
    marks: frame ? marksOf(frame, place) : [],
    poison: reading ? poisonOf(known.table, reading.call, reading.holdings) : null,
    // it grows and shrinks in steps
    scale: most && (most > had || most * 10 < had) ? niceRate(most) : had,
    text: afresh ? { t, at: look.at, key } : before.text,
    emulated: madeLinks(known, links),
    ranks: ranksNow(look, reading, frame, stuck),
    stuck,
  };
}

/**
 * The shapes of a run's calls, by what they are calls of: a place once given to a rank is kept.
 * @type {WeakMap<import("../../engine/table.js").Table, Map<string,
 *   import("../../engine/shape.js").Shape>>}
 */
const shapesOf = new WeakMap();

/**
 * The shape in which a call's ranks talk: that of the first complete call of its kind; until then,
 * and of messages that ranks send as they like, a circle.
 * @param {import("../../engine/player.js").Known} known
 * @param {Reading} reading
 * @param {number} ranks
 * @returns {import("../../engine/shape.js").Shape}
 */
function shapeNow(known, reading, ranks) {
  const { call, holdings, links } = reading;
  const { table } = known;
  const hosts = levelsOfCall(call.rows);
  const shapes = shapesOf.get(table) ?? new Map();
  const key = [
    call.generation,
    call.group,
    call.collective,
    call.algorithm,
    holdings.root,
    ranks,
    holdings.ranks,
    hosts.levels,
    hosts.inTurn,
  ].join("/");
  shapesOf.set(table, shapes);
  const earlier = shapes.get(key);
  if (earlier || call.collective === "p2p") return earlier ?? CIRCLE;
  if (!call.complete) {
    const like = completeLike(known, reading);
    return like ? shapeNow(known, like, ranks) : CIRCLE;
  }
  // within the group
  const at = (/** @type {number | string} */ rank) => holdings.place.get(Number(rank)) ?? -1;
  const shape = shapeOf(
    holdings.ranks.length,
    [...links.keys()].map((way) => way.split(">").map(at).join(">")),
    at(holdings.root),
    call.algorithm,
    hosts,
  );
  shapes.set(key, shape);
  return shape;
}

/**
 * A complete call like one that goes on, or broke off: of the same kind, between the same ranks.
 * @param {import("../../engine/player.js").Known} known
 * @param {Reading} reading
 * @returns {Reading | null}
 */
function completeLike(known, { call, holdings }) {
  const before = likeCall(known.table, call);
  const like = before && readingOf(before, known);
  return like &&
    like.holdings.ranks.join() === holdings.ranks.join() &&
    (holdings.root < 0 || like.holdings.root === holdings.root)
    ? like
    : null;
}

/**
 * The links of a call, "0>1"; of one that is not complete also those that one like it used: a link
 * is there before its first chunk, and after a rank has died.
 * @param {import("../../engine/player.js").Known} known
 * @param {Reading} reading
 * @returns {string[]}
 */
function usedLinks(known, reading) {
  const { call, links } = reading;
  const like = call.complete || call.collective === "p2p" ? null : completeLike(known, reading);
  return [...new Set([...(like?.links.keys() ?? []), ...links.keys()])];
}

/**
 * When each rank was last heard of.
 * @type {WeakMap<import("../../engine/table.js").Table, {epoch: number, last: number[]}>}
 */
const heardOf = new WeakMap();

/** @param {import("../../engine/table.js").Table} table */
function lastHeard(table) {
  const earlier = heardOf.get(table);
  if (earlier?.epoch === table.epoch) return earlier.last;
  const last = /** @type {number[]} */ ([]);
  for (const lane of table.lanes.values())
    if (lane.length)
      last[lane.rank] = Math.max(last[lane.rank] ?? 0, table.end[lane.rows[lane.length - 1]]);
  heardOf.set(table, { epoch: table.epoch, last });
  return last;
}

/**
 * The incident of each rank. What is done to the ranks now is shown where the picture is now.
 * @param {Look} look
 * @param {Reading | null} reading
 * @param {Frame | null} frame
 * @param {import("../../engine/blocked.js").StuckRanks} [stuck]
 * @returns {RankState[]}
 */
export function ranksNow({ known, table, ranks, t, live }, reading, frame, stuck) {
  const { control } = known;
  const lost = lostRanks(known);
  const lostNow = lostAt(known, t);
  const last = lastHeard(table);
  const call = reading?.call;
  // where a run that failed is left standing
  const atTheEnd = known.state === "failed" && live && (!call || t >= call.end - 1);
  return Array.from({ length: ranks }, (_, rank) => {
    const newest = t >= (last[rank] ?? 0) - 1 || atTheEnd;
    const now = live || newest;
    // A wait has no row before it ends; while the ranks are held it may not end.
    const blocked =
      (now &&
        control?.held &&
        known.lanesNow.find(
          (l) =>
            l.rank === rank && l.kind === "wait" && l.op === call?.op && l.group === call.group,
        )) ||
      stuck?.get(rank) ||
      null;
    return {
      rank,
      blocked,
      member: !reading || reading.holdings.place.has(rank),
      away: frame ? frame.away.has(rank) : !stuck?.size,
      wait: frame?.waiting.get(rank) ?? null,
      ended:
        lostNow.get(rank)?.how ??
        (newest ? (control?.ended[rank] ?? lost.get(rank)?.words ?? "") : ""),
      killed:
        (lostNow.get(rank)?.how ??
          (newest ? (control?.how?.[rank] ?? lost.get(rank)?.how) : "")) === "killed",
      receives: recoveringAt(table, rank, t)?.act.name === "received",
      held: now && !!control?.held && control.standing.includes(rank),
      frozen: now && !!control?.frozen.includes(rank),
      host: now ? (control?.cut_off?.[rank] ?? null) : null,
      factor: control?.slow[rank] ?? 1,
    };
  });
}

/** Return the longest waits, which get words beside their ranks. @param {Prepared} seen */
export function longestWaits({ frame, reading }) {
  if (!frame || !reading) return [];
  const span = reading.call.end - reading.call.start;
  return [...frame.waiting.values()]
    .filter((w) => w.end - w.start > LONG_WAIT * span)
    .sort((a, b) => a.start - b.start || a.rank - b.rank)
    .slice(0, NAMED);
}

/**
 * Words beside ranks, the most important first.
 * @param {Prepared} seen
 * @returns {{rank: number, lines: string[], colour: string, aside?: boolean}[]}
 */
export function besideRanks(seen) {
  const { ranks, text } = seen;
  const free = (/** @type {RankState} */ s) => !s.ended && !s.frozen && s.host === null;
  return [
    ...ranks
      .filter((s) => s.ended)
      .map((s) => ({
        rank: s.rank,
        lines: [s.killed ? "killed" : "ended"],
        colour: "fault",
      })),
    ...ranks
      .filter((s) => s.host !== null && !s.ended)
      .map((s) => ({ rank: s.rank, lines: ["cut off"], colour: "ink-3" })),
    ...ranks
      .filter((s) => s.receives && !s.ended)
      .map((s) => ({ rank: s.rank, lines: ["receives", "parameters"], colour: "comm" })),
    ...ranks
      .filter((s) => s.frozen && !s.ended)
      .map((s) => ({ rank: s.rank, lines: ["frozen"], colour: "hold" })),
    ...[...seen.stuck.values()]
      .filter((w) => free(ranks[w.rank]))
      .map((w) => ({
        rank: w.rank,
        lines: Number.isNaN(w.since)
          ? ["waits for", `rank ${w.peer}`]
          : ["waits", lasting(seen.now - w.since)],
        colour: "wait",
        aside: true,
      })),
    ...longestWaits(seen)
      .filter((w) => free(ranks[w.rank]) && !seen.stuck.has(w.rank))
      .map((w) => ({
        rank: w.rank,
        lines: text.t > w.start ? ["waits", duration(text.t - w.start)] : ["waits"],
        colour: "wait",
      })),
    ...ranks
      .filter((s) => s.factor !== 1 && !s.wait && free(s))
      .map((s) => ({ rank: s.rank, lines: ["slowed", `×${s.factor}`], colour: "hold" })),
  ];
}

// @ts-check
/**
 * Who stands still now, for whom, in waits that have no row yet: a row is written when a wait is
 * over, and of these none may ever be. From what the ranks' lanes say of themselves at this moment,
 * or from what was found out of a record that broke off. Pure functions, then the arrows.
 *
 * @typedef {import("./page_state.js").Look} Look
 * @typedef {{x: number, y: number}} Point
 * @typedef {{rank: number, peer: number, since: number, words: string,
 *   link?: "" | "cut" | "slowed"}} Stuck  since: ns since the run's origin, NaN unknown; words:
 *   what it does and at which line, if that is known; link: what was done to the one it waits at
 * @typedef {Map<number, Stuck>} StuckRanks  by rank, in their order
 */
import { standing } from "./standing.js";
import { isOver, nowOf } from "./player.js";
import { newestCell } from "./bursts_of_run.js";
import { standsForMessages } from "./waits.js";
import { duration } from "./format.js";

const STUCK_TELLS = 1e9; // ns: so long a wait is a matter for the sentence
const STUCK_EVERY = 1e8; // ns: how often the picture says anew how long they have waited
const NOBODY = /** @type {StuckRanks} */ (new Map());

/** The ranks that wait now, where the picture is now. @param {Look} look @returns {StuckRanks} */
export function stuckNow({ known, table, live, t, at, call }) {
  if (known.run?.waiting?.length)
    return !call || t >= call.end - 1
      ? new Map(known.run.waiting.map((w) => [w.rank, { since: NaN, words: "", ...w }]))
      : NOBODY;
  if (isOver(known) || known.control?.held || !known.lanesNow.some((lane) => lane.kind === "wait"))
    return NOBODY;
  if (!(t >= table.to - 1) && !(live && (!call || (call.complete && t >= call.end - 1))))
    return NOBODY;
  const now = nowOf(known, at);
  const cell = newestCell(known);
  const stuck = /** @type {StuckRanks} */ (new Map());
  const { frozen = [], ended = {}, cut_off = {} } = known.control ?? {};
  for (const rank of [...new Set(known.lanesNow.map((lane) => lane.rank))].sort((a, b) => a - b)) {
    // its process stands or has gone: whatever it was in, it waits for no rank
    // or nobody knows what it does now
    if (frozen.includes(rank) || ended[rank] || cut_off[rank]) continue;
    // a receive may be open that no code waits for
    if (cell && (!cell.begun.has(rank) || cell.ended.has(rank))) continue;
    const long = standing(
      table,
      known.lanesNow.filter((lane) => lane.rank === rank),
      now,
      standsForMessages(known.run, rank),
    );
    if (long && long.lane.kind === "wait" && !long.computes && long.lane.peer >= 0)
      stuck.set(rank, {
        rank,
        peer: long.lane.peer,
        since: long.lane.since,
        words: "",
        link: linkFrom(known, long.lane.peer, rank),
      });
  }
  return stuck;
}

/**
 * What was done to a link: what is to come over it may be on its way, or never come.
 * @param {import("./player.js").Known} known
 * @param {number} from
 * @param {number} to
 * @returns {"" | "cut" | "slowed"}
 */
function linkFrom({ run, control }, from, to) {
  const is = (/** @type {{from: number, to: number}} */ link) =>
    link.from === from && link.to === to;
  const link = control?.links.find(is);
  if (link?.down) return "cut";
  return link ||
    (control?.slow_motion ?? 1) > 1 ||
    run?.emulated.some(is) ||
    run?.link_levels?.some(({ made, down }) => made && !down)
    ? "slowed"
    : "";
}

/**
 * Return the look of a moment in which ranks wait and nothing is left to show: nothing at all, or
 * nothing of this cell, and the calls before it say nothing about it. Then the picture shows this
 * moment.
 * @param {Look} look @returns {Look}
 */
export function atStuck(look) {
  const { known, call, at } = look;
  const stuck = stuckNow(look);
  const cell = stuck.size ? newestCell(known) : undefined;
  if (!stuck.size || isOver(known) || (call && !(cell && cell.from > call.end))) return look;
  return {
    ...look,
    call: null,
    current: null,
    t: Math.max(look.t, Math.floor(nowOf(known, at) / STUCK_EVERY) * STUCK_EVERY),
  };
}

/**
 * Ranks of which each waits for the next and the last for the first, beginning with the lowest;
 * none if there are none, or if a link explains one of the waits.
 * @param {StuckRanks} stuck
 * @returns {number[]}
 */
export function waitingCircle(stuck) {
  for (const first of [...stuck.keys()].sort((a, b) => a - b)) {
    const path = [first];
    for (;;) {
      const { peer: next = -1, link = "" } = stuck.get(path[path.length - 1]) ?? {};
      if (link) break;
      if (next === first) return path;
      if (next < 0 || path.includes(next)) break;
      path.push(next);
    }
  }
  return [];
}

/** How long something has lasted that goes on. @param {number} ns */
export const lasting = (ns) =>
  ns < 1e9
    ? duration(Math.max(0, Math.floor(ns / STUCK_EVERY) * STUCK_EVERY))
    : `${(Math.floor(ns / STUCK_EVERY) / 10).toFixed(1)} s`;

/** Return the caption of blocked ranks; "" before it is worth one. @param {StuckRanks} stuck @param {Look} look */
export function stuckWords(stuck, { known, at }) {
  const all = [...stuck.values()].sort((a, b) => a.since - b.since);
  const [first] = all;
  const circle = waitingCircle(stuck);
  const forGood = Number.isNaN(first?.since);
  if (!first) return "";
  const now = nowOf(known, at);
  const since = circle.length
    ? Math.max(...circle.map((rank) => stuck.get(rank)?.since ?? NaN))
    : first.since;
  if (!forGood && now - since < STUCK_TELLS) return "";
  const lasted = forGood ? "" : `, ${lasting(now - since)} so far`;
  if (circle.length === 2)
    return (
      `Ranks ${circle[0]} and ${circle[1]} wait for each other${lasted}: neither can go on ` +
      "before the other does."
    );
  if (circle.length)
    return (
      `Ranks ${circle.slice(0, -1).join(", ")} and ${circle[circle.length - 1]} wait in a ` +
      `circle, each for the next${lasted}: none can go on before another does.`
    );
  const { frozen = [], ended = {}, cut_off = {} } = known.control ?? {};
  const struck = (/** @type {number} */ rank) =>
    frozen.includes(rank) || !!ended[rank] || !!cut_off[rank];
  const free = all.filter((one) => !stuck.has(one.peer));
  const { rank, peer, link } =
    free.find((one) => struck(one.peer)) ??
    all.find((one) => one.link === "cut") ??
    free[0] ??
    first;
  const others = all.length - 1;
  const why =
    link === "cut"
      ? `: link ${peer} → ${rank} is cut`
      : link === "slowed" && stuck.has(peer)
        ? ": what it waits for is on its way, or still to leave, at the links' slow pace"
        : cut_off[peer]
          ? `, whose host ${cut_off[peer]} is cut off`
          : frozen.includes(peer)
            ? ", which is frozen"
            : ended[peer]
              ? `, which is gone (${ended[peer]})`
              : newestCell(known)?.ended.has(peer)
                ? ", which has ended this cell: in vain, unless a later one sends"
                : stuck.has(peer)
                  ? ""
                  : ", which is not waiting";
  return `Rank ${rank} ${forGood ? "waits" : `has waited ${lasting(now - since)}`} for rank ${peer}${why}${others ? "; " + `${others === 1 ? "another rank waits" : `${others} others wait`} ` + "too" : ""}.`;
}

const ARROW_HEAD = 8;
// px of an arrow's head; how far it swings out, of its length: two that meet lie apart
const ARROW_BEND = 0.16;

/**
 * The way of an arrow from rank to rank: where it begins, how it bends, where its head is.
 * @param {Point} a
 * @param {Point} b
 * @param {number} rim  room left at both ends
 */
export function arrowWay(a, b, rim) {
  const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const u = { x: (b.x - a.x) / length, y: (b.y - a.y) / length };
  const bend = Math.min(34, ARROW_BEND * length) + 4;
  const middle = { x: (a.x + b.x) / 2 - u.y * bend, y: (a.y + b.y) / 2 + u.x * bend };
  const along = (/** @type {Point} */ p, /** @type {Point} */ q) => {
    const far = Math.hypot(q.x - p.x, q.y - p.y) || 1;
    const share = Math.min(rim, far / 2) / far;
    return { x: p.x + (q.x - p.x) * share, y: p.y + (q.y - p.y) * share };
  };
  return { from: along(a, middle), middle, to: along(b, middle) };
}

/**
 * An arrow from each rank that waits to the rank that it waits for; those of a circle are strong.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {{nodes: Point[], node: number}} place
 * @param {StuckRanks} stuck
 */
export function drawStuck(g, ink, { nodes, node }, stuck) {
  const circle = new Set(waitingCircle(stuck));
  g.strokeStyle = g.fillStyle = ink.wait;
  for (const { rank, peer } of stuck.values()) {
    if (!nodes[rank] || !nodes[peer]) continue;
    const { from, middle, to } = arrowWay(nodes[rank], nodes[peer], node + 9);
    const strong = circle.has(rank);
    const length = Math.hypot(to.x - middle.x, to.y - middle.y) || 1;
    const u = { x: (to.x - middle.x) / length, y: (to.y - middle.y) / length };
    const foot = { x: to.x - u.x * ARROW_HEAD, y: to.y - u.y * ARROW_HEAD };
    g.lineWidth = strong ? 2.5 : 1.5;
    g.setLineDash([5, 3.5]);
    g.beginPath();
    g.moveTo(from.x, from.y);
    g.quadraticCurveTo(middle.x, middle.y, foot.x, foot.y);
    g.stroke();
    g.setLineDash([]);
    g.beginPath();
    g.moveTo(to.x, to.y);
    g.lineTo(foot.x - u.y * ARROW_HEAD * 0.55, foot.y + u.x * ARROW_HEAD * 0.55);
    g.lineTo(foot.x + u.y * ARROW_HEAD * 0.55, foot.y - u.x * ARROW_HEAD * 0.55);
    g.fill();
  }
}

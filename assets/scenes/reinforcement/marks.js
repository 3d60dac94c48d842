// @ts-check
/**
 * What is on screen of a run with actors, mark by mark: ranks by role, messages, ways.
 *
 * @typedef {import("../../engine/page_state.js").Look} Look
 * @typedef {import("./draw.js").RlSeen} RlSeen
 */
import { nowOfSpot } from "./boxes.js";
import { spotAlong, wayOf } from "./place.js";

/** Return the marks of a picture. @param {Look} look @param {RlSeen} seen */
export function marksOf(look, seen) {
  const { place, frame, index } = seen;
  const playhead = look.t + look.known.origin;
  const marks = /** @type {any[]} */ ([]);
  for (const { rank, role, x, y, w, h } of place.spots) {
    const { does, words, behind, version, forWhom } = nowOfSpot(
      seen,
      /** @type {any} */ ({ rank, role }),
    );
    marks.push({ mark: role, rank, does, words, behind, version, forWhom, x, y, w, h });
  }
  for (const now of frame.replays)
    marks.push({
      mark: "held",
      rank: now.rank,
      held: now.held,
      dropped: now.dropped,
      late: now.late,
    });
  for (const way of index.ways.values())
    marks.push({
      mark: "way",
      rank: way.from,
      peer: way.to,
      kind: way.kind,
      ...index.sentOver(way, frame.t),
    });
  for (const one of frame.comets) {
    const way = wayOf(place, one.from, one.to);
    if (!way.length) continue;
    marks.push({
      mark: "comet",
      group: "default",
      rank: one.from,
      peer: one.to,
      op: one.op,
      kind: one.kind,
      nbytes: one.nbytes,
      share: one.share,
      ...spotAlong(way, one.share),
      playhead,
    });
  }
  return marks;
}

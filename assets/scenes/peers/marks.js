// @ts-check
/**
 * What is on screen of replicas that mix, mark by mark: replicas, links, messages.
 *
 * @typedef {import("../../engine/page_state.js").Look} Look
 * @typedef {import("./draw.js").PeersSeen} PeersSeen
 */
import { barAt, flownSpot } from "./place.js";

/** Return the marks of a picture. @param {Look} look @param {PeersSeen} seen */
export function marksOf(look, { place, frame }) {
  const playhead = look.t + look.known.origin;
  const marks = /** @type {any[]} */ ([]);
  for (const p of frame.peers) {
    const [, end] = barAt(place, p.rank, 1);
    marks.push({
      mark: "peer",
      rank: p.rank,
      iteration: frame.iteration,
      done: p.done,
      distance: p.distance,
      sent: p.sent,
      lost: p.lost,
      x: end.x,
      y: end.y,
    });
  }
  for (const l of frame.links)
    marks.push({ mark: "link", rank: l.from, peer: l.to, nbytes: l.nbytes, planned: l.planned });
  for (const c of frame.comets)
    marks.push({
      mark: "comet",
      rank: c.from,
      peer: c.to,
      op: c.op,
      iteration: c.iteration,
      message: c.message,
      nbytes: c.nbytes,
      share: c.share,
      ...flownSpot(place, c),
      playhead,
    });
  return marks;
}

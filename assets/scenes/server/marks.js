// @ts-check
/**
 * What is on screen of a parameter server, mark by mark: workers and their walls, shards, messages.
 *
 * @typedef {import("../../engine/page_state.js").Look} Look
 * @typedef {import("./draw.js").ServerSeen} ServerSeen
 */
import { columnX, workerSpot } from "./place.js";

/** Return the marks of a picture. @param {Look} look @param {ServerSeen} seen */
export function marksOf(look, { place, frame, comets }) {
  const playhead = look.t + look.known.origin;
  const marks = /** @type {any[]} */ ([]);
  frame.workers.forEach((w, i) => {
    const { x, y } = workerSpot(place, i, w, frame.min);
    marks.push({
      mark: "worker",
      rank: w.rank,
      iteration: w.iteration,
      doing: w.doing,
      version: w.held[0],
      versions: w.held,
      behind: w.behind,
      limit: w.limit,
      x,
      y,
    });
    if (w.limit !== null)
      marks.push({
        mark: "wall",
        rank: w.rank,
        iteration: w.limit,
        x: columnX(place, w.limit + 1, frame.min),
        y,
      });
  });
  frame.shards.forEach((s, k) =>
    marks.push({
      mark: "shard",
      rank: s.rank,
      version: s.version,
      queue: s.queue.map((p) => p.worker),
      applying: s.applying.map((p) => p.worker),
      share: s.share,
      gone: !Number.isNaN(s.gone),
      copies: s.copies,
      regained: s.regained.map((one) => [one.server, one.source, one.holder, one.updates_lost]),
      x: place.bins[k].x,
      y: place.bins[k].y,
    }),
  );
  for (const { server, source, holder, owner, share } of frame.moves)
    marks.push({ mark: "keys", rank: owner, peer: holder, server, source, share });
  for (const c of comets)
    marks.push({
      mark: "comet",
      rank: c.from,
      peer: c.to,
      kind: c.kind,
      group: "default",
      op: c.op,
      iteration: c.iteration,
      version: c.version,
      share: c.share,
      x: c.x,
      y: c.y,
      playhead,
    });
  return marks;
}

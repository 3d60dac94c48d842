// @ts-check
/**
 * What is on screen of a model, mark by mark: stages, layers, cuts, what crosses them, memory.
 *
 * @typedef {import("../../engine/page_state.js").Look} Look
 * @typedef {import("./draw.js").GraphSeen} GraphSeen
 */
import { rateOf } from "./captions.js";
import { memoryOf } from "./charts.js";
import { perMicrobatch, trafficOf } from "./traffic.js";

/** Return the marks of a picture. @param {Look} look @param {GraphSeen} seen */
export function marksOf(look, { comets, ...seen }) {
  const { place, nodes, model, ranks, crossed } = seen;
  const marks = /** @type {any[]} */ ([]);
  for (const band of place.bands) {
    marks.push({
      mark: "stage",
      stage: band.stage,
      rank: ranks[band.stage],
      x: band.x,
      y: band.top,
      w: place.width,
      h: band.height,
    });
    for (const { boxes } of band.lines)
      for (const { node, x, y, w, h } of boxes)
        marks.push({
          mark: "layer",
          name: nodes[node].name,
          stage: band.stage,
          rank: ranks[band.stage],
          folded: nodes[node].folded,
          layers: nodes[node].layers.map((l) => l.index),
          x,
          y,
          w,
          h,
        });
  }
  for (const { border, x, top, y } of place.cuts) {
    const cut = crossed?.cuts[border];
    marks.push({
      mark: "cut",
      cut: border,
      after: model.borders[border].after,
      planned: model.borders[border].bytes,
      iteration: crossed?.iteration ?? -1,
      activation: cut?.activation.bytes ?? 0,
      gradient: cut?.gradient.bytes ?? 0,
      each: perMicrobatch(cut?.activation),
      rate: crossed ? rateOf(crossed, border) : NaN,
      x: x + place.left,
      y,
      top,
    });
  }
  for (const c of comets)
    marks.push({
      mark: "comet",
      rank: c.from,
      peer: c.to,
      op: c.op,
      group: "default",
      cut: c.cut,
      gradient: c.gradient,
      microbatch: c.microbatch,
      iteration: c.iteration,
      share: c.share,
      x: c.x,
      y: c.y,
    });
  for (const h of memoryOf(model, ranks, look.known.run, trafficOf(look.table), look.t))
    marks.push({ mark: "memory", ...h, limit: look.known.run?.memory_limit ?? null });
  return marks;
}

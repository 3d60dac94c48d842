// @ts-check
/** What is on screen of the samples, as data: minibatches, and each sample where it is taken. */
import { dealsSame } from "./deal.js";
import { columnAt, rowAt } from "./place.js";

/** @param {import("./draw.js").DealSeen} seen */
export function marksOf({ deal, place, at, runs }) {
  const marks = /** @type {any[]} */ ([]);
  for (const { index, x, y } of place.panels) {
    const batch = deal.batches[index];
    marks.push({
      mark: "minibatch",
      minibatch: index,
      epoch: batch.epoch,
      number: batch.number,
      same: dealsSame(batch),
      x,
      y,
      w: place.panel,
    });
    batch.columns.forEach(({ sample, alone, takers }, k) => {
      const left = columnAt(place, x, k, batch.wide);
      if (alone)
        marks.push({
          mark: "alone",
          minibatch: index,
          sample,
          taken: takers.length > 0,
          x: left,
          y,
          w: place.cell,
          h: place.head,
        });
      for (const { row, place: number, again } of takers)
        marks.push({
          mark: "sample",
          minibatch: index,
          rank: deal.ranks[row],
          sample,
          number,
          again,
          extra: !alone,
          later: runs && index > at[row],
          x: left,
          y: rowAt(place, y, row),
          w: place.cell,
          h: place.row,
        });
    });
    if (runs)
      at.forEach(
        (i, row) =>
          i === index &&
          marks.push({
            mark: "here",
            rank: deal.ranks[row],
            minibatch: index,
            x,
            y: rowAt(place, y, row),
          }),
      );
  }
  return marks;
}

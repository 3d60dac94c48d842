// @ts-check
/**
 * A rank's computing as bars: backward in pieces, by the bucket that it fills, with a tick where a
 * bucket is full.
 *
 * @typedef {import("./index.js").RankLines} RankLines
 * @typedef {import("./draw.js").Canvas} Canvas
 * @typedef {import("./draw.js").Shares} Shares
 * @typedef {import("./draw.js").Hit} Hit
 */
import { SPAN } from "./density.js";
import { fitting, windowX } from "./layout.js";
import { SPAN_INK, drawStacks, inkOn, typeIn, writeOn } from "./paint.js";

/**
 * Draw a rank's computing: a bar a row, backward by the bucket that it fills.
 * @param {CanvasRenderingContext2D} g
 * @param {Canvas} canvas
 * @param {RankLines} rank
 * @param {number} y
 * @param {Shares} sums
 * @param {number} columns
 * @param {number} dt
 * @param {Hit[]} hits
 */
export function drawComputing(g, canvas, rank, y, sums, columns, dt, hits) {
  const { index, place, win, ink, font, waiting } = canvas;
  const { table } = index;
  const h = place.lanes.ownHeight;
  const rows = index.within(rank.computed, win.from, win.to, columns / 3);
  if (!rows) return drawStacks(g, ink, waiting, sums.compute, columns, dt, place.left, y, h);
  const faults = index.faults.map(({ at }) => windowX(win, place, at));
  typeIn(g, font, true);
  const measure = (/** @type {string} */ text) => g.measureText(text).width;
  for (const row of rows) {
    const span = index.classes[table.kind[row]];
    const name = SPAN_INK[span];
    const wide = ((table.end[row] - table.start[row]) / (win.to - win.from)) * place.room;
    const marks =
      span === SPAN.backward && wide > 24
        ? (index.within(rank.marks, table.start[row], table.end[row]) ?? [])
        : [];
    const cuts = marks.length
      ? [
          ...marks.map((m) => ({ t: table.start[m], bucket: table.value[m] })),
          { t: table.end[row], bucket: -1 },
        ]
      : [{ t: table.end[row], bucket: -1 }];
    let from = table.start[row];
    for (const { t, bucket } of cuts) {
      const a = Math.max(place.left, windowX(win, place, from));
      const b = Math.min(place.right, windowX(win, place, t));
      const w = Math.max(1, b - a - (b - a > 3 ? 1 : 0));
      from = t;
      // what follows the last bucket is no work
      if (b < place.left || a > place.right || (bucket < 0 && marks.length && b - a < 2)) continue;
      g.fillStyle = ink[name];
      g.fillRect(a, y, w, h);
      const text =
        span === SPAN.upkeep
          ? table.text(table.name[row]) || table.kindName(table.kind[row])
          : bucket >= 0
            ? `backward ${bucket}`
            : table.kindName(table.kind[row]).replace("_", " ");
      const label = place.labels ? fitting(text, w, measure) : "";
      const middle = label ? besideFaults(faults, a, a + w, measure(label)) : NaN;
      if (middle) writeOn(g, label, middle, y + h / 2, inkOn(ink, name));
      hits.push({
        x: a,
        y,
        w,
        h,
        rank: rank.rank,
        row,
        words: bucket >= 0 ? `, here until bucket ${bucket} was full` : "",
        bucket,
      });
    }
    g.fillStyle = ink.ink; // a tick where a bucket is full: its all-reduce may begin
    for (const m of marks) {
      const x = windowX(win, place, table.start[m]);
      if (x >= place.left && x <= place.right) g.fillRect(x - 1.25, y + h - 4, 1.5, 8);
    }
  }
  for (const row of index.within(rank.rebuilds, win.from, win.to) ?? [])
    drawRebuilt(g, canvas, rank.rank, row, y, hits);
}

/**
 * Draw two ticks close together: here the buckets were built anew.
 * @param {CanvasRenderingContext2D} g
 * @param {Canvas} canvas
 * @param {number} rank
 * @param {number} row
 * @param {number} y
 * @param {Hit[]} hits
 */
function drawRebuilt(g, { index, place, win, ink }, rank, row, y, hits) {
  const x = windowX(win, place, index.table.start[row]);
  const h = place.lanes.ownHeight;
  if (x < place.left || x > place.right) return;
  g.fillStyle = ink.ink;
  // below the names of bars
  for (const side of [-2.25, 0.75]) g.fillRect(x + side, y + h - 4, 1.5, 8);
  hits.push({ x: x - 4, y: y + h - 5, w: 8, h: 10, rank, row, words: "" });
}

/**
 * Return where the middle of a bar's label goes, so that no line of a fault crosses it; NaN: nowhere.
 * @param {number[]} faults  where the lines are
 * @param {number} left  of the bar
 * @param {number} right
 * @param {number} wide  the label
 */
export function besideFaults(faults, left, right, wide) {
  const inside = faults.filter((x) => x > left && x < right).sort((a, b) => a - b);
  const edges = [left, ...inside, right];
  const gaps = edges.slice(1).map((end, i) => ({ from: edges[i], wide: end - edges[i] }));
  const most = gaps.reduce((best, gap) => (gap.wide > best.wide ? gap : best));
  return inside.length && most.wide < wide + 8 ? NaN : most.from + most.wide / 2;
}

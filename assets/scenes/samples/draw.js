// @ts-check
/**
 * Minibatches drawn: one process's in its order, and below it, dealt out like cards, each rank's
 * part. What this epoch has had before is hatched; what no rank takes is an open dashed box; what is
 * still to come is pale.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./deal.js").Deal} Deal
 * @typedef {import("./deal.js").DealtBatch} DealtBatch
 * @typedef {import("./place.js").DealPlace} DealPlace
 * @typedef {{deal: Deal, place: DealPlace, at: number[], runs: boolean, sample: number,
 *   rank: number}} DealSeen
 *   at: the iteration of each row's rank at the playhead; runs: there is a run that goes through
 *   them; sample, rank: the reader's choice, -1 none
 */
import { Pen } from "../../drawing/pen.js";
import { SLOTTED } from "../../drawing/glyph.js";
import { hatched } from "../../drawing/hatch.js";
import { dealsSame } from "./deal.js";
import { columnAt, rowAt } from "./place.js";

const LATER = 0.35; // as in every picture: the future is pale

/**
 * A row's colour: an identity while ranks are few, and the chosen one's always.
 * @param {Record<string, string>} ink
 * @param {Deal} deal
 * @param {number} row
 * @param {number} rank the chosen
 */
export const dealInk = (ink, deal, row, rank = -1) =>
  deal.ranks.length <= SLOTTED || deal.ranks[row] === rank
    ? ink[`s${deal.ranks[row] % 8}`]
    : ink.done;
/**
 * @param {Record<string, string>} ink
 * @param {Deal} deal
 * @param {number} row
 * @param {number} rank
 */
const onDealInk = (ink, deal, row, rank) =>
  deal.ranks.length <= SLOTTED || deal.ranks[row] === rank
    ? ink[`on-s${deal.ranks[row] % 8}`]
    : ink.ground;

/** @param {CanvasRenderingContext2D} g @param {Look} look @param {DealSeen} seen */
export function drawDeal(g, look, seen) {
  const pen = new Pen(g, look);
  const { place } = seen;
  for (const panel of place.panels)
    drawBatch(pen, look, seen, panel.x, panel.y, seen.deal.batches[panel.index]);
  for (const y of new Set(place.panels.map((p) => p.y))) drawDealRanks(pen, seen, y);
}

/**
 * Who the rows are.
 * @param {Pen} pen
 * @param {DealSeen} seen
 * @param {number} y
 */
function drawDealRanks(pen, { deal, place, rank }, y) {
  if (place.head >= 14)
    pen.write(place.left < 70 ? "1 process" : "one process", 0, y + place.head / 2);
  const every = Math.ceil(15 / place.row);
  deal.ranks.forEach((number, row) => {
    const chosen = number === rank;
    if (row % every && !chosen) return;
    pen.write(
      `rank ${number}`,
      0,
      rowAt(place, y, row) + place.row / 2,
      chosen ? "ink" : "ink-2",
      "left",
      chosen,
    );
  });
}

/**
 * @param {Pen} pen
 * @param {Look} look
 * @param {DealSeen} seen
 * @param {number} x
 * @param {number} y
 * @param {DealtBatch} batch
 */
function drawBatch(pen, look, seen, x, y, batch) {
  const { g, ink } = pen;
  const { deal, place, at, runs, sample } = seen;
  const begun = (/** @type {number} */ row) => !runs || batch.index <= at[row];
  const now = runs && at.includes(batch.index);
  const shown = runs && !at.some((i) => batch.index <= i) ? LATER : 1;
  g.globalAlpha = shown;
  drawHeading(pen, seen, x, y - 10, batch);
  if (now) pen.box(x, y - 2, place.panel, 1.5, "focus");
  g.fillStyle = ink.panel; // the eye finds the row
  if (place.row > 8)
    for (let row = 0; row < place.rows; row++)
      g.fillRect(x, rowAt(place, y, row), place.panel - 1.5, place.row - 2.5);
  batch.columns.forEach((column, k) => {
    const left = columnAt(place, x, k, batch.wide);
    const wide = place.cell > 4 ? place.cell - 1.5 : place.cell;
    g.globalAlpha = shown;
    drawAlone(pen, seen, left, y, wide, column);
    for (const { row, again } of column.takers) {
      const top = rowAt(place, y, row);
      const tall = place.row - (place.row > 8 ? 2.5 : 1);
      const colour = dealInk(ink, deal, row, seen.rank);
      g.globalAlpha = begun(row) ? 1 : LATER;
      if (again) {
        pen.box(left, top, wide, tall, "ground");
        pen.box(left, top, wide, tall, place.cell > 6 ? hatched(colour, look.ratio) : colour);
        if (place.cell > 4)
          pen.outline(left + 0.75, top + 0.75, wide - 1.5, tall - 1.5, colour, 1.5);
      } else {
        pen.box(left, top, wide, tall, colour);
      }
      if (place.numbers) {
        if (again) {
          // a number is never on the hatch
          const w = String(column.sample).length * 6.4 + 3;
          pen.box(left + (wide - w) / 2, top + 2, w, tall - 4, "ground");
        }
        pen.write(
          String(column.sample),
          left + wide / 2,
          top + tall / 2 + 0.5,
          again ? "ink" : onDealInk(ink, deal, row, seen.rank),
          "center",
          !again,
        );
      }
      if (column.sample === sample) chosenBox(pen, left, top, wide, tall);
    }
  });
  g.globalAlpha = shown;
  if (batch.columns.length > batch.wide && batch.wide)
    pen.box(
      columnAt(place, x, batch.wide, batch.wide) - 4.5,
      y,
      1,
      rowAt(place, y, place.rows) - y - 2,
      "edge",
    );
  g.globalAlpha = 1;
  if (runs)
    at.forEach(
      (iteration, row) =>
        iteration === batch.index &&
        drawHere(pen, x, rowAt(place, y, row) + place.row / 2 - 1, Math.min(4, place.row / 2)),
    );
}

/**
 * One process's sample; of one that it does not take, the number alone.
 * @param {Pen} pen
 * @param {DealSeen} seen
 * @param {number} left
 * @param {number} y
 * @param {number} wide
 * @param {import("./deal.js").SampleColumn} column
 */
function drawAlone(
  pen,
  { deal, place, rank, sample },
  left,
  y,
  wide,
  { sample: id, alone, takers },
) {
  const { g, ink } = pen;
  const tall = place.head - 2;
  if (alone && takers.length) {
    pen.box(left, y, wide, tall, "track");
    const taker = dealInk(ink, deal, takers[0].row, rank);
    if (!place.plain) pen.box(left, y + tall - 2.5, wide, 2.5, taker);
  } else if (alone) {
    if (place.cell > 4) pen.outline(left + 0.5, y + 0.5, wide - 1, tall - 1, "ink", 1, [2, 2]);
    else g.fillRect(left, y + tall / 2, wide, 1);
  }
  if (!place.plain) {
    const text = String(id);
    const colour = alone ? ink.ink : ink["ink-3"];
    if (!place.upright)
      pen.write(
        text,
        left + wide / 2,
        y + tall / 2 - (alone && takers.length ? 1 : 0),
        colour,
        "center",
      );
    else {
      g.save();
      g.translate(left + wide / 2 + 0.5, y + tall - 5);
      g.rotate(-Math.PI / 2);
      pen.write(text, 0, 0, colour);
      g.restore();
    }
  }
  if (id === sample) chosenBox(pen, left, y, wide, tall);
}

/**
 * @param {Pen} pen
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 */
function chosenBox(pen, x, y, w, h) {
  pen.outline(x - 0.5, y - 0.5, w + 1, h + 1, "focus", 2);
}

/**
 * The playhead: this rank is in this minibatch.
 * @param {Pen} pen
 * @param {number} x
 * @param {number} y
 * @param {number} r
 */
export function drawHere(pen, x, y, r) {
  const { g, ink } = pen;
  g.fillStyle = ink.focus;
  g.beginPath();
  g.moveTo(x - 8, y - r);
  g.lineTo(x - 2, y);
  g.lineTo(x - 8, y + r);
  g.fill();
}

/**
 * @param {Pen} pen
 * @param {DealSeen} seen
 * @param {number} x
 * @param {number} y
 * @param {DealtBatch} batch
 */
function drawHeading(pen, { deal, place }, x, y, batch) {
  const { g, font } = pen;
  g.font = `700 11px ${font}`;
  const words =
    headings(batch, deal.several).find((text) => g.measureText(text).width <= place.panel) ?? "";
  pen.write(words, x, y, "ink", "left", true);
}

/**
 * What is written above a minibatch, the fullest first.
 * @param {DealtBatch} batch
 * @param {boolean} several  epochs
 */
export function headings(batch, several) {
  const sign = dealsSame(batch) ? "✓" : "≠";
  const epoch = several ? `epoch ${batch.epoch} · ` : "";
  const more = [
    batch.lack ? `${batch.lack} not taken` : "",
    batch.extra ? `${batch.extra} more` : "",
  ]
    .filter(Boolean)
    .join(", ");
  const last = dealsSame(batch) ? "as one process" : more;
  return [
    `${epoch}minibatch ${batch.number} ${sign} ${last}`,
    `${epoch}minibatch ${batch.number} ${sign}`,
    `minibatch ${batch.number} ${sign}`,
    `${several ? `${batch.epoch}/` : ""}${batch.number} ${sign}`,
    `${batch.number}`,
  ];
}

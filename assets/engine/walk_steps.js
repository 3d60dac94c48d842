// @ts-check
/**
 * A guided walk: its steps are data (scenes/<name>/walk.json, or a lecturer's own), and here is what
 * each of them tells of the run on show: at which moment its mark is drawn, which number it says, and
 * where its card stands. Pure functions.
 *
 * @typedef {import("./page_state.js").Look} Look
 * @typedef {{start: number, end: number, flights?: {start: number, end: number}[],
 *   rows?: {rank: number, peer: number, kind: string, start: number, end: number, nbytes: number,
 *   name: string, value?: number}[]}}
 *   Span  a call, a round or a pass; or the whole run
 * @typedef {{say: string, fact?: string, field?: string, take?: "sum" | "count" | "mean" | "max" |
 *   "share" | "last", column?: "nbytes" | "duration" | "value", name?: string, kind?: string | string[], mark?: string, of?: "call" | "run", by?: string[],
 *   as?: "bytes" | "time" | "share" | "count" | "number"}} Query
 *   say: the sentence, with {n} for the number. fact: a field of what is known of the run; field: of
 *   the mark itself, or of the first that is drawn of another name, `mark`; "count": how many are
 *   drawn of that name; take: of a column of those rows that are of a kind, of the call on show or the
 *   run, and whose numbers `by` are the mark's. as: how it is written
 * @typedef {{title: string, text: string, mark: string | string[], scene?: string, rank?: number, peer?: number,
 *   where?: Record<string, unknown>, playhead?: number, of?: "call" | "run", number?: Query,
 *   knob?: {words: string, target: "rank" | "link"}}} Step
 *   mark: its name, or several: the first that is drawn; where: fields that it must have; playhead: a share of the call on show, or of the run
 * @typedef {{x: number, y: number, w: number, h: number}} Box
 */
import { bytes, duration, grouped } from "./format.js";

const LOOKED = 48; // moments at which a mark is looked for
const GAP = 14; // px between a mark and its card

/** The name of a mark: those without one are messages on their way. @param {any} mark */
const nameOf = ({ mark = "comet" }) => mark;

/** The first mark that a step tells of. @param {Step} step @param {any[]} marks */
export const markOf = ({ mark, rank, peer, where = {} }, marks) =>
  marks.find(
    (one) =>
      [mark].flat().includes(nameOf(one)) &&
      (rank === undefined || one.rank === rank) &&
      (peer === undefined || one.peer === peer) &&
      Object.entries(where).every(([name, value]) => one[name] === value),
  ) ?? null;

/**
 * The moments at which a step may stand: where it says, then those nearest to it.
 * @param {Step} step @param {Span} span
 */
export function momentsOf({ playhead = 0.5 }, { start, end, flights = [] }) {
  const wanted = start + playhead * (end - start);
  const every = Math.max(1, Math.ceil(flights.length / LOOKED));
  const near = [
    ...flights.filter((_, i) => i % every === 0).map((f) => start + (f.start + f.end) / 2),
    ...Array.from({ length: LOOKED + 1 }, (_, i) => start + (i / LOOKED) * (end - start)),
  ];
  return [wanted, ...near.sort((a, b) => Math.abs(a - wanted) - Math.abs(b - wanted))];
}

/** A text with the numbers of the mark that it tells of. @param {string} text @param {Record<string, any>} who */
export const filled = (text, who) =>
  text.replace(/\{(\w+)\}/g, (all, name) => (who[name] === undefined ? all : String(who[name])));

/** @type {Record<string, (x: number) => string>} */
const WRITTEN = {
  bytes,
  time: duration,
  share: (x) => `${Math.round(100 * x)} %`,
  number: (x) => String(Number(x.toPrecision(3))),
  count: (x) => grouped(x),
};
/** @type {Record<string, string>} */
const OF_COLUMN = { nbytes: "bytes", duration: "time", value: "number" };

/**
 * The number of a step in words; "" where the run has none.
 * @param {Query} query @param {Look} look @param {Span} span  the call on show
 * @param {Record<string, any>} who  the mark's fields, and the step's
 * @param {any[]} [marks]  all that are drawn
 */
export function numberOf(query, look, span, who, marks = []) {
  const { fact, field, mark, take = "sum", column = "nbytes" } = query;
  const named = marks.filter((one) => nameOf(one) === (mark ?? who.mark));
  let number = NaN;
  if (fact) number = /** @type {any} */ (look.known.run)?.[fact];
  else if (field === "count") number = named.length || NaN;
  else if (field) number = (mark ? named[0] : who)?.[field];
  else number = taken(query, look, span, who);
  if (typeof number === "string") return number;
  if (typeof number !== "number" || !Number.isFinite(number)) return "";
  const kept = fact || field || take === "count" ? "count" : OF_COLUMN[column];
  return WRITTEN[query.as ?? (take === "share" && !fact && !field ? "share" : kept)](number);
}

/** @param {Query} query @param {Look} look @param {Span} span @param {Record<string, any>} who */
function taken(
  { take = "sum", column = "nbytes", name, kind, of = "call", by = [] },
  look,
  span,
  who,
) {
  const { counters, table } = look.known;
  // rows that the page has not got, or that stand for several: no sum of the run
  if (of === "run" && (counters?.older || counters?.coarser || counters?.folded || table.forgotten))
    return NaN;
  const whole = of === "run" ? { start: table.from, end: table.to } : span;
  let [sum, count, most, last] = [0, 0, 0, { end: -1, value: NaN }];
  for (const row of rowsOf(look, column === "value" ? { ...whole, rows: [] } : whole)) {
    if (kind && ![kind].flat().includes(row.kind)) continue;
    if (by.some((name) => /** @type {any} */ (row)[name] !== who[name])) continue;
    if (name && row.name !== name) continue;
    const value = { nbytes: row.nbytes, duration: row.end - row.start, value: row.value ?? NaN }[
      column
    ];
    if (!Number.isFinite(value) || (value < 0 && column !== "value")) continue;
    if (row.end >= last.end && row.end <= look.t) last = { end: row.end, value };
    sum += value;
    count += 1;
    most = Math.max(most, value);
  }
  if (take === "count") return count || NaN;
  if (!count) return NaN;
  if (take === "share")
    return Math.min(
      1,
      sum / Math.max(1, whole.end - whole.start) / (by.includes("rank") ? 1 : look.ranks),
    );
  return { sum, max: most, mean: sum / count, last: last.value }[take];
}

/** The rows of a call, or of all that began within a span. @param {Look} look @param {Span} span */
function* rowsOf({ table }, span) {
  if (span.rows?.length) return yield* span.rows; // of a call, without those of others
  const { start, end, peer, nbytes, passages } = table;
  for (let r = 0; r < table.rows; r++)
    if (start[r] >= span.start && start[r] <= span.end)
      yield {
        rank: passages.rank[table.passage[r]],
        peer: peer[r],
        kind: table.kindName(table.kind[r]),
        start: start[r],
        end: end[r],
        nbytes: nbytes[r],
        name: table.text(table.name[r]),
        value: table.value[r],
      };
}

/**
 * Where a card stands beside a box, within a room: at its right, its left, below or above it, else
 * in the corner that covers least of it.
 * @param {Box} box @param {{w: number, h: number}} card @param {{w: number, h: number}} room
 */
export function cardPlace(box, card, room) {
  const fit = (/** @type {number} */ v, /** @type {number} */ size, /** @type {number} */ most) =>
    Math.max(0, Math.min(v, most - size));
  const x = fit(box.x + box.w / 2 - card.w / 2, card.w, room.w);
  const y = fit(box.y + box.h / 2 - card.h / 2, card.h, room.h);
  const [right, left] = [box.x + box.w + GAP, box.x - GAP - card.w];
  const [below, above] = [box.y + box.h + GAP, box.y - GAP - card.h];
  if (right + card.w <= room.w) return { x: right, y };
  if (left >= 0) return { x: left, y };
  if (below + card.h <= room.h) return { x, y: below };
  if (above >= 0) return { x, y: above };
  return {
    x: box.x > room.w - box.x - box.w ? 0 : Math.max(0, room.w - card.w),
    y: box.y > room.h - box.y - box.h ? 0 : Math.max(0, room.h - card.h),
  };
}

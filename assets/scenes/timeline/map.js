// @ts-check
/**
 * The whole run above the window: a lane a rank, in every pixel column the exact share of each kind
 * of time. Columns are drawn once and kept; what comes later is drawn beside them. Its scale grows
 * in steps while the run goes on. Where iterations are narrow a column tells of the whole
 * iterations that it touches: still exact, and without their flicker.
 *
 * @typedef {import("./index.js").TimelineIndex} TimelineIndex
 * @typedef {import("./layout.js").TimelinePlace} TimelinePlace
 * @typedef {{from: number, to: number}} Reach
 */
import { SPANS } from "./density.js";
import { holdsOf } from "../../engine/holds.js";
import { faultWords } from "../../engine/fault_words.js";
import { bandsOf, drawBands, hasBands } from "../../drawing/generation_bands.js";
import { LabelRow } from "../../drawing/label_row.js";
import { roundedSpan, nameOfRow, rowsOfRanks } from "./layout.js";
import { addMean, drawHolds, drawStacks } from "./paint.js";
import { grouped } from "../../engine/format.js";

const AT_LEAST = 1e8; // ns on the map of a run that goes on
const NARROW = 20; // px: where an iteration is narrower, a column is the mean over it

/**
 * What the map reaches over.
 * @param {Reach | null} before
 * @param {Reach} run
 * @param {boolean} over  no more will come
 * @returns {Reach}
 */
export function reachOf(before, run, over) {
  const span = Math.max(1, run.to - run.from);
  if (over) return { from: run.from, to: run.from + span };
  if (before && before.from === run.from && before.to >= run.to) return before;
  return { from: run.from, to: run.from + roundedSpan(Math.max(AT_LEAST, span * 1.02)) };
}

const stepBefore = new Float64Array(SPANS.length);
const stepAfter = new Float64Array(SPANS.length);

/**
 * What the columns of a rank's lane show: their own time where iterations are wide; else the mean
 * over the iterations that they touch, which repeat themselves many times in few pixels. One that
 * has not ended yet waits.
 * @param {TimelineIndex} index
 * @param {import("./index.js").RankLines} rank
 * @param {number} from
 * @param {number} dt
 * @param {number} columns
 * @param {boolean} over
 * @param {Float64Array} out  columns × classes, overwritten
 */
export function mapShares(index, rank, from, dt, columns, over, out) {
  const { all, steps } = rank;
  const n = SPANS.length;
  all.columns(from, dt, columns, out);
  let k = Math.max(0, index.stepAt(rank, from));
  for (let c = 0, a = NaN, b = NaN; c < columns; c++) {
    const left = from + c * dt;
    const right = left + dt;
    while (k + 1 < steps.length && steps[k + 1].start <= left) k++;
    let last = k;
    while (last + 1 < steps.length && steps[last + 1].start < right) last++;
    const step = steps[k];
    const next = steps[last + 1];
    if (!step || right <= step.start) continue;
    const open = !next && !steps[last].done && !over;
    const end = next?.start ?? (open && last > k ? steps[last].start : steps[last].end);
    if (end - step.start >= NARROW * dt || left >= end) continue; // wide, or nothing under way
    if (open && last === k) {
      out.fill(0, c * n, c * n + n);
      continue;
    }
    if (step.start !== a || end !== b) {
      a = step.start;
      b = end;
      all.until(a, stepBefore);
      all.until(b, stepAfter);
    }
    for (let s = 0; s < n; s++) out[c * n + s] = ((stepAfter[s] - stepBefore[s]) / (b - a)) * dt;
  }
}

export class TimelineMap {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.reach = /** @type {Reach | null} */ (null);
    this.drawn = "";
    this.sums = new Float64Array(0);
    this.mean = new Float64Array(0);
  }

  /**
   * The lanes, as far as they have changed.
   * @param {TimelineIndex} index
   * @param {TimelinePlace} place
   * @param {number[]} ranks
   * @param {any} paint  ink, waiting, ratio, over; folded: iterations have no places of their own
   * @param {number} changed  from where on
   */
  update(index, place, ranks, { ink, waiting, ratio, over, folded, theme }, changed) {
    const { table } = index;
    const columns = Math.floor(place.room);
    const { map } = place;
    const reach = (this.reach = reachOf(
      this.reach,
      { from: Number.isFinite(table.from) ? table.from : 0, to: Math.max(table.to, 1) },
      over,
    ));
    const key = [
      reach.from,
      reach.to,
      columns,
      String(ranks),
      map.lane,
      ratio,
      theme,
      folded,
    ].join();
    const dt = (reach.to - reach.from) / columns;
    const all = key !== this.drawn;
    const w = Math.round(place.right * ratio);
    const h = Math.round(map.height * ratio);
    this.drawn = key;
    if (this.canvas.width !== w || this.canvas.height !== h)
      Object.assign(this.canvas, { width: w, height: h });
    let since = changed; // whole iterations are drawn anew
    for (const rank of all || folded || changed >= table.to ? [] : index.ranks.values())
      since = Math.min(since, rank.steps[index.stepAt(rank, changed) - 1]?.start ?? since);
    const first = all ? 0 : Math.max(0, Math.floor((since - reach.from) / dt));
    const count = Math.min(columns, Math.ceil((table.to - reach.from) / dt)) - first;
    if (!all && !(count > 0 && changed < table.to)) return;
    const g = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    const x = place.left + first;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(x, 0, columns - first, map.height);
    if (count <= 0) return;
    if (this.sums.length < columns * SPANS.length) {
      this.sums = new Float64Array(columns * SPANS.length);
      this.mean = new Float64Array(columns * SPANS.length);
    }
    rowsOfRanks(place, ranks).forEach((members, i) => {
      this.mean.fill(0, 0, count * SPANS.length);
      for (const number of members) {
        const rank = index.ranks.get(number);
        if (!rank) continue;
        const from = reach.from + first * dt;
        if (folded) rank.all.columns(from, dt, count, this.sums);
        else mapShares(index, rank, from, dt, count, over, this.sums);
        addMean(this.mean, this.sums, count * SPANS.length, members.length);
      }
      drawStacks(
        g,
        ink,
        waiting,
        this.mean,
        count,
        dt,
        x,
        map.top + i * (map.lane + map.gap),
        map.lane,
      );
    });
  }

  /** Where a moment lies on the map, and back. @param {TimelinePlace} place @param {number} t */
  x(place, t) {
    const { from, to } = this.reach ?? { from: 0, to: 1 };
    return place.left + ((t - from) / (to - from)) * place.room;
  }

  /** @param {TimelinePlace} place @param {number} x */
  t(place, x) {
    const { from, to } = this.reach ?? { from: 0, to: 1 };
    return from + ((x - place.left) / place.room) * (to - from);
  }

  /**
   * The map with its labels, the window on it and the funnel.
   * @param {CanvasRenderingContext2D} g
   * @param {any} look
   * @param {TimelineIndex} index
   * @param {TimelinePlace} place
   * @param {number[]} ranks
   * @param {import("./layout.js").Window} win
   * @param {number} straggler
   */
  draw(g, { ink, font, t, known, holding }, index, place, ranks, win, straggler) {
    const { map, left, right } = place;
    if (hasBands(known) && index.table.rows) {
      const { from, to } = index.table;
      const bands = bandsOf(known, from, to).map((band) => ({
        ...band,
        from: this.x(place, band.from),
        to: this.x(place, band.to),
      }));
      drawBands(g, ink, font, bands, 13);
    }
    g.fillStyle = ink.track;
    for (let i = 0; i < place.rows; i++)
      g.fillRect(left, map.top + i * (map.lane + map.gap) + map.lane - 0.5, place.room, 0.5);
    g.drawImage(this.canvas, 0, 0, right, map.height);
    const box = { left, right, top: map.top, bottom: map.bottom };
    drawHolds(g, { ink, font, holding }, holdsOf(index.table), (at) => this.x(place, at), box);
    this.#labels(g, ink, font, index, place, ranks, win, straggler);
    if (!index.table.rows) return;
    const a = Math.max(left, this.x(place, win.from));
    const b = Math.max(a + 3, Math.min(right, this.x(place, win.to)));
    const bottom = map.bottom + 1;
    g.fillStyle = ink.track;
    g.beginPath();
    g.moveTo(a, bottom + 2);
    g.lineTo(b, bottom + 2);
    g.lineTo(right, map.height);
    g.lineTo(left, map.height);
    g.fill();
    g.strokeStyle = g.fillStyle = ink.focus;
    g.lineWidth = 2;
    g.strokeRect(a - 1, map.top - 3, b - a + 2, bottom - map.top + 4);
    const x = this.x(place, t);
    if (x < left || x > right) return;
    g.fillRect(x - 0.75, map.top - 3, 1.5, bottom - map.top + 4);
  }

  /**
   * @param {CanvasRenderingContext2D} g
   * @param {Record<string, string>} ink
   * @param {string} font
   * @param {TimelineIndex} index
   * @param {TimelinePlace} place
   * @param {number[]} ranks
   * @param {import("./layout.js").Window} win
   * @param {number} straggler
   */
  #labels(g, ink, font, index, place, ranks, win, straggler) {
    const { map, left, right } = place;
    const row = new LabelRow(left - 2, right + 6);
    const put = (
      /** @type {string} */ text,
      /** @type {number} */ x,
      /** @type {("middle" | "right" | "left")[]} */ ways,
      /** @type {string} */ color,
      bold = true,
    ) => {
      g.font = `${bold ? "700 " : ""}11px ${font}`;
      const at = row.place(x, g.measureText(text).width, ways);
      g.fillStyle = color;
      if (at !== null) g.fillText(text, at, 9);
    };
    g.textAlign = "left";
    g.textBaseline = "alphabetic";
    const middle = this.x(place, (win.from + win.to) / 2);
    if (win.iteration >= 0)
      put(
        `iteration ${grouped(win.iteration + 1)}`,
        Math.max(left + 36, Math.min(right - 36, middle)),
        ["middle"],
        ink.ink,
      );
    for (const fault of index.faults) {
      const x = this.x(place, fault.at);
      const isFault = fault.kind === "fault";
      const ours = fault.rank < 0;
      if (x < left || x > right) continue;
      g.fillStyle = isFault ? ink.hold : ink.fault;
      for (let y = map.top - 3; y < map.bottom; y += 5) g.fillRect(x - 0.75, y, 1.5, 3);
      if (isFault)
        put(
          faultWords({ ...fault, rank: ours ? fault.peer : fault.rank }, ours, false),
          x,
          ["left", "right"],
          ink.hold,
        );
    }
    const steps = index.ranks.get(ranks[0])?.steps ?? [];
    if (steps.length) {
      if (steps[0].iteration !== win.iteration)
        put(
          `iteration ${grouped(steps[0].iteration + 1)}`,
          left - 7,
          ["right"],
          ink["ink-3"],
          false,
        );
      const last = steps[steps.length - 1];
      if (last.iteration !== win.iteration)
        put(
          `${grouped(last.iteration + 1)}`,
          this.x(place, last.end) + 5,
          ["left"],
          ink["ink-3"],
          false,
        );
    }
    g.textAlign = "right";
    g.textBaseline = "middle";
    const every = 2 ** Math.ceil(Math.log2(13 / (map.lane + map.gap)));
    const held = Math.floor(ranks.indexOf(straggler) / place.band);
    rowsOfRanks(place, ranks).forEach((members, i) => {
      const slow = straggler >= 0 && i === held;
      if (!slow && (i % every || (straggler >= 0 && Math.abs(held - i) < every))) return;
      g.font = `${slow ? "700 " : ""}11px ${font}`;
      g.fillStyle = slow ? ink.ink : ink["ink-3"];
      g.fillText(
        slow ? `rank ${straggler}` : nameOfRow(members),
        left - 8,
        map.top + i * (map.lane + map.gap) + map.lane / 2,
      );
    });
  }
}

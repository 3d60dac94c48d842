// @ts-check
/**
 * Which ranks have a row, and in which order, where there are many: a few of them, the most waiting first,
 * and pinned ones above all others.
 *
 * @typedef {import("./scene.js").TimelineView} TimelineView
 * @typedef {import("./index.js").TimelineIndex} TimelineIndex
 */
import { SPAN } from "./density.js";

export const MANY = 16; // ranks, from which on the reader picks

/**
 * The ranks that a text names, "0-7, 12"; null: it names none.
 * @param {string} text
 */
export function ranksNamed(text) {
  const parts = text.split(/[\s,]+/).filter(Boolean);
  const ranges = parts.map((part) => part.match(/^(\d{1,6})(?:(?:-|to|\.\.)(\d{1,6}))?$/));
  if (!parts.length || ranges.includes(null)) return null;
  return (/** @type {number} */ rank) =>
    ranges.some((range) => rank >= Number(range?.[1]) && rank <= Number(range?.[2] ?? range?.[1]));
}

/**
 * The ranks that have a row, from the top.
 * @param {number[]} ranks
 * @param {{only: string, pinned: number[], waited: Map<number, number> | null}} picked
 *   waited: how long each has waited, the longest first; null: in order
 */
export function rowsPicked(ranks, { only, pinned, waited }) {
  const named = ranksNamed(only);
  const kept = ranks.filter((rank) => !pinned.includes(rank) && (named?.(rank) ?? true));
  if (waited) kept.sort((a, b) => (waited.get(b) ?? 0) - (waited.get(a) ?? 0) || a - b);
  const rows = [...pinned.filter((rank) => ranks.includes(rank)), ...kept];
  return rows.length ? rows : ranks;
}

/** How long each rank has waited so far. @param {TimelineIndex} index */
const waitedOf = (index) =>
  new Map([...index.ranks].map(([rank, { all }]) => [rank, all.within(-1e18, all.end)[SPAN.wait]]));

export class RankRows {
  /** @param {TimelineView} view */
  constructor(view) {
    this.view = view;
    this.only = "";
    this.pinned = /** @type {number[]} */ ([]);
    this.waited = /** @type {Map<number, number> | null} */ (null);
    this.place = view.$(".wb-tl-rows");
    this.pin = view.$("[data-rows=pin]");
    const only = view.$("[data-rows=only]");
    const sort = view.$("[data-rows=sort]");
    only.oninput = () => {
      this.only = only.value;
      only.setAttribute("aria-invalid", String(!!only.value && !ranksNamed(only.value)));
      view.stage.touch();
    };
    // the order of this moment: rows that changed places while one reads them could not be read
    sort.onclick = () => {
      this.waited = this.waited || !view.index ? null : waitedOf(view.index);
      sort.setAttribute("aria-pressed", String(!!this.waited));
      view.stage.touch();
    };
    this.pin.onclick = () => {
      const rank = view.stage.choice?.rank ?? -1;
      this.pinned = this.pinned.includes(rank)
        ? this.pinned.filter((one) => one !== rank)
        : [...this.pinned, rank];
      view.stage.touch();
    };
  }

  /** @param {number[]} ranks  all of them */
  of(ranks) {
    return ranks.length < MANY ? ranks : rowsPicked(ranks, this);
  }

  /** @param {number} ranks  how many there are */
  say(ranks) {
    this.place.hidden = ranks < MANY;
    const rank = this.view.stage.choice?.rank ?? -1;
    const pinned = this.pinned.includes(rank);
    this.pin.disabled = rank < 0;
    this.pin.setAttribute("aria-pressed", String(pinned));
    const words = rank < 0 ? "Pin" : `Pin rank ${rank}`;
    if (this.pin.textContent !== words) this.pin.textContent = words;
  }
}

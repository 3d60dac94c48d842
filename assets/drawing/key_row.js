// @ts-check
/**
 * A row of marks with words: the key of a picture, each mark drawn by the code that draws the
 * picture.
 *
 * @typedef {import("../engine/page_state.js").Look} Look
 * @typedef {{name: string, words: string, width: number,
 *   draw: (pen: Pen) => void, spare?: boolean}} KeyItem  spare: not on show, and kept room for: it may
 *   come while a run goes on
 */
import { Pen } from "./pen.js";

export const TALL = 16; // CSS pixels: how high a mark is

/**
 * The keys of a picture: `put` adds one.
 * @param {string | number} [how]  what else tells how the marks are drawn
 */
export function keyItems(how = "") {
  const items = /** @type {KeyItem[]} */ ([]);
  const put = (
    /** @type {string} */ name,
    /** @type {number} */ width,
    /** @type {string} */ words,
    /** @type {KeyItem["draw"]} */ draw,
  ) => items.push({ name: `${name} ${how}`.trim(), words, width, draw });
  return { items, put };
}

/**
 * A row of marks with words; drawn anew only when something in it changes. It keeps the height that it
 * had: what is below stays where it is.
 */
export class KeyRow {
  /** @param {HTMLElement} row */
  constructor(row) {
    this.row = row;
    this.key = "";
    this.room = 0; // px of width, for which
    this.most = 0; // px is its largest height
  }

  #keepHeight() {
    const { row } = this;
    const room = row.parentElement?.clientWidth ?? 0;
    if (room !== this.room) [this.room, this.most, row.style.minHeight] = [room, 0, ""];
    if (row.offsetHeight <= this.most) return;
    this.most = row.offsetHeight;
    row.style.minHeight = `${this.most}px`;
  }

  /** @param {KeyItem[]} items @param {Look} look */
  show(items, look) {
    const { ink, ratio } = look;
    const key = [
      ink.ground,
      ink.track,
      ratio,
      ...items.map((i) => i.name + i.words + i.spare),
    ].join("|");
    if (key === this.key) return this.#keepHeight();
    this.key = key;
    this.row.replaceChildren(
      ...items.map(({ words, width, draw, spare }) => {
        const item = document.createElement("span");
        if (spare) item.style.visibility = "hidden";
        if (width) {
          const chip = Object.assign(document.createElement("canvas"), {
            width: width * ratio,
            height: TALL * ratio,
            className: "wb-chip",
          });
          chip.style.width = `${width}px`;
          chip.style.height = `${TALL}px`;
          const g = /** @type {CanvasRenderingContext2D} */ (chip.getContext("2d"));
          g.scale(ratio, ratio);
          draw(new Pen(g, look));
          chip.setAttribute("aria-hidden", "true");
          item.append(chip);
        }
        item.append(words);
        return item;
      }),
    );
    this.#keepHeight();
  }
}

// @ts-check
/**
 * A row of marks with words: the key of a picture, each mark drawn by the code that draws the
 * picture.
 *
 * @typedef {import("../engine/page_state.js").Look} Look
 * @typedef {{name: string, words: string, width: number,
 *   draw: (pen: Pen) => void}} KeyItem
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

/** A row of marks with words; drawn anew only when something in it changes. */
export class KeyRow {
  /** @param {HTMLElement} row */
  constructor(row) {
    this.row = row;
    this.key = "";
  }

  /** @param {KeyItem[]} items @param {Look} look */
  show(items, look) {
    const { ink, ratio } = look;
    const key = [ink.ground, ink.track, ratio, ...items.map((i) => i.name + i.words)].join("|");
    if (key === this.key) return;
    this.key = key;
    this.row.replaceChildren(
      ...items.map(({ words, width, draw }) => {
        const item = document.createElement("span");
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
  }
}

// @ts-check
/**
 * A model folded and laid out: kept until the model, the width or what the reader folds changes.
 *
 * @typedef {import("./draw.js").GraphSeen} GraphSeen
 * @typedef {import("./fold.js").Folding} Folding
 * @typedef {import("./fold.js").Model} Model
 */
import { MANY_LAYERS, blocksOf, foldGraph } from "./fold.js";
import { placeOf } from "./place.js";

const IN_SIGHT = 920; // px of a picture that are seen without scrolling: theme.css

export class FoldedLayout {
  constructor() {
    this.folding = /** @type {Folding} */ ({ all: null, turned: new Set() });
    this.shown = this.folding; // with what the size decides
    this.laid =
      /** @type {{key: string, seen: Pick<GraphSeen, "nodes" | "wires" | "place">} | null} */ (
        null
      );
  }

  /** Fold all blocks, or open them all. @param {boolean} all */
  fold(all) {
    this.folding = { all, turned: new Set() };
  }

  /** Fold a block that is open, open one that is folded. @param {string} block */
  turn(block) {
    const { turned } = this.folding;
    if (!turned.delete(block)) turned.add(block);
  }

  /** Return what is where. @param {Model} model @param {number} width */
  of(model, width) {
    const key = `${width} ${this.folding.all} ${[...this.folding.turned].join()} ${model.key}`;
    if (this.laid?.key !== key) {
      const lay = (/** @type {import("./fold.js").Folding} */ folding) => {
        const { nodes, wires } = foldGraph(model, folding);
        return { nodes, wires, place: placeOf(model, nodes, wires, width) };
      };
      const { all, turned } = this.folding;
      const whole =
        all === null && model.layers.length < MANY_LAYERS && blocksOf(model).length
          ? lay({ all, turned: new Set() })
          : null;
      // what does not fit is folded
      this.shown = whole && whole.place.height > IN_SIGHT ? { all: true, turned } : this.folding;
      this.laid = {
        key,
        seen: whole && this.shown === this.folding && !turned.size ? whole : lay(this.shown),
      };
    }
    return this.laid.seen;
  }
}

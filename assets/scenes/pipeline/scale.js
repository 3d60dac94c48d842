// @ts-check
/**
 * One time scale for all pipelines that a page shows, if the reader wants it, so that two schedules
 * can be compared by eye: the longest on show decides. Pictures of one page may have been loaded as
 * modules apart; what they share hangs at the page.
 */
import { scaleOf } from "./place.js";

const SHARED = Symbol.for("workbench pipelines on one scale");

/** @returns {{on: boolean, all: Set<PageScale>}} */
function sharing() {
  const page = /** @type {any} */ (globalThis);
  return (page[SHARED] ??= { on: false, all: new Set() });
}

export class PageScale {
  /**
   * @param {HTMLElement} body  of the picture
   * @param {() => void} changed  another one has changed the scale
   */
  constructor(body, changed) {
    this.body = body;
    this.changed = changed;
    this.wanted = 0; // ns, as far as this picture alone needs it
    sharing().all.add(this);
  }

  /** The other pictures that are on show; a hidden one decides nothing. */
  get others() {
    return [...sharing().all].filter(
      (one) => one !== this && one.wanted > 0 && one.body.isConnected && !one.body.hidden,
    );
  }

  /** Whether they are on one scale. */
  get shared() {
    return sharing().on && this.others.length > 0;
  }

  /** ns that the picture is wide. */
  get now() {
    return Math.max(1, this.wanted, ...(this.shared ? this.others.map((one) => one.wanted) : []));
  }

  /** @param {boolean} on */
  share(on) {
    sharing().on = on;
    for (const one of [this, ...this.others]) one.changed();
  }

  /**
   * @param {number} span  ns that this picture shows
   * @param {boolean} still  no other iteration follows by itself
   */
  fit(span, still) {
    const next = scaleOf(this.wanted, span, still);
    if (next === this.wanted) return;
    this.wanted = next;
    if (this.shared) for (const one of this.others) one.changed();
  }

  leave() {
    sharing().all.delete(this);
    for (const one of this.others) one.changed();
  }
}

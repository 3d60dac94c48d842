// @ts-check
/**
 * Which part of the run the lanes show: it follows the playhead until the reader takes it.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 * @typedef {import("./index.js").TimelineIndex} TimelineIndex
 * @typedef {import("./layout.js").Window} Window
 */
import { waitsUntil } from "./standing.js";
import { panWindow, windowFor, zoomWindow } from "./layout.js";
import { isOver } from "../../engine/player.js";

const ZOOM = 1.5;
/** @type {Window} */
const EMPTY = { from: 0, to: 5e7, iteration: -1, follows: true, chosen: false, change: "" };

/** Whether iterations of this run have lost their order. @param {Look} look */
export const hasFoldedTime = ({ known }) => !!known.counters?.folded && !isOver(known);

const PAGE_NS = 1e10;
/** The stretch of folded time around a moment: like a page of a score. @param {number} t */
function pageOfTime(t) {
  const from = Math.floor(Math.max(0, t) / PAGE_NS) * PAGE_NS;
  return { ...EMPTY, from, to: from + PAGE_NS };
}

export class WindowControl {
  /** @param {Stage} stage @param {(look: Look) => TimelineIndex} indexOf  what is known at a look */
  constructor(stage, indexOf) {
    this.stage = stage;
    this.indexOf = indexOf;
    this.win = /** @type {Window | null} */ (null);
  }

  /** The window as it is. @returns {Window} */
  get shown() {
    return this.win ?? EMPTY;
  }

  /** Return where the window is for this frame. @param {Look} look @returns {Window} */
  at(look) {
    const index = this.indexOf(look);
    const { win } = this;
    const { current } = look;
    // workers of a parameter server are in iterations of their own
    const rounds = current?.group === "rounds";
    const around = rounds
      ? {
          iteration: current.iteration,
          from: current.start,
          to: current.end,
          done: current.complete,
        }
      : index.around(look.t);
    if (win && !win.follows) return win;
    if (hasFoldedTime(look) && !win?.chosen) return (this.win = pageOfTime(look.t));
    const known =
      around ??
      (look.call ? { iteration: -1, from: look.call.start, to: look.call.end, done: true } : null);
    if (!known) return this.shown;
    // a wait that goes on, or the playhead in one, has no iteration of its own
    const extent = { ...known, to: Math.max(known.to, waitsUntil(look), look.t) };
    const inside =
      win && look.t >= win.from && look.t < win.to && extent.iteration === win.iteration;
    if (inside && extent.to <= win.to && (around || extent.from >= win.from)) return win;
    return (this.win = windowFor(
      win,
      { ...extent, done: extent.done || isOver(look.known) },
      look.t,
    ));
  }

  /**
   * Give the window to the reader.
   * @param {(win: Window, run: {from: number, to: number}, t: number) => Window} how
   */
  change(how) {
    const look = this.stage.look(performance.now());
    const { table } = look;
    const run = { from: table.rows ? table.from : 0, to: Math.max(table.to, 1) };
    this.win = how(this.at(look), run, look.t);
    this.stage.touch();
  }

  /** @param {string} what  wider | narrower | earlier | later | follow */
  do(what) {
    if (what === "wider" || what === "narrower")
      this.change((win, run, t) =>
        zoomWindow(
          win,
          what === "wider" ? ZOOM : 1 / ZOOM,
          win.follows && t >= win.from && t < win.to ? t : (win.from + win.to) / 2,
          run,
        ),
      );
    if (what === "earlier" || what === "later")
      this.change((win, run) =>
        panWindow(win, ((what === "later" ? 1 : -1) * (win.to - win.from)) / 4, run),
      );
    if (what !== "follow") return;
    this.win = null; // as it was in the beginning
    this.stage.touch();
  }
}

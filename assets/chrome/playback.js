// @ts-check
/**
 * Where the picture of a stage is in the run's time, and how the reader moves it: held, a step on,
 * at another speed, back to the newest. player.js says what follows from what; here it is kept, and
 * kept over a picture that the host draws anew.
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("../engine/model.js").Call} Call
 * @typedef {import("../engine/player.js").Player} Player
 * @typedef {import("../engine/call_source.js").CallSource} CallSource
 * @typedef {import("../engine/call_choice.js").CallChoice} CallChoice
 * @typedef {import("../engine/call_source.js").Telling} Telling
 */
import { LARGEST_CALL, nextChosen, slowestCall } from "../engine/call_choice.js";
import { openCallOf } from "../engine/call_source.js";
import { busiest } from "../engine/model.js";
import {
  AT_START,
  advance,
  backToLive,
  holdAt,
  playOn,
  playedAt,
  playheadOf,
  tell,
} from "../engine/player.js";
import { stepped } from "../engine/steps.js";

export class Playback {
  /** @param {Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.player = /** @type {Player} */ (stage.wire.kept.player ?? AT_START);
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.choice = stage.wire.kept.choice ?? LARGEST_CALL;
    this.open = (/** @type {string} */ key) => openCallOf(stage.known, key, stage.scenes.derived);
  }

  /** Return the units that this scene shows the run in. @returns {CallSource} */
  get source() {
    return this.stage.scenes.source(this.stage.known);
  }

  /** @returns {Telling} */
  get telling() {
    const { stage, source } = this;
    // messages, rounds and passes are shown as they come
    return {
      ...stage.known,
      table: source,
      choice: source === stage.known.table ? this.choice : undefined,
    };
  }

  /** The call, or round, that the playhead is in. @returns {Call | null} */
  get current() {
    const { source, player } = this;
    const head =
      player.key && player.held === null ? source.callOf.get(player.key) : source.callAt(player.t);
    return head ? this.open(head.key) : null;
  }

  /** @param {number} at */
  playhead(at) {
    // no motion is wanted: the moment that tells most
    const call = this.still.matches && this.player.held === null ? this.current : null;
    return call ? call.start + busiest(call) : playheadOf(this.player, this.telling, at, this.open);
  }

  /** Go on to this moment; return whether another call is current from now on. @param {number} at */
  advance(at) {
    const before = this.player.key;
    this.player = advance(this.player, this.telling, at, this.open);
    const t = this.playhead(at);
    if (this.player.t !== t) this.player = { ...this.player, t };
    this.stage.wire.kept.player = this.player;
    return this.player.key !== before;
  }

  /** Another run than before: from its start. */
  begin() {
    this.player = AT_START;
  }

  /** Tell the same moment in what this scene shows: a call, or the pass that it is in. */
  retell() {
    if (!this.player.key) return;
    const head = this.source.callAt(this.player.t);
    const call = head && this.open(head.key);
    if (call)
      this.player = {
        ...tell(this.player, call.key, performance.now()),
        held: this.player.held,
        at0: playedAt(call, Math.max(0, this.player.t - call.start)),
      };
  }

  /** Go on as before. @param {Player} before */
  resume(before) {
    if (before.live && before.held === null) this.live();
    else this.#play(before);
  }

  /** @param {Player} player */
  #play(player) {
    this.player = this.stage.wire.kept.player = player;
    this.stage.touch();
  }

  /** Hold the view at a moment of the run. @param {number} t ns since the origin */
  goto(t) {
    this.#play(holdAt(this.player, Math.max(0, Math.min(t, this.stage.known.table.to))));
  }

  toggle() {
    const at = performance.now();
    const { pace } = this.stage.bar;
    if (this.player.held === null) this.goto(this.playhead(at));
    else this.#play(playOn(this.player, this.telling, at, Number(pace.value), this.open));
  }

  /** @param {number} way */
  step(way) {
    const { stage } = this;
    const look = stage.look(performance.now());
    const unit = stage.bar.unit.value;
    this.goto(
      stage.view.step?.(look, unit, way) ?? stepped(this.telling, look.t, unit, way, this.open),
    );
  }

  live() {
    this.stage.bar.pace.value = "0";
    this.#play(backToLive(this.player, this.telling, performance.now()));
  }

  /** Tell a call from its start. @param {string} key */
  show(key) {
    const head = this.source.callOf.get(key);
    if (head)
      this.#play({ ...tell(this.player, key, performance.now()), live: false, t: head.start });
  }

  /** Tell these of the calls from now on. @param {CallChoice} choice */
  choose(choice) {
    this.choice = this.stage.wire.kept.choice = choice;
    const { current } = this;
    const { player, telling } = this;
    const at = performance.now();
    if (player.live && player.held === null) this.#play(backToLive(player, telling, at));
    else if (current && choice.by !== "each") {
      // where the picture stands, in the iteration before it if need be
      const before = telling.table.calls.findLast(
        (one) => one.sends && one.start < current.start && one.iteration < current.iteration,
      );
      const next = nextChosen(telling.table, choice, before ?? null);
      if (next) this.show(next.key);
    }
  }

  /** Tell the call that lasted longest in the run so far, from its start. */
  slowest() {
    const call = slowestCall(this.source);
    if (call) this.show(call.key);
  }

  /**
   * The picture's speed: run ns per page ms, as a share of real time; 0 tells call after call.
   * @param {number} pace
   */
  setPace(pace) {
    const at = performance.now();
    const t = this.playhead(at);
    if (!pace && this.player.live) return;
    if (this.player.held === null)
      this.#play(playOn({ ...this.player, held: t }, this.telling, at, pace * 1e6, this.open));
  }

  /** @param {number} way */
  faster(way) {
    const { pace } = this.stage.bar;
    const next = pace.selectedIndex + way;
    if (next < 0 || next >= pace.options.length) return;
    pace.selectedIndex = next;
    this.setPace(Number(pace.value));
  }
}

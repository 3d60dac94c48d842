// @ts-check
/**
 * What the reader did to the ranks in this session, to be taken back one by one, the newest first:
 * Ctrl-Z, or the button beside the sliders.
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("../engine/actions.js").Action} Action
 */
import { undoOf } from "../engine/actions.js";

export class Acts {
  /** @param {Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.run = "";
    this.undos = /** @type {Action[][]} */ ([]); // the newest last
  }

  /** How many can be taken back; none of a run before. */
  get count() {
    const run = this.stage.known.run?.id ?? "";
    if (run !== this.run) [this.run, this.undos] = [run, []];
    return this.undos.length;
  }

  /** Do it, and keep what takes it back. @param {Action} action */
  async do(action) {
    const undo = undoOf(action, this.stage.known.control);
    const answer = await this.stage.act(action.verb, action.args);
    if (answer.ok && undo.length && this.count >= 0) this.undos.push(undo);
    return { ...answer, undo };
  }

  /** Forget an act that was taken back elsewhere. @param {Action[]} undo */
  forget(undo) {
    this.undos = this.undos.filter((one) => one !== undo);
  }

  /** Take the newest back. @returns {Promise<{ok: boolean, words: string}>} */
  async takeBack() {
    let answer = { ok: false, words: "There is nothing to take back." };
    if (!this.count) return answer;
    for (const action of /** @type {Action[]} */ (this.undos.pop()))
      answer = await this.stage.act(action.verb, action.args);
    return answer.ok ? { ok: true, words: `Taken back. ${answer.words}` } : answer;
  }
}

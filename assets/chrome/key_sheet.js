// @ts-check
/**
 * The sheet of keys: a dialog over the stage that lists what each key does. Escape, ? or a click beside
 * it closes it; the focus goes back to where it was.
 *
 * @typedef {import("./stage.js").Stage} Stage
 */

/** What the keys do, by what they act on. @type {[string, [string, string][]][]} */
export const KEYS = [
  [
    "Time",
    [
      ["Space", "hold the view, or play on"],
      ["← →", "one step back, one step on"],
      ["L", "to the newest moment"],
      ["Home", "to the start of the run"],
      ["S", "to the slowest call"],
      ["+ −", "play faster, play slower"],
    ],
  ],
  [
    "Views",
    [
      ["1 to 9", "open a view"],
      ["V", "list all views"],
      ["W", "walk through this picture"],
      ["F", "fill the screen"],
      ["P", "larger, for a lecture hall"],
      ["C", "copy this moment"],
    ],
  ],
  [
    "Ranks and panels",
    [
      ["H", "hold the ranks, or let them run"],
      ["Tab", "to the next rank, button or list"],
      ["Enter", "choose it; once more: change it"],
      ["Escape", "close a panel, or end the walk"],
      ["Ctrl-Z", "take back what you did last, step by step"],
      ["?", "open or close this sheet"],
    ],
  ],
];

export class KeySheet {
  /** @param {Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.back = /** @type {HTMLElement | null} */ (null);
    this.body = document.createElement("div");
    this.body.className = "wb-keys";
    this.body.hidden = true;
    this.body.innerHTML = `<section role="dialog" aria-modal="true" aria-label="Keys">${KEYS.map(
      ([title, keys]) =>
        `<div><h3>${title}</h3><dl>${keys.map(([key, does]) => `<dt><kbd>${key}</kbd></dt><dd>${does}</dd>`).join("")}</dl></div>`,
    ).join("")}<button aria-label="Close">✕</button></section>`;
    this.button = /** @type {HTMLButtonElement} */ (this.body.querySelector("button"));
    this.button.onclick = () => this.close();
    this.body.onclick = ({ target }) => target === this.body && this.close();
    this.body.onkeydown = (event) => this.#key(event);
    stage.root.append(this.body);
  }

  open() {
    const { root } = this.stage;
    this.back = /** @type {any} */ (root.getRootNode()).activeElement;
    this.body.hidden = false;
    this.button.focus({ preventScroll: true });
  }

  close() {
    const { root } = this.stage;
    this.body.hidden = true;
    (this.back?.isConnected && root.contains(this.back) ? this.back : root).focus({
      preventScroll: true,
    });
  }

  /** Its own keys: none goes on to the stage or its host. @param {KeyboardEvent} event */
  #key(event) {
    if (event.key === "Escape" || event.key === "?") this.close();
    if (["Escape", "?", "Tab"].includes(event.key)) event.preventDefault(); // one button: it stays
    event.stopPropagation();
  }
}

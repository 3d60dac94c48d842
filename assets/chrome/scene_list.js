// @ts-check
/**
 * All scenes of a run as a list that opens at a key: arrows, Home and End move, letters jump to the
 * next name that begins with them, Enter opens, Escape closes. However many scenes there are, each
 * is reached without a pointer.
 *
 * @typedef {import("./scene_host.js").SceneHost} SceneHost
 * @typedef {import("./scene_host.js").Scene} Scene
 */

const TYPED_MS = 700; // letters that come within so long of each other are one word

/**
 * The next one, from `at` on and round, whose label begins with what was typed; -1: none does.
 * @param {string[]} labels
 * @param {string} typed
 * @param {number} at
 */
export function nextThatBegins(labels, typed, at) {
  const text = typed.toLowerCase();
  for (let i = 0; i < labels.length; i++) {
    const place = (at + i) % labels.length;
    if (labels[place].toLowerCase().startsWith(text)) return place;
  }
  return -1;
}

export class SceneList {
  /** @param {SceneHost} host */
  constructor(host) {
    this.host = host;
    this.body = document.createElement("ul");
    this.body.className = "wb-scene-list";
    this.body.tabIndex = -1;
    this.body.hidden = true;
    this.body.setAttribute("role", "listbox");
    this.body.setAttribute("aria-label", "All views of this run");
    this.scenes = /** @type {Scene[]} */ ([]);
    this.at = 0;
    this.typed = "";
    this.typedAt = -Infinity;
    this.back = /** @type {HTMLElement | null} */ (null);
    this.body.onkeydown = (event) => this.#key(event);
    this.body.onblur = () => this.close(false);
  }

  open() {
    const { stage, current } = this.host;
    this.scenes = this.host.offered();
    if (this.scenes.length < 2) return; // the one that is on show
    const root = /** @type {Document | ShadowRoot} */ (stage.root.getRootNode());
    this.back = /** @type {HTMLElement | null} */ (root.activeElement);
    this.body.replaceChildren(...this.scenes.map((scene, i) => this.#option(scene, i)));
    stage.$(".wb-tabs").after(this.body);
    this.body.hidden = false;
    this.#choose(Math.max(0, this.scenes.indexOf(/** @type {Scene} */ (current))));
    this.body.focus({ preventScroll: true });
  }

  /** @param {Scene} scene @param {number} i */
  #option(scene, i) {
    const option = document.createElement("li");
    option.id = `wb-scene-option-${this.host.stage.id}-${i}`;
    option.setAttribute("role", "option");
    option.append(
      scene.label,
      Object.assign(document.createElement("kbd"), {
        textContent: this.host.digitOf(scene),
      }),
    );
    option.onpointerdown = (event) => event.preventDefault(); // the list keeps the focus
    option.onclick = () => this.#open(i);
    return option;
  }

  /** @param {number} at */
  #choose(at) {
    this.at = at;
    [...this.body.children].forEach((option, i) =>
      option.setAttribute("aria-selected", String(i === at)),
    );
    this.body.setAttribute("aria-activedescendant", this.body.children[at].id);
    this.body.children[at].scrollIntoView({ block: "nearest" });
  }

  /** @param {number} at */
  #open(at) {
    this.close();
    this.host.open(this.scenes[at].name);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation(); // neither the stage's keys nor the host's
    const last = this.scenes.length - 1;
    const act = {
      ArrowDown: () => this.#choose(this.at === last ? 0 : this.at + 1),
      ArrowUp: () => this.#choose(this.at === 0 ? last : this.at - 1),
      Home: () => this.#choose(0),
      End: () => this.#choose(last),
      Enter: () => this.#open(this.at),
      Escape: () => this.close(),
      Tab: () => this.close(),
    }[event.key];
    if (act) act();
    else if (event.key.length === 1) this.#type(event.key);
    else return;
    event.preventDefault();
  }

  /** @param {string} key */
  #type(key) {
    const now = performance.now();
    this.typed = now - this.typedAt < TYPED_MS ? this.typed + key : key;
    this.typedAt = now;
    const labels = this.scenes.map((scene) => scene.label);
    // one letter goes on to the next name; more of them stay while the name fits
    const place = nextThatBegins(labels, this.typed, this.typed.length > 1 ? this.at : this.at + 1);
    if (place >= 0) this.#choose(place);
  }

  /** @param {boolean} [refocus] */
  close(refocus = true) {
    if (this.body.hidden) return;
    this.body.hidden = true;
    this.typed = "";
    this.body.remove();
    if (refocus) (this.back?.isConnected ? this.back : this.host.stage.root).focus();
  }
}

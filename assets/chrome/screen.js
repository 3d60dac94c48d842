// @ts-check
/**
 * How large a stage is: as the page has it, on the full screen, or for a lecture hall, where all of
 * it is larger. It grows as a whole (a scale), so that every scene stays laid out as it is.
 *
 * @typedef {import("./stage.js").Stage} Stage
 */
import { isOver } from "../engine/player.js";

const FITS = { width: 1240, height: 745 }; // px that a stage with all that stands beside it needs
const HALL = { width: 960, height: 540 }; // px of it where a lecture hall's screen is full
const LEAST = 780; // px: fewer would stack it
const LARGER = 1.5; // times, for a lecture hall
const MOST = 4;
const MARGINS = 20; // px, above the line of time and at the foot of the screen
const LOW = 420; // px: in a host that shows fewer, the lanes of a call would take half of them

/**
 * How many times larger a stage is drawn than the page's own pixels.
 * @param {{width: number, height: number, full: boolean, larger: boolean}} room  px that there are
 */
export function scaleFor({ width, height, full, larger }) {
  const within = (/** @type {typeof FITS} */ room) =>
    Math.max(1, Math.min(width / room.width, height / room.height));
  const fit = full ? within(FITS) : 1;
  const most = full ? within(HALL) : Math.min(LARGER, width / LEAST);
  const scale = larger ? Math.max(fit, most) : fit;
  return Math.min(MOST, Math.max(1, scale));
}

export class Screen {
  /** @param {Stage} stage @param {HTMLElement} el  what the host gives */
  constructor(stage, el) {
    this.stage = stage;
    this.box = document.createElement("div");
    this.box.className = "wb-screen";
    this.box.append(stage.root);
    el.append(this.box);
    this.larger = !!stage.wire.kept.larger;
    this.scale = 1;
    this.left = 0; // px that the window leaves to the scene
    this.port = /** @type {HTMLElement | null} */ (null); // what scrolls it
    this.changed = () => {}; // called when it is full, or larger, or no more
    const fit = () => this.#fit();
    this.size = new ResizeObserver(fit);
    this.size.observe(this.box);
    this.size.observe(stage.root);
    document.addEventListener("fullscreenchange", fit);
    this.off = () => document.removeEventListener("fullscreenchange", fit);
  }

  /** The height that the screen leaves to the scene, px; 0: it is not to be filled. */
  get room() {
    return this.full ? this.left : 0;
  }

  /**
   * Measure what the window leaves to the scene: between what is above it and the line of time. Called
   * with the stage's texts.
   */
  measure() {
    this.reveal();
    const { root } = this.stage;
    const seen = (this.port?.clientHeight ?? innerHeight) / this.scale;
    const [scenes, time, foot] = [".wb-main", ".wb-time", ".wb-foot"].map((one) =>
      this.stage.$(one),
    );
    const of = (/** @type {Element} */ one) => /** @type {HTMLElement} */ (one).offsetHeight;
    const top = /** @type {HTMLElement} */ (scenes).offsetTop;
    this.left = (this.full ? root.clientHeight : seen) - top - of(time) - of(foot) - MARGINS;
  }

  /** Whether the host shows little of the stage at once: it scrolls in a low panel. */
  get #low() {
    let port = this.box.parentElement;
    while (port && !/auto|scroll/.test(getComputedStyle(port).overflowY)) port = port.parentElement;
    if (port && port !== this.port) this.size.observe(port); // it may grow
    this.port = port;
    return !!port && port.clientHeight < LOW * this.scale;
  }

  get full() {
    const { box } = this;
    const { fullscreenElement } = /** @type {Document | ShadowRoot} */ (box.getRootNode());
    return fullscreenElement === box || box.classList.contains("covering");
  }

  /**
   * Bring the stage into view once a run, when its first rows come while it goes on: where the line of
   * time, at the foot of the scene, is below what is seen. A reader who has gone on past its head is left
   * there.
   */
  reveal() {
    const { root, wire, known, drawn } = this.stage;
    const run = known.run?.id;
    if (!run || wire.kept.revealed === run || !known.table.rows || !root.offsetWidth) return;
    const boxOf = (/** @type {string} */ one) => this.stage.$(one).getBoundingClientRect();
    const { top: least, bottom: most } = this.port?.getBoundingClientRect() ?? {
      top: 0,
      bottom: innerHeight,
    };
    const { top } = root.getBoundingClientRect();
    if (drawn.epoch < 0 && top < most) return; // as high as it will be once it is drawn
    wire.kept.revealed = run;
    const end = boxOf(".wb-main").bottom + boxOf(".wb-time").height;
    const below = top >= least && (end > most || top >= most);
    if (below && !isOver(known) && !this.full) root.scrollIntoView({ block: "start" });
  }

  async toggleFull() {
    const { box, stage } = this;
    if (box.classList.contains("covering")) box.classList.remove("covering");
    else if (this.full) await document.exitFullscreen();
    else
      try {
        await box.requestFullscreen();
      } catch {
        box.classList.add("covering"); // a frame that may not: its own page, at least
      }
    this.#fit();
    stage.root.focus({ preventScroll: true });
  }

  toggleLarger() {
    this.larger = this.stage.wire.kept.larger = !this.larger;
    this.#fit();
  }

  #fit() {
    const { box, stage, full, larger } = this;
    box.classList.toggle("full", full);
    box.classList.toggle("larger", larger);
    const { clientWidth: width, clientHeight: height } = box;
    if (!width) return; // it is not on show
    this.scale = scaleFor({ width, height, full, larger });
    box.classList.toggle("scaled", this.scale > 1);
    box.classList.toggle("low", this.#low);
    box.style.setProperty("--wb-scale", String(this.scale));
    const grown = this.scale > 1 && !full; // a scale takes no room of its own
    box.style.height = grown ? `${Math.ceil(stage.root.offsetHeight * this.scale)}px` : "";
    this.changed();
    stage.touch();
  }

  end() {
    this.size.disconnect();
    this.off();
    this.box.remove();
  }
}

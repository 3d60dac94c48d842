// @ts-check
/**
 * The place of a picture that the pointer, or the keyboard, is on, and its tooltip: beside
 * it, and to a screen reader. Every scene with a picture to point at has one.
 */
import { pointOn, showTip } from "./tooltip.js";

/** @param {unknown} _ @param {string[]} lines */
const overWords = (_, lines) => (lines.length ? "pointer" : "default");

/** @template {{x: number, y: number, over?: HTMLElement}} Place  over: the canvas, where there are two */
export class PointedPlace {
  /**
   * @param {HTMLElement} body  the scene, with its box for words (.wb-co-tip, .wb-sr)
   * @param {HTMLCanvasElement} canvas
   * @param {(place: Place) => string[]} lines  the tooltip of a place; none: nothing lies there
   * @param {{cursor?: (place: Place, lines: string[]) => string,
   *   moved?: (from: Place | null, to: Place | null) => void}} [more]  cursor: of the pointer there;
   *   moved: called before another place is pointed at
   */
  constructor(body, canvas, lines, { cursor = overWords, moved = () => {} } = {}) {
    this.body = body;
    this.canvas = canvas;
    this.lines = lines;
    this.cursor = cursor;
    this.moved = moved;
    this.place = /** @type {Place | null} */ (null);
    this.tip = /** @type {HTMLElement} */ (body.querySelector(".wb-co-tip"));
    this.heard = /** @type {HTMLElement} */ (body.querySelector(".wb-sr"));
  }

  /** @param {Place | null} place */
  point(place) {
    this.moved(this.place, place);
    this.place = place;
    this.say();
  }

  /** Say what lies there now. Called with the scene's texts. */
  say() {
    const { place, body, canvas } = this;
    const lines = place ? this.lines(place) : [];
    const over = place?.over ?? canvas;
    over.style.cursor = place ? this.cursor(place, lines) : "default";
    showTip(this.tip, body, over, place, lines);
  }

  /** Say to a screen reader what the box says. */
  speak() {
    this.heard.textContent = this.tip.textContent;
  }

  /**
   * Follow the pointer over a canvas.
   * @param {HTMLElement} root  the stage, whose keys go on working
   * @param {(place: {x: number, y: number}) => Place} placeOf
   * @param {HTMLCanvasElement} [canvas]
   */
  follow(root, placeOf, canvas = this.canvas) {
    pointOn(canvas, root, (place) => this.point(place && placeOf(place)));
  }

  /**
   * A button over a box of the picture, for those who have no pointer: while it has the focus, it
   * is as if its middle, or `place`, were pointed at.
   * @param {{x: number, y: number, w: number, h: number}} box
   * @param {string} name
   * @param {Place} place
   * @param {(event: MouseEvent, at: DOMRect) => void} click  at: where the button is on the page
   */
  spot({ x, y, w, h }, name, place, click) {
    const button = document.createElement("button");
    Object.assign(button.style, {
      left: `${x}px`,
      top: `${y}px`,
      width: `${w}px`,
      height: `${h}px`,
    });
    button.setAttribute("aria-label", name);
    button.onclick = (event) => click(event, button.getBoundingClientRect());
    button.onfocus = () => {
      this.point(place);
      this.speak();
    };
    button.onblur = () => this.point(null);
    return button;
  }
}

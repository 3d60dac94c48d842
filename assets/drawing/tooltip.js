// @ts-check
/**
 * The tooltip of the place under the pointer or the keyboard: a box beside it that stays within
 * the picture; and how the keyboard gets from one place of a picture to the next.
 */

/**
 * Show these lines beside a place of a canvas; without lines, or without a place, nothing.
 * @param {HTMLElement} tip
 * @param {HTMLElement} home  the picture
 * @param {HTMLElement} over  what the place is counted in
 * @param {{x: number, y: number} | null} place @param {string[]} lines
 */
export function showTip(tip, home, over, place, lines) {
  tip.hidden = !lines.length || !place;
  if (!lines.length || !place) return;
  const text = lines.join("\n");
  if (tip.textContent !== text) tip.textContent = text;
  const frame = home.getBoundingClientRect();
  const at = over.getBoundingClientRect();
  const scale = frame.width / home.offsetWidth || 1; // the whole stage may be drawn larger
  const x = (at.left - frame.left) / scale + place.x;
  const y = (at.top - frame.top) / scale + place.y;
  tip.style.left = `${x + 16 + tip.offsetWidth > home.offsetWidth ? Math.max(0, x - tip.offsetWidth - 16) : x + 16}px`;
  tip.style.top = `${y + 18}px`;
}

/**
 * Tell what lies under the pointer of a canvas, whose clicks leave the stage's keys working.
 * @param {HTMLCanvasElement} canvas
 * @param {HTMLElement} root  the stage
 * @param {(place: {x: number, y: number} | null) => void} point
 */
export function pointOn(canvas, root, point) {
  canvas.onpointermove = (event) => point({ x: event.offsetX, y: event.offsetY });
  canvas.onpointerleave = () => point(null);
  canvas.onpointerdown = (event) => {
    event.preventDefault(); // the stage's keys go on working
    root.focus({ preventScroll: true });
  };
}

/**
 * Leave one of these buttons in the order of the Tab key: this one, or that which was, or the first.
 * @param {HTMLElement} spots
 * @param {EventTarget | null} [focused]
 */
function keepOneStop(spots, focused = null) {
  const all = /** @type {HTMLElement[]} */ ([...spots.children]);
  const stop =
    all.find((spot) => spot === focused) ?? all.find((spot) => spot.dataset.stop) ?? all[0];
  for (const spot of all) {
    spot.tabIndex = spot === stop ? 0 : -1;
    if (spot === stop) spot.dataset.stop = "true";
    else delete spot.dataset.stop;
  }
}

/**
 * Arrow up and down lead from one of these buttons to the one before and after; the Tab key comes to
 * one of them, and leaves all.
 * @param {HTMLElement} spots
 */
export function walkWithArrows(spots) {
  spots.addEventListener("focusin", (event) => keepOneStop(spots, event.target));
  new MutationObserver(() => keepOneStop(spots)).observe(spots, { childList: true });
  spots.onkeydown = (event) => {
    const way = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const all = /** @type {HTMLElement[]} */ ([...spots.children]);
    const at = all.indexOf(/** @type {HTMLElement} */ (event.target));
    if (!way || at < 0) return;
    event.preventDefault();
    event.stopPropagation();
    all[Math.max(0, Math.min(all.length - 1, at + way))].focus();
  };
}

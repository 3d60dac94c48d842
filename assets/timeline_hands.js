// @ts-check
/**
 * The reader's hands on the timeline: keys, wheel, dragging the window on the map, dragging and pointing in the lanes.
 * Nothing here changes the run.
 * @typedef {import("./scene_timeline.js").TimelineView} TimelineView
 */
import { panWindow, timelinePlace, windowT, zoomWindow } from "./timeline_layout.js";

const GRIP = 6; // px around the box's edges
const KEYS = /** @type {Record<string, string>} */ ({ "[": "wider", "]": "narrower", "{": "earlier", "}": "later", f: "follow", F: "follow" });

/** A key that is the timeline's own, wherever the focus is in the stage. @param {TimelineView} view @param {KeyboardEvent} event */
export function timelineKey(view, event) {
  const what = KEYS[event.key], target = /** @type {HTMLElement} */ (event.composedPath()[0]);
  if (!what || view.body.hidden || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || target.closest?.("input, textarea, select, [role=dialog]")) return;
  event.preventDefault();
  view.do(what);
}

/** @param {TimelineView} view */
export function listenTimeline(view) {
  const map = view.$(".wb-tl-map"), lanes = view.$(".wb-tl-lanes"), place = () => timelinePlace(view.ranks.length || 4, view.width);
  for (const button of view.body.querySelectorAll("button")) button.onclick = () => view.do(button.dataset.do ?? "");
  const wheel = (/** @type {WheelEvent} */ event, /** @type {(x: number) => number} */ moment) => {
    if (!event.shiftKey && !event.ctrlKey) return; // the page scrolls
    event.preventDefault();
    const by = event.deltaY || event.deltaX;
    view.change((win, run) => zoomWindow(win, Math.exp(Math.max(-1, Math.min(1, by / 240))), moment(event.offsetX), run));
  };
  lanes.addEventListener("wheel", (/** @type {WheelEvent} */ event) => wheel(event, (x) => windowT(view.shown, place(), x)), { passive: false });
  map.addEventListener("wheel", (/** @type {WheelEvent} */ event) => wheel(event, () => (view.shown.from + view.shown.to) / 2), { passive: false });
  dragMap(view, map, place);
  dragLanes(view, lanes, place);
  lanes.onpointerleave = () => view.tip(null);
  lanes.onkeydown = (/** @type {KeyboardEvent} */ event) => {
    const way = { ArrowDown: 1, ArrowUp: -1 }[event.key], { ranks } = view;
    if (!way || !ranks.length) return;
    event.preventDefault();
    const at = ranks.indexOf(view.stage.choice?.rank ?? -1);
    view.choose(ranks[Math.max(0, Math.min(ranks.length - 1, at + way))], -1, view.stage.look(performance.now()).t);
  };
}

/** The box: its middle moves, its edges resize; elsewhere it comes to where one points. @param {TimelineView} view @param {HTMLCanvasElement} map @param {() => import("./timeline_layout.js").TimelinePlace} place */
function dragMap(view, map, place) {
  let grip = "", at = 0;
  map.onpointerdown = (event) => {
    const win = view.shown, p = place(), a = view.map.x(p, win.from), b = view.map.x(p, win.to), x = event.offsetX;
    map.setPointerCapture(event.pointerId);
    grip = b - a > 16 && Math.abs(x - a) < GRIP ? "from" : b - a > 16 && Math.abs(x - b) < GRIP ? "to" : "box";
    if (grip === "box" && (x < a - 4 || x > b + 4)) view.change((w, run) => panWindow(w, view.map.t(p, x) - (w.from + w.to) / 2, run));
    at = view.map.t(p, x);
  };
  map.onpointermove = (event) => {
    const win = view.shown, p = place(), a = view.map.x(p, win.from), b = view.map.x(p, win.to), x = event.offsetX, t = view.map.t(p, x);
    if (!(event.buttons & 1)) map.style.cursor = b - a > 16 && Math.min(Math.abs(x - a), Math.abs(x - b)) < GRIP ? "ew-resize" : "grab";
    else if (grip === "box") {
      view.change((w, run) => panWindow(w, t - at, run));
      at = t;
    } else view.change((w) => ({ ...w, [grip]: grip === "from" ? Math.min(t, w.to - 200) : Math.max(t, w.from + 200), follows: false, chosen: true, said: "" }));
  };
  map.ondblclick = (event) => view.stage.goto(view.map.t(place(), event.offsetX));
}

/** Drag moves the window, two fingers zoom it; a click selects, on the axis it goes there. @param {TimelineView} view @param {HTMLCanvasElement} lanes @param {() => import("./timeline_layout.js").TimelinePlace} place */
function dragLanes(view, lanes, place) {
  const fingers = /** @type {Map<number, number>} */ (new Map());
  let began = 0, moved = false;
  lanes.onpointerdown = (event) => {
    lanes.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event.offsetX);
    began = event.offsetX;
    moved = false;
  };
  lanes.onpointermove = (event) => {
    const before = fingers.get(event.pointerId), x = event.offsetX;
    view.tip(fingers.size ? null : { x, y: event.offsetY });
    if (before === undefined || (!moved && Math.abs(x - began) < 4)) return;
    moved = true;
    fingers.set(event.pointerId, x);
    const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1], p = place();
    if (other === undefined) view.change((win, run) => panWindow(win, ((before - x) / p.room) * (win.to - win.from), run));
    else view.change((win, run) => zoomWindow(win, Math.max(4, Math.abs(before - other)) / Math.max(4, Math.abs(x - other)), windowT(win, p, other), run));
  };
  lanes.onpointerup = lanes.onpointercancel = (event) => {
    fingers.delete(event.pointerId);
    if (moved || event.type === "pointercancel") return;
    const p = place(), t = windowT(view.shown, p, event.offsetX);
    if (event.offsetY < p.lanes.top && event.offsetX >= p.left) return view.stage.goto(t);
    const hit = view.hitAt(event.offsetX, event.offsetY), rank = view.ranks[Math.floor((event.offsetY - p.lanes.top) / p.lanes.row)];
    if (rank !== undefined) view.choose(rank, hit?.row ?? -1, t);
  };
}

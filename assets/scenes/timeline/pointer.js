// @ts-check
/**
 * What the reader does on the timeline: keys, wheel, dragging the window on the map, dragging and
 * pointing in the lanes. Nothing here changes the run.
 * @typedef {import("./scene.js").TimelineView} TimelineView
 */
import { hitAt, showLaneTip } from "./lane_tip.js";
import { panWindow, windowT, zoomWindow } from "./layout.js";

const GRIP = 6; // px around the box's edges
const KEYS = /** @type {Record<string, string>} */ ({
  "[": "wider",
  "]": "narrower",
  "{": "earlier",
  "}": "later",
  o: "follow",
  O: "follow",
});

/**
 * A key that is the timeline's own, wherever the focus is in the stage.
 * @param {TimelineView} view
 * @param {KeyboardEvent} event
 */
export function timelineKey(view, event) {
  const what = KEYS[event.key];
  const target = /** @type {HTMLElement} */ (event.composedPath()[0]);
  if (
    !what ||
    view.body.hidden ||
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    event.defaultPrevented ||
    target.closest?.("input, textarea, select, [role=dialog]")
  )
    return;
  event.preventDefault();
  view.window.do(what);
}

/** @param {TimelineView} view */
export function listenTimeline(view) {
  const map = view.$(".wb-tl-map");
  const lanes = view.$(".wb-tl-lanes");
  const place = () => view.place;
  /** @type {NodeListOf<HTMLElement>} */
  const buttons = view.body.querySelectorAll("[data-do]");
  for (const button of buttons) button.onclick = () => view.window.do(button.dataset.do ?? "");
  const wheel = (/** @type {WheelEvent} */ event, /** @type {(x: number) => number} */ moment) => {
    if (!event.shiftKey && !event.ctrlKey) return; // the page scrolls
    event.preventDefault();
    const by = event.deltaY || event.deltaX;
    view.window.change((win, run) =>
      zoomWindow(win, Math.exp(Math.max(-1, Math.min(1, by / 240))), moment(event.offsetX), run),
    );
  };
  lanes.addEventListener(
    "wheel",
    (/** @type {WheelEvent} */ event) =>
      wheel(event, (x) => windowT(view.window.shown, place(), x)),
    { passive: false },
  );
  map.addEventListener(
    "wheel",
    (/** @type {WheelEvent} */ event) =>
      wheel(event, () => (view.window.shown.from + view.window.shown.to) / 2),
    { passive: false },
  );
  dragMap(view, map, place);
  dragLanes(view, lanes, place);
  lanes.onpointerleave = () => {
    showLaneTip(view, null);
    view.stage.point(null);
  };
  lanes.onkeydown = (/** @type {KeyboardEvent} */ event) => {
    const way = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const { ranks } = view;
    if (!way || !ranks.length) return;
    event.preventDefault();
    const at = ranks.indexOf(view.stage.choice?.rank ?? -1);
    chooseInLanes(
      view,
      ranks[Math.max(0, Math.min(ranks.length - 1, at + way))],
      -1,
      view.stage.look(performance.now()).t,
    );
  };
}

/**
 * The box: its middle moves, its edges resize; elsewhere it comes to where one points.
 * @param {TimelineView} view
 * @param {HTMLCanvasElement} map
 * @param {() => import("./layout.js").TimelinePlace} place
 */
function dragMap(view, map, place) {
  let grip = "";
  let at = 0;
  map.onpointerdown = (event) => {
    const win = view.window.shown;
    const p = place();
    const a = view.map.x(p, win.from);
    const b = view.map.x(p, win.to);
    const x = event.offsetX;
    map.setPointerCapture(event.pointerId);
    grip =
      b - a > 16 && Math.abs(x - a) < GRIP
        ? "from"
        : b - a > 16 && Math.abs(x - b) < GRIP
          ? "to"
          : "box";
    if (grip === "box" && (x < a - 4 || x > b + 4))
      view.window.change((w, run) => panWindow(w, view.map.t(p, x) - (w.from + w.to) / 2, run));
    at = view.map.t(p, x);
  };
  map.onpointermove = (event) => {
    const win = view.window.shown;
    const p = place();
    const a = view.map.x(p, win.from);
    const b = view.map.x(p, win.to);
    const x = event.offsetX;
    const t = view.map.t(p, x);
    if (!(event.buttons & 1))
      map.style.cursor =
        b - a > 16 && Math.min(Math.abs(x - a), Math.abs(x - b)) < GRIP ? "ew-resize" : "grab";
    else if (grip === "box") {
      view.window.change((w, run) => panWindow(w, t - at, run));
      at = t;
    } else
      view.window.change((w) => ({
        ...w,
        [grip]: grip === "from" ? Math.min(t, w.to - 200) : Math.max(t, w.from + 200),
        follows: false,
        chosen: true,
        change: "",
      }));
  };
  map.ondblclick = (event) => view.stage.playback.goto(view.map.t(place(), event.offsetX));
}

/**
 * Drag moves the window, two fingers zoom it; a click selects, on the axis it goes there.
 * @param {TimelineView} view
 * @param {HTMLCanvasElement} lanes
 * @param {() => import("./layout.js").TimelinePlace} place
 */
function dragLanes(view, lanes, place) {
  const fingers = /** @type {Map<number, number>} */ (new Map());
  let began = 0;
  let moved = false;
  lanes.onpointerdown = (event) => {
    lanes.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event.offsetX);
    began = event.offsetX;
    moved = false;
  };
  lanes.onpointermove = (event) => {
    const before = fingers.get(event.pointerId);
    const x = event.offsetX;
    showLaneTip(view, fingers.size ? null : { x, y: event.offsetY });
    const row = hitAt(view.lanes.hits, x, event.offsetY)?.row ?? -1;
    view.stage.point(view.index && row >= 0 ? chunkOfRow(view.index.table, row) : null);
    if (before === undefined || (!moved && Math.abs(x - began) < 4)) return;
    moved = true;
    fingers.set(event.pointerId, x);
    const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
    const p = place();
    if (other === undefined)
      view.window.change((win, run) =>
        panWindow(win, ((before - x) / p.room) * (win.to - win.from), run),
      );
    else
      view.window.change((win, run) =>
        zoomWindow(
          win,
          Math.max(4, Math.abs(before - other)) / Math.max(4, Math.abs(x - other)),
          windowT(win, p, other),
          run,
        ),
      );
  };
  lanes.onpointerup = lanes.onpointercancel = (event) => {
    fingers.delete(event.pointerId);
    if (moved || event.type === "pointercancel") return;
    const p = place();
    const t = windowT(view.window.shown, p, event.offsetX);
    if (event.offsetY < p.lanes.top && event.offsetX >= p.left) return view.stage.playback.goto(t);
    const hit = hitAt(view.lanes.hits, event.offsetX, event.offsetY);
    const rank = view.ranks[Math.floor(((event.offsetY - p.lanes.top) / p.lanes.row) * p.band)];
    if (rank !== undefined) chooseInLanes(view, rank, hit?.row ?? -1, t);
  };
}

/**
 * Return the chunk that a row moved, as a choice; null: none.
 * @param {import("../../engine/table.js").Table} table
 * @param {number} row
 */
function chunkOfRow(table, row) {
  const { op, group, iteration } = table.passages;
  const p = table.passage[row];
  if (table.chunk[row] < 0 || op[p] < 0) return null;
  return {
    group: table.text(group[p]),
    op: op[p],
    chunk: table.chunk[row],
    iteration: iteration[p],
  };
}

/**
 * Choose a rank, and of a row its collective, chunk and iteration: every view shows what is
 * selected.
 * @param {TimelineView} view
 * @param {number} rank
 * @param {number} row -1: none
 * @param {number} t
 */
export function chooseInLanes({ index, stage }, rank, row, t) {
  if (!index) return;
  const lines = index.ranks.get(rank);
  const step = lines?.steps[index.stepAt(lines, t)];
  const choice = /** @type {any} */ ({ rank });
  if (step) choice.iteration = step.iteration;
  if (row >= 0) {
    const { table } = index;
    const p = table.passage[row];
    const op = table.passages.op[p];
    if (table.passages.iteration[p] >= 0) choice.iteration = table.passages.iteration[p];
    if (op >= 0) Object.assign(choice, { op, group: table.text(table.passages.group[p]) });
    if (table.chunk[row] >= 0) choice.chunk = table.chunk[row];
    if (table.step[row] >= 0) choice.step = table.step[row];
    if (table.peer[row] >= 0) choice.peer = table.peer[row];
  }
  const same = JSON.stringify(choice) === JSON.stringify(stage.choice);
  stage.choose(same && row >= 0 ? null : choice);
}

// @ts-check
/**
 * The keys of a stage: time, the ranks, and which scene is on show.
 * @typedef {import("./stage.js").Stage} Stage
 */
import { whyNot } from "../engine/actions.js";

/** Hold the ranks, or let them run. @param {Stage} stage */
function holdRanks(stage) {
  const { known } = stage;
  if (!whyNot(known)) void stage.act(known.control?.held ? "resume" : "pause", {});
}

/** What each key does. @param {Stage} stage @returns {Record<string, () => void>} */
export const actionsOf = (stage) => {
  const { playback, scenes, known, screen, tools, walk } = stage;
  return {
    " ": () => playback.toggle(),
    l: () => playback.live(),
    L: () => playback.live(),
    ArrowLeft: () => (walk.isOpen ? walk.go(-1) : playback.step(-1)),
    ArrowRight: () => (walk.isOpen ? walk.go(1) : playback.step(1)),
    w: () => walk.open(),
    W: () => walk.open(),
    ...(walk.isOpen ? { Escape: () => walk.close() } : {}),
    "+": () => playback.faster(1),
    "=": () => playback.faster(1),
    "-": () => playback.faster(-1),
    s: () => playback.slowest(),
    S: () => playback.slowest(),
    h: () => holdRanks(stage),
    H: () => holdRanks(stage),
    f: () => void screen.toggleFull(),
    F: () => void screen.toggleFull(),
    p: () => screen.toggleLarger(),
    P: () => screen.toggleLarger(),
    c: () => void tools.share("copy"),
    C: () => void tools.share("copy"),
    "?": () => stage.sheet.open(),
    v: () => scenes.list.open(),
    V: () => scenes.list.open(),
    Home: () => playback.goto(known.table.from),
  };
};

/** Listen until the function that is returned is called. @param {Stage} stage */
export function listenToKeys(stage) {
  const { root } = stage;
  const listen = (/** @type {KeyboardEvent} */ event) => {
    const target = /** @type {HTMLElement} */ (event.composedPath()[0]);
    const done = stage.acts.count || stage.known.run?.trials?.names.length;
    const undoes = (event.ctrlKey || event.metaKey) && event.key === "z" && done;
    if (undoes && !target.closest("input:not([type=range]), textarea")) {
      event.preventDefault();
      event.stopPropagation();
      return stage.knobs.takeBack();
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (target.closest("input, textarea, select, [role=dialog], [role=listbox], [role=menu]"))
      return; // theirs
    // a button's own key; a tab that is selected already needs none
    const pressed = target.closest("button, [role=button], a");
    if (event.key === " " && pressed && pressed.getAttribute("aria-selected") !== "true") return;
    const scene = stage.scenes.ofDigit(event.key);
    const act = scene ? () => stage.scenes.open(scene.name) : actionsOf(stage)[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  };
  root.addEventListener("keydown", listen);
  return () => root.removeEventListener("keydown", listen);
}

// @ts-check
/**
 * What Python cannot see of the page around its charts: whether it is dark, its colour, and how much
 * room it has. Shows nothing.
 */

const SOLID = /^rgb\(\d+, \d+, \d+\)$/;

/** The colour that is seen behind an element; "" where all is see-through. @param {Element} el */
export function colourBehind(el) {
  for (let at = /** @type {Element | null} */ (el); at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (SOLID.test(colour)) return colour;
  }
  return "";
}

export default {
  /** @param {{model: any, el: HTMLElement}} host */
  render({ model, el }) {
    el.style.display = "none";
    const tell = (/** @type {string} */ name, /** @type {any} */ value) => {
      if (model.get(name) === value) return;
      model.set(name, value);
      model.save_changes();
    };
    const system = matchMedia("(prefers-color-scheme: dark)");
    const look = () => {
      const lab = document.body.dataset.jpThemeLight; // JupyterLab's own word, where there is one
      tell("dark", lab ? lab === "false" : system.matches);
      tell("colour", colourBehind(el));
    };
    const theme = new MutationObserver(look);
    theme.observe(document.body, { attributeFilter: ["data-jp-theme-light"] });
    system.addEventListener("change", look);
    // a theme is named at once, and its colours come with a file, from a busy server late
    const arrived = (/** @type {Event} */ event) =>
      event.target instanceof HTMLLinkElement && look();
    document.addEventListener("load", arrived, true);
    look();
    let due = 0;
    const room = new ResizeObserver(([entry]) => {
      clearTimeout(due); // a window that is being dragged calls this once
      due = window.setTimeout(() => tell("width", Math.floor(entry.contentRect.width)), 150);
    });
    const frame = requestAnimationFrame(() => {
      // by then it has its place in the page
      const charts = el.closest(".wb-charts");
      if (charts) room.observe(charts);
      look();
    });
    return () => {
      theme.disconnect();
      room.disconnect();
      clearTimeout(due);
      cancelAnimationFrame(frame);
      system.removeEventListener("change", look);
      document.removeEventListener("load", arrived, true);
    };
  },
};

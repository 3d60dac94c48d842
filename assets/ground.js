// @ts-check
/** What Python cannot see of the page around its charts: whether it is dark; and Plotly, how much room it has. Shows nothing. */

export default {
  /** @param {{model: any, el: HTMLElement}} host */
  render({ model, el }) {
    el.style.display = "none";
    const system = matchMedia("(prefers-color-scheme: dark)");
    const look = () => {
      const lab = document.body.dataset.jpThemeLight; // JupyterLab's own word, where there is one
      const dark = lab ? lab === "false" : system.matches;
      if (model.get("dark") === dark) return;
      model.set("dark", dark);
      model.save_changes();
    };
    const theme = new MutationObserver(look);
    theme.observe(document.body, { attributeFilter: ["data-jp-theme-light"] });
    system.addEventListener("change", look);
    look();
    // A figure's widget listens to the window's size only: it is told when its own place has another width than it.
    let due = 0;
    const fit = () => {
      due = 0;
      const plots = /** @type {NodeListOf<any>} */ (el.closest(".wb-charts")?.querySelectorAll(".js-plotly-plot") ?? []);
      if ([...plots].some((plot) => plot._fullLayout && plot.clientWidth && plot._fullLayout.width !== plot.clientWidth)) dispatchEvent(new Event("resize"));
    };
    const soon = () => (due ||= window.setTimeout(fit, 100));
    const sizes = new ResizeObserver(soon), children = new MutationObserver(soon);
    const found = requestAnimationFrame(() => { // by then it has its place in the page
      const charts = el.closest(".wb-charts");
      if (!charts) return;
      sizes.observe(charts);
      children.observe(charts, { childList: true, subtree: true });
      soon();
    });
    return () => {
      theme.disconnect();
      sizes.disconnect();
      children.disconnect();
      clearTimeout(due);
      cancelAnimationFrame(found);
      system.removeEventListener("change", look);
    };
  },
};

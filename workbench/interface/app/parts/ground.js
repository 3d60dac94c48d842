// @ts-check
/** Tells the server whether the page is light or dark: charts are drawn there. */

export default {
  /** @param {{model: any}} host */
  render({ model }) {
    const system = matchMedia("(prefers-color-scheme: dark)");
    const look = () => {
      const chosen = document.documentElement.dataset.theme;
      model.set("dark", chosen ? chosen === "dark" : system.matches);
      model.save_changes?.();
    };
    system.addEventListener("change", look);
    new MutationObserver(look).observe(document.documentElement, {
      attributeFilter: ["data-theme"],
    });
    look();
  },
};

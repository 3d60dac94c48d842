// @ts-check
/**
 * What a notebook's widget loads first, and all that it loads itself: small, so that a slow page
 * has it in time. The stage's own module comes from a model that all stages of a kernel share,
 * packed, and is compiled once a page.
 *
 * anywidget gives a module two seconds; of a widget that is later it throws every message away, for
 * good, while it shows it. So messages go by a model of their own (`line`), of Jupyter's plainest
 * kind, which waits for nothing.
 */

import { moduleOf, named } from "./packed.js";
import { openTab, reopenTab } from "./tab.js";

const LATE_MS = 8000;
const AGAIN_MS = 500;
const LOADING = "Loading the picture …";
const LATE =
  "This picture has no line to the kernel yet, and goes on trying. If the kernel is gone " +
  "or was started anew, run the cell again.";

/** @param {{model: any, el: HTMLElement}} host */
function render({ model, el }) {
  const words = document.createElement("p");
  const late = setTimeout(() => (words.textContent = LATE), LATE_MS);
  let over = false;
  let end = () => {};
  words.textContent = LOADING;
  words.style.cssText =
    "min-height: 1.4em; margin: 8px 0; font: 13px/1.4 system-ui, sans-serif; opacity: 0.75";
  el.append(words);
  const begin = async () => {
    try {
      const [stage, line] = await Promise.all([moduleOf(model), named(model, "line")]);
      if (over) return;
      const on = (/** @type {string} */ name, /** @type {any} */ call) => line.on(name, call);
      const off = (/** @type {string} */ name, /** @type {any} */ call) => line.off(name, call);
      end = stage.render({
        model: {
          get: (/** @type {string} */ name) => model.get(name),
          send: (/** @type {any} */ message) => line.send(message),
          on,
          off,
          openTab: (/** @type {string} */ title) => openTab(model, el, title),
        },
        el,
      });
      void reopenTab(model, el);
      words.remove();
      clearTimeout(late);
    } catch (error) {
      // a model that is not there yet, or that a page which was loaded again has not asked for yet
      console.warn("[workbench] the picture is not there yet:", error);
      if (!over) setTimeout(begin, AGAIN_MS);
    }
  };
  void begin();
  return () => {
    over = true;
    clearTimeout(late);
    end();
    words.remove();
  };
}

/**
 * Tell the kernel that this page has the module: where none has, it shows a picture instead.
 * @param {{model: any}} host
 */
function initialize({ model }) {
  const tell = async (tries = 20) => {
    try {
      (await named(model, "line")).send({ type: "there" });
    } catch {
      if (tries) setTimeout(() => tell(tries - 1), AGAIN_MS); // it is not there yet
    }
  };
  void tell();
}

export default { initialize, render };

// @ts-check
/**
 * What a chart's widget loads first: Plotly's own module comes packed, once a kernel (loader.js
 * says why). Plotly draws from the widget's model and follows its edits. Those that come before
 * Plotly is there, or that anywidget has thrown away because the page stood still for two seconds,
 * are missed: then the whole state is asked for, and drawn anew.
 */
import { moduleOf, named, ungate } from "./packed.js";

const ASK_MS = 1000;
const AGAIN_MS = 500;

/** One of a model's, for all places that show it. */
export default () => {
  let begun = /** @type {Promise<any> | null} */ (null);
  let answered = false;
  let edits = { layout: 0, trace: 0 }; // those that the first state had

  // what Plotly has begun to listen to since it was last asked
  let listening = /** @type {[string, any][]} */ ([]);

  /** Plotly's part for this model, which follows its edits from now on. @param {any} whole */
  const begin = async (whole) => {
    const widget = await (await moduleOf(whole))();
    const { get, set, save_changes, send } = whole;
    const on = (/** @type {string} */ name, /** @type {any} */ call) => {
      listening.push([name, call]);
      whole.on(name, call);
    };
    await widget.initialize({
      model: {
        get: get.bind(whole),
        set: set.bind(whole),
        save_changes: save_changes.bind(whole),
        send: send.bind(whole),
        on,
      },
    });
    /**
     * Draw it; gives what ends the drawing, which Plotly's own end leaves listening.
     * @param {HTMLElement} el
     */
    return (el) => {
      listening = [];
      const end = widget.render({ el });
      const listeners = listening;
      return () => {
        end();
        for (const [name, call] of listeners) whole.off(name, call);
      };
    };
  };

  return {
    /** @param {{model: any}} host */
    initialize({ model }) {
      edits = {
        layout: model.get("_last_layout_edit_id"),
        trace: model.get("_last_trace_edit_id"),
      };
    },

    /** @param {{model: any, el: HTMLElement}} host */
    render({ model, el }) {
      let over = false;
      let sent = false;
      let end = () => {};
      const ask = () => {
        if (over || answered) return;
        model.send({ type: "edits", ...edits });
        setTimeout(ask, ASK_MS);
      };
      const draw = async () => {
        begun ??= named(model, "_own").then((whole) => (ungate(whole), begin(whole)));
        const drawn = await begun.catch((error) =>
          console.warn("[workbench] the chart is not there yet:", error),
        );
        if (!drawn) {
          // a page that was loaded again may not have asked for all models yet
          begun = null;
          if (!over) setTimeout(draw, AGAIN_MS);
          return;
        }
        ask();
        end();
        el.replaceChildren();
        if (!over) end = drawn(el);
      };
      const take = (/** @type {any} */ message) => {
        if (message?.type !== "edits" || sent) return;
        answered = sent = true;
        if (message.lost) void draw(); // the whole state has come before this message
      };
      model.on("msg:custom", take);
      void draw();
      return () => {
        over = true;
        model.off("msg:custom", take);
        end();
      };
    },
  };
};

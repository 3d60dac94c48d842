// @ts-check
/**
 * A chart: Plotly draws the figure that the server sent. Plotly takes a second of a core to load, so
 * it comes when a chart is about to be seen, and not with the page.
 */

import { h, part } from "./dom.js";
import { fitted } from "./narrow.js";

/** @typedef {{figure?: string, height?: number, script: string}} State */
/** @typedef {{box: HTMLElement, state: State, watched: boolean, seen: boolean, drawing: boolean,
 *   width: number}} Chart  width: px for which it is drawn */

const NEAR = "60px"; // of the part of the page that is seen
const LEAST = 60; // px: a page that is narrower is not laid out yet
const WIDER = 24; // px: by so much more or less, it is laid out again
const CONFIG = { displayModeBar: false, responsive: true };

const charts = /** @type {WeakMap<HTMLElement, Chart>} */ (new WeakMap());
let loading = /** @type {Promise<any> | null} */ (null);

/** Plotly, loaded once a page. @param {string} src */
const plotly = (src) => {
  loading ??= new Promise((done, fail) => {
    const script = h("script", {
      src,
      onload: () => done(/** @type {any} */ (globalThis).Plotly),
      onerror: () => {
        script.remove();
        loading = null; // the next figure tries again
        fail(new Error("plotly.js did not arrive"));
      },
    });
    document.head.append(script);
  });
  return loading;
};

/** Plotly's own rules, which it adds to the document: they do not reach into a part. */
const styles = () => {
  const own = /** @type {HTMLStyleElement} */ (document.getElementById("plotly.js-style-global"));
  return h("style", {}, [...(own.sheet?.cssRules ?? [])].map((rule) => rule.cssText).join("\n"));
};

/** Draw the newest figure, and again if a newer one has come meanwhile. @param {Chart} chart */
async function draw(chart) {
  if (!chart.seen || chart.drawing || !chart.state.figure) return;
  chart.drawing = true;
  const { figure, script } = chart.state;
  try {
    const library = await plotly(script);
    if (!chart.box.previousElementSibling) chart.box.before(styles());
    if (chart.box.clientWidth < LEAST) return; // it is drawn once it has its room
    const { data, layout } = JSON.parse(figure);
    const fits = fitted(layout, chart.box.clientWidth);
    chart.width = chart.box.clientWidth;
    chart.box.style.minHeight = `${fits.height}px`;
    await library.react(chart.box, data, fits, CONFIG);
  } catch (error) {
    console.warn("[workbench] the chart could not be drawn:", error);
  } finally {
    chart.drawing = false;
  }
  if (chart.state.figure !== figure) await draw(chart);
}

/** @param {HTMLElement} body @param {State} state */
function begin(body, state) {
  const box = h("div", { class: "chart" });
  const chart = { box, state, watched: false, seen: false, drawing: false, width: 0 };
  body.append(chart.box);
  charts.set(body, chart);
  new ResizeObserver(() => {
    if (chart.seen && Math.abs(chart.box.clientWidth - chart.width) > WIDER) void draw(chart);
  }).observe(chart.box);
  return chart;
}

/** Draw it once it is near, from now on: what stands above it has its height. @param {Chart} chart */
function watch(chart) {
  const seen = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      seen.disconnect();
      chart.seen = true;
      void draw(chart);
    },
    { rootMargin: NEAR },
  );
  seen.observe(chart.box);
}

export default part((body, /** @type {State} */ state) => {
  const chart = charts.get(body) ?? begin(body, state);
  const first = Boolean(state.figure) && !chart.watched;
  chart.state = state;
  chart.box.hidden = !state.figure;
  if (!chart.width) chart.box.style.minHeight = `${state.height ?? 0}px`;
  if (first) {
    chart.watched = true;
    watch(chart);
  }
  void draw(chart);
});

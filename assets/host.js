// @ts-check
/** The host: how messages come and go, whether its ground is dark, and the tokens as colours that a canvas takes. */

const INKS = ["ground", "ink", "ink-2", "ink-3", "rule", "edge", "comm", "wait", "fault", "hold", "focus",
  ...[0, 1, 2, 3, 4, 5, 6, 7].flatMap((r) => [`s${r}`, `on-s${r}`])];

/**
 * The only place that knows which host it runs in.
 * @param {any} model @param {any} view  Panel's; undefined elsewhere
 */
export function busOf(model, view) {
  const send = typeof model.send === "function" ? (/** @type {any} */ m) => model.send(m)
    : view?.model_proxy ? (/** @type {any} */ m) => view.model_proxy.send_msg(m)
    : () => {};
  const listen = (/** @type {(m: any, buffers: any[]) => void} */ take) => {
    const callback = (/** @type {any} */ message, /** @type {any[]} */ buffers) => {
      const body = message?.type === undefined && message?.data ? message.data : message; // Panel wraps it in an event
      take(body, buffers?.length ? buffers : body?.buffers ?? []);
    };
    model.on("msg:custom", callback);
    return () => model.off?.("msg:custom", callback);
  };
  return { send, listen };
}

/**
 * Whether the host is dark: JupyterLab says so; elsewhere the ground under the stage decides, or the reader's system.
 * @param {Element} el
 */
export function hostIsDark(el) {
  const lab = document.body.dataset.jpThemeLight;
  if (lab) return lab === "false";
  for (let node = /** @type {any} */ (el.parentNode); node; node = node.parentNode ?? node.host) {
    if (!(node instanceof Element)) continue;
    const [r, g, b, a = 1] = (getComputedStyle(node).backgroundColor.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
    if (a > 0.5) return 0.299 * r + 0.587 * g + 0.114 * b < 128;
  }
  const page = getComputedStyle(document.documentElement).colorScheme; // "normal": it is white, whatever the reader's system
  return page.includes("dark") && (!page.includes("light") || matchMedia("(prefers-color-scheme: dark)").matches);
}

/** Tokens as colours that a canvas takes. @param {HTMLElement} root */
export function inksOf(root) {
  const probe = root.appendChild(document.createElement("i"));
  const inks = Object.fromEntries(INKS.map((name) => {
    probe.style.color = `var(--${name})`;
    return [name, getComputedStyle(probe).color];
  }));
  probe.remove();
  return inks;
}

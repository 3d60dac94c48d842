// @ts-check
/** The host: how messages come and go, whether its ground is dark, and the tokens as colours that a canvas takes. */

import { nothing, receive } from "./known.js";

const INKS = ["ground", "panel", "ink", "ink-2", "ink-3", "rule", "edge", "track", "forward", "backward", "weight-grad", "optimizer", "load",
  "comm", "reduce", "wait", "fault", "done", "ideal", "live", "hold", "focus", ...[0, 1, 2, 3, 4, 5, 6, 7].flatMap((r) => [`s${r}`, `on-s${r}`, `age-${r}`])];

/**
 * How messages come and go. The only place that knows which host it runs in.
 * @param {any} model @param {any} view  Panel's; undefined elsewhere
 */
function busOf(model, view) {
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

const AGAIN_MS = 600; // a notebook's first hello may wait behind a busy cell; the next one need not

/** @typedef {ReturnType<typeof busOf>} Bus */

/**
 * One line to Python for all pictures of a model: what they know is kept once, and outlives a picture that is drawn anew.
 * `kept` holds what the reader had chosen.
 */
class Wire {
  constructor() {
    this.bus = /** @type {Bus | null} */ (null); // of the newest picture
    this.heard = /** @type {Bus | null} */ (null); // the one that is listened to
    this.known = nothing();
    this.takers = /** @type {Map<(message: any) => void, Bus | null>} */ (new Map());
    this.kept = /** @type {{scene?: string, player?: any, focused?: number}} */ ({});
    this.off = () => {};
    this.asked = ""; // the hello that is not answered yet
  }

  /** @param {(message: any) => void} taker @returns {() => void} */
  join(taker) {
    this.takers.set(taker, this.bus);
    this.#listen();
    if (this.known.run) taker({ type: "batch", run: this.known.run });
    return () => {
      this.takers.delete(taker);
      this.#listen();
    };
  }

  /** Listen through a picture that is there: a host silences the bus of one that has gone. */
  #listen() {
    const [bus = null] = this.takers.values(), deaf = !this.heard;
    if (bus === this.heard) return;
    this.off();
    this.heard = bus;
    this.off = bus ? bus.listen((message, buffers) => this.take(message, buffers)) : () => {};
    if (bus && deaf) this.#hello(Math.random().toString(36).slice(2));
  }

  /** Ask for the run's history, with the same token until it comes. @param {string} token */
  #hello(token) {
    this.asked = token;
    this.send({ type: "hello", token });
    setTimeout(() => this.asked === token && this.takers.size && this.#hello(token), AGAIN_MS);
  }

  /** @param {any} message @param {any[]} buffers */
  take(message, buffers) {
    const before = this.known;
    this.known = receive(before, message, buffers, performance.now());
    if (message?.type === "batch") {
      this.asked = "";
      if (this.known.missed > before.missed) this.#hello(Math.random().toString(36).slice(2)); // what was missed comes with the history
      message = { type: "batch", run: this.known.run, other: !!before.run && before.run.id !== this.known.run?.id, turn: before.state !== this.known.state };
      if (message.other) this.kept.player = undefined;
    }
    for (const taker of this.takers.keys()) taker(message);
  }

  /** @param {any} message */
  send(message) {
    (this.heard ?? this.bus)?.send(message);
  }
}

const wires = new WeakMap();

/** The line of a model, with this picture's bus. @param {any} model @param {any} view @returns {Wire} */
export function wireOf(model, view) {
  // Hosts make a proxy a view. What stays: Panel's own proxy, and in Jupyter the layout, which is this one model's.
  const owner = view?.model_proxy ?? model.get?.("layout") ?? model;
  if (!wires.has(owner)) wires.set(owner, new Wire());
  const wire = wires.get(owner);
  wire.bus = busOf(model, view);
  return wire;
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

// @ts-check
/**
 * The host: how messages come and go, whether its ground is dark, and the tokens as colours that a
 * canvas takes.
 */

import { nothing, opened, receive } from "../engine/page_state.js";

const INKS = [
  "ground",
  "panel",
  "ink",
  "ink-2",
  "ink-3",
  "rule",
  "edge",
  "track",
  "link",
  "forward",
  "backward",
  "weight-grad",
  "optimizer",
  "load",
  "comm",
  "reduce",
  "wait",
  "fault",
  "done",
  "ideal",
  "live",
  "hold",
  "focus",
  ...[0, 1, 2, 3, 4, 5, 6, 7].flatMap((r) => [`s${r}`, `on-s${r}`, `age-${r}`]),
];

/**
 * How messages come and go. The only place that knows which host it runs in.
 * @param {any} model @param {any} view  Panel's; undefined elsewhere
 */
function busOf(model, view) {
  const send =
    typeof model.send === "function"
      ? (/** @type {any} */ m) => model.send(m)
      : view?.model_proxy
        ? (/** @type {any} */ m) => view.model_proxy.send_msg(m)
        : () => {};
  const listen = (/** @type {(m: any, buffers: any[]) => void} */ take) => {
    const callback = (/** @type {any} */ message, /** @type {any[]} */ buffers) => {
      // Panel wraps it in an event
      const body = message?.type === undefined && message?.data ? message.data : message;
      take(...opened(body, buffers?.length ? buffers : (body?.buffers ?? [])));
    };
    model.on("msg:custom", callback);
    return () => model.off?.("msg:custom", callback);
  };
  return { send, listen };
}

const AGAIN_MS = 600; // a notebook's first hello may wait behind a busy cell; the next one need not
// hellos that were not answered: the answer may be what was lost, so it is asked for anew
const ANEW = 5;
const QUIET_MS = 5000; // a live run sends something every second
const ORDER_MS = 1000; // a line that broke may have taken a command along: it is sent again ...
const ORDERS = 10; // ... so many times, and obeyed once
const LATE_MS = 4000; // so long nothing at all has come: it is time to say so

/** @typedef {ReturnType<typeof busOf>} Bus */

/** Whether something is still to come. @param {import("../engine/player.js").Known} known */
const goesOn = ({ state, run }) =>
  state === "starting" || state === "running" || (state === "empty" && !!run?.can_start);
/** A name that no other question has. */
export const newToken = () => Math.random().toString(36).slice(2);

/**
 * One line to Python for all pictures of a model: what they know is kept once, and outlives a
 * picture that is drawn anew. `kept` holds what the reader had chosen.
 */
class Wire {
  constructor() {
    this.bus = /** @type {Bus | null} */ (null); // of the newest picture
    this.heard = /** @type {Bus | null} */ (null); // the one that is listened to
    this.known = nothing();
    this.takers = /** @type {Map<(message: any) => void, Bus | null>} */ (new Map());
    this.kept =
      /** @type {{scene?: string, player?: any, focused?: number, larger?: boolean, moment?: number, walk?: string, revealed?: string,
       *   choice?: import("../engine/call_choice.js").CallChoice}} */ ({});
    this.off = () => {};
    this.asked = ""; // the hello that is not answered yet
    this.orders = /** @type {Set<string>} */ (new Set()); // commands that are not
    this.messages = 0; // that have come
    this.unanswered = 0; // questions whether anybody is there
    this.quietSince = this.joined = performance.now();
    this.timer = /** @type {any} */ (0);
  }

  /**
   * Return the caption of the connection itself; "" as long as it works.
   * @param {number} at  the page's clock, ms
   */
  trouble(at) {
    if (!this.known.run)
      return this.asked && at - this.joined > LATE_MS
        ? "This picture has heard nothing from the kernel or the server yet, and goes on " +
            "asking. If nothing comes: run the cell again, or load the page again."
        : "";
    const quiet = at - this.quietSince;
    return this.unanswered > 1
      ? `Nothing has come from the kernel or the server for ${Math.round(quiet / 1000)} s: ` +
          "the picture is of then. If they have ended, so has this run."
      : "";
  }

  /** @param {(message: any) => void} taker @returns {() => void} */
  join(taker) {
    this.takers.set(taker, this.bus);
    if (this.takers.size === 1) this.joined = this.quietSince = performance.now();
    this.#listen();
    this.#watch();
    if (this.known.run) taker({ type: "batch", run: this.known.run });
    return () => {
      this.takers.delete(taker);
      this.#listen();
    };
  }

  /** Listen through a picture that is there: a host silences the bus of one that has gone. */
  #listen() {
    const [bus = null] = this.takers.values();
    const deaf = !this.heard;
    if (bus === this.heard) return;
    this.off();
    this.heard = bus;
    this.off = bus ? bus.listen((message, buffers) => this.take(message, buffers)) : () => {};
    if (bus && deaf) this.#hello(newToken());
  }

  /**
   * Ask for the run's history, with the same token while the question may still wait; then anew:
   * the answer may be lost.
   * @param {string} token
   * @param {number} [tries]
   */
  #hello(token, tries = 1) {
    this.asked = token;
    this.send({ type: "hello", token });
    setTimeout(
      () =>
        this.asked === token &&
        this.takers.size &&
        (tries % ANEW ? this.#hello(token, tries + 1) : this.#hello(newToken())),
      AGAIN_MS,
    );
  }

  /**
   * Ask, when nothing has come for a while that should have: the last message may be the one that
   * was lost.
   * @param {number} [wait]
   */
  #watch(wait = QUIET_MS) {
    const { messages } = this;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (!this.takers.size) return;
      const quiet = this.messages === messages && !this.asked && goesOn(this.known);
      if (quiet) {
        this.unanswered += 1;
        this.send({
          type: "hello",
          token: newToken(),
          heard: this.known.seq,
          run: this.known.run?.id,
        });
      }
      this.#watch(quiet ? Math.min(2 * wait, 6 * QUIET_MS) : QUIET_MS);
    }, wait);
  }

  /** @param {any} message @param {any[]} buffers */
  take(message, buffers) {
    const before = this.known;
    this.known = receive(before, message, buffers, performance.now());
    if (message?.type === "batch") {
      this.asked = "";
      this.messages += 1;
      this.unanswered = 0;
      this.quietSince = performance.now();
      if (
        this.known.missed > before.missed ||
        (message.seq > 1 && before.run && before.run.id !== message.run.id)
      )
        this.#hello(newToken()); // what was missed comes with the history
      message = {
        type: "batch",
        run: this.known.run,
        other: !!before.run && before.run.id !== this.known.run?.id,
        turn: before.state !== this.known.state,
      };
      if (message.other) this.kept.player = undefined;
    }
    if (message?.type === "said") this.orders.delete(message.id);
    for (const taker of this.takers.keys()) taker(message);
  }

  /**
   * Send a command, again and again until it is answered. The wish to start a run is sent once: a
   * host may start each that it hears.
   * @param {{type: string, id: string, verb: string, args: Record<string, any>}} command
   * @param {number} [tries]
   */
  order(command, tries = 1) {
    if (tries === 1) this.orders.add(command.id);
    if (!this.orders.has(command.id)) return;
    this.send(command);
    if (command.verb !== "start" && tries < ORDERS)
      setTimeout(() => this.order(command, tries + 1), ORDER_MS);
    else this.orders.delete(command.id);
  }

  /** @param {any} message */
  send(message) {
    (this.heard ?? this.bus)?.send(message);
  }
}

const wires = new WeakMap();

/**
 * The line of a model, with this picture's bus.
 * @param {any} model
 * @param {any} view
 * @returns {Wire}
 */
export function wireOf(model, view) {
  // Hosts make a proxy a view. What stays: Panel's own proxy, and in Jupyter the layout, which is
  // this one model's.
  const owner = view?.model_proxy ?? model.get?.("layout") ?? model;
  if (!wires.has(owner)) wires.set(owner, new Wire());
  const wire = wires.get(owner);
  wire.bus = busOf(model, view);
  return wire;
}

/**
 * Whether the host is dark: JupyterLab says so; elsewhere the ground under the stage decides, or
 * the reader's system.
 * @param {Element} el
 */
export function hostIsDark(el) {
  const lab = document.body.dataset.jpThemeLight;
  if (lab) return lab === "false";
  for (let node = /** @type {any} */ (el.parentNode); node; node = node.parentNode ?? node.host) {
    if (!(node instanceof Element)) continue;
    const [r, g, b, a = 1] = (
      getComputedStyle(node).backgroundColor.match(/[\d.]+/g) ?? [0, 0, 0, 0]
    ).map(Number);
    if (a > 0.5) return 0.299 * r + 0.587 * g + 0.114 * b < 128;
  }
  // "normal": it is white, whatever the reader's system
  const page = getComputedStyle(document.documentElement).colorScheme;
  return (
    page.includes("dark") &&
    (!page.includes("light") || matchMedia("(prefers-color-scheme: dark)").matches)
  );
}

/** Tokens as colours that a canvas takes. @param {HTMLElement} root */
export function inksOf(root) {
  const probe = root.appendChild(document.createElement("i"));
  const inks = Object.fromEntries(
    INKS.map((name) => {
      probe.style.color = `var(--${name})`;
      return [name, getComputedStyle(probe).color];
    }),
  );
  probe.remove();
  return inks;
}

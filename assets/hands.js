// @ts-check
/**
 * The user's hands on ranks and links: a small dialog at the place of a rank or a link, and the row that opens it without
 * a pointer. What is done is said before, and what the run answers is said after; everything goes through `stage.act`.
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("./stage.js").Look} Look
 * @typedef {import("./deeds.js").Deed} Deed
 * @typedef {import("./deeds.js").Target} Target
 */
import { BANDWIDTHS, FACTORS, LATENCIES, linkNow, linksOf, typedValue, undoOf, whyNot, whyNotThis, willDo } from "./deeds.js";
import { doingNow } from "./doing.js";
import { isOver, nowOf } from "./player.js";

/** The dialog that is open over each stage. @type {WeakMap<Stage, Hands>} */
const openOver = new WeakMap();

/** @param {string} tag @param {string} className @param {string} [text] */
export function piece(tag, className, text = "") {
  return Object.assign(document.createElement(tag), { className, textContent: text });
}

/** Links between which chunks of the newest call went, as "from>to". @param {Stage} stage */
function seenLinks(stage) {
  const head = stage.tale.table.newest, call = head && stage.openKey(head.key);
  return new Set((call?.flights ?? []).map((f) => `${f.from}>${f.to}`));
}

/** @param {Target} target */
const nameOf = (target) => ("rank" in target ? `rank ${target.rank}` : `link ${target.from} → ${target.to}`);
/** @param {Target} target */
const codeOf = (target) => ("rank" in target ? String(target.rank) : `${target.from}>${target.to}`);
/** @param {string} code @returns {Target} */
function targetOf(code) {
  const [from, to] = code.split(">").map(Number);
  return to === undefined ? { rank: from } : { from, to };
}

/** Fill a menu with the run's ranks and links. @param {HTMLSelectElement} menu @param {Stage} stage @param {string} chosen */
function fillTargets(menu, stage, chosen) {
  const ranks = stage.known.run?.ranks ?? 0, links = linksOf(stage.known, seenLinks(stage)).map(([from, to]) => `${from}>${to}`);
  if (chosen.includes(">") && !links.includes(chosen)) links.push(chosen);
  const codes = [...Array.from({ length: ranks }, (_, rank) => String(rank)), ...links];
  if (menu.dataset.codes !== codes.join()) {
    const group = (/** @type {string} */ label, /** @type {string[]} */ some) => {
      const options = Object.assign(document.createElement("optgroup"), { label });
      options.append(...some.map((code) => new Option(nameOf(targetOf(code)), code)));
      return options;
    };
    menu.replaceChildren(group("Ranks", codes.slice(0, ranks)), ...(links.length ? [group("Links, by direction", links)] : []));
    menu.dataset.codes = codes.join();
  }
  const value = codes.includes(chosen) ? chosen : (codes[0] ?? "");
  if (menu.value !== value) menu.value = value;
}

class Hands {
  /** @param {Stage} stage @param {Target} target @param {number} x @param {number} y */
  constructor(stage, target, x, y) {
    this.stage = stage;
    this.target = target;
    this.undo = /** @type {Deed[]} */ ([]);
    this.said = ""; // the run's answer to the last deed
    this.refused = false;
    this.hint = ""; // what the button under the pointer will do
    this.marks = /** @type {(() => void)[]} */ ([]); // what is brought up to date four times a second
    this.sure = false; // asked once more before a kill
    const root = /** @type {any} */ (stage.root.getRootNode());
    this.back = /** @type {HTMLElement | null} */ (root.activeElement ?? null);
    this.body = piece("div", "wb-hands");
    this.menu = document.createElement("select");
    this.body.setAttribute("role", "dialog");
    this.body.onkeydown = (event) => this.#key(event);
    this.away = (/** @type {Event} */ event) => !event.composedPath().includes(this.body) && this.close(false);
    this.#build();
    stage.root.append(this.body);
    this.#place(x, y);
    document.addEventListener("pointerdown", this.away, true);
    this.menu.focus();
  }

  /** Beside the pointer, inside the stage. @param {number} x @param {number} y */
  #place(x, y) {
    const box = this.stage.root.getBoundingClientRect(), { offsetWidth: w, offsetHeight: h } = this.body;
    this.body.style.left = `${Math.max(8, Math.min(x - box.left + 10, box.width - w - 8))}px`;
    this.body.style.top = `${Math.max(8, Math.min(y - box.top + 10, box.height - h - 8))}px`;
  }

  #build() {
    const { body, target } = this, top = piece("div", "wb-hands-top"), close = piece("button", "wb-hands-close", "✕");
    this.menu.setAttribute("aria-label", "What to change");
    fillTargets(this.menu, this.stage, codeOf(target));
    this.menu.onchange = () => this.#turnTo(targetOf(this.menu.value));
    close.setAttribute("aria-label", "Close");
    close.onclick = () => this.close();
    top.append(this.menu, piece("span", "wb-hands-now"), close);
    const deeds = piece("div", "wb-hands-deeds"), say = piece("p", "wb-hands-say"), undo = piece("button", "wb-hands-undo", "Undo");
    say.setAttribute("role", "status");
    undo.onclick = () => this.#takeBack();
    body.replaceChildren(top, deeds, say, undo);
    body.setAttribute("aria-label", `Change ${nameOf(target)}`);
    if ("rank" in target) this.#rank(deeds, target.rank);
    else this.#link(deeds, target.from, target.to);
    this.say();
  }

  /** @param {Target} target */
  #turnTo(target) {
    this.target = target;
    this.sure = false;
    this.undo = [];
    this.said = "";
    this.#build();
    this.menu.focus();
  }

  /** A button for a deed; `on` tells whether it is so now, `plain` that this is not of our making. @param {string} words @param {() => Deed} deed @param {() => boolean} [on] @param {boolean} [plain] */
  #button(words, deed, on, plain = false) {
    const button = /** @type {HTMLButtonElement} */ (piece("button", "wb-deed", words));
    button.onclick = () => this.#do(deed());
    const tell = () => this.#tell(willDo(deed(), this.stage.known.control));
    button.onpointerenter = button.onfocus = tell;
    button.onpointerleave = () => this.#tell("");
    this.marks.push(() => {
      const so = !!on?.();
      if (on) button.setAttribute("aria-pressed", String(so));
      button.classList.toggle(plain ? "as-is" : "on", so);
    });
    return button;
  }

  /** @param {HTMLElement} deeds @param {string} label @param {HTMLElement[]} items */
  #row(deeds, label, items) {
    const row = piece("div", "wb-hands-row");
    row.setAttribute("role", "group");
    row.setAttribute("aria-label", label);
    row.append(piece("span", "wb-hands-label", label), ...items);
    deeds.append(row);
  }

  /** @param {HTMLElement} deeds @param {number} rank */
  #rank(deeds, rank) {
    const control = () => this.stage.known.control, frozen = () => !!control()?.frozen.includes(rank);
    this.marks = [];
    const speeds = FACTORS.map((factor) => this.#button(factor > 1 ? `×${factor}` : "its own", () => ({ verb: "slow", args: { rank, factor } }), () => (control()?.slow[rank] ?? 1) === factor, factor === 1));
    this.#row(deeds, "Compute time", speeds);
    const freeze = this.#button("", () => ({ verb: frozen() ? "thaw" : "freeze", args: { rank } }), frozen);
    this.marks.push(() => (freeze.textContent = frozen() ? "Thaw" : "Freeze"));
    const kill = this.#button("✕ Kill …", () => ({ verb: "kill", args: { rank } }));
    kill.classList.add("fatal");
    const sure = piece("button", "wb-deed fatal", `Kill rank ${rank}, for good`), keep = piece("button", "wb-deed", "Keep it");
    kill.onclick = () => this.#ask(true, keep);
    sure.onclick = () => {
      this.#ask(false, this.menu);
      this.#do({ verb: "kill", args: { rank } });
    };
    keep.onclick = () => this.#ask(false, kill);
    this.#row(deeds, "Its process", [freeze, kill, keep, sure]);
    this.marks.push(() => {
      kill.hidden = freeze.hidden = this.sure;
      sure.hidden = keep.hidden = !this.sure;
    });
  }

  /** @param {boolean} sure @param {HTMLElement} next */
  #ask(sure, next) {
    this.sure = sure;
    this.said = sure ? "Its process ends at once, and with it, as a rule, the run. This cannot be undone." : "";
    this.refused = sure;
    this.undo = [];
    this.say();
    next.focus();
  }

  /** @param {HTMLElement} deeds @param {number} from @param {number} to */
  #link(deeds, from, to) {
    const link = () => linkNow(this.stage.known.control, from, to), both = document.createElement("input");
    both.type = "checkbox";
    this.marks = [];
    const deed = (/** @type {Record<string, any>} */ values) => ({ verb: "link", args: { source: from, target: to, ...values, ...(both.checked ? { both: true } : {}) } });
    for (const what of /** @type {const} */ (["latency", "bandwidth"])) {
      const choices = what === "latency" ? LATENCIES : BANDWIDTHS;
      const so = (/** @type {string} */ value) => (what === "latency" ? `${link().latency_ms} ms` : link().bandwidth) === value;
      const short = (/** @type {string} */ value) => (what === "latency" ? value : value.replace("unlimited", "none").replace("bit/s", ""));
      const typed = document.createElement("input");
      Object.assign(typed, { className: "wb-typed", placeholder: what === "latency" ? "other, ms" : "other, Mbit/s", size: 10 });
      typed.setAttribute("aria-label", what === "latency" ? "Other latency, in milliseconds" : "Other bandwidth, in Mbit/s");
      typed.onkeydown = (event) => {
        if (event.key !== "Enter") return;
        const value = typedValue(typed.value, what);
        if (value) this.#do(deed({ [what]: value }));
        else this.#answer(false, `“${typed.value}” is no ${what}: write a number, such as ${what === "latency" ? "30 ms" : "25 Mbit/s"}.`);
      };
      typed.onfocus = () => this.#tell("A number, then Enter.");
      this.#row(deeds, what === "latency" ? "Latency" : "At most, bit/s", [...choices.map((value) => this.#button(short(value), () => deed({ [what]: value }), () => so(value), value === choices[0])), typed]);
    }
    const cut = this.#button("", () => deed({ down: !link().down }), () => link().down), label = piece("label", "wb-hands-both");
    cut.classList.add("fatal");
    this.marks.push(() => (cut.textContent = link().down ? "Restore the link" : "✂ Cut the link"));
    label.append(both, ` both directions, ${from} ↔ ${to}`);
    this.#row(deeds, "Contact", [cut, label]);
  }

  /** What it is now, in words; why nothing can be done. Called with the stage's texts. */
  say() {
    const { body, target, stage } = this, { known } = stage, why = whyNotThis(known, target);
    const now = "rank" in target ? this.#rankNow(target.rank) : linkNow(known.control, target.from, target.to).words;
    this.#put(".wb-hands-now", now);
    for (const mark of this.marks) mark();
    for (const item of body.querySelectorAll(".wb-deed, .wb-hands input")) /** @type {HTMLButtonElement} */ (item).disabled = !!why;
    const words = why || this.said || this.hint || "What is changed here is drawn in amber, dashed: made by us.";
    this.#put(".wb-hands-say", words);
    body.classList.toggle("refused", !why && this.refused && !!this.said);
    const undo = /** @type {HTMLElement} */ (body.querySelector(".wb-hands-undo"));
    undo.hidden = !this.undo.length || !!why;
  }

  /** @param {number} rank */
  #rankNow(rank) {
    const { known } = this.stage, pid = known.control?.pids[rank], doing = known.run ? doingNow(known, known.run.ranks, nowOf(known, performance.now()))[rank] : null;
    return [doing?.words, pid && !isOver(known) ? `process ${pid}` : ""].filter(Boolean).join(" · ");
  }

  /** @param {string} selector @param {string} words */
  #put(selector, words) {
    const node = /** @type {HTMLElement} */ (this.body.querySelector(selector));
    if (node.textContent !== words) node.textContent = words;
  }

  /** @param {string} hint */
  #tell(hint) {
    this.hint = hint;
    if (hint && !this.sure) this.said = "";
    this.say();
  }

  /** @param {boolean} ok @param {string} words */
  #answer(ok, words) {
    this.said = words;
    this.refused = !ok;
    this.say();
  }

  /** @param {Deed} deed */
  async #do(deed) {
    const undo = undoOf(deed, this.stage.known.control), { ok, words } = await this.stage.act(deed.verb, deed.args);
    if (ok) this.undo = undo;
    this.#answer(ok, words);
  }

  async #takeBack() {
    const undo = this.undo;
    this.undo = [];
    this.menu.focus(); // the button goes
    for (const deed of undo) {
      const { ok, words } = await this.stage.act(deed.verb, deed.args);
      this.#answer(ok, ok ? `Taken back. ${words}` : words);
    }
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.key === "Escape") {
      event.preventDefault();
      this.close();
    } else if (event.key === "Tab") this.#trap(event);
    event.stopPropagation(); // neither the stage's keys nor the host's
  }

  /** @param {KeyboardEvent} event */
  #trap(event) {
    const stops = /** @type {HTMLElement[]} */ ([...this.body.querySelectorAll("button, select, input")]).filter((item) => !item.hidden && !(/** @type {any} */ (item).disabled));
    const last = event.shiftKey ? stops[0] : stops[stops.length - 1], next = event.shiftKey ? stops[stops.length - 1] : stops[0];
    if (event.target !== last) return;
    event.preventDefault();
    next.focus();
  }

  /** @param {boolean} [refocus] */
  close(refocus = true) {
    document.removeEventListener("pointerdown", this.away, true);
    this.body.remove();
    if (openOver.get(this.stage) === this) openOver.delete(this.stage);
    if (refocus) (this.back?.isConnected ? this.back : this.stage.root).focus();
  }
}

/**
 * Choose a rank: everything is then shown as seen from it. Once more: what can be done to it.
 * @param {Stage} stage @param {number} rank @param {number} x @param {number} y @param {() => void} quiet  what is said under the pointer makes room
 */
export function takeRank(stage, rank, x, y, quiet) {
  const again = stage.choice?.rank === rank;
  stage.choose({ rank });
  if (!again) return;
  quiet();
  openHands(stage, { rank }, x, y);
}

/**
 * Open the dialog for a rank or a link; one that is open closes.
 * @param {Stage} stage @param {Target} target @param {number} x @param {number} y  of the pointer, or of what was pressed: clientX, clientY
 */
export function openHands(stage, target, x, y) {
  openOver.get(stage)?.close();
  openOver.set(stage, new Hands(stage, target, x, y));
}

/**
 * A row with a menu of ranks and links, for who does not click the picture.
 * @param {HTMLElement} body @param {Stage} stage
 */
export function handsBar(body, stage) {
  const label = piece("label", "wb-hands-bar"), menu = document.createElement("select"), open = /** @type {HTMLButtonElement} */ (piece("button", "", "Change …"));
  label.append(piece("span", "wb-sr", "Rank or link"), menu);
  body.append(label, open);
  open.onclick = () => {
    const box = open.getBoundingClientRect();
    openHands(stage, targetOf(menu.value), box.left, box.top);
  };
  return {
    /** @param {Look} look */
    say({ known }) {
      const why = whyNot(known);
      if (!why) fillTargets(menu, stage, menu.value);
      if (!menu.options.length) menu.append(new Option("a rank or a link", ""));
      menu.disabled = open.disabled = !!why || !menu.value;
      open.title = menu.title = why;
      return why;
    },
  };
}

/** Bring the dialog that is open over a stage up to date; called with its texts. @param {Stage} stage */
export const refreshHands = (stage) => openOver.get(stage)?.say();

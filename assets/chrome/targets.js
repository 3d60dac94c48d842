// @ts-check
/**
 * Menus of what can be changed: the run's ranks and links.
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("../engine/actions.js").Target} Target
 */
import { linksOf } from "../engine/actions.js";

/** An element of a class, with a text. @param {string} tag @param {string} className @param {string} [text] */
export function piece(tag, className, text = "") {
  return Object.assign(document.createElement(tag), { className, textContent: text });
}

/**
 * A button's words: all of them, or a few where the bar is narrow (theme.css).
 * @param {HTMLElement} button @param {string} brief @param {string} whole
 */
export function label(button, brief, whole) {
  if (button.getAttribute("aria-label") === whole) return;
  button.setAttribute("aria-label", whole);
  button.replaceChildren(piece("span", "wb-brief", brief), piece("span", "wb-rest", whole));
}

/** Links between which chunks of the newest call went, as "from>to". @param {Stage} stage */
function seenLinks(stage) {
  const head = stage.playback.source.newest;
  const call = head && stage.playback.open(head.key);
  return new Set((call?.flights ?? []).map((f) => `${f.from}>${f.to}`));
}

/** A rank or a link, in words. @param {Target} target */
export const nameOf = (target) =>
  "rank" in target ? `rank ${target.rank}` : `link ${target.from} → ${target.to}`;
/** A rank or a link as a menu's value. @param {Target} target */
export const codeOf = (target) =>
  "rank" in target ? String(target.rank) : `${target.from}>${target.to}`;
/** The rank or link of a menu's value. @param {string} code @returns {Target} */
export function targetOf(code) {
  const [from, to] = code.split(">").map(Number);
  return to === undefined ? { rank: from } : { from, to };
}

/**
 * Fill a menu with the run's ranks and links.
 * @param {HTMLSelectElement} menu
 * @param {Stage} stage
 * @param {string} chosen
 */
export function fillTargets(menu, stage, chosen) {
  const ranks = stage.known.run?.ranks ?? 0;
  const links = linksOf(stage.known, seenLinks(stage)).map(([from, to]) => `${from}>${to}`);
  if (chosen.includes(">") && !links.includes(chosen)) links.push(chosen);
  const codes = [...Array.from({ length: ranks }, (_, rank) => String(rank)), ...links];
  if (menu.dataset.codes !== codes.join()) {
    const group = (/** @type {string} */ label, /** @type {string[]} */ some) => {
      const options = Object.assign(document.createElement("optgroup"), { label });
      options.append(...some.map((code) => new Option(nameOf(targetOf(code)), code)));
      return options;
    };
    menu.replaceChildren(
      group("Ranks", codes.slice(0, ranks)),
      ...(links.length ? [group("Links, by direction", links)] : []),
    );
    menu.dataset.codes = codes.join();
  }
  const value = codes.includes(chosen) ? chosen : (codes[0] ?? "");
  if (menu.value !== value) menu.value = value;
}

// @ts-check
/**
 * A moment of a run as an address: which scene is on show, at which time, in which call, and what is
 * chosen there. It stands behind the # of a page's address, and in a notebook as text:
 * `scene=collectives&call=12&t=48213900&rank=2`. Pure functions.
 *
 * @typedef {import("./page_state.js").Choice} Choice
 * @typedef {{scene: string, t: number, call: number, choice: Choice | null, walk?: number}} Moment
 *   t: ns since the run's first row; call: its number, 0 where none is on show; walk: the step of the
 *   scene's guided walk, from 1 on, that is open there
 */

const MARK = "#moment:"; // a page's own anchors stay what they are
const CHOSEN_NUMBERS = ["rank", "peer", "op", "step", "chunk", "iteration", "stage", "microbatch"];
const CHOSEN_TEXTS = ["group", "action"];
const LONGEST_ADDRESS = 1000; // characters that are read

/** @param {Moment} moment */
export function momentText({ scene, t, call, choice, walk }) {
  const parts = new URLSearchParams({ scene });
  if (call) parts.set("call", String(call));
  parts.set("t", String(Math.round(t)));
  if (walk) parts.set("walk", String(walk));
  for (const name of [...CHOSEN_NUMBERS, ...CHOSEN_TEXTS]) {
    const value = /** @type {any} */ (choice)?.[name];
    if (value !== undefined) parts.set(name, String(value));
  }
  return String(parts);
}

/** Return the moment that a text tells; null: it tells none. @param {string} text @returns {Moment | null} */
export function momentOfText(text) {
  const parts = new URLSearchParams(text.slice(0, LONGEST_ADDRESS));
  const walk = Math.trunc(Number(parts.get("walk") || 0)) || 0;
  const t = Number(parts.get("t") || (walk > 0 ? 0 : NaN)); // a walk has moments of its own
  if (!Number.isFinite(t) || t < 0) return null;
  const choice = /** @type {Record<string, any>} */ ({});
  for (const name of CHOSEN_NUMBERS) {
    const value = Number(parts.get(name) || NaN);
    if (Number.isInteger(value)) choice[name] = value;
  }
  for (const name of CHOSEN_TEXTS) if (parts.has(name)) choice[name] = parts.get(name);
  const call = Number(parts.get("call") || 0);
  return {
    scene: parts.get("scene") ?? "",
    t,
    call: Number.isInteger(call) && call > 0 ? call : 0,
    choice: Object.keys(choice).length ? choice : null,
    ...(walk > 0 ? { walk } : {}),
  };
}

/** The address of a page at a moment. @param {string} page @param {Moment} moment */
export const addressOf = (page, moment) => page.replace(/#.*$/s, "") + MARK + momentText(moment);

/** The moment that a page was opened at. @param {string} hash  of its address */
export const momentOfAddress = (hash) =>
  hash.startsWith(MARK) ? momentOfText(hash.slice(MARK.length)) : null;

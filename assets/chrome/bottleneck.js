// @ts-check
/**
 * What the time of a run that is over was spent on: a bar for each part, the largest cost in a
 * sentence, and what would help. Worked out from the record in workbench/analysis/bottleneck.py.
 *
 * @typedef {{shares?: Record<string, number>, words?: string, also?: string, advice?: string}}
 *   Bottleneck  also: what costs much, too
 */

/** The parts, with their words. @type {[string, string][]} */
const PARTS = [
  ["compute", "computing"],
  ["wait", "waiting for others"],
  ["link", "bytes on their way"],
  ["core", "waiting for a core"],
  ["other", "between"],
];
const SHOWN = 0.005; // of the time: a smaller part has no bar

/**
 * @param {HTMLElement} place
 * @param {Bottleneck | undefined} found
 */
export function showBottleneck(place, found) {
  place.hidden = !found?.words;
  const key = JSON.stringify(found ?? {});
  if (place.dataset.shown === key) return;
  place.dataset.shown = key;
  if (!found?.words) return;
  const { shares = {} } = found;
  const line = (/** @type {string} */ name, /** @type {string} */ text) =>
    Object.assign(document.createElement(name), { textContent: text });
  const bars = document.createElement("ul");
  for (const [part, words] of PARTS) {
    const share = shares[part] ?? 0;
    if (share < SHOWN) continue;
    const item = document.createElement("li");
    const bar = document.createElement("i");
    bar.className = `of-${part}`;
    bar.style.width = `${(100 * share).toFixed(1)}%`;
    const room = document.createElement("span");
    room.append(bar);
    item.append(line("em", words), room, line("b", `${Math.round(100 * share)} %`));
    bars.append(item);
  }
  const said = document.createElement("div");
  said.append(line("p", found.words));
  if (found.also) said.append(line("p", `Beside that: ${found.also}`));
  if (found.advice) said.append(line("p", `What would help: ${found.advice}`));
  place.replaceChildren(line("h3", "Why was it this slow?"), bars, said);
}

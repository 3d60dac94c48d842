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
  ["data", "waiting for samples"],
  ["wait", "waiting for others"],
  ["link", "bytes on their way"],
  ["core", "waiting for a core"],
  ["other", "between"],
];
const SHOWN = 0.005; // of the time: a smaller part has no bar

/**
 * @param {HTMLElement} place
 * @param {Bottleneck | undefined} bottleneck
 */
export function showBottleneck(place, bottleneck) {
  place.hidden = !bottleneck?.words;
  const key = JSON.stringify(bottleneck ?? {});
  if (place.dataset.shown === key) return;
  place.dataset.shown = key;
  if (!bottleneck?.words) return;
  const { shares = {} } = bottleneck;
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
  const sentences = document.createElement("div");
  sentences.append(line("p", bottleneck.words));
  if (bottleneck.also) sentences.append(line("p", `Beside that: ${bottleneck.also}`));
  if (bottleneck.advice) sentences.append(line("p", `What would help: ${bottleneck.advice}`));
  place.replaceChildren(line("h3", "Why was it this slow?"), bars, sentences);
}

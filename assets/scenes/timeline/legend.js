// @ts-check
/** The timeline's keys: one for every mark that this run has. */

/** @typedef {import("./index.js").TimelineIndex} TimelineIndex */
import { holdsOf } from "../../engine/holds.js";

const SPAN_KEYS = [
  ["forward", "forward"],
  ["backward", "backward"],
  ["weight-grad", "weight gradient"],
  ["optimizer", "optimizer"],
  ["load", "loading samples"],
  ["done", "metrics, checkpoints"],
  ["comm", "communication"],
  ["reduce", "adding, copying"],
];
const MARK_KEYS = [
  ["tl-full", "bucket full"],
  ["tl-rebuilt", "buckets rebuilt"],
  ["tl-hidden", "hidden (pale)"],
  ["tl-exposed", "exposed"],
  ["tl-wait", "waits (pale: computes meanwhile)"],
  ["tl-moving", "waits, its bytes on their way"],
  ["tl-held", "held by you"],
  ["tl-core", "waits for a core: how long, not where"],
  ["tl-step", "iteration begins"],
  ["tl-chunk", "single chunks: sent above, received below"],
  ["tl-arrow", "from send to receive"],
  ["tl-bar", "how well times of another host are known (dashed: not so well)"],
  ["tl-fault", "fault, made by us"],
  ["tl-detect", "noticed"],
  ["tl-head", "playhead, selection"],
];

const KEY_OF_SPAN = [
  "forward",
  "backward",
  "weight-grad",
  "optimizer",
  "load",
  "done",
  "comm",
  "reduce",
  "tl-wait",
];

/**
 * Which marks there are.
 * @param {TimelineIndex} index
 * @param {string} level  of detail
 * @param {boolean} single  chunks are drawn
 * @param {boolean} chosen  a collective is
 * @param {boolean} [trains]  it is a run of ours, which computes in these spans
 * @returns {Set<string>}
 */
export function keysOf(index, level, single, chosen, trains = true) {
  const keys = new Set([
    ...(trains ? ["forward", "backward", "optimizer"] : []),
    "comm",
    ...(trains ? ["tl-hidden", "tl-exposed", "tl-moving"] : []),
    "tl-wait",
    "tl-head",
  ]);
  const ranks = [...index.ranks.values()];
  for (const rank of ranks)
    for (let i = 0; i < Math.min(rank.all.length, 4096); i++)
      keys.add(KEY_OF_SPAN[rank.all.kind[i]]);
  if (ranks.some((rank) => rank.marks.length)) keys.add("tl-full");
  if (ranks.some((rank) => rank.rebuilds.length)) keys.add("tl-rebuilt");
  if (level === "full" && ranks.some((rank) => rank.steps.some((step) => step.queue > 0)))
    keys.add("tl-core");
  if (level !== "density" && ranks.some((rank) => rank.steps.length)) keys.add("tl-step");
  if (holdsOf(index.table).length) keys.add("tl-held");
  if (single) keys.add("tl-chunk");
  if (chosen) keys.add("tl-arrow");
  if (chosen && Object.keys(index.bounds).length) keys.add("tl-bar");
  if (index.faults.some((f) => f.kind === "fault")) keys.add("tl-fault");
  if (index.faults.some((f) => f.kind !== "fault")) keys.add("tl-detect");
  return keys;
}

/** @param {HTMLElement} body @param {Set<string>} keys */
export function drawKeys(body, keys) {
  body.replaceChildren(
    ...[...SPAN_KEYS, ...MARK_KEYS]
      .filter(([name]) => keys.has(name))
      .map(([name, words]) => {
        const item = document.createElement("span");
        const mark = item.appendChild(document.createElement("i"));
        mark.className = name.startsWith("tl-") ? `wb-${name}` : "wb-tl-solid";
        if (!name.startsWith("tl-")) mark.style.background = `var(--${name})`;
        item.append(words);
        return item;
      }),
  );
}

// @ts-check
/**
 * What there is to say of folded time, in which iterations have lost their order.
 */
import { asPercent } from "./captions.js";
import { SPAN, SPANS, isComputing } from "./density.js";
import { duration, grouped } from "../../engine/format.js";

/**
 * What all ranks did in a window, as far as it is known; of folded time there is no more to say.
 * @param {import("./index.js").TimelineIndex} index
 * @param {{from: number, to: number}} win
 */
export function foldedTimeWords(index, win) {
  const to = Math.min(win.to, index.table.to);
  if (!(to > win.from) || !index.ranks.size) return "The ranks run.";
  const sums = new Float64Array(SPANS.length);
  for (const rank of index.ranks.values())
    rank.all.within(win.from, to).forEach((ns, kind) => (sums[kind] += ns));
  const all = (to - win.from) * index.ranks.size;
  const computing = SPANS.reduce((sum, _, kind) => sum + (isComputing(kind) ? sums[kind] : 0), 0);
  const moving = sums[SPAN.comm] + sums[SPAN.reduce];
  return (
    `${grouped(index.ranks.size)} ranks, the last ${duration(to - win.from)}: ` +
    `${asPercent(computing / all)} of their time they computed, ${asPercent(moving / all)} they ` +
    `communicated without computing, ${asPercent(sums[SPAN.wait] / all)} they waited.`
  );
}

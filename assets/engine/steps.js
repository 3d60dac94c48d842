// @ts-check
/**
 * One step on or back from a moment: a chunk's arrival, the algorithm's next step, training's next
 * iteration.
 *
 * @typedef {import("./model.js").Call} Call
 * @typedef {import("./call_source.js").Telling} Telling
 */
import { stepFrom } from "./model.js";

/**
 * One step on or back: a chunk's arrival, the algorithm's next step, or training's next iteration.
 * @param {Telling} known
 * @param {number} t
 * @param {string} unit  chunk | step | iteration
 * @param {number} way 1 or -1
 * @param {(key: string) => Call | null} open
 */
export function stepped(known, t, unit, way, open) {
  const { table } = known;
  const head = table.callAt(t);
  const call = head && open(head.key);
  if (!head || !call) return way > 0 ? Math.max(0, table.from) : 0;
  const others = table.calls.filter((c) => c.group === head.group && c.sends);
  const at = others.indexOf(head);
  if (unit === "iteration") {
    const other =
      way > 0
        ? others.slice(at).find((c) => c.iteration > head.iteration)
        : others.slice(0, at).findLast((c) => c.iteration < head.iteration);
    return other ? (others.find((c) => c.iteration === other.iteration) ?? other).start : t;
  }
  const edge = (/** @type {{start: number}} */ at, /** @type {Call} */ of) =>
    at.start +
    (unit === "step" ? stepEdge(of, t - at.start, way) : stepFrom(of, t - at.start, way));
  const beyond = (/** @type {number} */ v) => (v - t) * way > 0.5;
  if (beyond(way > 0 ? head.end : head.start)) return edge(head, call);
  // Calls may touch and overlap: the neighbour is the first that reaches beyond this moment.
  const other =
    way > 0
      ? others.slice(at + 1).find((c) => beyond(c.end))
      : others.slice(0, at).findLast((c) => beyond(c.start));
  if (!other) return edge(head, call);
  const border = way > 0 ? other.start : other.end;
  if (beyond(border)) return border;
  const opened = open(other.key);
  return opened ? edge(other, opened) : t;
}

/**
 * The moments at which every chunk of a step has arrived.
 * @param {Call} call
 * @param {number} t
 * @param {number} way
 */
function stepEdge(call, t, way) {
  const ends = new Map(/** @type {[number, number][]} */ ([]));
  for (const f of call.flights) ends.set(f.step, Math.max(ends.get(f.step) ?? 0, f.end));
  const edges = [...ends.values()].sort((a, b) => a - b);
  return way > 0
    ? (edges.find((m) => m > t + 0.5) ?? call.end - call.start)
    : (edges.findLast((m) => m < t - 0.5) ?? 0);
}

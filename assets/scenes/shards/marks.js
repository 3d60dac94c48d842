// @ts-check
/** What is on screen of a sharded model, as data: each layer of each rank, and what a rank holds. */
import { topOf } from "./place.js";

/**
 * @param {import("../../engine/page_state.js").Look} look
 * @param {import("./draw.js").ShardsSeen} seen
 */
export function marksOf(look, { frame, place }) {
  const playhead = look.t + look.known.origin;
  return frame.holders.flatMap(({ rank, layers, held, active, peak }) => {
    const y = topOf(place, rank);
    return [
      ...layers.map(({ name: layer, state, held: has, arrived }, l) => {
        const { x } = place.columns[l];
        return { mark: "layer", rank, layer, state, held: has, arrived, x, y, playhead };
      }),
      {
        mark: "held",
        rank,
        held,
        active,
        peak,
        unsharded: frame.unsharded,
        x: place.memory.x,
        y,
        playhead,
      },
    ];
  });
}

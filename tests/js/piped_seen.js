// What the pipeline's scene sees of an iteration: for tests without a run.
import {
  placeOf as pipelinePlace,
  scaleOf as pipelineScale,
} from "../../assets/scenes/pipeline/place.js";
import { passesOf } from "../../assets/scenes/pipeline/call_source.js";
import { passOf } from "../../assets/scenes/pipeline/selection.js";
import { INK } from "./canvas.js";
import { piped, unflushed } from "./piped.js";
import { knownOf } from "./simulated.js";

export const slow = (kind, stage) =>
  ({ F: 10, B: 20, I: 10, W: 10 })[kind] * (stage === 2 ? 1.3 : 1);

/** What the scene sees of an iteration at a share of its time. */
export function seenAt(how, share, width, more = {}) {
  const told = how ? piped(how) : unflushed({ M: 8 });
  const known = knownOf(told.facts.ranks, told.rows, {
    run: { strategy: "pipeline", pipeline: told.facts },
    ...more,
  });
  const passes = passesOf(known);
  const head = passes.calls[1];
  const pass = passOf(passes, told.facts, head, 0);
  const place = pipelinePlace(
    width,
    pass.facts.ranks,
    Math.max(...pass.lanes.map((l) => l.length)),
  );
  const scale = pipelineScale(0, Math.max(pass.to - pass.from, pass.plan?.span ?? 0), true);
  const t = pass.from + share * (pass.to - pass.from);
  const look = {
    table: known.table,
    known,
    call: null,
    current: passes.open(head.key),
    t,
    live: false,
    held: true,
    ranks: pass.facts.ranks,
    ink: INK,
    font: "sans-serif",
    width,
    ratio: 1,
    at: 0,
    choice: null,
  };
  return { look, pass, place, scale, passes };
}

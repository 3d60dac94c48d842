// @ts-check
/** Incidents of the workers and servers of a run, as the picture says them. */
import { badEnds } from "../../engine/deaths.js";

/**
 * Return the incident of each rank; what is done to them now is shown where the picture is now.
 * @param {import("../../engine/page_state.js").Look} look
 * @param {import("./frame.js").ServerFrame} frame
 */
export function incidentsNow({ known, live, t, table }, frame) {
  const { control } = known;
  const now = live || t >= table.to - 1;
  const incidents = /** @type {Map<number, {words: string, colour: string}>} */ (new Map());
  for (const [rank, factor] of Object.entries(control?.slow ?? {}))
    if (factor !== 1) incidents.set(Number(rank), { words: `slowed ×${factor}`, colour: "hold" });
  if (now)
    for (const rank of control?.frozen ?? [])
      incidents.set(rank, { words: "frozen", colour: "hold" });
  if (now)
    for (const rank of Object.keys(control?.cut_off ?? {}))
      incidents.set(Number(rank), { words: "cut off", colour: "ink-3" });
  for (const w of frame.workers)
    if (w.doing === "lost") incidents.set(w.rank, { words: "gone", colour: "fault" });
  for (const s of frame.shards)
    if (!Number.isNaN(s.gone)) incidents.set(s.rank, { words: "gone", colour: "fault" });
  if (now)
    for (const [rank, { how }] of badEnds(control))
      incidents.set(rank, { words: how === "killed" ? "killed" : "ended", colour: "fault" });
  return incidents;
}

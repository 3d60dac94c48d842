// @ts-check
/**
 * A rank that stands: for how long it has waited, and for whom, from what its lanes do now. Pure
 * functions.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {import("./player.js").LaneNow} LaneNow
 * @typedef {import("./rank_activity.js").Doing} Doing
 */
import { COMPUTES } from "./waits.js";
import { duration } from "./format.js";
import { INSTANTS, collectiveWords, doesWords, plain, sortOf } from "./does_words.js";

export const LONG = 0.3e9; // ns: what lasts longer is shown as it is

/**
 * Whether what a lane says that it waits for is over: its wait row has come since.
 * @param {Table} table
 * @param {LaneNow} now
 */
function isPast(table, now) {
  const lane = table.lanes.get(`${now.rank} ${now.lane}`);
  let i = (lane?.length ?? 0) - 1;
  // a stall is shown as part of a wait
  while (lane && i >= 0 && INSTANTS.has(table.kindName(table.kind[lane.rows[i]]))) i--;
  return now.kind === "wait" && !!lane && i >= 0 && table.end[lane.rows[i]] > now.since;
}

/**
 * A wait for a message begins when its rank has nothing else to do: its receive may have been
 * posted long before.
 * @param {Table} table
 * @param {LaneNow} lane
 * @param {boolean} stands
 * @returns {LaneNow}
 */
function openReceive(table, lane, stands) {
  if (lane.kind !== "wait" || lane.lane === "comm") return lane;
  if (!stands) return { ...lane, since: Infinity };
  const ends = ["compute", "comm"]
    .map((name) => table.lanes.get(`${lane.rank} ${name}`))
    .map((receives) =>
      receives?.length ? table.end[receives.rows[receives.length - 1]] : -Infinity,
    );
  return { ...lane, since: Math.max(lane.since, ...ends) };
}

/**
 * What a rank's lanes have been in for a while, the one that tells most, and whether it computes
 * meanwhile; or null.
 * @param {Table} table
 * @param {LaneNow[]} lanes
 * @param {number} now
 * @param {boolean} [stands]  whether it does for messages
 * @returns {{lane: LaneNow, computes: boolean} | null}
 */
export function standing(table, lanes, now, stands = true) {
  const long = lanes
    .map((lane) =>
      isPast(table, lane) ? { ...lane, kind: "collective" } : openReceive(table, lane, stands),
    )
    .filter((lane) => now - lane.since >= LONG);
  const compute = long.find((lane) => COMPUTES.has(lane.kind));
  const other = long.find((lane) => !COMPUTES.has(lane.kind));
  const tellsMost = other?.kind === "wait" || !compute ? other : compute;
  return tellsMost ? { lane: tellsMost, computes: !!compute } : null;
}

/**
 * What a rank has been in for a while, or null.
 * @param {Table} table
 * @param {LaneNow[]} lanes
 * @param {number} now
 * @param {boolean} [stands]  whether it does for messages
 * @returns {Doing | null}
 */
export function forLong(table, lanes, now, stands = true) {
  const lasting = standing(table, lanes, now, stands);
  if (!lasting) return null;
  const { lane, computes } = lasting;
  const lasts = duration(Math.floor((now - lane.since) / 1e8) * 1e8);
  const { rank, peer, kind } = lane;
  const mark = sortOf(kind);
  if (mark === "wait")
    return {
      ...plain(
        rank,
        computes ? "compute" : "wait",
        `waits${peer >= 0 ? ` for rank ${peer}` : ""}, ${lasts} so far`,
      ),
      halo: computes,
      waits: 1,
      forWhom: peer,
      long: true,
    };
  const does =
    kind === "collective" ? `in ${collectiveWords(lane.collective)}` : doesWords(kind, lane, false);
  return { ...plain(rank, mark, `${does}, ${lasts} so far`), long: true };
}

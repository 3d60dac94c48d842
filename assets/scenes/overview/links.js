// @ts-check
/**
 * The links of the overview's circle: those over which chunks of the newest call went, and examples
 * of late.
 *
 * @typedef {import("../../engine/player.js").Known} Known
 * @typedef {import("../../engine/table.js").Table} Table
 */
import { servesExamples } from "../../engine/waits.js";

const SERVED = 400; // rows of a server's lane that are looked at

export class RecentLinks {
  /** @param {import("../../chrome/playback.js").Playback} playback */
  constructor(playback) {
    this.playback = playback;
    this.key = "";
    this.all = /** @type {Set<string>} */ (new Set()); // "0>1"
  }

  /** Read the newest call's links, and the servers'. @param {Known} known */
  update({ table, run }) {
    const head = table.newest ?? this.playback.source.newest;
    const rounds = head?.group === "rounds";
    const served = servedLinks(run, table);
    const key = [rounds ? `rounds ${table.life}` : head?.key, ...served].join(" ");
    if (
      (!head && !served.length) ||
      key === this.key ||
      (rounds && this.all.size && this.key.startsWith(head.group))
    )
      return;
    const call = head && this.playback.open(head.key);
    this.key = key;
    this.all = new Set([...(call?.flights.map((f) => `${f.from}>${f.to}`) ?? []), ...served]);
  }
}

/**
 * Return links over which servers have sent examples of late.
 * @param {Known["run"]} run
 * @param {Table} table
 * @returns {string[]}
 */
function servedLinks(run, table) {
  const links = new Set();
  for (const lane of run?.inputs ? table.lanes.values() : []) {
    if (servesExamples(run, lane.rank))
      for (let i = lane.length - 1; i >= Math.max(0, lane.length - SERVED); i--) {
        const row = lane.rows[i];
        if (table.kind[row] === table.code.send && table.peer[row] >= 0)
          links.add(`${lane.rank}>${table.peer[row]}`);
      }
  }
  return [...links].sort();
}

// @ts-check
/**
 * The links of the overview's circle: those of the run's own graph, or else those over which chunks
 * of the newest call went, and examples of late.
 *
 * @typedef {import("../../engine/player.js").Known} Known
 * @typedef {import("../../engine/table.js").Table} Table
 */
import { madeLinks } from "../../engine/rates.js";
import { graphOf } from "../../engine/run_graph.js";
import { servesExamples } from "../../engine/waits.js";

const SERVED = 400; // rows of a server's lane that are looked at

export class RecentLinks {
  /** @param {import("../../chrome/playback.js").Playback} playback */
  constructor(playback) {
    this.playback = playback;
    this.key = "";
    this.all = /** @type {Set<string>} */ (new Set()); // "0>1"
    // those that are slowed or cut on purpose, live or in a record
    this.emulated = /** @type {{from: number, to: number, down: boolean}[]} */ ([]);
  }

  /** Read the run's links: its graph, or the newest call's and the servers'. @param {Known} known */
  update(known) {
    this.#find(known);
    this.emulated = [...madeLinks(known, this.all).values()];
  }

  /** @param {Known} known */
  #find({ table, run }) {
    const graph = graphOf(run);
    if (graph) {
      this.key = [...graph].join(" ");
      this.all = graph;
      return;
    }
    // of a pipeline whose replicas average their gradients both are seen: passes and calls
    const heads = [...new Set([table.newest, this.playback.source.newest])].filter(
      (head) => !!head,
    );
    const served = servedLinks(run, table);
    const key = [...heads.map((head) => head.key), ...served].join(" ");
    if (key === this.key || (!heads.length && !served.length)) return;
    const flights = heads.flatMap((head) => this.playback.open(head.key)?.flights ?? []);
    this.key = key;
    this.all = new Set([...flights.map((f) => `${f.from}>${f.to}`), ...served]);
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

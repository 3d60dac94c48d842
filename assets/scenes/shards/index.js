// @ts-check
/**
 * What a page knows of a model that is sharded by layers, kept up to date row by row: when each
 * rank had which layer whole, which parts arrived when, how much it held. No browser, no drawing.
 * Times are ns since the run's origin.
 *
 * @typedef {import("../../engine/table.js").Table} Table
 * @typedef {{t: number[], bytes: number[]}} Held  bytes from each of these moments on
 * @typedef {{start: number, end: number, what: "gather" | "reduce", layer: string, op: string,
 *   nbytes: number, iteration: number, measuring: boolean}} Way
 *   a collective of a layer as this rank took part in it; measuring: not training's
 * @typedef {{start: number, end: number, kind: string, iteration: number}} Deed
 * @typedef {{rank: number, layers: Map<string, Held>, held: Held, active: Held, ways: Way[],
 *   deeds: Deed[], arrivals: Map<string, {t: number, chunk: number, nbytes: number}[]>,
 *   copies: {t: number, of: number}[]}} Holder
 *   held: all of it; active: of that, activations; arrivals: by collective; copies: of another
 *   rank's part, in case that one is lost, as they came
 * @typedef {{iteration: number, from: number, to: number, done: Set<number>}} ShardedIteration
 */
import { countUntil } from "../../engine/search.js";

const BUDDY_COPY = "buddy copy"; // the name of its messages
const DEEDS = ["load", "forward", "backward", "optimizer"];
const WAYS = /** @type {Record<string, "gather" | "reduce">} */ ({
  all_gather: "gather",
  reduce_scatter: "reduce",
});

export class ShardsIndex {
  /** @param {Table} table */
  constructor(table) {
    this.table = table;
    this.life = table.life;
    this.next = 0;
    this.version = 0; // grows with every change
    this.present = false; // layers are gathered and freed
    this.names = /** @type {string[]} */ ([]); // of layers, as they came
    this.holders = /** @type {Map<number, Holder>} */ (new Map());
    this.iterations = /** @type {Map<number, ShardedIteration>} */ (new Map());
  }

  /** Take in the rows that have come since. */
  update() {
    const { table } = this;
    if (table.life !== this.life)
      // row numbers have changed
      Object.assign(this, new ShardsIndex(table), { version: this.version + 1 });
    if (this.next >= table.rows) return this;
    const { code, passages } = table;
    const deeds = new Set(DEEDS.map((name) => code[name]));
    for (let r = this.next; r < table.rows; r++) {
      const kind = table.kind[r];
      const p = table.passage[r];
      if (kind === code.metric) this.#metric(r, passages.rank[p], passages.iteration[p]);
      else if (deeds.has(kind)) this.#deed(r, passages.rank[p], passages.iteration[p]);
      else if (kind === code.collective || kind === code.recv) this.#way(r, p, kind === code.recv);
    }
    this.next = table.rows;
    this.version += 1;
    return this;
  }

  /** @param {number} rank @returns {Holder} */
  holder(rank) {
    let holder = this.holders.get(rank);
    if (!holder)
      this.holders.set(
        rank,
        (holder = {
          rank,
          layers: new Map(),
          held: { t: [], bytes: [] },
          active: { t: [], bytes: [] },
          ways: [],
          deeds: [],
          arrivals: new Map(),
          copies: [],
        }),
      );
    return holder;
  }

  /** @param {number} r @param {number} rank @param {number} iteration */
  #metric(r, rank, iteration) {
    const { table } = this;
    const name = table.text(table.name[r]);
    const more = name === "gathered";
    if (name === "held" || name === "activations")
      return putHeld(
        name === "held" ? this.holder(rank).held : this.holder(rank).active,
        table.end[r],
        table.value[r],
      );
    if (!more && name !== "freed") return;
    this.present = true;
    const layer = table.text(table.phase[r]);
    const holder = this.holder(rank);
    if (!this.names.includes(layer)) this.names.push(layer);
    let held = holder.layers.get(layer);
    if (!held) holder.layers.set(layer, (held = { t: [], bytes: [] }));
    putHeld(held, table.end[r], more ? table.value[r] : 0);
    this.#within(iteration, table.end[r], table.end[r]);
  }

  /** @param {number} r @param {number} rank @param {number} iteration */
  #deed(r, rank, iteration) {
    const { table } = this;
    const kind = table.kindName(table.kind[r]);
    if (iteration < 0) return;
    this.holder(rank).deeds.push({ start: table.start[r], end: table.end[r], kind, iteration });
    const one = this.#within(iteration, table.start[r], table.end[r]);
    if (kind === "optimizer") one?.done.add(rank);
  }

  /** @param {number} r @param {number} p @param {boolean} arrives */
  #way(r, p, arrives) {
    const { table } = this;
    const { passages } = table;
    if (arrives && table.text(table.name[r]) === BUDDY_COPY)
      return void this.holder(passages.rank[p]).copies.push({ t: table.end[r], of: table.peer[r] });
    const what = WAYS[table.text(passages.collective[p])];
    if (!what) return;
    const group = table.text(passages.group[p]);
    const op = `${group}/${passages.op[p]}`;
    const holder = this.holder(passages.rank[p]);
    if (arrives) {
      if (!holder.arrivals.has(op)) holder.arrivals.set(op, []);
      holder.arrivals
        .get(op)
        ?.push({ t: table.end[r], chunk: table.chunk[r], nbytes: table.nbytes[r] });
      return;
    }
    const layer = table.text(table.name[r]);
    if (!layer) return void holder.arrivals.delete(op); // of something else
    holder.ways.push({
      start: table.start[r],
      end: table.end[r],
      what,
      layer,
      op,
      nbytes: table.nbytes[r],
      iteration: passages.iteration[p],
      measuring: group === "metrics",
    });
  }

  /** @param {number} iteration @param {number} from @param {number} to */
  #within(iteration, from, to) {
    if (iteration < 0) return null;
    const one = this.iterations.get(iteration) ?? { iteration, from, to, done: new Set() };
    this.iterations.set(iteration, one);
    one.from = Math.min(one.from, from);
    one.to = Math.max(one.to, to);
    return one;
  }
}

/** @param {Held} held @param {number} t @param {number} bytes */
function putHeld(held, t, bytes) {
  held.t.push(t);
  held.bytes.push(bytes);
}

/** What was held at t. @param {Held | undefined} held @param {number} t */
export const heldAt = (held, t) =>
  held ? (held.bytes[countUntil(held.t, t, (at) => at) - 1] ?? 0) : 0;
/** Since when it has been so, -1 if never. @param {Held | undefined} held @param {number} t */
export const heldSince = (held, t) =>
  held ? (held.t[countUntil(held.t, t, (at) => at) - 1] ?? -1) : -1;

const shardIndices = /** @type {WeakMap<Table, ShardsIndex>} */ (new WeakMap());

/** @param {Table} table */
export function indexOf(table) {
  let index = shardIndices.get(table);
  if (!index) shardIndices.set(table, (index = new ShardsIndex(table)));
  return index.update();
}

// @ts-check
/**
 * Which sample went to which rank in which minibatch: the header's run.samples, made ready for a
 * picture. Each minibatch is a matrix: a column is a sample, first those that one process would
 * take, in its order, then those that it would not; a row is a rank. Pure.
 *
 * @typedef {{n: number, batch_size: number, ranks: number, drop_last: boolean, shuffle: boolean,
 *   sampler: string, more: number, rank_of?: number[], words?: string, minibatches: {epoch: number,
 *   number: number, sequential: number[], of: number[][], repeated: number[][]}[],
 *   laws?: {name: string, holds: boolean, words: string}[]}} SampleFacts
 * @typedef {{row: number, place: number, again: boolean}} Taker  a row of the picture; the sample's
 *   place in that rank's part; had before in this epoch
 * @typedef {{sample: number, alone: boolean, takers: Taker[]}} SampleColumn  alone: one process
 *   takes it in this minibatch
 * @typedef {{index: number, epoch: number, number: number, columns: SampleColumn[], wide: number,
 *   parts: number[], again: number, lack: number, extra: number}} DealtBatch
 *   wide: columns of one process; parts: samples by rank; lack, extra: samples that it takes here
 *   and the ranks do not, and the other way round
 * @typedef {{facts: SampleFacts, batches: DealtBatch[], ranks: number[], most: number,
 *   digits: number, several: boolean, seen: Map<number, {index: number, row: number, place: number,
 *   again: boolean}[]>}} Deal
 *   ranks: by row; most: columns of the widest; digits: of the longest number; several: epochs;
 *   seen: where each sample is taken
 */

const deals = /** @type {WeakMap<SampleFacts, Deal>} */ (new WeakMap());

/**
 * Return what is known of samples; the same object as long as the facts are the same.
 * @param {{[fact: string]: any} | null | undefined} run
 * @returns {Deal | null}
 */
export function dealOf(run) {
  const facts = /** @type {SampleFacts | null | undefined} */ (run?.samples);
  if (!facts?.minibatches?.length) return null;
  const had = deals.get(facts) ?? readDeal(facts);
  deals.set(facts, had);
  return had;
}

/** @param {SampleFacts} facts @returns {Deal} */
function readDeal(facts) {
  const seen = /** @type {Deal["seen"]} */ (new Map());
  const batches = facts.minibatches.map((one, index) => dealtBatch(one, index));
  for (const { index, columns } of batches)
    for (const { sample, takers } of columns)
      for (const taker of takers) {
        if (!seen.has(sample)) seen.set(sample, []);
        seen.get(sample)?.push({ index, ...taker });
      }
  const largest = Math.max(
    0,
    ...facts.minibatches.flatMap((one) => [...one.sequential, ...one.of.flat()]),
  );
  return {
    facts,
    batches,
    ranks: facts.rank_of ?? Array.from({ length: facts.ranks }, (_, r) => r),
    most: Math.max(1, ...batches.map((b) => b.columns.length)),
    digits: String(largest).length,
    several: batches.some((b) => b.epoch > 0),
    seen,
  };
}

/** @param {SampleFacts["minibatches"][0]} one @param {number} index @returns {DealtBatch} */
function dealtBatch({ epoch, number, sequential, of, repeated }, index) {
  const columns = /** @type {SampleColumn[]} */ (
    sequential.map((sample) => ({ sample, alone: true, takers: [] }))
  );
  const longest = Math.max(0, ...of.map((ids) => ids.length));
  for (let place = 0; place < longest; place++)
    of.forEach((ids, row) => {
      // in the order in which samples are dealt out
      if (place >= ids.length) return;
      const sample = ids[place];
      const again = repeated[row]?.includes(place) ?? false;
      let column =
        // once a row: twice is another column
        columns.find((c) => c.sample === sample && !c.takers.some((t) => t.row === row)) ?? null;
      if (!column) columns.push((column = { sample, alone: false, takers: [] }));
      column.takers.push({ row, place, again });
    });
  return {
    index,
    epoch,
    number,
    columns,
    wide: sequential.length,
    parts: of.map((ids) => ids.length),
    again: repeated.reduce((n, places) => n + places.length, 0),
    lack: columns.filter((c) => c.alone && !c.takers.length).length,
    extra: columns.reduce((n, c) => n + c.takers.length - (c.alone && c.takers.length ? 1 : 0), 0),
  };
}

/** Whether the ranks together take what one process takes. @param {DealtBatch} batch */
export const dealsSame = (batch) => batch.lack === 0 && batch.extra === 0;

/**
 * In which minibatch one process takes a sample that is not in this one's; -1: in none that is
 * told.
 * @param {Deal} deal
 * @param {DealtBatch} batch
 * @param {number} sample
 */
export function elsewhere(deal, batch, sample) {
  return (
    deal.batches.find(
      (b) => b.epoch === batch.epoch && b.columns.some((c) => c.alone && c.sample === sample),
    )?.index ?? -1
  );
}

// ---- where each rank is at the playhead: the newest row of loading that has begun

class Loads {
  /** @param {import("../../engine/table.js").Table} table */
  constructor(table) {
    this.life = table.life;
    this.read = 0;
    this.of = /** @type {Map<number, {start: number[], iteration: number[]}>} */ (new Map());
  }

  /** @param {import("../../engine/table.js").Table} table */
  take(table) {
    const { code, passages } = table;
    for (let r = this.read; r < table.rows; r++) {
      const p = table.passage[r];
      const iteration = passages.iteration[p];
      if (table.kind[r] !== code.load || iteration < 0) continue;
      const rank = passages.rank[p];
      const load = this.of.get(rank) ?? { start: [], iteration: [] };
      this.of.set(rank, load);
      if (load.iteration.at(-1) === iteration) continue; // a later part of the same minibatch
      load.start.push(table.start[r]);
      load.iteration.push(iteration);
    }
    this.read = table.rows;
    return this;
  }
}

const loads = /** @type {WeakMap<import("../../engine/table.js").Table, Loads>} */ (new WeakMap());

/**
 * The iteration of each row's rank at a moment; -1 before its first, and where nothing was
 * recorded.
 * @param {import("../../engine/table.js").Table} table
 * @param {number[]} ranks
 * @param {number} t
 * @returns {number[]}
 */
export function iterationsAt(table, ranks, t) {
  let known = loads.get(table);
  if (!known || known.life !== table.life) loads.set(table, (known = new Loads(table)));
  known.take(table);
  return ranks.map((rank) => {
    const { start, iteration } = known.of.get(rank) ?? { start: [], iteration: [] };
    let low = 0;
    let high = start.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (start[middle] <= t) low = middle + 1;
      else high = middle;
    }
    return low ? iteration[low - 1] : -1;
  });
}

/**
 * The moment at which the first rank begins an iteration; null where that is not recorded.
 * @param {import("../../engine/table.js").Table} table
 * @param {number} iteration
 */
export function momentOf(table, iteration) {
  const starts = [...(loads.get(table)?.of.values() ?? [])]
    .map((load) => load.start[load.iteration.indexOf(iteration)])
    .filter((t) => t !== undefined);
  return starts.length ? Math.min(...starts) : null;
}

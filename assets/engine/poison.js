// @ts-check
/**
 * A NaN in an all-reduce: which chunks of a call carry it, on which rank it began. What ranks send
 * is not recorded. But the rank that a fault struck looked at its gradient before the sum, and whose
 * part is in which chunk is known (holdings.js): a chunk with that part of that rank carries the NaN.
 * The same question as workbench/analysis/poison.py. Pure functions of rows.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {import("./model.js").Call} Call
 * @typedef {import("./holdings.js").Holdings} Holdings
 * @typedef {{rank: number, sample: number, generation: number, iteration: number, detected: boolean,
 *   chunks: Map<string, Set<number>>}} Struck
 *   detected: before the sum; chunks: that hold a NaN, by parameter; empty if they could not be checked
 * @typedef {{rank: number, sample: number, place: number, chunks: Set<number> | null}} Poison
 *   chunks: null for all of them
 */

const LOOKED = "not finite"; // workbench/recording/events.py: POISONED

/** @type {WeakMap<Table, {next: number, life: number, all: Struck[]}>} */
const struckIn = new WeakMap();

/**
 * The minibatches that were made to hold a NaN, in order.
 * @param {Table} table
 * @returns {Struck[]}
 */
export function minibatchesStruck(table) {
  const had = struckIn.get(table);
  const kept = had?.life === table.life ? had : { next: 0, life: table.life, all: [] };
  struckIn.set(table, kept);
  const [nan, looked] = ["corrupt nan", LOOKED].map((name) => table.strings.indexOf(name));
  if (nan < 0) return kept.all; // none yet: rows before its name need not be looked at
  const { code, passages } = table;
  for (let r = kept.next; r < table.rows; r++) {
    const kind = table.kind[r];
    if (kind !== code.fault && kind !== code.detect && kind !== code.metric) continue;
    const p = table.passage[r];
    const rank = passages.rank[p];
    const [generation, iteration] = [passages.generation[p], passages.iteration[p]];
    const same = (/** @type {Struck} */ one) =>
      one.rank === rank && one.generation === generation && one.iteration === iteration;
    if (kind === code.fault && table.name[r] === nan && rank >= 0) {
      const sample = table.value[r];
      kept.all.push({ rank, sample, generation, iteration, detected: false, chunks: new Map() });
    } else if (kind === code.detect && table.text(table.name[r]).startsWith("bad minibatch")) {
      const struck = kept.all.findLast(same);
      if (struck) struck.detected = true;
    } else if (kind === code.metric && looked >= 0 && table.name[r] === looked) {
      const struck = kept.all.findLast(same);
      const parameter = table.text(table.phase[r]);
      const chunks = struck?.chunks.get(parameter) ?? new Set();
      struck?.chunks.set(parameter, chunks.add(table.chunk[r]));
    }
  }
  kept.next = table.rows;
  return kept.all;
}

/** Whether a call sends several parameters at once, by its label. @param {string} label */
const ofSeveral = (label) => !label || label.includes(" to ") || label.startsWith("bucket");

/**
 * The NaN of a call; null: it has none.
 * @param {Table} table
 * @param {Call} call
 * @param {Holdings} holdings
 * @returns {Poison | null}
 */
export function poisonOf(table, call, holdings) {
  if (call.collective !== "all_reduce" || call.group === "metrics" || holdings.way !== "sum")
    return null;
  const struck = minibatchesStruck(table).find(
    ({ generation, iteration, detected }) =>
      generation === call.generation && iteration === call.iteration && !detected,
  );
  const place = struck ? holdings.place.get(struck.rank) : undefined;
  if (!struck || place === undefined) return null;
  const chunks = struck.chunks.get(call.name) ?? null;
  if (!chunks && struck.chunks.size && !ofSeveral(call.name)) return null; // that one was finite
  return { rank: struck.rank, sample: struck.sample, place, chunks };
}

/**
 * Whether a chunk with these parts carries the NaN.
 * @param {Poison | null} poison
 * @param {number} chunk
 * @param {ArrayLike<number> | undefined} counts  of each contributor
 */
export const carriesNaN = (poison, chunk, counts) =>
  !!poison && (!poison.chunks || poison.chunks.has(chunk)) && (counts?.[poison.place] ?? 0) > 0;

/**
 * Whether a rank holds a NaN in a chunk, in a state of its cell.
 * @param {Poison | null} poison
 * @param {Holdings} holdings
 * @param {number} cell
 * @param {number} state
 */
export function cellHasNaN(poison, { within, ranks, chunks }, cell, state) {
  const n = ranks.length;
  return carriesNaN(
    poison,
    chunks[cell % chunks.length],
    within.subarray(state * n, state * n + n),
  );
}

/** "a NaN, from sample 17 of rank 1" @param {Poison} poison */
export const nanWords = ({ rank, sample }) =>
  `a NaN, from ${Number.isFinite(sample) ? `sample ${sample} of ` : ""}rank ${rank}`;

/**
 * Whom the NaN has reached by a moment of its call, in a sentence.
 * @param {Poison} poison
 * @param {Holdings} holdings
 * @param {Int32Array} states  of the cells at that moment
 */
export function reachedWords(poison, holdings, states) {
  const { ranks, chunks } = holdings;
  const holders = ranks.filter((_, row) =>
    chunks.some((_, c) => {
      const cell = row * chunks.length + c;
      return cellHasNaN(poison, holdings, cell, states[cell]);
    }),
  );
  const others = holders.filter((rank) => rank !== poison.rank);
  const what = poison.chunks
    ? `${poison.chunks.size} of its ${chunks.length} chunks ${poison.chunks.size > 1 ? "hold" : "holds"}`
    : "its part of the sum holds";
  const sentence = `Rank ${poison.rank}: ${what} ${nanWords(poison).replace(` of rank ${poison.rank}`, "")}`;
  if (!others.length) return `${sentence}. Nobody else has received it yet.`;
  return others.length === ranks.length - 1
    ? `${sentence}. It has reached all ranks.`
    : `${sentence}. It has reached rank${others.length > 1 ? "s" : ""} ${others.join(", ")}.`;
}

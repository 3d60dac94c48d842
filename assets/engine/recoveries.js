// @ts-check
/**
 * What each loss of ranks cost: the phases from the fault to the first iteration that all members
 * have finished, what was repeated, and the goodput of the run. The same numbers as
 * workbench/analysis/recovery.py. Pure functions of rows; times are ns since the origin.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {import("./player.js").Known} Known
 * @typedef {import("./generations.js").Generation} Generation
 * @typedef {import("./generations.js").Loss} Loss
 * @typedef {"detect" | "abort" | "rebuild" | "restore" | "first"} Phase
 * @typedef {{phase: Phase, start: number, end: number, name: string, nbytes: number}} PhaseBar
 * @typedef {{rank: number, role: "survivor" | "fresh" | "lost", ended: number, bars: PhaseBar[]}}
 *   RecoveryLane  ended: when this rank was lost, NaN if it was not
 * @typedef {{key: string, before: number, after: Generation | null, lost: Loss[], joined: number[], origin: number,
 *   since: "fault" | "detect", ends: Record<Phase, number>, lanes: RecoveryLane[],
 *   failedIn: number, iteration: number, repeated: number, received: number}} LossOfRanks
 *   before: the generation that lost them; after: the one that follows, null if none does (yet);
 *   ends: of each phase, NaN while not all have ended it
 */
import { generationRows, generationsOf, lossesIn } from "./generations.js";

export const RECOVERY_PHASES = /** @type {Phase[]} */ ([
  "detect",
  "abort",
  "rebuild",
  "restore",
  "first",
]);
/** How a restart by torchrun is marked: workbench/store/restarts.py. */
export const RESTARTED = "restarted";
const TRAINS = "forward backward weight_grad optimizer load collective push pull".split(" ");

/** Iterations of each generation: when, of how many samples, and when each rank ended its first. */
class IterationsDone {
  /** @param {Table} table */
  constructor(table) {
    this.table = table;
    this.next = 0;
    this.start = Infinity; // of the first iteration
    this.end = -Infinity; // of the last row that is counted
    /** @type {Map<number, Map<number, {start: number, end: number, samples: number}>>} */
    this.of = new Map();
    /** By generation and rank. @type {Map<string, {iteration: number, end: number}>} */
    this.first = new Map();
  }

  update() {
    const { table } = this;
    const { code, passages } = table;
    const sort = new Uint8Array(256); // 1: trains, 2: updates, 3: a metric, 4: a server's update
    for (const kind of TRAINS) if (code[kind] !== undefined) sort[code[kind]] = 1;
    if (code.optimizer !== undefined) sort[code.optimizer] = 2;
    if (code.metric !== undefined) sort[code.metric] = 3;
    if (code.apply !== undefined) sort[code.apply] = 4;
    const [samples, ends] = ["samples", "runqueue"].map((name) => table.strings.indexOf(name));
    const from = Math.max(0, this.next - table.forgotten);
    this.next = table.forgotten + table.rows;
    for (let r = from; r < table.rows; r++) {
      const what = sort[table.kind[r]];
      const p = table.passage[r];
      if (!what || passages.rank[p] < 0 || passages.iteration[p] < 0) continue;
      const name = table.name[r];
      if (what === 3 && name !== samples && name !== ends) continue;
      if (what === 4) {
        this.#ends(p, table.end[r]);
        continue;
      }
      const one = this.#iteration(passages.generation[p], passages.iteration[p]);
      one.start = Math.min(one.start, table.start[r]);
      one.end = Math.max(one.end, table.end[r]);
      this.start = Math.min(this.start, table.start[r]);
      this.end = Math.max(this.end, table.end[r]);
      if (what === 3 && name === samples) one.samples += table.value[r];
      else if (what > 1) this.#ends(p, table.end[r]);
    }
    return this;
  }

  /** @param {number} generation @param {number} iteration */
  #iteration(generation, iteration) {
    const all = this.of.get(generation) ?? new Map();
    this.of.set(generation, all);
    const one = all.get(iteration) ?? { start: Infinity, end: -Infinity, samples: 0 };
    all.set(iteration, one);
    return one;
  }

  /** @param {number} p @param {number} end */
  #ends(p, end) {
    const { generation, rank, iteration } = this.table.passages;
    const key = `${generation[p]} ${rank[p]}`;
    const had = this.first.get(key);
    if (!had || had.iteration > iteration[p]) this.first.set(key, { iteration: iteration[p], end });
    else if (had.iteration === iteration[p]) had.end = Math.max(had.end, end);
  }
}

/** @type {WeakMap<Table, IterationsDone>} */
const donesOf = new WeakMap();

/** @param {Table} table */
function iterationsDone(table) {
  const done = donesOf.get(table) ?? new IterationsDone(table);
  donesOf.set(table, done);
  return done.update();
}

/** Whether a run has lost ranks, and the driver knew. @param {Known} known */
export const hasRecoveries = (known) =>
  !!known.run?.recoveries?.length || generationRows(known.table).losses.length > 0;

/** @type {WeakMap<Table, {key: string, losses: LossOfRanks[]}>} */
const lossesFound = new WeakMap();

/**
 * All losses of ranks so far, oldest first: the last may not be recovered from yet.
 * @param {Known} known
 * @returns {LossOfRanks[]}
 */
export function lossesOfRanks(known) {
  const { table, run } = known;
  const key = [table.epoch, run?.recoveries?.length ?? 0, run?.ranks].join();
  const had = lossesFound.get(table);
  if (had?.key === key) return had.losses;
  const rows = generationRows(table);
  const generations = generationsOf(known);
  const losses = generations.flatMap((before, i) => {
    const after = generations[i + 1] ?? null;
    const noticed = lossesIn(rows, before.number);
    return after || noticed.length ? [lossOfRanks(known, before, after, noticed)] : [];
  });
  lossesFound.set(table, { key, losses });
  return losses;
}

/**
 * @param {Known} known
 * @param {Generation} before
 * @param {Generation | null} after
 * @param {Loss[]} noticed
 * @returns {LossOfRanks}
 */
function lossOfRanks(known, before, after, noticed) {
  const { table } = known;
  const rows = generationRows(table);
  if (after?.fact?.state === RESTARTED) return restartOf(rows, before, after, after.fact);
  const done = iterationsDone(table);
  const hows = Object.entries(after?.fact?.lost ?? {});
  const lost = after?.fact
    ? hows.map(([rank, how]) => ({ how, ...noticedOf(noticed, Number(rank), before.number) }))
    : noticed;
  const members = after?.members ?? [];
  const fresh = after?.fresh ?? [];
  const gone = lost.map(({ rank }) => rank);
  const kills = rows.kills.filter((k) => k.generation === before.number && gone.includes(k.rank));
  const ends = /** @type {Record<Phase, number>} */ ({});
  const joined = fresh.filter((rank) => !gone.includes(rank));
  const arrived = rows.arrivals.filter((one) => joined.includes(one.rank));
  const whom = lost.length ? lost : arrived.filter((one) => one.generation === before.number);
  const fault = Math.min(Infinity, ...kills.map(({ t }) => t));
  const acts = (/** @type {"abort" | "rebuild" | "restore"} */ kind) =>
    rows.actsOf(kind === "abort" ? before.number : (after?.number ?? -1), kind);
  const survivors = after
    ? members.filter((rank) => !fresh.includes(rank))
    : before.members.filter((rank) => !gone.includes(rank));
  const first = (/** @type {number} */ rank) =>
    done.first.get(`${after?.number ?? -1} ${rank}`)?.end;
  const times = (/** @type {"abort" | "rebuild" | "restore"} */ kind, /** @type {number[]} */ of) =>
    lastOf(of.map((rank) => acts(kind).get(rank)?.end ?? NaN));
  const begun = survivors.map((rank) => acts("abort").get(rank)?.start ?? NaN);
  // A survivor may look before the driver does.
  const noticings = [lastOf(whom.map(({ t }) => t)), lastOf(begun)].filter(Number.isFinite);
  ends.detect = noticings.length ? Math.min(...noticings) : NaN;
  const killed = fault <= ends.detect || (Number.isNaN(ends.detect) && fault < Infinity);
  ends.abort = times("abort", survivors);
  ends.rebuild = times("rebuild", members);
  ends.restore = times("restore", members);
  ends.first = lastOf(members.map((rank) => first(rank) ?? NaN));
  const starts = [...acts("abort").values()].map((act) => act.start);
  const origin = killed ? fault : ([ends.detect, Math.min(...starts)].find(Number.isFinite) ?? NaN);
  const lane = (/** @type {number} */ rank, /** @type {RecoveryLane["role"]} */ role) => {
    const bars = /** @type {PhaseBar[]} */ ([]);
    const put = (
      /** @type {Phase} */ phase,
      /** @type {number} */ start,
      /** @type {number} */ end,
      more = {},
    ) => end >= start && bars.push({ phase, start, end, name: "", nbytes: -1, ...more });
    if (role === "survivor") put("detect", origin, ends.detect);
    for (const kind of /** @type {const} */ (["abort", "rebuild", "restore"])) {
      const act =
        role === "lost" || (role === "fresh" && kind === "abort") ? null : acts(kind).get(rank);
      if (act) put(kind, act.start, act.end, { name: act.name, nbytes: act.nbytes });
    }
    const end = role === "lost" ? undefined : first(rank);
    if (end !== undefined) put("first", bars.at(-1)?.end ?? origin, end);
    const ended = gone.includes(rank)
      ? Math.min(...[...kills, ...lost].filter((one) => one.rank === rank).map(({ t }) => t))
      : NaN;
    return { rank, role, ended, bars };
  };
  const everybody = [...new Set([...before.members, ...members])].sort((a, b) => a - b);
  const fact = after?.fact;
  const restored = after ? [...acts("restore").values()] : [];
  return {
    key: `${before.number}`,
    before: before.number,
    after,
    lost,
    joined,
    origin,
    since: killed ? "fault" : "detect",
    ends,
    lanes: everybody.map((rank) =>
      lane(rank, fresh.includes(rank) ? "fresh" : gone.includes(rank) ? "lost" : "survivor"),
    ),
    failedIn:
      fact?.failed_in ?? Math.max(-1, ...[...acts("abort").values()].map((a) => a.iteration)),
    iteration: fact?.iteration ?? Math.max(-1, ...restored.map((act) => act.iteration)),
    repeated: after ? repeatedBy(known, done, after.number) : 0,
    received: restored.reduce(
      (sum, { name, nbytes }) => sum + (name === "received" ? Math.max(0, nbytes) : 0),
      0,
    ),
  };
}

/**
 * A restart by torchrun: all that rows tell is when the processes of one attempt ended, and when
 * those of the next began.
 * @param {import("./generations.js").GenerationRows} rows
 * @param {Generation} before
 * @param {Generation} after
 * @param {import("./generations.js").RecoveryFact} fact
 * @returns {LossOfRanks}
 */
function restartOf(rows, before, after, fact) {
  const [old, fresh] = [before, after].map(({ number }) => rows.spans.get(number) ?? new Map());
  const lost = Object.entries(fact.lost).map(([rank, how]) => ({
    rank: Number(rank),
    t: old.get(Number(rank))?.to ?? NaN,
    how,
    generation: before.number,
  }));
  const ends = [...old.values()].map(({ to }) => to);
  const origin = lost[0]?.t ?? Math.min(...ends);
  const there = lastOf(after.members.map((rank) => fresh.get(rank)?.from ?? NaN));
  const everybody = [...new Set([...old.keys(), ...after.members])].sort((a, b) => a - b);
  return {
    key: `${before.number}`,
    before: before.number,
    after,
    lost,
    joined: [],
    origin,
    since: "fault",
    ends: { detect: origin, abort: origin, rebuild: there, restore: there, first: there },
    lanes: everybody.map((rank) => ({
      rank,
      role: after.members.includes(rank)
        ? /** @type {const} */ ("fresh")
        : /** @type {const} */ ("lost"),
      ended: old.get(rank)?.to ?? NaN,
      bars: fresh.has(rank)
        ? [
            {
              phase: /** @type {const} */ ("rebuild"),
              start: origin,
              end: fresh.get(rank)?.from ?? origin,
              name: "",
              nbytes: -1,
            },
          ]
        : [],
    })),
    failedIn: -1,
    iteration: -1,
    repeated: 0,
    received: 0,
  };
}

/** @param {Loss[]} noticed @param {number} rank @param {number} generation */
const noticedOf = (noticed, rank, generation) =>
  noticed.find((loss) => loss.rank === rank) ?? { rank, t: NaN, generation };

/** The last of these; NaN if one is not there. @param {number[]} times */
const lastOf = (times) => (times.length ? Math.max(...times) : NaN);

/**
 * The iteration that a generation went on with; Infinity: unknown yet.
 * @param {Table} table @param {Generation} generation
 */
function wentOnWith(table, { number, fact }) {
  if (fact) return fact.iteration;
  const restored = [...generationRows(table).actsOf(number, "restore").values()];
  return restored.length ? Math.max(...restored.map((act) => act.iteration)) : Infinity;
}

/**
 * The generation that did an iteration again; undefined: it counts.
 * @param {{number: number, from: number}[]} later  generations, and what they went on with
 * @param {number} generation
 * @param {number} iteration
 */
const doneAgainBy = (later, generation, iteration) =>
  later.find(({ number, from }) => number > generation && from <= iteration)?.number;

/** @param {Known} known */
const wentOn = (known) =>
  generationsOf(known)
    .slice(1)
    .map((one) => ({ number: one.number, from: wentOnWith(known.table, one) }));

/**
 * Samples that a generation computed once more.
 * @param {Known} known @param {IterationsDone} done @param {number} generation
 */
function repeatedBy(known, done, generation) {
  const later = wentOn(known);
  let sum = 0;
  for (const [number, iterations] of done.of)
    for (const [iteration, { samples }] of number < generation ? iterations : [])
      if (samples && doneAgainBy(later, number, iteration) === generation) sum += samples;
  return Math.round(sum);
}

/**
 * The share of the run's time so far that passed in iterations that count; NaN before the first.
 * @param {Known} known
 */
export function goodputOf(known) {
  const done = iterationsDone(known.table);
  const rows = generationRows(known.table);
  const later = wentOn(known);
  let good = 0;
  for (const [number, iterations] of done.of) {
    let [from, to] = [Infinity, -Infinity];
    for (const [iteration, { start, end }] of iterations) {
      if (doneAgainBy(later, number, iteration) !== undefined) continue;
      from = Math.min(from, start);
      to = Math.max(to, end);
    }
    good += Math.max(0, to - from);
  }
  const acts = [...rows.acts.values()].flatMap((each) => [...each.values()]);
  const end = Math.max(done.end, ...acts.map((act) => act.end));
  return end > done.start ? Math.min(1, good / (end - done.start)) : NaN;
}

// @ts-check
/**
 * The generations of a run: who is a member of which, who was lost, and how the next one came to be.
 * A run that loses ranks goes on in another generation, with fewer ranks or with fresh ones. Rows
 * say when; `known.run.recoveries`, where it is there, who and why. Times are ns since the origin.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {import("./player.js").Known} Known
 * @typedef {{generation: number, lost: Record<string, string>, failed_in: number, iteration: number,
 *   members: number[], fresh: number[], state: string, regained?: RegainedFact[]}} RecoveryFact
 *   workbench/store/recoveries.py
 * @typedef {{source: string, server: number, holder: number, owner: number, elements: number,
 *   version: number, updates_lost: number}} RegainedFact  keys, or a part of the model, that did not
 *   come from the rank that had them
 * @typedef {{start: number, end: number, name: string, nbytes: number, iteration: number}} Act
 * @typedef {"abort" | "rebuild" | "restore"} ActKind
 * @typedef {{rank: number, t: number, how: string, generation: number}} Loss
 * @typedef {{number: number, began: number, members: number[], fresh: number[],
 *   fact: RecoveryFact | null}} Generation  began: when the first of its members joined, -Infinity
 *   of the first generation, Infinity if no row says
 */

/** What the driver finds of ranks that are not lost: they have not begun, or live where nobody knows
 * what they do. */
const NOT_LOST = new Set(["absent", "cut off", "back"]);

const ACTS = /** @type {ActKind[]} */ (["abort", "rebuild", "restore"]);

/** What the rows say of generations, read onward from where it was. */
export class GenerationRows {
  /** @param {Table} table */
  constructor(table) {
    this.table = table;
    this.next = 0; // the next row to look at, counted over the whole run
    this.version = 0; // grows with every change
    /** What the driver has noticed. @type {Loss[]} */
    this.losses = [];
    /** What a rank has noticed that could spare the lost one. @type {Loss[]} */
    this.spared = [];
    /** Ranks that are there and are to join, and when. @type {Loss[]} */
    this.arrivals = [];
    /** Ranks that a fault killed, and when. @type {Loss[]} */
    this.kills = [];
    /** By generation, kind and rank. @type {Map<string, Map<number, Act>>} */
    this.acts = new Map();
    /** Those that a rank has joined. @type {Set<number>} */
    this.joined = new Set();
    /** When each rank's first row of a generation began, and its newest ended. @type {Map<number,
     * Map<number, {from: number, to: number}>>} */
    this.spans = new Map();
  }

  update() {
    const { table } = this;
    if (this.next === table.forgotten + table.rows) return this;
    const { code, kind, passage, passages } = table;
    const wanted = new Uint8Array(256);
    for (const name of ["fault", "detect", ...ACTS])
      if (code[name] !== undefined) wanted[code[name]] = 1;
    const from = Math.max(0, this.next - table.forgotten);
    this.next = table.forgotten + table.rows;
    for (let p = table.passage[from]; p < table.count; p++) this.#span(p);
    for (let r = from; r < table.rows; r++)
      if (wanted[kind[r]]) this.#take(r, passages.rank[passage[r]], table.kindName(kind[r]));
    return this;
  }

  /** @param {number} p */
  #span(p) {
    const { passages, start, end } = this.table;
    const [rank, generation] = [passages.rank[p], passages.generation[p]];
    const last = passages.first[p] + passages.count[p] - 1;
    if (rank < 0 || last < passages.first[p]) return;
    const ranks = this.spans.get(generation) ?? new Map();
    if (!this.spans.has(generation)) this.version += 1;
    this.spans.set(generation, ranks);
    const span = ranks.get(rank) ?? { from: Infinity, to: -Infinity };
    span.from = Math.min(span.from, start[passages.first[p]]);
    span.to = Math.max(span.to, end[last]);
    ranks.set(rank, span);
  }

  /** @param {number} r @param {number} rank @param {string} kind */
  #take(r, rank, kind) {
    const { table } = this;
    const generation = table.passages.generation[table.passage[r]];
    const name = table.text(table.name[r]);
    const t = table.end[r];
    const whom = rank < 0 ? table.peer[r] : rank;
    if (kind === "fault" && name === "kill")
      this.kills.push({ rank: whom, t, how: name, generation });
    else if (kind === "detect" && rank < 0 && name === "arrived")
      this.arrivals.push({ rank: whom, t, how: name, generation });
    else if (kind === "detect" && rank < 0 && whom >= 0 && !NOT_LOST.has(name))
      this.losses.push({ rank: whom, t, how: name, generation });
    else if (kind === "detect" && name === "lost")
      this.spared.push({ rank: table.peer[r], t, how: name, generation });
    else if (kind === "fault" || kind === "detect") return;
    else
      this.actsOf(generation, /** @type {ActKind} */ (kind)).set(rank, {
        start: table.start[r],
        end: t,
        name,
        nbytes: table.nbytes[r],
        iteration: table.passages.iteration[table.passage[r]],
      });
    if (kind === "rebuild") this.joined.add(generation);
    this.version += 1;
  }

  /** @param {number} generation @param {ActKind} kind */
  actsOf(generation, kind) {
    const key = `${generation} ${kind}`;
    const acts = this.acts.get(key) ?? new Map();
    this.acts.set(key, acts);
    return acts;
  }
}

/** @type {WeakMap<Table, GenerationRows>} */
const rowsOf = new WeakMap();

/** @param {Table} table */
export function generationRows(table) {
  const rows = rowsOf.get(table) ?? new GenerationRows(table);
  rowsOf.set(table, rows);
  return rows.update();
}

/** @param {Known["run"]} run @returns {RecoveryFact[]} */
export const recoveryFacts = (run) => run?.recoveries ?? [];

/** @type {WeakMap<Table, {key: string, generations: Generation[]}>} */
const generationsFound = new WeakMap();

/**
 * The generations of a run, in order; the first is that with which it began.
 * @param {Pick<Known, "run" | "table">} known
 * @returns {Generation[]}
 */
export function generationsOf({ run, table }) {
  const rows = generationRows(table);
  const facts = recoveryFacts(run);
  const ranks = run?.ranks ?? 0;
  const key = [rows.version, facts.length, ranks].join();
  const had = generationsFound.get(table);
  if (had?.key === key) return had.generations;
  const all = Array.from({ length: ranks }, (_, rank) => rank);
  /** @type {Generation[]} */
  const generations = [{ number: 0, began: -Infinity, members: all, fresh: [], fact: null }];
  const numbers = [...new Set([...facts.map((fact) => fact.generation), ...rows.spans.keys()])];
  for (const number of numbers.filter((n) => n > 0).sort((a, b) => a - b)) {
    const joined = rows.actsOf(number, "rebuild");
    const fact = facts.find((one) => one.generation === number) ?? null;
    const before = generations[generations.length - 1];
    const lost = lossesIn(rows, before.number).map((loss) => loss.rank);
    const spans = rows.spans.get(number) ?? new Map();
    const who = joined.size ? joined : spans; // torchrun's restarts have no row of their own
    const members = fact?.members ?? [...who.keys()].sort((a, b) => a - b);
    const starts = joined.size
      ? [...joined.values()].map((act) => act.start)
      : [...spans.values()].map(({ from }) => from);
    generations.push({
      number,
      began: Math.min(Infinity, ...starts),
      members,
      fresh: fact?.fresh ?? members.filter((rank) => lost.includes(rank)),
      fact,
    });
  }
  generationsFound.set(table, { key, generations });
  return generations;
}

/**
 * What the driver noticed in a generation, each rank once.
 * @param {GenerationRows} rows @param {number} generation
 */
export const lossesIn = ({ losses }, generation) =>
  losses.filter(
    (loss, i) =>
      loss.generation === generation &&
      losses.findIndex((one) => one.generation === generation && one.rank === loss.rank) === i,
  );

/**
 * The generation that a moment is in.
 * @param {Pick<Known, "run" | "table">} known @param {number} t
 * @returns {Generation}
 */
export function generationAt(known, t) {
  const all = generationsOf(known);
  return all.findLast(({ began }) => began <= t) ?? all[0];
}

/**
 * Whether a fresh process has taken a rank's place by t, in a generation up to `newest`.
 * @param {Pick<Known, "run" | "table">} known
 * @param {Loss} loss
 * @param {number} newest
 * @param {number} t
 */
function isBack(known, { rank, generation }, newest, t) {
  const next = generationsOf(known).find(
    ({ number, members }) => number > generation && members.includes(rank),
  );
  if (!next || next.number > newest) return false;
  const joins = generationRows(known.table).actsOf(next.number, "rebuild").get(rank);
  return (joins?.start ?? next.began) <= t;
}

/**
 * Ranks that are not in the group at a moment because they were lost, and since when and how: those
 * that ended in the generation that it is in, and those that none has replaced.
 * @param {Pick<Known, "run" | "table">} known
 * @param {number} t
 * @returns {Map<number, Loss>}
 */
export function lostAt({ run, table }, t) {
  const rows = generationRows(table);
  const lost = /** @type {Map<number, Loss>} */ (new Map());
  const seen = [...rows.losses, ...rows.spared];
  if (!seen.length && !recoveryFacts(run).length) return lost;
  const now = generationAt({ run, table }, t);
  const noticed = new Set(seen.map((loss) => `${loss.generation} ${loss.rank}`));
  const all = [
    // when a fault of ours says when, that is earlier than its being noticed
    ...seen,
    ...rows.kills.filter((kill) => noticed.has(`${kill.generation} ${kill.rank}`)),
  ].sort((a, b) => a.t - b.t);
  for (const loss of all) {
    if (loss.t > t || loss.generation > now.number) continue;
    const back = now.members.includes(loss.rank) && isBack({ run, table }, loss, now.number, t);
    const known = lost.get(loss.rank);
    if (!back && !known)
      lost.set(loss.rank, { ...loss, how: loss.how === "kill" ? "killed" : loss.how });
  }
  for (const { fact } of generationsOf({ run, table })) {
    if (!fact || fact.generation > now.number) continue;
    for (const [rank, how] of Object.entries(fact.lost))
      if (!now.members.includes(Number(rank)) && !lost.has(Number(rank)))
        lost.set(Number(rank), { rank: Number(rank), t: -Infinity, how, generation: 0 });
  }
  return lost;
}

/** @type {WeakMap<Table, {key: string, losses: Map<number, Loss>}>} */
const lostFound = new WeakMap();

/**
 * Since when a rank is in no group at a moment; NaN: it is in one, as far as rows tell.
 * @param {Table} table
 * @param {number} rank
 * @param {number} t
 * @param {number} [since]  when another rank's row said that it was lost; NaN: none did
 */
export function goneSince(table, rank, t, since = NaN) {
  const rows = generationRows(table);
  const key = `${rows.version} ${t}`;
  const had = lostFound.get(table);
  const losses = had?.key === key ? had.losses : lostAt({ run: null, table }, t);
  lostFound.set(table, { key, losses });
  const lost = losses.get(rank);
  if (lost) return lost.t;
  return since <= t && !joinsWithin(table, rank, since, t) ? since : NaN;
}

/**
 * Whether a rank joins a group after one moment, up to another.
 * @param {Table} table @param {number} rank @param {number} from @param {number} to
 */
export const joinsWithin = (table, rank, from, to) =>
  [...generationRows(table).acts].some(([key, acts]) => {
    const start = key.endsWith("rebuild") ? (acts.get(rank)?.start ?? NaN) : NaN;
    return start > from && start <= to;
  });

/** "ranks 0, 1 and 3" @param {number[]} ranks */
const ranksNamed = (ranks) =>
  ranks.length > 6
    ? `${ranks.length} ranks`
    : ranks.length === 1
      ? `rank ${ranks[0]}`
      : `ranks ${ranks.slice(0, -1).join(", ")} and ${ranks[ranks.length - 1]}`;

/**
 * What became of the ranks that a run has lost so far, in a sentence; "" where it lost none.
 * @param {Pick<Known, "run" | "table">} known
 * @param {boolean} over
 */
export function recoveryNote(known, over) {
  const rows = generationRows(known.table);
  const generations = generationsOf(known);
  const newest = generations[generations.length - 1];
  const pending = lossesIn(rows, newest.number).map(({ rank }) => rank);
  const lostSoFar = [
    ...new Set([
      ...rows.losses.map(({ rank }) => rank),
      ...generations.flatMap(({ fact }) => Object.keys(fact?.lost ?? {}).map(Number)),
    ]),
  ].sort((a, b) => a - b);
  if (!lostSoFar.length) return "";
  const who = ranksNamed(lostSoFar);
  const lost = `R${who.slice(1)} ${lostSoFar.length > 1 ? "were" : "was"} lost`;
  const named = /^\d/.test(who) ? `${who} were lost` : lost;
  if (pending.length) return over ? `${named}.` : `${named}; the others form another group.`;
  if (lostSoFar.every((rank) => newest.members.includes(rank))) return `${named} and replaced.`;
  const one = newest.members.length === 1;
  return `${named}; ${ranksNamed(newest.members)} ${over ? "went" : one ? "goes" : "go"} on.`;
}

/**
 * What a rank does of a recovery at a moment; null: nothing.
 * @param {Table} table
 * @param {number} rank
 * @param {number} t
 * @returns {{kind: ActKind, act: Act} | null}
 */
export function recoveringAt(table, rank, t) {
  const rows = generationRows(table);
  for (const [key, acts] of rows.acts) {
    const act = acts.get(rank);
    if (act && act.start <= t && t < act.end)
      return { kind: /** @type {ActKind} */ (key.split(" ")[1]), act };
  }
  return null;
}

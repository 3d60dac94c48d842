// @ts-check
/**
 * What the timeline knows of a run, kept up to date row by row: for each rank its lanes as lines of
 * classes (density.js), what it does at each moment, its outer rows (computing, collectives) and
 * its iterations. No browser, no drawing.
 *
 * Row numbers in here are absolute: those of the table plus what the table has let go.
 *
 * @typedef {import("../../engine/table.js").Table} Table
 * @typedef {import("./step_facts.js").StepFacts} StepFacts
 * @typedef {{iteration: number, start: number, end: number, queue: number, done: boolean,
 *   facts: StepFacts | null, generation?: number}} Step
 *   one iteration of one rank; `queue`: ns its thread waited for a core, NaN if not measured;
 *   `done`: it has ended
 * @typedef {{name: string, place: number, line: Line}} TalkLane
 * @typedef {{rank: number, compute: Line, talks: TalkLane[], talk: Line, all: Line, computed: RowList,
 *   calls: RowList, marks: RowList, rebuilds: RowList, steps: Step[], dirty: number}} RankLines
 * @typedef {{rank: number, peer: number, kind: string, name: string, value: number, group: string,
 *   nbytes: number, at: number, iteration: number}} Fault
 */
import { Line, SPAN_OF_KIND, isComputing, layOver } from "./density.js";
import { RowList } from "./row_list.js";
import { scriptStep } from "./script_steps.js";
import { stepFacts } from "./step_facts.js";

export class TimelineIndex {
  /** @param {Table} table @param {boolean} [script]  of a job that records no computing but updates */
  constructor(table, script = false) {
    this.table = table;
    this.script = script;
    this.next = 0; // the first row that is not in here, absolute
    this.forgotten = 0;
    /** @type {Map<number, RankLines>} */
    this.ranks = new Map();
    this.last = -1; // of them
    /** Ranks that have ended, and were not replaced. @type {Set<number>} */
    this.gone = new Set();
    this.bounds = /** @type {import("./uncertainty.js").Bounds} */ ({});
    /** After the first. @type {import("../../engine/generations.js").Generation[]} */
    this.generations = [];
    /** @type {Fault[]} */
    this.faults = [];
    this.changedFrom = Infinity; // since somebody set it back: from where on something is new
    /** @type {number[]} */
    this.classes = [];
    /** Of string numbers that mean something here. @type {Map<number, string>} */
    this.meaning = new Map();
  }

  /** Take in the rows that have come since. Returns whether there were any. */
  update() {
    const { table } = this;
    if (table.forgotten > this.forgotten) this.#forget();
    let row = Math.max(this.next - table.forgotten, 0);
    if (row >= table.rows) return false;
    if (this.classes.length !== table.kinds.length)
      this.classes = table.kinds.map((kind) => SPAN_OF_KIND[kind] ?? -1);
    for (let p = table.passage[row]; p < table.count; p++) {
      const end = table.passages.first[p] + table.passages.count[p];
      this.#passage(p, row, end);
      row = end;
    }
    this.next = table.rows + table.forgotten;
    for (const rank of this.ranks.values()) {
      if (rank.dirty === Infinity) continue;
      if (rank.talks.length > 1)
        layOver(
          rank.talk,
          rank.talks.map((lane) => lane.line),
          rank.dirty,
        );
      layOver(rank.all, [rank.compute, rank.talk], rank.dirty);
      this.changedFrom = Math.min(this.changedFrom, rank.dirty);
      rank.dirty = Infinity;
    }
    return true;
  }

  /** @param {number} number @returns {RankLines} */
  rank(number) {
    let rank = this.ranks.get(number);
    if (!rank) {
      rank = {
        rank: number,
        compute: new Line(),
        talks: [],
        talk: new Line(),
        all: new Line(),
        computed: new RowList(),
        calls: new RowList(),
        marks: new RowList(),
        rebuilds: new RowList(),
        steps: [],
        dirty: Infinity,
      };
      this.ranks.set(number, rank);
      if (number < this.last) this.ranks = new Map([...this.ranks].sort(([a], [b]) => a - b));
      this.last = Math.max(this.last, number);
    }
    return rank;
  }

  /** @param {number} p @param {number} first @param {number} end */
  #passage(p, first, end) {
    const { table, classes } = this;
    const { code, passages } = table;
    const number = passages.rank[p];
    const lane = table.text(passages.lane[p]);
    const rank = number < 0 ? null : this.rank(number);
    const iteration = passages.iteration[p];
    const shift = table.forgotten;
    let line = /** @type {Line | null} */ (null);
    for (let r = first; r < end; r++) {
      const kind = table.kind[r];
      const from = table.start[r];
      const to = table.end[r];
      const span = classes[kind];
      if (kind === code.fault || kind === code.detect) this.#fault(r, number, iteration);
      if (!rank) continue;
      if (span >= 0 && to > from) {
        const computes = isComputing(span);
        line = computes ? rank.compute : this.#talk(rank, lane);
        line.cover(from, to, span);
        if (from < rank.dirty) rank.dirty = from;
        if (computes) rank.computed.push(r + shift);
        else if (kind === code.collective || kind === code.push || kind === code.pull)
          rank.calls.push(r + shift);
      }
      if (iteration >= 0 && this.script)
        scriptStep(rank.steps, iteration, passages.generation[p], from, to);
      else if (iteration >= 0 && (span < 0 || isComputing(span)))
        this.#step(rank, iteration, r, kind === code.metric ? this.#name(table.name[r]) : "");
    }
  }

  /**
   * The line of a lane that communicates; the only one is the rank's communication itself.
   * @param {RankLines} rank
   * @param {string} lane
   */
  #talk(rank, lane) {
    for (const talk of rank.talks) if (talk.name === lane) return talk.line;
    // comes when training is over: it needs no place of its own
    const after = lane.endsWith(":metrics");
    const place = after ? 0 : rank.talks.filter((talk) => !talk.name.endsWith(":metrics")).length;
    const line = rank.talks.length ? new Line() : rank.talk;
    if (rank.talks.length === 1) {
      // no longer the only one
      rank.talks[0].line = rank.talk;
      rank.talk = new Line();
      rank.dirty = -Infinity;
    }
    rank.talks.push({ name: lane, place, line });
    return line;
  }

  /** @param {number} number */
  #name(number) {
    let name = this.meaning.get(number);
    if (name === undefined) this.meaning.set(number, (name = this.table.text(number)));
    return name;
  }

  /**
   * @param {RankLines} rank
   * @param {number} iteration
   * @param {number} row
   * @param {string} metric
   */
  #step(rank, iteration, row, metric) {
    const { table } = this;
    const { steps } = rank;
    const from = table.start[row];
    const to = table.end[row];
    let step = steps[steps.length - 1];
    if (!step || step.iteration !== iteration) {
      if (step) step.done = true;
      step = { iteration, start: from, end: to, queue: NaN, done: false, facts: null };
      steps.push(step);
    }
    if (from < step.start) step.start = from;
    if (to > step.end) step.end = to;
    if (metric === "bucket full") rank.marks.push(row + table.forgotten);
    if (metric === "buckets rebuilt") rank.rebuilds.push(row + table.forgotten);
    if (metric !== "runqueue") return;
    step.queue = table.value[row]; // the last row of an iteration
    step.done = true;
  }

  /** @param {number} row @param {number} rank @param {number} iteration */
  #fault(row, rank, iteration) {
    const { table } = this;
    this.faults.push({
      rank,
      peer: table.peer[row],
      kind: table.kindName(table.kind[row]),
      name: table.text(table.name[row]),
      value: table.value[row],
      group: table.text(table.passages.group[table.passage[row]]),
      nbytes: table.nbytes[row],
      at: table.start[row],
      iteration,
    });
  }

  /** The table has let its oldest rows go: so do we. */
  #forget() {
    const { table } = this;
    const { from } = table;
    this.forgotten = table.forgotten;
    for (const rank of this.ranks.values()) {
      for (const line of new Set([
        rank.compute,
        rank.talk,
        rank.all,
        ...rank.talks.map((lane) => lane.line),
      ]))
        line.drop(from);
      for (const list of [rank.computed, rank.calls, rank.marks, rank.rebuilds])
        list.drop(table.forgotten);
      rank.steps = rank.steps.filter((step) => step.end >= from);
    }
    this.faults = this.faults.filter((fault) => fault.at >= from);
    this.changedFrom = -Infinity;
  }

  /**
   * The outer rows of a list that touch [from, to), as numbers of the table. They do not overlap
   * each other within a lane.
   * @param {RowList} list
   * @param {number} from
   * @param {number} to
   * @param {number} [most] then null: too many to draw one by one
   * @returns {number[] | null}
   */
  within(list, from, to, most = Infinity) {
    const { table } = this;
    const shift = table.forgotten;
    const rows = [];
    let low = 0;
    let high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (table.end[list.rows[middle] - shift] > from) high = middle;
      else low = middle + 1;
    }
    for (let i = low, beyond = 0; i < list.length && beyond < 8; i++) {
      // rows of other lanes may lie between
      const row = list.rows[i] - shift;
      if (table.start[row] >= to) beyond++;
      else if (table.end[row] > from || table.start[row] === table.end[row]) rows.push(row);
      if (rows.length > most) return null;
    }
    return rows;
  }

  /**
   * Which of a rank's iterations is under way at a moment; the one before, between two; -1 before
   * the first.
   * @param {RankLines} rank
   * @param {number} t
   */
  stepAt(rank, t) {
    const { steps } = rank;
    let low = 0;
    let high = steps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle].start <= t) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  /**
   * A rank's iteration of this number; of several (after a restart) the one nearest to `t`.
   * @param {RankLines} rank
   * @param {number} iteration
   * @param {number} t
   * @returns {Step | null}
   */
  stepOf(rank, iteration, t) {
    const { steps } = rank;
    const near = this.stepAt(rank, t);
    for (const i of [near, near + 1, near - 1])
      if (steps[i]?.iteration === iteration) return steps[i];
    let low = 0;
    let high = steps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle].iteration < iteration) low = middle + 1;
      else high = middle;
    }
    return steps[low]?.iteration === iteration ? steps[low] : null;
  }

  /**
   * The iterations that are under way at a moment, from the first rank's start to the last one's
   * end. Ranks in step are in the same; without a barrier they may be in different ones:
   * `iteration` is that of the slowest.
   * @param {number} t @param {Set<number>} [gone]  ranks that have ended: no rank waits for them
   * @returns {{iteration: number, from: number, to: number, done: boolean} | null}
   */
  around(t, gone = this.gone) {
    let iteration = Infinity;
    for (const rank of this.ranks.values()) {
      if (gone?.has(rank.rank) && rank.all.end < t) continue;
      const step = rank.steps[Math.max(0, this.stepAt(rank, t))];
      if (step && step.iteration < iteration) iteration = step.iteration;
    }
    return iteration === Infinity ? null : this.extent(iteration, t, gone);
  }

  /**
   * An iteration of all ranks.
   * @param {number} iteration
   * @param {number} t near which
   * @param {Set<number>} [gone]
   * @returns {{iteration: number, from: number, to: number, done: boolean} | null}
   */
  extent(iteration, t, gone = this.gone) {
    let from = Infinity;
    let to = -Infinity;
    let longest = 0;
    let done = true;
    for (const rank of this.ranks.values()) {
      if (!rank.steps.length) continue;
      const step = this.stepOf(rank, iteration, t);
      if (!step) {
        done &&= gone.has(rank.rank);
        continue;
      }
      from = Math.min(from, step.start);
      // what it does now may be communication
      const end = step.done ? step.end : Math.max(step.end, rank.all.end);
      to = Math.max(to, end);
      longest = Math.max(longest, end - step.start);
      done &&= step.done || gone.has(rank.rank);
    }
    if (to < from) return null;
    if (to - from > 4 * longest) {
      // no barrier: the ranks are far apart, so those that are at it now
      to = -Infinity;
      for (const rank of this.ranks.values()) {
        const step = rank.steps[Math.max(0, this.stepAt(rank, t))];
        if (step) to = Math.max(to, step.end);
      }
      from = to - 2 * longest;
    }
    return { iteration, from, to, done };
  }

  /**
   * The newest iteration that every rank has ended, -1 for none.
   * @param {Set<number>} [gone]  ranks that are no more
   */
  newestDone(gone = this.gone) {
    let newest = Infinity;
    for (const { rank, steps } of this.ranks.values()) {
      if (!steps.length || gone?.has(rank)) continue;
      const last = steps[steps.length - 1];
      newest = Math.min(newest, last.done ? last.iteration : last.iteration - 1);
    }
    return newest === Infinity ? -1 : newest;
  }

  /**
   * What an iteration of every rank was made of, by rank; empty if one of them has not ended it.
   * @param {number} iteration
   * @param {number} t near which
   * @returns {StepFacts[]}
   */
  factsOf(iteration, t) {
    const facts = [];
    for (const rank of this.ranks.values()) {
      if (!rank.steps.length) continue;
      const step = this.stepOf(rank, iteration, t);
      if (!step?.done && this.gone.has(rank.rank)) continue;
      if (!step?.done) return [];
      facts.push(stepFacts(this, rank, step));
    }
    return facts;
  }
}

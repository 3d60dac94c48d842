// @ts-check
/**
 * What a page knows of a pipeline, kept up to date row by row: every action with its times, every
 * activation and gradient on its way, what each stage holds. No browser, no drawing, no schedule.
 * Times are ns since the run's origin.
 *
 * An *action* is one forward (F), whole backward (B), input gradient (I) or weight gradient (W) of
 * one microbatch on one stage. A *hop* is what goes from one stage to the next: an activation on, a
 * gradient back. It is known from its two sides.
 *
 * @typedef {import("../../engine/table.js").Table} Table
 * @typedef {"F" | "B" | "I" | "W"} ActionKind
 * @typedef {{rank: number, stage: number, kind: ActionKind, microbatch: number, iteration: number,
 *   generation: number, start: number, end: number, version: number, row: number}} Task
 * @typedef {{from: number, to: number, what: "activation" | "gradient", stage: number,
 *   microbatch: number, iteration: number, start: number, left: number, arrive: number,
 *   nbytes: number, op: number}} Hop  stage: where it arrives; start to left: the sender's; arrive:
 *   its last byte is there
 * @typedef {{rank: number, stage: number, start: number, end: number, version: number,
 *   iteration: number}} Update
 * @typedef {{rank: number, stage: number, op: number, start: number, end: number, nbytes: number}}
 *   Join  an all-reduce over the replicas, on one of its ranks
 * @typedef {{iteration: number, generation: number, givenUp: boolean, tasks: Task[],
 *   of: Map<string, Task>, hops: Map<string, Hop>, updates: Update[], joins: Join[],
 *   forwards: number, backwards: number, from: number, to: number, ranks: Set<number>}} Iteration
 *   an attempt at an iteration; generation: of the group that made it; givenUp: a later group began
 *   the iteration again; ranks: whose actions are in here
 * @typedef {{t: number[], value: number[]}} Steps  a quantity that changes in steps
 */

const OVER_REPLICAS = "replicas "; // how their groups' names begin
const WHAT = { activation: "a", gradient: "g" };

/**
 * @param {ActionKind} kind
 * @param {number} stage
 * @param {number} microbatch
 * @param {number} rank
 */
export const taskKey = (kind, stage, microbatch, rank) => `${stage}${kind}${microbatch}@${rank}`;
/**
 * @param {"activation" | "gradient"} what
 * @param {number} stage  where it arrives
 * @param {number} microbatch
 * @param {number} rank  where it arrives
 */
export const hopKey = (what, stage, microbatch, rank) =>
  `${WHAT[what]}${stage}/${microbatch}@${rank}`;

export class PipelineIndex {
  /** @param {Table} table */
  constructor(table) {
    this.table = table;
    this.life = table.life;
    this.next = 0;
    this.version = 0; // grows with every change
    this.present = false; // there are stages in this run
    // by number, the newest attempt at each; and the attempts that were given up
    this.iterations = /** @type {Map<number, Iteration>} */ (new Map());
    this.givenUp = /** @type {Iteration[]} */ ([]);
    this.newest = -1; // iteration
    this.stages = 0;
    this.microbatches = 0;
    this.ranks = 0;
    // microbatches in flight, by rank and stage
    this.held = /** @type {Map<string, Steps>} */ (new Map());
    this.bytes = /** @type {Map<number, Steps>} */ (new Map()); // held for backward, by rank
    this.frozen = /** @type {{rank: number, from: number, to: number}[]} */ ([]);
    this.faults = 0; // grows with every one
  }

  /** Take in the rows that have come since. */
  update() {
    const { table } = this;
    const { passages, code, kind } = table;
    if (table.life !== this.life)
      // row numbers have changed
      Object.assign(this, new PipelineIndex(table), { version: this.version + 1 });
    if (this.next >= table.rows) return this;
    const computes = new Map([
      [code.forward, "F"],
      [code.backward, "B"],
      [code.weight_grad, "W"],
    ]);
    const moves = new Set([code.send, code.recv]);
    for (let p = table.passage[this.next]; p < table.count; p++) {
      const first = Math.max(this.next, passages.first[p]);
      const end = passages.first[p] + passages.count[p];
      const stage = passages.stage[p];
      for (let row = first; row < end; row++) {
        const k = kind[row];
        const action = computes.get(k);
        if (k === code.fault) this.#fault(p, row);
        else if (stage < 0) continue;
        else if (action) this.#task(p, row, /** @type {ActionKind} */ (action), stage);
        else if (moves.has(k)) this.#hop(p, row, stage, k === code.send);
        else if (k === code.optimizer) this.#updated(p, row, stage);
        else if (k === code.metric) this.#measured(p, row, stage);
        else if (k === code.collective) this.#joined(p, row, stage);
      }
    }
    this.next = table.rows;
    this.version += 1;
    return this;
  }

  /**
   * The attempt at an iteration in which a passage's rows were made.
   * @param {number} p
   * @returns {Iteration}
   */
  #iteration(p) {
    const { iteration: numbers, generation: generations } = this.table.passages;
    const [number, generation] = [numbers[p], generations[p]];
    const newest = this.iterations.get(number);
    const own = this.attempt(number, generation);
    if (own) return own;
    const iteration = {
      iteration: number,
      generation,
      givenUp: !!newest && newest.generation > generation,
      tasks: [],
      of: new Map(),
      hops: new Map(),
      updates: [],
      joins: [],
      forwards: 0,
      backwards: 0,
      from: Infinity,
      to: -Infinity,
      ranks: new Set(),
    };
    if (iteration.givenUp) this.givenUp.push(iteration);
    else {
      if (newest) {
        newest.givenUp = true;
        this.givenUp.push(newest);
      }
      this.iterations.set(number, iteration);
      if (number < this.newest)
        this.iterations = new Map([...this.iterations].sort(([a], [b]) => a - b));
      this.newest = Math.max(this.newest, number);
    }
    return iteration;
  }

  /**
   * The attempt at an iteration that the group of this generation made.
   * @param {number} number
   * @param {number} generation
   */
  attempt(number, generation) {
    const newest = this.iterations.get(number);
    if (!newest || newest.generation === generation) return newest;
    return this.givenUp.find((one) => one.iteration === number && one.generation === generation);
  }

  /** @param {number} p @param {number} row @param {ActionKind} kind @param {number} stage */
  #task(p, row, kind, stage) {
    const { table } = this;
    const { passages } = table;
    const microbatch = passages.microbatch[p];
    const number = passages.iteration[p];
    const rank = passages.rank[p];
    if (microbatch < 0 || number < 0) return;
    const action = kind === "B" && table.text(table.name[row]) === "input" ? "I" : kind;
    const iteration = this.#iteration(p);
    const task = {
      rank,
      stage,
      kind: action,
      microbatch,
      iteration: number,
      generation: passages.generation[p],
      start: table.start[row],
      end: table.end[row],
      version: passages.version[p],
      row,
    };
    this.present = true;
    iteration.tasks.push(task);
    iteration.of.set(taskKey(action, stage, microbatch, rank), task);
    iteration.from = Math.min(iteration.from, task.start);
    iteration.to = Math.max(iteration.to, task.end);
    iteration.ranks.add(rank);
    if (action === "F") iteration.forwards += 1;
    if (action === "B" || action === "W") iteration.backwards += 1;
    this.stages = Math.max(this.stages, stage + 1);
    this.microbatches = Math.max(this.microbatches, microbatch + 1);
    this.ranks = Math.max(this.ranks, rank + 1);
  }

  /** @param {number} p @param {number} row @param {number} stage @param {boolean} sent */
  #hop(p, row, stage, sent) {
    const { table } = this;
    const { passages } = table;
    const what = table.text(table.name[row]);
    const number = passages.iteration[p];
    const microbatch = passages.microbatch[p];
    const rank = passages.rank[p];
    const peer = table.peer[row];
    if ((what !== "activation" && what !== "gradient") || number < 0 || microbatch < 0 || peer < 0)
      return;
    const there = sent ? stage + (what === "activation" ? 1 : -1) : stage;
    const to = sent ? peer : rank;
    const { hops } = this.#iteration(p);
    const key = hopKey(what, there, microbatch, to);
    let hop = hops.get(key);
    if (!hop)
      hops.set(
        key,
        (hop = {
          from: sent ? rank : peer,
          to,
          what,
          stage: there,
          microbatch,
          iteration: number,
          start: NaN,
          left: NaN,
          arrive: NaN,
          nbytes: 0,
          op: passages.op[p],
        }),
      );
    if (sent) {
      // a large one goes in pieces
      hop.start = Number.isNaN(hop.start)
        ? table.start[row]
        : Math.min(hop.start, table.start[row]);
      hop.left = Number.isNaN(hop.left) ? table.end[row] : Math.max(hop.left, table.end[row]);
      hop.nbytes += Math.max(0, table.nbytes[row]);
    } else
      hop.arrive = Number.isNaN(hop.arrive) ? table.end[row] : Math.max(hop.arrive, table.end[row]);
  }

  /** @param {number} p @param {number} row @param {number} stage */
  #updated(p, row, stage) {
    const { table } = this;
    const { passages } = table;
    const iteration = passages.iteration[p];
    if (iteration >= 0)
      this.#iteration(p).updates.push({
        rank: passages.rank[p],
        stage,
        start: table.start[row],
        end: table.end[row],
        version: passages.version[p],
        iteration,
      });
  }

  /** @param {number} p @param {number} row @param {number} stage */
  #joined(p, row, stage) {
    const { table } = this;
    const { passages } = table;
    const iteration = passages.iteration[p];
    if (iteration < 0 || !table.text(passages.group[p]).startsWith(OVER_REPLICAS)) return;
    this.#iteration(p).joins.push({
      rank: passages.rank[p],
      stage,
      op: passages.op[p],
      start: table.start[row],
      end: table.end[row],
      nbytes: Math.max(0, table.nbytes[row]),
    });
  }

  /** @param {number} p @param {number} row @param {number} stage */
  #measured(p, row, stage) {
    const { table } = this;
    const name = table.text(table.name[row]);
    const rank = table.passages.rank[p];
    const into = (/** @type {Map<any, Steps>} */ all, /** @type {any} */ key) => {
      let steps = all.get(key);
      if (!steps) all.set(key, (steps = { t: [], value: [] }));
      steps.t.push(table.end[row]);
      steps.value.push(table.value[row]);
    };
    if (name === "in flight") into(this.held, `${rank} ${stage}`);
    else if (name === "activations") into(this.bytes, rank);
  }

  /**
   * A process that stood still: of the experiment's own making it says for how long, of the user's
   * it goes on with a thaw.
   * @param {number} p
   * @param {number} row
   */
  #fault(p, row) {
    const { table } = this;
    const by = table.passages.rank[p];
    const rank = by < 0 ? table.peer[row] : by;
    const name = table.text(table.name[row]);
    const t = table.end[row];
    const lasts = Math.round(table.value[row] * 1e9);
    if (name === "freeze")
      this.frozen.push({
        rank,
        from: t,
        to: Number.isFinite(lasts) ? t + lasts : Infinity,
      });
    if (name === "thaw")
      for (const span of this.frozen) if (span.rank === rank) span.to = Math.min(span.to, t);
    this.faults += 1;
  }
}

const pipelines = /** @type {WeakMap<Table, PipelineIndex>} */ (new WeakMap());

/**
 * What the table says of a pipeline; `present` is false where there is none.
 * @param {Table} table
 * @returns {PipelineIndex}
 */
export function indexOf(table) {
  let index = pipelines.get(table);
  if (!index) pipelines.set(table, (index = new PipelineIndex(table)));
  return index.update();
}

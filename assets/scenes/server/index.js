// @ts-check
/**
 * What a page knows of a parameter server, kept up to date row by row: every push with what became
 * of it, every pull, every worker's turns. No browser, no drawing. Times are ns since the run's
 * origin; NaN is "not known yet".
 *
 * A *turn* is one iteration of one worker: granted, then pulled, then computing, then pushing; then
 * it asks for the next. A push is known from three sides: its sender's push row, its arrival at the
 * server, and what the server did with it.
 *
 * @typedef {import("../../engine/table.js").Table} Table
 * @typedef {{worker: number, server: number, iteration: number, generation: number, op: number,
 *   start: number, left: number, arrive: number, taken: number, begin: number, end: number, on: number,
 *   version: number, stale: number, dropped: number, nbytes: number}} Push
 *   taken: the server took it up; begin to end: the update; on: version that its gradient was
 *   computed on; version: after the update;
 *   dropped: samples left out, 0 if applied
 * @typedef {{worker: number, server: number, iteration: number, generation: number, op: number,
 *   start: number, depart: number, end: number, version: number, nbytes: number}} Pull
 *   start: granted; depart: the first byte left the server; end: in place
 * @typedef {{pushes: Push[], pulls: Pull[], iterations: number[], bytes: number, worker: number,
 *   server: number}} Pair  pushes by iteration; iterations: those that have one, ascending
 * @typedef {{iteration: number, granted: number, pulled: number, pushing: number, pushed: number}}
 *   Turn
 * @typedef {{rank: number, turns: (Turn | undefined)[], granted: Turn[], sums: Float64Array[],
 *   slack: {t: number, server: number, limit: number}[], lost: number}} Worker
 *   granted: turns in the order of their grants; sums: of each of them, time by part before it;
 *   slack: up to which iteration a server had granted it beyond the bound
 * @typedef {{low: number | null, iterations: number, teamOf: (rank: number) => number}} Bound
 *   iterations: of each worker, -1 not known
 * @typedef {{rank: number, done: Push[], keys: {generation: number, t: number, count: number}[],
 *   lost: number, teams: Map<number, {read: number, done: Push[]}>}} Server
 *   done: pushes applied or dropped, in that order; keys: that it has in each generation, and since
 *   when
 */
import { goneSince, joinsWithin } from "../../engine/generations.js";
import { addKeys, newPush } from "./lookups.js";

const SERVES = ["push", "apply", "clock"]; // a pull may be of examples
const ACTOR_PULL = "parameters"; // as actor.py calls it

export class ServerIndex {
  /** @param {Table} table */
  constructor(table) {
    this.table = table;
    this.life = table.life;
    this.next = 0;
    this.version = 0; // grows with every change
    this.present = false; // it is a parameter server's run
    this.gap = Infinity; // the least between two grants of a worker, in iterations
    this.servers = /** @type {Map<number, Server>} */ (new Map());
    this.workers = /** @type {Map<number, Worker>} */ (new Map());
    this.pairs = /** @type {Map<number, Pair>} */ (new Map());
    // by sender, receiver and generation, then by op
    this.messages = /** @type {Map<string, {left: number[], there: number[]}>} */ (new Map());
  }

  /** Iterations from a worker's push to its next: 1 as long as nobody has begun a second. */
  get stride() {
    return Number.isFinite(this.gap) ? this.gap : 1;
  }

  /** Take in the rows that have come since. */
  update() {
    const { table } = this;
    const { code, kind, passages } = table;
    if (table.life !== this.life)
      // row numbers have changed
      Object.assign(this, new ServerIndex(table), { version: this.version + 1 });
    if (this.next >= table.rows) return this;
    const serves = new Set(SERVES.map((name) => code[name]));
    const from = this.present ? this.next : 0;
    if (!this.present) {
      let row = this.next;
      while (row < table.rows && !serves.has(kind[row])) row++;
      this.next = row;
      if (row >= table.rows) return this;
      this.present = true;
    }
    for (let p = table.passage[from]; p < table.count; p++) {
      const first = Math.max(from, passages.first[p]);
      const end = passages.first[p] + passages.count[p];
      for (let row = first; row < end; row++) this.#row(p, row);
    }
    this.next = table.rows;
    this.version += 1;
    return this;
  }

  /** @param {number} p @param {number} row */
  #row(p, row) {
    const { table } = this;
    const { code, kind, passages } = table;
    const k = kind[row];
    const rank = passages.rank[p];
    const peer = table.peer[row];
    const iteration = passages.iteration[p];
    if (k === code.apply) this.#applied(p, row, rank, peer, iteration);
    else if (k === code.push) this.#pushed(p, row, rank, peer, iteration);
    else if (k === code.pull) {
      // an actor's pull has a name: it is no worker, and has no iterations of its own
      if (table.text(table.name[row]) !== ACTOR_PULL) this.#pulled(p, row, rank, peer, iteration);
    } else if (k === code.clock) this.#granted(rank, iteration, table.end[row]);
    else if (k === code.send || k === code.recv) this.#message(p, row, rank, peer, k === code.send);
    else if (k === code.metric && rank >= 0) this.#measured(p, row, rank, peer, iteration);
    else if (k === code.detect && peer >= 0 && table.text(table.name[row]) === "lost")
      this.#lost(rank, peer, table.end[row]);
  }

  /** @param {number} rank @returns {Worker} */
  worker(rank) {
    let worker = this.workers.get(rank);
    if (!worker) {
      this.workers.set(
        rank,
        (worker = { rank, turns: [], granted: [], sums: [], slack: [], lost: NaN }),
      );
      this.workers = new Map([...this.workers].sort(([a], [b]) => a - b));
    }
    return worker;
  }

  /** @param {number} rank @returns {Server} */
  server(rank) {
    let server = this.servers.get(rank);
    if (!server) {
      this.servers.set(rank, (server = { rank, done: [], keys: [], lost: NaN, teams: new Map() }));
      this.servers = new Map([...this.servers].sort(([a], [b]) => a - b));
    }
    return server;
  }

  /** @param {number} worker @param {number} server @returns {Pair} */
  pair(worker, server) {
    const key = worker * 65_536 + server;
    let pair = this.pairs.get(key);
    if (!pair) {
      this.pairs.set(
        key,
        (pair = { worker, server, pushes: [], pulls: [], iterations: [], bytes: 0 }),
      );
      this.worker(worker);
      this.server(server);
    }
    return pair;
  }

  /**
   * A push; one of a later generation is another, as its iteration is done again.
   * @param {number} worker
   * @param {number} server
   * @param {number} iteration
   * @param {number} p  the passage of a row that tells of it
   * @returns {Push}
   */
  #push(worker, server, iteration, p) {
    const pair = this.pair(worker, server);
    const { pushes } = pair;
    const generation = this.table.passages.generation[p];
    if (pushes[iteration]?.generation >= generation) return pushes[iteration];
    if (!pushes[iteration]) {
      const { iterations } = pair;
      iterations.push(iteration);
      if (iterations[iterations.length - 2] > iteration) iterations.sort((a, b) => a - b);
    }
    return (pushes[iteration] = newPush(worker, server, iteration, generation));
  }

  /** @param {number} rank @param {number} iteration @returns {Turn} */
  #turn(rank, iteration) {
    const worker = this.worker(rank);
    let turn = worker.turns[iteration];
    if (!turn) {
      worker.turns[iteration] = turn = {
        iteration,
        granted: NaN,
        pulled: NaN,
        pushing: NaN,
        pushed: NaN,
      };
      worker.granted.push(turn);
      if (
        worker.granted.length > 1 &&
        worker.granted[worker.granted.length - 2].iteration > iteration
      )
        worker.granted.sort((a, b) => a.iteration - b.iteration);
    }
    return turn;
  }

  /**
   * A worker may start an iteration; one that it does again begins anew.
   * @param {number} rank @param {number} iteration @param {number} t
   */
  #granted(rank, iteration, t) {
    const turn = this.#turn(rank, iteration);
    const { granted } = this.worker(rank);
    const [before, last] = granted.slice(-2);
    if (last) this.gap = Math.min(this.gap, last.iteration - before.iteration);
    if (turn.granted < t) Object.assign(turn, { pulled: NaN, pushing: NaN, pushed: NaN });
    turn.granted = t;
  }

  /**
   * @param {number} p
   * @param {number} row
   * @param {number} rank
   * @param {number} peer
   * @param {number} iteration
   */
  #pushed(p, row, rank, peer, iteration) {
    const { table } = this;
    const push = this.#push(rank, peer, iteration, p);
    const op = table.passages.op[p];
    const turn = this.#turn(rank, iteration);
    const pair = this.pair(rank, peer);
    Object.assign(push, {
      start: table.start[row],
      left: table.end[row],
      on: table.passages.version[p],
      nbytes: Math.max(0, table.nbytes[row]),
    });
    if (op >= 0) push.op = op;
    else if (this.stride > 1) push.op = iteration / this.stride;
    push.arrive = Math.max(push.left, this.#between(rank, peer, p).there[push.op] ?? -Infinity);
    pair.bytes = Math.max(pair.bytes, push.nbytes);
    turn.pushing = Number.isNaN(turn.pushing) ? push.start : Math.min(turn.pushing, push.start);
    turn.pushed = Number.isNaN(turn.pushed) ? push.left : Math.max(turn.pushed, push.left);
  }

  /**
   * @param {number} p
   * @param {number} row
   * @param {number} rank
   * @param {number} peer
   * @param {number} iteration
   */
  #pulled(p, row, rank, peer, iteration) {
    const { table } = this;
    const pair = this.pair(rank, peer);
    const turn = this.#turn(rank, iteration);
    const op = table.passages.op[p];
    const start = table.start[row];
    const end = table.end[row];
    const number = op >= 0 ? op : iteration;
    const left = this.#between(peer, rank, p).left[number];
    pair.pulls.push({
      worker: rank,
      server: peer,
      iteration,
      generation: table.passages.generation[p],
      op: number,
      start,
      depart: left < end ? left : start,
      end,
      version: table.passages.version[p],
      nbytes: Math.max(0, table.nbytes[row]),
    });
    turn.pulled = Number.isNaN(turn.pulled) ? end : Math.max(turn.pulled, end);
  }

  /** @param {number} from @param {number} to @param {number} p  the passage that tells of it */
  #between(from, to, p) {
    const key = `${from} ${to} ${this.table.passages.generation[p]}`;
    let messages = this.messages.get(key);
    if (!messages) this.messages.set(key, (messages = { left: [], there: [] }));
    return messages;
  }

  /**
   * A message's first and last byte: from them it is known when a push arrived and when a pull
   * left.
   * @param {number} p
   * @param {number} row
   * @param {number} rank
   * @param {number} peer
   * @param {boolean} sent
   */
  #message(p, row, rank, peer, sent) {
    const { table } = this;
    const { passages } = table;
    const op = passages.op[p];
    if (
      peer < 0 ||
      op < 0 ||
      table.text(passages.collective[p]) !== "p2p" ||
      table.text(passages.group[p]) !== "default"
    )
      return;
    if (sent) {
      const { left } = this.#between(rank, peer, p);
      const pull = this.pairs.get(peer * 65_536 + rank)?.pulls.findLast((q) => q.op === op);
      const start = (left[op] = Math.min(left[op] ?? Infinity, table.start[row]));
      if (pull && pull.generation === passages.generation[p] && start < pull.end)
        pull.depart = start;
    } else {
      const { there } = this.#between(peer, rank, p);
      const pushes = this.pairs.get(peer * 65_536 + rank)?.pushes ?? [];
      // a generation begins with op 0, whatever its first iteration is
      const generation = passages.generation[p];
      const apart = generation || this.stride > 1; // ops count pushes, not iterations
      const push = apart
        ? pushes.findLast((one) => one?.op === op && one.generation === generation)
        : pushes[op];
      const end = (there[op] = Math.max(there[op] ?? -Infinity, table.end[row]));
      if (push && push.generation === generation && push.op === op && push.left < end)
        push.arrive = end;
    }
  }

  /**
   * @param {number} p
   * @param {number} row
   * @param {number} rank
   * @param {number} peer
   * @param {number} iteration
   */
  #applied(p, row, rank, peer, iteration) {
    const { table } = this;
    const { done } = this.server(rank);
    const push = this.#push(peer, rank, iteration, p);
    const last = done[done.length - 1];
    const start = table.start[row];
    const end = table.end[row];
    // one update of several pushes
    const together = last && last.end === end && last.version === table.passages.version[p];
    Object.assign(push, {
      begin: together ? Math.min(last.begin, start) : start,
      end,
      version: table.passages.version[p],
      stale: Number.isFinite(table.value[row]) ? table.value[row] : 0,
    });
    done.push(push);
  }

  /**
   * @param {number} p
   * @param {number} row
   * @param {number} rank
   * @param {number} peer
   * @param {number} iteration
   */
  #measured(p, row, rank, peer, iteration) {
    const { table } = this;
    const name = table.text(table.name[row]);
    const t = table.end[row];
    if (name === "elements")
      addKeys(this.server(rank), table.passages.generation[p], t, table.value[row]);
    if (peer < 0) return;
    if (name === "queue") this.#push(peer, rank, iteration, p).taken = t;
    else if (name === "slack")
      this.worker(peer).slack.push({ t, server: rank, limit: iteration + table.value[row] });
    else if (name === "dropped") {
      const push = this.#push(peer, rank, iteration, p);
      const { done } = this.server(rank);
      const version = table.passages.version[table.passage[row]];
      Object.assign(push, {
        begin: t,
        end: t,
        version: version >= 0 ? version : (done[done.length - 1]?.version ?? 0),
        dropped: Math.max(1, table.value[row]),
      });
      push.stale = push.on >= 0 ? push.version - push.on : 0;
      done.push(push);
    }
  }

  /** @param {number} rank @param {number} peer @param {number} t */
  #lost(rank, peer, t) {
    const gone = this.servers.has(peer) ? this.server(peer) : this.worker(peer);
    if (!(gone.lost <= t) || joinsWithin(this.table, peer, gone.lost, t)) gone.lost = t;
  }

  /**
   * Since when a worker or server is gone at t; NaN: it is there.
   * @param {number} rank @param {number} t
   */
  goneAt(rank, t) {
    const known = this.workers.get(rank) ?? this.servers.get(rank);
    return goneSince(this.table, rank, t, known?.lost);
  }
}

const indexes = /** @type {WeakMap<Table, ServerIndex>} */ (new WeakMap());

/**
 * What the table says of a parameter server; `present` is false where there is none.
 * @param {Table} table
 * @returns {ServerIndex}
 */
export function indexOf(table) {
  let index = indexes.get(table);
  if (!index) indexes.set(table, (index = new ServerIndex(table)));
  return index.update();
}

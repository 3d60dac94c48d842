// @ts-check
/**
 * What happened, in words: faults, what was noticed, what was done about it, milestones. The lines
 * are a pure function of the table's rows and the newest header; the reader of the rows keeps its
 * place in the table.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {import("./player.js").Known} Known
 * @typedef {import("./feed_lines.js").Line} Line
 */
import { bytes, combineWords, counted, duration, grouped } from "./format.js";
import { Alarms, isLate } from "./alarms.js";
import { badEnds } from "./deaths.js";
import { FeedLines } from "./feed_lines.js";
import { BY_HAND, DATA_WORDS, detectWords, faultWords } from "./fault_words.js";
import { collectiveWords } from "./does_words.js";
import { isOver } from "./player.js";
import { isMessage, servesExamples, standsForMessages } from "./waits.js";
import { headline } from "./failure_caption.js";
import { lineBefore, linkChange, linksFaultWords } from "./link_faults.js";
import { holdLines, holdWords, noteHold } from "./holds.js";
import { newestIsWhole, lossWords, lossesOf, trainers } from "./losses.js";

const SHOWN_KINDS = ["fault", "detect", "abort", "rebuild", "restore", "checkpoint", "metric"];
/** How the driver found a rank's process. @type {Record<string, string>} */
const LOST_WORDS = { killed: "was killed", exited: "exited", raised: "raised", ended: "ended" };
/** What else it finds of a rank. @type {Record<string, string>} */
const FOUND_WORDS = {
  evicted: "cannot be reached, and is evicted",
  "left out": "does not answer, and is left out",
  corrupt: "differs from the others, and is ended",
  arrived: "is there, and is to join",
  absent: "has not started, and is gone without",
};

/** What it finds of a host. @type {Record<string, (ranks: number[]) => string>} */
const HOST_WORDS = {
  "cut off": (ranks) => `is cut off: nothing comes from ${theRanks(ranks)}`,
  back: (ranks) => `is back: what ${theRanks(ranks)} recorded meanwhile arrives`,
};

/** @param {number[]} ranks */
const theRanks = (ranks) => `rank${ranks.length > 1 ? "s" : ""} ${ranks.join(", ")}`;

/** Reads the table onward from where it was. */
export class Happenings {
  #feed = new FeedLines();

  /** @param {Known} known */
  constructor(known) {
    this.table = known.table;
    this.run = known.run?.id ?? "";
    this.next = 0; // the next row to look at, counted over the whole run
    this.alarms = new Alarms(this.#feed);
    // pads that were overrun, in one line
    this.overruns = /** @type {{line: Line, ranks: Set<number>, most: number} | null} */ (null);
    // lines of a recovery: who did the same
    this.together = /** @type {Map<string, {line: Line, ranks: Set<number>}>} */ (new Map());
    // what was last found of each host
    this.hosts = /** @type {Map<string, {name: string, line: Line, ranks: number[]}>} */ (
      new Map()
    );
    for (const { t, words } of holdLines(known.table)) this.#feed.put(t, words, "state", -1);
    this.held = known.control?.held ?? false;
    this.motion = known.control?.slow_motion ?? 1;
    this.tenth = 0; // of the run: the next to announce
    this.slowFirst = /** @type {[string, number][] | null} */ (null);
    this.slowed = /** @type {Set<number>} */ (new Set()); // ranks of which a row says so
    this.ends = /** @type {Map<number, Line>} */ (new Map()); // rank -> that its process has ended
    this.lostAt = /** @type {Map<number, number>} */ (new Map()); // rank -> when the driver noticed
    this.wentOn = -Infinity; // when those that are left last went on without who was lost
  }

  /** All lines so far, oldest first. */
  get lines() {
    return this.#feed.lines;
  }

  /** A number that grows with every change of the lines. */
  get version() {
    return this.#feed.version;
  }

  /**
   * All lines so far, oldest first.
   * @param {Known} known
   * @param {number} now  ns since the origin
   * @returns {Line[]}
   */
  read(known, now) {
    this.#rows(known);
    this.#milestones(known);
    this.#controls(known, now);
    this.#calm();
    this.#feed.trim();
    return this.lines;
  }

  /** @param {Known} known */
  #rows(known) {
    const { table } = this;
    const wanted = new Uint8Array(256);
    for (const kind of SHOWN_KINDS)
      if (table.code[kind] !== undefined) wanted[table.code[kind]] = 1;
    const from = Math.max(0, this.next - table.forgotten);
    const { kind } = table;
    const overrun = table.strings.indexOf("pad overrun");
    this.next = table.forgotten + table.rows;
    for (let r = from; r < table.rows; r++) {
      if (this.alarms.any && kind[r] === table.code.wait)
        this.alarms.over(this.#lane(r), table.start[r], table.end[r]);
      if (!wanted[kind[r]]) continue;
      if (kind[r] === table.code.metric) {
        if (overrun > 0 && table.name[r] === overrun) this.#overrun(r);
      } else this.#row(known, r);
    }
  }

  /** @param {number} r */
  #lane(r) {
    const { passage, passages } = this.table;
    return `${passages.rank[passage[r]]} ${passages.lane[passage[r]]}`;
  }

  /** Pads that are overrun, of all ranks in one line. @param {number} r */
  #overrun(r) {
    const { table } = this;
    const rank = table.passages.rank[table.passage[r]];
    const late = table.value[r] * 1e6;
    this.overruns ??= {
      line: this.#feed.put(table.end[r], "", "metric", rank),
      ranks: new Set(),
      most: 0,
    };
    const { line, ranks, most } = this.overruns;
    if (ranks.has(rank) && late <= most) return;
    ranks.add(rank);
    this.overruns.most = Math.max(most, late);
    const by = duration(this.overruns.most);
    line.words =
      ranks.size > 1
        ? `padded computations of ${ranks.size} ranks lasted up to ${by} longer than their pads`
        : `rank ${rank}: a padded computation lasted up to ${by} longer than its pad`;
    this.#feed.changed();
  }

  /** @param {Known} known @param {number} r */
  #row(known, r) {
    const { table } = this;
    const p = table.passage[r];
    const by = table.passages.rank[p];
    const peer = table.peer[r];
    const kind = table.kindName(table.kind[r]);
    const name = table.text(table.name[r]);
    const t = table.end[r];
    const iteration = table.passages.iteration[p];
    const asked = table.text(table.passages.lane[p]) === "experiment";
    const byHand = by < 0 ? !asked : table.text(table.passages.group[p]) === BY_HAND;
    if (kind === "fault") this.#fault(r, byHand, by < 0 ? peer : by);
    else if (kind === "detect" && name in DATA_WORDS)
      this.#feed.put(t, DATA_WORDS[name](peer, table.value[r], iteration), kind, peer);
    else if (kind === "detect" && by < 0 && HOST_WORDS[name])
      this.#host(t, table.text(table.passages.group[p]), name, peer);
    else if (kind === "detect" && by < 0) {
      this.lostAt.set(peer, t);
      const lost = `it was noticed that rank ${peer} ${LOST_WORDS[name] ?? "has ended"}`;
      const found = FOUND_WORDS[name];
      this.#feed.put(t, found ? `rank ${peer} ${found}` : lost, kind, peer);
    } else if (kind === "detect" && name === "lost") {
      this.wentOn = Math.max(this.wentOn, t);
      if (!this.lostAt.has(peer)) this.lostAt.set(peer, t);
      this.#feed.once(
        `lost ${peer}`,
        t,
        `rank ${peer} is gone; the others go on without it`,
        kind,
        peer,
      );
    } else if (
      kind === "detect" &&
      isMessage(table, r) &&
      (servesExamples(known.run, by) || !standsForMessages(known.run, by))
    )
      return; // its receive is open, it does not stand for it
    else if (kind === "detect" && isLate(name)) this.alarms.late(t, by, peer, name);
    else if (kind === "detect")
      this.alarms.raise(this.#lane(r), t, {
        rank: by,
        seconds: table.value[r],
        words: detectWords(table, r, by, known.lanesNow),
        stopped: name === "stalled: stopped",
      });
    else if (kind === "abort" || kind === "rebuild" || kind === "restore")
      this.#recovers(r, by, kind, name);
    else {
      const where = iteration >= 0 ? ` in iteration ${iteration + 1}` : "";
      const more = name ? `: ${name}` : "";
      this.#feed.put(t, `rank ${by} kept a checkpoint${where}${more}`, kind, by);
    }
  }

  /**
   * A host is cut off, or back: its ranks in one line.
   * @param {number} t @param {string} host @param {string} name @param {number} rank
   */
  #host(t, host, name, rank) {
    const before = this.hosts.get(host);
    if (before && before.name !== name) before.line.kind = "over";
    const one =
      before?.name === name
        ? before
        : {
            name,
            line: this.#feed.put(t, "", "detect", rank),
            ranks: /** @type {number[]} */ ([]),
          };
    this.hosts.set(host, one);
    one.ranks.push(rank);
    one.line.words = `host ${host} ${HOST_WORDS[name](one.ranks)}`;
    this.#feed.changed();
  }

  /**
   * What a rank does of a recovery: with the others that do the same in one line.
   * @param {number} r
   * @param {number} rank
   * @param {"abort" | "rebuild" | "restore"} kind
   * @param {string} name
   */
  #recovers(r, rank, kind, name) {
    const { table } = this;
    if (kind === "restore") this.wentOn = Math.max(this.wentOn, table.start[r]);
    const generation = table.passages.generation[table.passage[r]];
    const key = `${generation} ${kind} ${name}`;
    const t = table.end[r];
    const group = this.together.get(key) ?? {
      line: this.#feed.put(t, "", kind === "abort" ? "detect" : "state", rank),
      ranks: new Set(),
    };
    this.together.set(key, group);
    group.ranks.add(rank);
    const { size } = group.ranks;
    const who = size > 1 ? `${size} ranks` : `rank ${rank}`;
    const amount = size === 1 && table.nbytes[r] > 0 ? ` ${bytes(table.nbytes[r])} of` : "";
    const restored =
      {
        received: `received${amount} parameters and optimizer state from a survivor`,
        kept: "kept what was trained",
        checkpoint: "went back to the checkpoint",
      }[name] ?? "took over what was trained";
    const did = {
      abort: `left generation ${generation}`,
      rebuild: `joined generation ${generation}`,
      restore: restored,
    }[kind];
    group.line.words = `${who} ${did}`;
    this.#feed.changed();
  }

  /**
   * @param {number} r
   * @param {boolean} ours  the user's own doing, not the experiment's
   * @param {number} rank  whom it strikes
   */
  #fault(r, ours, rank) {
    const { table } = this;
    const t = table.end[r];
    const fault = {
      name: table.text(table.name[r]),
      rank,
      value: table.value[r],
      group: table.text(table.passages.group[table.passage[r]]),
      nbytes: table.nbytes[r],
    };
    const link = linkChange(fault);
    const before = link && lineBefore(this.lines, link, t);
    if (fault.name === "slow" && fault.value !== 1) this.slowed.add(rank);
    if (link && before?.links) {
      before.links.push(link);
      before.until = t;
      before.words = linksFaultWords(link, before.links);
      this.#feed.changed();
      return;
    }
    const line = this.#feed.put(t, faultWords(fault, ours), "fault", rank);
    if (link) Object.assign(line, { links: [link], until: t });
  }

  /** @param {Known} known */
  #milestones(known) {
    const { table, run, counters, state } = known;
    const losses = lossesOf(table);
    const first = table.completed ? table.calls.find((call) => call.complete) : null;
    if (first && !counters?.older && !table.forgotten) {
      const size = first.nbytes > 0 ? `${bytes(first.nbytes)} ` : "";
      this.#feed.once(
        "first",
        first.end,
        `First ${collectiveWords(first.collective).replace("the ", "")}: ${first.ranks} ` +
          `ranks ${combineWords(first.collective)[1]} ` +
          `${size}in ${duration(first.end - first.start)}`,
        "milestone",
        -1,
      );
    }
    const total = run?.iterations ?? 0;
    const newest = losses.newest(trainers(run), newestIsWhole(known));
    for (; total >= 10 && this.tenth < 9; this.tenth++) {
      const iteration = Math.ceil((total * (this.tenth + 1)) / 10) - 1;
      if (iteration > newest) break;
      if (losses.count[iteration])
        this.#feed.put(
          losses.time[iteration],
          `${grouped(iteration + 1)} of ${counted(total, "iteration")}: loss ` +
            `${lossWords(losses.at(iteration))}`,
          "milestone",
          -1,
        );
    }
    if (!isOver(known)) return;
    const t = Math.max(0, table.to);
    if (state === "failed") {
      if (known.failure?.kind === "RunTimeout") this.alarms.hung(t);
      // the end of its process is described better now
      this.#feed.remove(this.ends.get(known.failure?.rank ?? -1));
      this.#feed.finish(t, `${headline(known)}.`);
    } else if (newest >= 0)
      this.#feed.finish(
        t,
        `The run is over: ${counted(newest + 1, "iteration")} in ${duration(t)}, loss ` +
          `${lossWords(losses.at(newest))}`,
      );
  }

  /** What was noticed of ranks that were lost is no alarm once the run has gone on. */
  #calm() {
    for (const line of this.lines) {
      const lost = this.ends.get(line.rank) === line; // its time is that of the header
      const since = lost ? (this.lostAt.get(line.rank) ?? Infinity) : line.t;
      if (line.kind !== "detect" || since > this.wentOn || this.alarms.holds(line)) continue;
      line.kind = "over";
      this.#feed.changed();
    }
  }

  /**
   * What only the header tells: holding, slow motion, ranks that the experiment slows, ends of
   * processes.
   * @param {Known} known
   * @param {number} now
   */
  #controls({ control, state, table }, now) {
    if (!control || state === "replay") return;
    // before anybody did anything, unless a row tells of it
    this.slowFirst ??= Object.entries(control.slow);
    if (table.rows && this.slowFirst.length) {
      for (const [rank, factor] of this.slowFirst) {
        if (!this.slowed.has(Number(rank)))
          this.#feed.once(
            `slow ${rank}`,
            Math.max(0, table.from),
            faultWords(
              { name: "slow", rank: Number(rank), value: factor, group: "", nbytes: -1 },
              false,
            ),
            "fault",
            Number(rank),
          );
      }
      this.slowFirst = [];
    }
    noteHold(table, control.held && state === "running", now);
    if (state !== "running") return;
    if (control.held !== this.held) this.#feed.put(now, holdWords(control.held), "state", -1);
    if (control.slow_motion !== this.motion)
      this.#feed.put(
        now,
        control.slow_motion > 1
          ? `Slow motion: every transfer lasts ${grouped(control.slow_motion)} times as long`
          : "Full speed again",
        "state",
        -1,
      );
    this.held = control.held;
    this.motion = control.slow_motion;
    for (const [rank, { words }] of badEnds(control)) {
      const line = this.#feed.once(
        `end ${rank}`,
        this.lostAt.get(rank) ?? now, // a page that was loaded since hears of it late
        `Rank ${rank}'s process: ${words}`,
        "detect",
        rank,
      );
      if (line) this.ends.set(rank, line);
    }
  }
}

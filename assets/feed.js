// @ts-check
/**
 * What happened, in words: faults, what was noticed, what was done about it, milestones. The lines are a pure function of
 * the table's rows and the newest header; the reader of the rows keeps its place in the table.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {import("./player.js").Known} Known
 * @typedef {{t: number, words: string, kind: string, rank: number}} Line  t: ns since the origin; kind: of the row, or "milestone", "state"
 */
import { bytes, combineWords, counted, duration, grouped } from "./words.js";
import { collectiveWords } from "./doing.js";
import { isOver, nowOf } from "./player.js";
import { isMessage, servesExamples, standsForMessages } from "./waits.js";
import { allTold, lossWords, lossesOf, trainers } from "./losses.js";

const MOST_LINES = 400;
const TOLD = ["fault", "detect", "abort", "rebuild", "restore", "checkpoint", "metric"];
const PAIR_NS = 5e6; // two directions of a link that are changed together

/** @param {string} name  such as "link 0->1 20 ms 10 Mbit/s" @param {string} arrow */
function linkFault(name, arrow) {
  const [, from, to, how = ""] = name.match(/^link (\d+)->(\d+) ?(.*)$/) ?? [], link = `link ${from} ${arrow} ${to}`;
  if (how === "cut") return `You cut ${link}`;
  if (how === "restored") return `You restored ${link}`;
  return how ? `${link} now ${how.replace(/([a-zµ])\s+(?=\d|unlimited)/g, "$1, ")}` : `You changed ${link}`;
}

/** @param {string} name @param {number} rank  whom it strikes @param {number} value @param {boolean} ours  the user's own doing, not the experiment's */
export function faultWords(name, rank, value, ours) {
  if (name.startsWith("link ")) return linkFault(name, "→");
  const again = value === 1, slowed = again ? `rank ${rank} run at full speed again` : `rank ${rank} ×${value}`;
  const words = /** @type {Record<string, [string, string]>} */ ({
    kill: [`You killed rank ${rank}`, `rank ${rank} was killed`], thaw: [`You let rank ${rank} go on`, `rank ${rank} goes on`],
    freeze: [`You froze rank ${rank}`, `rank ${rank} froze${Number.isFinite(value) ? ` for ${duration(value * 1e9)}` : ""}`],
    slow: [`You ${again ? "let" : "slowed"} ${slowed}`, again ? `rank ${rank} runs at full speed again` : `rank ${rank} slowed ×${value}`],
  })[name] ?? [`${name}, rank ${rank}`, `${name}, rank ${rank}`];
  return ours ? words[0] : `${words[1]} (a fault of the experiment)`;
}

/** The run's last words without numbers of processes and what every rank was in. @param {string} words */
export const headline = (words) => words.split(/\.? Under way: /)[0].replace(/ \(process \d+\)/g, "").replace(/^rank/, "Rank").replace(/\.?$/, ".");

/** Reads the table onward from where it was. */
export class Happenings {
  /** @param {Known} known */
  constructor(known) {
    this.table = known.table;
    this.run = known.run?.id ?? "";
    this.next = 0; // the next row to look at, counted over the whole run
    this.lines = /** @type {Line[]} */ ([]);
    this.told = new Set(); // of what is said once
    this.version = 0; // grows with every change of the lines
    this.held = known.control?.held ?? false;
    this.motion = known.control?.slow_motion ?? 1;
    this.tenth = 0; // of the run, the next one to be told
    this.slowFirst = /** @type {[string, number][] | null} */ (null);
  }

  /** All lines so far, oldest first. @param {Known} known @param {number} now  ns since the origin @returns {Line[]} */
  read(known, now) {
    this.#rows(known);
    this.#milestones(known);
    this.#controls(known, now);
    if (this.lines.length > MOST_LINES) this.lines.splice(0, this.lines.length - MOST_LINES);
    return this.lines;
  }

  /** @param {number} t @param {string} words @param {string} kind @param {number} rank */
  #put(t, words, kind, rank) {
    let at = this.lines.length; // lanes are read one after the other: a line may belong before others
    while (at > 0 && this.lines[at - 1].t > t) at--;
    this.lines.splice(at, 0, { t, words, kind, rank });
    this.version += 1;
  }

  /** @param {string} once @param {number} t @param {string} words @param {string} kind @param {number} rank */
  #once(once, t, words, kind, rank) {
    if (this.told.has(once)) return;
    this.told.add(once);
    this.#put(t, words, kind, rank);
  }

  /** @param {Known} known */
  #rows(known) {
    const { table } = this, wanted = new Uint8Array(256);
    for (const kind of TOLD) if (table.code[kind] !== undefined) wanted[table.code[kind]] = 1;
    const from = Math.max(0, this.next - table.forgotten), { kind } = table, overrun = table.strings.indexOf("pad overrun");
    this.next = table.forgotten + table.rows;
    for (let r = from; r < table.rows; r++) {
      if (!wanted[kind[r]]) continue;
      if (kind[r] === table.code.metric) {
        if (overrun > 0 && table.name[r] === overrun) this.#overrun(r);
      } else this.#row(known, r);
    }
  }

  /** @param {number} r */
  #overrun(r) {
    const { table } = this, rank = table.passages.rank[table.passage[r]];
    this.#once(`overrun ${rank}`, table.end[r], `rank ${rank} computed ${duration(table.value[r] * 1e6)} longer than its padding lasts (said once)`, "metric", rank);
  }

  /** @param {Known} known @param {number} r */
  #row(known, r) {
    const { table } = this, p = table.passage[r], by = table.passages.rank[p], peer = table.peer[r], value = table.value[r];
    const kind = table.kindName(table.kind[r]), name = table.text(table.name[r]), t = table.end[r], iteration = table.passages.iteration[p];
    if (kind === "fault") {
      const ours = by < 0, rank = ours ? peer : by, back = ours && name.startsWith("link ") ? name.replace(/^link (\d+)->(\d+)/, "link $2->$1") : "";
      const twin = back ? this.lines.findLast((line) => line.t >= t - PAIR_NS && line.words === linkFault(back, "→")) : undefined;
      if (twin) (twin.words = linkFault(back, "↔")), (this.version += 1);
      else this.#put(t, faultWords(name, rank, value, ours), kind, rank);
    } else if (kind === "detect" && name === "lost") this.#once(`lost ${peer}`, t, `rank ${peer} is gone; the others go on without it`, kind, peer);
    else if (kind === "detect" && isMessage(table, r) && (servesExamples(known.run, by) || !standsForMessages(known.run, by))) return; // its receive is open, it does not stand for it
    else if (kind === "detect") this.#put(t, this.#detect(known, r, by), kind, by);
    else {
      const where = iteration >= 0 ? ` in iteration ${iteration + 1}` : "", more = name ? `: ${name}` : "";
      const does = { abort: "gave up", rebuild: "joined a new group", restore: "went back to what was kept", checkpoint: "kept a checkpoint" }[kind];
      this.#put(t, `rank ${by} ${does}${where}${more}`, kind, by);
    }
  }

  /** @param {Known} known @param {number} r @param {number} rank */
  #detect({ lanesNow }, r, rank) {
    const { table } = this, p = table.passage[r], { op } = table.passages, name = table.text(table.name[r]), peer = table.peer[r];
    const collective = table.text(table.passages.collective[p]), lane = table.text(table.passages.lane[p]);
    const now = lanesNow.find((l) => l.rank === rank && l.lane === lane && l.kind === "wait" && l.op === op[p]), after = r + 1;
    const followed = after < table.rows && table.passage[after] === p && table.kind[after] === table.code.wait; // the wait in which it was noticed
    const step = table.step[r] >= 0 ? table.step[r] : followed ? table.step[after] : now ? now.step : -1;
    const where = op[p] >= 0 ? `, in ${collective === "p2p" ? "message" : collective ? `${collective} call` : "call"} ${op[p] + 1}${step >= 0 ? `, step ${step}` : ""}` : "";
    const why = peer >= 0 ? `; it waits for rank ${peer}${name.endsWith("stopped") ? ", whose process is stopped" : ""}` : "";
    return `rank ${rank}: no progress for ${table.value[r].toFixed(1)} s${where}${why}`;
  }

  /** @param {Known} known */
  #milestones(known) {
    const { table, run, counters, state } = known, losses = lossesOf(table), first = table.completed ? table.calls.find((call) => call.complete) : null;
    if (first && !counters?.older && !table.forgotten) {
      const size = first.nbytes > 0 ? `${bytes(first.nbytes)} in ` : "";
      this.#once("first", first.end, `First ${collectiveWords(first.collective).replace("the ", "")}: ${first.ranks} ranks ${combineWords(first.collective)[1]} ${size}${duration(first.end - first.start)}`, "milestone", -1);
    }
    const total = run?.iterations ?? 0, newest = losses.newest(trainers(run), allTold(known));
    for (; total >= 10 && this.tenth < 9; this.tenth++) {
      const iteration = Math.ceil((total * (this.tenth + 1)) / 10) - 1;
      if (iteration > newest) break;
      if (losses.count[iteration]) this.#put(losses.time[iteration], `${grouped(iteration + 1)} of ${counted(total, "iteration")}: loss ${lossWords(losses.at(iteration))}`, "milestone", -1);
    }
    if (!isOver(known)) return;
    const t = Math.max(0, table.to);
    if (state === "failed") {
      const words = headline(known.words), twice = this.lines.findIndex((line) => line.words.startsWith(`Rank ${line.rank}'s process`) && words.startsWith(`Rank ${line.rank} `));
      if (twice >= 0) this.lines.splice(twice, 1); // the end of its process is told better now
      this.#once("end", t, words, "state", -1);
    } else if (newest >= 0) this.#once("end", t, `The run is over: ${counted(newest + 1, "iteration")} in ${duration(t)}, loss ${lossWords(losses.at(newest))}`, "state", -1);
  }

  /** What only the header tells: holding, slow motion, ranks that the experiment slows, ends of processes. @param {Known} known @param {number} now */
  #controls({ control, state, table }, now) {
    if (!control || state === "replay") return;
    this.slowFirst ??= Object.entries(control.slow); // before anybody did anything, unless a row tells of it
    if (table.rows && this.slowFirst.length) {
      for (const [rank, factor] of this.slowFirst) {
        const row = this.lines.some((line) => line.kind === "fault" && line.rank === Number(rank) && line.words.includes("×"));
        if (!row) this.#once(`slow ${rank}`, Math.max(0, table.from), faultWords("slow", Number(rank), factor, false), "fault", Number(rank));
      }
      this.slowFirst = [];
    }
    if (state !== "running") return;
    if (control.held !== this.held) this.#put(now, control.held ? "The ranks are held" : "The ranks run again", "state", -1);
    if (control.slow_motion !== this.motion) this.#put(now, control.slow_motion > 1 ? `Slow motion: every transfer lasts ${grouped(control.slow_motion)} times as long` : "Full speed again", "state", -1);
    this.held = control.held;
    this.motion = control.slow_motion;
    for (const [rank, how] of Object.entries(control.ended)) if (how !== "ended") this.#once(`end ${rank}`, now, `Rank ${rank}'s process: ${how}`, "detect", Number(rank));
  }
}

/** How many of the lines the reader sees without scrolling. */
const SEEN_LINES = 4;
const LIVE = -2; // no line is sought: the newest are seen
const LOUD = new Set(["fault", "detect", "abort", "state"]);

/**
 * The lines as a list under the scene; a line is a button that goes to its moment.
 * @param {HTMLElement} body @param {import("./stage.js").Stage} stage
 */
export function feedView(body, stage) {
  const heading = body.appendChild(Object.assign(document.createElement("h3"), { textContent: "What happened" }));
  const list = body.appendChild(Object.assign(document.createElement("ol"), { className: "wb-happened" }));
  const spoken = body.appendChild(Object.assign(document.createElement("span"), { className: "wb-sr" }));
  heading.id = `wb-happened-${Math.random().toString(36).slice(2)}`;
  list.setAttribute("aria-labelledby", heading.id);
  list.style.setProperty("--lines", String(SEEN_LINES));
  spoken.setAttribute("role", "status");
  let reader = /** @type {Happenings | null} */ (null), drawn = -1, follows = true, seen = LIVE; // the line at a held view's moment
  const items = /** @type {WeakMap<Line, HTMLElement>} */ (new WeakMap());
  list.onscroll = () => seen === LIVE && (follows = list.scrollTop + list.clientHeight > list.scrollHeight - 12);
  list.onkeydown = (event) => {
    const li = /** @type {HTMLElement} */ (event.target).closest("li"), next = { ArrowUp: li?.previousElementSibling, ArrowDown: li?.nextElementSibling }[event.key];
    if (!next) return;
    event.preventDefault();
    event.stopPropagation();
    /** @type {HTMLElement} */ (next.firstElementChild).focus();
  };
  list.addEventListener("focusin", (event) => { // one of them is in the order of the Tab key
    for (const button of list.querySelectorAll("button")) button.tabIndex = button === event.target ? 0 : -1;
  });
  /** @param {Line} line */
  const item = (line) => {
    let li = items.get(line);
    if (!li) {
      const button = (li = document.createElement("li")).appendChild(document.createElement("button"));
      button.append(document.createElement("span"), document.createElement("em"));
      Object.assign(button, { className: `wb-line ${line.kind}`, title: "to this moment", tabIndex: -1, onclick: () => stage.goto(line.t) });
      button.children[0].textContent = duration(line.t);
      items.set(line, li);
    }
    const words = /** @type {Element} */ (li.querySelector("em"));
    if (words.textContent !== line.words) words.textContent = line.words;
    return li;
  };
  /** @param {Line[]} lines */
  const draw = (lines) => {
    lines.forEach((line, i) => { // those that stay are not touched: one may have the focus
      const li = item(line);
      if (list.children[i] !== li) list.insertBefore(li, list.children[i] ?? null);
    });
    while (list.children.length > lines.length) list.lastElementChild?.remove();
    const end = list.lastElementChild?.firstElementChild;
    if (end instanceof HTMLElement && !list.querySelector("button[tabindex='0']")) end.tabIndex = 0;
    if (follows && seen === LIVE) list.scrollTop = list.scrollHeight;
  };
  return {
    /** @param {import("./stage.js").Look} look */
    say({ known, t, held, at }) {
      const now = nowOf(known, at);
      if (reader?.table !== known.table) {
        reader = new Happenings(known);
        drawn = -1;
      }
      const lines = reader.read(known, now);
      if (reader.version !== drawn) {
        const news = lines.at(-1);
        if (news && drawn >= 0 && LOUD.has(news.kind)) spoken.textContent = news.words;
        drawn = reader.version;
        draw(lines);
      }
      lines.forEach((line, i) => list.children[i].classList.toggle("later", held && line.t > t)); // the future is pale
      const place = held ? lines.findLastIndex((line) => line.t <= t) : LIVE;
      if (place === seen) return;
      seen = place;
      const li = /** @type {HTMLElement | undefined} */ (list.children[Math.max(0, place)]);
      if (!held) {
        follows = true;
        list.scrollTop = list.scrollHeight;
      } else if (li && !list.contains(/** @type {any} */ (list.getRootNode()).activeElement)) list.scrollTop = li.offsetTop - list.offsetTop + li.offsetHeight - list.clientHeight;
    },
  };
}

// @ts-check
/**
 * What the overview says, state by state: one sentence for a newcomer, one more line, what can be
 * done. Pure functions.
 * @typedef {import("../../engine/player.js").Known} Known
 * @typedef {import("../../engine/rank_activity.js").Doing} Doing
 * @typedef {import("../../engine/run_words.js").Meaning} Meaning
 * @typedef {{colour: string, say: string, small: string}} RunCaption  colour: the name of an ink
 */
import { badEnds } from "../../engine/deaths.js";
import { recoveryNote } from "../../engine/generations.js";
import { lostByError, worstWait } from "../../engine/lost_ranks.js";
import { lossWords } from "../../engine/losses.js";
import { isOver } from "../../engine/player.js";
import { failedHead } from "../../engine/failure_caption.js";
import { counted, duration, grouped } from "../../engine/format.js";
import { filled, onlyOperations, processes, togetherWords } from "../../engine/run_words.js";
import { doneWords } from "./traffic_table.js";

const WAITS = 0.2; // of the time: a rank that waits so much is worth a word

/** "1, 2 and 3" @param {number[]} ranks */
const listed = (ranks) =>
  ranks.length < 2 ? ranks.join("") : `${ranks.slice(0, -1).join(", ")} and ${ranks.at(-1)}`;

/** @param {string} words */
const capital = (words) => words.charAt(0).toUpperCase() + words.slice(1);

/**
 * What training together means in a run: as the first of the scenes says that knows its kind, else
 * in general.
 * @param {Known["run"]} run
 * @param {{meaning?(run: import("../../engine/player.js").RunFacts): Meaning | null}[]} scenes
 * @param {boolean} [bare]  operations alone were recorded
 * @returns {Meaning}
 */
export function meaning(run, scenes, bare = false) {
  const n = run?.ranks ?? 0;
  if (run?.cells)
    return [
      `${n === 1 ? "1 rank runs" : `${n} ranks run`} the cells of a notebook.`,
      "What they send each other is drawn as it happens.",
    ];
  if (run?.strategy && n === 1)
    return [
      togetherWords(n),
      "It takes every batch whole: what every other strategy is compared with.",
    ];
  if (run?.together) return [togetherWords(n), filled(run.together, run)];
  for (const scene of run ? scenes : []) {
    const words = scene.meaning?.(/** @type {NonNullable<typeof run>} */ (run));
    if (words) return words;
  }
  // a job of somebody else's
  if (!run?.strategy)
    return [
      n === 1 ? "One process of a job." : `The ${n} processes of a job.`,
      bare
        ? "When each operation began and ended on each rank is recorded, not what it sent."
        : "What they send each other is drawn as it happens.",
    ];
  return [
    togetherWords(n),
    `Strategy: ${run.title || run.strategy}. What they send each other is drawn as it happens.`,
  ];
}

/** "iteration 118" @param {number} iteration counted from 0; -1 is before the first */
const nth = (iteration) => (iteration < 0 ? "the start" : `iteration ${grouped(iteration + 1)}`);

/**
 * @param {{known: Known, held: boolean, live: boolean, stuck?: string}} look  stuck: the ranks that
 *   wait for long, in words
 * @param {{onShow: number, newest: number}} at  iterations: the one on show, and the run's newest
 * @param {{first: number, last: number}} losses
 * @param {Meaning} means  what training together means in this run
 * @returns {RunCaption}
 */
export function tellOverview({ known, held, stuck }, { onShow, newest }, losses, means) {
  const caption = tellState({ known, held, stuck }, { onShow, newest }, losses, means);
  const running = known.state !== "failed" && !held && known.table.rows > 0;
  const note = running ? recoveryNote(known, isOver(known)) : "";
  return note ? { ...caption, small: `${note} ${caption.small}` } : caption;
}

/**
 * @param {{known: Known, held: boolean, stuck?: string}} look
 * @param {{onShow: number, newest: number}} at
 * @param {{first: number, last: number}} losses
 * @param {Meaning} means
 * @returns {RunCaption}
 */
function tellState({ known, held, stuck = "" }, { onShow, newest }, losses, means) {
  const { state, run, words, failure, control, counters, table } = known;
  const over = isOver(known);
  const n = run?.ranks ?? 0;
  if (state === "failed") {
    const small =
      lostByError(failure) >= 0
        ? "The others noticed and stopped: without its part nothing can be completed. What was " +
          "recorded up to then is kept."
        : "The ranks stopped. What was recorded up to then is kept.";
    return { colour: "fault", say: `${failedHead(known)}.`, small };
  }
  if (held) {
    const where = `The picture is held in ${nth(onShow)}`;
    const back = `Press L to come back to ${over ? "the newest" : "live"}.`;
    if (over)
      return {
        colour: "focus",
        say: `${where}; the run is over.`,
        small: `${onShow < newest ? `It went on to ${nth(newest)}` : "That is its last"}. ${back}`,
      };
    if (control?.held)
      return {
        colour: "focus",
        say: `${where}; the ranks are held too.`,
        small: `They stand in ${nth(counters?.iteration ?? newest)}. ${back}`,
      };
    return {
      colour: "focus",
      say: `${where}; the ranks run on.`,
      small: `They are in ${nth(counters?.iteration ?? newest)} now. ${back}`,
    };
  }
  if (!run)
    return {
      colour: "ink-2",
      say: "Loading …",
      small: "A rank is one process with its own copy of the model.",
    };
  if (state === "empty") {
    const say = n ? `Ready to train with ${counted(n, "rank")}.` : words || "Nothing runs yet.";
    return {
      colour: "ink-2",
      say,
      small:
        "A rank is one process with its own copy of the model. A run that starts is drawn " +
        "here while it happens.",
    };
  }
  if (state === "starting" && run.readonly)
    return {
      colour: "focus",
      say: words || `${n ? capital(processes(n)) : "Ranks"} of a job, and nothing sent yet.`,
      small: "What they send each other is drawn as soon as they do.",
    };
  if (state === "starting")
    return {
      colour: "focus",
      say: words || `Starting ${processes(n)}.`,
      small:
        "Training begins when all are here. A rank is one process with its own copy of the model.",
    };
  if (state === "replay" && run.planned)
    return {
      colour: "ink-2",
      say: run.planned,
      small: "Nothing ran: a model of links and ranks says when each message leaves and arrives.",
    };
  if (state === "replay" && run.cells)
    return {
      colour: "ink-2",
      say: `${counted(n, "rank")} ran the cells of a notebook: a record.`,
      small: means[1],
    };
  if (state === "replay" && !run.strategy && newest < 0) {
    const done = doneWords(known);
    const kept = onlyOperations(known)
      ? "When each operation began and ended was recorded, not what the ranks sent."
      : "What the ranks sent was recorded.";
    return {
      colour: "ink-2",
      say: `${counted(n, "rank")} of a job: ${done || "no call was completed"} in ${duration(Math.max(0, table.to))}.`,
      small: `${kept} The job recorded no loss.`,
    };
  }
  if (state === "replay")
    return {
      colour: "ink-2",
      say:
        `${capital(processes(n))} trained one model${n > 1 ? " together" : ""}: ` +
        `${newest >= 0 ? `${counted(newest + 1, "iteration")} in ${duration(Math.max(0, table.to))}` : "a record"}.`,
      small: means[1].replace(/^It takes/, "It took"),
    };
  if (state === "finished") {
    const whole = run.iterations <= 0 || newest + 1 >= run.iterations;
    const done = whole
      ? counted(newest + 1, "iteration")
      : `${grouped(newest + 1)} of ${counted(run.iterations, "iteration")}`;
    const right =
      counters?.accuracy === null || counters?.accuracy === undefined
        ? ""
        : `; validation accuracy ${(100 * counters.accuracy).toFixed(1)} %`;
    const small = Number.isFinite(losses.last)
      ? `The loss went from ${lossWords(losses.first)} to ${lossWords(losses.last)}${right}.`
      : words;
    if (newest < 0)
      return {
        colour: "ink-2",
        say: words || "The run is over.",
        small: table.rows
          ? `${counted(table.rows, "event")} in ${duration(Math.max(0, table.to))}.`
          : "Nothing was recorded in it.",
      };
    return {
      colour: "ink-2",
      say:
        `${whole ? "Done" : "Stopped"}: ${done} in ${duration(Math.max(0, table.to))} on ` +
        `${counted(n, "rank")}.`,
      small,
    };
  }
  if (control?.held) {
    const standing =
      control.standing.length >= n
        ? "Every process stands before a chunk or an iteration."
        : `${control.standing.length} of ${n} processes stand before a chunk or an ` +
          "iteration, the others come to one or wait.";
    return {
      colour: "hold",
      say: `The ranks are held in ${nth(counters?.iteration ?? newest)}.`,
      small: `${standing} Nothing is lost: let them run, or step.`,
    };
  }
  if (control?.frozen.length) return frozenCaption(control.frozen, stuck);
  const [say, together] = means;
  const small = stuck || words || together;
  const lost = run.recovers ? [...badEnds(control).keys()].sort((a, b) => a - b) : [];
  if (lost.length && lost.length < n) return { colour: "live", say: leftWords(n, lost), small };
  return { colour: "live", say, small };
}

/** Which ranks a run has lost, and which it has left. @param {number} n @param {number[]} lost */
function leftWords(n, lost) {
  const left = Array.from({ length: n }, (_, rank) => rank).filter((rank) => !lost.includes(rank));
  const named = (/** @type {number[]} */ ranks) =>
    ranks.length > 8
      ? `${ranks.length} ranks`
      : `rank${ranks.length === 1 ? "" : "s"} ${listed(ranks)}`;
  return (
    `${capital(named(lost))} ${lost.length === 1 ? "was" : "were"} lost; ` +
    `${named(left)} ${left.length === 1 ? "is" : "are"} left.`
  );
}

/**
 * Ranks whose processes are stopped: ranks do not train together then.
 * @param {number[]} ranks
 * @param {string} stuck  the ranks that wait for long, in words; "" none
 */
function frozenCaption(ranks, stuck) {
  const one = ranks.length === 1;
  const names =
    ranks.length > 3 ? `${ranks.length} ranks` : `Rank${one ? "" : "s"} ${listed(ranks)}`;
  return {
    colour: "hold",
    say: `${names} ${one ? "is" : "are"} frozen: ${one ? "its process is" : "their processes are"} stopped.`,
    small: stuck || `The others go on until they need something from ${one ? "it" : "them"}.`,
  };
}

/**
 * What the large button says: it starts a run where there is none, and is not there otherwise (what
 * holds and stops the ranks stands at the time bar, once, and so does what runs it again at the
 * page's or the form's head).
 * @param {Known} known
 */
export function startWords(known) {
  return known.run?.can_start && known.state === "empty" ? "▶ Start" : "";
}

/**
 * What lies behind the first two ways on: a title ("": there is no such way), and what one finds
 * there.
 * @param {Known} known
 * @param {Doing[]} doings
 * @param {import("../../chrome/scene_host.js").LookNext | null} [look]  a scene that shows such runs
 * @returns {[string, string][]}
 */
export function waysOn(known, doings, look = null) {
  const { run, state } = known;
  const ring = run?.algorithm === "ring" ? "See the ring" : "See the chunks";
  const behind = run?.buckets
    ? "what hides behind backward, and what does not"
    : "where the time of every rank goes";
  if (onlyOperations(known))
    return [
      ["", ""],
      ["Timeline", "which rank is in which operation, from when to when"],
    ];
  const worst = worstWait(doings, WAITS, run?.server?.servers ?? 0);
  if (run && run.ranks === 1)
    return [
      [ring, "one process sends nothing: nothing moves there"],
      ["Timeline", behind],
    ];
  const seen = /** @type {(look: import("../../chrome/scene_host.js").LookNext) => any} */ (
    ({ title, what, final }) => [
      [title, worst && !final ? `why rank ${worst.rank} waits for rank ${worst.forWhom}` : what],
      ["Timeline", behind],
    ]
  );
  if (look?.failed) return seen(look);
  if (state === "failed")
    return [
      ["The last moments", "what every rank held when it ended"],
      ["Timeline", "who waited, and how long"],
    ];
  if (look && run) return seen(look);
  const why = worst
    ? `why rank ${worst.rank} waits for rank ${worst.forWhom}`
    : state === "empty" || state === "starting"
      ? "what the ranks will do with their gradients"
      : "what every rank holds, chunk by chunk";
  return [
    [ring, why],
    ["Timeline", behind],
  ];
}

/**
 * More ranks than lines: how many do what, and the three whom the others wait for.
 * @param {Doing[]} doings
 * @returns {{counts: [string, number, string][], slowest: Doing[]}}
 */
export function inCounts(doings) {
  const count = (/** @type {string} */ mark) => doings.filter((d) => d.mark === mark).length;
  const rest = /** @type {[string, string][]} */ ([
    ["killed", "killed"],
    ["away", "cut off"],
    ["frozen", "frozen"],
    ["held", "held"],
    ["stopped", "stopped"],
    ["ended", "ended"],
    ["none", "between two things"],
  ]).flatMap(([mark, words]) => (count(mark) ? [[mark, count(mark), words]] : []));
  const [most = ["none", 0, ""]] = rest;
  const others = rest
    .slice(1)
    .map(([, n, words]) => `, ${n} ${words}`)
    .join("");
  const bad = doings.filter((d) => ["killed", "frozen", "away"].includes(d.mark));
  const busy = doings
    .filter((d) => !bad.includes(d) && d.mark !== "ended")
    .sort(
      (a, b) =>
        a.waits - b.waits ||
        Number(b.mark === "compute") - Number(a.mark === "compute") ||
        a.rank - b.rank,
    );
  return {
    counts: [
      ["compute", count("compute"), "compute"],
      ["move", count("move"), "pass chunks on"],
      ["wait", count("wait"), "wait"],
      /** @type {[string, number, string]} */ ([most[0], most[1], most[2] + others]),
    ],
    slowest: [...bad, ...busy].slice(0, 3),
  };
}

// @ts-check
/**
 * What the overview says, state by state: one sentence for a newcomer, one more line, what can be done. Pure functions.
 * @typedef {import("./player.js").Known} Known
 * @typedef {import("./doing.js").Doing} Doing
 * @typedef {{colour: string, say: string, small: string}} Told  colour: the name of an ink
 * @typedef {{words: string, verb: string, look: string, why: string} | null} BigButton
 */
import { worstWait } from "./doing.js";
import { headline } from "./feed.js";
import { whyNot } from "./deeds.js";
import { lossWords } from "./losses.js";
import { isOver } from "./player.js";
import { counted, duration, grouped } from "./words.js";

const WAITS = 0.2; // of the time: a rank that waits so much is worth a word
const PARTS = ["", "all", "half", "a third", "a quarter"];

/** "4 processes" @param {number} n */
const processes = (n) => (n === 1 ? "one process" : `${n} processes`);
/** @param {string} words */
const capital = (words) => words.charAt(0).toUpperCase() + words.slice(1);

/** What training together means under this strategy. @param {Known["run"]} run @returns {[string, string]} a sentence, and how */
export function meaning(run) {
  const n = run?.ranks ?? 0, part = PARTS[n] ?? `1/${n}`, all = n === 2 ? "both" : n <= 4 ? `all ${["", "", "", "three", "four"][n]}` : `all ${n}`;
  const together = n === 1 ? "One process trains one model." : `${processes(n)} are training one model together.`;
  if (run?.cells) return [`${n === 1 ? "1 rank runs" : `${n} ranks run`} the cells of a notebook.`, "What they send each other is drawn as it happens."];
  const ring = run?.algorithm === "ring" || !run?.algorithm ? "a ring averages" : `an all-reduce (${[run.algorithm, ...(run.algorithm === "auto" && run.auto ? [run.auto] : [])].join(": ").replaceAll("_", " ")}) averages`;
  if (run?.strategy === "sequential" || n === 1) return [together, "It takes every batch whole: what every other strategy is compared with."];
  if (run?.strategy === "data_parallel") return [together, `Each takes ${part} of every batch; ${ring} their gradients, so ${all} stay identical.`];
  if (run?.strategy === "ddp") return [together, `Each takes ${part} of every batch; gradients are averaged bucket by bucket while backward still runs, so ${all} stay identical.`];
  if (run?.strategy === "parameter_server") {
    const servers = run.server?.servers ?? 1, workers = n - servers, hold = servers === 1 ? "one holds the parameters" : `${servers} hold the parameters`;
    return [`${n} processes are training one model: ${hold}, ${workers === 1 ? "one computes" : `${workers} compute`} gradients.`, "Workers pull parameters and push gradients; a rule says who may run ahead of whom, and how old a gradient may be."];
  }
  if (run?.inputs) {
    const { servers } = run.inputs, workers = n - servers;
    return [`${n} processes are training one model: ${servers === 1 ? "one serves examples" : `${servers} serve examples`}, ${workers === 1 ? "one computes" : `${workers} compute`} gradients.`, `Workers ask for their examples ahead of time; ${ring} their gradients, so that they stay identical.`];
  }
  if (run?.peers?.words) return [together, run.peers.words];
  if (run?.strategy === "fsdp") return [together, `Each keeps ${part} of every layer, and gathers the rest of a layer when it computes with it.`];
  if (!run?.strategy) return [together, "What they send each other is drawn as it happens."]; // a job of somebody else's
  return [together, `Strategy: ${run?.title || run?.strategy || "a user's own"}. What they send each other is drawn as it happens.`];
}

/** "iteration 118" @param {number} iteration counted from 0; -1 is before the first */
const nth = (iteration) => (iteration < 0 ? "the start" : `iteration ${grouped(iteration + 1)}`);

/**
 * @param {{known: Known, held: boolean, live: boolean}} look @param {{here: number, newest: number}} at  iterations: the one on show, and the run's newest
 * @param {{first: number, last: number}} losses
 * @returns {Told}
 */
export function tellOverview({ known, held }, { here, newest }, losses) {
  const { state, run, words, control, counters, table } = known, over = isOver(known), n = run?.ranks ?? 0;
  if (state === "failed") {
    const missing = /^rank \d+ .*(killed|exited|raised)/.test(words);
    const small = missing ? "The others noticed and stopped: without its part nothing can be completed. What was recorded up to then is kept." : "The ranks stopped. What was recorded up to then is kept.";
    return { colour: "fault", say: headline(words || "The run failed."), small };
  }
  if (held) {
    const where = `The picture is held in ${nth(here)}`, back = `Press L to come back to ${over ? "the newest" : "live"}.`;
    if (over) return { colour: "focus", say: `${where}; the run is over.`, small: `It went on to ${nth(newest)}. ${back}` };
    if (control?.held) return { colour: "focus", say: `${where}; the ranks are held too.`, small: `They stand in ${nth(counters?.iteration ?? newest)}. ${back}` };
    return { colour: "focus", say: `${where}; the ranks run on.`, small: `They are in ${nth(counters?.iteration ?? newest)} now. ${back}` };
  }
  if (state === "empty" || !run) {
    const say = n ? `Ready to train with ${counted(n, "rank")}.` : words || "Nothing runs yet.";
    return { colour: "ink-2", say, small: "A rank is one process with its own copy of the model. A run that starts is drawn here while it happens." };
  }
  if (state === "starting")
    return { colour: "focus", say: words || `Starting ${processes(n)}.`, small: "Training begins when all are here. A rank is one process with its own copy of the model." };
  if (state === "replay" && run.planned)
    return { colour: "ink-2", say: run.planned, small: "Nothing ran: a model of links and ranks says when each message leaves and arrives." };
  if (state === "replay" && run.cells)
    return { colour: "ink-2", say: `${counted(n, "rank")} ran the cells of a notebook: a record.`, small: meaning(run)[1] };
  if (state === "replay")
    return { colour: "ink-2", say: `${capital(processes(n))} trained one model${n > 1 ? " together" : ""}: ${newest >= 0 ? `${counted(newest + 1, "iteration")} in ${duration(Math.max(0, table.to))}` : "a record"}.`, small: meaning(run)[1].replace(/^It takes/, "It took") };
  if (state === "finished") {
    const whole = run.iterations <= 0 || newest + 1 >= run.iterations, done = whole ? counted(newest + 1, "iteration") : `${grouped(newest + 1)} of ${counted(run.iterations, "iteration")}`;
    const right = counters?.accuracy === null || counters?.accuracy === undefined ? "" : `; validation accuracy ${(100 * counters.accuracy).toFixed(1)} %`;
    const small = Number.isFinite(losses.last) ? `The loss went from ${lossWords(losses.first)} to ${lossWords(losses.last)}${right}.` : words;
    if (newest < 0) return { colour: "ink-2", say: words || "The run is over.", small: table.rows ? `${counted(table.rows, "event")} in ${duration(Math.max(0, table.to))}.` : "Nothing was recorded in it." };
    return { colour: "ink-2", say: `${whole ? "Done" : "Stopped"}: ${done} in ${duration(Math.max(0, table.to))} on ${counted(n, "rank")}.`, small };
  }
  if (control?.held) {
    const standing = control.standing.length >= n ? "Every process stands before a chunk or an iteration." : `${control.standing.length} of ${n} processes stand before a chunk or an iteration, the others come to one or wait.`;
    return { colour: "hold", say: `The ranks are held in ${nth(counters?.iteration ?? newest)}.`, small: `${standing} Nothing is lost: let them run, or step.` };
  }
  const [say, small] = meaning(run);
  return { colour: "live", say, small: words || small };
}

/** The one large button. @param {Known} known @returns {BigButton} */
export function bigButton(known) {
  const { state, run, control } = known, over = isOver(known) || state === "empty";
  if (over) return run?.can_start ? { words: state === "empty" ? "▶ Start" : "▶ Start again", verb: "start", look: "start", why: "" } : null;
  if (!run) return null;
  const why = whyNot(known);
  return control?.held ? { words: "▶ Let them run", verb: "resume", look: "start", why } : { words: "■ Stop", verb: "stop", look: "stop", why };
}

/** Where a run of this kind is seen best. @param {Known["run"]} run @returns {{scene: string, title: string, what: string}} */
export function lookNext(run) {
  if (run?.server) return { scene: "server", title: "See workers and shards", what: "who holds which version, and who is stopped" };
  if (run?.peers) return { scene: "peers", title: "See who mixes with whom", what: "how far each replica is from the mean of all" };
  if (run?.shards) return { scene: "shards", title: "See the shards", what: "which layer is whole where, and what each rank holds" };
  return { scene: "collectives", title: "", what: "" };
}

/** What lies behind the first two ways on: a title, and what one finds there. @param {Known} known @param {Doing[]} doings @returns {[string, string][]} */
export function waysOn({ run, state }, doings) {
  const ring = !run?.algorithm || run.algorithm === "ring" ? "See the ring" : "See the chunks", behind = run?.strategy === "ddp" ? "what hides behind backward, and what does not" : "where the time of every rank goes";
  const look = lookNext(run), unseen = run && run.ranks > 1 && look.scene !== "collectives" && look.scene !== "server";
  const worst = worstWait(doings, WAITS, run?.server?.servers ?? 0);
  if (run && run.ranks === 1) return [[ring, "one process sends nothing: nothing moves there"], ["Timeline", behind]];
  if (run?.strategy === "parameter_server") return [["See workers and shards", worst ? `why rank ${worst.rank} waits for rank ${worst.forWhom}` : "who holds which version, and who is stopped"], ["Timeline", behind]];
  if (state === "failed") return [["The last moments", "what every rank held when it ended"], ["Timeline", "who waited, and how long"]];
  if (unseen) return [[look.title, worst ? `why rank ${worst.rank} waits for rank ${worst.forWhom}` : look.what], ["Timeline", behind]];
  const why = worst ? `why rank ${worst.rank} waits for rank ${worst.forWhom}` : state === "empty" || state === "starting" ? "what the ranks will do with their gradients" : "what every rank holds, chunk by chunk";
  return [[ring, why], ["Timeline", behind]];
}

/** More ranks than lines: how many do what, and the three whom the others wait for. @param {Doing[]} doings @returns {{counts: [string, number, string][], slowest: Doing[]}} */
export function inCounts(doings) {
  const count = (/** @type {string} */ mark) => doings.filter((d) => d.mark === mark).length;
  const rest = /** @type {[string, string][]} */ ([["killed", "killed"], ["frozen", "frozen"], ["held", "held"], ["stopped", "stopped"], ["ended", "ended"], ["none", "between two things"]]).flatMap(([mark, words]) => (count(mark) ? [[mark, count(mark), words]] : []));
  const [most = ["none", 0, ""]] = rest, others = rest.slice(1).map(([, n, words]) => `, ${n} ${words}`).join("");
  const bad = doings.filter((d) => d.mark === "killed" || d.mark === "frozen"), busy = doings.filter((d) => !bad.includes(d)).sort((a, b) => a.waits - b.waits || Number(b.mark === "compute") - Number(a.mark === "compute") || a.rank - b.rank);
  return { counts: [["compute", count("compute"), "compute"], ["move", count("move"), "pass chunks on"], ["wait", count("wait"), "wait"], /** @type {[string, number, string]} */ ([most[0], most[1], most[2] + others])], slowest: [...bad, ...busy].slice(0, 3) };
}

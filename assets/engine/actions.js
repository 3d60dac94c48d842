// @ts-check
/**
 * What a user can do to ranks and links: what an action will do; what takes it back; why it
 * cannot be done. Pure functions.
 *
 * @typedef {import("./player.js").Known} Known
 * @typedef {import("./player.js").Control} Control
 * @typedef {{verb: string, args: Record<string, any>}} Action
 * @typedef {{rank: number} | {from: number, to: number}} Target
 * @typedef {{latency_ms: number, bandwidth: string, down: boolean, words: string}} LinkNow
 */
import { grouped } from "./format.js";
import { generationsOf } from "./generations.js";
import { heldWithin } from "./holds.js";
import { isOver } from "./player.js";

export const FACTORS = [1, 2, 4, 8]; // of a rank's computing
export const LATENCIES = ["0 ms", "1 ms", "5 ms", "20 ms", "100 ms"];
export const BANDWIDTHS = ["unlimited", "1 Gbit/s", "100 Mbit/s", "10 Mbit/s", "1 Mbit/s"];
export const MOTIONS = [1, 10, 100, 1000, 10_000]; // slow motion

/**
 * A link as it is now.
 * @param {Control | null} control
 * @param {number} from
 * @param {number} to
 * @returns {LinkNow}
 */
export function linkNow(control, from, to) {
  const link = control?.links.find((l) => l.from === from && l.to === to);
  return (
    link ?? { latency_ms: 0, bandwidth: "unlimited", down: false, words: "as fast as this machine" }
  );
}

/** @typedef {"latency" | "bandwidth"} Quantity  of a link */
const PLAIN = { latency: "0 ms", bandwidth: "unlimited" };

/** @param {{latency_ms: number, bandwidth: string}} link @param {Quantity} what */
const valueOf = (link, what) => (what === "latency" ? `${link.latency_ms} ms` : link.bandwidth);

/** A value of a link as people write it. @param {string} value */
export const linkWords = (value) => value.replace("unlimited", "no limit");

/**
 * Return the value that all links of a run have now; null where they differ.
 * @param {Known} known
 * @param {Quantity} what
 */
export function valueOfAll({ control, run }, what) {
  const n = run?.ranks ?? 0;
  const links = control?.links ?? [];
  const values = new Set(links.map((link) => valueOf(link, what)));
  if (links.length < n * (n - 1)) values.add(PLAIN[what]);
  const [value] = values;
  return values.size === 1 ? value : null;
}

/**
 * What would take an action back, to be done in this order; none if nothing can.
 * @param {Action} action
 * @param {Control | null} control  before the action
 * @returns {Action[]}
 */
export function undoOf({ verb, args }, control) {
  if (verb === "freeze") return [{ verb: "thaw", args: { rank: args.rank } }];
  if (verb === "thaw") return [{ verb: "freeze", args: { rank: args.rank } }];
  if (verb === "slow")
    return [{ verb, args: { rank: args.rank, factor: control?.slow[args.rank] ?? 1 } }];
  if (verb !== "link") return [];
  if (args.every) return undoOfAll(args.latency === undefined ? "bandwidth" : "latency", control);
  const ways = [
    [args.source, args.target],
    [args.target, args.source],
  ].slice(0, args.both ? 2 : 1);
  return ways.map(([source, target]) => {
    const was = linkNow(control, source, target);
    const values = /** @type {Record<string, any>} */ ({ source, target });
    if (args.latency !== undefined) values.latency = `${was.latency_ms} ms`;
    if (args.bandwidth !== undefined) values.bandwidth = was.bandwidth;
    if (args.down !== undefined) values.down = was.down;
    return { verb, args: values };
  });
}

/**
 * What takes back a change of all links: what most of them had, then each that had something else.
 * @param {Quantity} what
 * @param {Control | null} control  before the change
 * @returns {Action[]}
 */
function undoOfAll(what, control) {
  const { links = [], pids = {}, ended = {} } = control ?? {};
  const n = Object.keys(pids).length;
  const [first] = links;
  const usual = first && links.length >= n * (n - 1) ? valueOf(first, what) : PLAIN[what];
  const others = links.filter(
    (link) => valueOf(link, what) !== usual && !ended[link.from] && !ended[link.to],
  );
  return [
    { verb: "link", args: { every: true, [what]: usual } },
    ...others.map((link) => ({
      verb: "link",
      args: { source: link.from, target: link.to, [what]: valueOf(link, what) },
    })),
  ];
}

/** @type {Record<string, string>} */
const OF_THE_RUN = {
  preempt:
    "Tells its process that its machine is needed (SIGTERM): it leaves before its next " +
    "iteration, and the run recovers as its policy says.",
  remove_rank: "It leaves for good before its next iteration; the others train on without it.",
  add_rank: "One more rank joins before an iteration, with parameters from the others.",
  checkpoint: "The ranks write a checkpoint before their next iteration.",
};

/** What becomes of a corrupt minibatch, by the run's bad_minibatch. @type {Record<string, string>} */
const OF_THE_BAD = {
  keep: "Nothing looks for it: its gradient brings the NaN to all who receive a sum with it.",
  skip: "All ranks find out before the sum, and leave that minibatch out.",
  fail: "It is found before the sum, and the run ends with its rank, layer and sample.",
};

/**
 * What an action will do, in words.
 * @param {Action} action
 * @param {Control | null} control
 * @param {Known["run"]} [run]
 */
export function willDo({ verb, args }, control, run) {
  const pid = control?.pids[args.rank];
  const process = pid ? `process ${pid}` : "its process";
  if (verb === "kill")
    return (
      `Ends ${process} at once (SIGKILL). The others notice that it is gone. This cannot be ` +
      "undone."
    );
  if (verb === "freeze")
    return (
      `Stops ${process} (SIGSTOP) until you thaw it. It loses nothing; the others wait for ` + "it."
    );
  if (verb === "thaw") return `Lets ${process} go on (SIGCONT).`;
  if (verb === "slow")
    return args.factor > 1
      ? `Its computing lasts ${args.factor} times as long; its messages are as before.`
      : "It computes at its own speed again.";
  if (verb === "corrupt")
    return (
      `The first sample that rank ${args.rank} loads next holds a NaN. ` +
      (OF_THE_BAD[run?.bad_minibatch] ?? "")
    );
  if (verb in OF_THE_RUN) return OF_THE_RUN[verb];
  if (verb !== "link") return "";
  const ways = args.both
    ? `either way between ranks ${args.source} and ${args.target}`
    : `from rank ${args.source} to rank ${args.target}`;
  if (args.down === true)
    return (
      `Nothing passes ${ways} until you restore the link. A rank that waits for it makes no ` +
      "progress."
    );
  if (args.down === false) return `Messages pass ${ways} again.`;
  if (args.latency !== undefined)
    return /^0\b/.test(args.latency)
      ? `Messages ${ways} need no more time than this machine does.`
      : `Every message ${ways} needs ${args.latency} more.`;
  return args.bandwidth === "unlimited"
    ? `Messages ${ways} are as fast as this machine.`
    : `At most ${args.bandwidth} ${ways}.`;
}

/**
 * What was typed, with the unit that is meant where none is; null if it is nothing.
 * @param {string} typed
 * @param {"latency" | "bandwidth"} what
 */
export function typedValue(typed, what) {
  const text = typed.trim().replace(",", ".");
  if (what === "bandwidth" && /^unlimited$/i.test(text)) return "unlimited";
  const match = text.match(/^(\d+(?:\.\d+)?|\.\d+)\s*([a-zµ/]*)$/i);
  if (!match) return null;
  const unit = match[2] || (what === "latency" ? "ms" : "Mbit/s");
  return `${match[1]} ${unit === "us" ? "µs" : unit}`;
}

const IN_MS = /** @type {Record<string, number>} */ ({
  s: 1000,
  ms: 1,
  µs: 1e-3,
  us: 1e-3,
  ns: 1e-6,
});

/** A latency such as "30 µs" in milliseconds; NaN if it is none. @param {string} latency */
export const milliseconds = (latency) =>
  parseFloat(latency) * (IN_MS[latency.replace(/^[\d. ]+/, "")] ?? NaN);

/**
 * Does this page watch a run that others control? The dialog of a replay says instead that its
 * ranks are gone.
 * @param {{known: Known, readonly?: boolean}} stage  or one side of a picture of two
 */
export const onlyWatches = ({ known, readonly }) =>
  !!readonly || (!!known.run?.readonly && known.state !== "replay");

/** Why nothing can be done to the ranks, or "". @param {Known} known */
export function whyNot(known) {
  const { run, state } = known;
  if (!run) return "Loading …";
  if (state === "empty") return "Nothing runs yet.";
  if (state === "replay") return "This is a replay: the ranks are gone.";
  if (isOver(known)) return "The run is over: the ranks are gone.";
  if (run.readonly) return "This page only watches: it cannot change the ranks.";
  return "";
}

/** Why nothing can be done to this one, or "". @param {Known} known @param {Target} target */
export function whyNotThis(known, target) {
  const gone = known.control?.ended ?? {};
  const why = whyNot(known);
  if (why) return why;
  const lost = ("rank" in target ? [target.rank] : [target.from, target.to]).find(
    (rank) => gone[rank],
  );
  return lost === undefined ? "" : `Rank ${lost} is gone: ${gone[lost]}.`;
}

/** Whether one more rank can join: some of the run's ranks do not train now. @param {Known} known */
export const canAddRank = (known) =>
  !!known.run?.elastic && (generationsOf(known).at(-1)?.members.length ?? 0) < known.run.ranks;

/** What the ranks do, for the frame that holds them. @param {Known} known */
export function ranksWords(known) {
  const { state, control, run } = known;
  if (!run) return "not known yet";
  if (state === "empty") return "none yet";
  if (state === "starting") return "starting";
  if (state === "replay") return "none, a replay";
  if (isOver(known)) return "ended";
  if (!control) return "running";
  if (control.held)
    return control.standing.length >= run.ranks
      ? "held, all stand"
      : `held, ${control.standing.length} of ${run.ranks} ` +
          `${control.standing.length === 1 ? "stands" : "stand"}`;
  const { frozen, slow_motion: factor } = control;
  const stopped = frozen?.length ? `${frozen.length} of ${run.ranks} frozen` : "";
  const motion = factor > 1 ? `slowed ×${grouped(factor)}` : "";
  return [stopped, motion].filter(Boolean).join(", ") || "full speed";
}

/**
 * The call that tells how long transfers take, and the slow motion in which it ran: the newest one
 * in which the reader did not hold the ranks; a hold is no part of a transfer.
 * @param {Known} known
 * @param {{key: string, motion: number}} before  the one until now
 */
export function measuredCall({ table, control }, before) {
  const { newest } = table;
  if (!newest || newest.key === before.key || heldWithin(table, newest.start, newest.end))
    return before;
  return { key: newest.key, motion: control?.slow_motion ?? 1 };
}

/**
 * The slow motion in which a call lasts about four seconds: of 1, 2, 5 times a power of ten, the
 * nearest above.
 * @param {{start: number, end: number}[]} flights  of a call
 * @param {number} steps  its longest chain of flights
 * @param {number} motion  the slow motion in which it was seen
 */
export function fittedMotion(flights, steps, motion) {
  const lengths = flights.map((f) => f.end - f.start).sort((a, b) => a - b);
  const length = (lengths[lengths.length >> 1] ?? 0) / motion;
  if (!length || !steps) return 1000;
  const wanted = 4e9 / (length * steps);
  const unit = 10 ** Math.floor(Math.log10(Math.max(1, wanted)));
  return Math.max(1, Math.min(1e6, unit * ([1, 2, 5, 10].find((k) => k * unit >= wanted) ?? 10)));
}

/**
 * Links worth offering: all between few ranks, else those that were seen or are emulated.
 * @param {Known} known
 * @param {Set<string>} seen  "from>to"
 * @returns {[number, number][]}
 */
export function linksOf(known, seen) {
  const ranks = known.run?.ranks ?? 0;
  const links = new Set([...seen, ...(known.control?.links ?? []).map((l) => `${l.from}>${l.to}`)]);
  if (ranks <= 4)
    for (let a = 0; a < ranks; a++)
      for (let b = 0; b < ranks; b++) if (a !== b) links.add(`${a}>${b}`);
  return [...links]
    .map((link) => /** @type {[number, number]} */ (link.split(">").map(Number)))
    .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
}

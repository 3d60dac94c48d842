// @ts-check
/**
 * What the stage says, as pure functions: numbers with their units, the badge, sentences, the axis.
 * @typedef {import("./model.js").Call} Call
 * @typedef {import("./player.js").Known} Known
 * @typedef {import("./player.js").Player} Player
 */
import { isOver } from "./player.js";
import { burstNumber } from "./bursts_of_run.js";

/** Three significant digits, without exponents. @param {number} x */
const digits = (x) => (x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2));
/** Thousands apart. @param {number} x */
export const grouped = (x) => String(Math.round(x)).replace(/\B(?=(\d{3})+$)/g, ",");
/** How many of what: "1 event", "2,048 events". @param {number} n @param {string} what */
export const counted = (n, what) =>
  `${grouped(n)} ${what}${n === 1 ? "" : /(s|x|ch|sh)$/.test(what) ? "es" : "s"}`;

/**
 * Return the number of a derived call, in words.
 * @param {{iteration: number, words?: import("./call_source.js").Words}} call
 */
export const numberWords = ({ iteration, words }) =>
  grouped(iteration + (words?.ofIterations ? 1 : 0));

/** A time as people say it. @param {number} ns */
export function duration(ns) {
  if (ns < 999.5) return `${Math.round(ns)} ns`;
  if (ns < 999.5e3) return `${digits(ns / 1e3)} µs`;
  return ns < 999.5e6 ? `${digits(ns / 1e6)} ms` : `${digits(ns / 1e9)} s`;
}

/**
 * How long what has not ended has lasted: so far, while the run goes on.
 * @param {number} ns @param {{state: string}} known
 */
export function lastedWords(ns, known) {
  const lasted = ns < 1e3 ? "less than 1 µs" : duration(ns);
  return isOver(known) ? `${lasted}, until the run ended` : `${lasted} so far`;
}

/**
 * What ranks do with their parts in a collective: now, then, going on.
 * @param {string} collective
 * @returns {[string, string, string]}
 */
export function combineWords(collective) {
  if (collective === "all_gather" || collective === "gather")
    return ["gather", "gathered", "are gathering"];
  if (collective === "broadcast" || collective === "scatter")
    return ["hand on", "handed on", "are handing on"];
  if (collective === "all_to_all") return ["exchange", "exchanged", "are exchanging"];
  if (collective === "barrier") return ["meet", "met", "are meeting"];
  return ["combine", "combined", "are combining"];
}

/**
 * What a call of n ranks does, in words: `what` are its bytes; now, or going on.
 * @param {string} collective
 * @param {number} n
 * @param {number} root -1 none
 * @param {string} what
 * @param {boolean} over
 */
export function deedWords(collective, n, root, what, over) {
  const others = n === 2 ? "the other" : `${n - 1} others`;
  const deeds = combineWords(collective)[over ? 0 : 2];
  if (collective === "barrier") return `${n} ranks ${deeds}`;
  if (root < 0) return `${n} ranks ${deeds} ${what}`;
  if (collective === "broadcast")
    return `Rank ${root} ${over ? "hands" : "is handing"} ${what} on to ${others}`;
  if (collective === "scatter")
    return `Rank ${root} ${over ? "hands" : "is handing"} each of ${n} ranks its part of ${what}`;
  if (collective === "gather")
    return `Rank ${root} ${over ? "gathers" : "is gathering"} ${what} from ${n} ranks`;
  return `${n} ranks ${deeds} ${what} on rank ${root}`;
}

/** Bytes as people say them, in powers of ten. @param {number} n */
export function bytes(n) {
  if (n < 1000) return `${n} B`;
  return n < 999.5e3
    ? `${digits(n / 1e3)} kB`
    : n < 999.5e6
      ? `${digits(n / 1e6)} MB`
      : `${digits(n / 1e9)} GB`;
}

/** The speed of the picture: 1/20,000 of real speed is "×1/20,000". @param {number} stretch */
export function speed(stretch) {
  if (stretch < 1.05) return "×1";
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(stretch)) - 1);
  return `×1/${stretch < 10 ? stretch.toFixed(1) : grouped(Math.round(stretch / unit) * unit)}`;
}

/** "all_reduce" and "ring" are the "Ring all-reduce". @param {Call} call */
export function titleOf(call) {
  if (call.collective === "p2p") return call.name ? `Messages of ${call.name}` : "Messages";
  const name = `${call.algorithm} ${call.collective}`.trim().replaceAll("_", "-");
  return name.charAt(0).toUpperCase() + name.slice(1);
}

/** Which call of how many. @param {Known} known @param {{number: number}} call */
export const callNumber = ({ table }, { number }) =>
  `call ${grouped(number)} of ${grouped(Math.max(table.calls.length, number))}`;

/**
 * What the picture is: real, which call of how many, how much slower, how far behind the ranks.
 * @param {import("./page_state.js").Look} look
 * @param {number} behind nanoseconds
 * @param {Player} player
 */
export function badge({ known, call: ownCall, current, live, held }, behind, player) {
  const call = current ?? ownCall;
  const over = isOver(known);
  const stands = known.state === "failed" && live; // at its last moment
  const by = call?.words;
  const parts = [by ? by.real : isPlanned(call) ? "planned: computed, nothing ran" : "real"];
  if (call && by) parts.push(`${by.units.iteration} ${numberWords(call)}`);
  else if (call?.collective === "p2p")
    parts.push(
      `${call.name ? `${call.name} · ` : ""}messages ` +
        `${burstNumber(known, call).map(grouped).join(" of ")}`,
    );
  else if (call) parts.push(callNumber(known, call));
  if (call?.left_out) parts.push(call.left_out);
  const older = (known.counters?.older ?? 0) + known.table.forgotten;
  if (older)
    parts.push(
      `the first ${older === 1 ? "event is" : `${counted(older, "event")} are`} not on this page`,
    );
  if (held) parts.push("held");
  else if (known.control?.held && live)
    parts.push("you hold the ranks"); // no pace is theirs
  else if (stands) return parts.join(" · ");
  else if (player.pace) parts.push(speed(1e6 / player.pace));
  else if (!player.key) parts.push("×1");
  else if (call) parts.push(speed(call.clock.stretch));
  if (over) parts.push(...(held ? [] : ["replayed"]));
  else if (live && !known.control?.held && Number.isFinite(behind))
    parts.push(`${Math.max(0, behind / 1e9).toFixed(1)} s behind`);
  return parts.join(" · ");
}

/** "fc1.weight" is "fc1, weight", "7.bias" is "layer 7, bias"; other names stay. @param {string} name */
export function parameterLabel(name) {
  const [, layer = "", kind = ""] = name.match(/^([\w.]+)\.(weight|bias)$/) ?? [];
  return kind ? `${/^\d+$/.test(layer) ? "layer " : ""}${layer}, ${kind}` : name;
}

/** What goes from rank to rank in a call. @param {{collective: string} | null | undefined} call */
export const pieceName = (call) => (call?.collective === "p2p" ? "message" : "chunk");

/**
 * Whether a call is theory's own: its rows were computed.
 * @param {{name?: string} | null | undefined} call
 */
export const isPlanned = (call) => call?.name === "planned";

/**
 * The state's glyph and word, and the class that colours it.
 * @param {Known} known @param {boolean} held  the view is
 * @returns {[string, string]}
 */
export function stateOf(known, held) {
  // nothing is known yet, also not that there is nothing
  if (!known.run) return ["◌ Loading", "starting"];
  if (known.state === "failed") return ["✕ Failed", "failed"];
  if (held) return ["❚❚ View held", "held"];
  if (known.control?.held && known.state === "running") return ["■ Ranks held", "ours"];
  const words = {
    empty: "○ Nothing runs yet",
    starting: "◌ Starting",
    running: "● Live",
    finished: "■ Finished",
    replay: "▶ Replay",
  };
  return [words[/** @type {keyof typeof words} */ (known.state)] ?? known.state, known.state];
}

/**
 * The run in a line: ranks, iteration, loss.
 * @param {Known} known
 * @param {{iteration: number, loss: number} | null} [then]  of the moment on show, where that is not
 *   the newest: counted from 0, and the loss by then, NaN none
 */
export function factsOf(known, then = null) {
  const { run, counters } = known;
  if (!run?.ranks) return ""; // nothing has run yet
  const parts = [counted(run.ranks, "rank")];
  if (counters && then && then.iteration < counters.iteration) {
    const newest = grouped(counters.iteration + 1);
    parts.push(
      `iteration ${grouped(then.iteration + 1)} (of ${newest}${isOver(known) ? "" : " so far"})`,
    );
    if (Number.isFinite(then.loss)) parts.push(`loss then ${then.loss.toPrecision(3)}`);
  } else if (counters && counters.iteration >= 0) {
    parts.push(
      "iteration " +
        `${grouped(counters.iteration + 1)}${run.iterations > 0 ? ` of ${grouped(run.iterations)}` : ""}`,
    );
    // of a run that broke off the newest iteration's loss is that of some ranks
    const ends = counters.loss?.toPrecision(3);
    const by = Number.isFinite(then?.loss) ? then?.loss.toPrecision(3) : ends;
    if (by) parts.push(`loss ${by === ends ? "" : "then "}${by}`);
  }
  return parts.join(" · ");
}

/** What recording costs and has lost, measured, and what moves messages. @param {Known} known */
export function meter(known) {
  const { counters, run } = known;
  if (!counters) return "";
  const parts = [];
  // of a job that has hardly begun it is no share yet
  const share = counters.record_share ?? Infinity;
  if (share <= 1) parts.push(`recording ${percent(share)} of step time`);
  parts.push(
    !isOver(known) && counters.per_second
      ? `${thousands(counters.per_second)} events/s`
      : counted(counters.events, "event"),
  );
  if (counters.coarser)
    parts.push(`coarser: ${counters.coarser.map(grouped).join(" chunks in ")} rows`);
  if (counters.folded)
    parts.push(`on this page ${counters.folded.map(thousands).join(" of them in ")} rows`);
  parts.push(`${grouped(counters.dropped)} dropped`);
  if (run?.mover) parts.push(`mover: ${run.mover}`);
  return parts.join(" · ");
}

/** @param {number} share */
export const percent = (share) => `${(share * 100).toFixed(share < 0.001 ? 3 : 2)} %`;
/** @param {number} n */
const thousands = (n) =>
  n < 1000
    ? String(Math.round(n))
    : n < 1e6
      ? `${digits(n / 1000)} k`
      : `${digits(n / 1e6)} million`;

/** What there is to say while no call is on show. @param {Known} known */
export function sentence(known) {
  if (known.state === "failed" && known.words) return known.words;
  if (!known.run) return "Loading …";
  if (known.state === "empty")
    return "Nothing runs yet. A run that starts is drawn here while it happens.";
  if (known.state === "starting") return "The ranks are starting.";
  if (known.run?.cells && known.table.rows)
    return "No message has left yet, and no collective is complete.";
  if (known.state === "running")
    return "The ranks run. Waiting for the first collective that all of them complete.";
  return known.words || "The run is over, and no chunk was recorded in it.";
}

/**
 * What a wait was for: a chunk, or room to put one.
 * @param {Call["waits"][0]} wait
 * @param {boolean} [full]
 * @param {string} [piece]  what it is called
 */
export function awaited(wait, full = false, piece = "chunk") {
  if (wait.name === "slots full") return `room at rank ${wait.peer}`;
  return full ? `${piece} ${wait.chunk} from rank ${wait.peer}` : `rank ${wait.peer}`;
}

/**
 * The axis: round numbers, 1, 2 or 5 times a power of ten apart, at most `most` of them after 0.
 * @param {number} span nanoseconds @param {number} most
 * @returns {{t: number, label: string}[]}
 */
export function ticks(span, most) {
  if (!(span > 0)) return [{ t: 0, label: "0" }];
  const raw = span / most;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const apart = unit * ([1, 2, 5, 10].find((k) => k * unit >= raw) ?? 10);
  const [size, name] =
    span < 1e3 ? [1, "ns"] : span < 1e6 ? [1e3, "µs"] : span < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  const places = Math.max(0, -Math.floor(Math.log10(apart / size) + 1e-9));
  const marks = [{ t: 0, label: "0" }];
  for (let k = 1; k * apart <= span * (1 + 1e-9); k++)
    marks.push({ t: k * apart, label: `${((k * apart) / size).toFixed(places)} ${name}` });
  return marks;
}

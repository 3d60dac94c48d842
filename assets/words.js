// @ts-check
/**
 * What the stage says, as pure functions: numbers with their units, the badge, sentences, the axis.
 * @typedef {import("./model.js").Call} Call
 * @typedef {import("./model.js").Known} Known
 */

/** Three significant digits, without exponents. @param {number} x */
const digits = (x) => (x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2));
/** Thousands apart. @param {number} x */
export const grouped = (x) => String(Math.round(x)).replace(/\B(?=(\d{3})+$)/g, ",");

/** A time as people say it. @param {number} ns */
export function duration(ns) {
  if (ns < 999.5) return `${Math.round(ns)} ns`;
  if (ns < 999.5e3) return `${digits(ns / 1e3)} µs`;
  return ns < 999.5e6 ? `${digits(ns / 1e6)} ms` : `${digits(ns / 1e9)} s`;
}

/** Bytes as people say them, in powers of ten. @param {number} n */
export function bytes(n) {
  if (n < 1000) return `${n} B`;
  return n < 999.5e3 ? `${digits(n / 1e3)} kB` : n < 999.5e6 ? `${digits(n / 1e6)} MB` : `${digits(n / 1e9)} GB`;
}

/** The speed of the picture: 1/20,000 of real speed is "×1/20,000". @param {number} stretch */
export function speed(stretch) {
  if (stretch < 1.05) return "×1";
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(stretch)) - 1);
  return `×1/${stretch < 10 ? stretch.toFixed(1) : grouped(Math.round(stretch / unit) * unit)}`;
}

/** "all_reduce" and "ring" are the "Ring all-reduce". @param {Call} call */
export function titleOf(call) {
  const name = `${call.algorithm} ${call.collective}`.trim().replaceAll("_", "-");
  return name.charAt(0).toUpperCase() + name.slice(1);
}

/**
 * What the picture is: real, which call of how many, how much slower, how far behind the ranks.
 * @param {Call} call @param {Known} known @param {number} behind nanoseconds, or NaN
 */
export function badge(call, known, behind) {
  const total = Math.max(known.counters?.calls ?? 0, call.number);
  const parts = ["real", `call ${grouped(call.number)} of ${grouped(total)}`];
  if (total > known.calls.length) parts.push("sampled");
  if (call.left_out) parts.push(call.left_out);
  parts.push(call.clock.even ? speed(call.clock.stretch) : `${speed(call.clock.stretch)}, slower where more happens`);
  const over = known.state !== "running" && known.state !== "starting";
  if (over) parts.push("replayed");
  else if (Number.isFinite(behind)) parts.push(`${Math.max(0, behind / 1e9).toFixed(1)} s behind`);
  return parts.join(" · ");
}

/**
 * The state's glyph and word, and the class that colours it.
 * @param {Known} known @param {boolean} held
 * @returns {[string, string]}
 */
export function stateOf(known, held) {
  if (known.state === "failed") return ["✕ Failed", "failed"];
  if (held) return ["❚❚ View held", "held"];
  const words = { empty: "○ Nothing runs yet", starting: "◌ Starting", running: "● Live", finished: "■ Finished", replay: "▶ Replay" };
  return [words[/** @type {keyof typeof words} */ (known.state)] ?? known.state, known.state];
}

/** The run in a line: ranks, iteration, loss. @param {Known} known */
export function factsOf(known) {
  const { run, counters } = known;
  if (!run) return "";
  const parts = [`${run.ranks} ${run.ranks === 1 ? "rank" : "ranks"}`];
  if (counters && counters.iteration >= 0) {
    parts.push(`iteration ${grouped(counters.iteration + 1)}${run.iterations > 0 ? ` of ${grouped(run.iterations)}` : ""}`);
    if (counters.loss !== null) parts.push(`loss ${counters.loss.toPrecision(3)}`);
  }
  return parts.join(" · ");
}

/**
 * One sentence: who holds up whom, in numbers, from the rows of this call.
 * @param {Known} known @param {Call | null} call
 */
export function sentence(known, call) {
  if (known.state === "failed" && known.words) return known.words;
  if (!call) {
    if (known.state === "empty") return "Nothing runs yet. A run that starts is drawn here while it happens.";
    if (known.state === "starting") return "The ranks are starting.";
    if (known.state === "running") return "The ranks run. Waiting for the first collective that all of them complete.";
    return known.words || "The run is over, and no chunk was recorded in it.";
  }
  const span = call.end - call.start;
  const longest = call.waits.reduce((best, w) => (!best || w.end - w.start > best.end - best.start ? w : best),
    /** @type {Call["waits"][0] | null} */ (null));
  const whole = (call.nbytes > 0 ? bytes(call.nbytes) : "nothing") + (call.name ? ` (${call.name})` : "");
  const moved = `${call.ranks} ranks combined ${whole} in ${duration(span)}`;
  if (!longest || (longest.end - longest.start) * 10 < span) return `${moved}; nobody waited long.`;
  return `${moved}; rank ${longest.rank} waited longest, ${duration(longest.end - longest.start)} for ${awaited(longest)}.`;
}

/** What a wait was for: a chunk, or room to put one. @param {Call["waits"][0]} wait @param {boolean} [full] */
export function awaited(wait, full = false) {
  if (wait.name === "slots full") return `room at rank ${wait.peer}`;
  return full ? `chunk ${wait.chunk} from rank ${wait.peer}` : `rank ${wait.peer}`;
}

/**
 * The last moments up to the playhead, in words, oldest first.
 * @param {Call} call @param {number} t @param {number} lines
 * @returns {[string, string][]}
 */
export function story(call, t, lines) {
  const said = [];
  for (const f of call.flights) {
    if (f.end > t) continue;
    const did = f.fused ? "added" : "took";
    said.push({ at: f.end, words: `rank ${f.to} ${did} chunk ${f.chunk} from rank ${f.from}, ${bytes(f.nbytes)} in ${duration(f.end - f.start)}` });
  }
  for (const w of call.waits) {
    if (w.end <= t && (w.end - w.start) * 20 > call.end - call.start)
      said.push({ at: w.end, words: `rank ${w.rank} had waited ${duration(w.end - w.start)} for ${awaited(w, true)}` });
  }
  for (const [rank, start] of call.came)
    if (start <= t && start * 20 > call.end - call.start) said.push({ at: start, words: `rank ${rank} joined in, late` });
  said.sort((a, b) => a.at - b.at);
  return said.slice(-lines).map(({ at, words }) => [duration(at), words]);
}

/**
 * The axis: round numbers, 1, 2 or 5 times a power of ten apart, at most `most` of them after 0.
 * @param {number} span nanoseconds @param {number} most
 * @returns {{t: number, label: string}[]}
 */
export function ticks(span, most) {
  if (!(span > 0)) return [{ t: 0, label: "0" }];
  const raw = span / most, unit = 10 ** Math.floor(Math.log10(raw));
  const apart = unit * ([1, 2, 5, 10].find((k) => k * unit >= raw) ?? 10);
  const [size, name] = span < 1e3 ? [1, "ns"] : span < 1e6 ? [1e3, "µs"] : span < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  const places = Math.max(0, -Math.floor(Math.log10(apart / size) + 1e-9));
  const marks = [{ t: 0, label: "0" }];
  for (let k = 1; k * apart <= span * (1 + 1e-9); k++) marks.push({ t: k * apart, label: `${((k * apart) / size).toFixed(places)} ${name}` });
  return marks;
}

// @ts-check
/**
 * What the parameter server's picture says: one sentence, the last updates, every mark under the
 * pointer, and which process holds which version at the playhead. Pure functions; no claim that the
 * picture does not show.
 *
 * @typedef {import("../../engine/player.js").Known} Known
 * @typedef {import("./frame.js").ServerFrame} ServerFrame
 * @typedef {import("./frame.js").Rule} Rule
 * @typedef {import("./index.js").ServerIndex} ServerIndex
 */
import { heldByReader } from "../../engine/run_words.js";
import { countUntil } from "../../engine/search.js";
import { fateOf } from "./frame.js";
import { besidesWords, goneWords, regainedWords } from "./keys.js";
import { isOver } from "../../engine/player.js";
import { failedWords } from "../../engine/failure_caption.js";
import { bytes, counted, duration, grouped, sentence } from "../../engine/format.js";

const CROWD = 2; // pushes that wait at a shard are worth a sentence
const LONG_QUEUE = 1e5; // ns in a queue that are worth a word

/** "worker 3", "workers 2 and 4", "workers 2 to 7". @param {number[]} ranks */
export function workersOf(ranks) {
  if (ranks.length === 1) return `worker ${ranks[0]}`;
  if (ranks.length > 3 && ranks.every((r, i) => !i || r === ranks[i - 1] + 1))
    return `workers ${ranks[0]} to ${ranks[ranks.length - 1]}`;
  return ranks.length
    ? `workers ${ranks.slice(0, -1).join(", ")} and ${ranks[ranks.length - 1]}`
    : "no worker";
}

const ALL_OF = ["", "The worker", "Both", "All three", "All four"];
/** "All three" workers. @param {number} count */
const allWorkers = (count) => ALL_OF[count] ?? `All ${count} workers`;

/** @param {string} words */
const begin = (words) => words.charAt(0).toUpperCase() + words.slice(1);
/**
 * A rule in a line: "SSP, at most 3 ahead"; of Elephas, "hogwild, once per epoch".
 * @param {Rule} rule
 */
export function ruleWords({ consistency, low, high, together, mode, once_per }) {
  if (mode) return `${mode}, once per ${once_per}`;
  const name =
    consistency === "" ? "" : consistency.length <= 4 ? consistency.toUpperCase() : consistency;
  if (low === null || together) return name;
  return low === high
    ? `${name}, at most ${low} ahead`
    : `${name}, ${low} to ${high ?? "any"} ahead`;
}

/**
 * Who holds up whom, in numbers.
 * @param {Known} known @param {ServerFrame | null} frame @param {Rule} rule @param {boolean} live
 */
export function sentenceOf(known, frame, rule, live) {
  if (known.state === "failed" && known.words && live) return failedWords(known);
  if (!frame)
    return known.state === "running"
      ? "The ranks run. Waiting for the first push."
      : isOver(known) && known.state !== "failed"
        ? known.words || "The run is over, and nothing was pushed in it."
        : sentence(known);
  const { workers, min, slowest, shards } = frame;
  const blocked = workers.filter((w) => w.doing === "blocked");
  const lost = workers.filter((w) => w.doing === "lost");
  const others = slowest.filter((rank) => !blocked.some((w) => w.rank === rank));
  const frozen =
    live && !isOver(known)
      ? (known.control?.frozen ?? []).filter((rank) => workers.some((w) => w.rank === rank))
      : [];
  const stands = heldByReader(known, live);
  const gone = lost.length
    ? `${begin(workersOf(lost.map((w) => w.rank)))} ${lost.length > 1 ? "are" : "is"} ` +
      `gone, and the bound no longer counts ${lost.length > 1 ? "them" : "it"}. `
    : "";
  const why =
    frozen.length && others.some((rank) => frozen.includes(rank)) ? ", frozen by you" : "";
  const who = workersOf(others.length ? others : slowest);
  const withLosses = (/** @type {string} */ words) => stands + goneWords(shards) + gone + words;
  if (blocked.length) {
    const names = begin(workersOf(blocked.map((w) => w.rank)));
    const one = blocked.length === 1;
    const still =
      `${who} ${others.length > 1 ? "are" : "is"} ` +
      `still in iteration ${grouped(min + 1)}${why}`;
    if (rule.models > 1)
      return withLosses(
        `${names} stand${one ? "s" : ""} at the wall of ${one ? "its" : "their"} model: ` +
          `no worker may start more than ${rule.low} ahead of the slowest that trains it.`,
      );
    const unapplied = shards.find((s) => Number.isNaN(s.gone) && s.queue.length);
    if (rule.low === 0 && !others.length)
      return withLosses(
        `${slowest.length === workers.length ? allWorkers(workers.length) : begin(workersOf(slowest))} ` +
          `${slowest.length === 1 ? "has" : "have"} pushed` +
          (unapplied
            ? `; ${shards.length > 1 ? `server ${unapplied.rank}` : "the server"} has ` +
              `${unapplied.queue.length} of ${counted(workers.length - lost.length, frame.pushes)} ` +
              `of iteration ${grouped(min + 1)}.`
            : `; the ${frame.pushes}s of iteration ${grouped(min + 1)} are on their way.`),
      );
    if (rule.low === 0)
      return withLosses(
        `${names} wait${one ? "s" : ""} at the wall: ${still}, and no worker starts ` +
          `${grouped(min + frame.stride + 1)} before ` +
          `${others.length > 1 ? `their ${frame.pushes}s are` : `its ${frame.pushes} is`} in.`,
      );
    return withLosses(
      `${names} stand${one ? "s" : ""} at the wall: ${still}, and no worker may start more ` +
        `than ${rule.low} ahead${rule.low !== rule.high ? " unless granted" : ""}.`,
    );
  }
  const active = workers.filter((w) => w.doing !== "lost" && w.doing !== "ended");
  const living = shards.filter((s) => Number.isNaN(s.gone));
  const stale = [...active].sort((a, b) => b.worst - a.worst)[0];
  const crowd = shards
    .filter((s) => !s.kept && s.queue.length >= CROWD)
    .sort((a, b) => b.queue.length - a.queue.length)[0];
  if (active.length === 0 && workers.length)
    return withLosses(
      `All workers have pushed their last ${frame.pushes}; the parameters are version ` +
        `${living.map((s) => s.versions.join(" | ")).join(" and ")}.`,
    );
  if (crowd)
    return withLosses(
      `${counted(crowd.queue.length, "push")} wait at shard ` +
        `${crowd.rank}${shards.length > 1 ? `, which holds ${Math.round(crowd.share * 100)} % of the keys` : ""}.`,
    );
  const ahead = Math.max(...active.map((w) => w.ahead));
  const fastest = active.filter((w) => w.ahead === ahead).map((w) => w.rank);
  const spread =
    ahead > 0 && fastest.length < active.length
      ? `${begin(workersOf(fastest))} ${fastest.length > 1 ? "are" : "is"} ${ahead} ahead of ${who}`
      : active.every((w) => w.iteration === min)
        ? `All are in iteration ${grouped(min + 1)}`
        : `All pushes of iteration ${grouped(min)} are in`;
  const old =
    stale && stale.worst > 0
      ? `worker ${stale.rank} computes on parameters that lack ${counted(stale.worst, "update")}`
      : "all hold the newest parameters";
  const free =
    rule.low === null ? (rule.waits ? "" : "no worker waits for another") : "no worker is stopped";
  return withLosses(`${[spread, free].filter(Boolean).join(", ")}; ${old}.`);
}

/**
 * The last updates up to t, oldest first.
 * @param {ServerIndex} index
 * @param {number} t
 * @param {number} lines
 * @param {ServerFrame} [frame]
 * @returns {[string, string][]}
 */
export function lastUpdates(index, t, lines, frame) {
  const all = [...index.servers.values()].flatMap(({ rank, done }) => {
    const until = countUntil(done, t, (push) => push.end);
    return done
      .slice(Math.max(0, until - lines), until)
      .map((push) => ({ end: push.end, words: () => updateWords(rank, push, frame?.pushes) }));
  });
  const taken = (frame?.shards ?? []).flatMap(({ regained }) =>
    regained.map((one) => ({ end: one.end, words: () => regainedWords(one) })),
  );
  return [...all, ...taken]
    .sort((a, b) => a.end - b.end)
    .slice(-lines)
    .map(({ end, words }) => [momentWords(end), words()]);
}

/** A moment of the run, in the unit that `duration` has and a tenth of a ms. @param {number} ns */
export const momentWords = (ns) =>
  ns < 999.5e6 ? `${(ns / 1e6).toFixed(1)} ms` : `${(ns / 1e9).toFixed(4)} s`;

/**
 * @param {number} shard
 * @param {import("./index.js").Push} push
 * @param {string} [pushes]  what a push is
 */
export function updateWords(shard, push, pushes = "gradient") {
  const waited = push.begin - push.arrive;
  const queue = waited > LONG_QUEUE ? `, after ${duration(waited)} at the shard` : "";
  const what = `worker ${push.worker}'s ${pushes} of iteration ${grouped(push.iteration + 1)}`;
  if (push.dropped)
    return (
      `shard ${shard} dropped ${what}: ${counted(push.stale, "update")} stale, ` +
      `${counted(push.dropped, "sample")} left out`
    );
  return (
    `shard ${shard} applied ${what}: ` +
    `${push.stale ? `${counted(push.stale, "update")} stale` : "not stale"}, version is now ` +
    `${grouped(push.version)}${queue}`
  );
}

/**
 * Which process holds which version: "w at time t".
 * @param {ServerFrame} frame
 * @returns {string[]}
 */
export function versionsAt({ t, workers, shards }) {
  const lines = [
    `w at ${duration(t)}`,
    ...shards.map((s) => `shard ${s.rank} is at version ${s.versions.map(grouped).join(" | ")}`),
  ];
  for (const w of workers) {
    const held = w.held
      .map((v, i) =>
        v < 0 ? "none" : `${grouped(v)}${w.behind[i] ? ` (${w.behind[i]} behind)` : ""}`,
      )
      .join(", ");
    lines.push(`worker ${w.rank} holds ${held}`);
  }
  return lines;
}

/** What a worker does. @param {ServerFrame} frame */
const doings = ({ pushes }) => ({
  start: "has not been granted its first iteration yet",
  pull: "pulls parameters",
  compute: pushes === "gradient" ? "computes a gradient" : "trains on its partition",
  push: `pushes its ${pushes}`,
  blocked: "is stopped by the bound",
  waits: "waits for a server's answer",
  ended: "has done all its iterations",
  lost: "is gone",
});

/**
 * A worker.
 * @param {ServerFrame} frame
 * @param {number} i
 * @param {Rule} rule
 * @param {string} incident
 */
export function workerWords(frame, i, rule, incident) {
  const w = frame.workers[i];
  const lines = [
    `worker ${w.rank}, iteration ${grouped(w.iteration + 1)}: ` +
      `${doings(frame)[w.doing]}${w.since > 0 && w.doing !== "ended" ? `, for ${duration(frame.t - w.since)}` : ""}`,
  ];
  if (incident) lines.push(incident);
  lines.push(
    ...frame.shards.map((s, k) =>
      w.held[k] < 0
        ? `it holds nothing of shard ${s.rank} yet`
        : `it holds version ${grouped(w.held[k])} of shard ` +
          `${s.rank}${w.behind[k] ? `, ${counted(w.behind[k], "update")} behind` : ", the newest"}`,
    ),
  );
  if (w.limit !== null && w.doing !== "lost")
    lines.push(
      "it may start up to iteration " +
        `${grouped(w.limit + 1)}${rule.low !== rule.high && w.limit > frame.min + (rule.low ?? 0) ? `, ${w.limit - frame.min - (rule.low ?? 0)} more than the bound: granted` : ""}`,
    );
  return lines;
}

/**
 * A shard, and who holds what of it.
 * @param {ServerFrame} frame
 * @param {number} k
 * @param {ServerIndex} index
 */
export function shardWords(frame, k, index) {
  const s = frame.shards[k];
  const lines = [
    `shard ${s.rank} at ${duration(frame.t)}: version ` +
      `${s.versions.map(grouped).join(" | ")}; ${Math.round(s.share * 100)} % of the keys`,
    ...besidesWords(s),
  ];
  if (!Number.isNaN(s.gone)) return [`shard ${s.rank} is gone`];
  if (s.applying.length)
    lines.push(
      `it applies the ${frame.pushes}${s.applying.length > 1 ? "s" : ""} of ` +
        `${workersOf(s.applying.map((p) => p.worker))}`,
    );
  if (s.queue.length)
    lines.push(
      s.kept
        ? `${workersOf(s.queue.map((p) => p.worker))}: in, kept until all of the clock are`
        : "here and waiting: " +
            `${s.queue.map((p) => `worker ${p.worker} for ${duration(frame.t - p.arrive)}`).join(", ")}`,
    );
  const bytes_in = [...index.pairs.values()]
    .filter((p) => p.server === s.rank)
    .reduce(
      (sum, p) =>
        sum + p.pushes.reduce((n, push) => n + (push?.arrive <= frame.t ? push.nbytes : 0), 0),
      0,
    );
  lines.push(
    `${bytes(bytes_in)} of ${frame.pushes}s have come in`,
    ...frame.workers.map(
      (w) =>
        `worker ${w.rank} holds ${w.held[k] < 0 ? "none" : "version " + `${grouped(w.held[k])}${w.behind[k] ? `, ${w.behind[k]} behind` : ""}`}`,
    ),
  );
  return lines;
}

/**
 * A push or a pull on its way.
 * @param {{kind: string, from: number, to: number, start: number, end: number, share: number,
 *   nbytes: number, iteration: number, version: number}} comet
 * @param {string} [pushes]  what a push is
 */
export function cometWords(comet, pushes = "gradient") {
  const { kind, from, to, start, end, share, nbytes, iteration, version } = comet;
  const done = `${Math.round(share * 100)} % of its ${duration(end - start)}, ${bytes(nbytes)}`;
  return kind === "push"
    ? [
        `push: worker ${from}'s ${pushes} of iteration ${grouped(iteration + 1)} to shard ${to}`,
        `${pushes === "gradient" ? "computed on" : "trained from"} version ${grouped(version)}`,
        done,
      ]
    : [
        `pull: version ${grouped(version)} of shard ${from} to worker ${to}`,
        `for its iteration ${grouped(iteration + 1)}`,
        done,
      ];
}

/**
 * What became of the pushes of an iteration.
 * @param {ServerIndex} index
 * @param {number} worker
 * @param {number} iteration
 * @param {number} t
 * @param {string} [pushes]  what a push is
 * @returns {string[]}
 */
export function logWords(index, worker, iteration, t, pushes = "gradient") {
  const fates = {
    flying: "in flight",
    there: "at the shard, not applied yet",
    applied: "",
    dropped: "",
  };
  return [...index.servers.keys()].flatMap((server) => {
    const push = index.pairs.get(worker * 65_536 + server)?.pushes[iteration];
    const fate = fateOf(push, t);
    if (!push || !fate) return [];
    return [
      fate === "applied" || fate === "dropped"
        ? updateWords(server, push, pushes)
        : `worker ${worker}'s push of iteration ${grouped(iteration + 1)} to shard ${server}: ` +
          `${fates[fate]}`,
    ];
  });
}

/** The whole picture for who cannot see it. @param {ServerFrame} frame */
export function spokenWords(frame) {
  const workers = frame.workers.map(
    (w) =>
      `worker ${w.rank} in iteration ${w.iteration + 1} ${doings(frame)[w.doing]}, ` +
      `${w.worst ? `${w.worst} behind` : "newest"}`,
  );
  const shards = frame.shards.map(
    (s) =>
      `shard ${s.rank} at version ` +
      `${s.versions.join(" | ")}${s.queue.length ? `, ${s.queue.length} in its queue` : ""}`,
  );
  const moving = frame.comets.map((c) => `${c.kind} from rank ${c.from} to rank ${c.to}`);
  return [...workers, ...shards, ...moving].join("; ");
}

// @ts-check
/**
 * What the picture of a run with actors says: one sentence, the last moments, every mark under the
 * pointer. Pure functions; no claim that the picture does not show.
 *
 * @typedef {import("../../engine/player.js").Known} Known
 * @typedef {import("./frame.js").RlFrame} RlFrame
 * @typedef {import("./index.js").RlIndex} RlIndex
 * @typedef {import("./index.js").RlRoles} RlRoles
 * @typedef {import("./place.js").Spot} Spot
 */
import { isOver } from "../../engine/player.js";
import { failedWords } from "../../engine/failure_caption.js";
import { countUntil } from "../../engine/search.js";
import { bytes, counted, duration, grouped, sentence } from "../../engine/format.js";
import { allOf, heldByReader, processes } from "../../engine/run_words.js";
import { shortNumber } from "./lines.js";

export const EPISODES = 20; // over which the mean return is taken

/** What a message is. @type {Record<string, string>} */
export const MESSAGE_WORDS = {
  experience: "experience",
  minibatch: "a minibatch",
  priorities: "priorities",
  gradients: "gradients",
  parameters: "parameters",
  request: "a request for a minibatch",
  pull: "a request for parameters",
  grant: "the version number of the parameters that follow",
  farewell: "the number of blocks sent: no more follow",
};

/** "actor 3", "actors 3 and 5", "4 actors". @param {string} role @param {number[]} ranks */
function named(role, ranks) {
  if (ranks.length === 1) return `${role} ${ranks[0]}`;
  return ranks.length === 2 ? `${role}s ${ranks[0]} and ${ranks[1]}` : `${ranks.length} ${role}s`;
}

/** @param {string} words */
const begins = (words) => words.charAt(0).toUpperCase() + words.slice(1);

/**
 * The mean return of the last episodes that ended by t; NaN: none did.
 * @param {RlIndex} index
 * @param {number[]} actors
 * @param {number} t
 */
export function meanReturn(index, actors, t) {
  const all = actors.flatMap((rank) => {
    const { t: times, v } = index.of(rank, "return");
    const end = countUntil(times, t, Number);
    const from = Math.max(0, end - EPISODES);
    return v.slice(from, end).map((value, i) => ({ t: times[from + i], value }));
  });
  const last = all.sort((a, b) => a.t - b.t).slice(-EPISODES);
  return last.length ? last.reduce((sum, one) => sum + one.value, 0) / last.length : NaN;
}

/**
 * Who waits for whom, and how old what is played by is.
 * @param {Known} known
 * @param {RlFrame | null} frame
 * @param {RlIndex | null} index
 * @param {RlRoles | null} roles
 * @param {boolean} live
 */
export function sentenceOf(known, frame, index, roles, live) {
  if (known.state === "failed" && known.words && live) return failedWords(known);
  if (!frame || !index || !roles || frame.actors.every((one) => !one.frames))
    return known.state === "running"
      ? "The ranks run. Waiting for the first frame that an actor plays."
      : isOver(known) && known.state !== "failed"
        ? known.words || "The run is over, and nothing was played in it."
        : sentence(known);
  const { actors, learners, replays, bundles } = frame;
  const gone = actors.filter((one) => one.does === "lost").map((one) => one.rank);
  const lost = gone.length
    ? `${begins(named(bundles ? "bundle" : "actor", gone))} ${gone.length > 1 ? "are" : "is"} lost, and the others go on. `
    : "";
  const mean = meanReturn(index, roles.actors, frame.t);
  const returns = Number.isFinite(mean)
    ? `; mean return ${shortNumber(Number(mean.toFixed(2)))}`
    : "";
  if (learners.every((one) => one.does === "ended" || one.does === "lost"))
    return `${lost}All updates are made, ${grouped(actors.reduce((sum, one) => sum + one.frames, 0))} frames played${returns}.`;
  if (bundles) return lost + bundleSentence(frame) + returns + ".";
  const filling = replays.filter((one) => one.needed > 0);
  if (filling.length && learners.every((one) => !one.updates)) {
    const needed = filling.reduce((sum, one) => sum + one.needed, 0);
    return `${lost}Actors fill replay: ${grouped(needed)} more transitions, then ${named("learner", roles.learners)} ${learners.length > 1 ? "begin" : "begins"}.`;
  }
  return `${heldByReader(known, live)}${lost}${begins(doingSentence(frame))}${lagWords(frame)}${returns}.`;
}

/** @param {RlFrame} frame */
function doingSentence({ actors, learners, replays, servers }) {
  const waits = learners.find((one) => one.does === "waits");
  const living = actors.filter((one) => one.does !== "lost");
  const play = living.filter((one) => one.words === "plays").length;
  const pulls = living.filter((one) => one.does === "waits");
  const who =
    living.length === 1
      ? `actor ${living[0].rank} ${living[0].does === "waits" ? "waits for parameters" : living[0].words || "is idle"}`
      : play === living.length
        ? `${allOf(play)} actors play`
        : `${play} of ${living.length} actors ${play === 1 ? "plays" : "play"}`;
  if (waits) {
    const replay = replays.some((one) => one.rank === waits.forWhom);
    const whom = replay
      ? `a minibatch from replay ${waits.forWhom}`
      : waits.held
        ? `server ${waits.forWhom} to grant its next update`
        : `parameters from server ${waits.forWhom}`;
    return `learner ${waits.rank} waits for ${whom}; ${who}`;
  }
  const learner = learners.find((one) => one.does === "works");
  if (pulls.length && living.length > 1)
    return `${named(
      "actor",
      pulls.map((one) => one.rank),
    )} ${pulls.length > 1 ? "wait" : "waits"} for parameters from ${servers.length ? "server" : "learner"} ${pulls[0].forWhom}; ${who}`;
  return learner ? `learner ${learner.rank} ${learner.words}; ${who}` : who;
}

/** @param {RlFrame} frame */
function bundleSentence({ learners, actors }) {
  const waits = learners.find((one) => one.does === "waits");
  const play = actors.filter((one) => one.words === "plays").map((one) => one.rank);
  const living = learners.filter((one) => one.does !== "lost");
  if (waits)
    return waits.held
      ? `Bundle ${waits.rank} waits for server ${waits.forWhom} to grant its next update`
      : `Bundle ${waits.rank} waits for parameters from server ${waits.forWhom}`;
  if (!play.length) return "All bundles learn from what they have played themselves";
  return living.length === play.length && play.length > 1
    ? `${begins(allOf(play.length))} bundles play`
    : `${begins(named("bundle", play))} ${play.length > 1 ? "play" : "plays"}`;
}

/** @param {RlFrame} frame */
function lagWords({ actors }) {
  const living = actors.filter((one) => one.does !== "lost");
  const worst = living.reduce((a, b) => (b.behind > a.behind ? b : a), living[0]);
  if (!worst) return "";
  if (!worst.behind) return "; all play by the newest parameters";
  return `; ${living.length > 1 ? "the oldest" : "its"} parameters are ${counted(worst.behind, "update")} behind`;
}

/**
 * The last moments up to t: pulls, updates, what replay dropped.
 * @param {RlIndex} index
 * @param {RlRoles} roles
 * @param {number} t
 * @param {number} most
 * @returns {[string, string][]} when, what
 */
export function lastLearned(index, roles, t, most) {
  const lines = /** @type {[number, string][]} */ ([]);
  const take = (
    /** @type {number[]} */ ranks,
    /** @type {string} */ name,
    /** @type {(rank: number, value: number, at: number) => string} */ words,
  ) => {
    for (const rank of ranks) {
      const { t: times, v } = index.of(rank, name);
      const end = countUntil(times, t, Number);
      for (let i = Math.max(0, end - most); i < end; i++)
        lines.push([times[i], words(rank, v[i], times[i])]);
    }
  };
  take(roles.learners, "loss", (rank, value, at) => {
    const age = index.last(index.of(rank, "sample age"), at);
    const old = Number.isFinite(age)
      ? `, on samples ${counted(Math.round(age), "update")} old`
      : "";
    return `learner ${rank} has computed a loss of ${shortNumber(value)}${old}`;
  });
  take(
    roles.actors,
    "policy lag",
    (rank, value) =>
      `actor ${rank} has new parameters: the old ones were ${counted(value, "update")} behind`,
  );
  take(
    roles.replays,
    "dropped experience",
    (rank, value) => `replay ${rank} dropped ${counted(value, "transition")}: too old`,
  );
  take(
    roles.actors,
    "return",
    (rank, value) => `actor ${rank} ended an episode: return ${shortNumber(value)}`,
  );
  const start = Math.max(0, index.table.from);
  return lines
    .sort((a, b) => a[0] - b[0])
    .slice(-most)
    .map(([when, words]) => [duration(Math.max(0, when - start)), words]);
}

// ---- under the pointer

/** @param {RlFrame["comets"][0]} comet @param {RlFrame} frame @returns {string[]} */
export function cometWords(comet, frame) {
  const { kind, from, to, share, nbytes, version, start } = comet;
  const old =
    kind === "experience" && version >= 0
      ? [
          `played by version ${grouped(version)}, ${grouped(Math.max(0, frame.newest - version))} behind the newest`,
        ]
      : [];
  return [
    `${MESSAGE_WORDS[kind] ?? (kind || "a message")}, rank ${from} → rank ${to}: ${Math.round(share * 100)} %`,
    `${bytes(nbytes)}, for ${duration(Math.max(0, frame.t - start))} now`,
    ...old,
  ];
}

/** @param {RlFrame} frame @param {Spot} spot @returns {string[]} */
export function spotWords(frame, { rank, role }) {
  const of = (/** @type {{rank: number}[]} */ all) =>
    /** @type {any} */ (all.find((one) => one.rank === rank));
  if (role === "actor") return actorWords(of(frame.actors), frame.t);
  if (role === "replay") return replayWords(of(frame.replays));
  if (role === "learner") return learnerWords(of(frame.learners));
  if (role === "server") return serverWords(of(frame.servers));
  return [
    `bundle ${rank}: an actor, a replay and a learner in one rank`,
    ...actorWords(of(frame.actors), frame.t).slice(1),
    `replay: ${grouped(of(frame.replays).held)} transitions, which never travel`,
    ...learnerWords(of(frame.learners)).slice(1),
  ];
}

/** @param {{version: number, behind: number}} now */
const versionWords = ({ version, behind }) =>
  version < 0
    ? "parameters: none yet"
    : `parameters: version ${grouped(version)}${behind ? `, ${counted(behind, "update")} behind` : ", the newest"}`;

/** @param {import("./frame.js").ActorNow} now @param {number} t */
const actorWords = (now, t) => [
  `actor ${now.rank}: ${now.words || "idle"}`,
  versionWords(now),
  `${counted(now.frames, "frame")}, ${grouped(now.rate)} in the last second` +
    (Number.isFinite(now.epsilon) ? `, ε ${shortNumber(now.epsilon)}` : ""),
  now.episodes
    ? `${counted(now.episodes, "episode")}, the last with return ${shortNumber(now.episode)}`
    : "no episode has ended yet",
  ...(now.picture.length ? [`picture of the game: ${duration(t - now.seen)} old`] : []),
];

/** @param {import("./frame.js").ReplayNow} now */
const replayWords = (now) => [
  `replay ${now.rank}: ${now.words}`,
  `${grouped(now.held)} of ${grouped(now.capacity)} transitions, ${grouped(now.inserted)} came`,
  ...(now.needed ? [`${grouped(now.needed)} more before the first minibatch`] : []),
  ...(now.asked.length
    ? [`${named("learner", now.asked)} wait${now.asked.length > 1 ? "" : "s"} here`]
    : []),
  ...(now.dropped ? [`${grouped(now.dropped)} dropped: too old when they came`] : []),
  ...(now.late ? [`priorities of ${counted(now.late, "transition")} came too late: gone`] : []),
];

/** @param {import("./frame.js").LearnerNow} now */
const learnerWords = (now) => [
  `learner ${now.rank}: ${now.held ? `waits for server ${now.forWhom} to grant its next update` : now.words || "idle"}`,
  versionWords(now),
  `${counted(now.updates, "update")}${Number.isFinite(now.loss) ? `, loss ${shortNumber(now.loss)}` : ""}`,
  ...(Number.isFinite(now.age)
    ? [`learned last from samples ${counted(Math.round(now.age), "update")} old`]
    : []),
];

/** @param {import("./frame.js").ServerNow} now */
const serverWords = (now) => [
  `server ${now.rank}: ${now.words}`,
  `version ${grouped(now.version)}`,
  ...(now.queue ? [`${counted(now.queue, "gradient")} there, not applied yet`] : []),
];

/** The picture to a screen reader. @param {RlFrame} frame */
export const spokenWords = ({ actors, learners, replays, newest }) =>
  `Version ${newest}. ${actors.map((one) => `Actor ${one.rank} ${one.words || "is idle"}, ${one.behind} behind`).join(". ")}. ` +
  `${replays.map((one) => `Replay ${one.rank} holds ${one.held}`).join(". ")}. ` +
  `${learners.map((one) => `Learner ${one.rank} ${one.words || "is idle"}`).join(". ")}.`;

/**
 * What training together means here.
 * @param {import("../../engine/player.js").RunFacts} run
 * @param {RlRoles} roles
 * @returns {import("../../engine/run_words.js").Meaning}
 */
export function meaningOf({ ranks }, { actors, learners, replays, servers, options }) {
  const who = `${processes(ranks)} learn one game together.`;
  const many = (/** @type {number[]} */ all, /** @type {string} */ what) =>
    counted(all.length, what);
  if (options.bundle)
    return [
      who,
      `${many(learners, "rank")} play, remember and learn; ${many(servers, "server")} hold the parameters.`,
    ];
  const where = servers.length
    ? `; ${many(servers, "server")} hold${servers.length > 1 ? "" : "s"} the parameters`
    : "";
  return [
    who,
    `${many(actors, "actor")} play${actors.length > 1 ? "" : "s"}, ${many(replays, "replay shard")} remember${replays.length > 1 ? "" : "s"}, ` +
      `${many(learners, "learner")} learn${learners.length > 1 ? "" : "s"}${where}.`,
  ];
}

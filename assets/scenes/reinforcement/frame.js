// @ts-check
/**
 * One frame of a run with actors, at a playhead: what each role does, for whom it waits, how old
 * its parameters are, what replay holds. Pure functions of the index and t.
 *
 * @typedef {import("./index.js").RlIndex} RlIndex
 * @typedef {import("./index.js").RlRoles} RlRoles
 * @typedef {import("./index.js").RlMessage} RlMessage
 * @typedef {{rank: number, does: "works" | "waits" | "idle" | "ended" | "lost", words: string,
 *   forWhom: number, version: number, behind: number}} RoleNow
 *   works: it computes; forWhom: the rank that it waits for, -1: none; version: of its parameters,
 *   -1: none yet; behind: updates that they lack
 * @typedef {RoleNow & {epsilon: number, episode: number, episodes: number, frames: number,
 *   rate: number, picture: number[][], seen: number}} ActorNow
 *   picture: rows of shades of what it saw at the time `seen`, [] unknown;
 *   episode: the return of the last one; rate: frames in the last second
 * @typedef {RoleNow & {held: number, capacity: number, inserted: number, dropped: number,
 *   late: number, needed: number, asked: number[], columns: {behind: number, mass: number}[]}}
 *   ReplayNow
 *   dropped: transitions that were too old; late: priorities that came back for what was gone;
 *   needed: transitions that are still to come before the first minibatch; asked: learners that
 *   wait here; columns: from the newest to the oldest: updates since they were played, and how much
 *   more often than the mean they are drawn, NaN unknown
 * @typedef {RoleNow & {updates: number, loss: number, age: number, held: boolean}} LearnerNow
 *   age: updates since what it learned from last was played; held: it waits for a server to grant
 *   its next update
 * @typedef {RoleNow & {queue: number}} ServerNow  queue: gradients that are there and not applied
 * @typedef {{t: number, bundles: boolean, actors: ActorNow[], replays: ReplayNow[],
 *   learners: LearnerNow[], servers: ServerNow[], newest: number, step: number, old: number,
 *   comets: (RlMessage & {share: number})[]}} RlFrame
 *   step, old: updates that a step of the tint stands for, of parameters and in replay
 */
import { goneSince } from "../../engine/generations.js";
import { countUntil } from "../../engine/search.js";
import { arrivalOf, inBundles } from "./index.js";

export const AGES = 12; // columns of what replay holds; replay_rank.py tells of as many
export const TINTS = 7; // steps of the tint
const SECOND = 1e9;
export const SHADES = 16; // of a pixel
const LAGS = 12; // pulls of an actor that the tint goes by

/** What a rank that computes does. @type {Record<string, string>} */
const WORKS = {
  play: "plays",
  sample: "draws a minibatch",
  load: "loads a minibatch",
  forward: "computes the loss",
  backward: "computes gradients",
  optimizer: "updates",
  apply: "applies a gradient",
  push: "pushes gradients",
};

/** A step of the tint for so many updates: a round number. @param {number} most */
export function tintStep(most) {
  const raw = Math.max(1, most / TINTS);
  const unit = 10 ** Math.floor(Math.log10(raw) + 1e-9);
  return unit * ([1, 2, 3, 4, 5, 6, 8, 10].find((k) => k * unit >= raw - 1e-9) ?? 10);
}

/** Those who hold the newest parameters. @param {RlRoles} roles */
export const holdersOf = ({ servers, learners }) => (servers.length ? servers : learners);

/** The version that a holder had by t. @param {RlIndex} index @param {number} rank @param {number} t */
const newestOf = (index, rank, t) => {
  const version = index.last(index.of(rank, "version"), t);
  return version > 0 ? version : 0;
};

/**
 * How old the parameters of a rank are that pulls them.
 * @param {RlIndex} index
 * @param {number[]} holders
 * @param {number} rank
 * @param {number} t
 */
function agesOf(index, holders, rank, t) {
  if (holders.includes(rank)) return { version: newestOf(index, rank, t), behind: 0 };
  let version = Infinity;
  let behind = 0;
  let pulled = false;
  for (const holder of holders) {
    const held = index.held.get(`${rank}<${holder}`);
    const heldVersion = (held ? index.last(held, t) : NaN) || 0;
    pulled ||= !!held && held.t[0] <= t;
    version = Math.min(version, heldVersion);
    behind = Math.max(behind, newestOf(index, holder, t) - heldVersion);
  }
  // before the first pull all begin with the same parameters: version 0
  return { version: pulled || version === 0 ? version : -1, behind };
}

/**
 * What a rank does, by its own rows.
 * @param {RlIndex} index
 * @param {number} rank
 * @param {number} t
 * @param {number[]} holders
 * @returns {RoleNow}
 */
function roleOf(index, rank, t, holders) {
  const base = { rank, forWhom: -1, ...agesOf(index, holders, rank, t) };
  if (goneSince(index.table, rank, t, index.lost.get(rank)) <= t)
    return { ...base, does: "lost", words: "lost" };
  const work = index.doing(rank, t);
  if (work && WORKS[work.what]) return { ...base, does: "works", words: WORKS[work.what] };
  if (work?.what === "pull" && work.peer >= 0)
    return { ...base, does: "waits", words: `pulls from ${work.peer}`, forWhom: work.peer };
  return { ...base, does: "idle", words: "" };
}

/**
 * A message that a rank sent to another and that has no answer yet, or null.
 * @param {RlIndex} index
 * @param {number} from
 * @param {number} to
 * @param {string} asked
 * @param {string} answer
 * @param {number} t
 */
function unanswered(index, from, to, asked, answer, t) {
  const questions = index.way(asked, from, to);
  const answers = index.way(answer, to, from);
  const came = countUntil(answers, t, arrivalOf);
  const question = questions[came];
  // the last question of all tells that there are no more: nothing answers it
  return question && question.start <= t && answers[came] ? question : null;
}

/** Whether the last message that left has not arrived. @param {RlMessage[]} list @param {number} t */
const isOnWay = (list, t) => arrivalOf(list[countUntil(list, t, (one) => one.start) - 1] ?? {}) > t;

/**
 * @param {RlIndex} index
 * @param {RlRoles} roles
 * @param {number} rank
 * @param {number} t
 * @returns {ActorNow}
 */
function actorOf(index, roles, rank, t) {
  const holders = holdersOf(roles);
  const now = roleOf(index, rank, t, holders);
  const returns = index.of(rank, "return");
  const frames = index.last(index.of(rank, "frames"), t) || 0;
  const before = index.last(index.of(rank, "frames"), t - SECOND) || 0;
  const actor = {
    ...now,
    epsilon: index.last(index.of(rank, "epsilon"), t),
    episode: index.last(returns, t),
    episodes: countUntil(returns.t, t, Number),
    frames,
    rate: frames - before,
    ...pictureOf(index, rank, t),
  };
  if (now.does !== "idle" || inBundles(roles)) return actor;
  for (const holder of holders)
    if (unanswered(index, rank, holder, "pull", "parameters", t))
      return { ...actor, does: "waits", words: `pulls from ${holder}`, forWhom: holder };
  const full = roles.replays.find((replay) => isOnWay(index.way("experience", rank, replay), t));
  return full === undefined ? actor : { ...actor, words: `sends to ${full}` };
}

/**
 * What an actor saw last: 16 shades, recorded row by row (picture.py).
 * @param {RlIndex} index
 * @param {number} rank
 * @param {number} t
 */
function pictureOf(index, rank, t) {
  const { t: times, v, peer } = index.of(rank, "picture");
  const end = countUntil(times, t, Number);
  const picture = /** @type {number[][]} */ ([]);
  for (let i = end - 1; i >= 0; i--) {
    const row = [];
    for (let left = v[i]; left >= SHADES; left = Math.floor(left / SHADES))
      row.unshift(left % SHADES);
    picture.unshift(row);
    if (peer[i] === 0) break;
  }
  return { picture, seen: times[end - 1] ?? NaN };
}

/**
 * What replay holds, from the newest to the oldest.
 * @param {RlIndex} index
 * @param {number} rank
 * @param {number} held
 * @param {number} newest  version
 * @param {number} t
 */
function agesInReplay(index, rank, held, newest, t) {
  const came = index.of(rank, "inserted");
  const lags = index.of(rank, "insert lag");
  const mass = index.of(rank, "likelihood");
  const upTo = countUntil(came.t, t, Number);
  const total = came.sums[upTo - 1] ?? 0;
  const count = countUntil(mass.t, t, Number);
  const masses = new Map(
    mass.peer
      .slice(Math.max(0, count - AGES), count)
      .map((column, i) => [column, mass.v[Math.max(0, count - AGES) + i]]),
  );
  return Array.from({ length: held > 0 ? AGES : 0 }, (_, column) => {
    const number = total - (held * (column + 0.5)) / AGES; // of the transition in its middle
    const at = Math.min(countUntil(came.sums, number, Number), upTo - 1);
    const played = Math.max(0, came.version[at]) - (index.last(lags, came.t[at]) || 0);
    return { behind: Math.max(0, newest - played), mass: masses.get(column) ?? NaN };
  });
}

/**
 * @param {RlIndex} index
 * @param {RlRoles} roles
 * @param {number} rank
 * @param {number} newest
 * @param {number} t
 * @returns {ReplayNow}
 */
function replayOf(index, roles, rank, newest, t) {
  const { options, learners, replays } = roles;
  const shards = inBundles(roles) ? 1 : replays.length;
  const capacity = Math.ceil(options.capacity / shards);
  const inserted = index.sum(index.of(rank, "inserted"), t);
  const held = Math.min(capacity, inserted);
  const now = roleOf(index, rank, t, holdersOf(roles));
  const asked = learners.filter((learner) => {
    const came = countUntil(index.way("request", learner, rank), t, arrivalOf);
    const answers = index.way("minibatch", rank, learner);
    const gone = countUntil(answers, t, (one) => one.start);
    return came > gone && answers[gone];
  });
  const needed = Math.max(0, Math.floor(options.learn_from / shards) - inserted);
  const doing = index.doing(rank, t);
  const words =
    now.does === "works" && doing?.what === "sample"
      ? `draws for ${doing.peer}`
      : now.words || (needed && !now.words ? "fills up" : "ready");
  return {
    ...now,
    words,
    held,
    capacity,
    inserted,
    needed,
    asked,
    dropped: index.sum(index.of(rank, "dropped experience"), t),
    late: index.sum(index.of(rank, "evicted before"), t),
    columns: agesInReplay(index, rank, held, newest, t),
  };
}

/**
 * @param {RlIndex} index
 * @param {RlRoles} roles
 * @param {number} rank
 * @param {number} t
 * @param {number} iterations
 * @returns {LearnerNow}
 */
function learnerOf(index, roles, rank, t, iterations) {
  const now = roleOf(index, rank, t, holdersOf(roles));
  const losses = index.of(rank, "loss");
  const learner = {
    ...now,
    updates: countUntil(losses.t, t, Number),
    loss: index.last(losses, t),
    age: index.last(index.of(rank, "sample age"), t),
    held: false,
  };
  if (now.does !== "idle") return learner;
  if (iterations > 0 && learner.updates >= iterations)
    return { ...learner, does: "ended", words: "all updates made" };
  const open = roles.replays
    .flatMap((replay) => unanswered(index, rank, replay, "request", "minibatch", t) ?? [])
    .sort((a, b) => a.start - b.start)[0];
  if (open) return { ...learner, does: "waits", words: `waits for ${open.to}`, forWhom: open.to };
  const server = grantedBy(index, roles, rank, t);
  if (server < 0) return learner;
  return { ...learner, does: "waits", words: `waits for ${server}`, forWhom: server, held: true };
}

/**
 * The server whose grant a learner awaits at t, or -1. A server grants the next update once it has
 * taken in the gradient of the last one, and no actor would be left too far behind. Of several it
 * is the one that has taken in least.
 * @param {RlIndex} index
 * @param {RlRoles} roles
 * @param {number} rank
 * @param {number} t
 */
function grantedBy(index, { servers }, rank, t) {
  if (!servers.length || index.done(rank, t) !== "push") return -1;
  const versions = servers.map((server) => newestOf(index, server, t));
  return servers[versions.indexOf(Math.min(...versions))];
}

/**
 * @param {RlIndex} index
 * @param {RlRoles} roles
 * @param {number} rank
 * @param {number} t
 * @returns {ServerNow}
 */
function serverOf(index, { servers, learners }, rank, t) {
  const now = roleOf(index, rank, t, servers);
  const came = learners.reduce(
    (sum, learner) => sum + countUntil(index.way("gradients", learner, rank), t, arrivalOf),
    0,
  );
  const applied = countUntil(index.of(rank, "version").t, t, Number);
  return { ...now, queue: Math.max(0, came - applied), words: now.words || "ready" };
}

/**
 * @param {RlIndex} index
 * @param {RlRoles} roles
 * @param {number} t
 * @param {number} iterations  of each learner; -1: not known
 * @returns {RlFrame}
 */
export function frameOf(index, roles, t, iterations = -1) {
  const newest = Math.max(0, ...holdersOf(roles).map((rank) => newestOf(index, rank, t)));
  const actors = roles.actors.map((rank) => actorOf(index, roles, rank, t));
  const learners = roles.learners.map((rank) => learnerOf(index, roles, rank, t, iterations));
  const replays = roles.replays.map((rank) => replayOf(index, roles, rank, newest, t));
  const servers = roles.servers.map((rank) => serverOf(index, roles, rank, t));
  if (inBundles(roles)) {
    const block = roles.options.block;
    replays.forEach((replay, i) => {
      // a bundle's experience does not travel: it is what was played
      replay.inserted = Math.floor(actors[i].frames / block) * block;
      replay.held = Math.min(replay.capacity, replay.inserted);
      replay.needed = 0;
    });
  }
  const gone = new Set(
    [...actors, ...replays, ...learners, ...servers].flatMap((one) =>
      one.does === "lost" ? [one.rank] : [],
    ),
  );
  return {
    t,
    bundles: inBundles(roles),
    actors,
    replays,
    learners,
    servers,
    newest,
    step: tintStep(largestLag(index, actors, t)),
    old: tintStep(Math.max(0, ...replays.flatMap((one) => one.columns.map((c) => c.behind)))),
    comets: index
      .flyingAt(t)
      .filter((one) => !gone.has(one.from) && !gone.has(one.to))
      .map((one) => ({ ...one, share: (t - one.start) / (arrivalOf(one) - one.start) })),
  };
}

/**
 * Return the largest lag that any living actor recorded at its last pulls up to t: of several, so that the tint does
 * not change its meaning back and forth.
 * @param {RlIndex} index
 * @param {ActorNow[]} actors
 * @param {number} t
 */
function largestLag(index, actors, t) {
  return Math.max(
    0,
    ...actors.flatMap(({ rank, does }) => {
      if (does === "lost") return [];
      const { t: times, v } = index.of(rank, "policy lag");
      const end = countUntil(times, t, Number);
      return v.slice(Math.max(0, end - LAGS), end);
    }),
  );
}

// @ts-check
/**
 * What is written in a box of the picture of a run with actors: lines of words for the left and the
 * right, each the longest first, so that what there is room for is taken.
 *
 * @typedef {[string[], string[]][]} BoxLines
 */
import { grouped } from "../../engine/format.js";

/** A number in three digits, with a real minus. @param {number} x */
export const rlNumber = (x) =>
  Number.isFinite(x) ? String(Number(x.toPrecision(3))).replace("-", "−") : "–";

/** How old parameters are. @param {{version: number, behind: number}} now */
export const behindWords = ({ version, behind }) =>
  version < 0
    ? ["no version yet", "none yet"]
    : behind
      ? [`${grouped(behind)} behind`, grouped(behind)]
      : ["newest"];

/** @param {import("./frame.js").ActorNow} now @returns {BoxLines} */
export function actorLines(now) {
  const { rank, words, epsilon, episode, episodes, frames } = now;
  const last = episodes ? `return ${rlNumber(episode)}` : "no episode yet";
  return [
    [
      [`actor ${rank}`, String(rank)],
      Number.isFinite(epsilon) ? [`ε ${epsilonWords(epsilon)}`] : [],
    ],
    [words ? [words] : ["between two things", "–"], behindWords(now)],
    [[last], [`${grouped(frames)} frames`, grouped(frames)]],
  ];
}

/** @param {number} epsilon */
const epsilonWords = (epsilon) =>
  epsilon >= 0.01 || epsilon === 0 ? epsilon.toFixed(2) : epsilon.toPrecision(1);

/** @param {import("./frame.js").ReplayNow} now @returns {BoxLines} */
export function replayLines({ rank, words, held, capacity, needed, dropped, late, asked }) {
  const waits = asked.length
    ? [`${grouped(asked.length)} wait${asked.length > 1 ? "" : "s"} here`]
    : [];
  const lost = [
    ...(dropped ? [`${grouped(dropped)} dropped`] : []),
    ...(late ? [`${grouped(late)} priorities came late`, `${grouped(late)} late`] : []),
  ];
  return [
    [[`replay ${rank}`, String(rank)], waits],
    [words ? [words] : [], needed ? [`${grouped(needed)} to come`] : []],
    [[`${grouped(held)} of ${grouped(capacity)} held`, `${grouped(held)} held`], []],
    [lost, []],
  ];
}

/** @param {import("./frame.js").LearnerNow} now @returns {BoxLines} */
export function learnerLines(now) {
  const { rank, words, updates, loss, age } = now;
  return [
    [[`learner ${rank}`, String(rank)], behindWords(now)],
    [words ? [words] : ["between two things", "–"], []],
    [
      [`${grouped(updates)} updates`, grouped(updates)],
      Number.isFinite(loss) ? [`loss ${rlNumber(loss)}`, rlNumber(loss)] : [],
    ],
    [
      Number.isFinite(age)
        ? [
            `samples ${grouped(age)} updates old`,
            `samples ${grouped(age)} old`,
            `${grouped(age)} old`,
          ]
        : [],
      [],
    ],
  ];
}

/** @param {import("./frame.js").ServerNow} now @returns {BoxLines} */
export function serverLines({ rank, words, version, queue }) {
  return [
    [[`server ${rank}`, String(rank)], [`v ${grouped(version)}`]],
    [[words, words.replace(" a gradient", "")], queue > 1 ? [`${queue} wait`] : []],
  ];
}

/** A line with words on the left only. @param {string[]} words @returns {[string[], string[]]} */
const onlyLeft = (words) => [words, []];

/**
 * The three rooms of a bundle: each with its name, whether it is at work, and what it has.
 * @param {import("./frame.js").ActorNow} actor
 * @param {import("./frame.js").ReplayNow} replay
 * @param {import("./frame.js").LearnerNow} learner
 * @returns {{name: string, works: boolean, lines: BoxLines}[]}
 */
export function roomsOf(actor, replay, learner) {
  const plays = actor.words === "plays";
  const [[, epsilon], , [last, frames]] = actorLines(actor);
  const [, , [held]] = replayLines(replay);
  const [, , updates, [age]] = learnerLines(learner);
  return [
    {
      name: "plays",
      works: plays,
      lines: [
        [epsilon, []],
        [last, []],
        [frames, []],
      ],
    },
    { name: "replay", works: false, lines: [onlyLeft(held)] },
    {
      name: "learns",
      works: learner.does === "works" && !plays,
      lines: [
        [updates[0], []],
        [updates[1], []],
        [age, []],
      ],
    },
  ];
}

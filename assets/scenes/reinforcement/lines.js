// @ts-check
/**
 * What is written in a box of the picture of a run with actors: lines of words for the left and the
 * right, each the longest first, so that what there is room for is taken.
 *
 * @typedef {[string[], string[]]} BoxLine  left, right
 */
import { counted, grouped } from "../../engine/format.js";

/** A number in a few digits, with a real minus. @param {number} x @param {number} [digits] */
export const shortNumber = (x, digits = 3) =>
  Number.isFinite(x) ? String(Number(x.toPrecision(digits))).replace("-", "−") : "–";

/** How old parameters are. @param {{version: number, behind: number}} now */
export const behindWords = ({ version, behind }) =>
  version < 0 ? ["no version yet"] : behind ? [`${grouped(behind)} behind`] : ["newest"];

/** What a rank does, also without the rank that it does it with. @param {string} words */
const doingWords = (words) =>
  words ? [words, words.replace(/ (from|to|for) \d+$/, "")] : ["idle", ""];

/** @param {number} epsilon */
const epsilonWords = (epsilon) =>
  epsilon >= 0.01 || epsilon === 0 ? epsilon.toFixed(2) : epsilon.toPrecision(1);

/** @param {import("./frame.js").ActorNow} now @returns {BoxLine[]} */
export function actorLines(now) {
  const { rank, words, epsilon, episode, episodes, frames } = now;
  const last = episodes ? `return ${shortNumber(episode)}` : "no episode yet";
  const explores = Number.isFinite(epsilon) ? [`ε ${epsilonWords(epsilon)}`] : [];
  return [
    [[`actor ${rank}`, String(rank)], explores],
    [doingWords(words), behindWords(now)],
    [[last], [`${grouped(frames)} frames`, `${grouped(frames)} fr.`]],
  ];
}

/** @param {import("./frame.js").ReplayNow} now @returns {BoxLine[]} */
export function replayLines({ rank, words, held, capacity, needed, dropped, late, asked }) {
  const waits = `${grouped(asked.length)} wait${asked.length > 1 ? "" : "s"} here`;
  const lost = [
    ...(dropped ? [`${grouped(dropped)} dropped`] : []),
    ...(late ? [`${grouped(late)} priorities came late`, `${grouped(late)} late`] : []),
  ];
  return [
    [[`replay ${rank}`, String(rank)], asked.length ? [waits] : []],
    [doingWords(words), needed ? [`${grouped(needed)} to come`] : []],
    [[`${grouped(held)} of ${grouped(capacity)} held`, `${grouped(held)} held`], []],
    [lost, []],
  ];
}

/** @param {import("./frame.js").LearnerNow} now @returns {BoxLine[]} */
export function learnerLines(now) {
  const { rank, words, updates, loss, age } = now;
  const old = grouped(age);
  return [
    [[`learner ${rank}`, String(rank)], behindWords(now)],
    [doingWords(words), []],
    [
      [Number.isFinite(loss) ? `loss ${shortNumber(loss, 2)}` : "no loss yet"],
      [`${grouped(updates)} updates`],
    ],
    [
      Number.isFinite(age)
        ? [`samples ${counted(Math.round(age), "update")} old`, `samples ${old} old`, `${old} old`]
        : [],
      [],
    ],
  ];
}

/** @param {import("./frame.js").ServerNow} now @returns {BoxLine[]} */
export function serverLines({ rank, words, version, queue }) {
  return [
    [[`server ${rank}`, String(rank)], queue > 1 ? [`${queue} wait`] : []],
    [[words, words.replace(" a gradient", "")], []],
    [[`version ${grouped(version)}`, `v ${grouped(version)}`], []],
  ];
}

/** A line with words on the left only. @param {string[]} words @returns {BoxLine} */
const onlyLeft = (words) => [words, []];

/**
 * The three rooms of a bundle: each with its name, whether it is at work, and what it has.
 * @param {import("./frame.js").ActorNow} actor
 * @param {import("./frame.js").ReplayNow} replay
 * @param {import("./frame.js").LearnerNow} learner
 * @returns {{name: string, works: boolean, lines: BoxLine[]}[]}
 */
export function roomsOf(actor, replay, learner) {
  const plays = actor.words === "plays";
  const [, , [last, frames]] = actorLines(actor);
  const [, , [held]] = replayLines(replay);
  const [, , [loss, updates], [age]] = learnerLines(learner);
  const learns = learner.does === "works" && !plays;
  return [
    { name: "plays", works: plays, lines: [last, frames].map(onlyLeft) },
    { name: "replay", works: false, lines: [held].map(onlyLeft) },
    { name: "learns", works: learns, lines: [updates, loss, age].map(onlyLeft) },
  ];
}

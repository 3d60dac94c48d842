// @ts-check
/**
 * Which of a run's calls a picture shows one after another: every one, or of each iteration the one
 * with the largest tensor, the one that lasted longest, or those of one tensor or bucket. The
 * largest is what a reader expects to see: most calls of an iteration move a bias of a few bytes,
 * and show latency alone. Pure functions.
 *
 * @typedef {import("./table.js").CallHead} CallHead
 * @typedef {import("./call_source.js").CallSource} CallSource
 * @typedef {{by: "each" | "largest" | "slowest" | "name", name: string}} CallChoice
 *   name: of the tensor or the bucket, "" unless calls are chosen by it
 */

const ROUND = 32; // calls of a script that says nothing of iterations: so many are taken together
const BACK = 4096; // calls that are looked through for the newest iterations

/** @type {CallChoice} */
export const EACH_CALL = { by: "each", name: "" };
/** @type {CallChoice} */
export const LARGEST_CALL = { by: "largest", name: "" };

/** @param {CallHead} call */
const lasted = (call) => call.end - call.start;

/**
 * The one of a round's calls that is chosen; of equals the first, so that it is the same tensor in
 * every iteration.
 * @param {CallHead[]} round  in order of their start
 * @param {CallChoice} choice
 * @returns {CallHead | null}
 */
function chosenOf(round, choice) {
  if (choice.by === "name") return round.find((call) => call.name === choice.name) ?? null;
  const size = choice.by === "slowest" ? lasted : (/** @type {CallHead} */ call) => call.nbytes;
  return round.reduce(
    (best, call) => (!best || size(call) > size(best) ? call : best),
    /** @type {CallHead | null} */ (null),
  );
}

/** What calls are taken together: those of an iteration. @param {CallHead} call @param {number} at */
const roundOf = (call, at) =>
  call.iteration < 0 ? `calls ${Math.floor(at / ROUND)}` : `${call.generation}/${call.iteration}`;

/**
 * The chosen call of the newest iteration; while the run goes on, that of the one before until the
 * newest has one as good. Null: none is complete yet.
 * @param {CallSource} source
 * @param {CallChoice} choice
 * @param {boolean} over  no more calls will come
 */
export function newestChosen({ calls, newest }, choice, over) {
  if (choice.by === "each") return newest;
  if (choice.by === "name") {
    const named = calls.findLast((c) => c.name === choice.name && c.complete && c.sends > 0);
    return named ?? newest;
  }
  const rounds = /** @type {Map<string, CallHead[]>} */ (new Map());
  for (let i = calls.length - 1; i >= 0 && i > calls.length - BACK; i--) {
    if (!calls[i].complete || !calls[i].sends) continue;
    const key = roundOf(calls[i], i);
    const round = rounds.get(key);
    if (round) round.unshift(calls[i]);
    else if (rounds.size < 2) rounds.set(key, [calls[i]]);
    else break;
  }
  const [last, before] = [...rounds.values()].map((round) => chosenOf(round, choice));
  if (!last || !before || over || before.iteration < 0) return last ?? newest;
  return choice.by === "largest" && last.nbytes >= before.nbytes ? last : before;
}

/**
 * The next chosen call after this one, in the order of time, or null. With no call: the first.
 * What ranks do before the first iteration is passed over, if there is one.
 * @param {CallSource} source
 * @param {CallChoice} choice
 * @param {CallHead | import("./model.js").Call | null} call
 */
export function nextChosen(source, choice, call) {
  const { calls } = source;
  const at = call ? source.indexOf(call) : -1;
  if (choice.by === "each") return calls.slice(at + 1).find((c) => c.sends) ?? null;
  if (choice.by === "name")
    return calls.slice(at + 1).find((c) => c.sends && c.name === choice.name) ?? null;
  const trains = calls.length > 0 && calls[calls.length - 1].iteration >= 0;
  const current = at >= 0 ? roundOf(calls[at], at) : "";
  let key = "";
  const round = [];
  for (let i = at + 1; i < calls.length; i++) {
    const itsRound = roundOf(calls[i], i);
    if (!calls[i].sends || itsRound === current || (trains && calls[i].iteration < 0)) continue;
    key ||= itsRound;
    if (itsRound === key) round.push(calls[i]);
    else if (round.length && calls[i].start > round[round.length - 1].end) break;
  }
  return chosenOf(round, choice);
}

/** The call that lasted longest of all that are complete, or null. @param {CallSource} source */
export const slowestCall = ({ calls }) =>
  chosenOf(
    calls.filter((c) => c.complete && c.sends > 0),
    { by: "slowest", name: "" },
  );

/** A choice in words. @param {CallChoice} choice */
export const choiceWords = ({ by, name }) =>
  ({
    largest: "largest tensor",
    each: "each call",
    slowest: "slowest call",
    name,
  })[by];

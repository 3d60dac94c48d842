// @ts-check
/**
 * What the pipeline's picture says: one sentence, where the time went line by line, every mark
 * under the pointer. Pure functions; no claim that the picture does not show.
 *
 * @typedef {import("../../engine/player.js").Known} Known
 * @typedef {import("./selection.js").Pass} Pass
 * @typedef {import("./index.js").Task} Task
 */
import { heldByReader } from "../../engine/run_words.js";
import { idleShare, WHYS, WHY_WORDS } from "./idle.js";
import { formulaOf } from "./plan.js";
import { joinedOf, joinedWords } from "./mesh.js";
import { bytesOf, inputTo, joinsHere, lateBy, slowStage, typicalHop } from "./selection.js";
import { share100 } from "./charts.js";
import { heldWords, rowName, timesWords } from "./draw.js";
import { isOver } from "../../engine/player.js";
import { failedWords } from "../../engine/failure_caption.js";
import { bytes, counted, duration, grouped, sentence } from "../../engine/format.js";

const ACTION_WORDS = { F: "forward", B: "backward", I: "input gradient", W: "weight gradient" };
const NEAR = 0.005; // shares that differ less are the same

/** "1f1b" is 1F1B. @param {string} name */
export const scheduleName = (name) =>
  name
    .replace(/\b(1f1b|zb|zbv)\b|(?<=_)(1f1b|h1|h2)\b|\bzb(?=_)/g, (part) => part.toUpperCase())
    .replaceAll("_", " ")
    .replace(/^gpipe$/, "GPipe")
    .replace(/^pipedream$/, "PipeDream")
    .replace("ZB H", "ZB-H");

/** "1F1B, 4 stages, 8 microbatches" @param {import("./plan.js").PipelineFacts} facts */
export function factsWords({ schedule, stages, ranks, replicas, microbatches }) {
  const where = stages > ranks ? ` on ${counted(ranks, "rank")}` : "";
  const many = replicas > 1 ? `, ${replicas} replicas` : "";
  return [
    scheduleName(schedule),
    `${stages} stage${stages === 1 ? "" : "s"}${where}`,
    `${microbatches} microbatch${microbatches === 1 ? "" : "es"}${many}`,
  ]
    .filter(Boolean)
    .join(", ");
}

/**
 * Who holds up whom, in numbers.
 * @param {Known} known
 * @param {Pass | null} pass
 * @param {boolean} live
 */
export function sentenceOf(known, pass, live) {
  if (known.state === "failed" && known.words && live) return failedWords(known);
  if (!pass)
    return known.state === "running"
      ? "The ranks run. No microbatch has started yet."
      : isOver(known) && known.state !== "failed"
        ? known.words || "The run is over, and no action was recorded in it."
        : sentence(known);
  const held = heldByReader(known, live);
  const frozen = live && !isOver(known) ? (known.control?.frozen ?? []) : [];
  const { all, plan, rows, facts } = pass;
  const home = frozen
    .map((rank) => rank - pass.replica * facts.ranks)
    .filter((place) => place >= 0 && place < facts.ranks);
  if (home.length)
    return (
      `${held}You froze ` +
      `${home.map((place) => `rank ${home.length ? place + pass.replica * facts.ranks : place} (${rowName(pass.lanes, place)})`).join(" and ")}: ` +
      "the others go on until they need what it makes."
    );
  const done = rows.flat().length;
  const whole = facts.rows.reduce((sum, row) => sum + row.length, 0);
  if (!pass.complete && pass.attempt?.givenUp)
    return (
      `${held}Iteration ${grouped(pass.iteration + 1)} was given up after ` +
      `${grouped(done)}${whole ? ` of ${grouped(whole)}` : ""} actions: the ranks formed a new ` +
      "group, which began it again."
    );
  if (!pass.complete)
    return (
      `${held}Iteration ${grouped(pass.iteration + 1)} goes on: ` +
      `${grouped(done)}${whole ? ` of ${grouped(whole)}` : ""} actions are done.`
    );
  const idle = idleShare(all);
  const rest = WHYS.filter((why) => why !== "warm")
    .map((why) => ({ why, part: all[why] / all.whole }))
    .sort((a, b) => b.part - a.part)[0];
  const slow = slowStage(pass);
  const because =
    rest.part < NEAR
      ? ""
      : rest.why === "comm"
        ? "messages between stages, and what they delay"
        : rest.why === "fault"
          ? "a process that stood still"
          : slow
            ? `waiting for the slow stage ${slow.stage}`
            : "waiting for actions that take longer than others";
  if (!plan)
    return (
      `${held}The ranks are idle ${share100(idle, 0)} of the ` +
      `time${because ? `, mostly ${because}` : ""}.`
    );
  if (idle - plan.idle < 2 * NEAR)
    return (
      `${held}The ranks are idle ${share100(idle, 0)} of the time, and the schedule alone ` +
      `costs ${share100(plan.idle, 0)}: it went as planned.`
    );
  return (
    `${held}The ranks are idle ${share100(idle, 0)} of the time, the schedule alone costs ` +
    `${share100(plan.idle, 0)}: the rest is mostly ${because || "small"}.`
  );
}

/**
 * Where the time went: number, what it is, a remark.
 * @param {Pass} pass
 * @returns {[string, string, string][]}
 */
export function linesOf(pass) {
  const { all, plan, facts, from, to } = pass;
  const planned = plan?.idle ?? facts.bubble ?? NaN;
  const slow = slowStage(pass);
  const hop = typicalHop(pass);
  const part = (/** @type {import("./idle.js").Why} */ why) =>
    all.whole ? all[why] / all.whole : 0;
  const remarks = {
    warm: plan ? "the schedule's own price" : "before its first and after its last action",
    imbalance: slow
      ? `stage ${slow.stage} takes ${slow.factor.toFixed(slow.factor < 10 ? 2 : 0)}× as long`
      : "no stage stands out: single actions last longer",
    comm: Number.isNaN(hop) ? "" : `${duration(hop)} a hop, and what that delays elsewhere`,
    fault: "a process stood still",
  };
  const lines = /** @type {[string, string, string][]} */ ([
    [
      share100(idleShare(all)),
      pass.complete ? "of all ranks' time is idle" : "of all time so far is idle",
      Number.isNaN(planned) ? "" : `${formulaOf(facts, planned).short} ${share100(planned)}`,
    ],
  ]);
  for (const why of WHYS)
    if (why !== "fault" || part(why) > 0)
      lines.push([share100(part(why)), WHY_WORDS[why], part(why) < NEAR / 5 ? "" : remarks[why]]);
  if (plan && pass.complete)
    lines.push([
      `${((to - from) / plan.span).toFixed(2)}×`,
      "the planned time",
      `${duration(to - from)} against ${duration(plan.span)}, with ${plan.words}`,
    ]);
  return lines;
}

/**
 * "forward of microbatch 3 on stage 2"
 * @param {{kind: Task["kind"], microbatch: number, stage: number}} task
 */
export const actionWords = ({ kind, microbatch, stage }) =>
  `${ACTION_WORDS[kind]} of microbatch ${microbatch} on stage ${stage}`;

/**
 * One action: how long, how late, what it needed and when that came.
 * @param {Pass} pass
 * @param {Task} task
 * @returns {string[]}
 */
export function taskWords(pass, task) {
  const late = lateBy(pass, task);
  const input = inputTo(pass, task);
  const lines = [
    `${actionWords(task)}${task.iteration !== pass.iteration ? ` (of iteration ${grouped(task.iteration + 1)})` : ""}: ` +
      `${duration(task.end - task.start)}`,
  ];
  const at = (/** @type {number} */ t) => duration(Math.max(0, t - pass.from));
  if (!Number.isNaN(late))
    lines[0] +=
      `, started ${duration(Math.abs(late))} ` + `${late < 0 ? "earlier" : "later"} than planned`;
  if (input?.producer && input.hop && input.hop.arrive >= 0)
    lines.push(
      `its ${input.hop.what} left stage ${input.producer.stage} at ${at(input.producer.end)} and ` +
        "arrived at " +
        `${at(input.hop.arrive)}${input.hop.nbytes ? `, ${bytes(input.hop.nbytes)}` : ""}`,
    );
  if (task.version >= 0)
    lines.push(`it used version ${grouped(task.version)} of the stage's parameters`);
  return lines;
}

/** A stretch in which a rank was idle. @param {Pass} pass @param {import("./idle.js").Idle} idle */
export function idleWords(pass, { place, why, from, to }) {
  const next = pass.rows[place].find((task) => task.start >= to - 1);
  const input = next ? inputTo(pass, next) : null;
  const waits = next ? `before the ${actionWords(next)}` : "after its last action";
  const whom =
    input?.producer && input.hop ? `, which needs what stage ${input.producer.stage} makes` : "";
  const ready =
    input?.producer && next && input.producer.rank !== next.rank ? input.producer.end : NaN;
  const communication =
    next && from >= ready - 1
      ? input?.hop
        ? `its input is on its way${input.hop.nbytes ? `, ${bytes(input.hop.nbytes)}` : ""}`
        : "its input is handed over"
      : Number.isNaN(ready) && next
        ? "what it needs is here: handling"
        : "what it needs is late, for messages to other ranks took their time";
  const because = {
    warm: pass.plan ? "the plan is idle here too" : "the pipeline fills or drains",
    imbalance: pass.plan
      ? "what it needs is made later than were all stages alike"
      : "another rank has more to do",
    comm: communication,
    fault: "a process stood still",
  };
  return [
    `${rowName(pass.lanes, place)} idle for ${duration(to - from)}, ${waits}${whom}`,
    `${WHY_WORDS[why]}: ${because[why]}`,
  ];
}

/** A row, whole. @param {Pass} pass @param {number} row @returns {string[]} */
export function stageRowWords(pass, row) {
  const shares = pass.shares[row];
  const rank = pass.replica * pass.facts.ranks + row;
  const held = bytesOf(pass, row);
  const stages = pass.lanes[row];
  const lines = [
    `stage${stages.length > 1 ? "s" : ""} ${stages.join(", ")} on rank ${rank}: ` +
      `${counted(pass.rows[row].length, "action")}, ` +
      `${pass.rows[row].length ? timesWords(pass, row) : ""}`,
  ];
  if (shares?.whole)
    lines.push(
      `busy ${share100(shares.busy / shares.whole)}, ${WHYS.filter((why) => shares[why] > 0)
        .map((why) => `${WHY_WORDS[why]} ${share100(shares[why] / shares.whole)}`)
        .join(", ")}`,
    );
  lines.push(
    `${heldWords(pass, row)} ` +
      `microbatches${pass.most[row] ? ": held, and the schedule's most" : " held at most"}${Number.isFinite(held) ? `; ${bytes(held)} for backward` : ""}`,
  );
  return lines;
}

/**
 * What lies under a point.
 * @param {Pass} pass
 * @param {NonNullable<ReturnType<typeof import("./place.js").hitUnder>>} under
 * @param {Task | undefined} task
 * @param {boolean} chosen  its rank is
 * @returns {string[]}
 */
export function wordsUnder(pass, { part, row, t }, task, chosen) {
  if (part === "axis")
    return [
      `${duration(Math.max(0, t))} into iteration ${grouped(pass.iteration + 1)}: click or ` +
        "drag to go there",
    ];
  if (part === "name" || part === "held")
    return [
      ...stageRowWords(pass, row),
      ...(part === "name" && chosen ? ["once more: freeze it, slow it, kill it"] : []),
    ];
  if (part === "plan") {
    const planned = pass.plan?.rows[row].find((one) => one.start <= t && t < one.end);
    return planned
      ? [
          `planned: ${actionWords(planned)}, from ${duration(planned.start)} to ` +
            `${duration(planned.end)}`,
          `with ${pass.plan?.words}`,
        ]
      : [];
  }
  const at = pass.from + t;
  const join =
    part === "bar" &&
    !task &&
    joinsHere(pass).find(
      ({ rank, start, end }) =>
        rank === pass.replica * pass.facts.ranks + row && start <= at && at < end,
    );
  if (join) return ["all-reduce over the replicas", joinedWords(pass, joinedOf(pass)[row], row)];
  const idle =
    part === "bar"
      ? pass.idle.find((one) => one.place === row && one.from <= at && at < one.to)
      : undefined;
  return task ? taskWords(pass, task) : idle ? idleWords(pass, idle) : [];
}

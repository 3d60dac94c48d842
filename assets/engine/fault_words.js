// @ts-check
/**
 * What happened, as sentences: a fault, and what a rank noticed of one. Pure functions of rows.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {import("./player.js").LaneNow} LaneNow
 */
import { duration } from "./format.js";
import { linkChange, linkFaultWords } from "./link_faults.js";

/** The group of a rank's row of a fault that the user asked for. */
export const BY_HAND = "by hand";

/**
 * A fault in words: who did what to which rank or link.
 * @param {import("./link_faults.js").Fault} fault
 * @param {boolean} ours  the user's own doing, not the experiment's
 * @param {boolean} [whose]  say whose doing it is
 */
export function faultWords(fault, ours, whose = true) {
  const link = linkChange(fault);
  if (link) return linkFaultWords(link, "→");
  const { name, rank, value } = fault;
  const again = value === 1;
  const slowed = again ? `rank ${rank} run at full speed again` : `rank ${rank} ×${value}`;
  const words = /** @type {Record<string, [string, string]>} */ ({
    kill: [`You killed rank ${rank}`, `rank ${rank} was killed`],
    add: [`You added rank ${rank}`, `rank ${rank} was added`],
    remove: [`You took rank ${rank} away`, `rank ${rank} was taken away`],
    thaw: [`You let rank ${rank} go on`, `rank ${rank} goes on`],
    freeze: [
      `You froze rank ${rank}`,
      `rank ${rank} froze${Number.isFinite(value) ? ` for ${duration(value * 1e9)}` : ""}`,
    ],
    slow: [
      `You ${again ? "let" : "slowed"} ${slowed}`,
      again ? `rank ${rank} runs at full speed again` : `rank ${rank} slowed ×${value}`,
    ],
    "fail to start": ["", `rank ${rank} does not start`],
    join: ["", `rank ${rank} is started, to join`],
    "source down": [
      "",
      `the data source is down${Number.isFinite(value) ? ` for ${duration(value * 1e9)}` : ""}`,
    ],
    preempt: [`You told rank ${rank} to leave`, `rank ${rank} was told to leave`],
    preempted: [`rank ${rank} left`, `rank ${rank} left, as it was told`],
    "corrupt nan": [
      `You put a NaN into sample ${value}, of rank ${rank}`,
      `sample ${value}, of rank ${rank}, holds a NaN`,
    ],
    "corrupt raises": [
      `You made sample ${value} unreadable for rank ${rank}`,
      `sample ${value} cannot be read by rank ${rank}`,
    ],
    "corrupt shape": [
      `You gave sample ${value}, of rank ${rank}, a wrong shape`,
      `sample ${value}, of rank ${rank}, has a wrong shape`,
    ],
    "corrupt bitflip": [
      `You flipped a bit in the parameters of rank ${rank}`,
      `a bit flipped in the parameters of rank ${rank}`,
    ],
  })[name] ?? [`${name}, rank ${rank}`, `${name}, rank ${rank}`];
  return ours ? words[0] : `${words[1]}${whose ? " (a fault of the experiment)" : ""}`;
}

/**
 * What is wrong with data or memory, in words, by the name of the row: of which rank, its value, and
 * in which iteration.
 * @type {Record<string, (rank: number, value: number, iteration: number) => string>}
 */
export const DATA_WORDS = {
  "bad minibatch: not finite": (rank, sample, iteration) =>
    `rank ${rank}: its gradient is not finite in iteration ${iteration + 1}${ofSample(sample)}`,
  "bad minibatch: not loaded": (rank, sample, iteration) =>
    `rank ${rank} cannot use its samples of iteration ${iteration + 1}${ofSample(sample)}`,
  "data source down": (rank) => `rank ${rank} can read no sample, and waits for their source`,
  "data source back": (rank) => `rank ${rank} reads its samples again`,
  "a replica differs": (rank, since) =>
    `rank ${rank} differs from the others, since iteration ${Math.max(0, since) + 1}`,
};

/** @param {number} sample */
const ofSample = (sample) => (Number.isFinite(sample) ? `: sample ${sample}` : "");

/**
 * What a rank noticed, in words: for how long it has made no progress, in which step of which call,
 * and whom it waits for.
 * @param {Table} table
 * @param {number} r  the row
 * @param {number} rank
 * @param {LaneNow[]} lanesNow
 */
export function detectWords(table, r, rank, lanesNow) {
  const p = table.passage[r];
  const { op } = table.passages;
  const name = table.text(table.name[r]);
  const peer = table.peer[r];
  const collective = table.text(table.passages.collective[p]);
  const lane = table.text(table.passages.lane[p]);
  const now = lanesNow.find(
    (l) => l.rank === rank && l.lane === lane && l.kind === "wait" && l.op === op[p],
  );
  const after = r + 1;
  const followed =
    // the wait in which it was noticed
    after < table.rows && table.passage[after] === p && table.kind[after] === table.code.wait;
  const step =
    table.step[r] >= 0 ? table.step[r] : followed ? table.step[after] : now ? now.step : -1;
  const where =
    op[p] >= 0
      ? ", in " +
        `${collective === "p2p" ? "message" : collective ? `${collective} call` : "call"} ` +
        `${op[p] + 1}${step >= 0 ? `, step ${step + 1}` : ""}`
      : "";
  const why =
    peer >= 0
      ? "; it waits for rank " +
        `${peer}${name === "stalled: stopped" ? ", whose process is stopped" : ""}`
      : "";
  return `rank ${rank}: no progress for ${table.value[r].toFixed(1)} s${where}${why}`;
}

// @ts-check
/**
 * What the page knows of a run: the newest header, and the table of all rows. Pure: no browser.
 * @typedef {import("./player.js").Known} Known
 * @typedef {import("./model.js").Call} Call
 * @typedef {{rank?: number, peer?: number, group?: string, op?: number, step?: number,
 *   chunk?: number, iteration?: number, stage?: number, microbatch?: number, action?: string}}
 *   Choice
 * @typedef {{table: Table, known: Known, call: Call | null,
 *   current: Call | null, t: number, live: boolean, held: boolean, ranks: number, ink: Record<string,
 *   string>, font: string, width: number, ratio: number, at: number, choice: Choice | null,
 *   fastest?: number, beside?: number, first?: number, room?: number}} Look
 *   what a picture is drawn from. current: the unit at the playhead, a call, a parameter server's round or a
 *   pipeline's pass; call: the same if it is a call; fastest: bytes/s of the widest link that is
 *   drawn elsewhere on the same scale; beside: the ranks of the larger of two pictures; first: the
 *   rank of the first lane; room: px of height that the scene is to fill, 0: what it needs
 */
import { keepStoredHolds } from "./holds.js";
import { Table } from "./table.js";

/** A page that has heard nothing yet. @returns {Known} */
export const nothing = () => ({
  run: null,
  seq: 0,
  missed: 0,
  state: "empty",
  words: "",
  failure: null,
  counters: null,
  control: null,
  lanesNow: [],
  clock: -Infinity,
  origin: 0,
  table: new Table(),
});

/**
 * Open a message that was packed once for many pages: a length (u4), the header as JSON, the block.
 * `own`, JSON, is what it says to this page alone.
 * @param {any} message @param {(ArrayBuffer | ArrayBufferView)[]} buffers
 * @returns {[any, (ArrayBuffer | ArrayBufferView)[]]}
 */
export function opened(message, buffers) {
  if (!message?.own) return [message, buffers];
  const own = JSON.parse(message.own);
  const bytes = viewOf(buffers[0]);
  const end = 4 + new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, end)));
  const run = { ...header.run, ...own.run };
  const counters = { ...header.counters, ...own.counters };
  return [{ ...header, ...own, run, counters }, [bytes.subarray(end)]];
}

/** @param {ArrayBuffer | ArrayBufferView} buffer */
const viewOf = (buffer) =>
  ArrayBuffer.isView(buffer)
    ? new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength)
    : new Uint8Array(buffer);

/**
 * Take in one message. A run that is new to the page, or a history that begins again, starts with
 * an empty table.
 * @param {Known} known @param {any} message @param {(ArrayBuffer | ArrayBufferView)[]} buffers
 * @param {number} at  the page's own clock, milliseconds
 * @returns {Known}
 */
export function receive(known, message, buffers, at) {
  if (message?.type !== "batch") return known;
  // what a message leaves out of the run's facts (schedule, model) stays as it was
  const other = known.run?.id !== message.run.id;
  const afresh = other || message.reset;
  if (!afresh && message.seq <= known.seq && message.rows) return known; // heard before
  const table = afresh ? new Table() : known.table;
  table.take(message, buffers[0]);
  if (afresh) keepStoredHolds(table, message.run.holds);
  const missed =
    !afresh && known.seq && message.seq > known.seq + 1 ? message.seq - known.seq - 1 : 0;
  // The batch that took the least time to come tells the driver's clock best.
  const heard =
    message.now === null || message.now === undefined ? -Infinity : message.now - at * 1e6;
  return {
    run: other ? message.run : { ...known.run, ...message.run },
    seq: message.seq,
    missed: (other ? 0 : known.missed) + missed,
    state: message.state,
    words: message.words ?? "",
    failure: message.failure ?? null,
    counters: message.counters ?? null,
    control: message.control ?? null,
    lanesNow: message.lanes_now ?? (afresh ? [] : known.lanesNow),
    clock: heard === -Infinity ? -Infinity : Math.max(afresh ? -Infinity : known.clock, heard),
    origin: message.origin ?? 0,
    table,
  };
}

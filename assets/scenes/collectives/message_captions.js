// @ts-check
/**
 * Captions of messages between two ranks: one sentence, a cell of the matrix. Pure functions.
 *
 * @typedef {import("../../engine/rates.js").Reading} Reading
 */
import { awaited, bytes, duration } from "../../engine/format.js";

/** Whom each message is sent to. @param {Reading} reading @param {number} chunk */
export const takerOf = ({ call }, chunk) =>
  call.rows.find((r) => r.kind === "send" && r.chunk === chunk)?.peer ?? -1;

/**
 * The messages of a burst, who waited longest, what no rank has received.
 * @param {Reading} reading
 * @param {number} t  from its start
 */
export function messagesSentence(reading, t) {
  const { call, holdings } = reading;
  const many = holdings.chunks.length;
  const span = duration(call.end - call.start);
  const lying = new Map((call.lying ?? []).filter((r) => r.end <= t).map((r) => [r.chunk, r]));
  const what =
    many === 1
      ? `Rank ${call.rows.find((r) => r.kind === "send")?.rank ?? 0} sends ` +
        `${bytes(call.nbytes)} to rank ${takerOf(reading, holdings.chunks[0])}`
      : `${many} messages, ${bytes(call.nbytes)} in all`;
  if (lying.size) {
    const [first] = lying.values();
    const more = lying.size > 1 ? `, and ${lying.size - 1} more` : "";
    return call.complete
      ? `${messageNamed(first)} was never received${more}.`
      : `${messageNamed(first)} lies there: it has not been received${more}.`;
  }
  const longest = call.waits.reduce(
    (best, w) => (!best || w.end - w.start > best.end - best.start ? w : best),
    /** @type {import("../../engine/model.js").Row | null} */ (null),
  );
  const waits =
    longest && (longest.end - longest.start) * 10 >= call.end - call.start
      ? `rank ${longest.rank} waits longest, ${duration(longest.end - longest.start)} for ` +
        `${awaited(longest)}`
      : "no rank waits long";
  return `${what}, in ${span}; ${waits}.`;
}

/** @param {import("../../engine/model.js").Row} row  of a send */
const messageNamed = (row) => `Message ${row.chunk}, from rank ${row.rank} to rank ${row.peer},`;

/**
 * What a rank has of a message.
 * @param {Reading} reading
 * @param {number} rank
 * @param {number} chunk
 * @param {number} arrived  pieces
 * @param {number} slots  of how many
 */
export function messageWords(reading, rank, chunk, arrived, slots) {
  const { holdings, call } = reading;
  const owner = holdings.owners.get(chunk) ?? -1;
  const taker = takerOf(reading, chunk);
  const size = bytes(
    call.rows.reduce(
      (sum, r) => sum + (r.kind === "send" && r.chunk === chunk ? Math.max(0, r.nbytes) : 0),
      0,
    ),
  );
  if (rank === owner) return `its own, ${size} for rank ${taker}`;
  if (rank !== taker) return "not for it";
  return (
    `${arrived >= slots ? "received" : arrived ? `${arrived} of ${slots} pieces received` : "not received yet"}, ` +
    `${size} from rank ${owner}`
  );
}

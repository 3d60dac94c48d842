// @ts-check
/**
 * A burst of messages, opened as a call: its rows and flights.
 *
 * @typedef {import("./table.js").Table} Table
 * @typedef {import("./model.js").Call} Call
 * @typedef {import("./model.js").Row} Row
 * @typedef {import("./message_bursts.js").Burst} Burst
 */
import { clockOf, flightsOf } from "./model.js";

// of a larger burst the first pieces of each message are opened, and said so
const MOST_ROWS = 20_000;

/**
 * A burst with its rows, each message a chunk.
 * @param {Table} table
 * @param {Burst} head
 * @returns {Call}
 */
export function openBurst(table, head) {
  const { messages, passages, parties, through, sends, rows: many, quiet, ...named } = head;
  const most = Math.max(0, ...messages.map((m) => m.sent));
  const rows = /** @type {Row[]} */ ([]);
  const slots = many > MOST_ROWS ? Math.max(1, Math.floor((most * MOST_ROWS) / many)) : Infinity;
  const counts = /** @type {Map<number, number>} */ (new Map());
  let ranks = 0;
  messages.forEach((message, chunk) => {
    const step = counts.get(message.from) ?? 0; // which of its sender's
    counts.set(message.from, step + 1);
    ranks = Math.max(ranks, message.from + 1, message.to + 1);
    for (const r of message.rows) {
      if (table.slot[r] >= slots) continue;
      const p = table.passage[r];
      rows.push({
        rank: table.passages.rank[p],
        peer: table.peer[r],
        kind: table.kindName(table.kind[r]),
        start: Math.max(0, table.start[r] - head.start),
        end: Math.max(0, table.end[r] - head.start),
        step,
        chunk,
        slot: table.slot[r],
        nbytes: table.nbytes[r],
        phase: "",
        name: table.text(table.name[r]),
        lane: table.text(table.passages.lane[p]),
        seq: table.seq[r],
      });
    }
  });
  rows.sort((a, b) => a.start - b.start || a.rank - b.rank || a.seq - b.seq);
  const flights = flightsOf(rows);
  const moments = [...new Set(flights.map((f) => f.end))].sort((a, b) => a - b);
  const there = new Set(flights.map((f) => `${f.chunk}/${f.slot}`));
  return {
    ...named,
    ranks,
    lying: rows.filter((r) => r.kind === "send" && !there.has(`${r.chunk}/${r.slot}`)),
    left_out: slots < most ? `first ${slots} of ${most} pieces a message` : "",
    rows,
    flights,
    waits: rows.filter((r) => r.kind === "wait"),
    came: new Map(),
    moments,
    clock: clockOf(flights, head.end - head.start),
  };
}

// What the page makes of tables that Python packed: for tests/test_holdings.py, which compares it with contributors.py.
// Reads [{header, bytes (base64), origin, op, group}] from the file that is named; prints what each call's ranks held.
import { readFileSync } from "node:fs";
import { cellAt, holdingsAt, holdingsOf, membersOf, replayed } from "../../assets/holdings.js";
import { openCall } from "../../assets/model.js";
import { Table } from "../../assets/table.js";

const told = JSON.parse(readFileSync(process.argv[2], "utf8")).map(({ header, bytes, op, group }) => {
  const table = new Table();
  table.take(header, new Uint8Array(Buffer.from(bytes, "base64")));
  const head = table.calls.find((c) => c.op === op && c.group === group), call = openCall(table, head);
  const ranks = membersOf(call.rows), { changes } = replayed(call.rows, ranks), held = holdingsOf(call), span = call.end - call.start;
  const states = holdingsAt(held, span), cells = [];
  states.forEach((state, cell) => {
    const { complete, parts, slots, doubled, lacking } = cellAt(held, cell, state, span);
    cells.push({ rank: held.ranks[Math.floor(cell / held.chunks.length)], chunk: held.chunks[cell % held.chunks.length], complete, slots, doubled, lacking,
      within: parts.map((p) => p.within) });
  });
  return { ranks, cells, changes: changes.map((c) => ({ time: c.time + head.start, rank: ranks[c.place], chunk: c.chunk, slot: c.slot, counts: [...c.counts] })) };
});
console.log(JSON.stringify(told));

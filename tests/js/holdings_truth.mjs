// What the page makes of tables that Python packed: for tests/views/test_holdings.py, which
// compares it
// with theory/provenance.py.
// Reads [{header, bytes (base64), origin, op, group}] from the file that is named; prints what each
// call's ranks held.
import { readFileSync } from "node:fs";
import { cellAt, holdingsAt, holdingsOf } from "../../assets/engine/holdings.js";
import { membersOf, replayed } from "../../assets/engine/replayed_cells.js";
import { openCall } from "../../assets/engine/model.js";
import { Table } from "../../assets/engine/table.js";

const told = JSON.parse(readFileSync(process.argv[2], "utf8")).map(
  ({ header, bytes, op, group }) => {
    const table = new Table();
    table.take(header, new Uint8Array(Buffer.from(bytes, "base64")));
    const head = table.calls.find((c) => c.op === op && c.group === group);
    const call = openCall(table, head);
    const ranks = membersOf(call.rows);
    const { changes } = replayed(call.rows, ranks);
    const held = holdingsOf(call);
    const span = call.end - call.start;
    const states = holdingsAt(held, span);
    const cells = [];
    states.forEach((state, cell) => {
      const { complete, parts, slots, doubled, lacking } = cellAt(held, cell, state, span);
      cells.push({
        rank: held.ranks[Math.floor(cell / held.chunks.length)],
        chunk: held.chunks[cell % held.chunks.length],
        complete,
        slots,
        doubled,
        lacking,
        within: parts.map((p) => p.within),
      });
    });
    return {
      ranks,
      cells,
      changes: changes.map((c) => ({
        time: c.time + head.start,
        rank: ranks[c.place],
        chunk: c.chunk,
        slot: c.slot,
        counts: [...c.counts],
      })),
    };
  },
);
console.log(JSON.stringify(told));

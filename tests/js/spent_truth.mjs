// What the page makes of tables that Python packed: for tests/analysis/test_page_agrees.py, which
// compares it with arrivals.py and time_spent.py.
// Reads [{header, bytes (base64), stretches}] from the file that is named; prints of each table the
// rank that came last to each call, and what the time of each stretch was spent on.
import { readFileSync } from "node:fs";
import { lastToJoin } from "../../assets/engine/lateness.js";
import { openCall } from "../../assets/engine/model.js";
import { Table } from "../../assets/engine/table.js";
import { timeSpent } from "../../assets/engine/time_spent.js";

const answers = JSON.parse(readFileSync(process.argv[2], "utf8")).map(
  ({ header, bytes, stretches }) => {
    const table = new Table();
    table.take(header, new Uint8Array(Buffer.from(bytes, "base64")));
    return {
      calls: table.calls.map((head) => ({
        op: head.op,
        ...lastToJoin(table, openCall(table, head)),
      })),
      spent: stretches.length ? [...timeSpent(table, stretches)] : [],
    };
  },
);
console.log(JSON.stringify(answers));

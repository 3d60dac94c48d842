// What the page makes of real calls of every operation: for
// tests/views/test_pictured_operations.py.
// Reads {header, bytes (base64)} from the file that is named; prints of each call whether all hold
// what they must, and its shape.
import { readFileSync } from "node:fs";
import { cellAt, holdingsAt, holdingsOf } from "../../assets/engine/holdings.js";
import { openCall } from "../../assets/engine/model.js";
import { linkRates, hopsOf } from "../../assets/engine/rates.js";
import { shapeOf } from "../../assets/engine/shape.js";
import { Table } from "../../assets/engine/table.js";

const { header, bytes } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const table = new Table();
table.take(header, new Uint8Array(Buffer.from(bytes, "base64")));
console.log(
  JSON.stringify(
    table.calls
      .filter((head) => head.sends)
      .map((head) => {
        const call = openCall(table, head);
        const held = holdingsOf(call);
        const span = call.end - call.start;
        const states = holdingsAt(held, span);
        const wrong = [];
        const asked = [];
        states.forEach((state, cell) => {
          const { complete, lacking } = cellAt(held, cell, state, span);
          const name =
            `rank ${held.ranks[Math.floor(cell / held.chunks.length)]}, chunk ` +
            `${held.chunks[cell % held.chunks.length]}`;
          if (held.asked[cell]) asked.push(name);
          if (held.asked[cell] ? !complete || lacking.length : lacking.length) wrong.push(name);
        });
        const start = holdingsAt(held, 0).filter(
          (state, cell) => held.asked[cell] && cellAt(held, cell, state, 0).complete,
        ).length;
        return {
          operation: call.collective,
          algorithm: call.algorithm,
          ranks: held.ranks,
          root: held.root,
          sound: held.sound,
          judged: held.judged,
          wrong,
          asked: asked.length,
          first: start,
          shape: shapeOf(
            held.ranks.length,
            linkRates(call, hopsOf(call)).keys(),
            held.root,
            call.algorithm,
          ).kind,
        };
      }),
  ),
);

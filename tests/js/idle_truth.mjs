// What the page makes of a pipeline's tables that Python packed: for tests/test_idle.py, which
// compares it with idle.py.
// Reads [{header, bytes (base64), facts}] from the file that is named; prints why each iteration's
// ranks were idle.
import { readFileSync } from "node:fs";
import { passesOf } from "../../assets/scenes/pipeline/call_source.js";
import { passOf } from "../../assets/scenes/pipeline/selection.js";
import { Table } from "../../assets/engine/table.js";

const told = JSON.parse(readFileSync(process.argv[2], "utf8")).map(({ header, bytes, facts }) => {
  const table = new Table();
  table.take(header, new Uint8Array(Buffer.from(bytes, "base64")));
  const passes = passesOf({ table, run: { pipeline: facts } });
  const found = [];
  for (const head of passes.calls.filter(({ complete }) => complete))
    for (let replica = 0; replica < facts.replicas; replica++) {
      const { from, idle, shares } = passOf(passes, facts, head, replica);
      found.push({
        iteration: head.iteration,
        replica,
        shares,
        idle: idle.map(({ place, why, from: a, to: b }) => [place, why, a - from, b - from]),
      });
    }
  return found;
});
console.log(JSON.stringify(told));

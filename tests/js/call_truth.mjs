// What the page says of recorded runs: for tests/analysis/test_one_fault.py.
// Reads [{run, header, bytes (base64)}] from the file that is named; prints of each run why each of
// its all-reduces lasted as long as it did, whose doing it was, and the sentences of three moments.
import { readFileSync } from "node:fs";
import { callCause } from "../../assets/engine/call_cause.js";
import { frameAt, openCall } from "../../assets/engine/model.js";
import { readingOf } from "../../assets/engine/rates.js";
import { collectiveSentence } from "../../assets/scenes/collectives/captions.js";
import { replayOf } from "./recorded.js";

const MOMENTS = [0.1, 0.5, 0.9];

/** @param {any} known @param {any} head */
function answerOf(known, head) {
  const call = openCall(known.table, head);
  const reading = readingOf(call, known);
  const { cause, ranks } = callCause(known, call, reading);
  const said = MOMENTS.map((share) => {
    const t = call.start + share * (call.end - call.start);
    const look = { known, call, live: false, t, table: known.table };
    return collectiveSentence(/** @type {any} */ (look), reading, frameAt(call, t - call.start));
  });
  return { iteration: head.iteration, lasted: call.end - call.start, cause, ranks, said };
}

const runs = JSON.parse(readFileSync(process.argv[2], "utf8"));
const answers = runs.map((run, i) => {
  const known = replayOf(String(i), run);
  const calls = known.table.calls.filter((head) => head.collective === "all_reduce");
  return calls.map((head) => answerOf(known, head));
});
console.log(JSON.stringify(answers));

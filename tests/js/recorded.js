// Real runs, recorded by tests/js/record.py, as a page knows them.
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { keepStoredHolds } from "../../assets/engine/holds.js";
import { Table } from "../../assets/engine/table.js";

/** What a page knows of a recorded run, as of one that is over: a replay. */
export function recorded(name) {
  const file = new URL(`./recorded/${name}.json.gz`, import.meta.url);
  return replayOf(name, JSON.parse(gunzipSync(readFileSync(file)).toString()));
}

/** The same of a run that is at hand. */
export function replayOf(name, { run, header, bytes }) {
  const table = new Table();
  table.take(header, new Uint8Array(Buffer.from(bytes, "base64")));
  keepStoredHolds(table, run.holds);
  return {
    run: { id: name, ...run },
    table,
    state: "replay",
    words: "",
    failure: null,
    counters: null,
    control: null,
    lanesNow: [],
    clock: -Infinity,
    origin: 0,
    seq: 1,
    missed: 0,
  };
}

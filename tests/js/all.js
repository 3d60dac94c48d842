// All tests in one process, which saves the start of a process for each file: node tests/js/all.js
import { readdirSync } from "node:fs";

const folder = new URL(".", import.meta.url);
for (const file of readdirSync(folder).sort())
  if (file.endsWith(".test.js")) await import(new URL(file, folder).href);

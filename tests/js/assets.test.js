import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

const folder = new URL("../../assets/", import.meta.url);
const texts = readdirSync(folder, { recursive: true, encoding: "utf8" })
  .filter((name) => /\.(js|css)$/.test(name))
  .map((name) => [name, readFileSync(new URL(name, folder), "utf8")]);

test("the assets ask no other machine for anything", () => {
  assert.ok(texts.length > 20);
  for (const [name, text] of texts)
    assert.doesNotMatch(
      text.replaceAll("http://www.w3.org/2000/svg", ""),
      /https?:\/\/|@import|fetch\(|XMLHttpRequest/,
      name,
    );
});

test("no asset knows an algorithm's schedule", () => {
  for (const [name, text] of texts)
    assert.doesNotMatch(text, /% (ranks|n|size|p)\b|\+ 1\) % \w*ranks/, name);
});

test("names that come from users are never read as HTML", () => {
  for (const [name, text] of texts)
    for (const [, what] of text.matchAll(/innerHTML[:=\s]+([^\s;,})]+)/g))
      assert.match(what, /^["'`A-Z]/, `${name}: ${what}`); // a constant of its own
});

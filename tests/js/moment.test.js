import assert from "node:assert/strict";
import { test } from "node:test";
import { scaleFor } from "../../assets/chrome/screen.js";
import {
  addressOf,
  momentOfAddress,
  momentOfText,
  momentText,
} from "../../assets/engine/moment.js";

test("a moment is the same after a way through an address", () => {
  const moments = [
    { scene: "collectives", t: 48213900, call: 12, choice: { rank: 2, group: "a&b=c", op: 3 } },
    { scene: "timeline", t: 0, call: 0, choice: null },
    { scene: "server", t: 7, call: 2, choice: null, walk: 3 },
    { scene: "pipeline", t: 5, call: 1, choice: { action: "1F0 ü", microbatch: 0, stage: 3 } },
  ];
  for (const moment of moments) {
    assert.deepEqual(momentOfText(momentText(moment)), moment);
    const address = addressOf("http://127.0.0.1:5006/run?id=x#old", moment);
    assert.equal(address.indexOf("#old"), -1);
    assert.ok(address.startsWith("http://127.0.0.1:5006/run?id=x#"));
    assert.deepEqual(momentOfAddress(new URL(address).hash), moment);
  }
});

test("what is no moment is none: a page's own anchors, times that are none", () => {
  for (const hash of ["", "#", "#the-ring", "#moment:", "#moment:t=x", "#moment:scene=timeline"])
    assert.equal(momentOfAddress(hash), null, hash);
  for (const t of ["-1", "NaN", "Infinity", ""]) assert.equal(momentOfText(`t=${t}`), null, t);
  assert.deepEqual(momentOfText("t=3&rank=x&call=-2"), { scene: "", t: 3, call: 0, choice: null });
  for (const walk of ["0", "-1", "x"]) assert.equal(momentOfText(`walk=${walk}`), null, walk);
  assert.equal(momentOfText("scene=server&walk=2")?.walk, 2, "a step has a moment of its own");
});

test("a stage fills the screen, and is larger for a lecture hall, but never stacked by it", () => {
  const full = { full: true, larger: false };
  assert.equal(scaleFor({ width: 1000, height: 700, full: false, larger: false }), 1);
  assert.equal(
    scaleFor({ width: 1000, height: 700, ...full }),
    1,
    "a small screen shrinks nothing",
  );
  const hd = scaleFor({ width: 1920, height: 1080, ...full });
  assert.ok(1920 / hd >= 1240 && 1080 / hd >= 745 && hd > 1.4);
  const hall = scaleFor({ width: 1920, height: 1080, full: true, larger: true });
  assert.ok(11 * hall >= 22, "the smallest words, 11 px, are read from the last row");
  for (const width of [800, 1060, 1440, 1920, 3840])
    for (const at of [full, { full: false }]) {
      const larger = scaleFor({ width, height: 0.6 * width, ...at, larger: true });
      const before = scaleFor({ width, height: 0.6 * width, ...at, larger: false });
      assert.ok(larger >= before && (larger === before || width / larger >= 780), `${width}`);
      if (width > 1200) assert.ok(larger > 1.2 * before, `${width}`);
    }
});

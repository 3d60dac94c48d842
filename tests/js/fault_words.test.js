import assert from "node:assert/strict";
import { test } from "node:test";
import { linkChange, linkFaultWords } from "../../assets/engine/link_faults.js";

test("a link's new latency and bandwidth have the units that pages write: µs, not us", () => {
  const words = (/** @type {number} */ value, nbytes = -1) =>
    linkFaultWords(linkChange({ name: "link", rank: 0, group: "0->1", value, nbytes }), "→");
  assert.equal(words(30e-6), "link 0 → 1 now 30 µs");
  assert.equal(words(1.5e-6, 125e6), "link 0 → 1 now 1.5 µs, 1 Gbit/s");
  assert.equal(words(2e-9), "link 0 → 1 now 2 ns");
  assert.equal(words(0), "You restored link 0 → 1");
});

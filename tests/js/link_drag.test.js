import assert from "node:assert/strict";
import { test } from "node:test";
import { LinkDrag, draggedBandwidth } from "../../assets/scenes/collectives/link_drag.js";
import { BANDWIDTHS } from "../../assets/engine/actions.js";

test("outwards is slower, inwards faster, never past either end", () => {
  assert.equal(draggedBandwidth("unlimited", 5), "unlimited", "no drag yet");
  assert.equal(draggedBandwidth("unlimited", 20), "1 Gbit/s");
  assert.equal(draggedBandwidth("100 Mbit/s", 60), "1 Mbit/s");
  assert.equal(draggedBandwidth("100 Mbit/s", -20), "1 Gbit/s");
  for (const was of BANDWIDTHS)
    for (let px = -500; px <= 500; px += 7) {
      const [now, next] = [px, px + 7].map((at) => BANDWIDTHS.indexOf(draggedBandwidth(was, at)));
      assert.ok(now >= 0 && next >= now);
    }
});

test("a drag says what it will do, and does nothing where it goes back", () => {
  const heard = {};
  const canvas = { addEventListener: (kind, hear) => (heard[kind] = hear), setPointerCapture() {} };
  const known = { state: "running", run: { ranks: 2 }, control: { links: [], ended: {} } };
  const stage = { known, touch() {} };
  const nodes = [-50, 50].map((x) => ({ x, y: 0 }));
  const drag = new LinkDrag(
    canvas,
    stage,
    () => ({ from: 0, to: 1 }),
    () => nodes,
  );
  heard.pointerdown({ button: 0, offsetX: 0, offsetY: 20, pointerId: 1 });
  assert.equal(drag.lines, null);
  heard.pointermove({ offsetX: 0, offsetY: 80 });
  assert.deepEqual(drag.lines, ["link 0 → 1: 100 Mbit/s", "it was: no limit; let go to set it"]);
  heard.pointermove({ offsetX: 0, offsetY: 21 });
  assert.deepEqual(drag.lines, ["link 0 → 1: no limit", "as it is"]);
  heard.pointerup();
  assert.ok(drag.over && drag.link === null && drag.lines === null);
  known.state = "replay"; // its ranks are gone
  heard.pointerdown({ button: 0, offsetX: 0, offsetY: 20, pointerId: 1 });
  assert.equal(drag.link, null);
  known.run.trials = { links: true };
  known.state = "finished"; // so are they, and it can be run again
  heard.pointerdown({ button: 0, offsetX: 0, offsetY: 20, pointerId: 1 });
  heard.pointermove({ offsetX: 0, offsetY: 80 });
  assert.match(drag.lines[1], /let go to choose it for the next run/);
});

import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { wireOf } from "../../assets/chrome/host.js";
import { batch, rows } from "./rows.js";

mock.timers.enable({ apis: ["setTimeout"] });

/**
 * A widget's model as anywidget hands it to each picture: a proxy of its own, which goes deaf when
 * the picture has gone.
 */
function widget() {
  const layout = {};
  const proxies = new Set();
  const sent = [];
  const view = () => {
    const takers = new Set();
    const proxy = {
      get: (name) => (name === "layout" ? layout : undefined),
      send: (m) => sent.push(m),
      on: (_, take) => takers.add(take),
      off: (_, take) => takers.delete(take),
      say: (m, buffers) => takers.forEach((take) => take(m, buffers)),
      dispose: () => takers.clear(),
    };
    proxies.add(proxy);
    return proxy;
  };
  return { view, sent, say: (m, buffers) => proxies.forEach((p) => p.say(m, buffers)) };
}
const seconds = (n) => Array.from({ length: n }, () => mock.timers.tick(1000));
const hellos = (sent) => sent.filter((m) => m.type === "hello").map((m) => m.token);

test("a hello is repeated, the same one, until it is answered", () => {
  const w = widget();
  const leave = wireOf(w.view()).join(() => {});
  for (let i = 0; i < 3; i++) mock.timers.tick(600);
  assert.equal(hellos(w.sent).length, 4);
  assert.equal(new Set(hellos(w.sent)).size, 1);
  w.say(...batch(rows));
  mock.timers.tick(2000);
  assert.equal(hellos(w.sent).length, 4);
  w.say(...batch(rows, { seq: 5 })); // 2 to 4 are missing
  mock.timers.tick(700);
  assert.equal(new Set(hellos(w.sent)).size, 2);
  leave();
  const before = w.sent.length;
  mock.timers.tick(5000);
  assert.equal(w.sent.length, before, "nobody is there to ask");
});

test(
  "an answer that was lost is asked for anew, with another token, and meanwhile it is said " +
    "that nothing comes",
  () => {
    const w = widget();
    const wire = wireOf(w.view());
    const leave = wire.join(() => {});
    const now = performance.now();
    for (let i = 0; i < 5; i++) mock.timers.tick(600); // the answer to the first five never comes
    assert.equal(new Set(hellos(w.sent)).size, 2);
    assert.equal(wire.trouble(now), "");
    assert.match(wire.trouble(now + 5000), /nothing from the kernel.*run the cell again/);
    w.say(...batch(rows));
    assert.equal(wire.trouble(now + 5000), "");
    leave();
  },
);

test(
  "where nothing comes any more though the run goes on, it is asked for: the last message " +
    "may be what was lost",
  () => {
    const w = widget();
    const wire = wireOf(w.view());
    const leave = wire.join(() => {});
    const questions = () => w.sent.filter((m) => "heard" in m);
    w.say(...batch(rows, { seq: 1, state: "running" }));
    for (let i = 2; i < 9; i++) {
      mock.timers.tick(1000);
      w.say(...batch([], { seq: i, state: "running" }));
    }
    assert.equal(questions().length, 0, "who is told something every second need not ask");
    seconds(9);
    assert.deepEqual(
      questions().map(({ heard, run }) => [heard, run]),
      [[8, wire.known.run.id]],
    );
    assert.equal(wire.trouble(performance.now()), "", "one question may be slow to be answered");
    seconds(10);
    assert.match(wire.trouble(performance.now() + 20_000), /for 20 s: the picture is of then/);
    w.say(...batch([], { seq: 9, state: "failed", words: "rank 1 was killed" }));
    assert.equal(wire.known.state, "failed");
    assert.equal(wire.trouble(performance.now() + 20_000), "");
    const asked = questions().length;
    seconds(100);
    assert.equal(questions().length, asked, "of a run that is over nothing more will come");
    leave();
  },
);

test("news of another run without its beginning is no picture of it: it is asked for", () => {
  const w = widget();
  const wire = wireOf(w.view());
  const leave = wire.join(() => {});
  w.say(...batch(rows, { seq: 1, state: "running" }));
  const before = hellos(w.sent).length;
  w.say(...batch(rows, { seq: 7, state: "running", run: { ...wire.known.run, id: "another" } }));
  assert.equal(hellos(w.sent).length, before + 1);
  leave();
});

test("a picture that is drawn anew goes on with what was known, and is not told it again", () => {
  const w = widget();
  const old = w.view();
  const wire = wireOf(old);
  const leave = wire.join(() => {});
  w.say(...batch(rows));
  wire.kept.scene = "timeline";
  const heard = [];
  const again = wireOf(w.view());
  assert.equal(again, wire);
  const leaveToo = again.join((m) => heard.push(m));
  assert.equal(heard.length, 1, "it hears at once of the run that is known");
  old.dispose();
  leave();
  w.say(...batch(rows, { seq: 2 }));
  assert.deepEqual(
    [heard.length, wire.known.seq, wire.known.table.rows, hellos(w.sent).length],
    [2, 2, 2 * rows.length, 1],
  );
  leaveToo();
  wireOf(w.view()).join(() => {});
  assert.equal(hellos(w.sent).length, 2, "whoever comes after a time without a picture asks");
});

test("two models have a line each, and what is asked goes out by the picture that is there", () => {
  const [a, b] = [widget(), widget()];
  const wire = wireOf(a.view());
  assert.notEqual(wireOf(b.view()), wire);
  wire.join(() => {});
  wire.send({ type: "do", verb: "pause" });
  assert.deepEqual(
    a.sent.map((m) => m.type),
    ["hello", "do"],
  );
  assert.deepEqual(b.sent, []);
  const page = { on: () => {}, off: () => {} }; // a saved page: nobody answers
  wireOf(page).join(() => {});
  const proxy = { send_msg: (m) => b.sent.push(m) }; // Panel: a view's, which stays
  const first = wireOf({ on: () => {} }, { model_proxy: proxy });
  assert.equal(wireOf({ on: () => {} }, { model_proxy: proxy }), first);
});

test("a command is sent again until it is answered; the wish to start a run is sent once", () => {
  const w = widget();
  const wire = wireOf(w.view());
  const leave = wire.join(() => {});
  const sent = (id) => w.sent.filter((m) => m.id === id).length;
  wire.order({ type: "do", id: "a", verb: "stop", args: {} });
  wire.order({ type: "do", id: "b", verb: "start", args: {} });
  assert.deepEqual([sent("a"), sent("b")], [1, 1]);
  seconds(3);
  assert.deepEqual([sent("a"), sent("b")], [4, 1]);
  w.say({ type: "said", id: "a", ok: true, words: "" });
  seconds(3);
  assert.equal(sent("a"), 4);
  wire.order({ type: "do", id: "c", verb: "pause", args: {} });
  seconds(20);
  assert.equal(sent("c"), 10, "not for ever");
  leave();
});

test("a message that was packed for many pages is opened, with what is this page's own", () => {
  const w = widget();
  const wire = wireOf(w.view());
  const leave = wire.join(() => {});
  const [{ seq, ...common }, [block]] = batch(rows, { state: "running", counters: { events: 5 } });
  const header = new TextEncoder().encode(JSON.stringify(common));
  const packet = new Uint8Array(4 + header.length + block.byteLength);
  new DataView(packet.buffer).setUint32(0, header.length, true);
  packet.set(header, 4);
  packet.set(new Uint8Array(block), 4 + header.length);
  const own = { seq, run: { readonly: true }, counters: { older: 7 } };
  w.say({ own: JSON.stringify(own) }, [packet.buffer]);
  assert.deepEqual(
    [wire.known.seq, wire.known.state, wire.known.table.rows, wire.known.run.readonly],
    [seq, "running", rows.length, true],
  );
  assert.deepEqual(wire.known.counters, { events: 5, older: 7 });
  assert.equal(wire.known.run.id, common.run.id);
  leave();
});

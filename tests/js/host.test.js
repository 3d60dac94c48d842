import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { wireOf } from "../../assets/host.js";
import { batch, rows } from "./rows.js";

mock.timers.enable({ apis: ["setTimeout"] });

/** A widget's model as anywidget hands it to each picture: a proxy of its own, which goes deaf when the picture has gone. */
function widget() {
  const layout = {}, proxies = new Set(), sent = [];
  const view = () => {
    const takers = new Set();
    const proxy = { get: (name) => (name === "layout" ? layout : undefined), send: (m) => sent.push(m), on: (_, take) => takers.add(take), off: (_, take) => takers.delete(take),
      say: (m, buffers) => takers.forEach((take) => take(m, buffers)), dispose: () => takers.clear() };
    proxies.add(proxy);
    return proxy;
  };
  return { view, sent, say: (m, buffers) => proxies.forEach((p) => p.say(m, buffers)) };
}
const hellos = (sent) => sent.filter((m) => m.type === "hello").map((m) => m.token);

test("a hello is repeated, the same one, until it is answered", () => {
  const w = widget(), leave = wireOf(w.view()).join(() => {});
  for (let i = 0; i < 3; i++) mock.timers.tick(600);
  assert.equal(hellos(w.sent).length, 4);
  assert.equal(new Set(hellos(w.sent)).size, 1);
  w.say(...batch(rows));
  mock.timers.tick(5000);
  assert.equal(hellos(w.sent).length, 4);
  w.say(...batch(rows, { seq: 5 })); // 2 to 4 are missing
  mock.timers.tick(700);
  assert.equal(new Set(hellos(w.sent)).size, 2);
  leave();
  const before = w.sent.length;
  mock.timers.tick(5000);
  assert.equal(w.sent.length, before, "nobody is there to ask");
});

test("a picture that is drawn anew goes on with what was known, and is not told it again", () => {
  const w = widget(), old = w.view(), wire = wireOf(old), leave = wire.join(() => {});
  w.say(...batch(rows));
  wire.kept.scene = "timeline";
  const heard = [], again = wireOf(w.view());
  assert.equal(again, wire);
  const leaveToo = again.join((m) => heard.push(m));
  assert.equal(heard.length, 1, "it hears at once of the run that is known");
  old.dispose();
  leave();
  w.say(...batch(rows, { seq: 2 }));
  assert.deepEqual([heard.length, wire.known.seq, wire.known.table.rows, hellos(w.sent).length], [2, 2, 2 * rows.length, 1]);
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
  assert.deepEqual(a.sent.map((m) => m.type), ["hello", "do"]);
  assert.deepEqual(b.sent, []);
  const page = { on: () => {}, off: () => {} }; // a saved page: nobody answers
  wireOf(page).join(() => {});
  const proxy = { send_msg: (m) => b.sent.push(m) }; // Panel: a view's, which stays
  const first = wireOf({ on: () => {} }, { model_proxy: proxy });
  assert.equal(wireOf({ on: () => {} }, { model_proxy: proxy }), first);
});

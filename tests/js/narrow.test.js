import assert from "node:assert/strict";
import { test } from "node:test";
import { fitted, wrapped } from "../../workbench/interface/app/parts/narrow.js";

const LAYOUT = {
  height: 640,
  margin: { l: 60, r: 24 },
  xaxis: { anchor: "y", domain: [0, 0.45] },
  yaxis: { domain: [0.6, 1] },
  yaxis2: { overlaying: "y" },
  xaxis2: { anchor: "y3", domain: [0.55, 1] },
  yaxis3: { domain: [0.6, 1] },
  xaxis3: { anchor: "y5", domain: [0, 0.45] },
  yaxis5: { domain: [0, 0.4] },
  legend: { x: 0.45, y: 1, yanchor: "top" },
  legend2: { x: 1, y: 1, yanchor: "top" },
  legend3: { x: 0.45, y: 0, yanchor: "bottom" },
  annotations: [
    { text: "<b>Losses compared, by iteration</b> of the runs that are ticked", x: 0, y: 1 },
    { text: "Why the ranks idle", x: 0.55, y: 1 },
    { text: "By time", x: 0, y: 0.4 },
  ],
};

test("on a narrow page charts stand one under the other, each with its key and its title", () => {
  const { height, annotations, ...rest } = fitted(LAYOUT, 380);
  assert.equal(height, 3 * 320);
  const panels = [
    [rest.xaxis, rest.yaxis, rest.legend, annotations[0]],
    [rest.xaxis2, rest.yaxis3, rest.legend2, annotations[1]],
    [rest.xaxis3, rest.yaxis5, rest.legend3, annotations[2]],
  ];
  let below = Infinity;
  for (const [x, y, legend, title] of panels) {
    assert.deepEqual(x.domain, [0, 1]);
    const [bottom, top] = y.domain;
    assert.ok(0 <= bottom && bottom < top && top < below, `${[bottom, top]} under ${below}`);
    below = bottom;
    assert.equal(legend.x, 1);
    assert.ok(bottom <= legend.y && legend.y <= top);
    assert.deepEqual([title.x, title.y], [0, top]);
  }
  assert.match(annotations[0].text, /^<b>Losses compared, by iteration<\/b> of the.*<br>/);
});

test("where there is room all stays as it is", () => {
  const wide = fitted(LAYOUT, 1240);
  assert.equal(wide.height, 640);
  assert.deepEqual(wide.xaxis2.domain, [0.55, 1]);
  assert.equal(wide.annotations[1].text, "Why the ranks idle");
});

test("a title is broken between words, and tags take no room", () => {
  assert.equal(wrapped("<b>one two</b> three", 13), "<b>one two</b> three");
  assert.equal(wrapped("one two three", 8), "one two<br>three");
  assert.equal(wrapped("unbreakable", 4), "unbreakable");
});

test("a sign of the key stays with its word, and a tag is whole", () => {
  const sign = (text) => `<span style="color:#123456">■</span> ${text}`;
  const title = `<b>Exposed</b><br><span style="font-size:12px">${sign("exposed 49 ms,")} ${sign("computing 28 ms")}</span>`;
  const lines = wrapped(title, 18).split("<br>");
  assert.deepEqual(
    lines.map((line) => line.replace(/<[^>]*>/g, "")),
    ["Exposed", "■ exposed 49 ms,", "■ computing 28 ms"],
  );
});

test("a title of more lines has room above its chart, which keeps its height", () => {
  const layout = {
    height: 320,
    margin: { t: 50, l: 60, r: 24 },
    xaxis: { anchor: "y", domain: [0, 1] },
    yaxis: { domain: [0, 1] },
    annotations: [{ text: "a title of many words ".repeat(8).trim(), x: 0, y: 1 }],
  };
  const { height, margin, annotations } = fitted(layout, 380);
  const more = annotations[0].text.split("<br>").length - 2;
  assert.ok(more > 0);
  assert.equal(margin.t, 50 + 16 * more);
  assert.equal(height - margin.t, 320 - 50);
});

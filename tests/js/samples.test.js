import assert from "node:assert/strict";
import { test } from "node:test";
import {
  dealOf,
  dealsSame,
  elsewhere,
  iterationsAt,
  momentOf,
} from "../../assets/scenes/samples/deal.js";
import { drawDeal, headings } from "../../assets/scenes/samples/draw.js";
import {
  columnAt,
  placeOf as dealPlace,
  pageOf,
  rowAt,
  hitUnder as underDeal,
} from "../../assets/scenes/samples/place.js";
import {
  chosenSampleWords,
  sentenceOf as dealSentence,
  dealWords,
  partLinesOf,
  sampleLines,
  shownWords,
} from "../../assets/scenes/samples/captions.js";
import { INK, canvas, lies } from "./canvas.js";
import { row, tableOf } from "./rows.js";
import { sample } from "./sample.js";

/** As torch's DistributedSampler deals out n samples in order: padded with the first ones. */
function dealt(n, m, p, more = 0) {
  const whole = Array.from({ length: Math.ceil(n / p) * p }, (_, i) => i % n);
  const each = Math.floor(m / p);
  const minibatches = [];
  const had = new Set();
  for (let k = 0; k * each < whole.length / p; k++) {
    const of = Array.from({ length: p }, (_, r) =>
      whole.filter((_, i) => i % p === r).slice(k * each, (k + 1) * each),
    );
    const repeated = of.map(() => []);
    for (let at = 0; at < each; at++)
      of.forEach((ids, r) => {
        if (at < ids.length && had.has(ids[at])) repeated[r].push(at);
        had.add(ids[at]);
      });
    minibatches.push({
      epoch: 0,
      number: k,
      sequential: Array.from({ length: Math.max(0, Math.min(m, n - k * m)) }, (_, i) => k * m + i),
      of,
      repeated,
    });
  }
  return {
    n,
    batch_size: m,
    ranks: p,
    drop_last: false,
    shuffle: false,
    sampler: "distributed",
    more,
    minibatches,
    laws: [],
  };
}
const CASES = [
  dealt(24, 8, 2),
  dealt(10, 4, 4),
  dealt(30, 10, 4),
  dealt(600, 64, 4),
  dealt(300, 128, 16),
  dealt(600, 256, 64),
  dealt(7, 1, 1),
];
const seenOf = (facts, width, more = {}) => {
  const deal = dealOf({ samples: facts });
  const at = deal.ranks.map(() => -1);
  return { deal, place: dealPlace(deal, width, 0), at, runs: false, sample: -1, rank: -1, ...more };
};
const look = (width) => ({ ink: INK, font: "sans-serif", ratio: 1, width });
globalThis.document ??= { createElement: () => ({ getContext: () => canvas() }) };
globalThis.DOMMatrix ??= class {
  scale() {
    return this;
  }
};

test("every sample that a rank takes is in one column of its minibatch, in its row", () => {
  for (const facts of CASES) {
    const { batches } = dealOf({ samples: facts });
    batches.forEach((batch, k) => {
      const { of, sequential, repeated } = facts.minibatches[k];
      of.forEach((ids, r) => {
        const mine = batch.columns
          .flatMap((c) =>
            c.takers.filter((t) => t.row === r).map((t) => [t.place, c.sample, t.again]),
          )
          .sort((a, b) => a[0] - b[0]);
        assert.deepEqual(
          mine,
          ids.map((id, place) => [place, id, repeated[r].includes(place)]),
        );
      });
      assert.deepEqual(
        batch.columns.slice(0, batch.wide).map((c) => c.sample),
        sequential,
        "one process's come first, in its order",
      );
      const union = of.flat().sort((a, b) => a - b);
      const alone = [...sequential].sort((a, b) => a - b);
      assert.equal(dealsSame(batch), String(union) === String(alone));
    });
  }
});

test("a sample that a rank takes twice, or two ranks take, is seen as often", () => {
  const facts = {
    ...dealt(4, 2, 2),
    minibatches: [
      {
        epoch: 0,
        number: 0,
        sequential: [0, 1],
        of: [
          [0, 0],
          [0, 1],
        ],
        repeated: [[1], [0]],
      },
    ],
  };
  const [batch] = dealOf({ samples: facts }).batches;
  assert.equal(
    batch.columns.reduce((n, c) => n + c.takers.length, 0),
    4,
  );
  for (const { takers } of batch.columns)
    assert.equal(
      new Set(takers.map((t) => t.row)).size,
      takers.length,
      "one cell over another is not seen",
    );
  assert.deepEqual([batch.again, batch.lack, batch.extra], [2, 0, 2]);
  assert.equal(dealsSame(batch), false);
});

test("padding: what is said of the samples that are taken again", () => {
  const deal = dealOf({ samples: CASES[1] });
  const last = deal.batches[2];
  assert.deepEqual(headings(last, false)[0], "minibatch 2 ≠ 2 more");
  assert.match(
    dealWords(deal, last),
    /4 samples over 4 ranks, 1 each: not the samples that one process takes: 2 taken before in this epoch/,
  );
  const column = last.columns.findIndex((c) => c.sample === 0);
  assert.deepEqual(sampleLines(deal, last, column, 2), [
    "sample 0 · minibatch 2",
    "one process takes it in minibatch 0",
    "rank 2 takes it as number 0, again: this epoch has had it",
    "also: minibatch 0 on rank 0",
  ]);
  assert.equal(elsewhere(deal, last, 0), 0);
  assert.deepEqual(partLinesOf(deal, last, 3), [
    "rank 3 · minibatch 2: 1 sample",
    "(1)",
    "in brackets: taken before in this epoch",
  ]);
  assert.equal(
    chosenSampleWords(deal, 0),
    "sample 0: minibatch 0 on rank 0; minibatch 2 on rank 2 (again)",
  );
  assert.equal(shownWords(deal, 0, 2), "minibatches 0 to 2 of 3");
  assert.equal(
    dealWords(dealOf({ samples: CASES[0] }), dealOf({ samples: CASES[0] }).batches[1]),
    "8 samples over 2 ranks, 4 each: the same samples as one process takes",
  );
});

test("panels lie within the picture, none over another, each minibatch on one page", () => {
  for (const facts of CASES)
    for (const width of sample([640, 960])) {
      const deal = dealOf({ samples: facts });
      const shown = [];
      for (let page = 0, pages = 1; page < pages; page++) {
        const place = dealPlace(deal, width, page);
        pages = place.pages;
        assert.ok(
          place.height <= 620 || place.down === 1,
          `${facts.ranks} ranks: ${place.height} px`,
        );
        for (const { index, x, y } of place.panels) {
          shown.push(index);
          assert.equal(pageOf(place, index), page);
          assert.ok(x + place.panel <= width && rowAt(place, y, place.rows) <= place.height);
          for (const other of place.panels)
            if (other.index !== index)
              assert.ok(
                Math.abs(other.x - x) >= place.panel ||
                  Math.abs(other.y - y) >= rowAt(place, 0, place.rows),
              );
          deal.batches[index].columns.forEach((_, k) =>
            assert.ok(
              columnAt(place, x, k, deal.batches[index].wide) + place.cell <=
                x + place.panel + 0.01,
            ),
          );
        }
      }
      assert.deepEqual(
        shown,
        deal.batches.map((b) => b.index),
      );
    }
});

test("what is under the pointer is what is drawn there", () => {
  for (const facts of CASES)
    for (const width of sample([640, 960])) {
      const { deal, place } = seenOf(facts, width);
      for (const { index, x, y } of place.panels)
        deal.batches[index].columns.forEach((column, k) => {
          for (const { row: r } of [...column.takers, { row: -1 }]) {
            const hit = underDeal(
              place,
              deal,
              columnAt(place, x, k, deal.batches[index].wide) + place.cell / 2,
              rowAt(place, y, r) + (r < 0 ? place.head / 2 : place.row / 2),
            );
            assert.deepEqual(hit, { index, row: r, column: k });
          }
        });
      assert.equal(underDeal(place, deal, width - 0.5, place.height + 5), null);
    }
});

test(
  "numbers are 11 px, inside the picture, none over another; what is taken again is hatched, " +
    "not solid",
  () => {
    for (const facts of CASES)
      for (const width of sample([640, 960])) {
        const g = canvas();
        const seen = seenOf(facts, width);
        drawDeal(g, look(width), seen);
        const texts = g.drawn.filter((one) => one.kind === "text");
        assert.ok(texts.length, "something is written");
        if (!seen.place.upright)
          texts.forEach((text, i) => {
            assert.ok(
              text.size >= 11 && text.x >= -0.5 && text.x + text.w <= width + 0.5,
              text.text,
            );
            for (const other of texts.slice(0, i))
              assert.ok(
                !(
                  text.x < other.x + other.w - 0.5 &&
                  other.x < text.x + text.w - 0.5 &&
                  text.y < other.y + other.h - 0.5 &&
                  other.y < text.y + text.h - 0.5
                ),
                `${text.text} over ${other.text}`,
              );
          });
        const solid = g.drawn.filter(
          (one) =>
            one.kind === "box" &&
            one.filled &&
            (/^s\d$/.test(one.ink) || one.ink === "done") &&
            one.h > 3 &&
            one.w >= seen.place.cell - 2,
        );
        const taken = seen.place.panels.flatMap(({ index }) =>
          seen.deal.batches[index].columns.flatMap((c) => c.takers),
        );
        if (seen.place.cell > 6) assert.equal(solid.length, taken.filter((t) => !t.again).length);
      }
  },
);

test("the playhead: what a rank has not begun is pale, and a mark stands where it is", () => {
  const facts = CASES[0];
  const g = canvas();
  drawDeal(g, look(960), seenOf(facts, 960, { runs: true, at: [1, 0] }));
  const cells = g.drawn.filter(
    (one) => one.kind === "box" && one.filled && /^s[01]$/.test(one.ink) && one.h > 10,
  );
  const pale = (ink, alpha) => cells.filter((one) => one.ink === ink && one.alpha === alpha).length;
  assert.deepEqual(
    [pale("s0", 1), pale("s0", 0.35), pale("s1", 1), pale("s1", 0.35)],
    [8, 4, 4, 8],
  );
});

test("where each rank is, is its newest row of loading", () => {
  const rows = [0, 1].flatMap((r) =>
    [0, 1, 2].map((i) =>
      row(r, "load", 1000 * i + 100 * r, 1000 * i + 100 * r + 50, {
        lane: "compute",
        op: -1,
        iteration: i,
        collective: "",
        group: "",
      }),
    ),
  );
  const table = tableOf(rows);
  assert.deepEqual(iterationsAt(table, [0, 1], -1), [-1, -1]);
  assert.deepEqual(iterationsAt(table, [0, 1], 1050), [1, 0]);
  assert.deepEqual(iterationsAt(table, [1, 7], 9999), [2, -1]);
  assert.equal(momentOf(table, 2), 2000);
  assert.equal(momentOf(table, 3), null);
  const deal = dealOf({ samples: CASES[0] });
  assert.equal(
    dealSentence(deal, [1, 0], true),
    "Minibatch 0: 8 samples over 2 ranks, 4 each: the same samples as one process takes. Rank 0 " +
      "is 1 ahead.",
  );
  assert.equal(
    dealSentence(deal, [-1, -1], true),
    "The ranks have not begun. 3 minibatches are known.",
  );
  assert.equal(
    dealSentence(deal, [7, 7], true),
    "The ranks are in iteration 8; the first 3 minibatches are shown.",
  );
  assert.equal(dealOf({ samples: null }), null);
});

test("a line does not cross a number", () => {
  const g = canvas();
  const seen = seenOf(CASES[1], 960);
  drawDeal(g, look(960), seen);
  assert.ok(
    columnAt(seen.place, 0, 2, 2) > columnAt(seen.place, 0, 1, 2) + seen.place.cell,
    "the others stand apart",
  );
  const texts = g.drawn.filter((one) => one.kind === "text" && /^\d+$/.test(one.text));
  const lines = g.drawn.filter((one) => one.ink === "edge" && one.kind === "box");
  assert.ok(lines.length);
  for (const line of lines) for (const text of texts) assert.ok(!lies(line, text), text.text);
});

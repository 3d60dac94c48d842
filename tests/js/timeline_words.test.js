import assert from "node:assert/strict";
import { test } from "node:test";
import { TimelineIndex } from "../../assets/scenes/timeline/index.js";
import {
  RECENT,
  beginningOf,
  chosenWords,
  coreWords,
  costWords,
  crowdBadge,
  iterationWords,
  overlapWords,
  rowWords,
  stragglerOf,
  stragglerWords,
} from "../../assets/scenes/timeline/captions.js";
import { tableOf } from "./rows.js";
import { heard, trained } from "./training.js";

function indexOf(options) {
  const index = new TimelineIndex(tableOf(heard(trained(options))));
  index.update();
  return index;
}
const factsAt = (index, i) => index.factsOf(i, index.table.to);
const recent = (index, last) =>
  Array.from({ length: RECENT }, (_, k) => factsAt(index, last - RECENT + 1 + k)).filter(
    (f) => f.length,
  );
const found = (options, cores = 8, last = 9) => stragglerOf(recent(indexOf(options), last), cores);

test("a rank that computes longer is named, with its share and what it costs", () => {
  const index = indexOf({ compute: (r) => (r === 2 ? 1.31 : 1) });
  const straggler = stragglerOf(recent(index, 9), 8);
  assert.equal(straggler.rank, 2);
  assert.equal(
    stragglerWords(straggler),
    "Rank 2 is the straggler: its backward takes 31 % longer, and the others wait 9.30 ms " +
      "in every iteration.",
  );
});

test("with iterations from before, the sentence tells what it was like", () => {
  const index = indexOf({ iterations: 60, compute: (r, i) => (r === 2 && i >= 31 ? 1.31 : 1) });
  const straggler = stragglerOf(recent(index, 59), 8);
  assert.deepEqual(beginningOf((i) => (i < 0 ? [] : factsAt(index, i)), 2, 59, 0).since, 31);
  Object.assign(
    straggler,
    beginningOf((i) => (i < 0 ? [] : factsAt(index, i)), 2, 59, 0),
  );
  assert.equal(
    stragglerWords(straggler),
    "Rank 2 is the straggler: its backward takes 31 % longer, so every iteration lasts " +
      "42.8 ms instead of 33.5 ms.",
  );
  assert.match(
    costWords(factsAt(index, 59), straggler),
    /^9\.30 ms an iteration, on all ranks, since iteration 32$/,
  );
  assert.deepEqual(
    beginningOf(
      (i) => (i < 0 ? [] : factsAt(indexOf({ compute: (r) => (r === 2 ? 1.31 : 1) }), i)),
      2,
      9,
      0,
    ),
    { since: -1, before: NaN },
  );
});

test("a rank that only waited for a core is not called the straggler", () => {
  assert.equal(found({ queue: (r) => (r === 2 ? 9 : 0) }, 2), null);
  assert.equal(found({ queue: (r) => (r === 2 ? 9 : 0) }, 8), null);
  // only the iteration's sum is known
  assert.equal(found({ queue: (r) => (r === 2 ? 9 : 0), measured: false }, 2), null);
  assert.equal(found({ queue: (r) => 6 - r }, 2), null);
});

test("a rank that is slow and waited for a core as others did is", () => {
  const straggler = found({ compute: (r) => (r === 2 ? 1.6 : 1), queue: () => 2 }, 2);
  assert.equal(straggler.rank, 2);
  // less than it is: the others' waiting counts for them
  assert.ok(straggler.more > 0.3 && straggler.more < 0.6, `${straggler.more}`);
});

test("nobody is named who is not for sure", () => {
  assert.equal(found({}), null); // all equal
  assert.equal(found({ compute: (r) => (r === 2 ? 1.06 : 1) }), null); // by little
  assert.equal(found({ compute: (r, i) => (r === 2 && i === 9 ? 3 : 1) }), null); // once
  assert.equal(found({ compute: (r, i) => ((r + i) % 4 === 0 ? 1.5 : 1) }), null); // in turn
  assert.equal(found({ compute: (r) => (r > 1 ? 1.4 : 1) }), null); // two of four
  assert.equal(found({ ranks: 1 }), null);
  // too early
  assert.equal(found({ iterations: 2, compute: (r) => (r === 2 ? 2 : 1) }, 8, 1), null);
  assert.equal(
    found({ cores: false, measured: false, compute: (r) => (r === 2 ? 2 : 1) }, 2),
    null,
  ); // nobody measured, and cores are few
  assert.equal(
    found({ cores: false, measured: false, compute: (r) => (r === 2 ? 2 : 1) }, 8).rank,
    2,
  );
});

test("what an iteration was made of", () => {
  const index = indexOf({});
  const facts = factsAt(index, 4);
  assert.equal(
    iterationWords(facts, 8),
    "Iteration 5 took 33.5 ms; the mean rank spent 31.1 ms computing and 2.40 ms " +
      "communicating with nothing to hide it.",
  );
  assert.equal(overlapWords(facts), "none: no rank computes while it communicates");
  assert.match(
    iterationWords(factsAt(indexOf({ queue: () => 12 }), 4), 2),
    /^Iteration 5 took 45\.5 ms; 4 ranks share 2 cores, and each waited 12\.0 ms of it for one\.$/,
  );
  const spent = { compute: 6e6, wait: 1e6, link: 26e6, core: 12e6, moving: 26e6 };
  const onTheWay = factsAt(indexOf({ queue: () => 12 }), 4).map((f) => ({ ...f, spent }));
  assert.equal(
    iterationWords(onTheWay, 2),
    "Iteration 5 took 45.5 ms; the mean rank spent 6.00 ms computing, 26.0 ms waiting for bytes " +
      "on their way, 1.00 ms waiting for others and 12.0 ms waiting for a core.",
  );
  assert.equal(iterationWords([], 2), "");
});

test("overlap: what is hidden, by rank where ranks differ", () => {
  const even = factsAt(indexOf({ overlap: true }), 4);
  const slow = factsAt(indexOf({ overlap: true, compute: (r) => (r === 2 ? 1.6 : 1) }), 4);
  assert.equal(overlapWords(even), "50 % of the communication is hidden behind computing");
  assert.match(
    overlapWords(slow),
    /^rank 2 hides 50 % of its communication behind computing, the others 0 %$/,
  );
  for (const f of even)
    assert.ok(Math.abs(f.hidden - f.exposed) < 3000 && f.waiting < 4000, JSON.stringify(f));
  assert.ok(slow[0].waiting > slow[2].waiting + 10e6);
});

test("waiting for a core, apart from waiting for a rank", () => {
  assert.equal(
    coreWords(factsAt(indexOf({ queue: (r) => (r === 1 ? 3 : 1) }), 4), 2),
    "4 ranks on 2 cores: rank 1 waited 3.00 ms for one, 3.00 ms of it while computing; " +
      "mean 1.50 ms",
  );
  assert.equal(
    coreWords(factsAt(indexOf({}), 4), 8),
    "4 ranks on 8 cores: no rank had to wait for one",
  );
  assert.equal(coreWords(factsAt(indexOf({ cores: false }), 4), 8), "");
  assert.deepEqual(
    [crowdBadge(4, 2), crowdBadge(4, 4), crowdBadge(2, 1), crowdBadge(4, 0)],
    ["4 ranks on 2 cores", "", "2 ranks on 1 core", ""],
  );
});

test("marks in words with numbers", () => {
  const index = indexOf({
    overlap: true,
    compute: (r) => (r === 2 ? 1.4 : 1),
    queue: (r) => (r === 0 ? 2 : 0),
  });
  const { table } = index;
  const words = (kind, rank, nth = 0) => {
    const rows = [];
    for (let r = 0; r < table.rows; r++)
      if (table.kindName(table.kind[r]) === kind && table.passages.rank[table.passage[r]] === rank)
        rows.push(r);
    return rowWords(table, rows[nth]);
  };
  assert.equal(words("wait", 0), "rank 0 waited 8.00 ms for chunk 0 from rank 3");
  assert.equal(words("send", 1), "rank 1 sent chunk 2 to rank 2 in 400 µs, 4.00 kB (step 0)");
  assert.equal(words("recv", 1), "rank 1 added chunk 1 from rank 0 in 200 µs, 4.00 kB (step 0)");
  assert.equal(
    words("backward", 0),
    "rank 0: backward of iteration 1 took 22.0 ms, 2.00 ms of it waiting for a core",
  );
  assert.equal(words("forward", 2, 3), "rank 2: forward of iteration 4 took 14.0 ms");
  assert.match(words("collective", 3), /^rank 3: all-reduce of bucket 0 took 10\.4 ms, 16\.0 kB$/);
  const call = table.calls.find((c) => c.name === "bucket 1");
  assert.match(
    chosenWords(table, call, call.start - 1e6),
    /^bucket 1 \(number 1, 16\.0 kB\): rank 1 came at 1\.00 ms of the iteration, rank 2 at 12\.6 ms; all had it at 15\.0 ms$/,
  );
});

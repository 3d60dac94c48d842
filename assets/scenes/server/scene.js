// @ts-check
/**
 * The parameter server: workers on a track before the wall that the consistency rule is, pushes and
 * pulls on their way, shards with what waits there; beside it the clocks, how stale gradients were,
 * and where the time went.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./draw.js").ServerSeen} ServerSeen
 */
import { canvasView, nameSpots, onceMore, put } from "../../chrome/canvas_scene.js";
import {
  NAMED_WORKERS,
  chartHeight,
  drawStairs,
  drawStaleness,
  stairsWords,
  stalenessOf,
  stalenessWords,
} from "./charts.js";
import { drawShares, sharesUntil, sharesWords } from "./shares_chart.js";
import { drawPicture } from "./draw.js";
import { aheadOf, placeOf, hitUnder, wayPoint, workerSpot } from "./place.js";
import { roundsOf } from "./call_source.js";
import { boundOf, ruleOf, frameOf } from "./frame.js";
import { recoveryFacts } from "../../engine/generations.js";
import { countUntil } from "../../engine/search.js";
import { incidentsNow } from "./incidents.js";
import { keysOf } from "./legend.js";
import { marksOf } from "./marks.js";
import { drawScore } from "./score.js";
import {
  cometWords,
  lastUpdates,
  logWords,
  ruleWords,
  sentenceOf,
  shardWords,
  spokenWords,
  versionsAt,
  workerWords,
} from "./captions.js";
import { meaningOf } from "./meaning.js";
import { scoreHeight } from "../../drawing/lanes.js";

const BODY = `<div class="wb-ps-picture"><canvas class="wb-ps" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Workers and shards"></div></div>
  <p class="wb-key"></p>
  <div class="wb-ps-charts">
    <section><h3><span>Clocks</span> <small>iterations started</small></h3><canvas class="wb-ps-stairs" role="img"></canvas></section>
    <section><h3>Staleness <small class="wb-ps-missed"></small></h3><canvas class="wb-ps-stale" role="img"></canvas></section>
    <section><h3>Where time went <small>up to the playhead; % blocked</small></h3><canvas class="wb-ps-shares" role="img"></canvas></section>
  </div>`;

/**
 * Whether there is a parameter server in what is known.
 * @param {import("../../engine/player.js").Known} known
 */
export const serves = (known) => known.run?.server || roundsOf(known.table) !== null;

/** @param {import("./index.js").ServerIndex} index @param {Look} look */
const frameOfRun = (index, { known, t }) =>
  frameOf(index, ruleOf(known), t, known.run?.iterations ?? -1, recoveryFacts(known.run));

const NEXT = {
  title: "See workers and shards",
  what: "who holds which version, and who is stopped",
  failed: true,
};

/** What was until t of the time of each worker. @param {ServerSeen} seen @param {Look} look */
const sharesAt = ({ index, rule }, { t, known }) =>
  sharesUntil(index, t, boundOf(rule, known.run?.iterations ?? -1));
const height = (/** @type {ServerSeen} */ { frame }) => chartHeight(frame.workers.length);

const build = canvasView({
  body: BODY,
  /** While nothing has been pushed, null. @returns {ServerSeen | null} */
  see(look) {
    const rounds = roundsOf(look.table);
    const rule = ruleOf(look.known);
    if (!rounds || !rounds.index.pairs.size || !(look.width > 0)) return null;
    const { index } = rounds;
    const frame = frameOfRun(index, look);
    const place = placeOf(
      look.width,
      frame.workers.length,
      frame.shards.map((s) => s.share),
      aheadOf(rule, frame, rounds.lead(look.t)),
      look.known.run?.iterations,
    );
    const at = (/** @type {number} */ rank, /** @type {{rank: number}[]} */ all) =>
      all.findIndex((one) => one.rank === rank);
    const comets = frame.comets.map((c) => ({
      ...c,
      ...(c.kind === "push"
        ? wayPoint(place, at(c.from, frame.workers), at(c.to, frame.shards), c.share)
        : wayPoint(place, at(c.to, frame.workers), at(c.from, frame.shards), 1 - c.share)),
    }));
    return { place, frame, index, rule, comets, incidents: incidentsNow(look, frame) };
  },
  draw: drawPicture,
  empty({ known, width, ink }) {
    const rule = ruleOf(known);
    const ranks = known.run?.ranks ?? 0;
    const servers = Math.max(1, rule.servers);
    const place = placeOf(
      width,
      Math.max(1, ranks - servers),
      Array.from({ length: servers }, () => 1 / servers),
      Math.min(12, (rule.high ?? 3) + 1),
    );
    return {
      height: place.height,
      draw(g) {
        g.fillStyle = ink.track;
        for (let i = 0; i < ranks - servers; i++)
          g.fillRect(
            place.left,
            place.top + (i + 0.5) * place.lane - 1,
            place.right - place.left,
            2,
          );
        for (const { x, y, w, h } of place.bins) g.fillRect(x, y, w, h);
      },
    };
  },
  keys: { ".wb-key": (look, seen) => keysOf(look, seen, seen.rule.drop_above !== null) },
  charts: {
    ".wb-ps-stairs": {
      height,
      draw(chart, { index, rule }, { table, t, choice }) {
        const rounds = roundsOf(table);
        if (rounds) drawStairs(chart, index, rounds, rule, t, choice?.rank ?? -1);
      },
      words: ({ index }, { t }) => stairsWords(index, t),
    },
    ".wb-ps-stale": {
      height,
      draw: (chart, { index, rule }, { t }) => drawStaleness(chart, stalenessOf(index, t), rule),
      words: ({ index, frame }, { t }) => stalenessWords(stalenessOf(index, t), frame.pushes),
    },
    ".wb-ps-shares": {
      height,
      draw: (chart, seen, look) => drawShares(chart, sharesAt(seen, look)),
      words: (seen, look) => sharesWords(sharesAt(seen, look)),
    },
  },
  chartsKey: ({ index }, { known }) => [index.version, known.run?.iterations],
  storyOf: "The last updates up to the playhead",
  story: ({ index, frame }, { t }, most) => lastUpdates(index, t, most, frame),
  say(view, { known }, seen) {
    // many workers take the room; what happened stands beside them
    const many = (seen?.frame.workers.length ?? 0) > NAMED_WORKERS;
    view.$(".wb-story").hidden = many && view.stage.root.classList.contains("wide");
    const { low, models } = ruleOf(known);
    const free = low === null || models > 1;
    put(view.$("h3 span"), free ? "Clocks" : "Clocks climb inside the band");
    if (seen) put(view.$(".wb-ps-missed"), `updates that a ${seen.frame.pushes} had missed`);
  },
  spoken: (seen) => (seen ? spokenWords(seen.frame) : "Workers and shards; nothing moves yet"),
  title: ({ known }) =>
    [known.run?.title || "Parameter server", ruleWords(ruleOf(known))].filter(Boolean).join(" · "),
  sentence(look) {
    const rounds = roundsOf(look.table);
    const frame = rounds?.index.pairs.size ? frameOfRun(rounds.index, look) : null;
    const newest = look.live || look.t >= look.table.to - 1;
    return sentenceOf(look.known, frame, ruleOf(look.known), newest);
  },
  badges({ known }) {
    const { words } = ruleOf(known);
    return words ? [words] : [];
  },
  marks: marksOf,
  score: {
    height: ({ ranks }) => scoreHeight(ranks),
    draw(g, look) {
      const rounds = roundsOf(look.table);
      const bound = boundOf(ruleOf(look.known), look.known.run?.iterations ?? -1);
      if (rounds) drawScore(g, look, rounds.index, bound);
    },
  },
  times({ table, t }, unit) {
    const rounds = roundsOf(table);
    if (!rounds || unit === "chunk") return null;
    if (unit === "iteration") return rounds.calls.map((round) => round.start);
    return [...rounds.index.servers.values()]
      .flatMap(({ done }) => {
        const at = countUntil(done, t, (push) => push.end);
        return done.slice(Math.max(0, at - 3), at + 3).map((push) => push.end);
      })
      .sort((a, b) => a - b);
  },
  spots: ({ place, frame: { workers, shards } }) => ({
    key: place.key + workers.map((w) => w.rank).join(),
    all: [
      ...nameSpots(
        place,
        place.lane,
        workers.map(({ rank }) => ({ rank, name: `worker ${rank}` })),
      ),
      ...shards.map(({ rank }, k) => {
        const { x, y, w, h } = place.bins[k];
        return { rank, name: `shard ${rank}`, x, y, w, h };
      }),
    ],
  }),
  under: ({ place, frame, comets }, x, y) =>
    hitUnder(place, frame.workers.length, comets, x, y) ??
    (y < place.top && x > place.left ? { above: true } : null),
  choose(hit, { frame }) {
    if (!hit || hit.above) return null;
    if (!hit.comet)
      return "shard" in hit ? frame.shards[hit.shard].rank : frame.workers[hit.worker].rank;
    const { from, to, op, iteration } = hit.comet;
    return { rank: from, peer: to, op, group: "default", iteration };
  },
  lines(hit, { frame, index, rule, place, incidents }, stage, { x, y }) {
    if (hit.above) return versionsAt(frame);
    if (hit.comet) return cometWords(hit.comet, frame.pushes);
    if ("shard" in hit) {
      const words = shardWords(frame, hit.shard, index);
      return [...words, ...onceMore(stage, frame.shards[hit.shard].rank)];
    }
    const worker = frame.workers[hit.worker];
    const spot = workerSpot(place, hit.worker, worker, frame.min);
    const near = Math.hypot(spot.x - x, spot.y - y) <= place.ring + 2;
    const log =
      x > place.left && !near
        ? logWords(index, worker.rank, frame.min + hit.column, frame.t, frame.pushes)
        : [];
    return log.length
      ? log
      : workerWords(frame, hit.worker, rule, incidents.get(worker.rank)?.words ?? "");
  },
});

/** @type {import("../../chrome/scene_host.js").SceneModule} */
export const serverScene = {
  offered: serves,
  source: ({ table }) => roundsOf(table),
  tellsRun: true,
  meaning: meaningOf,
  lookNext: (known) => (serves(known) ? NEXT : null),
  build,
};

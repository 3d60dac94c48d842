// @ts-check
/**
 * Replicas that differ and mix: who mixes with whom, what is on its way, how far each is from the
 * mean of all; beside it how that went, iteration by iteration, and what each rank has sent for it.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./draw.js").PeersSeen} PeersSeen
 */
import { canvasView, onceMore, put } from "../../chrome/canvas_scene.js";
import { doingAt } from "../../engine/rank_activity.js";
import { scoreHeight } from "../../drawing/lanes.js";
import { drawSent, drawSpread, sentOf, sentWords, spreadAtX, spreadAxes } from "./charts.js";
import { drawPicture } from "./draw.js";
import { frameOf } from "./frame.js";
import { mixedIn, mixes, peerFacts, indexOf } from "./index.js";
import { incidentsOf } from "./incidents.js";
import { keysOf, spreadKeys } from "./legend.js";
import { marksOf } from "./marks.js";
import { placeOf, hitUnder } from "./place.js";
import { mixingsOf } from "./call_source.js";
import { drawScore } from "./score.js";
import { countUntil } from "../../engine/search.js";
import {
  factWords,
  lastMixed,
  cometWords,
  linkWords,
  sentenceOf,
  peerWords,
  spokenWords,
} from "./captions.js";
import { togetherWords } from "../../engine/run_words.js";

const SPREAD_HIGH = 232;

const BODY = `<div class="wb-pe-grid">
  <div><h3>Who mixes with whom <small>and how far each is from the mean</small></h3><div class="wb-pe-picture"><canvas class="wb-pe" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Ranks"></div></div></div>
  <div><section><h3>Disagreement <small class="wb-pe-of"></small></h3><canvas class="wb-pe-spread" role="img"></canvas><p class="wb-key"></p></section>
    <section><h3>Sent by each rank <small class="wb-pe-bound"></small></h3><canvas class="wb-pe-sent" role="img"></canvas></section></div></div>
  <p class="wb-key wb-pe-key"></p><p class="wb-co-fact wb-pe-fact"></p>`;

/** Width of the picture: beside the charts, or above them. @param {number} width */
const pictureWidth = (width) => (width >= 728 ? Math.round(width * 0.48) : width);

/** @param {Look} look @returns {PeersSeen} */
function seenAt(look) {
  const { known, table, ranks, t } = look;
  const iterations = known.run?.iterations ?? -1;
  const index = indexOf(known);
  const facts = peerFacts(known.run);
  const frame = frameOf(index, facts, t, ranks, iterations);
  const incidents = incidentsOf(look);
  const doings = doingAt(table, ranks, t, false, known.run).map((doing) => {
    const { lost, done } = frame.peers[doing.rank];
    const own = { ...doing, halo: false };
    if (lost) return { ...own, mark: /** @type {const} */ ("killed"), waits: 0, words: "lost" };
    const ended = { ...own, mark: /** @type {const} */ ("ended"), waits: 0, words: "all done" };
    return incidents.get(doing.rank) ?? (iterations > 0 && done >= iterations ? ended : own);
  });
  return { place: placeOf(ranks, pictureWidth(look.width)), frame, index, facts, doings };
}

/** What each rank has sent, and would have in an all-reduce. @param {PeersSeen} seen @param {Look} look */
function sentAt({ index, frame }, { known: { run } }) {
  const theory = run?.theory?.[`all_reduce/${run.algorithm}`] ?? run?.theory?.["all_reduce/ring"];
  return sentOf(index, frame, theory?.share ?? 0);
}

const build = canvasView({
  body: BODY,
  see(look, view) {
    const seen = seenAt(look);
    const { width } = seen.place;
    const columns = width < look.width ? `${width}px minmax(0, 1fr)` : "minmax(0, 1fr)";
    const { style } = view.$(".wb-pe-grid");
    if (style.gridTemplateColumns !== columns) style.gridTemplateColumns = columns; // before a chart asks how wide it is
    return seen;
  },
  size: (_, { place }) => place,
  draw: drawPicture,
  keys: {
    ".wb-pe-key": keysOf,
    "section .wb-key": (look, seen) => spreadKeys(look, seen, (seen.facts?.every ?? 1) > 1),
  },
  charts: {
    ".wb-pe-spread": {
      height: SPREAD_HIGH,
      draw: (chart, { index, frame, facts }, { known, choice, held, table }) =>
        drawSpread(
          chart,
          index,
          frame,
          facts,
          known.run?.iterations ?? -1,
          choice?.rank ?? -1,
          held,
          (facts?.every ?? 1) > 1 ? mixedIn(table, index) : [],
        ),
      words: ({ frame, index }) =>
        frame.at
          ? "Root mean square of the distances from the mean, after iteration " +
            `${index.spreads[frame.at - 1].iteration + 1}: about ` +
            `${index.spreads[frame.at - 1].rms.toPrecision(2)}`
          : "Disagreement: nothing yet",
      momentAt(x, width, { index: { spreads }, facts }, { known }) {
        const axes = spreadAxes(width, SPREAD_HIGH, known.run?.iterations ?? -1, spreads, facts);
        return spreads[countUntil(spreads, spreadAtX(axes, x), (one) => one.iteration) - 1]?.t;
      },
    },
    ".wb-pe-sent": {
      height: ({ frame: { peers } }) =>
        peers.length > 8 ? 128 : Math.max(34, 4 + 17 * peers.length),
      draw: (chart, seen, look) => drawSent(chart, sentAt(seen, look), look.choice?.rank ?? -1),
      words: (seen, look) => sentWords(sentAt(seen, look)),
    },
  },
  chartsKey: ({ index }, { known, held }) => [index.version, known.run?.iterations, held],
  story: ({ index }, { t }, most) => lastMixed(index, t, most),
  say(view, look, seen) {
    if (!seen) return;
    const { frame, index, facts } = seen;
    put(
      view.$(".wb-pe-of"),
      facts?.synchronous === false
        ? "distance from the mean, when the slowest had done an iteration"
        : "distance from the mean of the replicas, by iteration",
    );
    put(
      view.$(".wb-pe-bound"),
      sentAt(seen, look).some((one) => one.bound > 0)
        ? "hairline: with an all-reduce in every iteration"
        : "up to the playhead",
    );
    put(view.$(".wb-pe-fact"), factWords(frame, facts, index));
  },
  spoken: (seen) => (seen ? spokenWords(seen.frame, seen.facts) : ""),
  title: ({ known }) => known.run?.title || "Replicas that mix",
  sentence(look, seen) {
    const { frame, facts, doings, index } = seen ?? seenAt(look);
    const newest = look.live || look.t >= look.table.to - 1;
    return sentenceOf(look.known, index.present ? frame : null, facts, doings, newest);
  },
  marks: marksOf,
  score: { height: ({ ranks }) => scoreHeight(ranks), draw: drawScore },
  times(look, unit) {
    const mixings = mixingsOf(look.known);
    if (!mixings || unit === "chunk") return null;
    if (unit === "iteration") return mixings.calls.map((mixing) => mixing.start);
    const { spreads } = indexOf(look.known);
    const at = countUntil(spreads, look.t, (one) => one.t);
    return spreads.slice(Math.max(0, at - 3), at + 3).map((one) => one.t);
  },
  spots({ place: { key, circle } }) {
    const r = circle.node + 4;
    const box = { w: 2 * r, h: 2 * r };
    return {
      key,
      all: circle.nodes.map(({ x, y }, rank) => ({
        ...box,
        x: x - r,
        y: y - r,
        rank,
        name: `rank ${rank}`,
      })),
    };
  },
  under: ({ place, frame }, x, y) => hitUnder(place, frame.comets, frame.links, x, y),
  choose(hit) {
    if (hit?.link) return { rank: hit.link.from, peer: hit.link.to };
    if (!hit?.comet) return hit?.rank ?? null;
    const { from, to, op, iteration } = hit.comet;
    return { rank: from, peer: to, op, iteration };
  },
  lines(hit, { frame, index, doings, facts }, stage) {
    if (hit.comet) return cometWords(hit.comet, frame.t);
    if (hit.link) return linkWords(frame, hit.link);
    const words = peerWords(frame, hit.rank, index, doings[hit.rank], facts, "");
    return [...words, ...onceMore(stage, hit.rank)];
  },
});

/** @type {import("../../chrome/scene_host.js").SceneModule} */
export const peersScene = {
  offered: mixes,
  source: mixingsOf,
  meaning: (run) => {
    const words = peerFacts(run)?.words;
    return words ? [togetherWords(run.ranks), words] : null;
  },
  tellsRun: true,
  lookNext: ({ run }) =>
    run?.peers
      ? { title: "See who mixes with whom", what: "how far each replica is from the mean of all" }
      : null,
  build,
};

// @ts-check
/**
 * A run with actors: who plays, what replay holds, who learns, and what goes from one to the other;
 * below it returns, ages, and the bytes of each kind of message.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./draw.js").RlSeen} RlSeen
 */
import { canvasView, onceMore } from "../../chrome/canvas_scene.js";
import { countUntil } from "../../engine/search.js";
import { updatesOf } from "./call_source.js";
import {
  lastLearned,
  cometWords,
  meaningOf,
  sentenceOf,
  spotWords,
  spokenWords,
} from "./captions.js";
import {
  binsOf,
  binsWords,
  drawKinds,
  drawOld,
  drawReturns,
  kindsHigh,
  kindsWords,
  CHART,
} from "./charts.js";
import { drawPicture } from "./draw.js";
import { frameOf } from "./frame.js";
import { arrivalOf, indexOf, rolesOf } from "./index.js";
import { keysOf } from "./legend.js";
import { marksOf } from "./marks.js";
import { placeOf, hitUnder } from "./place.js";

const BESIDE = 760; // px of width from which all charts stand beside each other (theme.css)

const BODY = `<div class="wb-ps-picture"><canvas class="wb-rl" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Ranks"></div></div>
  <p class="wb-key"></p>
  <div class="wb-rl-charts">
    <section><h3>Return <small>mean of 20 episodes; lowest to highest</small></h3><canvas class="wb-rl-return" role="img"></canvas></section>
    <section><h3>How old <small>updates since it was the newest</small></h3><canvas class="wb-rl-old" role="img"></canvas></section>
    <section><h3>Sent <small>up to the playhead, by kind</small></h3><canvas class="wb-rl-kinds" role="img"></canvas></section>
  </div>`;

const build = canvasView({
  body: BODY,
  /** @returns {RlSeen | null} */
  see({ known, table, t, width }) {
    const roles = rolesOf(known.run);
    if (!roles || !(width > 0)) return null;
    const index = indexOf(table);
    const frame = frameOf(index, roles, t, known.run?.iterations ?? -1);
    return { place: placeOf(roles, width), frame, index, roles };
  },
  draw: drawPicture,
  keys: { ".wb-key": keysOf },
  charts: {
    ".wb-rl-return": {
      height: CHART,
      draw: (chart, { index, roles }, { t }) => drawReturns(chart, index, roles, t),
      words: ({ index, roles }, { t }) =>
        binsWords(binsOf(index, roles.actors, "return", t), "Mean return"),
    },
    ".wb-rl-old": {
      height: CHART,
      draw: (chart, { index, roles }, { t }) => drawOld(chart, index, roles, t),
      words: ({ index, roles }, { t }) =>
        binsWords(binsOf(index, roles.learners, "sample age", t), "Age of samples in updates"),
    },
    ".wb-rl-kinds": {
      height: ({ roles }, { width }) => (width < BESIDE ? kindsHigh(roles) : CHART),
      draw: (chart, { index, roles }, { t }) => drawKinds(chart, index, roles, t),
      words: ({ index }, { t }) => kindsWords(index, t),
    },
  },
  chartsKey: ({ index }) => index.version,
  story: ({ index, roles }, { t }, most) => lastLearned(index, roles, t, most),
  spoken: (seen) => (seen ? spokenWords(seen.frame) : ""),
  title: ({ known }) => known.run?.title || "Reinforcement learning",
  sentence: (look, seen) =>
    sentenceOf(
      look.known,
      seen?.frame ?? null,
      seen?.index ?? null,
      seen?.roles ?? null,
      look.live || look.t >= look.table.to - 1,
    ),
  marks: marksOf,
  times(look, unit) {
    const roles = rolesOf(look.known.run);
    if (!roles || unit === "chunk") return null;
    const index = indexOf(look.table);
    const times =
      unit === "iteration"
        ? roles.learners.flatMap((rank) => around(index.of(rank, "loss").t, look.t))
        : [...index.ways.values()].flatMap(({ list }) => {
            const at = Math.max(0, countUntil(list, look.t, (one) => one.start) - 8);
            return around(list.slice(at, at + 16).map(arrivalOf), look.t);
          });
    return times.sort((a, b) => a - b);
  },
  spots: ({ place }) => ({
    key: place.key,
    all: place.spots.map(({ role, rank, ...box }) => ({ ...box, rank, name: `${role} ${rank}` })),
  }),
  under: ({ place, frame }, x, y) => hitUnder(place, frame.comets, x, y),
  choose: (hit) =>
    hit?.comet
      ? { rank: hit.comet.from, peer: hit.comet.to, op: hit.comet.op, group: "default" }
      : (hit?.spot.rank ?? null),
  lines: (hit, { frame }, stage) =>
    hit.comet
      ? cometWords(hit.comet, frame)
      : [...spotWords(frame, hit.spot), ...onceMore(stage, hit.spot.rank)],
});

/** Some of the times before and after t. @param {number[]} times @param {number} t */
function around(times, t) {
  const known = times.filter(Number.isFinite);
  const at = countUntil(known, t, Number);
  return known.slice(Math.max(0, at - 3), at + 3);
}

/** @type {import("../../chrome/scene_host.js").SceneModule} */
export const reinforcementScene = {
  offered: ({ run }) => rolesOf(run) !== null,
  source: updatesOf,
  tellsRun: true,
  meaning: (run) => {
    const roles = rolesOf(run);
    return roles && meaningOf(run, roles);
  },
  lookNext: ({ run }) =>
    rolesOf(run)
      ? { title: "See who plays and who learns", what: "how old experience and parameters are" }
      : null,
  build,
};

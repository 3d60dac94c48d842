// @ts-check
/**
 * A sharded model: which layer each rank has whole at the playhead, which parts are on their way,
 * what each rank holds; below it one iteration in true time: the bytes held by rank, and when a
 * rank had which layer whole.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./draw.js").ShardsSeen} ShardsSeen
 */
import { Pen } from "../../drawing/pen.js";
import { goneInPicture } from "../../engine/lost_ranks.js";
import { canvasView, nameSpots, put } from "../../chrome/canvas_scene.js";
import { drawHeld, drawWhen, heldWords, chartHeight, momentsScale } from "./charts.js";
import { drawPicture, frameOf } from "./draw.js";
import { factsOf, frameAt } from "./frame.js";
import { indexOf } from "./index.js";
import { keysOf } from "./legend.js";
import { marksOf } from "./marks.js";
import { bytesScale, topOf, placeOf, hitUnder } from "./place.js";
import { shardingsOf } from "./call_source.js";
import { cellWords, holderWords, factsWords, sentenceOf, spokenWords } from "./captions.js";

const BODY = `<div class="wb-ps-picture"><canvas class="wb-sh" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Ranks"></div></div>
  <p class="wb-key"></p>
  <div class="wb-pl-below">
    <section><h3>Held of the model <small>by rank; hairline: unsharded</small></h3><canvas class="wb-sh-held" role="img"></canvas></section>
    <section><h3><span>When it has which layer whole</span> <small>upper: arrives; lower: gradients</small></h3><canvas class="wb-sh-when" role="img"></canvas></section>
  </div>`;
const NO_LAYERS = Array.from({ length: 5 }, () => ({ name: "", kind: "", bytes: 1, parts: [] }));

/**
 * Whether layers are sharded in what is known.
 * @param {import("../../engine/player.js").Known} known
 */
export const shards = (known) =>
  known.run?.home === "shards" || !!known.run?.shards || indexOf(known.table).present;

/** The rank that the reader has chosen, or -1. @param {ShardsSeen} seen @param {Look} look */
const chosenOf = ({ frame }, { choice }) =>
  choice?.rank !== undefined && choice.rank < frame.holders.length ? choice.rank : -1;
/** The iteration at the playhead. @param {Look} look */
const iterationAt = ({ known, t }) => shardingsOf(known)?.callAt(t) ?? null;
const height = (/** @type {ShardsSeen} */ { frame }) => chartHeight(frame.layers.length);
/** @param {number} x @param {number} width @param {ShardsSeen} _ @param {any} stage */
function momentAt(x, width, _, stage) {
  const span = iterationAt(stage.look(performance.now()));
  return span ? momentsScale(span, width).at(x) : undefined;
}

const build = canvasView({
  body: BODY,
  /** @returns {ShardsSeen | null} */
  see({ known, table, t, width }) {
    const index = indexOf(table);
    const ranks = known.run?.ranks || index.holders.size;
    const facts = factsOf(known.run);
    if (!(width > 0) || !ranks || (!facts && !index.present)) return null;
    const frame = frameAt(index, facts, ranks, t);
    const held = [...index.holders.values()].map((holder) => mostHeldIn(holder.held.bytes));
    return {
      frame,
      place: placeOf(width, ranks, frame.layers),
      scale: bytesScale(Math.max(1, frame.unsharded, ...held)),
    };
  },
  draw: (g, look, seen) => drawPicture(g, look, seen, goneInPicture(look)),
  empty({ known, width, ink }) {
    const ranks = known.run?.ranks || 4;
    const place = placeOf(width, ranks, NO_LAYERS);
    return {
      height: place.height,
      draw(g) {
        const pen = new Pen(g, { ink });
        for (let rank = 0; rank < ranks; rank++)
          for (const { x, w } of place.columns)
            frameOf(pen, "rule", 1, x, topOf(place, rank), w, place.cell);
      },
    };
  },
  keys: { ".wb-key": (look, seen) => keysOf(look, seen, goneInPicture(look).length > 0) },
  charts: {
    ".wb-sh-held": {
      height,
      draw(chart, seen, look) {
        const span = iterationAt(look);
        const index = indexOf(look.table);
        if (span) drawHeld(chart, index, seen.frame, span, look.t, chosenOf(seen, look));
      },
      words(seen, look) {
        const span = iterationAt(look);
        return span ? heldWords(indexOf(look.table), seen.frame, span) : "";
      },
      momentAt,
    },
    ".wb-sh-when": {
      height,
      draw(chart, seen, look) {
        const span = iterationAt(look);
        const rank = Math.max(0, chosenOf(seen, look));
        if (span) drawWhen(chart, indexOf(look.table), seen.frame, span, look.t, rank);
      },
      words: (seen, look) =>
        `Iteration ${(iterationAt(look)?.iteration ?? 0) + 1} of rank ` +
        `${Math.max(0, chosenOf(seen, look))}: when it has which layer whole`,
      momentAt,
    },
  },
  chartsKey: (_, { table }) => indexOf(table).version,
  say(view, look, seen) {
    if (!seen || !iterationAt(look)) return;
    const rank = Math.max(0, chosenOf(seen, look));
    put(view.$("h3 span"), `When rank ${rank} has which layer whole`);
  },
  spoken: (seen) =>
    seen ? spokenWords(seen.frame) : "Ranks and layers; nothing has been gathered yet",
  title: ({ known }) =>
    [known.run?.title || "FSDP", factsWords(factsOf(known.run))].filter(Boolean).join(" · "),
  sentence: (look, seen) =>
    sentenceOf(
      look.known,
      seen?.frame ?? null,
      look.choice?.rank ?? -1,
      look.live || look.t >= look.table.to - 1,
    ),
  marks: marksOf,
  times(look, unit) {
    const shardings = shardingsOf(look.known);
    const head = shardings?.callAt(look.t);
    if (!shardings || !head) return null;
    const at = shardings.indexOf(head);
    const near = shardings.calls.slice(Math.max(0, at - 1), at + 2);
    return unit === "iteration"
      ? near.map((one) => one.start)
      : near.flatMap((one) => shardings.open(one.key)?.moments.map((t) => one.start + t) ?? []);
  },
  spots: ({ place, frame }) => ({
    key: place.key,
    all: nameSpots(
      place,
      place.row,
      frame.holders.map(({ rank }) => ({
        rank,
        name: `rank ${rank}`,
        at: { x: place.left / 2 },
        radius: "3px",
      })),
    ),
  }),
  under: ({ place, frame }, x, y) => hitUnder(place, frame.holders.length, x, y),
  choose: (hit) => hit?.rank ?? null,
  lines: (hit, { frame }) =>
    hit.layer < 0 ? holderWords(frame, hit.rank) : cellWords(frame, hit.rank, hit.layer),
});

/** @param {number[]} numbers */
const mostHeldIn = (numbers) => numbers.reduce((a, b) => Math.max(a, b), 0);

/** @type {import("../../chrome/scene_host.js").SceneModule} */
export const shardsScene = {
  offered: shards,
  source: shardingsOf,
  lookNext: ({ run }) =>
    run?.shards
      ? { title: "See the shards", what: "which layer is whole where, and what each rank holds" }
      : null,
  build,
};

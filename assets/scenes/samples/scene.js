// @ts-check
/**
 * Samples: which goes to which rank in which minibatch, beside the minibatch of one process; of a
 * run those that its ranks have loaded, up to the playhead, else those that samplers deal out. A
 * page of minibatches at a time.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./draw.js").DealSeen} DealSeen
 */
import { canvasView, put } from "../../chrome/canvas_scene.js";
import { failedHere } from "../../engine/failure_caption.js";
import { isOver } from "../../engine/player.js";
import { dealOf, iterationsAt, momentOf } from "./deal.js";
import { drawDeal } from "./draw.js";
import { keysOf } from "./legend.js";
import { marksOf } from "./marks.js";
import { placeOf, pageOf, rowAt, hitUnder } from "./place.js";
import { chosenSampleWords, sentenceOf, partLinesOf, sampleLines, shownWords } from "./captions.js";

const BODY = `<p class="wb-sm-bar"><span></span><button>◂ Earlier</button><button>Later ▸</button><button>To the playhead</button></p>
  <div class="wb-sm-picture"><canvas class="wb-sm" role="img"></canvas><div class="wb-co-spots" role="group" aria-label="Minibatches, rank by rank"></div></div>
  <p class="wb-key"></p>
  <dl class="wb-sm-chosen"><dt>selected</dt><dd></dd></dl>
  <table class="wb-sm-laws"><tbody></tbody></table>`;

/** Whether it is a run, not samplers alone. @param {Look} look */
const runs = ({ known }) => !known.run?.alone;

/** @param {Look} look */
function sentence(look) {
  const deal = dealOf(look.known.run);
  const failed = failedHere(look);
  if (failed) return failed;
  if (!deal && isOver(look.known)) return "This record does not say which samples its ranks took.";
  const at = deal && runs(look) ? iterationsAt(look.table, deal.ranks, look.t) : [];
  return sentenceOf(deal, at, runs(look));
}

/** Show the laws that hold. @param {HTMLElement} table @param {import("./deal.js").Deal} deal */
function showLaws(table, { facts: { laws = [] } }) {
  const key = JSON.stringify(laws);
  if (table.dataset.key === key) return;
  table.dataset.key = key;
  table.replaceChildren(
    ...laws.map(({ name, holds, words }) => {
      const line = document.createElement("tr");
      line.append(
        ...[holds ? "✓" : "≠", name, words].map((text) =>
          Object.assign(document.createElement("td"), { textContent: text }),
        ),
      );
      line.className = holds ? "holds" : "";
      line.children[0].setAttribute("aria-label", holds ? "holds" : "does not hold");
      return line;
    }),
  );
}

const build = canvasView({
  body: BODY,
  /** The reader's own page, or null to follow the playhead; the sample that is selected, or -1. */
  state: () => ({ page: null, sample: -1 }),
  /** @returns {DealSeen | null} */
  see(look, view) {
    const deal = dealOf(look.known.run);
    if (!deal || !(look.width > 0)) return null;
    const { page: own, sample } = view.state;
    const first = placeOf(deal, look.width, 0);
    const at = runs(look) ? iterationsAt(look.table, deal.ranks, look.t) : deal.ranks.map(() => -1);
    const loaded = at.filter((i) => i >= 0);
    const current = Math.min(deal.batches.length - 1, ...loaded);
    const page =
      own ??
      (loaded.length ? pageOf(first, Math.max(0, current)) : runs(look) ? pageOf(first, 0) : 0);
    const place = page === first.page ? first : placeOf(deal, look.width, page);
    return { deal, at, runs: runs(look), sample, rank: look.choice?.rank ?? -1, place };
  },
  draw: drawDeal,
  empty: ({ ink, ranks, width }) => ({
    height: 40 + ranks * 21,
    draw(g) {
      g.fillStyle = ink.track;
      for (let row = 0; row <= Math.min(64, ranks); row++)
        g.fillRect(78, 20 + row * 21, width - 80, 2);
    },
  }),
  keys: { ".wb-key": keysOf },
  say(view, _, seen) {
    if (!seen) return;
    const { deal, place } = seen;
    const { page, sample } = view.state;
    const [words, earlier, later, follow] = view.$(".wb-sm-bar").children;
    const { panels } = place;
    put(words, shownWords(deal, panels[0].index, panels[panels.length - 1].index));
    earlier.hidden = later.hidden = place.pages < 2;
    earlier.disabled = place.page === 0;
    later.disabled = place.page === place.pages - 1;
    follow.hidden = !seen.runs || place.pages < 2;
    follow.disabled = page === null;
    put(
      view.$(".wb-sm-chosen dd"),
      sample < 0
        ? "click a sample to see where it is taken; ↑ ↓ lead from part to part"
        : chosenSampleWords(deal, sample),
    );
    showLaws(view.$(".wb-sm-laws tbody"), deal);
  },
  spoken: (_, look) => sentence(look),
  title: ({ known }) => known.run?.title || "Samples",
  sentence,
  marks: (_, seen) => marksOf(seen),
  step(look, unit, way) {
    const deal = dealOf(look.known.run);
    if (!deal || unit !== "iteration") return null;
    return momentOf(look.table, Math.max(...iterationsAt(look.table, deal.ranks, look.t)) + way);
  },
  listen(view) {
    const [earlier, later, follow] = view.$(".wb-sm-bar").querySelectorAll("button");
    const turn = (/** @type {number | null} */ page) => {
      view.state.page = page;
      view.stage.touch();
    };
    const by = (/** @type {number} */ way) => {
      const { page = 0, pages = 1 } = view.seen?.place ?? {};
      turn(Math.max(0, Math.min(pages - 1, page + way)));
    };
    earlier.onclick = () => by(-1);
    later.onclick = () => by(1);
    follow.onclick = () => turn(null);
  },
  spots: ({ place, deal }) => ({
    key: `${place.key} ${deal.facts.sampler} ${deal.ranks.join()}`,
    all: place.panels.flatMap(({ index, x, y }) =>
      Array.from({ length: place.rows + 1 }, (_, i) => {
        const row = i - 1;
        const top = rowAt(place, y, row);
        const h = row < 0 ? place.head : place.row;
        return {
          x,
          y: top,
          w: place.panel,
          h,
          name: `minibatch ${index}, ${row < 0 ? "one process" : `rank ${deal.ranks[row]}`}`,
          hit: { index, row, column: -1 },
          at: { x: x + 20, y: top + h },
        };
      }),
    ),
  }),
  under: ({ place, deal }, x, y) => hitUnder(place, deal, x, y),
  /** The sample, and the rank: every other view shows it too. */
  choose(hit, { deal }, view) {
    const column = hit?.column >= 0 ? deal.batches[hit.index].columns[hit.column] : undefined;
    view.state.sample = column && column.sample !== view.state.sample ? column.sample : -1;
    return hit?.row >= 0 ? { rank: deal.ranks[hit.row] } : null;
  },
  lines(hit, { deal }) {
    const batch = deal.batches[hit.index];
    if (!batch) return [];
    return hit.column >= 0 &&
      (hit.row < 0 ||
        batch.columns[hit.column].takers.some((/** @type {any} */ t) => t.row === hit.row))
      ? sampleLines(deal, batch, hit.column, hit.row)
      : partLinesOf(deal, batch, hit.row);
  },
});

/** @type {import("../../chrome/scene_host.js").SceneModule} */
export const samplesScene = {
  offered: (known) => dealOf(known.run) !== null,
  build,
};

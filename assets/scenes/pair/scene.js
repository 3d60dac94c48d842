// @ts-check
/**
 * Two algorithms on one time axis: two calls from one start, each with both pictures of the
 * collectives, one playhead for both. Below it both scores, on one scale.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../chrome/stage.js").Stage} Stage
 */
import {
  drawAxis,
  drawCallBars,
  drawNames,
  drawScoreKey,
  scoreLane,
  timeAt,
} from "../../drawing/lanes.js";
import { knownOfSide, pairNotes, pairOf, pairsOf } from "./call_source.js";
import { readingOf } from "../../engine/rates.js";
import { CollectivesView } from "../collectives/scene.js";
import { bytes, combineWords, duration, isPlanned, sentence } from "../../engine/format.js";

const BODY = `<div class="wb-pair"><section><h2></h2><div></div></section><section><h2></h2><div></div></section></div>`;
const APART_PX = 24;
const LEAST_PX = 280; // of a half: narrower ones do not stand side by side
const TOP = 18;
const FOOT = 39;
// px: between the two columns; above a score its name; axis and key; above the lanes
const LANES_TOP = 12;

/**
 * Return the look of one side.
 * @param {Look} look
 * @param {Stage} stage
 * @param {0 | 1} side
 * @returns {Look}
 */
function sideOf(look, stage, side) {
  const key = look.current && pairsOf(look.known)?.keys(look.current.key)[side];
  const call = key ? stage.playback.open(key) : null;
  // a page without room for two has one below the other, as the style sheet does
  const beside = look.width >= 2 * LEAST_PX + APART_PX;
  const width = beside ? Math.floor((look.width - APART_PX) / 2) : look.width;
  const ranks = call?.ranks ?? look.ranks;
  return { ...look, known: knownOfSide(look.known, side), call, current: call, width, ranks };
}

/** @param {Look} look @param {0 | 1} side */
const labelOf = ({ known }, side) => pairOf(known)?.[side ? "right" : "left"].label ?? "";

class PairView {
  /** @param {HTMLElement} body @param {Stage} stage */
  constructor(body, stage) {
    this.stage = stage;
    body.innerHTML = BODY;
    const sections = /** @type {HTMLElement[]} */ ([...body.querySelectorAll("section")]);
    this.names = sections.map((s) => /** @type {HTMLElement} */ (s.querySelector("h2")));
    this.sides = sections.map(
      (section, i) =>
        new CollectivesView(
          /** @type {HTMLElement} */ (section.querySelector("div")),
          halfOf(stage, /** @type {0 | 1} */ (i)),
        ),
    );
    this.score = {
      height: scoreHeight,
      draw: (/** @type {CanvasRenderingContext2D} */ g, /** @type {Look} */ look) =>
        drawScore(g, look, this.looks(look)),
      at: (/** @type {number} */ x, /** @type {Look} */ look) =>
        look.current
          ? look.current.start + timeAt(x, look.current.end - look.current.start, look.width)
          : null,
    };
  }

  /** @param {Look} look @returns {[Look, Look]} */
  looks(look) {
    const sides = /** @type {[Look, Look]} */ ([
      sideOf(look, this.stage, 0),
      sideOf(look, this.stage, 1),
    ]);
    const fastest = Math.max(
      0,
      ...sides.flatMap(({ call, known }) =>
        call ? [...readingOf(call, known).links.values()].map((l) => l.rate) : [],
      ),
    );
    const beside = Math.max(...sides.map(({ ranks }) => ranks)); // both pictures are as high
    for (const side of sides) Object.assign(side, { fastest, beside });
    return sides;
  }

  /** @param {Look} look */
  draw(look) {
    this.looks(look).forEach((side, i) => this.sides[i].draw(side));
  }

  /** @param {Look} look */
  say(look) {
    this.looks(look).forEach((side, i) => {
      const { call } = side;
      const words = call
        ? `${labelOf(look, /** @type {0 | 1} */ (i))}: ` +
          `${duration(call.end - call.start)}${isPlanned(call) ? ", planned" : ""}`
        : labelOf(look, /** @type {0 | 1} */ (i));
      if (this.names[i].textContent !== words) this.names[i].textContent = words;
      this.sides[i].say(side);
    });
  }

  /** @param {Look} look */
  title(look) {
    return look.known.run?.title || "Two algorithms";
  }

  /** @param {Look} look */
  sentence(look) {
    const [one, other] = this.looks(look).map((side) => side.call);
    if (!one || !other) return sentence(look.known);
    const [a, b] = [one, other].map((c) => c.end - c.start);
    const first = a <= b ? 0 : 1;
    const takes = /\branks$/.test(labelOf(look, /** @type {0 | 1} */ (first))) ? "take" : "takes";
    const times = Math.max(a, b) / Math.max(1, Math.min(a, b));
    const what =
      one.nbytes > 0 ? ` to ${combineWords(one.collective)[0]} ${bytes(one.nbytes)}` : "";
    const named = (/** @type {string} */ words) => words.charAt(0).toUpperCase() + words.slice(1);
    if (times < 1.05)
      return named(
        `${labelOf(look, 0)} and ${labelOf(look, 1)} take about as long${what}: ` +
          `${duration(a)} and ${duration(b)}.`,
      );
    return named(
      `${labelOf(look, /** @type {0 | 1} */ (first))} ${takes} ` +
        `${duration(Math.min(a, b))}${what}, ` +
        `${labelOf(look, /** @type {0 | 1} */ (1 - first))} ${duration(Math.max(a, b))}: ` +
        `${times < 10 ? times.toFixed(1) : Math.round(times)} times as long.`,
    );
  }

  /** What is made by us, of each side. @param {Look} look */
  badges({ known }) {
    return pairNotes(pairOf(known));
  }

  /** @param {Look} look */
  marks(look) {
    return this.looks(look).flatMap((side, i) =>
      this.sides[i].marks(side).map((m) => ({ ...m, side: i })),
    );
  }

  end() {
    for (const side of this.sides) side.end();
  }
}

/**
 * The stage as one side's picture sees it.
 * @param {Stage} stage
 * @param {0 | 1} side
 * @returns {any}
 */
function halfOf(stage, side) {
  return {
    root: stage.root,
    paper: stage.paper.bind(stage),
    choose: stage.choose.bind(stage),
    point: stage.point.bind(stage),
    touch: stage.touch.bind(stage),
    readonly: true,
    look: (/** @type {number} */ at) => sideOf(stage.look(at), stage, side),
    get known() {
      return knownOfSide(stage.known, side);
    },
  };
}

/** @param {Look} look */
function scoreHeight(look) {
  const { known, table } = look;
  const facts = pairOf(known);
  const ranks = (/** @type {string | undefined} */ group) =>
    table.calls.find((c) => c.group === group)?.ranks || look.ranks;
  return (
    [facts?.left.group, facts?.right.group].reduce(
      (sum, group) => sum + TOP + LANES_TOP + ranks(group) * scoreLane(ranks(group)) + 6,
      0,
    ) + FOOT
  );
}

/**
 * Both calls below each other, on one axis.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 * @param {[Look, Look]} sides
 */
function drawScore(g, look, sides) {
  const { current, ink, font, width } = look;
  if (!current) return;
  const span = current.end - current.start;
  let y = 0;
  let ideal = false;
  sides.forEach((side, i) => {
    const wide = { ...side, width };
    const tall = wide.ranks * scoreLane(wide.ranks);
    g.save();
    g.translate(0, y);
    g.font = `700 11px ${font}`;
    g.textAlign = "left";
    g.textBaseline = "middle";
    g.fillStyle = ink.ink;
    g.fillText(labelOf(look, /** @type {0 | 1} */ (i)), 58, 8);
    g.translate(0, TOP);
    drawNames(g, wide);
    if (wide.call)
      ideal = drawCallBars(g, wide, readingOf(wide.call, wide.known), span).length > 0 || ideal;
    g.restore();
    y += TOP + LANES_TOP + tall + 6;
  });
  const last = sides[1].ranks;
  const below = y - 6 - last * scoreLane(last) - LANES_TOP;
  g.save();
  g.translate(0, below);
  drawAxis(
    g,
    { ...look, ranks: last },
    current,
    Math.min(span, Math.max(0, look.t - current.start)),
    null,
    below,
  );
  drawScoreKey(g, { ...look, ranks: last }, ideal);
  g.restore();
}

/** @type {import("../../chrome/scene_host.js").SceneModule} */
export const pairScene = {
  offered: (known) => !!pairOf(known),
  source: pairsOf,
  alone: true,
  build: (body, stage) => new PairView(body, stage),
};

// @ts-check
/**
 * The keys of the collectives' pictures: every mark that can be seen, drawn by the code that draws
 * the picture, with words.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("../../drawing/key_row.js").KeyItem} KeyItem
 * @typedef {import("./frame.js").Prepared} Prepared
 */
import { TALL, keyItems } from "../../drawing/key_row.js";
import { drawNaN } from "../../drawing/nan.js";
import { SLOTTED, drawGlyph, fillOf, huesOf } from "../../drawing/glyph.js";
import { drawShade } from "./matrix.js";
import { labelled } from "./ring.js";
import { widthOf } from "./ring_draw.js";
import { drawStuck } from "../../engine/blocked.js";
import { bitRate, wrongWords } from "./captions.js";
import { counted, pieceName } from "../../engine/format.js";
import { isOver } from "../../engine/player.js";
import {
  arrivingChip,
  comet,
  crossed16,
  dot,
  endedChip,
  lyingChip,
  ringAt,
  some,
  square,
  stroke,
} from "./chips.js";

/** The keys of the ring. @param {Look} look @param {Prepared} seen @returns {KeyItem[]} */
export function spaceKeys(look, { place, reading, frame, ranks, emulated, scale, stuck }) {
  const { ink, font } = look;
  const { items, put } = keyItems();
  const any = (/** @type {(s: Prepared["ranks"][0]) => boolean} */ so) => ranks.some(so);
  const live = !!look.known.control && !isOver(look.known); // then all of it may come
  /** @param {boolean} shown @param {Parameters<typeof put>} key */
  const maybe = (shown, ...key) => {
    if (shown || live) put(...key);
    if (!shown && live) items[items.length - 1].spare = true;
  };
  const line = place.links.length > 2 * place.members ? ink.edge : ink.link;
  if (scale) {
    put(`narrow ${widthOf(scale / 4, scale, place)}`, 22, bitRate(scale / 4), ({ g }) =>
      stroke(g, line, widthOf(scale / 4, scale, place), []),
    );
    put(
      `wide ${widthOf(scale, scale, place)}`,
      22,
      `${bitRate(scale)}, from send to receipt`,
      ({ g }) => stroke(g, line, widthOf(scale, scale, place), []),
    );
  }
  const gathers = reading?.holdings.way === "keep";
  const hears = reading?.holdings.way === "hear";
  if (place.dots) {
    if (hears) put("news dot", 10, "news on its way", ({ g }) => dot(g, ink, false));
    else if (!gathers) put("dot", 10, "a sum on its way", ({ g }) => dot(g, ink, false));
    put(
      "full dot",
      10,
      hears
        ? "news of all"
        : gathers
          ? `a ${pieceName(reading?.call)} on its way`
          : "a complete chunk on its way",
      ({ g }) => dot(g, ink, true),
    );
  } else if (gathers) {
    const wide = place.level === 0 && ranks.length <= SLOTTED;
    put(
      `gathered ${wide}`,
      wide ? 38 : 22,
      `${pieceName(reading.call)} 3 on its ` +
        `way${reading.call.collective === "p2p" ? "" : ", as its owner has it"}`,
      ({ g }) =>
        comet(
          g,
          ink,
          font,
          wide ? huesOf(ink, reading.holdings.ranks, place.ranks) : [],
          reading.call.collective !== "p2p",
        ),
    );
  } else {
    const hues = huesOf(ink, reading?.holdings.ranks ?? ranks.map((s) => s.rank), place.ranks);
    const slots = place.level === 0 && hues.length <= SLOTTED;
    const crowded = reading && (!place.around || reading.call.flights.some((f) => f.track > 0));
    put(
      `comet ${slots} ${hues}`,
      slots ? 38 : 22,
      hears ? "news on its way" : "chunk 3 on its way",
      ({ g }) => comet(g, ink, font, slots ? hues : [], false),
    );
    if (!slots || crowded)
      put(
        "complete comet",
        slots ? 36 : 22,
        slots ? "complete; number or dot where it is tight" : "complete",
        ({ g }) => {
          comet(g, ink, font, [], true);
          if (slots) (g.translate(25, 0), dot(g, ink, true));
        },
      );
  }
  const waits = frame?.waiting.size ?? 0;
  put(
    `halo ${place.level}`,
    place.level === 2 ? 22 : 16,
    waits > 3 && labelled(place) ? "waits; the 3 longest in words" : "waits",
    ({ g }) =>
      place.level === 2 ? stroke(g, ink.wait, 2.5, [2, 2]) : ringAt(g, ink.wait, 6, 2.5, [3, 2.4]),
  );
  maybe(stuck.size > 0, "stuck", 22, "to the rank that it waits for", ({ g }) =>
    drawStuck(
      g,
      ink,
      {
        nodes: [
          { x: -9, y: TALL / 2 - 3 },
          { x: 31, y: TALL / 2 - 3 },
        ],
        node: 0,
      },
      new Map([[0, { rank: 0, peer: 1, since: 0, words: "" }]]),
    ),
  );
  maybe(!!frame?.comets.some((c) => c.lying), "lying", 22, "has come, not received", ({ g }) =>
    lyingChip(g, ink),
  );
  const late = (/** @type {number} */ start) =>
    start > 0.05 * ((reading?.call.end ?? 0) - (reading?.call.start ?? 0));
  maybe(
    reading ? [...reading.call.came.values()].some(late) : any((s) => s.away),
    "away",
    16,
    "has not joined in yet",
    ({ g }) => ringAt(g, ink.edge, 6, 2, []),
  );
  const slowed = place.links.some(([from, to]) => emulated.has(`${from}>${to}`));
  if (slowed || live) items.push({ ...emulatedKey(ink), spare: !slowed });
  maybe(
    [...emulated.values()].some((l) => l.down),
    "cut",
    16,
    "cut",
    ({ g }) => crossed16(g, ink.fault),
  );
  maybe(
    any((s) => !!s.ended),
    "ended",
    22,
    "ended; its links dotted",
    ({ g }) => endedChip(g, ink),
  );
  if (any((s) => s.host !== null))
    put("cut off", 16, "its host is cut off", ({ g }) => ringAt(g, ink.edge, 6, 1, [3, 3]));
  maybe(
    any((s) => s.held),
    "held",
    16,
    "held by you",
    ({ g }) => square(g, ink.hold, []),
  );
  maybe(
    any((s) => s.frozen),
    "frozen",
    16,
    "frozen by you",
    ({ g }) => square(g, ink.hold, [4, 3]),
  );
  maybe(
    any((s) => s.factor !== 1),
    "slowed",
    18,
    "computes slower: made by us",
    ({ g }) => ringAt(g, ink.hold, 7, 1.5, [4, 3]),
  );
  const outside = ranks.filter((s) => !s.member).length;
  if (place.outside >= 2 && outside)
    put("outside", 16, "not in this group", ({ g }) => ringAt(g, ink.rule, 6, 1, []));
  else if (outside)
    put("crowd", 22, `${counted(outside, "rank")} not in this group`, ({ g }) =>
      stroke(g, ink.rule, 4, []),
    );
  if (place.boxes.length)
    put(
      "group",
      16,
      `${(look.known.run?.levels?.length ?? 0) > 1 ? "a host: its ranks" : "ranks that"} ` +
        "talk among themselves first",
      ({ g }) => {
        g.strokeStyle = ink.rule;
        g.lineWidth = 1;
        g.beginPath();
        g.roundRect(1.5, 1.5, 13, 13, 4);
        g.stroke();
      },
    );
  if (place.level === 2)
    put("many", 0, `${place.ranks} ranks: a tick each; point at one`, () => {});
  return [...items.filter((one) => !one.spare), ...items.filter((one) => one.spare)];
}

/** The key of a link that we have slowed or cut. @param {Record<string, string>} ink @returns {KeyItem} */
const emulatedKey = (ink) => ({
  name: "made",
  words: "emulated: made by us",
  width: 22,
  draw: ({ g }) => stroke(g, ink.hold, 2.5, [5, 3]),
});

/** The keys of the links as a table. @param {Look} look @param {Prepared} seen @returns {KeyItem[]} */
export function pairKeys({ ink }, { reading, emulated }) {
  const shade = (
    /** @type {CanvasRenderingContext2D} */ g,
    /** @type {number} */ x,
    /** @type {number} */ share,
  ) => {
    g.fillStyle = ink.track;
    g.fillRect(x, 2, 12, 12);
    g.globalAlpha = 0.12 + 0.5 * share;
    g.fillStyle = ink.comm;
    g.fillRect(x, 2, 12, 12);
    g.globalAlpha = 1;
  };
  return [
    {
      name: "pair shades",
      words: "row sends to column: the more bytes so far, the stronger",
      width: 40,
      draw: ({ g }) => [0.05, 0.5, 1].forEach((share, i) => shade(g, i * 13, share)),
    },
    {
      name: "pair busy",
      words: "share of the time it was busy",
      width: 22,
      draw: (pen) => {
        pen.box(0, 2, 20, 12, "track");
        pen.box(0, 12, 12, 2, "comm");
      },
    },
    {
      name: "pair none",
      words: "no link",
      width: 14,
      draw: (pen) => pen.outline(0.5, 2.5, 11, 11, "rule"),
    },
    ...([...emulated.keys()].some((key) => reading?.links.has(key)) ? [emulatedKey(ink)] : []),
  ];
}

/** The keys of the matrix. @param {Look} look @param {Prepared} seen @returns {KeyItem[]} */
export function contentKeys(look, { reading, grid, t, place, poison }) {
  const { ink } = look;
  const { items, put } = keyItems();
  const ranks = reading?.holdings.ranks ?? Array.from({ length: grid.rows }, (_, r) => r);
  const hues = huesOf(ink, ranks, place.ranks);
  const n = hues.length;
  const first = ranks.slice(0, Math.min(3, Math.max(1, n - 1)));
  const share = n > SLOTTED;
  const names = `${first.length > 1 ? "ranks" : "rank"} ${first.join(", ")}`;
  const wrong =
    reading &&
    (reading.call.collective === "p2p"
      ? reading.call.complete && !!reading.call.lying?.length
      : wrongWords(reading, t) !== "");
  const unasked = !!reading?.holdings.asked.includes(0);
  const nothing = /** @type {import("../../drawing/glyph.js").Fill} */ ({
    shares: Array(n).fill(0),
    whole: false,
    doubled: [],
    lacking: [],
    open: true,
  });
  const chipWide = grid.strip ? 11 : 22;
  if (poison)
    put("nan", chipWide + 1, "holds a NaN", (pen) => {
      pen.box(0, 1, chipWide, 14, "track");
      drawNaN(pen.g, ink, look.font, look.ratio, 0, 1, chipWide, 14);
    });
  if (reading?.holdings.way === "keep") {
    const messages = reading.call.collective === "p2p";
    put("has", grid.strip ? 12 : 22, messages ? "received" : "the rank has the chunk", ({ g }) =>
      grid.strip
        ? drawShade(g, ink, 0, 3, 11, 10, { shares: [1], whole: true, doubled: [], lacking: [] })
        : drawGlyph(g, ink, hues, 0, 1, 22, 14, fillOf(Array(n).fill(1))),
    );
    put("has not", grid.strip ? 12 : 22, messages ? "to be received" : "not yet", (pen) =>
      pen.box(0, 1, grid.strip ? 11 : 22, 14, "track"),
    );
    put("arriving", grid.strip ? 12 : 22, "arriving", (pen) =>
      grid.strip ? pen.box(0, 4, 8, 8, "comm") : arrivingChip(pen.g, ink),
    );
    if (unasked)
      put(
        "to hand on",
        chipWide + 1,
        messages ? "its own, to be sent" : "here to be handed on",
        ({ g }) =>
          grid.strip
            ? drawShade(g, ink, 0, 3, 11, 10, { ...nothing, shares: [1], single: true })
            : drawGlyph(g, ink, hues, 0, 1, 22, 14, {
                ...nothing,
                shares: [1, ...Array(n - 1).fill(0)],
                single: true,
              }),
      );
    if (unasked && !grid.strip)
      put("unasked", 23, messages ? "not for this rank" : "need not be here at the end", ({ g }) =>
        drawGlyph(g, ink, hues, 0, 1, 22, 14, nothing),
      );
    if (wrong)
      put("missing", 40, messages ? "never received" : "missing at the end", (pen) =>
        grid.strip
          ? pen.box(0, 4, 8, 8, "fault")
          : drawGlyph(pen.g, ink, hues, 1, 2, 38, 12, {
              ...nothing,
              open: false,
              lacking: [n - 1],
            }),
      );
    return items;
  }
  if (grid.strip) {
    const shade =
      (/** @type {number} */ x, /** @type {number} */ in_) =>
      (/** @type {import("../../drawing/pen.js").Pen} */ { g }) =>
        drawShade(g, ink, x, 3, 11, 10, {
          shares: [in_],
          whole: in_ === 1,
          doubled: [],
          lacking: [],
        });
    put("shades", 34, "share of the contributions that are in", (pen) =>
      [0.1, 0.5, 0.9].forEach((in_, i) => shade(i * 11, in_)(pen)),
    );
    put("whole", 12, "complete", shade(0, 1));
    put("arriving", 12, "arriving", (pen) => pen.box(0, 4, 8, 8, "comm"));
    if (wrong)
      put("wrong", 12, "in twice, or missing at the end", (pen) => pen.box(0, 4, 8, 8, "fault"));
    return items;
  }
  put(
    "some",
    30,
    share
      ? reading?.holdings.way === "hear"
        ? "share of the ranks that it has heard of"
        : "share of the contributions that are in"
      : `${reading?.holdings.way === "hear" ? "has heard of" : "sum of"} ${names} so far: ` +
          "place = rank",
    ({ g }) => drawGlyph(g, ink, hues, 0, 1, 30, 14, some(n)),
  );
  put("whole", 22, reading?.holdings.way === "hear" ? "of all" : "complete", ({ g }) =>
    drawGlyph(g, ink, hues, 0, 1, 22, 14, fillOf(Array(n).fill(1))),
  );
  put("arriving", 22, "arriving", ({ g }) => arrivingChip(g, ink));
  if (unasked)
    put("unasked", 23, "need not be complete", ({ g }) =>
      drawGlyph(g, ink, hues, 0, 1, 22, 14, nothing),
    );
  if (reading && reading.holdings.slots.some((slots) => slots > 1))
    put("pieces", 0, share ? "" : "height = share of the chunk's pieces", () => {});
  if (wrong) {
    put("doubled", 40, "in more than once", ({ g }) =>
      drawGlyph(g, ink, hues, 1, 2, 38, 12, { ...some(n), doubled: [0] }),
    );
    put("lacking", 40, "missing at the end", ({ g }) =>
      drawGlyph(g, ink, hues, 1, 2, 38, 12, { ...some(n), lacking: [n - 1] }),
    );
  }
  return items.filter((i) => i.words);
}

// @ts-check
/**
 * The keys of the collectives' pictures: every mark that can be seen, drawn by the code that draws the picture, with words.
 *
 * @typedef {import("./stage.js").Look} Look
 * @typedef {{name: string, words: string, width: number, draw: (g: CanvasRenderingContext2D) => void}} KeyItem
 * @typedef {import("./collective_frame.js").Prepared} Prepared
 */
import { SLOTTED, cross, drawGlyph, fillOf, huesOf } from "./glyph.js";
import { drawShade } from "./matrix.js";
import { labelled } from "./ring.js";
import { widthOf } from "./ring_draw.js";
import { drawStuck } from "./stuck.js";
import { bitRate, wrongWords } from "./tell_collectives.js";
import { pieceName } from "./words.js";

const TALL = 16;

/** A row of marks with words; drawn anew only when something in it changes. */
export class KeyRow {
  /** @param {HTMLElement} row */
  constructor(row) {
    this.row = row;
    this.key = "";
  }

  /** @param {KeyItem[]} items @param {Look} look */
  show(items, { ink, ratio }) {
    const key = [ink.ground, ink.track, ratio, ...items.map((i) => i.name + i.words)].join("|");
    if (key === this.key) return;
    this.key = key;
    this.row.replaceChildren(...items.map(({ words, width, draw }) => {
      const item = document.createElement("span");
      if (width) {
        const chip = Object.assign(document.createElement("canvas"), { width: width * ratio, height: TALL * ratio, className: "wb-chip" });
        chip.style.width = `${width}px`;
        chip.style.height = `${TALL}px`;
        const g = /** @type {CanvasRenderingContext2D} */ (chip.getContext("2d"));
        g.scale(ratio, ratio);
        draw(g);
        chip.setAttribute("aria-hidden", "true");
        item.append(chip);
      }
      item.append(words);
      return item;
    }));
  }
}

/** @param {CanvasRenderingContext2D} g @param {string} colour @param {number} width @param {number[]} dash */
function stroke(g, colour, width, dash) {
  g.strokeStyle = colour;
  g.lineWidth = width;
  g.setLineDash(dash);
  g.beginPath();
  g.moveTo(0, TALL / 2);
  g.lineTo(22, TALL / 2);
  g.stroke();
  g.setLineDash([]);
}

/** @param {CanvasRenderingContext2D} g @param {string} colour @param {number} r @param {number} width @param {number[]} dash */
function ringAt(g, colour, r, width, dash) {
  g.strokeStyle = colour;
  g.lineWidth = width;
  g.setLineDash(dash);
  g.beginPath();
  g.arc(8, TALL / 2, r, 0, 7);
  g.stroke();
}

/** Three of n parts, as an example. @param {number} n */
const some = (n) => fillOf(Array.from({ length: n }, (_, i) => Number(i < Math.min(3, Math.max(1, n - 1)))));

/** The keys of the ring. @param {Look} look @param {Prepared} seen @returns {KeyItem[]} */
export function spaceKeys(look, { place, reading, frame, ranks, made, scale, stuck }) {
  const { ink, font } = look, items = /** @type {KeyItem[]} */ ([]), has = (/** @type {(s: Prepared["ranks"][0]) => boolean} */ so) => ranks.some(so);
  const put = (/** @type {string} */ name, /** @type {number} */ width, /** @type {string} */ words, /** @type {KeyItem["draw"]} */ draw) => items.push({ name, words, width, draw });
  const line = place.links.length > 2 * place.members ? ink.edge : ink.rule;
  if (scale) {
    put(`narrow ${widthOf(scale / 4, scale, place)}`, 22, bitRate(scale / 4), (g) => stroke(g, line, widthOf(scale / 4, scale, place), []));
    put(`wide ${widthOf(scale, scale, place)}`, 22, `${bitRate(scale)} while sending`, (g) => stroke(g, line, widthOf(scale, scale, place), []));
  }
  const gathers = reading?.holdings.way === "keep", hears = reading?.holdings.way === "hear";
  if (place.dots) {
    if (hears) put("news dot", 10, "news on its way", (g) => dot(g, ink, false));
    else if (!gathers) put("dot", 10, "a sum on its way", (g) => dot(g, ink, false));
    put("full dot", 10, hears ? "news of all" : gathers ? `a ${pieceName(reading?.call)} on its way` : "a complete chunk on its way", (g) => dot(g, ink, true));
  } else if (gathers) {
    const wide = place.level === 0 && ranks.length <= SLOTTED;
    put(`gathered ${wide}`, wide ? 38 : 22, `${pieceName(reading.call)} 3 on its way${reading.call.collective === "p2p" ? "" : ", as its owner has it"}`, (g) => comet(g, ink, font, wide ? huesOf(ink, reading.holdings.ranks, place.ranks) : [], reading.call.collective !== "p2p"));
  } else {
    const hues = huesOf(ink, reading?.holdings.ranks ?? ranks.map((s) => s.rank), place.ranks), slots = place.level === 0 && hues.length <= SLOTTED, crowded = reading && (!place.around || reading.call.flights.some((f) => f.track > 0));
    put(`comet ${slots} ${hues}`, slots ? 38 : 22, hears ? "news on its way" : "chunk 3 on its way", (g) => comet(g, ink, font, slots ? hues : [], false));
    if (!slots || crowded) put("complete comet", slots ? 36 : 22, slots ? "complete; number or dot where it is tight" : "complete", (g) => {
      comet(g, ink, font, [], true);
      if (slots) g.translate(25, 0), dot(g, ink, true);
    });
  }
  const waits = frame?.waiting.size ?? 0;
  put(`halo ${place.level}`, place.level === 2 ? 22 : 16, waits > 3 && labelled(place) ? "waits; the 3 longest in words" : "waits", (g) => (place.level === 2 ? stroke(g, ink.wait, 2.5, [2, 2]) : ringAt(g, ink.wait, 6, 2.5, [3, 2.4])));
  if (stuck.size) put("stuck", 22, "to whom it waits for", (g) => drawStuck(g, ink, { nodes: [{ x: -9, y: TALL / 2 - 3 }, { x: 31, y: TALL / 2 - 3 }], node: 0 }, new Map([[0, { rank: 0, peer: 1, since: 0, words: "" }]])));
  if (frame?.comets.some((c) => c.lying)) put("lying", 22, "has come, not received", (g) => lyingChip(g, ink));
  if ((!reading && has((s) => s.away)) || (reading && [...reading.call.came.values()].some((start) => start > 0.05 * (reading.call.end - reading.call.start)))) put("away", 16, "has not joined in yet", (g) => ringAt(g, ink.edge, 6, 2, []));
  if ([...made.keys()].some((key) => reading?.links.has(key))) put("made", 22, "emulated: made by us", (g) => stroke(g, ink.hold, 2.5, [5, 3]));
  if ([...made.values()].some((l) => l.down)) put("cut", 16, "cut", (g) => crossed16(g, ink.fault));
  if (has((s) => !!s.ended)) put("ended", 22, "ended; its links dotted", (g) => endedChip(g, ink));
  if (has((s) => s.held)) put("held", 16, "held by you", (g) => square(g, ink.hold, []));
  if (has((s) => s.frozen)) put("frozen", 16, "frozen by you", (g) => square(g, ink.hold, [4, 3]));
  if (has((s) => s.factor !== 1)) put("slowed", 18, "computes slower: made by us", (g) => ringAt(g, ink.hold, 7, 1.5, [4, 3]));
  if (has((s) => !s.member)) put("outside", 16, "not in this group", (g) => ringAt(g, ink.rule, 6, 1, []));
  if (place.boxes.length) put("group", 16, `${(look.known.run?.levels?.length ?? 0) > 1 ? "a host: its ranks" : "ranks that"} talk among themselves first`, (g) => {
    g.strokeStyle = ink.rule;
    g.lineWidth = 1;
    g.beginPath();
    g.roundRect(1.5, 1.5, 13, 13, 4);
    g.stroke();
  });
  if (place.level === 2) put("many", 0, `${place.ranks} ranks: a tick each; point at one`, () => {});
  return items;
}

/** The keys of the links as a table. @param {Look} look @returns {KeyItem[]} */
export function pairKeys({ ink }) {
  const shade = (/** @type {CanvasRenderingContext2D} */ g, /** @type {number} */ x, /** @type {number} */ share) => {
    g.fillStyle = ink.track;
    g.fillRect(x, 2, 12, 12);
    g.globalAlpha = 0.12 + 0.5 * share;
    g.fillStyle = ink.comm;
    g.fillRect(x, 2, 12, 12);
    g.globalAlpha = 1;
  };
  return [{ name: "pair shades", words: "row sends to column: the more bytes so far, the stronger", width: 40, draw: (g) => [0.05, 0.5, 1].forEach((share, i) => shade(g, i * 13, share)) },
    { name: "pair busy", words: "share of the time it was busy", width: 22, draw: (g) => {
      g.fillStyle = ink.track;
      g.fillRect(0, 2, 20, 12);
      g.fillStyle = ink.comm;
      g.fillRect(0, 12, 12, 2);
    } },
    { name: "pair none", words: "no link", width: 14, draw: (g) => {
      g.strokeStyle = ink.rule;
      g.lineWidth = 1;
      g.strokeRect(0.5, 2.5, 11, 11);
    } }];
}

/** The keys of the matrix. @param {Look} look @param {Prepared} seen @returns {KeyItem[]} */
export function contentKeys(look, { reading, grid, t, place }) {
  const { ink } = look, items = /** @type {KeyItem[]} */ ([]), ranks = reading?.holdings.ranks ?? Array.from({ length: grid.rows }, (_, r) => r);
  const hues = huesOf(ink, ranks, place.ranks), n = hues.length, first = ranks.slice(0, Math.min(3, Math.max(1, n - 1)));
  const put = (/** @type {string} */ name, /** @type {number} */ width, /** @type {string} */ words, /** @type {KeyItem["draw"]} */ draw) => items.push({ name: name + hues, words, width, draw });
  const share = n > SLOTTED, names = `${first.length > 1 ? "ranks" : "rank"} ${first.join(", ")}`;
  const wrong = reading && (reading.call.collective === "p2p" ? reading.call.complete && !!reading.call.lying?.length : wrongWords(reading, t) !== "");
  const unasked = !!reading?.holdings.asked.includes(0), nothing = /** @type {import("./glyph.js").Fill} */ ({ shares: Array(n).fill(0), whole: false, doubled: [], lacking: [], open: true });
  const chipWide = grid.strip ? 11 : 22;
  if (reading?.holdings.way === "keep") {
    const own = reading.call.collective === "p2p";
    put("has", grid.strip ? 12 : 22, own ? "received" : "the rank has the chunk", (g) => (grid.strip ? drawShade(g, ink, 0, 3, 11, 10, { shares: [1], whole: true, doubled: [], lacking: [] }) : drawGlyph(g, ink, hues, 0, 1, 22, 14, fillOf(Array(n).fill(1)))));
    put("has not", grid.strip ? 12 : 22, own ? "to be received" : "not yet", (g) => ((g.fillStyle = ink.track), g.fillRect(0, 1, grid.strip ? 11 : 22, 14)));
    put("arriving", grid.strip ? 12 : 22, "arriving", (g) => (grid.strip ? ((g.fillStyle = ink.comm), g.fillRect(0, 4, 8, 8)) : arrivingChip(g, ink)));
    if (unasked) put("to hand on", chipWide + 1, own ? "its own, to be sent" : "here to be handed on", (g) => (grid.strip ? drawShade(g, ink, 0, 3, 11, 10, { ...nothing, shares: [1], single: true }) : drawGlyph(g, ink, hues, 0, 1, 22, 14, { ...nothing, shares: [1, ...Array(n - 1).fill(0)], single: true })));
    if (unasked && !grid.strip) put("unasked", 23, own ? "not for this rank" : "need not be here at the end", (g) => drawGlyph(g, ink, hues, 0, 1, 22, 14, nothing));
    if (wrong) put("missing", 40, own ? "never received" : "missing at the end", (g) => (grid.strip ? ((g.fillStyle = ink.fault), g.fillRect(0, 4, 8, 8)) : drawGlyph(g, ink, hues, 1, 2, 38, 12, { ...nothing, open: false, lacking: [n - 1] })));
    return items;
  }
  if (grid.strip) {
    const shade = (/** @type {number} */ x, /** @type {number} */ in_) => (/** @type {CanvasRenderingContext2D} */ g) => drawShade(g, ink, x, 3, 11, 10, { shares: [in_], whole: in_ === 1, doubled: [], lacking: [] });
    put("shades", 34, "share of the contributions that are in", (g) => [0.1, 0.5, 0.9].forEach((in_, i) => shade(i * 11, in_)(g)));
    put("whole", 12, "complete", shade(0, 1));
    put("arriving", 12, "arriving", (g) => ((g.fillStyle = ink.comm), g.fillRect(0, 4, 8, 8)));
    if (wrong) put("wrong", 12, "in twice, or missing at the end", (g) => ((g.fillStyle = ink.fault), g.fillRect(0, 4, 8, 8)));
    return items;
  }
  put("some", 30, share ? (reading?.holdings.way === "hear" ? "share of the ranks that it has heard of" : "share of the contributions that are in") : `${reading?.holdings.way === "hear" ? "has heard of" : "sum of"} ${names} so far: place = rank`, (g) => drawGlyph(g, ink, hues, 0, 1, 30, 14, some(n)));
  put("whole", 22, reading?.holdings.way === "hear" ? "of all" : "complete", (g) => drawGlyph(g, ink, hues, 0, 1, 22, 14, fillOf(Array(n).fill(1))));
  put("arriving", 22, "arriving", (g) => arrivingChip(g, ink));
  if (unasked) put("unasked", 23, "need not be complete", (g) => drawGlyph(g, ink, hues, 0, 1, 22, 14, nothing));
  if (reading && reading.holdings.slots.some((slots) => slots > 1)) put("pieces", 0, share ? "" : "height = share of the chunk's pieces", () => {});
  if (wrong) {
    put("doubled", 40, "in more than once", (g) => drawGlyph(g, ink, hues, 1, 2, 38, 12, { ...some(n), doubled: [0] }));
    put("lacking", 40, "missing at the end", (g) => drawGlyph(g, ink, hues, 1, 2, 38, 12, { ...some(n), lacking: [n - 1] }));
  }
  return items.filter((i) => i.words);
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink */
function lyingChip(g, ink) {
  g.strokeStyle = ink.comm;
  g.lineWidth = 1.5;
  g.setLineDash([3, 2.5]);
  g.beginPath();
  g.roundRect(1, 1, 20, 13, 3);
  g.stroke();
  g.setLineDash([]);
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink */
function arrivingChip(g, ink) {
  g.strokeStyle = g.fillStyle = ink.comm;
  g.lineWidth = 1.5;
  g.beginPath();
  g.roundRect(1, 1, 20, 13, 3);
  g.stroke();
  g.fillRect(1, 11, 12, 3);
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {string} font @param {string[]} hues @param {boolean} whole */
function comet(g, ink, font, hues, whole) {
  const w = hues.length ? 36 : 20, solid = whole && !hues.length;
  g.strokeStyle = ink.comm;
  g.fillStyle = solid ? ink.done : ink.ground;
  g.lineWidth = 1.5;
  g.beginPath();
  g.roundRect(1, 1, w, 14, 3);
  g.fill();
  g.stroke();
  g.fillStyle = solid ? ink.ground : ink.ink;
  g.font = `700 11px ${font}`;
  g.textAlign = "center";
  g.textBaseline = "middle";
  g.fillText("3", hues.length ? 8 : 11, 8.5);
  if (hues.length) drawGlyph(g, ink, hues, 14, 3.5, 20, 9, whole ? fillOf(hues.map(() => 1)) : some(hues.length));
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {boolean} full */
function dot(g, ink, full) {
  g.fillStyle = full ? ink.comm : ink.ground;
  g.strokeStyle = ink.comm;
  g.lineWidth = 1.5;
  g.beginPath();
  g.arc(5, TALL / 2, 3.5, 0, 7);
  g.fill();
  g.stroke();
}

/** @param {CanvasRenderingContext2D} g @param {string} colour */
function crossed16(g, colour) {
  g.strokeStyle = colour;
  g.lineWidth = 2.5;
  cross(g, 8, TALL / 2, 5);
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink */
function endedChip(g, ink) {
  ringAt(g, ink.fault, 6, 2, []);
  g.lineWidth = 2;
  cross(g, 8, TALL / 2, 3);
}

/** @param {CanvasRenderingContext2D} g @param {string} colour @param {number[]} dash */
function square(g, colour, dash) {
  g.strokeStyle = colour;
  g.lineWidth = 2;
  g.setLineDash(dash);
  g.strokeRect(2, 2, 12, 12);
}

// @ts-check
/**
 * The keys of the picture of replicas that mix: every mark that this run can show, drawn as the
 * picture draws it.
 *
 * @typedef {import("../../drawing/key_row.js").KeyItem} KeyItem
 * @typedef {import("./draw.js").PeersSeen} PeersSeen
 */
import { keyItems } from "../../drawing/key_row.js";
import {
  barScale,
  distanceWords,
  drawParcel,
  linkWidth,
  peerInk,
  plans,
  widestLink,
} from "./draw.js";
import { decays } from "./charts.js";
import { bytes } from "../../engine/format.js";

/**
 * @param {CanvasRenderingContext2D} g
 * @param {string} colour
 * @param {number} wide
 * @param {number[]} [dash]
 * @param {number} [to]
 */
function dash(g, colour, wide, dash = [], to = 22) {
  g.strokeStyle = colour;
  g.lineWidth = wide;
  g.setLineDash(dash);
  g.beginPath();
  g.moveTo(0, 8);
  g.lineTo(to, 8);
  g.stroke();
  g.setLineDash([]);
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {string} colour
 * @param {boolean} filled
 * @param {number[]} lines
 */
function keyDisc(g, colour, filled, lines) {
  g.beginPath();
  g.arc(8, 8, 6, 0, 7);
  g.fillStyle = g.strokeStyle = colour;
  g.lineWidth = 2.5;
  g.setLineDash(lines);
  if (filled) g.fill();
  else g.stroke();
  g.setLineDash([]);
}

/**
 * @param {import("../../chrome/stage.js").Look} look
 * @param {PeersSeen} seen
 * @returns {KeyItem[]}
 */
export function keysOf({ ink }, { place, frame, index, facts, doings }) {
  const { items, put } = keyItems(frame.peers.length);
  const most = Math.max(0, ...frame.links.map((l) => l.nbytes));
  const ranks = frame.peers.length;
  put("bar", 22, `full bar: ${distanceWords(barScale(frame))} from the mean`, ({ g }) => {
    dash(g, ink.track, 7);
    dash(g, peerInk(ink, 0, ranks), place.words ? 7 : 3, [], 13);
  });
  const drawn = plans(facts);
  if (drawn) put("plan", 22, "mixes with: the plan", ({ g }) => dash(g, ink.ideal, 0.75));
  else if (facts?.edges.length)
    put("unplanned", 0, `${facts.edges.length} planned links: not drawn`, () => {});
  if (most > 0)
    put("traffic", 22, `most that a link carried: ${bytes(most)}`, ({ g }) =>
      dash(g, ink.edge, linkWidth(most, most, widestLink(frame.links.length, ranks))),
    );
  const messages = [...index.ways.values()].some(({ flown }) => flown[0]?.message);
  const chunks = [...index.ways.values()].some(({ flown }) => flown.some((f) => !f.message));
  if ((messages || (!chunks && facts?.kind !== "all")) && place.form === "cell")
    put("parcel", 16, "from rank 2, on its way; a dot where it is tight", (pen) =>
      drawParcel(pen, 8, 8, 2),
    );
  if (chunks || facts?.kind === "all" || place.form === "dot")
    put(
      "chunk",
      12,
      place.form === "dot" && messages ? "a message on its way" : "a chunk of an averaging",
      ({ g }) => {
        g.fillStyle = ink.comm;
        g.beginPath();
        g.arc(6, 8, place.form === "cell" ? 4.5 : 3, 0, 7);
        g.fill();
      },
    );
  put("compute", 16, "computes", ({ g }) => keyDisc(g, ink.backward, true, []));
  put("move", 16, "passes on", ({ g }) => {
    g.strokeStyle = ink.comm;
    g.lineWidth = 2.5;
    g.beginPath();
    for (const [x, y] of [
      [8, 1.5],
      [14.5, 8],
      [8, 14.5],
      [1.5, 8],
    ])
      g.lineTo(x, y);
    g.closePath();
    g.stroke();
  });
  put("wait", 16, "waits", ({ g }) => keyDisc(g, ink.wait, false, [3, 2.6]));
  if (frame.peers.some((p) => p.lost) || doings.some((d) => d.mark === "killed"))
    put("lost", 16, "lost", (pen) => pen.cross(8, 8, 5));
  return items;
}

/**
 * The keys of the disagreement.
 * @param {import("../../chrome/stage.js").Look} look
 * @param {PeersSeen} seen
 * @param {boolean} marked  mixings are marked
 * @returns {KeyItem[]}
 */
export function spreadKeys({ ink }, { frame, facts }, marked) {
  const ranks = frame.peers.length;
  const { items, put } = keyItems();
  put("all", 22, "all: root mean square", ({ g }) => dash(g, ink.ink, 2));
  if (ranks <= 8)
    put(`one ${ranks}`, 22, "a rank", ({ g }) =>
      dash(g, peerInk(ink, ranks > 1 ? 1 : 0, ranks), 1),
    );
  else put("ends", 22, "nearest and furthest rank", ({ g }) => dash(g, ink.edge, 1));
  if (facts && decays(facts))
    put(
      `alone ${facts.rate}`,
      22,
      `mixing alone: × ${/** @type {number} */ (facts.rate).toFixed(3)} each time`,
      ({ g }) => dash(g, ink.ideal, 0.9),
    );
  if (marked)
    put("averaged", 12, "mixing: planned, done", (pen) => {
      pen.box(4, 5, 3, 6, "comm");
      pen.box(5.1, 4, 0.8, 8, "ideal");
    });
  return items;
}

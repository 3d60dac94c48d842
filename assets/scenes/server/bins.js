// @ts-check
/**
 * The shards of the parameter server's picture: share, version, and the pushes that wait at each.
 */
import { cross } from "../../drawing/glyph.js";
import { hatched } from "../../drawing/hatch.js";
import { writeAt } from "../../drawing/colors.js";

const OWN_WIDE = 7; // px of the strip of keys
const COPY_WIDE = 6; // and of a copy's

/**
 * The shards, each as high as its share of the keys; before each the pushes that wait there.
 * @param {CanvasRenderingContext2D} g
 * @param {import("../../chrome/stage.js").Look} look
 * @param {import("./draw.js").ServerSeen} seen
 */
export function drawBins(g, { ink, font, choice, ratio }, { place, frame, befell }) {
  frame.shards.forEach((shard, s) => {
    const { x, y, w, h, level } = place.bins[s];
    const chosen = choice?.rank === shard.rank;
    const fate = befell.get(shard.rank);
    const pad = x + 17;
    g.fillStyle = ink.panel;
    g.beginPath();
    g.roundRect(x, y, w, h, 4);
    g.fill();
    g.strokeStyle = chosen ? ink.focus : fate ? ink[fate.colour] : ink.edge;
    g.lineWidth = chosen ? 2 : 1;
    g.setLineDash(fate ? [4, 3] : []);
    g.stroke();
    g.setLineDash([]);
    const end = x + w - 7 - drawKeyStrips(g, ink, ratio, place.bins[s], shard);
    const share =
      `${Math.round(shard.share * 100)} ` + `%${place.wide && level !== "line" ? " of keys" : ""}`;
    const name = `${place.small && level === "line" ? "" : "shard "}${shard.rank}`;
    const gone = !Number.isNaN(shard.gone);
    const version = gone ? (fate?.words ?? "gone") : `v ${shard.versions.join(" | ")}`;
    const strong = gone ? ink.fault : ink.ink;
    const high = level === "full" && !place.small ? 20 : place.small ? 13 : 16;
    const fits = (/** @type {string} */ text, /** @type {number} */ weight) => {
      g.font = `${weight} 11px ${font}`;
      return !place.small || pad + g.measureText(text).width <= end;
    };
    if (level === "line") {
      g.font = `700 12px ${font}`;
      writeAt(g, font, name, pad, y + h / 2, ink.ink, "left", true, 12);
      g.font = `700 12px ${font}`;
      const wide = g.measureText(name).width + 8;
      writeAt(g, font, version, pad + wide, y + h / 2, strong, "left", gone, 12);
      if (place.wide) writeAt(g, font, share, end, y + h / 2, ink["ink-3"], "right");
    } else {
      writeAt(g, font, name, pad, y + 14, ink.ink, "left", true, 12);
      if (!place.small) writeAt(g, font, share, end, y + 14, ink["ink-2"], "right");
      writeAt(g, font, version, pad, y + (level === "full" ? 40 : 33), strong, "left", true, high);
      const words = gone ? "" : (fate?.words ?? binWords(shard, frame.comets, place.wide));
      if (level === "full" && fits(words, fate ? 700 : 400))
        writeAt(
          g,
          font,
          words,
          pad,
          y + 62,
          fate ? ink[fate.colour] : ink["ink-3"],
          "left",
          !!fate,
        );
      const besides = level === "full" && h >= 96 ? besidesInShort(shard, place.wide) : "";
      if (besides && fits(besides, 400))
        writeAt(g, font, besides, pad, y + 80, ink["ink-2"], "left");
    }
    drawQueue(g, ink, font, place.bins[s], shard);
  });
}

/**
 * A strip of the keys that a shard has, those of lost servers hatched; at the other edge a strip for
 * each copy that it has, hatched too. One that is gone has a cross.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {number} ratio
 * @param {import("./place.js").Place["bins"][0]} bin
 * @param {import("./frame.js").ShardNow} shard
 * @returns {number} how wide the copies are
 */
function drawKeyStrips(g, ink, ratio, { x, y, w, h }, { gone, keys, copies, regained }) {
  if (!Number.isNaN(gone)) {
    g.strokeStyle = ink.fault;
    g.lineWidth = 2.5;
    cross(g, x + 8, y + h / 2, 4);
    return 0;
  }
  const newest = regained.at(-1)?.generation;
  const others = regained
    .filter((one) => one.generation === newest)
    .reduce((sum, one) => sum + one.elements, 0);
  const tall = (h - 2) * (keys > 0 ? Math.min(1, others / keys) : 0);
  g.fillStyle = ink["age-0"];
  g.fillRect(x + 1, y + 1, OWN_WIDE, h - 2 - tall);
  g.fillStyle = hatched(ink["age-0"], ratio);
  g.fillRect(x + 1, y + h - 1 - tall, OWN_WIDE, tall);
  g.strokeStyle = ink["age-0"];
  g.lineWidth = 1;
  if (tall) g.strokeRect(x + 1.5, y + h - 0.5 - tall, OWN_WIDE - 1, tall - 1);
  copies.forEach((_, i) => {
    const left = x + w - 2 - (i + 1) * (COPY_WIDE + 2);
    g.fillStyle = hatched(ink["ink-3"], ratio);
    g.fillRect(left, y + 3, COPY_WIDE, h - 6);
    g.strokeStyle = ink["ink-3"];
    g.strokeRect(left + 0.5, y + 3.5, COPY_WIDE - 1, h - 7);
  });
  return copies.length * (COPY_WIDE + 2);
}

/** @param {import("./frame.js").ShardNow} shard @param {boolean} wide */
function besidesInShort({ copies, regained }, wide) {
  const whose = [...new Set(regained.map((one) => one.server).filter((rank) => rank >= 0))];
  if (whose.length) return `${wide ? "has the keys" : "keys"} of ${whose.join(", ")}`;
  if (!copies.length) return "";
  return wide ? `copy of shard ${copies.join(", ")}` : `copy of ${copies.join(", ")}`;
}

/**
 * What a shard does.
 * @param {import("./frame.js").ShardNow} shard
 * @param {{kind: string, to: number}[]} comets
 * @param {boolean} wide
 */
function binWords({ rank, applying, queue, kept }, comets, wide) {
  if (applying.length > 1) return `updates, ${applying.length} pushes`;
  if (applying.length)
    return wide ? `applies worker ${applying[0].worker}'s` : `applies ${applying[0].worker}'s`;
  const coming = comets.filter(({ kind, to }) => kind === "push" && to === rank).length;
  if (!queue.length) return coming ? `${coming} on the way` : "idle"; // its link is at work
  return kept
    ? wide
      ? `${queue.length} in, the rest to come`
      : `${queue.length} in so far`
    : `${queue.length} wait${queue.length === 1 ? "s" : ""} here`;
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {import("./place.js").Place["bins"][0]} bin
 * @param {import("./frame.js").ShardNow} shard
 */
function drawQueue(g, ink, font, { x, y, h }, { queue, applying }) {
  const all = [
    ...applying.map((push) => ({ push, on: true })),
    ...queue.map((push) => ({ push, on: false })),
  ];
  const fit = Math.max(1, Math.floor((h + 2) / 17));
  const size = 15;
  if (!all.length) return;
  const shown = all.length > fit ? all.slice(0, fit - 1) : all;
  const top = y + (h < 30 ? (h - size) / 2 : 2);
  const box = (/** @type {number} */ k, /** @type {string} */ text, /** @type {boolean} */ on) => {
    g.fillStyle = on ? ink.comm : ink.ground;
    g.strokeStyle = ink.comm;
    g.lineWidth = 1.5;
    g.beginPath();
    g.roundRect(x - 19, top + k * 17, size, size, 2);
    g.fill();
    g.stroke();
    writeAt(
      g,
      font,
      text,
      x - 19 + size / 2,
      top + k * 17 + size / 2 + 0.5,
      on ? ink["on-s1"] : ink.ink,
      "center",
      true,
    );
  };
  shown.forEach(({ push, on }, k) => box(k, String(push.worker), on));
  if (shown.length < all.length)
    box(
      shown.length,
      fit === 1 ? `×${all.length}` : `+${all.length - shown.length}`,
      fit === 1 && applying.length > 0,
    );
}

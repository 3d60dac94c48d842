// @ts-check
/** The shards of the parameter server's picture: share, version, and the pushes that wait at each. */
import { writeAt } from "./server_ink.js";

/** The shards, each as high as its share of the keys; before each the pushes that wait there. @param {CanvasRenderingContext2D} g @param {import("./stage.js").Look} look @param {import("./server_draw.js").ServerSeen} seen */
export function drawBins(g, { ink, font, choice }, { place, frame, befell }) {
  frame.shards.forEach((shard, s) => {
    const { x, y, w, h, level } = place.bins[s], chosen = choice?.rank === shard.rank, fate = befell.get(shard.rank), pad = x + 17;
    g.fillStyle = ink.panel;
    g.beginPath();
    g.roundRect(x, y, w, h, 4);
    g.fill();
    g.strokeStyle = chosen ? ink.focus : fate ? ink[fate.colour] : ink.edge;
    g.lineWidth = chosen ? 2 : 1;
    g.setLineDash(fate ? [4, 3] : []);
    g.stroke();
    g.setLineDash([]);
    g.fillStyle = ink["age-0"];
    g.fillRect(x + 1, y + 1, 7, h - 2);
    const share = `${Math.round(shard.share * 100)} %${place.wide && level !== "line" ? " of keys" : ""}`, name = `shard ${shard.rank}`, version = `v ${shard.versions.join(" | ")}`;
    if (level === "line") {
      g.font = `700 12px ${font}`;
      writeAt(g, font, name, pad, y + h / 2, ink.ink, "left", true, 12);
      g.font = `700 12px ${font}`;
      const wide = g.measureText(name).width + 8;
      writeAt(g, font, version, pad + wide, y + h / 2, ink.ink, "left", false, 12);
      if (place.wide) writeAt(g, font, share, x + w - 7, y + h / 2, ink["ink-3"], "right");
    } else {
      writeAt(g, font, name, pad, y + 14, ink.ink, "left", true, 12);
      writeAt(g, font, share, x + w - 7, y + 14, ink["ink-2"], "right");
      writeAt(g, font, version, pad, y + (level === "full" ? 40 : 33), ink.ink, "left", true, level === "full" ? 20 : 16);
      const words = fate?.words ?? binWords(shard, place.wide);
      if (level === "full") writeAt(g, font, words, pad, y + 62, fate ? ink[fate.colour] : ink["ink-3"], "left", !!fate);
    }
    drawQueue(g, ink, font, place.bins[s], shard);
  });
}

/** @param {import("./server_frame.js").ShardNow} shard @param {boolean} wide */
function binWords({ applying, queue, kept }, wide) {
  if (applying.length > 1) return `updates, ${applying.length} pushes`;
  if (applying.length) return wide ? `applies worker ${applying[0].worker}'s` : `applies ${applying[0].worker}'s`;
  if (!queue.length) return "idle";
  return kept ? (wide ? `${queue.length} in, the rest to come` : `${queue.length} in so far`) : `${queue.length} wait${queue.length === 1 ? "s" : ""} here`;
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {string} font @param {import("./server_place.js").Place["bins"][0]} bin @param {import("./server_frame.js").ShardNow} shard */
function drawQueue(g, ink, font, { x, y, h }, { queue, applying }) {
  const all = [...applying.map((push) => ({ push, on: true })), ...queue.map((push) => ({ push, on: false }))], fit = Math.max(1, Math.floor((h + 2) / 17)), size = 15;
  if (!all.length) return;
  const shown = all.length > fit ? all.slice(0, fit - 1) : all, top = y + (h < 30 ? (h - size) / 2 : 2), box = (/** @type {number} */ k, /** @type {string} */ text, /** @type {boolean} */ on) => {
    g.fillStyle = on ? ink.comm : ink.ground;
    g.strokeStyle = ink.comm;
    g.lineWidth = 1.5;
    g.beginPath();
    g.roundRect(x - 19, top + k * 17, size, size, 2);
    g.fill();
    g.stroke();
    writeAt(g, font, text, x - 19 + size / 2, top + k * 17 + size / 2 + 0.5, on ? ink["on-s1"] : ink.ink, "center", true);
  };
  shown.forEach(({ push, on }, k) => box(k, String(push.worker), on));
  if (shown.length < all.length) box(shown.length, fit === 1 ? `×${all.length}` : `+${all.length - shown.length}`, fit === 1 && applying.length > 0);
}

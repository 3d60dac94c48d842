// @ts-check
/**
 * The shards of the parameter server's picture: share, version, and the pushes that wait at each.
 *
 * @typedef {import("../../drawing/pen.js").Pen} Pen
 */

const OWN_WIDE = 7; // px of the strip of keys
const COPY_WIDE = 6; // and of a copy's

/**
 * The shards, each as high as its share of the keys; before each the pushes that wait there.
 * @param {Pen} pen
 * @param {import("../../chrome/stage.js").Look} look
 * @param {import("./draw.js").ServerSeen} seen
 */
export function drawBins(pen, { choice }, { place, frame, incidents }) {
  const { g, ink, font } = pen;
  frame.shards.forEach((shard, s) => {
    const { x, y, w, h, level } = place.bins[s];
    const chosen = choice?.rank === shard.rank;
    const incident = incidents.get(shard.rank);
    const pad = x + 17;
    g.fillStyle = ink.panel;
    g.beginPath();
    g.roundRect(x, y, w, h, 4);
    g.fill();
    g.strokeStyle = chosen ? ink.focus : incident ? ink[incident.colour] : ink.edge;
    g.lineWidth = chosen ? 2 : 1;
    g.setLineDash(incident ? [4, 3] : []);
    g.stroke();
    g.setLineDash([]);
    const end = x + w - 7 - drawKeyStrips(pen, place.bins[s], shard);
    const share =
      `${Math.round(shard.share * 100)} ` + `%${place.wide && level !== "line" ? " of keys" : ""}`;
    const name = `${place.small && level === "line" ? "" : "shard "}${shard.rank}`;
    const gone = !Number.isNaN(shard.gone);
    const version = gone ? (incident?.words ?? "gone") : `v ${shard.versions.join(" | ")}`;
    const strong = gone ? ink.fault : ink.ink;
    const high = level === "full" && !place.small ? 20 : place.small ? 13 : 16;
    const fits = (/** @type {string} */ text, /** @type {number} */ weight) => {
      g.font = `${weight} 11px ${font}`;
      return !place.small || pad + g.measureText(text).width <= end;
    };
    if (level === "line") {
      g.font = `700 12px ${font}`;
      pen.write(name, pad, y + h / 2, "ink", "left", true, 12);
      g.font = `700 12px ${font}`;
      const wide = g.measureText(name).width + 8;
      pen.write(version, pad + wide, y + h / 2, strong, "left", gone, 12);
      if (place.wide) pen.write(share, end, y + h / 2, "ink-3", "right");
    } else {
      pen.write(name, pad, y + 14, "ink", "left", true, 12);
      if (!place.small) pen.write(share, end, y + 14, "ink-2", "right");
      pen.write(version, pad, y + (level === "full" ? 40 : 33), strong, "left", true, high);
      const words = gone ? "" : (incident?.words ?? binWords(shard, frame.comets, place.wide));
      if (level === "full" && fits(words, incident ? 700 : 400))
        pen.write(words, pad, y + 62, incident ? incident.colour : "ink-3", "left", !!incident);
      const besides = level === "full" && h >= 96 ? besidesInShort(shard, place.wide) : "";
      if (besides && fits(besides, 400)) pen.write(besides, pad, y + 80, "ink-2");
    }
    drawQueue(pen, place.bins[s], shard);
  });
}

/**
 * A strip of the keys that a shard has, those of lost servers hatched; at the other edge a strip for
 * each copy that it has, hatched too. One that is gone has a cross.
 * @param {Pen} pen
 * @param {import("./place.js").Place["bins"][0]} bin
 * @param {import("./frame.js").ShardNow} shard
 * @returns {number} how wide the copies are
 */
function drawKeyStrips(pen, { x, y, w, h }, { gone, keys, copies, regained }) {
  const { g, ink } = pen;
  if (!Number.isNaN(gone)) {
    pen.cross(x + 8, y + h / 2, 4);
    return 0;
  }
  const newest = regained.at(-1)?.generation;
  const others = regained
    .filter((one) => one.generation === newest)
    .reduce((sum, one) => sum + one.elements, 0);
  const tall = (h - 2) * (keys > 0 ? Math.min(1, others / keys) : 0);
  pen.box(x + 1, y + 1, OWN_WIDE, h - 2 - tall, "age-0");
  pen.hatch(x + 1, y + h - 1 - tall, OWN_WIDE, tall, "age-0");
  if (tall) pen.outline(x + 1.5, y + h - 0.5 - tall, OWN_WIDE - 1, tall - 1, "age-0");
  copies.forEach((_, i) => {
    const left = x + w - 2 - (i + 1) * (COPY_WIDE + 2);
    pen.hatch(left, y + 3, COPY_WIDE, h - 6, "ink-3");
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
 * @param {Pen} pen
 * @param {import("./place.js").Place["bins"][0]} bin
 * @param {import("./frame.js").ShardNow} shard
 */
function drawQueue(pen, { x, y, h }, { queue, applying }) {
  const { g, ink } = pen;
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
    pen.write(
      text,
      x - 19 + size / 2,
      top + k * 17 + size / 2 + 0.5,
      on ? "on-s1" : "ink",
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

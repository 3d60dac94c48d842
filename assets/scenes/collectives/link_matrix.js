// @ts-check
/**
 * Who sends how much to whom: a cell for each pair of ranks, senders below each other, receivers
 * beside each other. The shade is the bytes that have left up to the playhead, the bar at its foot
 * the share of the time in which the link was busy. Geometry and sums, then drawing; the sums are
 * of the call's send rows.
 *
 * @typedef {import("../../engine/rates.js").Reading} Reading
 * @typedef {{from: number, to: number, nbytes: number, messages: number, busy: number}} Carried
 *   busy: ns
 * @typedef {{ranks: number, left: number, top: number, pitch: number, cell: number}} Pairs
 */
import { unitOf } from "./matrix.js";
import { bytes, duration, pieceName } from "../../engine/format.js";

const LINK_HEAD = 34;
const NUMBERED_PAIRS = 20;

/** @param {number} ranks @param {number} width @param {number} height @returns {Pairs} */
export function pairsGrid(ranks, width, height) {
  const pitch = Math.min(64, (width - 44) / ranks, (height - LINK_HEAD - 4) / ranks);
  const left = Math.max(34, (width - ranks * pitch) / 2);
  return { ranks, left, top: LINK_HEAD, pitch, cell: pitch - (pitch > 12 ? 3 : pitch > 5 ? 1 : 0) };
}

/**
 * What each link has carried by a moment of the call.
 * @param {Reading} reading
 * @param {number} t
 * @returns {Map<string, Carried>}
 */
export function carriedBy({ call }, t) {
  const links = /** @type {Map<string, Carried & {until: number, seen: Set<string>}>} */ (
    new Map()
  );
  for (const r of call.rows) {
    if (r.kind !== "send" || r.start >= t) continue;
    const key = `${r.rank}>${r.peer}`;
    const link = links.get(key) ?? {
      from: r.rank,
      to: r.peer,
      nbytes: 0,
      messages: 0,
      busy: 0,
      until: 0,
      seen: new Set(),
    };
    links.set(key, link);
    const share = Math.min(1, (t - r.start) / Math.max(1, r.end - r.start));
    const end = Math.min(t, r.end);
    link.nbytes += Math.max(0, r.nbytes) * share;
    // pieces that leave at once count once
    link.busy += Math.max(0, end - Math.max(r.start, link.until));
    link.until = Math.max(link.until, end);
    link.messages = link.seen.add(`${r.step}/${r.chunk}`).size;
  }
  return links;
}

/**
 * The pair under the pointer.
 * @param {Pairs} grid
 * @param {number} x
 * @param {number} y
 * @returns {{from: number, to: number} | null}
 */
export function underPairs({ ranks, left, top, pitch }, x, y) {
  const to = Math.floor((x - left) / pitch);
  const from = Math.floor((y - top) / pitch);
  return from >= 0 && to >= 0 && from < ranks && to < ranks && from !== to ? { from, to } : null;
}

/**
 * @param {CanvasRenderingContext2D} g  cleared, scaled to CSS pixels
 * @param {import("../../chrome/stage.js").Look} look
 * @param {Pairs} grid
 * @param {import("./frame.js").Prepared} seen  text: the moment whose numbers are written
 */
export function drawPairs(g, { ink, font, choice }, grid, { reading, t, text, emulated }) {
  const { ranks, left, top, pitch, cell } = grid;
  const carried = reading ? carriedBy(reading, t) : new Map();
  const [unit, name] = unitOf(mostOn(reading));
  const numbers = reading && pitch >= 34 ? carriedBy(reading, text.t) : new Map();
  const most = Math.max(1, mostOn(reading));
  g.textBaseline = "middle";
  g.textAlign = "left";
  g.font = `11px ${font}`;
  g.fillStyle = ink["ink-3"];
  g.fillText("to rank", left, 7);
  if (numbers.size) {
    g.textAlign = "right";
    g.fillText(name, left + ranks * pitch, 7);
  }
  g.textAlign = "center";
  g.font = `700 11px ${font}`;
  const every = Math.ceil((String(ranks - 1).length * 6.3 + 4) / pitch);
  const down = Math.ceil(12 / pitch);
  for (let r = 0; r < ranks; r++) {
    g.fillStyle = choice?.rank === r ? ink.focus : ink["ink-2"];
    if (r % every === 0) g.fillText(String(r), left + (r + 0.5) * pitch, 22);
    if (r % down === 0) g.fillText(String(r), left - 12, top + r * pitch + cell / 2);
  }
  for (let from = 0; from < ranks; from++) {
    for (let to = 0; to < ranks; to++) {
      if (from === to) continue;
      const x = left + to * pitch;
      const y = top + from * pitch;
      const link = carried.get(`${from}>${to}`);
      const used = reading?.links.has(`${from}>${to}`);
      if (!used) {
        g.strokeStyle = ink.rule;
        g.lineWidth = 1;
        g.strokeRect(x + 0.5, y + 0.5, Math.max(1, cell - 1), Math.max(1, cell - 1));
        continue;
      }
      g.fillStyle = ink.track;
      g.fillRect(x, y, cell, cell);
      if (link) {
        g.globalAlpha = 0.12 + 0.5 * (link.nbytes / most);
        g.fillStyle = ink.comm;
        g.fillRect(x, y, cell, cell);
        g.globalAlpha = 1;
        if (cell > 6)
          g.fillRect(
            x,
            y + cell - Math.max(2, cell * 0.1),
            (cell * link.busy) / Math.max(1, t),
            Math.max(2, cell * 0.1),
          );
      }
      const words = numbers.get(`${from}>${to}`);
      if (words && ranks <= NUMBERED_PAIRS) {
        g.fillStyle = ink.ink;
        g.fillText(shortNumber(words.nbytes / unit), x + cell / 2, y + cell / 2 + 0.5);
      }
      const ours = emulated.get(`${from}>${to}`);
      if (ours) {
        g.strokeStyle = ours.down ? ink.fault : ink.hold;
        g.lineWidth = 2;
        g.setLineDash(cell > 12 ? [5, 3] : [2, 2]);
        g.strokeRect(x + 1, y + 1, Math.max(1, cell - 2), Math.max(1, cell - 2));
        g.setLineDash([]);
      }
      if (choice?.rank === from && choice.peer === to) {
        g.strokeStyle = ink.focus;
        g.lineWidth = 2;
        g.strokeRect(x - 1, y - 1, cell + 2, cell + 2);
      }
    }
  }
}

/** The most bytes that one link carries in the whole call. @param {Reading | null} reading */
const mostOn = (reading) =>
  reading ? Math.max(0, ...[...carriedBy(reading, Infinity).values()].map((l) => l.nbytes)) : 0;

/** At most three digits. @param {number} x */
const shortNumber = (x) =>
  x >= 99.5 || Number.isInteger(x)
    ? String(Math.round(x))
    : x >= 9.95
      ? x.toFixed(0)
      : x.toFixed(1);

/**
 * A pair in words.
 * @param {Reading} reading
 * @param {number} from
 * @param {number} to
 * @param {number} t
 * @returns {string[]}
 */
export function pairWords(reading, from, to, t) {
  const { call } = reading;
  const link = carriedBy(reading, t).get(`${from}>${to}`);
  const whole = carriedBy(reading, Infinity).get(`${from}>${to}`);
  if (!whole) return [`rank ${from} sends nothing to rank ${to}`];
  if (!link)
    return [
      `rank ${from} has sent nothing to rank ${to} yet, of ${bytes(Math.round(whole.nbytes))}`,
    ];
  return [
    `rank ${from} → rank ${to}: ${bytes(Math.round(link.nbytes))} of ` +
      `${bytes(Math.round(whole.nbytes))} have left, in ${link.messages} ` +
      `${pieceName(call)}${link.messages === 1 ? "" : "s"}`,
    `busy ${duration(link.busy)} of ${duration(t)} ` +
      `(${Math.round((100 * link.busy) / Math.max(1, t))} %)`,
  ];
}

/** All of them, for who cannot see it. @param {Reading} reading @param {number} t */
export const spokenPairs = (reading, t) =>
  [...carriedBy(reading, t).values()]
    .map(
      (l) =>
        `rank ${l.from} to rank ${l.to}: ${bytes(Math.round(l.nbytes))}, busy ` +
        `${Math.round((100 * l.busy) / Math.max(1, t))} %`,
    )
    .join("; ") || "nothing has been sent yet";

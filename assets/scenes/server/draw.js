// @ts-check
/**
 * The parameter server's picture: workers on their track before the wall, what is on its way, and
 * the shards. Version is colour: a worker fades as the servers move on, and a pull restores it; its
 * missed updates are notches beside its name, so that the stalest has the longest row. Who is
 * stopped stands at the wall, hatched and with a dashed ring.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./place.js").Place} Place
 * @typedef {import("./frame.js").ServerFrame} ServerFrame
 * @typedef {import("./frame.js").WorkerNow} WorkerNow
 * @typedef {{place: Place, frame: ServerFrame, index: import("./index.js").ServerIndex,
 *   rule: import("./frame.js").Rule, comets: (import("./call_source.js").Flight & {share: number,
 *   x: number, y: number})[], incidents: Map<number, {words: string, colour: string}>}} ServerSeen
 */
import { Pen } from "../../drawing/pen.js";
import { drawBins } from "./bins.js";
import { fateOf } from "./frame.js";
import { columnX, wayPoint } from "./place.js";
import { drawName, drawWorker } from "./workers.js";

const MOST_WAYS = 48; // that are drawn while nothing is on them

/** @param {CanvasRenderingContext2D} g @param {Look} look @param {ServerSeen} seen */
export function drawPicture(g, look, seen) {
  const pen = new Pen(g, look);
  drawGrid(pen, look, seen);
  seen.frame.workers.forEach((worker, i) => {
    drawLog(pen, seen, worker, i);
    drawName(pen, look, seen, worker, i);
  });
  drawWall(pen, seen);
  drawWays(pen, look, seen);
  drawBins(pen, look, seen);
  seen.frame.workers.forEach((worker, i) => drawWorker(pen, look, seen, worker, i));
  for (const comet of seen.comets) drawComet(pen, seen, comet);
  for (const move of seen.frame.moves) drawMove(pen, seen, move);
}

/**
 * Keys of a lost server on their way: from a worker, from the server that has a copy, or from a
 * file, which is beside the picture.
 * @param {Pen} pen
 * @param {ServerSeen} seen
 * @param {ServerFrame["moves"][0]} move
 */
function drawMove(pen, { place, frame }, { holder, owner, share }) {
  const s = frame.shards.findIndex((one) => one.rank === owner);
  const from = frame.shards.findIndex((one) => one.rank === holder);
  const worker = frame.workers.findIndex((one) => one.rank === holder);
  if (s < 0 || from === s) return;
  const bin = place.bins[s];
  const middle = bin.y + bin.h / 2;
  const [x, y] =
    worker >= 0
      ? [wayPoint(place, worker, s, share).x, wayPoint(place, worker, s, share).y]
      : from >= 0
        ? [
            bin.x - 30 * Math.sin(Math.PI * share),
            place.bins[from].y +
              place.bins[from].h / 2 +
              (middle - place.bins[from].y - place.bins[from].h / 2) * share,
          ]
        : [bin.x + bin.w / 2, bin.y - 12 + 12 * share];
  pen.box(x - 6, y - 6, 12, 12, "ground");
  pen.hatch(x - 6, y - 6, 12, 12, "age-0");
  pen.outline(x - 6, y - 6, 12, 12, "age-0", 1.5);
}

/**
 * Columns, lanes, the ground on which workers may be.
 * @param {Pen} pen
 * @param {Look} look
 * @param {ServerSeen} seen
 */
function drawGrid(pen, { choice }, { place, frame, rule }) {
  const { g, ink } = pen;
  const { left, right, top, bottom, lane, past, columns, column } = place;
  const { min, workers } = frame;
  g.fillStyle = ink.panel;
  workers.forEach((worker, i) => {
    const from = columnX(place, min, min);
    const to =
      rule.low === null
        ? right
        : Math.min(right, columnX(place, (worker.limit ?? min) + frame.stride, min));
    g.fillRect(from, top + i * lane, Math.max(0, to - from), lane);
  });
  const digits = String(min + columns + 1).length * 6.2 + 10;
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((k) => k * column >= digits) ?? 1000;
  g.fillStyle = ink.rule;
  const first = Math.max(0, past - min); // before the first iteration there is no track
  for (let k = first; k <= columns; k++)
    if (column * every > 14 || (min - past + k) % every === 0)
      if (column > 8 || (min - past + k) % every === 0)
        g.fillRect(Math.round(left + k * column), top, 0.75, bottom - top);
  for (let i = 0; i <= workers.length; i++) g.fillRect(0, top + i * lane, right, 0.75);
  pen.write("iteration", 0, top - 10, "ink-3");
  for (let k = 0; k < columns; k++) {
    const c = min - past + k;
    const x = left + (k + 0.5) * column;
    const near = every > 1 && c !== min && Math.abs(c - min) * column < digits;
    if (c < 0 || near || (c % every && c !== min) || x < left + 2) continue;
    pen.write(String(c + 1), x, top - 10, c === min ? "ink" : "ink-3", "center", c === min);
  }
  const row = workers.findIndex((w) => w.rank === choice?.rank);
  if (row < 0) return;
  pen.outline(1, top + row * lane + 1.5, right - 2, lane - 2.5, "focus", 1.5);
}

/**
 * The wall: where no worker may go on; a controller moves it worker by worker.
 * @param {Pen} pen
 * @param {ServerSeen} seen
 */
function drawWall(pen, { place, frame, rule }) {
  const { g, ink } = pen;
  const { top, lane, bottom, left } = place;
  const { workers, min } = frame;
  const words = wallWords(rule, place);
  g.fillStyle = ink.wait;
  let last = NaN;
  workers.forEach((worker, i) => {
    if (worker.limit === null) return;
    const x = columnX(place, worker.limit + frame.stride, min) - 2;
    const y = top + i * lane;
    const first = i ? 0 : 3;
    g.fillRect(x, y - first, 4.5, lane + first + (i === workers.length - 1 ? 3 : 0));
    if (last === last && last !== x)
      g.fillRect(Math.min(x, last), y - 1, Math.abs(x - last) + 4.5, 2);
    last = x;
  });
  if (!words) return;
  const wide = pen.wide(words, true);
  const end = last === last ? Math.max(left + wide, last + 4.5) : place.right;
  pen.write(
    words,
    end,
    bottom + 13,
    rule.low === null ? "ink-3" : "wait",
    "right",
    rule.low !== null,
  );
  if (end - wide > left + 84) pen.write("log of pushes", left, bottom + 13, "ink-3");
}

/** @param {import("./frame.js").Rule} rule @param {{wide: boolean, small: boolean}} place */
export function wallWords({ consistency, low, high, waits }, { wide, small }) {
  if (low === null)
    return !waits
      ? `no wall${small ? "" : ": no worker waits for another"}`
      : consistency
        ? `${consistency}: no fixed bound`
        : "";
  if (small)
    return `wall: ${low === 0 ? "nobody" : low} ahead${low === high ? "" : ", or granted"}`;
  if (low !== high)
    return wide
      ? `wall: ${low} ahead of the slowest, ${high === null ? "more" : `up to ${high}`} ` +
          "where granted"
      : `wall: ${low} ahead, or as granted`;
  return low === 0
    ? "wall: no worker ahead of the slowest"
    : `wall: at most ${low} ahead of the slowest`;
}

/**
 * What became of each push, a box a shard.
 * @param {Pen} pen
 * @param {ServerSeen} seen
 * @param {WorkerNow} worker
 * @param {number} i
 */
function drawLog(pen, { place, frame, index }, worker, i) {
  const { column, past, lane, top, level, left, columns } = place;
  const { min, t } = frame;
  const servers = [...index.servers.keys()];
  const pairs = servers.map((server) => index.pairs.get(worker.rank * 65_536 + server));
  const tall = level === "full" ? 9 : level === "line" ? 4 : 2.5;
  const y = top + (i + 1) * lane - tall - (level === "full" ? 4 : 2);
  const each = Math.min(11, (column - 4) / servers.length);
  const single = each < 4;
  const w = single ? Math.max(1, Math.min(column - 2, 9)) : each - 2;
  const x0 = single ? -w / 2 : (-each * servers.length) / 2 + 1;
  for (let k = 0; k < columns; k++) {
    const c = min - past + k;
    const middle = left + (k + 0.5) * column;
    if (c < 0 || c > worker.iteration) continue;
    const fates = pairs.map((pair) => fateOf(pair?.pushes[c], t));
    const shown = single
      ? [
          fates.includes("dropped")
            ? "dropped"
            : fates.every((f) => f === "applied")
              ? "applied"
              : (fates.find((f) => f === "flying" || f === "there") ?? ""),
        ]
      : fates;
    shown.forEach((fate, s) => {
      if (!fate) return;
      const x = middle + x0 + s * each;
      if (fate === "applied") return pen.box(x, y, w, tall, "edge");
      pen.outline(
        x + 0.75,
        y + 0.75,
        Math.max(0.5, w - 1.5),
        Math.max(0.5, tall - 1.5),
        fate === "dropped" ? "fault" : "comm",
        1.5,
        fate === "dropped" ? [2.5, 2] : [],
      );
    });
  }
}

/**
 * The ways between workers and shards; of very many only those that are used now.
 * @param {Pen} pen
 * @param {Look} look
 * @param {ServerSeen} seen
 */
function drawWays(pen, { choice }, { place, frame, comets, incidents }) {
  const { g, ink } = pen;
  const { workers, shards } = frame;
  const all = workers.length * shards.length <= MOST_WAYS;
  const used = new Set(
    comets.map((c) => (c.kind === "push" ? `${c.from}/${c.to}` : `${c.to}/${c.from}`)),
  );
  g.lineWidth = 1;
  workers.forEach((worker, i) =>
    shards.forEach((shard, s) => {
      const on = used.has(`${worker.rank}/${shard.rank}`);
      const mine = choice?.rank === worker.rank || choice?.rank === shard.rank;
      if (!all && !on && !mine) return;
      g.strokeStyle = mine ? ink.focus : ink.rule;
      g.setLineDash(
        worker.doing === "lost" || incidents.get(shard.rank)?.colour === "fault" ? [2, 3] : [],
      );
      g.beginPath();
      for (let k = 0; k <= 14; k++) {
        const { x, y } = wayPoint(place, i, s, k / 14);
        if (k) g.lineTo(x, y);
        else g.moveTo(x, y);
      }
      g.stroke();
    }),
  );
  g.setLineDash([]);
}

/**
 * A push or a pull on its way: its tail is the way done.
 * @param {Pen} pen
 * @param {ServerSeen} seen
 * @param {ServerSeen["comets"][0]} comet
 */
function drawComet(pen, { place, frame }, { kind, from, to, share, x, y }) {
  const { g, ink } = pen;
  const out = kind === "push";
  const worker = frame.workers.findIndex((w) => w.rank === (out ? from : to));
  const shard = frame.shards.findIndex((s) => s.rank === (out ? to : from));
  const colour = out ? ink.comm : ink["age-0"];
  const r = place.level === "full" ? 7 : place.level === "line" ? 6 : 4;
  g.strokeStyle = colour;
  g.lineWidth = r / 2.4;
  g.globalAlpha = 0.4;
  g.beginPath();
  for (let k = 0; k <= 8; k++) {
    const f = Math.max(0, share - 0.3 + 0.3 * (k / 8));
    const p = wayPoint(place, worker, shard, out ? f : 1 - f);
    if (k) g.lineTo(p.x, p.y);
    else g.moveTo(p.x, p.y);
  }
  g.stroke();
  g.globalAlpha = 1;
  const d = out ? r : -r;
  g.fillStyle = colour;
  g.strokeStyle = ink.ground;
  g.lineWidth = 1;
  g.beginPath();
  g.moveTo(x - d, y - r * 0.85);
  g.lineTo(x + d, y);
  g.lineTo(x - d, y + r * 0.85);
  g.closePath();
  g.fill();
  g.stroke();
}

// @ts-check
/**
 * The parameter server's picture: workers on their track before the wall, what is on its way, and the shards. Version is
 * colour: a worker fades as the servers move on, and a pull restores it; its missed updates are notches beside its name,
 * so that the stalest has the longest row. Who is stopped stands at the wall, hatched and with a dashed ring.
 *
 * @typedef {import("./stage.js").Look} Look
 * @typedef {import("./server_place.js").Place} Place
 * @typedef {import("./server_frame.js").ServerFrame} ServerFrame
 * @typedef {import("./server_frame.js").WorkerNow} WorkerNow
 * @typedef {{place: Place, frame: ServerFrame, index: import("./server_index.js").ServerIndex, rule: import("./server_frame.js").Rule,
 *   comets: (import("./server_rounds.js").Flight & {share: number, x: number, y: number})[], befell: Map<number, {words: string, colour: string}>}} ServerSeen
 */
import { cross } from "./glyph.js";
import { hatched } from "./hatch.js";
import { fateOf } from "./server_frame.js";
import { columnX, laneY, wayPoint, workerSpot } from "./server_place.js";
import { duration } from "./words.js";

const NOTCH = 5, MOST_NOTCHES = 8, MOST_WAYS = 48, OLDEST = 7;

/** How many updates a step of the tint stands for: where many workers push, everybody soon lacks many. @param {number} workers @param {import("./server_frame.js").Rule} rule */
export const ageStep = (workers, { low }) => (low === 0 ? 1 : Math.max(1, Math.floor(workers / 4)));
/** The tint of what lacks so many updates, any at all being seen. @param {Record<string, string>} ink @param {number} behind @param {number} [step] */
export const ageInk = (ink, behind, step = 1) => ink[`age-${Math.max(0, Math.min(OLDEST, Math.ceil(behind / step)))}`];

/** @param {CanvasRenderingContext2D} g @param {string} font @param {string} text @param {number} x @param {number} y @param {string} colour @param {"left" | "center" | "right"} [align] @param {boolean} [bold] @param {number} [size] */
export function writeAt(g, font, text, x, y, colour, align = "left", bold = false, size = 11) {
  g.font = `${bold ? 700 : 400} ${size}px ${font}`;
  g.textAlign = align;
  g.textBaseline = "middle";
  g.fillStyle = colour;
  g.fillText(text, x, y);
}

/** @param {CanvasRenderingContext2D} g @param {Look} look @param {ServerSeen} seen */
export function drawServer(g, look, seen) {
  drawGrid(g, look, seen);
  seen.frame.workers.forEach((worker, i) => {
    drawLog(g, look, seen, worker, i);
    drawName(g, look, seen, worker, i);
  });
  drawWall(g, look, seen);
  drawServerWays(g, look, seen);
  drawBins(g, look, seen);
  seen.frame.workers.forEach((worker, i) => drawWorker(g, look, seen, worker, i));
  for (const comet of seen.comets) drawServerComet(g, look.ink, seen, comet);
}

/** Columns, lanes, the ground on which workers may be. @param {CanvasRenderingContext2D} g @param {Look} look @param {ServerSeen} seen */
function drawGrid(g, { ink, font, choice }, { place, frame, rule }) {
  const { left, right, top, bottom, lane, past, columns, column } = place, { min, workers } = frame;
  g.fillStyle = ink.panel;
  workers.forEach((worker, i) => {
    const from = columnX(place, min, min), to = rule.low === null ? right : Math.min(right, columnX(place, (worker.limit ?? min) + 1, min));
    g.fillRect(from, top + i * lane, Math.max(0, to - from), lane);
  });
  const digits = String(min + columns).length * 6.2 + 10, every = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((k) => k * column >= digits) ?? 1000;
  g.fillStyle = ink.rule;
  for (let k = 0; k <= columns; k++) if (column * every > 14 || (min - past + k) % every === 0) if (column > 8 || (min - past + k) % every === 0) g.fillRect(Math.round(left + k * column), top, 0.75, bottom - top);
  for (let i = 0; i <= workers.length; i++) g.fillRect(0, top + i * lane, right, 0.75);
  writeAt(g, font, "iteration", 0, top - 10, ink["ink-3"]);
  for (let k = 0; k < columns; k++) {
    const c = min - past + k, x = left + (k + 0.5) * column, near = every > 1 && c !== min && Math.abs(c - min) * column < digits;
    if (c < 0 || near || (c % every && c !== min) || x < left + 2) continue;
    writeAt(g, font, String(c), x, top - 10, c === min ? ink.ink : ink["ink-3"], "center", c === min);
  }
  const row = workers.findIndex((w) => w.rank === choice?.rank);
  if (row < 0) return;
  g.strokeStyle = ink.focus;
  g.lineWidth = 1.5;
  g.setLineDash([]);
  g.strokeRect(1, top + row * lane + 1.5, right - 2, lane - 2.5);
}

/** The wall: where nobody may go on; a controller moves it worker by worker. @param {CanvasRenderingContext2D} g @param {Look} look @param {ServerSeen} seen */
function drawWall(g, { ink, font }, { place, frame, rule }) {
  const { top, lane, bottom, left } = place, { workers, min } = frame, words = wallWords(rule, place.wide);
  g.fillStyle = ink.wait;
  let last = NaN;
  workers.forEach((worker, i) => {
    if (worker.limit === null) return;
    const x = columnX(place, worker.limit + 1, min) - 2, y = top + i * lane, first = i ? 0 : 3;
    g.fillRect(x, y - first, 4.5, lane + first + (i === workers.length - 1 ? 3 : 0));
    if (last === last && last !== x) g.fillRect(Math.min(x, last), y - 1, Math.abs(x - last) + 4.5, 2);
    last = x;
  });
  if (!words) return;
  g.font = `700 11px ${font}`;
  const wide = g.measureText(words).width, end = last === last ? Math.max(left + wide, last + 4.5) : place.right;
  writeAt(g, font, words, end, bottom + 13, rule.low === null ? ink["ink-3"] : ink.wait, "right", rule.low !== null);
  if (end - wide > left + 84) writeAt(g, font, "log of pushes", left, bottom + 13, ink["ink-3"]);
}

/** @param {import("./server_frame.js").Rule} rule @param {boolean} wide */
export function wallWords({ consistency, low, high }, wide) {
  if (low === null) return consistency === "asp" ? "no wall: nobody waits for another worker" : consistency ? `${consistency}: no fixed bound` : "";
  if (low !== high) return wide ? `wall: ${low} ahead of the slowest, ${high === null ? "more" : `up to ${high}`} where granted` : `wall: ${low} ahead, or as granted`;
  return low === 0 ? "wall: nobody ahead of the slowest" : `wall: at most ${low} ahead of the slowest`;
}

/** What became of each push, a box a shard. @param {CanvasRenderingContext2D} g @param {Look} look @param {ServerSeen} seen @param {WorkerNow} worker @param {number} i */
function drawLog(g, { ink }, { place, frame, index }, worker, i) {
  const { column, past, lane, top, level, left, columns } = place, { min, t } = frame, servers = [...index.servers.keys()];
  const pairs = servers.map((server) => index.pairs.get(worker.rank * 65_536 + server)), tall = level === "full" ? 9 : level === "line" ? 4 : 2.5, y = top + (i + 1) * lane - tall - (level === "full" ? 4 : 2);
  const each = Math.min(11, (column - 4) / servers.length), single = each < 4, w = single ? Math.max(1, Math.min(column - 2, 9)) : each - 2, x0 = single ? -w / 2 : (-each * servers.length) / 2 + 1;
  for (let k = 0; k < columns; k++) {
    const c = min - past + k, middle = left + (k + 0.5) * column;
    if (c < 0 || c > worker.iteration) continue;
    const fates = pairs.map((pair) => fateOf(pair?.pushes[c], t));
    const shown = single ? [fates.includes("dropped") ? "dropped" : fates.every((f) => f === "applied") ? "applied" : (fates.find((f) => f === "flying" || f === "there") ?? "")] : fates;
    shown.forEach((fate, s) => {
      if (!fate) return;
      const x = middle + x0 + s * each;
      if (fate === "applied") return (g.fillStyle = ink.edge), g.fillRect(x, y, w, tall);
      g.strokeStyle = fate === "dropped" ? ink.fault : ink.comm;
      g.lineWidth = 1.5;
      g.setLineDash(fate === "dropped" ? [2.5, 2] : []);
      g.strokeRect(x + 0.75, y + 0.75, Math.max(0.5, w - 1.5), Math.max(0.5, tall - 1.5));
      g.setLineDash([]);
    });
  }
}

/** Its name, the updates that it lacks as notches, what it holds. @param {CanvasRenderingContext2D} g @param {Look} look @param {ServerSeen} seen @param {WorkerNow} worker @param {number} i */
function drawName(g, { ink, font, choice }, { place, frame, befell, rule }, worker, i) {
  const y = laneY(place, i), { level, lane, left } = place, chosen = frame.shards.findIndex((s) => s.rank === choice?.rank), behind = chosen < 0 ? worker.worst : worker.behind[chosen];
  const strong = frame.slowest.includes(worker.rank), fate = befell.get(worker.rank);
  const n = Math.min(MOST_NOTCHES, Math.ceil(behind / ageStep(frame.workers.length, rule))), notches = (/** @type {number} */ x, /** @type {number} */ at, /** @type {number} */ tall) => {
    for (let k = 0; k < n; k++) {
      g.fillStyle = ageInk(ink, k + 1);
      g.fillRect(x + k * NOTCH, at - tall / 2, NOTCH - 1.5, tall);
    }
    return x + n * NOTCH;
  };
  if (level === "dots") {
    if (lane >= 12) writeAt(g, font, `worker ${worker.rank}`, 0, y, strong ? ink.ink : ink["ink-2"], "left", strong);
    else if (i % 2 === 0) writeAt(g, font, String(worker.rank), 0, y, ink["ink-2"]);
    notches(lane >= 12 ? 58 : 30, y, Math.max(4, lane - 6));
    return;
  }
  const full = level === "full" && lane > 50, first = full ? y - 14 : level === "full" ? y - 8 : y - 6, second = full ? y + 2 : level === "full" ? y + 8 : y + 7;
  writeAt(g, font, `worker ${worker.rank}`, 0, first, ink.ink, "left", true, 12);
  const words = fate?.words ?? (worker.held.every((v) => v < 0) ? "no version yet" : behind ? `${behind} behind` : "newest");
  const colour = fate ? ink[fate.colour] : ink["ink-2"], room = left - 6;
  g.font = `400 11px ${font}`;
  const wide = g.measureText(words).width, fits = !fate && wide + n * NOTCH + 5 <= room;
  writeAt(g, font, fits || fate || !behind ? words : String(behind), fate || !n ? 0 : notches(0, second, level === "full" ? 9 : 7) + 4, second, colour, "left", !!fate);
  if (full) writeAt(g, font, versionWords(worker, chosen), 0, y + 17, ink["ink-3"]);
}

/** @param {WorkerNow} worker @param {number} chosen  the shard that is selected, or -1 */
export function versionWords({ held, behind }, chosen) {
  const known = held.filter((v) => v >= 0);
  if (!known.length) return "";
  if (chosen >= 0) return held[chosen] >= 0 ? `v ${held[chosen]} of ${held[chosen] + behind[chosen]}` : "";
  const least = Math.min(...known), most = Math.max(...known);
  if (held.length <= 2) return `v ${held.map((v) => (v < 0 ? "–" : v)).join(" | ")}`;
  return least === most ? `v ${least}` : `v ${least} to ${most}`;
}

/** A worker where it stands: a sector a shard, tinted by the version held; around it the slack that is left. @param {CanvasRenderingContext2D} g @param {Look} look @param {ServerSeen} seen @param {WorkerNow} worker @param {number} i */
function drawWorker(g, { ink, font, ratio, choice }, { place, frame, befell, rule }, worker, i) {
  const { x, y, off } = workerSpot(place, i, worker, frame.min), { ring, level, lane, top } = place, blocked = worker.doing === "blocked", thick = level === "full" ? 4 : level === "line" ? 2.5 : 0;
  const chosen = frame.shards.findIndex((s) => s.rank === choice?.rank), fate = befell.get(worker.rank);
  if (blocked) { // hatched up to the wall: seen before it is read
    const wall = columnX(place, (worker.limit ?? worker.iteration) + 1, frame.min), from = Math.max(place.left, Math.min(x, columnX(place, worker.iteration, frame.min)));
    g.fillStyle = hatched(ink.wait, ratio);
    g.globalAlpha = 0.55;
    g.fillRect(from, top + i * lane + 2, Math.max(0, wall - 2 - from), level === "full" ? lane - 18 : lane - 4);
    g.globalAlpha = 1;
  }
  g.fillStyle = blocked || level === "full" ? ink.ground : "transparent";
  disc(g, x, y, ring + (level === "full" ? 1 : 0), true);
  if (thick) {
    g.lineWidth = thick;
    g.strokeStyle = ink.track;
    g.setLineDash([]);
    disc(g, x, y, ring - thick / 2, false);
    g.strokeStyle = blocked ? ink.wait : fate?.colour === "hold" ? ink.hold : ink.ink;
    g.setLineDash(blocked ? [3, 3] : []);
    const share = blocked || worker.limit === null ? 1 : worker.slack;
    if (worker.doing !== "lost" && (blocked || worker.limit !== null)) arcOf(g, x, y, ring - thick / 2, share);
    g.setLineDash([]);
  }
  const r = Math.max(2, ring - (level === "full" ? 6 : thick + (level === "line" ? 1 : 0))), parts = chosen >= 0 ? [chosen] : worker.held.map((_, s) => s);
  parts.forEach((s, k) => {
    g.fillStyle = worker.held[s] < 0 ? ink.track : ageInk(ink, worker.behind[s], ageStep(frame.workers.length, rule));
    g.beginPath();
    if (parts.length > 1) g.moveTo(x, y);
    g.arc(x, y, r, -Math.PI / 2 - ((k + 1) / parts.length) * 2 * Math.PI, -Math.PI / 2 - (k / parts.length) * 2 * Math.PI);
    g.fill();
  });
  if (parts.length > 1 && level !== "dots") for (let k = 0; k < parts.length; k++) {
    const a = -Math.PI / 2 - (k / parts.length) * 2 * Math.PI;
    g.strokeStyle = ink.ground;
    g.lineWidth = 1;
    g.beginPath();
    g.moveTo(x, y);
    g.lineTo(x + r * Math.cos(a), y + r * Math.sin(a));
    g.stroke();
  }
  if (level === "dots" && blocked) {
    g.strokeStyle = ink.wait;
    g.lineWidth = 1.5;
    g.setLineDash([2, 1.5]);
    disc(g, x, y, ring, false);
    g.setLineDash([]);
  }
  if (worker.doing === "lost") {
    g.strokeStyle = ink.fault;
    g.lineWidth = 2.5;
    cross(g, x, y, r * 0.7);
  }
  if (off && level === "full") { // it was left behind: where it is, in words
    const words = `in iteration ${worker.iteration}`;
    g.font = `400 11px ${font}`;
    g.fillStyle = ink.ground;
    g.fillRect(x + ring + 3, y - 8, g.measureText(words).width + 6, 16);
    writeAt(g, font, words, x + ring + 6, y, ink["ink-2"]);
  }
  if (level !== "full" || !blocked) return;
  const words = `blocked ${duration(frame.t - worker.since)}`;
  g.font = `700 11px ${font}`;
  const wide = g.measureText(words).width, end = Math.min(x - ring, columnX(place, worker.iteration, frame.min)) - 6;
  if (end - wide < place.left) return;
  g.fillStyle = ink.panel;
  g.fillRect(end - wide - 3, y - 8, wide + 6, 16);
  writeAt(g, font, words, end, y, ink.wait, "right", true);
}

/** @param {CanvasRenderingContext2D} g @param {number} x @param {number} y @param {number} r @param {boolean} filled */
function disc(g, x, y, r, filled) {
  g.beginPath();
  g.arc(x, y, Math.max(0.5, r), 0, 2 * Math.PI);
  if (filled) g.fill();
  else g.stroke();
}

/** @param {CanvasRenderingContext2D} g @param {number} x @param {number} y @param {number} r @param {number} share  of the circle, from the top */
function arcOf(g, x, y, r, share) {
  if (share <= 0) return;
  g.beginPath();
  g.arc(x, y, Math.max(0.5, r), -Math.PI / 2, -Math.PI / 2 + share * 2 * Math.PI);
  g.stroke();
}

/** The ways between workers and shards; of very many only those that are used now. @param {CanvasRenderingContext2D} g @param {Look} look @param {ServerSeen} seen */
function drawServerWays(g, { ink, choice }, { place, frame, comets, befell }) {
  const { workers, shards } = frame, all = workers.length * shards.length <= MOST_WAYS, used = new Set(comets.map((c) => (c.kind === "push" ? `${c.from}/${c.to}` : `${c.to}/${c.from}`)));
  g.lineWidth = 1;
  workers.forEach((worker, i) => shards.forEach((shard, s) => {
    const on = used.has(`${worker.rank}/${shard.rank}`), mine = choice?.rank === worker.rank || choice?.rank === shard.rank;
    if (!all && !on && !mine) return;
    g.strokeStyle = mine ? ink.focus : ink.rule;
    g.setLineDash(worker.doing === "lost" || befell.get(shard.rank)?.colour === "fault" ? [2, 3] : []);
    g.beginPath();
    for (let k = 0; k <= 14; k++) {
      const { x, y } = wayPoint(place, i, s, k / 14);
      if (k) g.lineTo(x, y);
      else g.moveTo(x, y);
    }
    g.stroke();
  }));
  g.setLineDash([]);
}

/** A push or a pull on its way: its tail is the way done. @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {ServerSeen} seen @param {ServerSeen["comets"][0]} comet */
function drawServerComet(g, ink, { place, frame }, { kind, from, to, share, x, y }) {
  const out = kind === "push", worker = frame.workers.findIndex((w) => w.rank === (out ? from : to)), shard = frame.shards.findIndex((s) => s.rank === (out ? to : from));
  const colour = out ? ink.comm : ink["age-0"], r = place.level === "full" ? 7 : place.level === "line" ? 6 : 4;
  g.strokeStyle = colour;
  g.lineWidth = r / 2.4;
  g.globalAlpha = 0.4;
  g.beginPath();
  for (let k = 0; k <= 8; k++) {
    const f = Math.max(0, share - 0.3 + 0.3 * (k / 8)), p = wayPoint(place, worker, shard, out ? f : 1 - f);
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

/** The shards, each as high as its share of the keys; before each the pushes that wait there. @param {CanvasRenderingContext2D} g @param {Look} look @param {ServerSeen} seen */
function drawBins(g, { ink, font, choice }, { place, frame, befell }) {
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

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {string} font @param {Place["bins"][0]} bin @param {import("./server_frame.js").ShardNow} shard */
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

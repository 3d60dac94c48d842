// @ts-check
/**
 * A worker of the parameter server's picture: its name with what it lacks, and its mark on the
 * track.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./draw.js").ServerSeen} ServerSeen
 * @typedef {import("./frame.js").WorkerNow} WorkerNow
 * @typedef {import("../../drawing/pen.js").Pen} Pen
 */
import { hatched } from "../../drawing/hatch.js";
import { ageInk, ageStep } from "../../drawing/colors.js";
import { columnX, laneY, workerSpot } from "./place.js";
import { duration } from "../../engine/format.js";

const NOTCH = 5;
const MOST_NOTCHES = 8; // px; longer rows are cut, the number says it all

/**
 * Its name, the updates that it lacks as notches, what it holds.
 * @param {Pen} pen
 * @param {Look} look
 * @param {ServerSeen} seen
 * @param {WorkerNow} worker
 * @param {number} i
 */
export function drawName(pen, { choice }, { place, frame, incidents, rule }, worker, i) {
  const { ink } = pen;
  const y = laneY(place, i);
  const { level, lane, left, small } = place;
  const named = lane >= 12 && !small;
  const chosen = frame.shards.findIndex((s) => s.rank === choice?.rank);
  const behind = chosen < 0 ? worker.worst : worker.behind[chosen];
  const strong = frame.slowest.includes(worker.rank);
  const incident = incidents.get(worker.rank);
  const n = Math.min(MOST_NOTCHES, Math.ceil(behind / ageStep(frame.workers.length, rule)));
  let pitch = NOTCH;
  const notches = (
    /** @type {number} */ x,
    /** @type {number} */ at,
    /** @type {number} */ tall,
  ) => {
    for (let k = 0; k < n; k++) {
      pen.box(
        x + k * pitch,
        at - tall / 2,
        pitch - Math.min(1.5, pitch / 3),
        tall,
        ageInk(ink, k + 1),
      );
    }
    return x + n * pitch;
  };
  if (level === "dots") {
    if (named) pen.write(`worker ${worker.rank}`, 0, y, strong ? "ink" : "ink-2", "left", strong);
    else if (lane >= 12 || i % 2 === 0) pen.write(String(worker.rank), 0, y);
    notches(named ? 58 : 30, y, Math.max(4, lane - 6));
    return;
  }
  const full = level === "full" && lane > 50;
  const first = full ? y - 14 : level === "full" ? y - 8 : y - 6;
  const second = full ? y + 2 : level === "full" ? y + 8 : y + 7;
  const brief = small && (level === "line" || frame.workers.some((one) => one.rank > 9));
  const name = `${brief ? "w" : "worker"} ${worker.rank}`;
  pen.write(name, 0, first, "ink", "left", true, 12);
  const words =
    incident?.words ??
    (worker.held.every((v) => v < 0)
      ? small
        ? "none yet"
        : "no version yet"
      : behind
        ? `${behind} behind`
        : "newest");
  const colour = incident ? ink[incident.colour] : ink["ink-2"];
  const room = left - 6;
  const wide = pen.wide(words);
  pitch = Math.max(0, Math.min(NOTCH, (room - wide - 5) / Math.max(1, n))); // notches give way to the words
  pen.write(
    words,
    incident || !n || !pitch ? 0 : notches(0, second, level === "full" ? 9 : 7) + 4,
    second,
    colour,
    "left",
    !!incident,
  );
  if (full) pen.write(heldVersionWords(worker, chosen), 0, y + 17, "ink-3");
}

/** @param {WorkerNow} worker @param {number} chosen  the shard that is selected, or -1 */
export function heldVersionWords({ held, behind }, chosen) {
  const known = held.filter((v) => v >= 0);
  if (!known.length) return "";
  if (chosen >= 0)
    return held[chosen] >= 0 ? `v ${held[chosen]} of ${held[chosen] + behind[chosen]}` : "";
  const least = Math.min(...known);
  const most = Math.max(...known);
  if (held.length <= 2) return `v ${held.map((v) => (v < 0 ? "–" : v)).join(" | ")}`;
  return least === most ? `v ${least}` : `v ${least} to ${most}`;
}

/**
 * A worker where it stands: a sector a shard, tinted by the version held; around it the slack that
 * is left.
 * @param {Pen} pen
 * @param {Look} look
 * @param {ServerSeen} seen
 * @param {WorkerNow} worker
 * @param {number} i
 */
export function drawWorker(pen, { choice }, { place, frame, incidents, rule }, worker, i) {
  const { g, ink, ratio } = pen;
  const { x, y, off } = workerSpot(place, i, worker, frame.min);
  const { ring, level, lane, top } = place;
  const blocked = worker.doing === "blocked";
  const thick = level === "full" ? 4 : level === "line" ? 2.5 : 0;
  const chosen = frame.shards.findIndex((s) => s.rank === choice?.rank);
  const incident = incidents.get(worker.rank);
  if (blocked) {
    // hatched up to the wall: seen before it is read
    const wall = columnX(place, (worker.limit ?? worker.iteration) + 1, frame.min);
    const from = Math.max(place.left, Math.min(x, columnX(place, worker.iteration, frame.min)));
    g.fillStyle = hatched(ink.wait, ratio);
    g.globalAlpha = 0.55;
    g.fillRect(
      from,
      top + i * lane + 2,
      Math.max(0, wall - 2 - from),
      level === "full" ? lane - 18 : lane - 4,
    );
    g.globalAlpha = 1;
  }
  g.fillStyle = blocked || level === "full" ? ink.ground : "transparent";
  disc(pen, x, y, ring + (level === "full" ? 1 : 0), true);
  if (thick) {
    g.lineWidth = thick;
    g.strokeStyle = ink.track;
    g.setLineDash([]);
    disc(pen, x, y, ring - thick / 2, false);
    g.strokeStyle = blocked ? ink.wait : incident?.colour === "hold" ? ink.hold : ink.ink;
    g.setLineDash(blocked ? [3, 3] : []);
    const share = blocked || worker.limit === null ? 1 : worker.slack;
    if (worker.doing !== "lost" && (blocked || worker.limit !== null))
      arcOf(pen, x, y, ring - thick / 2, share);
    g.setLineDash([]);
  }
  const r = Math.max(2, ring - (level === "full" ? 6 : thick + (level === "line" ? 1 : 0)));
  const parts = chosen >= 0 ? [chosen] : worker.held.map((_, s) => s);
  parts.forEach((s, k) => {
    g.fillStyle =
      worker.held[s] < 0
        ? ink.track
        : ageInk(ink, worker.behind[s], ageStep(frame.workers.length, rule));
    g.beginPath();
    if (parts.length > 1) g.moveTo(x, y);
    g.arc(
      x,
      y,
      r,
      -Math.PI / 2 - ((k + 1) / parts.length) * 2 * Math.PI,
      -Math.PI / 2 - (k / parts.length) * 2 * Math.PI,
    );
    g.fill();
  });
  if (parts.length > 1 && level !== "dots")
    for (let k = 0; k < parts.length; k++) {
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
    disc(pen, x, y, ring, false);
    g.setLineDash([]);
  }
  if (worker.doing === "lost") pen.cross(x, y, r * 0.7);
  if (off && level === "full") {
    // it was left behind: where it is, in words
    const words = `in iteration ${worker.iteration + 1}`;
    const wide = pen.wide(words);
    if (x + ring + 9 + wide <= place.right) {
      pen.box(x + ring + 3, y - 8, wide + 6, 16, "ground");
      pen.write(words, x + ring + 6, y);
    }
  }
  if (level !== "full" || !blocked) return;
  const words = `blocked ${duration(frame.t - worker.since)}`;
  const wide = pen.wide(words, true);
  const end = Math.min(x - ring, columnX(place, worker.iteration, frame.min)) - 6;
  if (end - wide < place.left) return;
  pen.box(end - wide - 3, y - 8, wide + 6, 16, "panel");
  pen.write(words, end, y, "wait", "right", true);
}

/**
 * @param {Pen} pen
 * @param {number} x
 * @param {number} y
 * @param {number} r
 * @param {boolean} filled
 */
function disc(pen, x, y, r, filled) {
  const { g } = pen;
  g.beginPath();
  g.arc(x, y, Math.max(0.5, r), 0, 2 * Math.PI);
  if (filled) g.fill();
  else g.stroke();
}

/**
 * @param {Pen} pen
 * @param {number} x
 * @param {number} y
 * @param {number} r
 * @param {number} share  of the circle, from the top
 */
function arcOf(pen, x, y, r, share) {
  const { g } = pen;
  if (share <= 0) return;
  g.beginPath();
  g.arc(x, y, Math.max(0.5, r), -Math.PI / 2, -Math.PI / 2 + share * 2 * Math.PI);
  g.stroke();
}

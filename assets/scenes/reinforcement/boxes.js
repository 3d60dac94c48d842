// @ts-check
/**
 * The boxes of the picture of a run with actors: what a rank is, what it does, what it has; the
 * strip of what replay holds.
 *
 * @typedef {import("../../chrome/stage.js").Look} Look
 * @typedef {import("./draw.js").RlSeen} RlSeen
 * @typedef {import("./place.js").Spot} Spot
 * @typedef {import("./place.js").Box} Box
 * @typedef {import("./frame.js").RoleNow} RoleNow
 * @typedef {import("../../drawing/pen.js").Pen} Pen
 */
import { ageInk } from "../../drawing/colors.js";
import { counted, grouped } from "../../engine/format.js";
import { drawGame } from "./game.js";
import {
  actorLines,
  behindWords,
  learnerLines,
  replayLines,
  roomsOf,
  serverLines,
} from "./lines.js";
import { STRIP_WIDE } from "./place.js";

const BOX_PAD = 15; // px from a box's edge to its words
const BOX_LINE = 15; // px from line to line

/**
 * The longest of these words that there is room for; "" none.
 * @param {Pen} pen
 * @param {string[]} words  the longest first
 * @param {number} room
 * @param {boolean} [bold]
 */
export function longestOf(pen, words, room, bold = false) {
  const { g, font } = pen;
  g.font = `${bold ? 700 : 400} 11px ${font}`;
  return words.find((one) => g.measureText(one).width <= room) ?? "";
}

/**
 * The longest of these words beside which others have room; where none leaves it, the longest.
 * @param {Pen} pen
 * @param {string[]} words
 * @param {string | undefined} others
 * @param {number} room
 * @param {boolean} bold
 */
function besideOf(pen, words, others, room, bold) {
  const { g, font } = pen;
  g.font = `400 11px ${font}`;
  const taken = others ? g.measureText(others).width + 8 : 0;
  const whole = words.filter((one) => /[^\d]/.test(one)); // a number alone says too little
  return longestOf(pen, whole, room - taken, bold) || longestOf(pen, words, room, bold);
}

/**
 * The box itself: dashed where it waits, crossed where its rank is lost.
 * @param {Pen} pen
 * @param {Look} look
 * @param {Box} box
 * @param {RoleNow} now
 * @param {string} [tint]
 */
function drawBox(pen, { choice }, { x, y, w, h }, now, tint) {
  const { g, ink } = pen;
  const chosen = choice?.rank === now.rank;
  const lost = now.does === "lost";
  g.fillStyle = ink.panel;
  g.beginPath();
  g.roundRect(x, y, w, h, Math.min(4, h / 4));
  g.fill();
  if (tint) pen.box(x + 1, y + 1, STRIP_WIDE, h - 2, tint);
  g.strokeStyle = chosen
    ? ink.focus
    : lost
      ? ink.fault
      : now.does === "waits"
        ? ink.wait
        : now.does === "works"
          ? ink["ink-2"]
          : ink.edge;
  g.lineWidth = chosen ? 2 : now.does === "idle" || now.does === "ended" ? 0.75 : 1.5;
  g.setLineDash(lost ? [4, 3] : now.does === "waits" ? [3, 2.6] : []);
  g.beginPath();
  g.roundRect(x, y, w, h, Math.min(4, h / 4));
  g.stroke();
  g.setLineDash([]);
  if (!lost) return;
  pen.cross(x + w - 10, y + Math.min(h / 2, 12), Math.min(4, h / 3));
}

/** The ink of what it does. @param {Record<string, string>} ink @param {RoleNow} now */
const doesInk = (ink, { does }) =>
  does === "waits" ? ink.wait : does === "lost" ? ink.fault : ink["ink-2"];

/** How it is with the rank of a box. @param {RlSeen} seen @param {Spot} spot */
export function nowOfSpot({ frame }, { rank, role }) {
  const all = { actor: frame.actors, replay: frame.replays, learner: frame.learners };
  const list = role === "server" ? frame.servers : all[role === "bundle" ? "learner" : role];
  return /** @type {any} */ (list.find((one) => one.rank === rank));
}

/** @param {Pen} pen @param {Look} look @param {RlSeen} seen @param {Spot} spot */
export function drawRole(pen, look, seen, spot) {
  const { ink } = pen;
  const { frame } = seen;
  const now = nowOfSpot(seen, spot);
  const tinted = spot.role === "actor" || spot.role === "learner";
  const tint =
    spot.role === "server"
      ? ink["age-0"]
      : tinted && now.version >= 0
        ? ageInk(ink, now.behind, frame.step)
        : "";
  drawBox(pen, look, spot, now, spot.level === "dots" && !tint ? ink.track : tint);
  const lines =
    spot.role === "actor"
      ? actorLines(now)
      : spot.role === "learner"
        ? learnerLines(now)
        : spot.role === "server"
          ? serverLines(now)
          : replayLines(now);
  const strip = spot.role === "replay" && hasStrip(spot);
  const words = strip ? aboveStrip(spot) : spot;
  const wide = spot.role === "actor" ? drawGame(pen, spot, now.picture) : 0;
  drawLines(pen, { ...words, x: words.x + wide, w: words.w - wide }, now, lines);
  if (strip) drawReplay(pen, seen, spot, now);
}

/**
 * A box's words: its name, what it does, then what else there is room for; each line has something
 * on the left and something on the right.
 * @param {Pen} pen
 * @param {Box} box
 * @param {RoleNow} now
 * @param {[string[], string[]][]} lines  the longest words first
 */
function drawLines(pen, { x, y, w, h }, now, lines) {
  const { g, ink, font } = pen;
  const left = x + BOX_PAD;
  const right = x + w - (now.does === "lost" ? 20 : 7);
  if (h < 11) return;
  const many = Math.max(1, Math.min(lines.length, Math.floor((h - 2) / BOX_LINE)));
  const shown = many === 1 ? [inOneLine(lines)] : lines.slice(0, many);
  const top = y + (h - many * BOX_LINE) / 2 + BOX_LINE / 2;
  shown.forEach(([first, second], i) => {
    const at = top + i * BOX_LINE;
    const begin = besideOf(pen, first, second[0], right - left, i === 0);
    g.font = `${i === 0 ? 700 : 400} 11px ${font}`;
    const wide = begin ? g.measureText(begin).width + 8 : 0;
    const end = longestOf(pen, second, right - left - wide);
    const colour = i === 0 ? ink.ink : i === 1 ? doesInk(ink, now) : ink["ink-2"];
    pen.write(begin, left, at, colour, "left", i === 0);
    const doing = many === 1;
    pen.write(end, right, at, doing ? doesInk(ink, now) : "ink-2", "right");
  });
}

/**
 * A name and what its rank does, where there is room for no more.
 * @param {[string[], string[]][]} lines
 * @returns {[string[], string[]]}
 */
function inOneLine([[name], does]) {
  const words = does?.[0] ?? [];
  const more = does?.[1][0];
  return [name, more && words.length ? [`${words[0]} · ${more}`, ...words] : words];
}

/** Whether there is room for a strip of what replay holds. @param {Box} box */
export const hasStrip = ({ h }) => h >= 60;

/** The part of a box above its strip. @template {Box} B @param {B} box @returns {B} */
const aboveStrip = (box) => ({ ...box, h: box.h - 20 - stripHigh(box.h) });

/** How high the strip of a replay's box is. @param {number} h */
const stripHigh = (h) => Math.max(20, Math.min(48, h - 90));

/**
 * What replay holds, from the newest, on the left, to the oldest: tinted by the age of the policy
 * that played it, as high as it is likely to be drawn.
 * @param {Pen} pen
 * @param {RlSeen} seen
 * @param {Box} box
 * @param {import("./frame.js").ReplayNow} now
 */
function drawReplay(pen, { frame }, { x, y, w, h }, now) {
  const { ink } = pen;
  const left = x + BOX_PAD;
  const wide = w - BOX_PAD - 7;
  const base = y + h - 17;
  const high = stripHigh(h);
  pen.box(left, base, wide, 1.5, "track");
  const most = Math.max(1, ...now.columns.map(({ mass }) => mass || 0));
  const each = wide / Math.max(1, now.columns.length);
  now.columns.forEach(({ behind, mass }, i) => {
    const tall = Number.isNaN(mass) ? high / 2 : Math.max(1.5, (high * mass) / most);
    pen.box(left + each * i, base - tall, each - 1, tall, ageInk(ink, behind, frame.old));
  });
  const oldest = now.columns.at(-1)?.behind ?? NaN;
  if (!Number.isFinite(oldest)) return pen.write("nothing yet", left, base + 9, "ink-3");
  const ago = `${counted(oldest, "update")} ago`;
  const words = longestOf(pen, [`oldest: ${ago}`, ago, grouped(oldest)], wide - 30);
  pen.write("new", left, base + 9, "ink-3");
  pen.write(words, x + w - 7, base + 9, "ink-3", "right");
}

/** How wide a bundle's name may be. @param {number} w  of the bundle */
const nameWide = (w) => (w > 420 ? 110 : 92);

/** One of a bundle's rooms: 0 plays, 1 remembers, 2 learns. @param {Box} box @param {number} i */
export function bundleRoom({ x, y, w, h }, i) {
  const room = (w - nameWide(w)) / 3;
  return { x: x + nameWide(w) + i * room, y: y + 3, w: room - 4, h: h - 6 };
}

/**
 * A bundle: one place with three rooms. What is played stays in it.
 * @param {Pen} pen
 * @param {Look} look
 * @param {RlSeen} seen
 * @param {Spot} spot
 */
export function drawBundle(pen, look, seen, spot) {
  const { g, ink } = pen;
  const { frame } = seen;
  const { rank, x, y, w, h } = spot;
  const actor = frame.actors.find((one) => one.rank === rank);
  const replay = frame.replays.find((one) => one.rank === rank);
  const learner = frame.learners.find((one) => one.rank === rank);
  if (!actor || !replay || !learner) return;
  drawBox(pen, look, spot, learner, ageInk(ink, learner.behind, frame.step));
  drawLines(pen, { x, y, w: nameWide(w), h }, learner, [
    [[`bundle ${rank}`, String(rank)], []],
    [[actor.words === "plays" ? "plays" : learner.words], []],
    [behindWords(learner), []],
  ]);
  const { level } = spot;
  roomsOf(actor, replay, learner).forEach(({ name: title, works, lines }, i) => {
    const box = bundleRoom(spot, i);
    g.fillStyle = ink.ground;
    g.strokeStyle = works ? ink["ink-2"] : ink.rule;
    g.lineWidth = works ? 1.5 : 1;
    g.beginPath();
    g.roundRect(box.x, box.y, box.w, box.h, 3);
    g.fill();
    g.stroke();
    const inner = { x: box.x - BOX_PAD + 7, y: box.y, w: box.w + BOX_PAD - 7, h: box.h };
    const idle = { ...learner, does: /** @type {const} */ ("idle") };
    const strip = i === 1 && replay.columns.length > 0 && hasStrip(inner);
    const wide = i === 0 ? drawGame(pen, { ...inner, x: box.x - 5 }, actor.picture) : 0;
    const words = { ...(strip ? aboveStrip(inner) : inner), x: inner.x + wide, w: inner.w - wide };
    // where it is low there is a line for each room: what it has
    drawLines(pen, words, idle, level === "line" ? [lines[0]] : [[[title], []], ...lines]);
    if (strip) drawReplay(pen, seen, inner, replay);
  });
}

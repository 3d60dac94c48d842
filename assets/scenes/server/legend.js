// @ts-check
/**
 * The keys of the parameter server's picture: every mark that this run can show, drawn as the
 * picture draws it.
 *
 * @typedef {import("../../drawing/key_row.js").KeyItem} KeyItem
 * @typedef {import("./draw.js").ServerSeen} ServerSeen
 */
import { ageInk, ageStep, writeAt } from "../../drawing/colors.js";
import { cross } from "../../drawing/glyph.js";
import { hatched } from "../../drawing/hatch.js";

/**
 * @param {import("../../chrome/stage.js").Look} look
 * @param {ServerSeen} seen
 * @param {boolean} drops  some gradient was dropped
 * @returns {KeyItem[]}
 */
export function keysOf({ ink, font, ratio }, { frame, rule, place, befell }, drops) {
  const items = /** @type {KeyItem[]} */ ([]);
  const shards = frame.shards;
  const two = shards.length > 1;
  const put = (
    /** @type {string} */ name,
    /** @type {number} */ width,
    /** @type {string} */ words,
    /** @type {KeyItem["draw"]} */ draw,
  ) => items.push({ name: `${name} ${place.level}`, words, width, draw });
  const step = ageStep(frame.workers.length, rule);
  put(`ages ${step}`, 78, `updates that it lacks: 0 to ${7 * step} or more`, (g) => {
    for (let k = 0; k < 8; k++) ((g.fillStyle = ageInk(ink, k)), g.fillRect(k * 10, 3, 9, 10));
  });
  put(`disc ${shards.length}`, 16, two ? "worker: a sector a shard" : "worker", (g) => {
    shards.slice(0, 4).forEach((_, s, some) => {
      g.fillStyle = ageInk(ink, s % 2 ? 3 : 1);
      g.beginPath();
      g.moveTo(8, 8);
      g.arc(
        8,
        8,
        7,
        -Math.PI / 2 + (s / some.length) * 2 * Math.PI,
        -Math.PI / 2 + ((s + 1) / some.length) * 2 * Math.PI,
      );
      g.fill();
    });
  });
  if (place.level !== "dots" && rule.low !== null)
    put("slack", 16, "how much of the bound is left", (g) => {
      ring(g, ink.track, 0, 1, []);
      ring(g, ink.ink, 0, 0.6, []);
    });
  if (rule.low !== null)
    put("blocked", 34, "stopped at the wall", (g) => {
      g.fillStyle = hatched(ink.wait, ratio);
      g.fillRect(0, 1, 27, 14);
      g.fillStyle = ink.ground;
      g.beginPath();
      g.arc(14, 8, 7, 0, 7);
      g.fill();
      g.translate(6, 0);
      ring(g, ink.wait, 0, 1, [3, 2.4]);
      g.translate(-6, 0);
      g.fillStyle = ink.wait;
      g.fillRect(28, 0, 4.5, 16);
    });
  const box =
    (/** @type {string} */ fill, /** @type {string} */ line, /** @type {number[]} */ dash) =>
    (/** @type {CanvasRenderingContext2D} */ g) => {
      if (fill) return ((g.fillStyle = fill), g.fillRect(1, 3, 9, 9));
      g.strokeStyle = line;
      g.lineWidth = 1.5;
      g.setLineDash(dash);
      g.strokeRect(1.75, 3.75, 7.5, 7.5);
    };
  put("applied", 11, "push applied", box(ink.edge, "", []));
  put("flying", 11, "not applied yet", box("", ink.comm, []));
  if (drops) put("dropped", 11, "dropped", box("", ink.fault, [2.5, 2]));
  put("push", 16, `push: a ${frame.pushes}`, (g) => wedge(g, ink.comm, 1));
  put("pull", 16, "pull: parameters", (g) => wedge(g, ink["age-0"], -1));
  put("queue", 32, "applied now, waits at the shard: whose", (g) =>
    [1, 0].forEach((on, k) => {
      g.fillStyle = on ? ink.comm : ink.ground;
      g.strokeStyle = ink.comm;
      g.lineWidth = 1.5;
      g.beginPath();
      g.roundRect(1 + k * 17, 1, 13.5, 13.5, 2);
      g.fill();
      g.stroke();
      writeAt(
        g,
        font,
        String(frame.workers[k]?.rank ?? k + 1),
        7.75 + k * 17,
        8.25,
        on ? ink["on-s1"] : ink.ink,
        "center",
        true,
      );
    }),
  );
  if ([...befell.values()].some((b) => b.colour === "hold"))
    put("hold", 16, "frozen or slowed: made by us", (g) => ring(g, ink.hold, 0, 1, []));
  const strip = (/** @type {string} */ colour) => (/** @type {CanvasRenderingContext2D} */ g) => {
    g.fillStyle = hatched(colour, ratio);
    g.fillRect(2, 1, 7, 14);
    g.strokeStyle = colour;
    g.lineWidth = 1;
    g.strokeRect(2.5, 1.5, 6, 13);
  };
  if (shards.some((s) => s.copies.length))
    put("copy", 11, "copy of another shard's keys", strip(ink["ink-3"]));
  if (frame.moves.length || shards.some((s) => s.regained.length))
    put("regained", 11, "keys of a lost shard", strip(ink["age-0"]));
  if (frame.workers.some((w) => w.doing === "lost") || shards.some((s) => !Number.isNaN(s.gone)))
    put("lost", 16, "gone", (g) => {
      g.strokeStyle = ink.fault;
      g.lineWidth = 2.5;
      cross(g, 8, 8, 5);
    });
  return items;
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {string} colour
 * @param {number} from
 * @param {number} to
 * @param {number[]} dash
 */
function ring(g, colour, from, to, dash) {
  g.strokeStyle = colour;
  g.lineWidth = 3.2;
  g.setLineDash(dash);
  g.beginPath();
  g.arc(8, 8, 6, -Math.PI / 2 + from * 2 * Math.PI, -Math.PI / 2 + to * 2 * Math.PI);
  g.stroke();
  g.setLineDash([]);
}

/** @param {CanvasRenderingContext2D} g @param {string} colour @param {number} way */
function wedge(g, colour, way) {
  g.fillStyle = colour;
  g.beginPath();
  g.moveTo(8 - 7 * way, 2);
  g.lineTo(8 + 7 * way, 8);
  g.lineTo(8 - 7 * way, 14);
  g.closePath();
  g.fill();
}

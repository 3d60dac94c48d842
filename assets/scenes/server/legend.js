// @ts-check
/**
 * The keys of the parameter server's picture: every mark that this run can show, drawn as the
 * picture draws it.
 *
 * @typedef {import("../../drawing/key_row.js").KeyItem} KeyItem
 * @typedef {import("./draw.js").ServerSeen} ServerSeen
 */
import { keyItems } from "../../drawing/key_row.js";
import { ageInk, ageStep } from "../../drawing/colors.js";

/**
 * @param {import("../../chrome/stage.js").Look} look
 * @param {ServerSeen} seen
 * @param {boolean} drops  some gradient was dropped
 * @returns {KeyItem[]}
 */
export function keysOf({ ink }, { frame, rule, place, incidents }, drops) {
  const { items, put } = keyItems(place.level);
  const shards = frame.shards;
  const two = shards.length > 1;
  const step = ageStep(frame.workers.length, rule);
  put(`ages ${step}`, 78, `updates that it lacks: 0 to ${7 * step} or more`, (pen) => {
    for (let k = 0; k < 8; k++) pen.box(k * 10, 3, 9, 10, ageInk(ink, k));
  });
  put(`disc ${shards.length}`, 16, two ? "worker: a sector a shard" : "worker", ({ g }) => {
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
    put("slack", 16, "how much of the bound is left", ({ g }) => {
      ring(g, ink.track, 0, 1, []);
      ring(g, ink.ink, 0, 0.6, []);
    });
  if (rule.low !== null)
    put("blocked", 34, "stopped at the wall", (pen) => {
      pen.hatch(0, 1, 27, 14, "wait");
      pen.g.fillStyle = ink.ground;
      pen.g.beginPath();
      pen.g.arc(14, 8, 7, 0, 7);
      pen.g.fill();
      pen.g.translate(6, 0);
      ring(pen.g, ink.wait, 0, 1, [3, 2.4]);
      pen.g.translate(-6, 0);
      pen.box(28, 0, 4.5, 16, "wait");
    });
  const box =
    (/** @type {string} */ fill, /** @type {string} */ line, /** @type {number[]} */ dash) =>
    (/** @type {import("../../drawing/pen.js").Pen} */ pen) => {
      if (fill) return pen.box(1, 3, 9, 9, fill);
      pen.outline(1.75, 3.75, 7.5, 7.5, line, 1.5, dash);
    };
  put("applied", 11, "push applied", box(ink.edge, "", []));
  put("flying", 11, "not applied yet", box("", ink.comm, []));
  if (drops) put("dropped", 11, "dropped", box("", ink.fault, [2.5, 2]));
  put("push", 16, `push: a ${frame.pushes}`, ({ g }) => wedge(g, ink.comm, 1));
  put("pull", 16, "pull: parameters", ({ g }) => wedge(g, ink["age-0"], -1));
  put("queue", 32, "applied now, waits at the shard: whose", (pen) =>
    [1, 0].forEach((on, k) => {
      pen.g.fillStyle = on ? ink.comm : ink.ground;
      pen.g.strokeStyle = ink.comm;
      pen.g.lineWidth = 1.5;
      pen.g.beginPath();
      pen.g.roundRect(1 + k * 17, 1, 13.5, 13.5, 2);
      pen.g.fill();
      pen.g.stroke();
      pen.write(
        String(frame.workers[k]?.rank ?? k + 1),
        7.75 + k * 17,
        8.25,
        on ? "on-s1" : "ink",
        "center",
        true,
      );
    }),
  );
  if ([...incidents.values()].some((b) => b.colour === "hold"))
    put("hold", 16, "frozen or slowed: made by us", ({ g }) => ring(g, ink.hold, 0, 1, []));
  const strip =
    (/** @type {string} */ colour) => (/** @type {import("../../drawing/pen.js").Pen} */ pen) => {
      pen.hatch(2, 1, 7, 14, colour);
      pen.outline(2.5, 1.5, 6, 13, colour);
    };
  if (shards.some((s) => s.copies.length))
    put("copy", 11, "copy of another shard's keys", strip(ink["ink-3"]));
  if (frame.moves.length || shards.some((s) => s.regained.length))
    put("regained", 11, "keys of a lost shard", strip(ink["age-0"]));
  if (frame.workers.some((w) => w.doing === "lost") || shards.some((s) => !Number.isNaN(s.gone)))
    put("lost", 16, "gone", (pen) => pen.cross(8, 8, 5));
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

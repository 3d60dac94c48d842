// @ts-check
/**
 * The keys of the picture of a run with actors: every mark that this run can show, drawn as the
 * picture draws it.
 *
 * @typedef {import("../../drawing/key_row.js").KeyItem} KeyItem
 * @typedef {import("./draw.js").RlSeen} RlSeen
 */
import { keyItems } from "../../drawing/key_row.js";
import { ageInk } from "../../drawing/colors.js";
import { grouped } from "../../engine/format.js";
import { bundleRoom, hasStrip } from "./boxes.js";
import { gameScale } from "./game.js";
import { drawMessage } from "./draw.js";
import { TINTS } from "./frame.js";

/**
 * @param {import("../../chrome/stage.js").Look} look
 * @param {RlSeen} seen
 * @returns {KeyItem[]}
 */
export function keysOf({ ink }, { frame, roles, place }) {
  const { items, put } = keyItems();
  const tints = (/** @type {import("../../drawing/pen.js").Pen} */ pen) => {
    for (let k = 0; k < 8; k++) pen.box(k * 7, 3, 6, 10, ageInk(ink, k));
  };
  const { step, old } = frame;
  put(
    `ages ${step}`,
    56,
    `updates that parameters lack: 0 to ${grouped(TINTS * step)} or more`,
    tints,
  );
  const strips = frame.replays.some(({ rank, columns }) => {
    const spot = place.of.get(rank);
    if (!spot) return false;
    return spot.role === "replay"
      ? hasStrip(spot)
      : columns.length && hasStrip(bundleRoom(spot, 1));
  });
  if (!frame.bundles || strips)
    put(
      `old ${old}`,
      56,
      `in replay, updates since it was played: 0 to ${grouped(TINTS * old)}`,
      tints,
    );
  const message = (/** @type {string} */ kind, /** @type {string} */ words, turn = 0) =>
    put(kind, 16, words, (pen) => drawMessage(pen, { x: 8, y: 8, turn }, kind, step, frame));
  if (!frame.bundles) {
    message("experience", "experience, tinted so");
    message("minibatch", "minibatch");
    if (roles.options.replay !== "uniform") message("priorities", "priorities");
  }
  if (strips && roles.options.replay !== "uniform")
    put("mass", 18, "higher: drawn more often", (pen) => {
      pen.box(1, 9, 7, 5, ageInk(ink, 3));
      pen.g.fillRect(9, 2, 7, 12);
    });
  if (roles.servers.length) message("gradients", "gradients");
  message("parameters", "parameters", Math.PI);
  message("request", "a request, an answer");
  if (frame.actors.some((one) => showsGame(place, one)))
    put("game", 12, "the game, recorded once per second", (pen) => {
      pen.box(1, 1, 10, 14, "track");
      pen.box(5, 4, 3, 3, "ink");
      pen.g.fillRect(3, 12, 3, 3);
    });
  put("works", 20, "computes", ({ g }) => keyBox(g, ink, ink["ink-2"], []));
  put("waits", 20, "waits", ({ g }) => keyBox(g, ink, ink.wait, [3, 2.6]));
  if ([...frame.actors, ...frame.learners, ...frame.replays].some((one) => one.does === "lost"))
    put("lost", 16, "lost", (pen) => pen.cross(8, 8, 5));
  return items;
}

/**
 * Whether an actor's game is drawn: in its box, or in its bundle's first room.
 * @param {RlSeen["place"]} place
 * @param {import("./frame.js").ActorNow} actor
 */
function showsGame(place, { rank, picture }) {
  const spot = place.of.get(rank);
  if (!spot) return false;
  return gameScale(spot.role === "bundle" ? bundleRoom(spot, 0) : spot, picture) > 0;
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} colour
 * @param {number[]} dash
 */
function keyBox(g, ink, colour, dash) {
  g.fillStyle = ink.panel;
  g.strokeStyle = colour;
  g.lineWidth = 1.5;
  g.setLineDash(dash);
  g.beginPath();
  g.roundRect(1, 2, 18, 12, 3);
  g.fill();
  g.stroke();
  g.setLineDash([]);
}

// @ts-check
/**
 * The way of one chunk through a call: from rank to rank, and when. Pointed at or chosen in one
 * picture, it is lit up in all of them.
 *
 * @typedef {import("../engine/model.js").Call} Call
 * @typedef {import("../engine/model.js").Flight} Flight
 * @typedef {import("../engine/page_state.js").Choice} Choice
 * @typedef {import("../engine/page_state.js").Look} Look
 */
import { barsOf, spanOf } from "./lanes.js";
import { duration } from "../engine/format.js";

const MOST_HOPS = 6; // hops in words

/**
 * Return the flights of the chosen chunk in their order; none, where another call's is chosen.
 * @param {Call | null} call
 * @param {Choice | null} choice
 * @returns {Flight[]}
 */
export function chunkWay(call, choice) {
  if (!call || choice?.chunk === undefined) return [];
  if (choice.op !== undefined && choice.op !== call.op) return [];
  if (choice.group !== undefined && choice.group !== call.group) return [];
  return call.flights
    .filter(({ chunk }) => chunk === choice.chunk)
    .sort((a, b) => a.end - b.end || a.step - b.step);
}

/** "its way: rank 1 at 1.2 ms, rank 2 at 3.4 ms" @param {Flight[]} way @returns {string[]} */
export function wayWords(way) {
  if (way.length < 2) return [];
  const some = way.slice(0, MOST_HOPS).map(({ to, end }) => `rank ${to} at ${duration(end)}`);
  const more = way.length > MOST_HOPS ? `, and ${way.length - MOST_HOPS} hops more` : "";
  return [`its way: ${some.join(", ")}${more}`];
}

/**
 * On the picture of the ranks: the links that it took in full, those still to come pale.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {{x: number, y: number}[]} nodes
 * @param {Flight[]} way
 * @param {number} t  ns from the call's start
 */
export function drawWayOnLinks(g, ink, nodes, way, t) {
  g.strokeStyle = ink.focus;
  g.lineWidth = 3;
  g.lineCap = "round";
  for (const { from, to, start } of way) {
    const [a, b] = [nodes[from], nodes[to]];
    if (!a || !b) continue;
    g.globalAlpha = start <= t ? 0.9 : 0.3;
    g.beginPath();
    g.moveTo(a.x, a.y);
    g.lineTo(b.x, b.y);
    g.stroke();
  }
  g.globalAlpha = 1;
  g.lineCap = "butt";
}

/**
 * In the score above the line of time: its sends and receives framed, a line from each to the next.
 * @param {CanvasRenderingContext2D} g
 * @param {Look} look
 */
export function drawWayInScore(g, look) {
  const { call } = look;
  const way = chunkWay(call, look.choice);
  if (!call || !way.length) return;
  const span = spanOf(look, call);
  const { ink, width, ranks, first } = look;
  const chunk = look.choice?.chunk;
  const rows = call.rows.filter((r) => r.chunk === chunk && r.kind !== "wait");
  g.strokeStyle = ink.focus;
  g.lineWidth = 1.5;
  for (const { x, y, w, h } of barsOf({ ...call, rows }, width, ranks, span, first))
    g.strokeRect(x - 1, y - 1, w + 2, h + 2);
  const isOf = (/** @type {Flight} */ f, /** @type {import("../engine/model.js").Row} */ r) =>
    r.step === f.step && r.rank === (r.kind === "send" ? f.from : f.to);
  g.lineWidth = 1;
  for (const flight of way) {
    const ends = barsOf(
      { ...call, rows: rows.filter((r) => isOf(flight, r)) },
      width,
      ranks,
      span,
      first,
    );
    const send = ends.find((bar) => bar.kind === "send");
    const received = ends.find((bar) => bar.kind === "recv");
    if (!send || !received) continue;
    g.beginPath();
    g.moveTo(send.x, send.y + send.h / 2);
    g.lineTo(received.x + received.w, received.y + received.h / 2);
    g.stroke();
  }
}

/**
 * The chunk of the bar at a place of the score, as a choice; null: none lies there.
 * @param {Look} look
 * @param {number} x
 * @param {number} y
 * @returns {Choice | null}
 */
export function chunkInScore(look, x, y) {
  const { call, width, ranks, first } = look;
  if (!call) return null;
  const rows = call.rows.filter((r) => r.chunk >= 0 && (r.kind === "send" || r.kind === "recv"));
  const at = barsOf({ ...call, rows }, width, ranks, spanOf(look, call), first).findIndex(
    (bar) => x >= bar.x - 2 && x <= bar.x + bar.w + 2 && y >= bar.y - 1 && y <= bar.y + bar.h + 1,
  );
  return at < 0
    ? null
    : { group: call.group, op: call.op, chunk: rows[at].chunk, iteration: call.iteration };
}

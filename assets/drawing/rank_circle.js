// @ts-check
/**
 * The ranks in small: a mark for what each does, in a list and on a circle with the links between
 * them. Geometry, then drawing.
 * @typedef {import("../engine/rank_activity.js").Doing} Doing
 * @typedef {import("../engine/rank_activity.js").DoingMark} DoingMark
 */

/**
 * The marks, as paths in a box of 18 by 18; never colour alone.
 * @type {Record<DoingMark, {d: string, fill?: boolean, dash?: string, thin?: boolean,
 *   words: string}>}
 */
export const MARKS = {
  compute: { d: "M9 2.5a6.5 6.5 0 1 0 .01 0z", fill: true, words: "computes" },
  move: { d: "M9 1.5L16.5 9L9 16.5L1.5 9z", words: "passes chunks on" },
  wait: { d: "M9 2.5a6.5 6.5 0 1 0 .01 0z", dash: "3 2.2", words: "waits" },
  serve: { d: "M5.2 2.5h7.6l3.8 6.5l-3.8 6.5h-7.6l-3.8 -6.5z", words: "serves examples" },
  held: { d: "M3 3h12v12H3z", fill: true, words: "held" },
  frozen: { d: "M3 3h12v12H3z", dash: "3 2", words: "frozen" },
  ended: { d: "M3 9l4 5 8-10", words: "ended" },
  killed: { d: "M3 3l12 12M15 3L3 15", words: "lost" },
  stopped: { d: "M9 2.5a6.5 6.5 0 1 0 .01 0z", words: "stopped" },
  away: {
    d: "M9 2.5a6.5 6.5 0 1 0 .01 0zM4.5 13.5l9-9",
    thin: true,
    dash: "2 2",
    words: "cut off",
  },
  none: { d: "M9 2.5a6.5 6.5 0 1 0 .01 0z", thin: true, words: "not yet" },
};
/** @type {Record<DoingMark, string>} */
const MARK_INKS = {
  compute: "backward",
  move: "comm",
  wait: "wait",
  serve: "ink-2",
  held: "hold",
  frozen: "hold",
  ended: "done",
  killed: "fault",
  stopped: "load",
  away: "edge",
  none: "edge",
};

/**
 * The form in which a rank is drawn: a server's disc is a hexagon.
 * @param {DoingMark} mark
 * @param {boolean} server
 * @returns {DoingMark}
 */
const formOf = (mark, server) =>
  server && ["compute", "wait", "none", "stopped"].includes(mark) ? "serve" : mark;

/**
 * @param {DoingMark} mark
 * @param {boolean} [halo]
 * @param {boolean} [server]
 */
export function markIcon(mark, halo = false, server = false) {
  const { fill, dash, thin } = MARKS[mark];
  const { d } = MARKS[formOf(mark, server)];
  const colour = `var(--${MARK_INKS[mark]})`;
  const holder = document.createElement("i");
  const shape =
    `d="${halo ? "M9 5a4 4 0 1 0 .01 0z" : d}" fill="${fill ? colour : "none"}" ` +
    `stroke="${fill ? "none" : colour}" stroke-width="${thin ? 1.25 : 2.5}" ` +
    `stroke-dasharray="${dash ?? "none"}"`;
  const round = halo
    ? `<path d="M9 1.5a7.5 7.5 0 1 0 .01 0z" fill="none" stroke="var(--wait)" ` +
      `stroke-width="2" stroke-dasharray="3 2.2"/>`
    : "";
  // nothing of a user's in it
  holder.innerHTML = `<svg class="wb-mark" width="18" height="18" viewBox="0 0 18 18" aria-hidden="true"><path ${shape}/>${round}</svg>`;
  return /** @type {Element} */ (holder.firstElementChild);
}

const MOST_ON_CIRCLE = 128; // more ranks are rows of small squares, without their links

/**
 * The ranks on a circle; many of them in rows.
 * @param {number} ranks
 * @param {number} size
 * @returns {{nodes: {x: number, y: number}[], node: number, numbered: boolean, inRows: boolean}}
 */
export function circleOf(ranks, size) {
  if (ranks > MOST_ON_CIRCLE) {
    const across = Math.ceil(Math.sqrt(ranks));
    const apart = size / across;
    const nodes = Array.from({ length: ranks }, (_, r) => ({
      x: ((r % across) + 0.5) * apart,
      y: (Math.floor(r / across) + 0.5) * apart,
    }));
    return { nodes, node: Math.max(1, apart / 2 - 0.5), numbered: false, inRows: true };
  }
  const node = ranks <= 4 ? 13 : ranks <= 8 ? 12 : ranks <= 16 ? 9 : ranks <= 32 ? 5 : 2.6;
  const numbered = ranks <= 16;
  const radius = ranks === 1 ? 0 : size / 2 - node - 6;
  const nodes = Array.from({ length: ranks }, (_, r) => {
    const angle = (2 * Math.PI * r) / ranks;
    return { x: size / 2 + radius * Math.sin(angle), y: size / 2 - radius * Math.cos(angle) };
  });
  return { nodes, node, numbered, inRows: false };
}

/**
 * What lies under a place of the circle: a rank, a link, or nothing.
 * @param {ReturnType<typeof circleOf>} circle
 * @param {Set<string>} links "from>to"
 * @param {number} x
 * @param {number} y
 * @returns {{rank: number} | {from: number, to: number} | null}
 */
export function underCircle({ nodes, node }, links, x, y) {
  const far = nodes.map((n) => Math.hypot(n.x - x, n.y - y));
  const nearest = Math.min(...far);
  if (nearest <= Math.max(node, 6) + 2) return { rank: far.indexOf(nearest) };
  let best = 7;
  let hit = null;
  for (const link of links) {
    const [from, to] = link.split(">").map(Number);
    const a = nodes[from];
    const b = nodes[to];
    if (!a || !b) continue;
    const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const along = ((x - a.x) * (b.x - a.x) + (y - a.y) * (b.y - a.y)) / length;
    const across = Math.abs((x - a.x) * (b.y - a.y) - (y - a.y) * (b.x - a.x)) / length;
    if (along > 0 && along < length && across < best) ((best = across), (hit = { from, to }));
  }
  return hit;
}

/**
 * Return the links that are drawn: those of the run, and what was changed of others by hand. Where
 * the whole network is emulated, links that nobody uses tell nothing.
 * @param {number} ranks
 * @param {Set<string>} links
 * @param {{from: number, to: number}[]} emulated
 * @returns {Set<string>}
 */
export function shownLinks(ranks, links, emulated) {
  const whole = links.size > 0 && emulated.length >= ranks * (ranks - 1);
  return new Set([...links, ...(whole ? [] : emulated.map((l) => `${l.from}>${l.to}`))]);
}

/**
 * The shape of a node.
 * @param {CanvasRenderingContext2D} g
 * @param {DoingMark} mark
 * @param {number} x
 * @param {number} y
 * @param {number} r
 */
function nodeShape(g, mark, x, y, r) {
  g.beginPath();
  if (mark === "held" || mark === "frozen") g.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8);
  else if (mark === "move") {
    for (const [dx, dy] of [
      [0, -1],
      [1, 0],
      [0, 1],
      [-1, 0],
    ])
      g.lineTo(x + dx * r * 1.2, y + dy * r * 1.2);
    g.closePath();
  } else if (mark === "serve") {
    for (const [dx, dy] of [
      [-0.55, -0.95],
      [0.55, -0.95],
      [1.1, 0],
      [0.55, 0.95],
      [-0.55, 0.95],
      [-1.1, 0],
    ])
      g.lineTo(x + dx * r, y + dy * r);
    g.closePath();
  } else g.arc(x, y, r, 0, 7);
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {string} font
 * @param {ReturnType<typeof circleOf>} circle
 * @param {Doing[]} doings
 * @param {Set<string>} links
 * @param {{from: number, to: number, down: boolean}[]} emulated
 * @param {number | undefined} chosen
 * @param {number} [servers]  the first ranks, which hold the parameters
 */
export function drawCircle(g, ink, font, circle, doings, links, emulated, chosen, servers = 0) {
  const { nodes, node, numbered } = circle;
  if (circle.inRows) return drawInRows(g, ink, circle, doings, chosen);
  const gone = (/** @type {number} */ r) => doings[r]?.mark === "killed";
  for (const link of shownLinks(nodes.length, links, emulated)) {
    const [from, to] = link.split(">").map(Number);
    const a = nodes[from];
    const b = nodes[to];
    if (!a || !b) continue;
    const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const ux = (b.x - a.x) / length;
    const uy = (b.y - a.y) / length;
    const gap = node + 3;
    const slowed = emulated.find((l) => l.from === from && l.to === to);
    const cut = gone(from) || gone(to);
    const away = doings[from]?.mark === "away" || doings[to]?.mark === "away";
    const many = links.size > 2 * nodes.length;
    g.strokeStyle = slowed ? ink.hold : ink.edge;
    g.lineWidth = cut ? 1 : slowed ? 2.5 : many ? 0.75 : nodes.length > 8 ? 1.5 : 3;
    g.setLineDash(cut || away ? [2, 3] : slowed ? [5, 3] : []);
    g.beginPath();
    g.moveTo(a.x + ux * gap, a.y + uy * gap);
    g.lineTo(b.x - ux * gap, b.y - uy * gap);
    g.stroke();
    g.setLineDash([]);
    if (slowed?.down) drawCross(g, ink.fault, (a.x + b.x) / 2, (a.y + b.y) / 2, 4);
  }
  g.textAlign = "center";
  g.textBaseline = "middle";
  g.font = `700 ${node > 11 ? 13 : 11}px ${font}`;
  doings.forEach(({ mark, halo, rank }) => {
    const { x, y } = nodes[rank];
    const colour = ink[MARK_INKS[mark]];
    const solid = mark === "compute" || mark === "held" || mark === "ended";
    nodeShape(g, formOf(mark, rank < servers), x, y, node);
    g.fillStyle = solid ? colour : ink.ground;
    g.fill();
    g.strokeStyle = colour;
    const faint = mark === "none" || mark === "away";
    g.lineWidth = faint ? 1.25 : numbered ? 2.5 : 1.5;
    const dashed = mark === "wait" || mark === "frozen" || mark === "away";
    g.setLineDash(dashed ? (numbered ? [3, 2.6] : [1.5, 1.5]) : []);
    if (!solid) g.stroke();
    g.setLineDash(numbered ? [3, 2.6] : [1.5, 1.5]);
    if (halo) drawRound(g, ink.wait, x, y, node + 3.5, 2);
    g.setLineDash([]);
    if (rank === chosen) drawRound(g, ink.focus, x, y, node + (halo ? 6.5 : 4), 2);
    if (mark === "killed" && numbered) return drawCross(g, colour, x, y, node * 0.4);
    g.fillStyle = solid ? ink.ground : mark === "away" ? ink["ink-3"] : ink.ink;
    if (numbered) g.fillText(String(rank), x, y + 0.5);
  });
}

/**
 * Many ranks: filled while they compute or move chunks, open while they wait, a dot for nothing.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {ReturnType<typeof circleOf>} circle
 * @param {Doing[]} doings
 * @param {number | undefined} chosen
 */
function drawInRows(g, ink, { nodes, node }, doings, chosen) {
  for (const { mark, rank } of doings) {
    const { x, y } = nodes[rank];
    const r = mark === "none" ? node / 3 : node;
    g.fillStyle = g.strokeStyle = ink[MARK_INKS[mark]];
    g.lineWidth = 1;
    if (MARKS[mark].dash) g.strokeRect(x - r + 0.5, y - r + 0.5, 2 * r - 1, 2 * r - 1);
    else g.fillRect(x - r, y - r, 2 * r, 2 * r);
    if (rank === chosen) drawRound(g, ink.focus, x, y, node + 3, 2);
  }
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {string} colour
 * @param {number} x
 * @param {number} y
 * @param {number} r
 * @param {number} width
 */
function drawRound(g, colour, x, y, r, width) {
  g.strokeStyle = colour;
  g.lineWidth = width;
  g.beginPath();
  g.arc(x, y, r, 0, 7);
  g.stroke();
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {string} colour
 * @param {number} x
 * @param {number} y
 * @param {number} r
 */
function drawCross(g, colour, x, y, r) {
  g.strokeStyle = colour;
  g.lineWidth = 2.5;
  g.beginPath();
  for (const way of [1, -1]) (g.moveTo(x - r, y - r * way), g.lineTo(x + r, y + r * way));
  g.stroke();
}

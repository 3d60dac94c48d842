// @ts-check
/**
 * The one glyph of both pictures: what a chunk is made of. Slot j, from the left, is the part of
 * the group's j-th rank: the place says who, colour repeats it. Complete is solid with a tick. A
 * part that is in twice, or missing at the end, is red with a cross: filled if doubled, an open
 * dashed box if lacking.
 *
 * @typedef {{shares: ArrayLike<number>, whole: boolean, doubled: number[], lacking: number[],
 *   open?: boolean, single?: boolean}} Fill
 *   shares: of each contributor, 0 to 1 of the chunk's pieces; doubled, lacking: places of
 *   contributors; open: nothing must be here at the end; single: it is one rank's part, handed on
 *   as it is
 */

/** The most contributors that have a slot each; beyond, a cell is one bar. */
export const SLOTTED = 8;

/**
 * The colours of a group's ranks: identity colours while there are few.
 * @param {Record<string, string>} ink
 * @param {number[]} ranks
 * @param {number} places  of the whole picture
 */
export const huesOf = (ink, ranks, places) =>
  ranks.map((rank, i) =>
    ranks.length > SLOTTED ? ink.edge : ink[`s${places > SLOTTED ? i : rank}`],
  );
/**
 * The ink that may be written on them.
 * @param {Record<string, string>} ink
 * @param {number[]} ranks
 * @param {number} places
 */
export const onHues = (ink, ranks, places) =>
  ranks.map((rank, i) =>
    ranks.length > SLOTTED ? ink.ground : ink[`on-s${places > SLOTTED ? i : rank}`],
  );

/**
 * Where slot j of n lies within a cell.
 * @param {number} x
 * @param {number} w
 * @param {number} j
 * @param {number} n
 * @returns {[number, number]} its left edge and its width
 */
export const slotAt = (x, w, j, n) => {
  const each = (w - 2) / n;
  const gap = each > 6 ? 1 : each > 3 ? 0.75 : 0.4;
  return [x + 1 + j * each, each - gap];
};

/**
 * What a send carried, as a glyph.
 * @param {ArrayLike<number>} counts  of each contributor
 * @returns {Fill}
 */
export function fillOf(counts) {
  const list = Array.from(counts);
  return {
    shares: list.map((c) => Math.min(1, c)),
    whole: list.every((c) => c === 1),
    doubled: list.flatMap((c, i) => (c > 1 ? [i] : [])),
    lacking: [],
  };
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {number} x
 * @param {number} y  its middle
 * @param {number} size  half of its width
 */
function tick(g, x, y, size) {
  g.beginPath();
  g.moveTo(x - size, y);
  g.lineTo(x - size * 0.25, y + size * 0.85);
  g.lineTo(x + size, y - size * 0.85);
  g.stroke();
}

/** @param {CanvasRenderingContext2D} g @param {number} x @param {number} y @param {number} r */
export function cross(g, x, y, r) {
  g.beginPath();
  g.moveTo(x - r, y - r);
  g.lineTo(x + r, y + r);
  g.moveTo(x + r, y - r);
  g.lineTo(x - r, y + r);
  g.stroke();
}

/**
 * A cross on a disc, at the edge of what has ended.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {number} x
 * @param {number} y
 * @param {number} r
 */
export function crossAt(g, ink, x, y, r) {
  g.fillStyle = ink.fault;
  g.beginPath();
  g.arc(x, y, r + 2, 0, 7);
  g.fill();
  g.strokeStyle = ink.ground;
  g.lineWidth = 1.75;
  cross(g, x, y, r * 0.6);
}

/**
 * @param {CanvasRenderingContext2D} g  scaled to CSS pixels
 * @param {Record<string, string>} ink
 * @param {string[]} hues
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {Fill} fill
 */
export function drawGlyph(g, ink, hues, x, y, w, h, fill) {
  const n = hues.length;
  const wrong = fill.doubled.length + fill.lacking.length > 0;
  if (fill.open && !fill.whole) outline(g, ink, x, y, w, h);
  else {
    g.fillStyle = fill.whole ? ink.done : ink.track;
    g.beginPath();
    g.roundRect(x, y, w, h, Math.min(2, w / 4));
    g.fill();
  }
  if (fill.whole) {
    if (w < 8 || h < 7) return;
    g.strokeStyle = ink.ground;
    g.lineWidth = h > 12 ? 2 : 1.5;
    return tick(g, x + w / 2, y + h / 2, Math.min(4.5, h * 0.3, w * 0.3));
  }
  if (n > SLOTTED) drawShare(g, hues[0], x, y, w, h, fill.shares, fill.single ? 1 : n);
  else
    for (let j = 0; j < n; j++) {
      const share = fill.shares[j];
      const bad = wrong && fill.doubled.includes(j);
      const [left, wide] = slotAt(x, w, j, n);
      if (!share) continue;
      g.fillStyle = bad ? ink.fault : hues[j];
      g.fillRect(left, y + 1 + (h - 2) * (1 - share), wide, (h - 2) * share);
    }
  if (wrong) drawWrong(g, ink, n, x, y, w, h, fill);
}

/**
 * The place of a cell in which nothing must be at the end.
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 */
function outline(g, ink, x, y, w, h) {
  g.strokeStyle = ink.rule;
  g.lineWidth = 1;
  g.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
}

/**
 * One bar: the share of all `n` contributions that are in.
 * @param {CanvasRenderingContext2D} g
 * @param {string} colour
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {ArrayLike<number>} shares
 * @param {number} n
 */
function drawShare(g, colour, x, y, w, h, shares, n) {
  let sum = 0;
  for (let j = 0; j < shares.length; j++) sum += shares[j];
  g.fillStyle = colour;
  g.fillRect(x + 1, y + 1, ((w - 2) * sum) / n, h - 2);
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {Record<string, string>} ink
 * @param {number} n
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {Fill} fill
 */
function drawWrong(g, ink, n, x, y, w, h, fill) {
  g.strokeStyle = ink.fault;
  if (n <= SLOTTED) {
    for (const j of fill.lacking) {
      const [left, wide] = slotAt(x, w, j, n);
      g.lineWidth = 1;
      g.setLineDash([2, 2]);
      g.strokeRect(left + 0.5, y + 1.5, Math.max(1, wide - 1), h - 3);
      g.setLineDash([]);
    }
    for (const j of [...fill.doubled, ...fill.lacking]) {
      const [left, wide] = slotAt(x, w, j, n);
      const r = Math.min(5, wide / 2 - 0.5, h / 2 - 2);
      if (r < 1.5) continue;
      g.strokeStyle = fill.lacking.includes(j) ? ink.fault : ink.ground;
      g.lineWidth = r > 3 ? 2 : 1.25;
      cross(g, left + wide / 2, y + h / 2, r);
    }
  }
  g.strokeStyle = ink.fault;
  g.lineWidth = 2;
  g.strokeRect(x, y, w, h);
  const r = Math.min(5, w / 3, h / 3);
  if (n <= SLOTTED && (w < 26 || w / n > 9)) return;
  g.fillStyle = ink.fault; // a cross at the corner: seen also where a slot is too narrow for one
  g.beginPath();
  g.arc(x + w - r, y + r, r, 0, 7);
  g.fill();
  g.strokeStyle = ink.ground;
  g.lineWidth = 1.25;
  cross(g, x + w - r, y + r, r * 0.45);
}

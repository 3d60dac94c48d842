// @ts-check
/**
 * A part of a page as pieces that a canvas or an SVG file can take: its texts line by line, its boxes,
 * its canvases. With them a picture has the words and the key that stand around a drawing.
 *
 * @typedef {{x: number, y: number, w: number, h: number}} Box
 * @typedef {Box & {kind: "box", fill: string, stroke: string, width: number, dashed: boolean,
 *   radius: number, hatch: string}} BoxPiece  hatch: the colour of lines in it, "" none
 * @typedef {Box & {kind: "text", text: string, font: string, size: number, fill: string}} TextPiece
 *   y: of the middle of its line
 * @typedef {Box & {kind: "canvas", canvas: HTMLCanvasElement}} CanvasPiece
 * @typedef {BoxPiece | TextPiece | CanvasPiece} Piece
 */

const CONTROLS =
  "[hidden], .wb-sr, .wb-walk-open, .wb-link, .wb-typed, .wb-tl-found, .wb-co-spots, .wb-co-links, .wb-co-tip, .wb-tl-tip, .wb-ov-big, .wb-ov-next, " +
  ".wb-tl-bar button, .wb-pl-bar button, .wb-mg-bar button, .wb-sm-bar button, svg, option";
const HATCH = 4; // px between two lines of a hatch

/** @param {string} colour */
const isClear = (colour) => /^rgba\(.*, 0\)$|^transparent$/.test(colour);

/**
 * The pieces of these parts of a page, in order from back to front.
 * @param {Element[]} parts
 * @param {DOMRect} frame  what places are counted from
 * @param {number} scale  px of the page for one of the pieces
 * @returns {Piece[]}
 */
export function piecesOf(parts, frame, scale) {
  const pieces = /** @type {Piece[]} */ ([]);
  const place = (/** @type {DOMRect} */ rect) => ({
    x: (rect.left - frame.left) / scale,
    y: (rect.top - frame.top) / scale,
    w: rect.width / scale,
    h: rect.height / scale,
  });
  const visit = (/** @type {Element} */ element, /** @type {DOMRect[]} */ clips) => {
    if (element.matches(CONTROLS)) return;
    const style = getComputedStyle(element);
    if (style.display === "none" || style.visibility === "hidden") return;
    const rect = element.getBoundingClientRect();
    if (element instanceof HTMLCanvasElement) {
      if (element.width && element.height)
        pieces.push({ kind: "canvas", canvas: element, ...place(rect) });
      return;
    }
    const box = boxPiece(style, place(rect));
    if (box) pieces.push(box);
    const inside = /hidden|clip|auto|scroll/.test(style.overflowY) ? [...clips, rect] : clips;
    for (const child of element.childNodes)
      if (child instanceof Element) visit(child, inside);
      else if (child instanceof Text)
        for (const { text, rect: line } of linesOf(child)) {
          const middle = (line.top + line.bottom) / 2;
          if (inside.every((clip) => middle > clip.top && middle < clip.bottom))
            pieces.push({
              kind: "text",
              text,
              font: `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`,
              size: parseFloat(style.fontSize),
              fill: style.color,
              ...place(line),
            });
        }
  };
  for (const part of parts) visit(part, []);
  return pieces;
}

/** @param {CSSStyleDeclaration} style @param {Box} place @returns {BoxPiece | null} */
function boxPiece(style, place) {
  const image = style.backgroundImage;
  const hatch = /repeating-linear-gradient/.test(image)
    ? (image.match(/rgba?\([^)]*\)/g) ?? []).find((colour) => !isClear(colour))
    : undefined;
  const width = parseFloat(style.borderTopWidth);
  const bordered = width > 0 && style.borderTopStyle !== "none" && !isClear(style.borderTopColor);
  const fill = isClear(style.backgroundColor) ? "" : style.backgroundColor;
  if (!fill && !bordered && !hatch) return null;
  const line = place.h <= width || parseFloat(style.borderBottomWidth) === 0; // its upper edge alone
  return {
    kind: "box",
    ...(bordered && line ? { ...place, h: 0 } : place),
    fill: bordered && line ? "" : fill,
    stroke: bordered ? style.borderTopColor : "",
    width,
    dashed: style.borderTopStyle === "dashed",
    radius: style.borderTopLeftRadius.endsWith("%")
      ? Math.min(place.w, place.h) / 2
      : parseFloat(style.borderTopLeftRadius),
    hatch: hatch ?? "",
  };
}

/** The lines that a text is broken into, and where they are. @param {Text} node */
function linesOf(node) {
  const lines = /** @type {{text: string, rect: DOMRect}[]} */ ([]);
  const range = document.createRange();
  for (const { 0: word, index } of node.data.matchAll(/\S+/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const rect = range.getBoundingClientRect();
    if (!rect.width) continue;
    const last = lines.at(-1);
    if (last && Math.abs(last.rect.top - rect.top) < rect.height / 2) {
      last.text += ` ${word}`;
      last.rect = new DOMRect(
        last.rect.left,
        last.rect.top,
        rect.right - last.rect.left,
        last.rect.height,
      );
    } else lines.push({ text: word, rect });
  }
  return lines;
}

/** Draw pieces. @param {CanvasRenderingContext2D} g @param {Piece[]} pieces */
export function paintPieces(g, pieces) {
  for (const piece of pieces) {
    const { x, y, w, h } = piece;
    if (piece.kind === "canvas") g.drawImage(piece.canvas, x, y, w, h);
    else if (piece.kind === "text") {
      g.font = piece.font;
      g.fillStyle = piece.fill;
      g.textAlign = "left";
      g.textBaseline = "middle";
      g.fillText(piece.text, x, y + h / 2);
    } else paintBox(g, piece);
  }
}

/** @param {CanvasRenderingContext2D} g @param {BoxPiece} piece */
function paintBox(g, { x, y, w, h, fill, stroke, width, dashed, radius, hatch }) {
  g.beginPath();
  if (h) g.roundRect(x, y, w, h, Math.min(radius, w / 2, h / 2));
  else {
    g.moveTo(x, y + width / 2);
    g.lineTo(x + w, y + width / 2);
  }
  g.fillStyle = fill;
  if (fill) g.fill();
  if (hatch) {
    g.save();
    g.clip();
    g.strokeStyle = hatch;
    g.lineWidth = 1.2;
    g.beginPath();
    for (const [x1, y1, x2, y2] of hatchLines({ x, y, w, h })) {
      g.moveTo(x1, y1);
      g.lineTo(x2, y2);
    }
    g.stroke();
    g.restore();
    return;
  }
  if (!stroke) return;
  g.strokeStyle = stroke;
  g.lineWidth = width;
  g.setLineDash(dashed ? [3, 2] : []);
  g.stroke();
  g.setLineDash([]);
}

/** The lines of a hatch, from the lower left to the upper right. @param {Box} box */
function hatchLines({ x, y, w, h }) {
  const lines = [];
  for (let at = 0; at < w + h; at += HATCH) {
    const [left, right] = [Math.max(0, at - h), Math.min(at, w)];
    lines.push([x + left, y + at - left, x + right, y + at - right]);
  }
  return lines;
}

/** @param {string} text */
const escaped = (text) =>
  text.replace(
    /[&<>"]/g,
    (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign] ?? "",
  );
const twoPlaces = (/** @type {number} */ value) => Math.round(value * 100) / 100;

/**
 * Pieces as an SVG file: texts stay texts, canvases are images.
 * @param {Piece[]} pieces @param {{width: number, height: number, ground: string}} page
 * @param {(canvas: HTMLCanvasElement) => string} image  the address of a canvas's picture
 */
export function svgOfPieces(pieces, { width, height, ground }, image) {
  const parts = pieces.map((piece) => {
    const at = `x="${twoPlaces(piece.x)}" y="${twoPlaces(piece.y)}"`;
    const size = `width="${twoPlaces(piece.w)}" height="${twoPlaces(piece.h)}"`;
    if (piece.kind === "canvas") return `<image ${at} ${size} href="${image(piece.canvas)}"/>`;
    if (piece.kind === "text")
      return (
        `<text x="${twoPlaces(piece.x)}" y="${twoPlaces(piece.y + piece.h / 2)}" fill="${piece.fill}" ` +
        `style="font: ${escaped(piece.font).replaceAll("&quot;", "'")}" dominant-baseline="central" ` +
        `textLength="${twoPlaces(piece.w)}" lengthAdjust="spacingAndGlyphs">${escaped(piece.text)}</text>`
      );
    const { x, y, w, fill, stroke, width: thick, dashed, radius, hatch } = piece;
    if (hatch)
      return hatchLines(piece)
        .map(
          (l) =>
            `<path d="M${twoPlaces(l[0])} ${twoPlaces(l[1])}L${twoPlaces(l[2])} ${twoPlaces(l[3])}" stroke="${hatch}" stroke-width="1.2"/>`,
        )
        .join("");
    const line =
      (stroke ? ` stroke="${stroke}" stroke-width="${thick}"` : "") +
      (dashed ? ` stroke-dasharray="3 2"` : "");
    return piece.h
      ? `<rect ${at} ${size} rx="${radius}" fill="${fill || "none"}"${line}/>`
      : `<path d="M${twoPlaces(x)} ${twoPlaces(y)}h${twoPlaces(w)}"${line}/>`;
  });
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${twoPlaces(width)} ${twoPlaces(height)}" ` +
    `width="${twoPlaces(width)}" height="${twoPlaces(height)}">` +
    `<rect width="100%" height="100%" fill="${ground}"/>${parts.join("\n")}</svg>\n`
  );
}

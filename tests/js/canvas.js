// A canvas's context that keeps what was drawn, in order: filled and outlined shapes, lines, texts
// with their boxes.
import { INK as SOME, paper } from "./paper.js";

export const INK = {
  ...SOME,
  ideal: "ideal",
  live: "live",
  ...Object.fromEntries(
    [0, 1, 2, 3, 4, 5, 6, 7].flatMap((r) => [
      [`s${r}`, `s${r}`],
      [`on-s${r}`, `on-s${r}`],
    ]),
  ),
};

/**
 * A context whose shapes are in `g.drawn`: {kind: "box" | "round" | "line" | "text", filled, x, y,
 * w, h ...}.
 */
export function canvas() {
  const pen = paper();
  const drawn = [];
  let path = [];
  let at = null;
  const box = (x, y, w, h) => ({ kind: "box", x, y, w, h });
  // Field by field: pictures have a million shapes, and a spread takes ten times as long.
  const put = ({ kind, x, y, w, h, cx, cy, r, x1, y1, x2, y2 }, filled, ink, how) => {
    const alpha = how.globalAlpha;
    const half = filled ? 0 : how.lineWidth / 2;
    const dashed = !filled && how.dash.length > 0;
    drawn.push(
      kind === "line"
        ? { kind, x1, y1, x2, y2, filled, ink, alpha, half, dashed }
        : { kind, x, y, w, h, cx, cy, r, filled, ink, alpha, half, dashed },
    );
  };
  const own = {
    dash: [],
    drawn,
    beginPath() {
      path = [];
      at = null;
    },
    moveTo(x, y) {
      at = { x, y };
    },
    lineTo(x, y) {
      if (at) path.push({ kind: "line", x1: at.x, y1: at.y, x2: x, y2: y });
      at = { x, y };
    },
    closePath() {},
    arc(x, y, r) {
      path.push({ kind: "round", cx: x, cy: y, r, x: x - r, y: y - r, w: 2 * r, h: 2 * r });
    },
    roundRect(x, y, w, h) {
      path.push(box(x, y, w, h));
    },
    rect(x, y, w, h) {
      path.push(box(x, y, w, h));
    },
    fill() {
      // of a filled outline its lines are kept
      for (const s of path) put(s, s.kind !== "line", g.fillStyle, g);
    },
    stroke() {
      for (const s of path) put(s, false, g.strokeStyle, g);
    },
    fillRect(x, y, w, h) {
      put(box(x, y, w, h), true, g.fillStyle, g);
    },
    strokeRect(x, y, w, h) {
      put(box(x, y, w, h), false, g.strokeStyle, g);
    },
    fillText(text, x, y) {
      pen.font = g.font;
      pen.textAlign = g.textAlign;
      pen.textBaseline = g.textBaseline;
      pen.fillText(text, x, y);
      const { x: left, y: top, w, h, size } = pen.texts.at(-1);
      drawn.push({
        kind: "text",
        text,
        x: left,
        y: top,
        w,
        h,
        size,
        ink: g.fillStyle,
        filled: true,
      });
    },
    measureText(text) {
      pen.font = g.font;
      return pen.measureText(text);
    },
    setLineDash(dash) {
      own.dash = dash;
      g.dash = dash;
    },
    clip() {},
    clearRect() {},
    drawImage() {},
    setTransform() {},
    save() {},
    restore() {},
    scale() {},
    translate() {},
    rotate() {},
    createPattern: () => ({ setTransform() {} }),
  };
  const g = Object.assign(
    {
      font: "11px sans-serif",
      fillStyle: "",
      strokeStyle: "",
      textAlign: "left",
      textBaseline: "alphabetic",
      globalAlpha: 1,
      lineWidth: 1,
    },
    own,
  );
  return g;
}

const meets = (a, b, slack) =>
  a.x < b.x + b.w - slack &&
  b.x < a.x + a.w - slack &&
  a.y < b.y + b.h - slack &&
  b.y < a.y + a.h - slack;
const within = (a, b) =>
  a.x >= b.x - 1 && a.y >= b.y - 1 && a.x + a.w <= b.x + b.w + 1 && a.y + a.h <= b.y + b.h + 1;

/** The edges of a shape's box: worked out once, as each is compared with every text. */
function edges(shape) {
  const line = shape.kind === "line";
  const [x1, x2] = line ? [shape.x1, shape.x2] : [shape.x, shape.x + shape.w];
  const [y1, y2] = line ? [shape.y1, shape.y2] : [shape.y, shape.y + shape.h];
  return {
    left: Math.min(x1, x2),
    right: Math.max(x1, x2),
    top: Math.min(y1, y2),
    bottom: Math.max(y1, y2),
  };
}

/** Whether edges are nowhere near a box. */
const apart = ({ left, right, top, bottom }, text) =>
  bottom < text.y || top > text.y + text.h || right < text.x || left > text.x + text.w;

/**
 * Whether a shape lies over a box: a line through it, an outline through it, a filled shape that
 * meets it.
 */
export function lies(shape, text) {
  const { x, y, w, h } = { x: text.x + 0.75, y: text.y + 0.75, w: text.w - 1.5, h: text.h - 1.5 };
  if (shape.kind === "line") {
    let [from, to] = [0, 1];
    for (const [p, q] of [
      [shape.x1 - shape.x2, shape.x1 - x],
      [shape.x2 - shape.x1, x + w - shape.x1],
      [shape.y1 - shape.y2, shape.y1 - y],
      [shape.y2 - shape.y1, y + h - shape.y1],
    ]) {
      if (p === 0 && q < 0) return false;
      if (p < 0) from = Math.max(from, q / p);
      if (p > 0) to = Math.min(to, q / p);
    }
    return from < to;
  }
  if (shape.kind === "round") {
    const near = Math.hypot(
      Math.max(x - shape.cx, 0, shape.cx - x - w),
      Math.max(y - shape.cy, 0, shape.cy - y - h),
    );
    const far = Math.max(
      ...[
        [x, y],
        [x + w, y],
        [x, y + h],
        [x + w, y + h],
      ].map(([a, b]) => Math.hypot(a - shape.cx, b - shape.cy)),
    );
    return shape.filled ? near < shape.r : near < shape.r && far > shape.r;
  }
  return meets(text, shape, 1.5) && (shape.filled || !within(text, shape));
}

/**
 * What is written over something else. A text may lie on a filled shape that holds all of it (its
 * own ground); what was drawn before that is hidden. Nothing else may touch it, and no two texts
 * may.
 */
export function collisions(drawn) {
  const texts = drawn.map((d, i) => ({ ...d, i })).filter((d) => d.kind === "text");
  const shapes = drawn
    .map((d, i) => ({ d, i }))
    .filter(({ d }) => d.kind !== "text")
    .map((one) => ({ ...one, edges: edges(one.d) }));
  const found = [];
  for (const text of texts) {
    const near = shapes.filter((one) => !apart(one.edges, text));
    const ground = near.findLast(
      ({ d, i }) => i < text.i && d.kind !== "line" && d.filled && within(text, d),
    );
    for (const other of texts)
      if (other.i > text.i && meets(text, other, 1.5))
        found.push(`“${text.text}” and “${other.text}”`);
    for (const { d, i } of near)
      if (i > (ground?.i ?? -1) && lies(d, text))
        found.push(
          `“${text.text}” and a ${d.kind} of ${d.ink}${i > text.i ? ", drawn over it" : ""}`,
        );
  }
  return found;
}

/** Let modules make canvases where there is no page: all of them draw on `g`. */
export function onto(g) {
  globalThis.document = {
    createElement: () => ({ width: 0, height: 0, style: {}, getContext: () => g }),
  };
  globalThis.DOMMatrix = class {
    scale() {
      return this;
    }
  };
}

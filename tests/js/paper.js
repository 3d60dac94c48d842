// A canvas's context that keeps what was drawn: rectangles and texts with their boxes, for tests
// without a browser.
const letters = (text) =>
  [...text].reduce(
    (sum, c) =>
      sum +
      ("ijl.,:|' ".includes(c)
        ? 0.28
        : "frt-()".includes(c)
          ? 0.33
          : "mwMW%".includes(c)
            ? 0.85
            : 0.557),
    0,
  ); // as in Helvetica

export function paper() {
  const marks = [];
  const texts = [];
  const strokes = [];
  const size = () => Number(/(\d+)px/.exec(g.font)?.[1]);
  const g = {
    font: "11px sans-serif",
    fillStyle: "",
    strokeStyle: "",
    textAlign: "left",
    textBaseline: "alphabetic",
    globalAlpha: 1,
    lineWidth: 1,
    measureText: (text) => ({
      width: letters(text) * size() * (g.font.startsWith("700") ? 1.08 : 1),
    }),
    fillRect: (x, y, w, h) => marks.push({ x, y, w, h, ink: g.fillStyle, alpha: g.globalAlpha }),
    strokeRect: (x, y, w, h) => strokes.push({ x, y, w, h, ink: g.strokeStyle }),
    fillText(text, x, y) {
      const w = g.measureText(text).width;
      // capitals and digits reach no lower than the line
      const high = size() * (/[a-z]/.test(text) ? 1 : 0.74);
      const left = g.textAlign === "center" ? x - w / 2 : g.textAlign === "right" ? x - w : x;
      texts.push({
        text,
        x: left,
        y: g.textBaseline === "middle" ? y - high / 2 : y - high * 0.8,
        w,
        h: high,
        size: size(),
        ink: g.fillStyle,
        after: marks.length,
      });
    },
    clearRect() {},
    beginPath() {},
    setLineDash() {},
    moveTo() {},
    lineTo() {},
    stroke() {},
    fill() {},
    drawImage() {},
    setLineDash() {},
    setTransform() {},
    save() {},
    restore() {},
  };
  return Object.assign(g, { marks, texts, strokes });
}

export const over = (a, b, slack = 0.5) =>
  a.x < b.x + b.w - slack &&
  b.x < a.x + a.w - slack &&
  a.y < b.y + b.h - slack &&
  b.y < a.y + a.h - slack;
export const inside = (a, b, slack = 0.75) =>
  a.x >= b.x - slack &&
  a.y >= b.y - slack &&
  a.x + a.w <= b.x + b.w + slack &&
  a.y + a.h <= b.y + b.h + slack;
export const INK = Object.fromEntries(
  [
    "ground",
    "panel",
    "ink",
    "ink-2",
    "ink-3",
    "rule",
    "edge",
    "track",
    "forward",
    "backward",
    "weight-grad",
    "optimizer",
    "load",
    "comm",
    "reduce",
    "wait",
    "fault",
    "done",
    "hold",
    "focus",
  ]
    .map((name) => [name, name])
    .concat([["ground", "rgb(255, 255, 255)"]]),
);

// @ts-check
/**
 * A figure of several charts on a narrow page: one under the other in place of two in a row, and
 * titles that go on in another line where they would be cut off. Pure functions.
 *
 * @typedef {{[name: string]: any}} Layout  Plotly's
 * @typedef {{x: string, y: string, left: number, right: number, top: number, bottom: number}} Panel
 *   its axes, and where it is
 */

export const TWO_FROM = 620; // px: from there on two charts stand in a row
const CHARACTER = 6.6; // px of a title's character
const LEFT_OF_AXIS = 46; // px that a title begins left of its chart
const SET_APART = 100; // px of a row that are no chart: title, axis
const TITLE_LINES = 2; // that a row has room for
const LINE = 16; // px of one more
const SIGN = /^[■▨┅◆◇●·–—━-]$/u; // of a key that stands in a title

/** The charts of a figure, as they are read. @param {Layout} layout @returns {Panel[]} */
function panelsOf(layout) {
  return Object.keys(layout)
    .filter((axis) => /^xaxis\d*$/.test(axis) && layout[axis].anchor)
    .map((axis) => {
      const y = `yaxis${layout[axis].anchor.slice(1)}`;
      const [left, right] = layout[axis].domain;
      const [bottom, top] = layout[y].domain;
      return { x: axis, y, left, right, top, bottom };
    })
    .sort((a, b) => b.top - a.top || a.left - b.left);
}

/** @param {string} html */
const textOf = (html) => html.replace(/<[^>]*>/g, "");

/** The words of a line: a tag is part of one, and a sign of a key stays with what it stands for. @param {string} line */
const wordsOf = (line) =>
  /** @type {string[]} */ (line.match(/(?:<[^>]*>|[^\s<])+/g) ?? []).reduce((words, word) => {
    const last = words.at(-1);
    if (last !== undefined && SIGN.test(textOf(last))) words[words.length - 1] += ` ${word}`;
    else words.push(word);
    return words;
  }, /** @type {string[]} */ ([]));

/** A text in lines of at most so many characters; tags are not counted. @param {string} text @param {number} most */
export const wrapped = (text, most) =>
  text
    .split("<br>")
    .map((given) => {
      const lines = [""];
      for (const word of wordsOf(given)) {
        const line = lines[lines.length - 1];
        const next = line ? `${line} ${word}` : word;
        if (line && textOf(next).length > most) lines.push(word);
        else lines[lines.length - 1] = next;
      }
      return lines.join("<br>");
    })
    .join("<br>");

/**
 * The layout for a page of this width.
 * @param {Layout} layout
 * @param {number} width  px of the figure
 * @returns {Layout}
 */
export function fitted(layout, width) {
  const panels = panelsOf(layout);
  const rows = new Set(panels.map((panel) => panel.top)).size;
  const stacks = width < TWO_FROM && panels.length > rows;
  const result = /** @type {Layout} */ ({ ...layout });
  const old = panels.map(({ left, top }) => ({ left, top }));
  if (stacks) {
    const each = layout.height / rows;
    const legends = Object.keys(layout).filter((name) => name.startsWith("legend"));
    const inside = each * panels.length - SET_APART;
    result.height = each * panels.length;
    panels.forEach((panel, i) => {
      const top = 1 - (i * each) / inside;
      const up = [Math.max(0, top - (each - SET_APART) / inside), top];
      result[panel.x] = { ...layout[panel.x], domain: [0, 1] };
      result[panel.y] = { ...layout[panel.y], domain: up };
      for (const name of legends) {
        const { x, y, yanchor } = layout[name];
        if (x === panel.right && (y === panel.top || y === panel.bottom))
          result[name] = { ...layout[name], x: 1, y: yanchor === "top" ? top : up[0] };
      }
      [panel.left, panel.top] = [0, top];
    });
  }
  const { l = 0, r = 0 } = layout.margin ?? {};
  const columns = stacks ? 1 : panels.length / Math.max(1, rows);
  const room = ((width - l - r) / Math.max(1, columns) + LEFT_OF_AXIS) * 0.98;
  result.annotations = (layout.annotations ?? []).map((/** @type {Layout} */ one) => {
    const at = old.findIndex(({ left, top }) => left === one.x && top === one.y);
    if (at < 0) return one;
    const { left, top } = panels[at];
    return { ...one, x: left, y: top, text: wrapped(one.text, Math.floor(room / CHARACTER)) };
  });
  const more = Math.max(
    0,
    ...result.annotations
      .filter((/** @type {Layout} */ one) => one.y === 1)
      .map((/** @type {Layout} */ one) => one.text.split("<br>").length - TITLE_LINES),
  );
  if (more) {
    // the uppermost title has its lines above its chart, which keeps its height
    result.margin = { ...layout.margin, t: (layout.margin?.t ?? 0) + more * LINE };
    result.height += more * LINE;
  }
  return result;
}

// @ts-check
/**
 * Where the layers of a model lie: a band a stage, in it lines of layers from left to right like
 * words of a text, and between bands the lane of what crosses the cut. A line is laid out by dagre;
 * its values come in at the left and leave at the right. Lines break where few values cross. Many
 * stages stand in two columns where that is much lower: the second goes on at the top. Pure geometry,
 * in CSS pixels.
 *
 * @typedef {import("./fold.js").Model} Model
 * @typedef {import("./fold.js").GraphNode} GraphNode
 * @typedef {import("./fold.js").Wire} Wire
 * @typedef {{x: number, y: number}} Point
 * @typedef {{x: number, y: number, w: number, h: number}} Box
 * @typedef {Box & {node: number}} NodeBox
 * @typedef {{wire: Wire, points: Point[], reaches: boolean}} WirePath  a part of a wire within one
 *   line; reaches: ends at a layer
 * @typedef {{first: number, end: number, top: number, height: number, left: Point, right: Point,
 *   boxes: NodeBox[], paths: WirePath[]}} Line  nodes first … end - 1
 * @typedef {{stage: number, x: number, top: number, height: number, lines: Line[]}} Band
 * @typedef {{border: number, x: number, top: number, height: number, y: number, from: Point[],
 *   width: number}} CutLane  from: the way of what crosses it, right to left
 * @typedef {{key: string, width: number, height: number, left: number, right: number,
 *   node: {w: number, h: number}, bands: Band[], cuts: CutLane[], returns: Point[][],
 *   folds: (Box & {block: string})[], rows: number}} GraphPlace
 *   width, left, right: of a column, from its x on; returns: how a line goes on in the next one of
 *   its band
 */
import { dagre } from "../../vendor/dagre.js";
import { crossing } from "./fold.js";
import { COLUMNS_APART, twoColumns } from "./two_columns.js";

const NODE_HIGH = 38;

const LAYERS_APART = 12;

const LANES_APART = 7;

const PORT = 4;

const PAD = 9;

const LABEL_HIGH = 58;

const LANE_HIGH = 38;

const TURN_HIGH = 14;

const FOLD_HIGH = 15;

const RAIL = 9;

/** How far below a lane's top the line of what crosses lies. */
const LANE_LINE = 26;

const HIGH = 420; // px: a picture that is higher is tried in two columns
const COLUMN_WIDE = 420; // px that a column needs
const LOWER = 0.75; // of the height: less than this is worth two columns

/**
 * @param {Model} model
 * @param {GraphNode[]} nodes
 * @param {Wire[]} wires
 * @param {number} width
 * @returns {GraphPlace}
 */
export function placeOf(model, nodes, wires, width) {
  const one = columnPlace(model, nodes, wires, width);
  const half = Math.floor((width - COLUMNS_APART) / 2);
  if (one.height <= HIGH || half < COLUMN_WIDE || model.stages < 4) return one;
  const two = columnPlace(model, nodes, wires, half);
  twoColumns(two);
  return two.height < LOWER * one.height ? { ...two, key: one.key } : one;
}

/**
 * Lay all stages below one another.
 * @param {Model} model
 * @param {GraphNode[]} nodes
 * @param {Wire[]} wires
 * @param {number} width
 * @returns {GraphPlace}
 */
function columnPlace(model, nodes, wires, width) {
  const wide = width >= 728;
  const left = wide ? 132 : 120;
  const right = width - 2 * RAIL;
  const w = wide ? 84 : 80;
  const room = right - left - 2 * RAIL - 2 * PORT;
  const most = Math.max(1, Math.floor((room - LAYERS_APART) / (w + LAYERS_APART)));
  const node = { w, h: NODE_HIGH };
  const place = /** @type {GraphPlace} */ ({
    key: `${width} ${nodes.map((n) => n.key).join()}`,
    width,
    height: 0,
    left,
    right,
    node,
    bands: [],
    cuts: [],
    returns: [],
    folds: [],
    rows: 0,
  });
  const largest = Math.max(1, ...model.borders.map((b) => b.bytes));
  let y = 0;
  for (let stage = 0; stage < model.stages; stage++) {
    const first = nodes.findIndex((n) => n.stage === stage);
    const end = nodes.findLastIndex((n) => n.stage === stage) + 1;
    const band = /** @type {Band} */ ({ stage, x: 0, top: y, height: 0, lines: [] });
    const parts = first < 0 ? [] : breakLines(first, end, most, nodes, wires);
    let top = y + PAD;
    for (const [from, to] of parts) {
      const fold = unfolded(nodes, from, to).length ? FOLD_HIGH : 0;
      const line = layLine(nodes, wires, from, to, left + RAIL, node, top + fold, right - RAIL);
      for (const part of unfolded(nodes, from, to)) place.folds.push(foldBox(line, part, top));
      if (band.lines.length)
        place.returns.push(lineTurn(band.lines[band.lines.length - 1], line, left, right));
      band.lines.push(line);
      top += fold + line.height + TURN_HIGH;
    }
    const inner = top - (parts.length ? TURN_HIGH : 0) - y + PAD;
    const spare = Math.max(0, LABEL_HIGH - inner);
    band.height = inner + spare;
    if (spare)
      (shiftLines(band.lines, spare / 2),
        place.folds.filter((f) => f.y >= y).forEach((f) => (f.y += spare / 2)));
    place.bands.push(band);
    place.rows += parts.length;
    y += band.height;
    if (stage < model.stages - 1) {
      place.cuts.push({
        border: stage,
        x: 0,
        top: y,
        height: LANE_HIGH,
        y: y + LANE_LINE,
        from: [],
        width: 1.5 + 4.5 * Math.sqrt(model.borders[stage].bytes / largest),
      });
      y += LANE_HIGH;
    }
  }
  for (const cut of place.cuts) cut.from = acrossCut(place, cut, left, right);
  place.height = y;
  return place;
}

/**
 * Where a band's lines begin and end: as few as have room, broken where few values cross.
 * @param {number} first
 * @param {number} end
 * @param {number} most  columns of a line
 * @param {GraphNode[]} nodes
 * @param {Wire[]} wires
 * @returns {[number, number][]}
 */
export function breakLines(first, end, most, nodes, wires) {
  const into = Array.from({ length: end }, () => /** @type {number[]} */ ([]));
  for (const { from, to } of wires) if (from >= first && to < end) into[to].push(from);
  const across = (/** @type {number} */ i) =>
    new Set(wires.filter((v) => v.from < i && v.to >= i).map((v) => v.from)).size;
  const cost = Array(end + 1).fill(Infinity);
  const cameFrom = Array(end + 1).fill(first);
  cost[first] = 0;
  for (let i = first; i < end; i++) {
    if (cost[i] === Infinity) continue;
    const depth = /** @type {Map<number, number>} */ (new Map());
    const toll =
      i > first
        ? 1000 + 12 * (across(i) - 1) - (nodes[i].block !== nodes[i - 1].block ? 20 : 0)
        : 0;
    let columns = 0;
    for (let j = i; j < end; j++) {
      const level = 1 + Math.max(0, ...into[j].map((p) => depth.get(p) ?? 0));
      depth.set(j, level);
      columns = Math.max(columns, level);
      if (columns > most && j > i) break;
      const sum = cost[i] + toll + (most - columns) ** 2;
      if (sum < cost[j + 1]) ((cost[j + 1] = sum), (cameFrom[j + 1] = i));
    }
  }
  const lines = /** @type {[number, number][]} */ ([]);
  for (let to = end; to > first; to = cameFrom[to]) lines.unshift([cameFrom[to], to]);
  return lines;
}

/**
 * One line, laid out by dagre from the left; its port at the right lies at the band's end.
 * @param {GraphNode[]} nodes
 * @param {Wire[]} wires
 * @param {number} first
 * @param {number} end
 * @param {number} x
 * @param {{w: number, h: number}} node
 * @param {number} top
 * @param {number} right
 * @returns {Line}
 */
function layLine(nodes, wires, first, end, x, node, top, right) {
  const graph = new dagre.Graph({ multigraph: true });
  const isWithin = (/** @type {number} */ i) => i >= first && i < end;
  graph.setGraph({
    rankdir: "LR",
    ranksep: LAYERS_APART,
    nodesep: 10,
    edgesep: LANES_APART,
    align: "DL",
  });
  graph.setNode("in", { width: PORT, height: PORT });
  for (let i = first; i < end; i++) graph.setNode(String(i), { width: node.w, height: node.h });
  graph.setNode("out", { width: PORT, height: PORT });
  const drawn = /** @type {Map<string, Wire>} */ (new Map());
  const passing = new Set();
  const leaving = new Set();
  const entering = new Set();
  const fed = new Set();
  const used = new Set();
  wires.forEach((wire, k) => {
    if (wire.to < first || wire.from >= end) return;
    const inside = isWithin(wire.from);
    const reaches = isWithin(wire.to);
    const from = inside ? String(wire.from) : "in";
    const to = reaches ? String(wire.to) : "out";
    const once = inside ? (reaches ? null : leaving) : reaches ? null : passing;
    if (once?.has(wire.from)) return; // a value that several need later leaves, or passes, once
    once?.add(wire.from);
    if (inside) used.add(wire.from);
    if (reaches) fed.add(wire.to);
    if (!inside && reaches && entering.has(`${wire.from} ${wire.to}`)) return;
    entering.add(`${wire.from} ${wire.to}`);
    graph.setEdge(from, to, { weight: inside && reaches ? 4 : 1 }, String(k));
    drawn.set(String(k), wire);
  });
  for (let i = first; i < end; i++) {
    // so that all lie between the two ports
    if (!fed.has(i)) graph.setEdge("in", String(i), { weight: 0 }, "hold");
    if (!used.has(i)) graph.setEdge(String(i), "out", { weight: 0 }, "hold");
  }
  dagre.layout(graph);
  const edges = graph.edges().filter((/** @type {any} */ e) => drawn.has(e.name));
  const ys = [
    ...Array.from({ length: end - first }, (_, i) => graph.node(String(first + i))).flatMap((n) => [
      n.y - node.h / 2,
      n.y + node.h / 2,
    ]),
    ...edges.flatMap((/** @type {any} */ e) =>
      graph.edge(e).points.map((/** @type {Point} */ p) => p.y),
    ),
  ];
  const low = Math.min(...ys);
  const height = Math.max(...ys) - low;
  const dx = x - (graph.node("in").x - PORT / 2);
  const dy = top - low;
  const at = (/** @type {Point} */ p) => ({ x: p.x + dx, y: p.y + dy });
  const boxes = Array.from({ length: end - first }, (_, i) => {
    const n = at(graph.node(String(first + i)));
    return { node: first + i, x: n.x - node.w / 2, y: n.y - node.h / 2, w: node.w, h: node.h };
  });
  const paths = edges.map((/** @type {any} */ e) => ({
    wire: /** @type {Wire} */ (drawn.get(e.name)),
    points: graph.edge(e).points.map(at),
    reaches: e.w !== "out",
  }));
  const start = at(graph.node("in"));
  const last = at(graph.node("out"));
  for (const { points } of paths) {
    // the ends of lines at a port meet there
    const a = points[0];
    const b = points[points.length - 1];
    if (Math.abs(a.x - start.x) < PORT) points[0] = { ...start };
    if (Math.abs(b.x - last.x) < PORT) points[points.length - 1] = { ...last };
  }
  return {
    first,
    end,
    top,
    height,
    left: start,
    right: { x: Math.max(right, last.x), y: last.y },
    boxes,
    paths: [...paths, ...portTail(last, right, paths)],
  };
}

/**
 * What leaves goes on to the band's end.
 * @param {Point} last
 * @param {number} right
 * @param {WirePath[]} paths
 * @returns {WirePath[]}
 */
function portTail(last, right, paths) {
  const out = paths.filter(({ points }) => Math.abs(points[points.length - 1].x - last.x) < 1);
  return out.length && right > last.x
    ? [{ wire: out[0].wire, points: [{ ...last }, { x: right, y: last.y }], reaches: false }]
    : [];
}

/** @param {Line[]} lines @param {number} dy */
function shiftLines(lines, dy) {
  for (const line of lines) {
    line.top += dy;
    line.left.y += dy;
    line.right.y += dy;
    for (const box of line.boxes) box.y += dy;
    for (const { points } of line.paths) for (const p of points) p.y += dy;
  }
}

/**
 * From a line's right end to the next one's left.
 * @param {Line} a
 * @param {Line} b
 * @param {number} left
 * @param {number} right
 * @returns {Point[]}
 */
function lineTurn(a, b, left, right) {
  const y = a.top + a.height + TURN_HIGH / 2 - 1;
  return [
    { ...a.right },
    { x: right, y: a.right.y },
    { x: right, y },
    { x: left, y },
    { x: left, y: b.left.y },
    { ...b.left },
  ];
}

/**
 * The way across a cut.
 * @param {GraphPlace} place
 * @param {CutLane} cut
 * @param {number} left
 * @param {number} right
 * @returns {Point[]}
 */
function acrossCut(place, cut, left, right) {
  const a = place.bands[cut.border].lines.at(-1);
  const b = place.bands[cut.border + 1].lines[0];
  if (!a || !b)
    return [
      { x: right, y: cut.y },
      { x: left, y: cut.y },
    ];
  return [
    { ...a.right },
    { x: right, y: a.right.y },
    { x: right, y: cut.y },
    { x: left, y: cut.y },
    { x: left, y: b.left.y },
    { ...b.left },
  ];
}

/**
 * Stretches of layers of one block that is open.
 * @param {GraphNode[]} nodes
 * @param {number} first
 * @param {number} end
 */
function unfolded(nodes, first, end) {
  const parts = /** @type {{block: string, first: number, end: number}[]} */ ([]);
  for (let i = first; i < end; i++) {
    const { block, folded } = nodes[i];
    const last = parts[parts.length - 1];
    if (!block || folded) continue;
    if (last && last.block === block && last.end === i) last.end = i + 1;
    else parts.push({ block, first: i, end: i + 1 });
  }
  return parts;
}

/**
 * @param {Line} line
 * @param {{block: string, first: number, end: number}} part
 * @param {number} top
 */
function foldBox(line, { block, first, end }, top) {
  const boxes = line.boxes.filter((b) => b.node >= first && b.node < end);
  const x = Math.min(...boxes.map((b) => b.x));
  const to = Math.max(...boxes.map((b) => b.x + b.w));
  return { block, x, y: top, w: to - x, h: FOLD_HIGH - 3 };
}

/**
 * Values that cross a border, and from which layers.
 * @param {Model} model
 * @param {number} border
 */
export const crossingAt = (model, border) => crossing(model.values, model.borders[border].after);

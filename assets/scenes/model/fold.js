// @ts-check
/**
 * The model as a run's header tells it: layers in the order of execution, values that go from one
 * to another, stages. Layers of a block ("blocks.3.attention.query" is of blocks.3) may be folded
 * into one. Pure: no browser, no places.
 *
 * @typedef {{index: number, name: string, op: string, parameters: number, activations: number,
 *   output: number, forward: number, backward: number, stage: number, block: string}} Layer
 *   bytes, those of one microbatch; milliseconds; block: "" for a layer of none
 * @typedef {{from: number, to: number, bytes: number}} Value  from: -1 is the model's own input;
 *   bytes: -1 where unknown
 * @typedef {{stage: number, after: number, bytes: number, values: number}} Border  between `stage`
 *   and the next; after: the last layer before it
 * @typedef {{key: string, layers: Layer[], values: Value[], borders: Border[], stages: number,
 *   largest: {chosen: number, equal: number} | null, memory: number[] | null, shards: any[],
 *   exchanges: any[], opened: string}} Model
 *   memory: planned bytes of each stage, with gradients, the optimizer's state and activations at
 *   the schedule's most; null if unknown; opened: a block that is open at first
 * @typedef {{key: string, name: string, op: string, layers: Layer[], stage: number, block: string,
 *   folded: boolean, forward: number, backward: number, parameters: number, activations: number,
 *   output: number}} GraphNode
 * @typedef {{from: number, to: number, values: Value[], bytes: number}} Wire  numbers of nodes;
 *   from: -1 is the model's own input
 * @typedef {{all: boolean | null, turned: Set<string>}} Folding  all: of every block, null lets the
 *   size decide; turned: blocks that are the other way round
 */

export const MANY_LAYERS = 40; // from here on blocks are folded, unless the reader opens them
const RUN_FROM = 160;
const RUN_LENGTH = 8; // a model without blocks and with so many layers is folded in runs

const modelOfFacts = /** @type {WeakMap<object, Model | null>} */ (new WeakMap());
let newestModel = /** @type {{text: string, model: Model | null}} */ ({ text: "", model: null });

/**
 * The model of a run, or null where it is not known; the same object while nothing of it changes.
 * @param {any} run
 * @returns {Model | null}
 */
export function modelOf(run) {
  const facts = run?.model;
  if (!facts?.layers?.length) return null;
  const had = modelOfFacts.get(facts);
  if (had !== undefined) return had;
  const text = JSON.stringify(facts); // every message tells it anew
  if (text !== newestModel.text) newestModel = { text, model: readModel(facts, text) };
  modelOfFacts.set(facts, newestModel.model);
  return newestModel.model;
}

/** @param {any} facts @param {string} key @returns {Model} */
function readModel(facts, key) {
  const at = new Map(
    facts.layers.map((/** @type {any} */ layer, /** @type {number} */ i) => [layer.name, i]),
  );
  const number = (/** @type {any} */ x) => (Number.isFinite(x) ? Number(x) : 0);
  const place = (/** @type {any} */ who) => (typeof who === "number" ? who : (at.get(who) ?? -1));
  const layers = facts.layers.map((/** @type {any} */ l, /** @type {number} */ index) => ({
    index,
    name: String(l.name),
    op: String(l.op ?? ""),
    parameters: number(l.parameters),
    activations: number(l.activations),
    output: number(l.output),
    forward: number(l.forward_ms),
    backward: number(l.backward_ms),
    stage: Math.max(0, number(l.stage)),
    block: "",
  }));
  nameBlocks(layers);
  const values = (facts.edges ?? [])
    .map((/** @type {any[]} */ [from, to, size]) => ({
      from: place(from),
      to: place(to),
      bytes: Number.isFinite(size) ? size : -1,
    }))
    .filter((/** @type {Value} */ v) => v.to > v.from);
  const fed = new Set(values.map((/** @type {Value} */ v) => v.to));
  for (const { index } of layers)
    if (!fed.has(index) && (index === 0 || layers[index].parameters > 0))
      values.push({ from: -1, to: index, bytes: -1 }); // a layer without an input of its own reads the model's
  const stages = 1 + Math.max(...layers.map((/** @type {Layer} */ l) => l.stage));
  const borders = Array.from({ length: stages - 1 }, (_, stage) => {
    const cut = facts.cut?.[stage] ?? {};
    const after = layers.findLastIndex((/** @type {Layer} */ l) => l.stage <= stage);
    const over = crossing(values, after);
    const sum = over.reduce((n, v) => n + Math.max(0, v.bytes), 0);
    return {
      stage,
      after,
      bytes: Number.isFinite(cut.bytes) ? cut.bytes : sum,
      values: Array.isArray(cut.values) ? cut.values.length : (cut.values ?? over.length),
    };
  });
  const { chosen, equal } = facts.largest_ms ?? {};
  return {
    key,
    layers,
    values,
    borders,
    stages,
    largest: Number.isFinite(chosen)
      ? { chosen, equal: Number.isFinite(equal) ? equal : chosen }
      : null,
    memory: facts.memory ?? null,
    shards: facts.shards ?? [],
    exchanges: facts.exchanges ?? [],
    opened: facts.shards?.length
      ? (layers.find((/** @type {Layer} */ l) => l.block)?.block ?? "")
      : "",
  };
}

/**
 * Values that somebody before the border makes and somebody after it needs, each once.
 * @param {Value[]} values
 * @param {number} after  the last layer before it
 */
export function crossing(values, after) {
  const once = /** @type {Map<number, Value>} */ (new Map());
  for (const value of values)
    if (value.from <= after && value.to > after && !once.has(value.from))
      once.set(value.from, value);
  return [...once.values()];
}

/**
 * A block is the name up to its first number, if something follows: functions between its layers
 * belong to it.
 * @param {Layer[]} layers
 */
function nameBlocks(layers) {
  let last = "";
  for (const layer of layers) {
    const parts = layer.name.split(".");
    const at = parts.findIndex((part) => /^\d+$/.test(part));
    const name = at > 0 && at < parts.length - 1 ? parts.slice(0, at + 1).join(".") : null;
    if (name === null && parts.length === 1 && layer.parameters === 0)
      layer.block = last; // a function, such as the sum of a residual
    else last = layer.block = name ?? "";
  }
  const sizes = new Map();
  for (const { block } of layers) sizes.set(block, (sizes.get(block) ?? 0) + 1);
  if (sizes.size === 1 && sizes.has("") && layers.length >= RUN_FROM)
    for (const layer of layers) {
      const first = Math.floor(layer.index / RUN_LENGTH) * RUN_LENGTH;
      layer.block = `${first} … ${Math.min(first + RUN_LENGTH, layers.length) - 1}`;
    }
  for (const layer of layers) if ((sizes.get(layer.block) ?? 2) < 2) layer.block = "";
}

/** The blocks of a model in their order. @param {Model} model */
export const blocksOf = (model) => [...new Set(model.layers.map((l) => l.block))].filter(Boolean);

/** @param {Model} model @param {Folding} folding @param {string} block */
export const isFolded = (model, folding, block) =>
  block !== "" &&
  (folding.all ?? (model.layers.length >= MANY_LAYERS && block !== model.opened)) !==
    folding.turned.has(block);

/**
 * The layers as they are shown: folded blocks are one, in every stage of its own.
 * @param {Model} model
 * @param {Folding} folding
 * @returns {{nodes: GraphNode[], wires: Wire[]}}
 */
export function foldGraph(model, folding) {
  const nodes = /** @type {GraphNode[]} */ ([]);
  const nodeOf = new Int32Array(model.layers.length);
  for (const layer of model.layers) {
    const last = nodes[nodes.length - 1];
    const folded = isFolded(model, folding, layer.block);
    if (folded && last?.folded && last.block === layer.block && last.stage === layer.stage) {
      last.layers.push(layer);
      for (const what of /** @type {const} */ ([
        "forward",
        "backward",
        "parameters",
        "activations",
      ]))
        last[what] += layer[what];
      last.output = layer.output;
    } else {
      const { stage, block, forward, backward, parameters, activations, output } = layer;
      nodes.push({
        key: folded ? `${block}@${stage}` : `${layer.index}`,
        name: folded ? block : layer.name,
        op: layer.op,
        layers: [layer],
        stage,
        block,
        folded,
        forward,
        backward,
        parameters,
        activations,
        output,
      });
    }
    nodeOf[layer.index] = nodes.length - 1;
  }
  const sizes = new Map();
  for (const { block } of model.layers) sizes.set(block, (sizes.get(block) ?? 0) + 1);
  for (const node of nodes) {
    const [only, more] = node.layers;
    const all = sizes.get(node.block);
    if (node.folded && !more)
      // alone in its stage
      Object.assign(node, { folded: false, block: "", name: only.name, key: `${only.index}` });
    else if (node.folded)
      node.op = `${node.layers.length}${all > node.layers.length ? ` of ${all}` : ""} layers`;
  }
  const wires = /** @type {Map<string, Wire>} */ (new Map());
  for (const value of model.values) {
    const from = value.from < 0 ? -1 : nodeOf[value.from];
    const to = nodeOf[value.to];
    const key = `${from}>${to}`;
    if (from === to) continue;
    const wire = wires.get(key) ?? { from, to, values: [], bytes: 0 };
    if (!wire.values.some((v) => v.from === value.from)) wire.bytes += Math.max(0, value.bytes);
    wire.values.push(value);
    wires.set(key, wire);
  }
  return { nodes, wires: [...wires.values()] };
}

/** What is folded, in words; "" if nothing is. @param {GraphNode[]} nodes */
export function foldedWords(nodes) {
  const folded = nodes.filter((n) => n.folded);
  const layers = folded.reduce((sum, n) => sum + n.layers.length, 0);
  if (!folded.length) return "";
  const names = [...new Set(folded.map((n) => n.block))];
  const some =
    names.length > 2 ? `${names[0]} to ` + `${names[names.length - 1]}` : names.join(" and ");
  return (
    `${layers} layers are folded into ` +
    `${names.length === 1 ? "one block" : `${names.length} blocks`}: ${some}`
  );
}

/** The rank in the pipeline on which a stage lies. @param {any} run @param {number} stage */
export const placeOfStage = (run, stage) =>
  run?.pipeline?.rank_of?.[stage] ?? (run?.pipeline?.ranks ? stage % run.pipeline.ranks : stage);

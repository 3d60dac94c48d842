// Models as a run's header tells them, and the messages of a pipeline over them, written out: for
// tests without a run.
import { foldGraph, modelOf } from "../../assets/scenes/model/fold.js";
import { placeOf as graphPlace } from "../../assets/scenes/model/place.js";
import { row } from "./rows.js";

const kB = 1000;
/** A layer: times in ms, bytes of one microbatch. */
const layer = (name, op, parameters, output, forward_ms, kept = output) => ({
  name,
  op,
  parameters,
  activations: kept,
  output,
  forward_ms,
  backward_ms: 2 * forward_ms,
  stage: 0,
});

/** Stages by equal time, and what crosses between them. */
export function cut(layers, edges, stages) {
  const time = (l) => l.forward_ms + l.backward_ms;
  const whole = layers.reduce((n, l) => n + time(l), 0);
  let before = 0;
  const told = layers.map((l, i) => {
    const stage = Math.max(
      Math.min(stages - 1, Math.floor(((before + time(l) / 2) / whole) * stages)),
      0,
    );
    before += time(l);
    return { ...l, stage: Math.max(stage, i ? 0 : 0) };
  });
  for (let i = 1; i < told.length; i++)
    told[i].stage = Math.min(Math.max(told[i].stage, told[i - 1].stage), told[i - 1].stage + 1);
  const count = told.at(-1).stage + 1;
  const sums = Array(count).fill(0);
  const equal = Array(count).fill(0);
  told.forEach(
    (l, i) => (
      (sums[l.stage] += time(l)),
      (equal[Math.min(count - 1, Math.floor((i / told.length) * count))] += time(l))
    ),
  );
  const cuts = Array.from({ length: count - 1 }, (_, s) => {
    const after = told.findLastIndex((l) => l.stage <= s);
    const over = new Map(
      edges.filter(([a, b]) => a <= after && b > after).map(([a, , n]) => [a, n]),
    );
    return {
      after: told[after].name,
      bytes: [...over.values()].reduce((a, b) => a + b, 0),
      values: over.size,
    };
  });
  return {
    layers: told,
    edges,
    cut: cuts,
    largest_ms: { chosen: Math.max(...sums), equal: Math.max(...equal) },
  };
}

const chain = (layers) => layers.slice(1).map((_, i) => [i, i + 1, layers[i].output]);

export function lenet(stages = 2) {
  const layers = [
    layer("conv1", "Conv2d", 624, 24.6 * kB, 0.21),
    layer("relu", "relu", 0, 24.6 * kB, 0.03),
    layer("pool1", "MaxPool2d", 0, 6.1 * kB, 0.05),
    layer("conv2", "Conv2d", 9664, 8.2 * kB, 0.3),
    layer("relu_1", "relu", 0, 8.2 * kB, 0.01),
    layer("pool2", "MaxPool2d", 0, 2 * kB, 0.02),
    layer("flatten", "flatten", 0, 2 * kB, 0.001),
    layer("fc1", "Linear", 31 * kB, 3.8 * kB, 0.1),
    layer("relu_2", "relu", 0, 3.8 * kB, 0.004),
    layer("fc2", "Linear", 40.6 * kB, 2.7 * kB, 0.12),
    layer("relu_3", "relu", 0, 2.7 * kB, 0.004),
    layer("fc3", "Linear", 3.4 * kB, 320, 0.05),
  ];
  return cut(layers, chain(layers), stages);
}

/** A small GPT: each block has two residual sums. */
export function transformer(blocks = 4, stages = 4) {
  const layers = [
    layer("tokens", "Embedding", 32 * kB, 65 * kB, 0.05),
    layer("positions", "Embedding", 16 * kB, 8 * kB, 0.02),
    layer("add", "add", 0, 65 * kB, 0.02),
  ];
  const edges = [
    [0, 2, 65 * kB],
    [1, 2, 8 * kB],
  ];
  let last = 2;
  let sum = 0;
  const put = (l, ...from) => {
    layers.push(l);
    for (const f of from) edges.push([f, layers.length - 1, layers[f].output]);
    return layers.length - 1;
  };
  for (let b = 0; b < blocks; b++) {
    const p = `blocks.${b}`;
    const n = put(layer(`${p}.norm1`, "LayerNorm", 512, 65 * kB, 0.04), last);
    const q = put(layer(`${p}.attention.queries`, "Linear", 65 * kB, 65 * kB, 0.15), n);
    const k = put(layer(`${p}.attention.keys`, "Linear", 65 * kB, 65 * kB, 0.15), n);
    const v = put(layer(`${p}.attention.values`, "Linear", 65 * kB, 65 * kB, 0.15), n);
    const a = put(
      layer(
        `scaled_dot_product_attention${b ? `_${b}` : ""}`,
        "scaled_dot_product_attention",
        0,
        65 * kB,
        0.4,
        200 * kB,
      ),
      q,
      k,
      v,
    );
    const o = put(layer(`${p}.attention.join`, "Linear", 65 * kB, 65 * kB, 0.15), a);
    const r = put(layer(`add_${++sum}`, "add", 0, 65 * kB, 0.01), last, o);
    const m = put(layer(`${p}.norm2`, "LayerNorm", 512, 65 * kB, 0.04), r);
    const u = put(layer(`${p}.widen`, "Linear", 262 * kB, 262 * kB, 0.5), m);
    const g = put(layer(`gelu${b ? `_${b}` : ""}`, "gelu", 0, 262 * kB, 0.1), u);
    const d = put(layer(`${p}.narrow`, "Linear", 262 * kB, 65 * kB, 0.5), g);
    last = put(layer(`add_${++sum}`, "add", 0, 65 * kB, 0.01), r, d);
  }
  put(
    layer("head", "Linear", 32 * kB, 33 * kB, 0.2),
    put(layer("norm", "LayerNorm", 512, 65 * kB, 0.04), last),
  );
  return cut(layers, edges, stages);
}

/** Skips like a U-net's: what the first half makes the second half needs. */
export function skips(depth = 5, stages = 4) {
  const layers = [];
  const edges = [];
  const put = (l, ...from) => {
    layers.push(l);
    for (const f of from) edges.push([f, layers.length - 1, layers[f].output]);
    return layers.length - 1;
  };
  const downs = [];
  let last = -1;
  for (let i = 0; i < depth; i++)
    (downs.push(
      (last = put(layer(`down${i}`, "Conv2d", 20 * kB, 60 * kB, 0.3), ...(last < 0 ? [] : [last]))),
    ),
      (last = put(layer(`pool${i}`, "MaxPool2d", 0, 15 * kB, 0.05), last)));
  for (let i = depth - 1; i >= 0; i--)
    last = put(
      layer(`up${i}`, "ConvTranspose2d", 20 * kB, 60 * kB, 0.3),
      put(layer(`cat${i}`, "cat", 0, 120 * kB, 0.02), last, downs[i]),
    );
  put(layer("out", "Linear", 4 * kB, 4 * kB, 0.1), last);
  return cut(layers, edges, stages);
}

export const plain = (n, stages) => {
  const layers = Array.from({ length: n }, (_, i) =>
    layer(String(i), i % 2 ? "ReLU" : "Linear", i % 2 ? 0 : 16 * kB, 8 * kB, i % 2 ? 0.02 : 0.1),
  );
  return cut(layers, chain(layers), stages);
};

/** The header's pipeline facts. */
export const facts = (ranks, stages, microbatches, replicas = 1) => ({
  schedule: "gpipe",
  flush: true,
  ranks,
  replicas,
  stages,
  microbatches,
  rank_of: Array.from({ length: stages }, (_, s) => s % ranks),
  rows: [],
  pads_ms: null,
  bubble: null,
  peaks: Array(stages).fill(microbatches),
  axes: [["pipeline", ranks]],
});

/**
 * Messages of all microbatches forward, then back, over each cut; and what memory each rank needed,
 * `held` bytes more an iteration.
 */
export function messages(
  model,
  { ranks = 0, microbatches = 4, iterations = 3, hop = 1e6, held = 2e6 } = {},
) {
  const stages = model.layers.at(-1).stage + 1;
  const rows = [];
  const K = ranks || stages;
  const ops = new Map();
  const lasts = 4 * hop * (stages + microbatches);
  const send = (from, to, start, name, microbatch, iteration, nbytes) => {
    const a = from % K;
    const b = to % K;
    const pair = `${a} ${b}`;
    const op = ops.get(pair) ?? 0;
    const what = {
      collective: "p2p",
      algorithm: "",
      op,
      iteration,
      microbatch,
      nbytes,
      name,
      slot: 0,
      chunk: 0,
      step: 0,
    };
    ops.set(pair, op + 1);
    rows.push(
      row(a, "send", start, start + hop / 2, { ...what, lane: "send", stage: from, peer: b }),
      row(b, "recv", start + hop / 2, start + hop, { ...what, lane: "recv", stage: to, peer: a }),
    );
  };
  for (let i = 0; i < iterations; i++) {
    for (let m = 0; m < microbatches; m++)
      for (let s = 0; s < stages - 1; s++) {
        send(s, s + 1, i * lasts + (m + s) * 2 * hop, "activation", m, i, model.cut[s].bytes);
        send(
          s + 1,
          s,
          i * lasts + (2 * microbatches + m + stages - s) * hop + 2 * hop * stages,
          "gradient",
          m,
          i,
          model.cut[s].bytes,
        );
      }
    for (let r = 0; r < K; r++)
      rows.push(
        row(r, "metric", (i + 1) * lasts - 1, (i + 1) * lasts - 1, {
          lane: "compute",
          name: "memory",
          value: held * (1 + r / 8) + i * 1000,
          collective: "",
          algorithm: "",
          op: -1,
          iteration: i,
        }),
      );
  }
  return rows.sort(
    (a, b) => a.rank - b.rank || (a.lane < b.lane ? -1 : a.lane > b.lane ? 1 : 0) || a.end - b.end,
  );
}

export const AUTO = { all: null, turned: new Set() };

export const OPEN = { all: false, turned: new Set() };

export const SHUT = { all: true, turned: new Set() };

export const laid = (told, folding = AUTO, width = 960) => {
  const model = modelOf({ model: told });
  const { nodes, wires } = foldGraph(model, folding);
  let place = null; // worked out where a test asks for it: laying out takes longest
  return {
    model,
    nodes,
    wires,
    get place() {
      return (place ??= graphPlace(model, nodes, wires, width));
    },
  };
};

export const CASES = [
  ["lenet 2", lenet(2)],
  ["lenet 4", lenet(4)],
  ["uncut", lenet(1)],
  ["gpt 2", transformer(4, 2)],
  ["gpt 4", transformer(4, 4)],
  ["gpt 8", transformer(4, 8)],
  ["skips 4", skips(5, 4)],
  ["24 blocks", transformer(24, 4)],
  ["200 layers", plain(200, 4)],
];

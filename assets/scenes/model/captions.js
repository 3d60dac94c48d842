// @ts-check
/**
 * What the picture of a model says in words: a layer, a value, a cut with what was planned and what
 * was measured, a stage.
 *
 * @typedef {import("./fold.js").Model} Model
 * @typedef {import("./fold.js").GraphNode} GraphNode
 * @typedef {import("./fold.js").Wire} Wire
 * @typedef {import("./traffic.js").Crossed} Crossed
 */
import { shardingOf, shardingSentence } from "./shards.js";
import { crossingAt } from "./place.js";
import { perMicrobatch } from "./traffic.js";
import { bytes, counted, duration, grouped } from "../../engine/format.js";

/** @param {number} n */
export const layersWord = (n) => counted(n, "layer");
/** @param {number} n */
const valuesWord = (n) => `${n} ${n === 1 ? "tensor" : "tensors"}`;
/** @param {number} milliseconds */
const spent = (milliseconds) => duration(milliseconds * 1e6);
const SAME = 0.005; // planned and measured are the same up to this share

/**
 * The name of a layer; one that has only a number, with its kind.
 * @param {{name: string, op: string}} layer
 */
export const layerName = ({ name, op }) => (/^\d+$/.test(name) && op ? `${op} ${name}` : name);

/** Which layers a cut lies between. @param {Model} model @param {number} border */
const between = (model, border) =>
  `between ${layerName(model.layers[model.borders[border].after])} and ` +
  `${layerName(model.layers[model.borders[border].after + 1])}`;

/** Bytes a second while an iteration lasted. @param {Crossed} crossed @param {number} border */
export function rateOf(crossed, border) {
  const cut = crossed.cuts[border];
  return cut && crossed.end > crossed.start
    ? ((cut.activation.bytes + cut.gradient.bytes) / (crossed.end - crossed.start)) * 1e9
    : NaN;
}

/**
 * A cut in one line: its name, what was planned, what was measured; of both the longest form first.
 * @param {Model} model @param {number} border @param {Crossed | null} crossed
 * @returns {{name: string, plan: string[], seen: string[]}}
 */
export function cutWords(model, border, crossed) {
  const { bytes: planned, values } = model.borders[border];
  const cut = crossed?.cuts[border];
  const size = bytes(planned);
  const name = `cut ${border + 1}`;
  const plan = [
    `${between(model, border)}: ${size} a microbatch planned, ${valuesWord(values)}`,
    `${size} a microbatch planned, ${valuesWord(values)}`,
    `${size} a microbatch planned`,
    `${size} planned`,
    size,
  ];
  if (!crossed || !cut || !(cut.activation.bytes + cut.gradient.bytes))
    return { name, plan, seen: [] };
  const a = perMicrobatch(cut.activation);
  const both = `↓ ${bytes(cut.activation.bytes)} ↑ ${bytes(cut.gradient.bytes)}`;
  const rate = `${bytes(Math.round(rateOf(crossed, border)))}/s`;
  const measured = Number.isFinite(a) ? `${bytes(Math.round(a))} measured; ` : "";
  return {
    name,
    plan: plan.slice(1),
    seen: [
      `${measured}iteration ${grouped(crossed.iteration + 1)}: ${both}, ${rate}`,
      `iteration ${grouped(crossed.iteration + 1)}: ${both}`,
      both,
      bytes(cut.activation.bytes + cut.gradient.bytes),
    ],
  };
}

/**
 * A cut under the pointer.
 * @param {Model} model
 * @param {number} border
 * @param {Crossed | null} crossed
 * @returns {string[]}
 */
export function cutLines(model, border, crossed) {
  const { bytes: planned, values } = model.borders[border];
  const over = crossingAt(model, border);
  const names = over.map((v) => (v.from < 0 ? "the input" : layerName(model.layers[v.from])));
  const lines = [
    `cut ${border + 1}, ${between(model, border)}`,
    `planned: ${bytes(planned)} a microbatch each way${values ? `, ${valuesWord(values)}` : ""}`,
  ];
  if (names.length)
    lines.push(
      "what crosses: " +
        `${names.slice(0, 4).join(", ")}${names.length > 4 ? ` and ${names.length - 4} more` : ""}`,
    );
  const cut = crossed?.cuts[border];
  if (!crossed || !cut) return lines;
  const a = perMicrobatch(cut.activation);
  const b = perMicrobatch(cut.gradient);
  const same = Math.abs(a - planned) <= SAME * planned;
  if (Number.isFinite(a))
    lines.push(
      `measured: activations ${bytes(Math.round(a))} a ` +
        `microbatch${same ? ", as planned" : ""}${Number.isFinite(b) ? `; gradients ${bytes(Math.round(b))}` : ""}`,
    );
  lines.push(
    `iteration ${grouped(crossed.iteration + 1)}: ${bytes(cut.activation.bytes)} down in ` +
      `${counted(cut.activation.parcels, "message")}, ${bytes(cut.gradient.bytes)} up in ` +
      `${cut.gradient.parcels}; ${bytes(Math.round(rateOf(crossed, border)))}/s while it ` +
      "lasted",
  );
  return lines;
}

/**
 * A layer, or a block of them.
 * @param {GraphNode} node
 * @param {Model} model
 * @param {number[]} ranks
 * @returns {string[]}
 */
export function nodeLines(node, model, ranks) {
  const where = shardingOf(model)
    ? ""
    : model.stages > 1
      ? `stage ${node.stage} on rank ${ranks[node.stage]}`
      : "";
  const all = model.layers.filter((l) => l.block === node.block).length;
  const head = node.folded
    ? `${node.name}: ` +
      `${layersWord(node.layers.length)}${all > node.layers.length ? ` of its ${all}; the others are in another stage` : ""}`
    : `${node.name}${node.op ? `: ${node.op}` : ""}`;
  const lines = [head, [where, `${bytes(node.parameters)} parameters`].filter(Boolean).join("; ")];
  if (node.forward + node.backward > 0)
    lines.push(
      `forward ${spent(node.forward)}, backward ` +
        `${spent(node.backward)}${shardingOf(model) ? " on one rank, whole" : " a microbatch"}`,
    );
  lines.push(`keeps ${bytes(node.activations)} for backward, gives ${bytes(node.output)}`);
  if (node.folded)
    lines.push(
      `${node.layers
        .slice(0, 4)
        .map((l) => l.name.slice(node.block.length + 1) || l.name)
        .join(", ")}${node.layers.length > 4 ? ", …" : ""}`,
      "open it: click",
    );
  return lines;
}

/** A value on its way. @param {Wire} wire @param {GraphNode[]} nodes @returns {string[]} */
export function wireLines(wire, nodes) {
  const a = wire.from < 0 ? "the model's input" : layerName(nodes[wire.from]);
  const b = layerName(nodes[wire.to]);
  const far = wire.from >= 0 ? nodes[wire.to].stage - nodes[wire.from].stage : 0;
  return [
    `${a} → ${b}${wire.bytes ? `: ${bytes(wire.bytes)} a microbatch` : ""}`,
    ...(far > 1
      ? [
          (
            `passes through ${far === 2 ? "a stage" : `${far - 1} stages`} that does not use ` +
            "it"
          ).replace("stages that does", "stages that do"),
        ]
      : []),
  ];
}

/**
 * @param {Model} model
 * @param {number} stage
 * @param {number} rank
 * @param {number} held  most bytes on its rank, NaN if not measured
 * @param {number | null} limit
 * @param {number} peak  microbatches in flight by the schedule, 0 if unknown
 * @returns {string[]}
 */
export function stageLines(model, stage, rank, held, limit, peak) {
  const layers = model.layers.filter((l) => l.stage === stage);
  const sum = (/** @type {"forward" | "backward" | "parameters" | "activations"} */ what) =>
    layers.reduce((n, l) => n + l[what], 0);
  const lines = [
    `stage ${stage} on rank ${rank}: ${layersWord(layers.length)}, ` +
      `${bytes(sum("parameters"))} parameters`,
  ];
  if (sum("forward") + sum("backward"))
    lines.push(`forward ${spent(sum("forward"))}, backward ${spent(sum("backward"))} a microbatch`);
  lines.push(
    `keeps ${bytes(sum("activations"))} a microbatch for ` +
      `backward${peak ? `; at most ${peak} at once: ${bytes(peak * sum("activations"))}` : ""}`,
  );
  if (Number.isFinite(held))
    lines.push(
      `rank ${rank} needed at most ${bytes(held)}${limit ? ` of ${bytes(limit)}` : ""}, measured`,
    );
  return lines;
}

/**
 * What the whole is.
 * @param {Model} model @param {Crossed | null} crossed
 * @param {boolean} [padded]  the run's computing is: what was measured before it was not
 * @returns {string}
 */
export function sentenceOf(model, crossed, padded = false) {
  const whole = layersWord(model.layers.length);
  const sharding = shardingOf(model);
  if (sharding) return shardingSentence(model, sharding);
  if (model.stages === 1)
    return (
      `The model has ${whole}, ${bytes(model.layers.reduce((n, l) => n + l.parameters, 0))} ` +
      "of parameters; it is not cut."
    );
  const times = stageTimes(model);
  const most = times.indexOf(Math.max(...times));
  const chosen = model.largest?.chosen ?? times[most];
  const equal = model.largest?.equal ?? NaN;
  const parts = [`${whole} in ${model.stages} stages.`];
  if (chosen > 0 && padded)
    parts.push(
      `Without the padding, stage ${most} computes longest, ${spent(times[most])} a microbatch.`,
    );
  else if (chosen > 0 && Math.max(...times) - Math.min(...times) < SAME * chosen)
    parts.push(`Each takes ${spent(chosen)} a microbatch.`);
  else if (chosen > 0) {
    const same = !Number.isFinite(equal) || Math.abs(equal - chosen) < SAME * chosen;
    parts.push(
      model.largest
        ? `Stage ${most} computes longest, ${spent(times[most])} a microbatch; sending included, ` +
            `at most ${spent(chosen)}${same ? "" : `, in equal numbers of layers ${spent(equal)}`}.`
        : `Stage ${most} takes longest, ${spent(chosen)} a microbatch.`,
    );
  }
  const loads = crossed ? crossed.cuts.map((c) => c.activation.bytes + c.gradient.bytes) : [];
  const widest = loads.indexOf(Math.max(...loads));
  if (crossed && loads.length > 1 && loads[0] > 0 && loads.every((n) => n === loads[0]))
    parts.push(
      `In iteration ${grouped(crossed.iteration + 1)}, ${bytes(loads[0])} crossed each cut.`,
    );
  else if (crossed && loads[widest] > 0)
    parts.push(
      `In iteration ${grouped(crossed.iteration + 1)}, ` +
        `${loads.length > 1 ? `most bytes crossed cut ${widest + 1}: ${bytes(loads[widest])}` : `${bytes(loads[0])} crossed the cut`}.`,
    );
  else {
    const plans = model.borders.map((b) => b.bytes);
    const wide = plans.indexOf(Math.max(...plans));
    parts.push(
      plans.length > 1 && plans.every((n) => n === plans[0])
        ? `Over each cut go ${bytes(plans[0])} a microbatch each way.`
        : plans.length === 1
          ? `Over the cut go ${bytes(plans[0])} a microbatch each way.`
          : `Cut ${wide + 1} is the widest: ${bytes(plans[wide])} a microbatch each way.`,
    );
  }
  return parts.join(" ");
}

/** Milliseconds of a microbatch by stage. @param {Model} model */
export const stageTimes = (model) =>
  Array.from({ length: model.stages }, (_, s) =>
    model.layers.reduce((sum, l) => sum + (l.stage === s ? l.forward + l.backward : 0), 0),
  );

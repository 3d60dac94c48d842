// @ts-check
/**
 * Where keys are besides with their server: copies in replica chains, and keys of servers that were
 * lost, which others have since. Pure functions.
 *
 * @typedef {import("./index.js").ServerIndex} ServerIndex
 * @typedef {import("../../engine/generations.js").RecoveryFact} RecoveryFact
 * @typedef {import("../../engine/generations.js").RegainedFact} RegainedFact
 * @typedef {RegainedFact & {generation: number, start: number, end: number, missing: number}} Regained
 *   start to end: when its new owner took it over; lacks: updates that its server had made and
 *   these keys do not have
 */
import { counted, grouped } from "../../engine/format.js";
import { generationRows } from "../../engine/generations.js";
import { sourceWords, updatesLostWords } from "../../engine/regained_words.js";

/**
 * Whose keys each of these servers has a copy of: those of the ones before it in the chain.
 * @param {number[]} living  servers, ascending
 * @param {number} replicas  servers that have each key
 * @returns {Map<number, number[]>}
 */
export function copiesOn(living, replicas) {
  const n = living.length;
  const more = Math.min(replicas, n) - 1;
  return new Map(
    living.map((rank, i) => [
      rank,
      Array.from({ length: Math.max(0, more) }, (_, back) => living.at(i - back - 1) ?? rank),
    ]),
  );
}

/**
 * Keys of lost servers that others have begun to take over by t, oldest first.
 * @param {ServerIndex} index
 * @param {RecoveryFact[]} recoveries
 * @param {number} t
 * @returns {Regained[]}
 */
export function regainedBy(index, recoveries, t) {
  const rows = generationRows(index.table);
  return recoveries.flatMap(({ generation, regained }) =>
    (regained ?? []).flatMap((one) => {
      const act = rows.actsOf(generation, "restore").get(one.owner);
      if (!act || act.start > t) return [];
      const update = index.servers.get(one.server)?.done.findLast((push) => push.end < act.start);
      const missing =
        one.source === "replica" || !update ? 0 : Math.max(0, update.version - one.version);
      return [{ ...one, generation, start: act.start, end: act.end, missing }];
    }),
  );
}

/** What was lost with a server, in words. @param {Regained} one */
export function lostWords(one) {
  const { source, updates_lost, missing } = one;
  const state = source === "pull" ? ", the optimizer's state begins anew" : "";
  const again =
    missing && !updates_lost ? `${counted(missing, "update")} behind, done again; ` : "";
  return `${again}${updatesLostWords(one)}${state}`;
}

/** A line of the story. @param {Regained} one */
export function regainedWords(one) {
  const whose = one.server >= 0 && one.server !== one.owner ? ` of shard ${one.server}` : "";
  return (
    `shard ${one.owner} took over ${grouped(one.elements)} keys${whose} ${sourceWords(one)}: ` +
    lostWords(one)
  );
}

/**
 * Where the keys of servers that are gone are now, in a sentence; "" where none is.
 * @param {{rank: number, gone: number, regained: Regained[]}[]} shards
 */
export function goneWords(shards) {
  const gone = shards.filter((s) => !Number.isNaN(s.gone));
  return gone
    .map(({ rank }) => {
      const taken = shards.flatMap((s) => s.regained.filter((one) => one.server === rank));
      const last = taken.filter((one) => one.generation === taken.at(-1)?.generation);
      if (!last.length) return `Shard ${rank} is gone. `;
      const owners = [...new Set(last.map((one) => one.owner))];
      const many = owners.length > 1;
      return (
        `Shard ${rank} is gone; shard${many ? "s" : ""} ${owners.join(" and ")} ` +
        `${many ? "have" : "has"} its keys, ${sourceWords(last[0])}: ${lostWords(last[0])}. `
      );
    })
    .join("");
}

/**
 * What a shard has besides its own keys, in lines.
 * @param {{rank: number, copies: number[], regained: Regained[]}} shard
 */
export function besidesWords({ copies, regained }) {
  const copied = copies.length
    ? [`it has a copy of the keys of shard${copies.length > 1 ? "s" : ""} ${copies.join(" and ")}`]
    : [];
  return [...copied, ...regained.map(regainedWords)];
}

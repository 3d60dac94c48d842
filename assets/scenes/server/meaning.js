// @ts-check
/** What training together means where some ranks serve the others, for the overview. */
import { averagesWords, processes } from "../../engine/run_words.js";

/**
 * "4 processes are training one model: one holds the parameters, 3 compute gradients."
 * @param {number} n
 * @param {number} servers
 * @param {[string, string]} serve  what one of them does, and several do
 * @param {[string, string]} [work]  what one of the others does, and several do
 */
function divisionOfLabour(
  n,
  servers,
  [one, several],
  [works, work] = ["computes gradients", "compute gradients"],
) {
  const workers = n - servers;
  return (
    `${processes(n)} are training one model: ${servers === 1 ? `one ${one}` : `${servers} ${several}`}, ` +
    `${workers === 1 ? `one ${works}` : `${workers} ${work}`}.`
  );
}

/**
 * What training together means where ranks serve parameters, or examples.
 * @param {import("../../engine/player.js").RunFacts} run
 * @returns {import("../../engine/run_words.js").Meaning | null}
 */
export function meaningOf(run) {
  const { ranks, server, inputs } = run;
  if (server?.once_per)
    return [
      divisionOfLabour(ranks, 1, ["holds the parameters", ""], ["trains", "train"]),
      "Each worker trains on the rows of its own partition, and pushes what its training has changed " +
        `once per ${server.once_per}.`,
    ];
  if (server)
    return [
      divisionOfLabour(ranks, server.servers ?? 1, ["holds the parameters", "hold the parameters"]),
      "Workers pull parameters and push gradients; a rule says how far a worker may run ahead of " +
        "the slowest, and how old a gradient may be.",
    ];
  if (!inputs) return null;
  return [
    divisionOfLabour(ranks, inputs.servers, ["serves examples", "serve examples"]),
    `Workers ask for their examples ahead of time; ${averagesWords(run)} their gradients, so that they ` +
      "stay identical.",
  ];
}

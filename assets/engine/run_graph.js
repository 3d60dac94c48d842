// @ts-check
/**
 * Which rank sends to which in a run, where its facts say so: replicas that mix with few others,
 * workers and the servers of their parameters.
 *
 * @typedef {import("./player.js").RunFacts} RunFacts
 */

/** How many ranks, the first ones, hold the parameters of a run. @param {RunFacts | null} run */
export const serversOf = (run) => run?.server?.servers ?? 0;

/**
 * Return the links of a run's own graph, as "0>1"; null: its calls tell who sends to whom.
 * @param {RunFacts | null} run
 * @returns {Set<string> | null}
 */
export function graphOf(run) {
  const edges = /** @type {[number, number, number][]} */ (run?.peers?.edges ?? []);
  if (edges.length) return new Set(edges.map(([from, to]) => `${from}>${to}`));
  const servers = serversOf(run);
  if (!servers || !run || run.ranks <= servers) return null;
  const links = /** @type {Set<string>} */ (new Set());
  for (let server = 0; server < servers; server++)
    for (let worker = servers; worker < run.ranks; worker++)
      links.add(`${worker}>${server}`).add(`${server}>${worker}`);
  return links;
}

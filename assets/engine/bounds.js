// @ts-check
/**
 * What bounds a call: what theory says that each rank sends, and how much is on its way at once.
 *
 * @typedef {import("./model.js").Call} Call
 * @typedef {import("./model.js").Row} Row
 * @typedef {import("./model.js").Flight} Flight
 */

/**
 * How many bytes each rank of a call sends by theory: chunk by chunk, of the sizes that they have in
 * this call, where theory says which rank sends which chunk how often; else its share of the whole.
 * @param {Call} call
 * @param {number[]} ranks  of the group
 * @param {number} root  -1 none: theory counts places from it
 * @param {{share: number, shares?: number[], sends?: string[]} | undefined} theory
 */
export function boundsOf(call, ranks, root, theory) {
  if (!theory || call.left_out || !(call.nbytes > 0)) return ranks.map(() => 0);
  const sizes = theory.sends ? chunkSizes(call.rows) : null;
  const first = Math.max(0, ranks.indexOf(root));
  const placed = [...ranks.slice(first), ...ranks.slice(0, first)];
  const byChunk =
    sizes &&
    !first &&
    [...sizes.keys()].every((c) => c >= 0 && c < (theory.sends?.[0].length ?? 0));
  return ranks.map((rank) => {
    const place = placed.indexOf(rank);
    const counts = theory.sends?.[place];
    if (byChunk && counts)
      return [...counts].reduce((sum, k, chunk) => sum + Number(k) * (sizes.get(chunk) ?? 0), 0);
    return (theory.shares?.[place] ?? theory.share) * call.nbytes;
  });
}

/** The bytes of each chunk: of all its pieces in one message. @param {Row[]} rows */
function chunkSizes(rows) {
  const messages = new Map(/** @type {[string, [number, number]][]} */ ([]));
  for (const r of rows) {
    if (r.kind !== "send") continue;
    const key = `${r.rank}/${r.peer}/${r.step}/${r.chunk}`;
    messages.set(key, [r.chunk, (messages.get(key)?.[1] ?? 0) + Math.max(0, r.nbytes)]);
  }
  const sizes = new Map(/** @type {[number, number][]} */ ([]));
  for (const [chunk, nbytes] of messages.values())
    sizes.set(chunk, Math.max(sizes.get(chunk) ?? 0, nbytes));
  return sizes;
}

/** The most flights at once. @param {Flight[]} flights */
export function crowdOf(flights) {
  const edges = flights
    .flatMap((f) => [
      [f.start, 1],
      [f.until, -1],
    ])
    .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let now = 0;
  let most = 0;
  for (const [, change] of edges) most = Math.max(most, (now += change));
  return most;
}

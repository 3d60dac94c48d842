// @ts-check
/**
 * What a collective asks of its ranks: how parts come together, whose each chunk is at first, and
 * which chunks each rank must hold at the end. Known by the operation and its root alone; how an
 * algorithm gets there does not matter here.
 *
 * @typedef {import("./model.js").Row} Row
 * @typedef {"sum" | "keep" | "hear"} Way  parts are added; chunks are handed on as they are; who
 *   has heard of whom is joined
 * @typedef {{way: Way, root: number, owners: Map<number, number>, chunks: number[],
 *   asks: (place: number, chunk: number) => boolean, judged: boolean}} Asked
 *   root: its rank, -1 none; owners: of chunks that are kept, the rank that has each at first;
 *   chunks: all, in order; asks: of the group's place-th rank (of an all-to-all chunk s·n + t is
 *   what place s gives to place t); judged: what is asked is known for sure
 */

const KEEPS = new Set(["broadcast", "scatter", "gather", "all_gather", "all_to_all"]);
// chunk c is rank c's part of the whole
const BY_PARTS = new Set(["scatter", "gather", "all_gather", "reduce_scatter"]);

/**
 * The root that ranks named; else, of an operation that has one, who begins or who only receives.
 * @param {string} collective
 * @param {Row[]} rows
 */
function rootOf(collective, rows) {
  const named = rows.find((r) => r.kind === "collective" && r.peer >= 0);
  if (named) return named.peer;
  const sends = rows
    .filter((r) => r.kind === "send")
    .sort((a, b) => a.step - b.step || a.start - b.start);
  if (collective === "broadcast" || collective === "scatter") return sends[0]?.rank ?? -1;
  if (collective !== "reduce" && collective !== "gather") return -1;
  const sending = new Set(sends.map((r) => r.rank));
  return rows.find((r) => r.kind === "recv" && !sending.has(r.rank))?.rank ?? -1;
}

/** Whose each chunk is: who sent it first. @param {Row[]} rows @returns {Map<number, number>} */
function firstSenders(rows) {
  const first = /** @type {Map<number, Row>} */ (new Map());
  for (const row of rows) {
    const had = first.get(row.chunk);
    if (
      row.kind === "send" &&
      (!had || row.step < had.step || (row.step === had.step && row.start < had.start))
    )
      first.set(row.chunk, row);
  }
  return new Map([...first].map(([chunk, { rank }]) => [chunk, rank]));
}

/** Whether rows of a call stand for several messages each. @param {Row[]} rows */
export const isCoarser = (rows) => rows.some((r) => r.folded);

/**
 * Whether the rows say what chunks are made of: a user's own algorithm may add where no row says
 * so, and a coarser record has lost it.
 * @param {Row[]} rows
 */
export const recordsContents = (rows) =>
  !isCoarser(rows) && !rows.some((r) => r.kind === "collective" && r.phase === "untold");

/**
 * Messages between two ranks, each a chunk of its own: its sender has it, the rank it is sent
 * to must receive it.
 * @param {Row[]} rows
 * @param {number[]} ranks
 * @param {number[]} chunks
 * @returns {Asked}
 */
function messagesAsked(rows, ranks, chunks) {
  const owners = firstSenders(rows);
  const takers = new Map(rows.filter((r) => r.kind === "send").map((r) => [r.chunk, r.peer]));
  return {
    way: "keep",
    root: -1,
    owners,
    chunks,
    asks: (place, chunk) => takers.get(chunk) === ranks[place],
    judged: true,
  };
}

/**
 * @param {{collective: string, rows: Row[], complete?: boolean}} call
 * @param {number[]} ranks  of its group, in order
 * @param {number[]} [toCome]  chunks that it will have, if it is not complete
 * @returns {Asked}
 */
export function askedOf({ collective, rows, complete = true }, ranks, toCome = []) {
  const n = ranks.length;
  const seen = new Set(
    rows
      .filter(
        (r) => (r.kind === "send" || r.kind === "recv" || r.kind === "reduce") && r.chunk >= 0,
      )
      .map((r) => r.chunk),
  );
  const parts = BY_PARTS.has(collective) && seen.size > 0 && Math.max(...seen) < n;
  const root = rootOf(collective, rows);
  const at = ranks.indexOf(root);
  if (parts) for (let c = 0; c < n; c++) seen.add(c); // a root's own part never travels
  if (!complete && collective === "all_reduce")
    // of a call that broke off, or has just begun: every rank has a part of chunks that no rank sent
    // yet
    for (let c = Math.max(...seen, ...toCome, ...rows.map((r) => r.chunk)); c >= 0; c--)
      seen.add(c);
  const chunks = [...seen].sort((a, b) => a - b);
  const owners = KEEPS.has(collective) ? firstSenders(rows) : new Map();
  if (collective === "p2p") return messagesAsked(rows, ranks, chunks);
  if (collective === "broadcast" || collective === "scatter")
    for (const c of chunks) owners.set(c, root);
  else if (owners.size) for (const c of chunks) if (!owners.has(c)) owners.set(c, ranks[c] ?? -1);
  const all = () => true;
  const none = () => false;
  const ownChunk = (/** @type {number} */ place, /** @type {number} */ chunk) => chunk === place;
  const ofRoot = (/** @type {number} */ place) => place === at;
  const asks = /** @type {Record<string, Asked["asks"]>} */ ({
    all_reduce: all,
    broadcast: all,
    all_gather: all,
    barrier: all,
    reduce: ofRoot,
    gather: ofRoot,
    scatter: ownChunk,
    reduce_scatter: ownChunk,
    all_to_all: (place, chunk) => chunk - n * Math.floor(chunk / n) === place,
  })[collective];
  const way = owners.size ? "keep" : collective === "barrier" ? "hear" : "sum";
  const known =
    !!asks &&
    recordsContents(rows) &&
    (asks !== ofRoot || at >= 0) &&
    (asks !== ownChunk || parts) &&
    (collective !== "all_to_all" || chunks.every((c) => c < n * n));
  return {
    way,
    root,
    owners,
    chunks,
    asks: known ? asks : asks === ownChunk || asks === ofRoot ? none : all,
    judged: known,
  };
}

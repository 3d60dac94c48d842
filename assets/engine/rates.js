// @ts-check
/**
 * What the rows of one call say in numbers: how fast each link was, the fastest hop, who waits
 * because of whom. Pure functions. Theory comes from outside (how many steps, how many bytes);
 * nothing here knows an algorithm.
 *
 * @typedef {import("./model.js").Call} Call
 * @typedef {import("./model.js").Row} Row
 * @typedef {import("./model.js").Flight} Flight
 * @typedef {import("./holdings.js").Holdings} Holdings
 * @typedef {import("./player.js").Known} Known
 * @typedef {ReturnType<typeof import("./model.js").frameAt>} Frame
 * @typedef {{from: number, to: number, rate: number, took: number, hop: number,
 *   flights: number, awaited: number}} LinkRate
 *   rate: bytes/s of a chunk's flight, from its send to its receipt, the median, 0 if it carried
 *   none; took: how long a flight lasted, ns, the median; hop: the least time
 *   that a chunk took for which its receiver stood waiting, ns; if there was none, that of its
 *   sends;
 *   awaited: how many of its chunks the receiver stood waiting for
 * @typedef {{starts: number[], ends: number[], nbytes: number[], steps: number[], sum: number[],
 *   distinct: number[], onward: boolean}} Sends
 *   of one rank, as they began; onward: its steps never go back
 * @typedef {{call: Call, holdings: Holdings, links: Map<string, LinkRate>,
 *   slowest: LinkRate | null, usual: number, hop: number, steps: number, edges: number[],
 *   ideal: number, bounds: number[], bound: number, sends: Map<number, Sends>, most: number, crowd: number}} Reading
 *   hop: of the fastest step, ns; steps: of theory, 0 unknown; edges: when each step would end if
 *   it were as fast as the fastest with as many bytes, none if unknown; ideal: the last of them, 0
 *   unknown; bounds: bytes that each of the group's ranks sends by theory, 0 unknown; bound: the
 *   most of them;
 *   crowd: the most chunks that are on their way at once; most: bytes that the busiest rank sent;
 *   usual: bytes/s of the links besides the slowest
 */
import { boundsOf, crowdOf } from "./bounds.js";
import { holdingsOf } from "./holdings.js";
import { chunksToCome } from "./like_call.js";
import { membersOf } from "./replayed_cells.js";
import { hostLevel } from "./levels.js";

/** @param {number[]} values */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length === 0
    ? 0
    : sorted.length % 2
      ? sorted[half]
      : (sorted[half - 1] + sorted[half]) / 2;
}

/**
 * The members of a call's group: of a call that goes on, those of an earlier one.
 * @param {import("./table.js").Table} table
 * @param {Call} call
 * @param {number} [all]  ranks of the run
 */
export function groupOf(table, call, all = 0) {
  const members = membersOf(call.rows);
  if (call.collective === "p2p" && call.group === "default" && all > 1)
    // a message says nothing of who else could have been sent one
    return Array.from({ length: Math.max(all, call.ranks) }, (_, rank) => rank);
  if (call.complete) return members;
  const { calls, passages } = table;
  for (let i = calls.length - 1; i >= 0 && i > calls.length - 512; i--) {
    const other = calls[i];
    if (!other.complete || other.group !== call.group || other.generation !== call.generation)
      continue;
    return [...new Set([...members, ...other.passages.map((p) => passages.rank[p])])].sort(
      (a, b) => a - b,
    );
  }
  return members;
}

/**
 * How long each flight's chunk took until it went on from where it came to, or had arrived there.
 * @param {Call} call
 */
export const hopsOf = (call) => call.flights.map((f) => f.until - f.start);

/**
 * Of every link that a chunk went over, how fast it was.
 * @param {Call} call
 * @param {number[]} hops
 * @returns {Map<string, LinkRate>}
 */
export function linkRates(call, hops) {
  const links = /** @type {Map<string, LinkRate & {flown: Flight[], lasted: number[]}>} */ (
    new Map()
  );
  const waited = new Set(
    call.waits
      .filter((w) => w.name !== "slots full")
      .map((w) => `${w.peer}>${w.rank}/${w.step}/${w.chunk}/${w.slot}`),
  );
  call.flights.forEach((f, i) => {
    const key = `${f.from}>${f.to}`;
    const link = links.get(key) ?? {
      from: f.from,
      to: f.to,
      rate: 0,
      took: 0,
      hop: Infinity,
      flights: 0,
      awaited: 0,
      flown: [],
      lasted: [],
    };
    links.set(key, link);
    link.flights += 1;
    // the receiver joined in when it was on its way or had long been there
    const late = (call.came.get(f.to) ?? 0) > f.start;
    if (!late) link.flown.push(f);
    // it may have lain there, its receiver busy
    if (late || !waited.has(`${key}/${f.step}/${f.chunk}/${f.slot}`)) return;
    link.awaited += 1;
    link.hop = Math.min(link.hop, hops[i]);
  });
  for (const r of call.rows) {
    const link = r.kind === "send" ? links.get(`${r.rank}>${r.peer}`) : undefined;
    if (!link || r.end <= r.start) continue;
    link.lasted.push(r.end - r.start);
  }
  return new Map(
    [...links].map(([key, { from, to, hop, flights, awaited, flown, lasted }]) => [
      key,
      {
        from,
        to,
        flights,
        awaited,
        took: median(flown.map((f) => f.end - f.start)),
        rate: median(
          flown
            .filter((f) => f.nbytes > 0 && f.end > f.start)
            .map((f) => (f.nbytes * 1e9) / (f.end - f.start)),
        ),
        hop: awaited ? hop : median(lasted),
      },
    ]),
  );
}

const TIMES = 2;
const PROOF = 4; // so many times slower; so many chunks, where no link is known to be slow

/**
 * The link that holds up the others, if there is one: even its fastest chunk took twice the others'
 * usual time, and its receiver stood waiting for it. Unless a link was slowed on purpose, it takes
 * several chunks, a wait for half of them and a core per rank to prove it: else it may be the
 * scheduler.
 * @param {Map<string, LinkRate>} links
 * @param {Set<string>} slowed  "from>to" of links that are slowed on purpose
 * @param {boolean} crowded  more ranks than cores
 */
export function slowestOf(links, slowed, crowded) {
  const [worst, ...rest] = [...links.values()].sort((a, b) => b.hop - a.hop);
  if (!rest.length) return null;
  const usual = median(rest.map((l) => l.hop));
  const made = slowed.has(`${worst.from}>${worst.to}`);
  const proof = made || (worst.flights >= PROOF && !crowded);
  const awaited = made ? worst.awaited > 0 : worst.awaited * 2 >= worst.flights;
  return proof && awaited && worst.hop >= TIMES * usual ? worst : null;
}

/** @param {Row[]} rows @returns {Map<number, Sends>} */
function sendsOf(rows) {
  const sends = /** @type {Map<number, Sends>} */ (new Map());
  const pieces = /** @type {Map<number, Set<string>>} */ (new Map());
  for (const r of rows) {
    if (r.kind !== "send") continue;
    const mine = sends.get(r.rank) ?? {
      starts: [],
      ends: [],
      nbytes: [],
      steps: [],
      sum: [],
      distinct: [],
      onward: true,
    };
    const seen = pieces.get(r.rank) ?? new Set();
    sends.set(r.rank, mine);
    pieces.set(r.rank, seen.add(`${r.step}/${r.slot}`));
    mine.starts.push(r.start);
    mine.ends.push(r.end);
    mine.nbytes.push(Math.max(0, r.nbytes));
    mine.onward &&= r.step >= (mine.steps.at(-1) ?? -1);
    mine.steps.push(r.step);
    mine.sum.push((mine.sum.at(-1) ?? 0) + Math.max(0, r.nbytes));
    mine.distinct.push(seen.size);
  }
  return sends;
}

/**
 * How far a rank is: the step it is in, the share of all steps that it has begun, its bytes.
 * @param {Sends | undefined} sends
 * @param {number} t
 * @param {number} steps  of theory, 0 unknown
 */
export function sentAt(sends, t, steps) {
  if (!sends) return { step: 0, begun: 0, nbytes: 0 };
  let low = 0;
  let high = sends.starts.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sends.starts[middle] <= t) low = middle + 1;
    else high = middle;
  }
  if (!low) return { step: 0, begun: 0, nbytes: 0 };
  const i = low - 1;
  const share = Math.min(1, (t - sends.starts[i]) / Math.max(1, sends.ends[i] - sends.starts[i]));
  const begun =
    sends.onward && steps
      ? Math.min(1, (sends.steps[i] + 1) / steps)
      : sends.distinct[i] / (sends.distinct.at(-1) ?? 1);
  return { step: sends.steps[i] + 1, begun, nbytes: sends.sum[i] - sends.nbytes[i] * (1 - share) };
}

const LIKE = 0.8; // messages are of a size if they differ by less

/**
 * When the steps of a call would end if each were as fast as the fastest message of about as many
 * bytes as its largest: a message is all that goes from one rank to another in one step, from its
 * first piece that left to its last that went on. None if its steps are not one after the other, or
 * are not those of theory.
 * @param {Call} call
 * @param {number[]} hops
 * @param {Map<number, Sends>} sends
 * @param {number} steps of theory
 */
function stepEdges(call, hops, sends, steps) {
  for (const { onward } of sends.values()) if (!onward) return [];
  const messages =
    /** @type {Map<string, {step: number, start: number, end: number, nbytes: number}>} */ (
      new Map()
    );
  call.flights.forEach((f, i) => {
    const key = `${f.from}>${f.to}/${f.step}`;
    const m = messages.get(key) ?? { step: f.step, start: Infinity, end: -Infinity, nbytes: 0 };
    messages.set(key, {
      step: f.step,
      start: Math.min(m.start, f.start),
      end: Math.max(m.end, f.start + hops[i]),
      nbytes: m.nbytes + f.nbytes,
    });
  });
  const all = [...messages.values()];
  const largest = Array(steps).fill(-1);
  const edges = /** @type {number[]} */ ([]);
  for (const { step, nbytes } of all)
    if (step >= 0 && step < steps) largest[step] = Math.max(largest[step], nbytes);
  if (largest.includes(-1)) return [];
  for (const most of largest)
    edges.push(
      (edges.at(-1) ?? 0) +
        Math.min(
          ...all
            .filter((m) => m.nbytes >= LIKE * most && LIKE * m.nbytes <= most)
            .map((m) => m.end - m.start),
        ),
    ); // an empty chunk proves nothing
  return edges;
}

/**
 * Links that are slowed on purpose, now or from the beginning, with words.
 * @param {Known} known
 * @param {Iterable<string>} [links]  "from>to": those that a call used, for what was done to all
 *   links
 * @returns {Map<string, {from: number, to: number, words: string, down: boolean}>}
 */
export function madeLinks(known, links = []) {
  const slowed = new Map(
    /** @type {[string, {from: number, to: number, words: string, down: boolean}][]} */ ([]),
  );
  const { link_levels = [], levels = [], emulated = [] } = known.run ?? {};
  for (const link of links) {
    const [from, to] = link.split(">").map(Number);
    const usual = link_levels[hostLevel(levels, from, to)];
    if (usual?.made) slowed.set(link, { from, to, words: usual.made, down: usual.down });
  }
  for (const { from, to, made: words, down } of emulated)
    slowed.set(`${from}>${to}`, { from, to, words, down });
  for (const { from, to, words, down } of known.control?.links ?? [])
    slowed.set(`${from}>${to}`, { from, to, words: down ? "cut" : `emulated: ${words}`, down });
  return slowed;
}

/**
 * The links that were slowed unlike others: where all of a call's were slowed alike, none.
 * @param {ReturnType<typeof madeLinks>} slowed
 * @param {number} all  links that the call used
 */
function setApart(slowed, all) {
  const ways = new Set([...slowed.values()].map(({ words }) => words));
  return new Set(ways.size === 1 && slowed.size >= all ? [] : slowed.keys());
}

/** @type {WeakMap<Call, Reading>} */
const readings = new WeakMap();

/**
 * All of a call that does not change with the playhead; worked out once.
 * @param {Call} call @param {Known} known
 * @returns {Reading}
 */
export function readingOf(call, known) {
  const earlier = readings.get(call);
  if (earlier) return earlier;
  const { run, table } = known;
  const holdings = holdingsOf(call, groupOf(table, call, run?.ranks), chunksToCome(table, call));
  const hops = hopsOf(call);
  const links = linkRates(call, hops);
  const sends = sendsOf(call.rows);
  const theory =
    holdings.ranks.length === run?.ranks
      ? run.theory?.[`${call.collective}/${call.algorithm}`]
      : undefined;
  const steps = theory?.steps ?? 0;
  const edges = stepEdges(call, hops, sends, steps);
  const ideal = edges.at(-1) ?? 0;
  const bounds = boundsOf(call, holdings.ranks, holdings.root, theory);
  const slowest =
    call.collective === "p2p"
      ? null
      : slowestOf(
          links,
          setApart(madeLinks(known, links.keys()), links.size),
          !!run?.cores && run.cores < run.ranks,
        ); // messages may be of any size
  const usual = median(
    [...links.values()].filter((l) => l !== slowest && l.rate > 0).map((l) => l.rate),
  );
  const reading = {
    call,
    holdings,
    links,
    slowest,
    usual,
    hop: edges.length ? Math.min(...edges.map((end, i) => end - (edges[i - 1] ?? 0))) : 0,
    steps,
    edges,
    ideal,
    bounds,
    bound: Math.max(0, ...bounds),
    sends,
    most: Math.max(0, ...[...sends.values()].map((s) => s.sum.at(-1) ?? 0)),
    crowd: crowdOf(call.flights),
  };
  readings.set(call, reading);
  return reading;
}

/**
 * What a rank that waits waits for in the end: from peer to peer, until one that does not wait
 * itself.
 * @param {Frame} frame @param {number} rank
 * @returns {{end: number, link: string, why: "link" | "late" | "busy" | "circle"}} link: "from>to"
 *   of the last step of the chain
 */
export function causeOf(frame, rank) {
  const seen = new Set([rank]);
  for (let at = rank; ; ) {
    const wait = frame.waiting.get(at);
    if (!wait) return { end: at, link: "", why: "busy" };
    const { peer } = wait;
    const room = wait.name === "slots full";
    const link = room ? `${at}>${peer}` : `${peer}>${at}`;
    const flies = !room && frame.comets.some((c) => c.from === peer && c.to === at);
    if (flies) return { end: peer, link, why: "link" };
    if (frame.away.has(peer)) return { end: peer, link, why: "late" };
    if (!frame.waiting.has(peer)) return { end: peer, link, why: "busy" };
    if (seen.has(peer)) return { end: peer, link, why: "circle" };
    seen.add(peer);
    at = peer;
  }
}

/**
 * Who of the ranks that wait at this moment wait for this in the end: no rank for itself, and in a
 * circle nobody for anybody.
 * @param {Frame} frame
 * @param {(cause: ReturnType<typeof causeOf>) => boolean} so
 */
export const heldUp = (frame, so) =>
  [...frame.waiting.keys()].filter((rank) => {
    const cause = causeOf(frame, rank);
    return cause.why !== "circle" && cause.end !== rank && so(cause);
  });

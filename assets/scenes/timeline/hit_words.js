// @ts-check
/**
 * What a mark of the timeline's lanes is, in words.
 *
 * @typedef {import("../../engine/table.js").Table} Table
 * @typedef {import("./draw.js").Hit} Hit
 */
import { bucketNumber, bucketWords, rebuiltWords } from "./buckets.js";
import { rowWords } from "./captions.js";

/**
 * Return the name of the collective that a chunk belongs to.
 * @param {Table} table
 * @param {number} p  its passage
 */
function movedIn(table, p) {
  const { passages, calls } = table;
  const op = passages.op[p];
  const group = table.text(passages.group[p]);
  return op < 0
    ? ""
    : (calls.findLast(
        (call) =>
          call.op === op && call.group === group && call.generation === passages.generation[p],
      )?.name ?? "");
}

/**
 * Return what a mark is, in words.
 * @param {Table} table
 * @param {Hit} hit
 * @param {import("./buckets.js").Buckets | null} [buckets]  of a DDP run
 */
export function hitWords(table, hit, buckets = null) {
  if (hit.row < 0) return hit.words;
  const p = table.passage[hit.row];
  const iteration = table.passages.iteration[p];
  const name = table.text(table.name[hit.row]);
  if (name === "buckets rebuilt") return rebuiltWords(hit.rank, buckets, iteration);
  const bucket =
    hit.bucket ??
    bucketNumber(table.kind[hit.row] === table.code.collective ? name : movedIn(table, p));
  return rowWords(table, hit.row, hit.words) + bucketWords(buckets, bucket, iteration);
}

// @ts-check
/**
 * From where a lost rank's part of what is trained came, in words.
 *
 * @typedef {import("./generations.js").RegainedFact} RegainedFact
 */
import { counted, grouped } from "./format.js";

/** "from the copy on rank 0" @param {RegainedFact} one */
export function sourceWords({ source, holder, version }) {
  if (source === "replica") return `from the copy on rank ${holder}`;
  if (source === "buddy")
    return (
      `from rank ${holder}'s copy, made ` +
      (version > 0 ? `after iteration ${grouped(version)}` : "before the first iteration")
    );
  if (source === "pull") return `from worker ${holder}'s latest pull, version ${grouped(version)}`;
  if (source === "checkpoint") return `from the last checkpoint, version ${grouped(version)}`;
  return "as they were in the beginning";
}

/** "3 updates lost" @param {RegainedFact} one */
export const updatesLostWords = ({ updates_lost }) =>
  `${updates_lost ? counted(updates_lost, "update") : "no update"} lost`;

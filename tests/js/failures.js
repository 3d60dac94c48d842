// @ts-check
/** Failures as the header has them (workbench/runs/failure.py, for_page), and messages reworded. */

const FIELDS = { kind: "PeerLost", peer: -1, how: "", code: 0, doing: "", found_by: -1 };

/** @param {Record<string, any>} more @returns {any} */
export const failureOf = (more) => ({
  ...FIELDS,
  rank: -1,
  text: "",
  summary: "",
  end: "",
  under_way: [],
  ...more,
});

/** The driver saw the process end. @param {number} rank @param {number} iteration @param {any[]} [under_way] */
export const killedIn = (rank, iteration, under_way = []) =>
  failureOf({
    rank,
    how: "killed",
    code: -9,
    doing: `iteration ${iteration}`,
    summary: `Rank ${rank} was killed by SIGKILL in iteration ${iteration}`,
    end: "killed by SIGKILL",
    under_way,
  });

/** A rank was in something when the run failed. @param {number} rank @param {string} doing */
export const wasIn = (rank, doing) => ({
  rank,
  words: `in ${doing}`,
  said: `in ${doing}`,
  doing,
  error: null,
});

/**
 * A rank reported that it had lost another.
 * @param {number} rank
 * @param {{rank: number, peer: number, doing: string, found_by: number}} error
 */
export const hasLost = (rank, error) => {
  const said = `rank ${error.rank} ended while rank ${error.peer} was in ${error.doing}`;
  return { rank, words: said, said, doing: "", error: { ...FIELDS, how: "ended", ...error } };
};

/** Every message for people in other words; all data stays. @param {any} failure */
export const reworded = (failure) => ({
  ...failure,
  text: "Etwas ist schiefgegangen",
  summary: "Es ging nicht gut aus",
  end: "weg",
  under_way: failure.under_way.map((/** @type {any} */ one) => ({
    ...one,
    words: `mitten in ${one.rank}`,
    said: `mitten in ${one.rank}`,
  })),
});

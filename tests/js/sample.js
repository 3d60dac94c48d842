// Cases of a sweep: all of them under `make check` and `make test-all`, some under `make test`.

/** The cases that a test takes. @template T @param {T[]} cases @param {number} [most] */
export const sample = (cases, most = 1) => (process.env.SAMPLE ? cases.slice(0, most) : cases);

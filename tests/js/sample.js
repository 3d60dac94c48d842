// Cases of a sweep: all of them under `make check` and `make test-all`, some under `make test`.

/** The cases that a test takes. @template T @param {T[]} cases @param {number} [most] */
export const sample = (cases, most = 1) => (process.env.SAMPLE ? cases.slice(0, most) : cases);

/** The cases without those that are only larger. @template T @param {[string, T][]} cases @param {string[]} larger */
export const smaller = (cases, larger) =>
  process.env.SAMPLE ? cases.filter(([name]) => !larger.includes(name)) : cases;

// @ts-check
/**
 * The mesh of a pipeline with replicas: rows are data, columns the pipeline's ranks. It shows which
 * ranks pass activations on and which ones add up their gradients, how many bytes that were and how
 * long it took; and it chooses the replica on show.
 *
 * @typedef {import("./selection.js").Pass} Pass
 * @typedef {import("./plan.js").PipelineFacts} PipelineFacts
 * @typedef {{place: number, tensors: number, nbytes: number, ns: number, waits: number,
 *   last: number}} Joined  ns: once all had come; waits: of the first for the last, which is `last`
 */
import { bytes, duration } from "../../engine/format.js";

const MESH_CAPTION = 8; // columns of which each says what it added up
const MESH_NUMBERED = 16;

/**
 * What each rank's gradients were added up with, over the replicas, in this iteration; null:
 * nothing yet.
 * @param {Pass} pass
 * @returns {(Joined | null)[]}
 */
export function joinedOf({ joins, facts }) {
  return Array.from({ length: facts.ranks }, (_, place) => {
    const calls = /** @type {Map<number, import("./index.js").Join[]>} */ (new Map());
    const joined = { place, tensors: 0, nbytes: 0, ns: 0, waits: 0, last: -1 };
    for (const join of joins)
      if (join.rank % facts.ranks === place)
        calls.set(join.op, [...(calls.get(join.op) ?? []), join]);
    let longest = 0;
    for (const call of calls.values()) {
      if (call.length < facts.replicas) continue; // not all are through
      const came = call.map(({ start }) => start);
      const last = Math.max(...came);
      const waited = last - Math.min(...came);
      joined.tensors += 1;
      joined.nbytes += call[0].nbytes;
      joined.ns += Math.max(...call.map(({ end }) => end)) - last;
      joined.waits += waited;
      if (waited >= longest) ((longest = waited), (joined.last = call[came.indexOf(last)].rank));
    }
    return joined.tensors ? joined : null;
  });
}

/** Bytes that this replica's stages passed on in this iteration. @param {Pass} pass */
export function passedOn({ attempt, facts, replica }) {
  const sum = { activation: 0, gradient: 0 };
  for (const { from, what, nbytes } of attempt?.hops.values() ?? [])
    if (Math.floor(from / facts.ranks) === replica) sum[what] += nbytes;
  return sum;
}

/**
 * What the axes of the mesh are for, with what was measured.
 * @param {Pass | null} pass
 * @returns {string[]}
 */
export function meshLines(pass) {
  const sums = pass ? passedOn(pass) : { activation: 0, gradient: 0 };
  const joined = pass ? joinedOf(pass).filter((one) => one !== null) : [];
  const most = joined.reduce((a, b) => (b.ns > a.ns ? b : a), joined[0]);
  return [
    `→ pipeline: activations${sums.activation ? ` ${bytes(sums.activation)}` : ""}, ` +
      `gradients back${sums.gradient ? ` ${bytes(sums.gradient)}` : ""}`,
    "↕ data: gradients " +
      `all-reduced${most ? `, ${bytes(joined.reduce((sum, one) => sum + one.nbytes, 0))} in all, ${duration(most.ns)} at most` : ""}`,
  ];
}

/** One column in words. @param {Pass} pass @param {Joined | null} joined @param {number} place */
export function joinedWords({ facts }, joined, place) {
  const ranks = Array.from(
    { length: facts.replicas },
    (_, replica) => replica * facts.ranks + place,
  ).join(", ");
  if (!joined) return `ranks ${ranks}: gradients not added up yet`;
  const wait =
    joined.waits > joined.ns
      ? `; before that others waited ${duration(joined.waits)} for rank ${joined.last}`
      : "";
  return (
    `ranks ${ranks}: ${joined.tensors} tensor${joined.tensors === 1 ? "" : "s"}, ` +
    `${bytes(joined.nbytes)} all-reduced in ${duration(joined.ns)} once all had come${wait}`
  );
}

export class PipelineMesh {
  /**
   * @param {HTMLElement} home
   * @param {(replica: number, rank: number | null) => void} choose  a replica, and the rank if one
   *   was meant
   */
  constructor(home, choose) {
    this.home = home;
    this.choose = choose;
    this.key = "";
    this.drawn = /** @type {Pass | null | undefined} */ (undefined);
    this.rows = /** @type {HTMLElement[]} */ ([]);
    home.setAttribute("role", "group");
    home.onkeydown = (event) => {
      const way = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      const at = this.rows.indexOf(/** @type {HTMLElement} */ (event.target));
      const next = this.rows[at + (way ?? 0)];
      if (!way || at < 0) return;
      event.preventDefault();
      event.stopPropagation();
      if (!next) return;
      next.focus();
      this.choose(at + way, null);
    };
  }

  /**
   * @param {PipelineFacts | null} facts
   * @param {number} replica  that is on show
   * @param {Pass | null} pass
   * @param {number} chosen  rank, -1: none
   */
  show(facts, replica, pass, chosen) {
    this.home.hidden = !facts || facts.replicas < 2;
    if (!facts || this.home.hidden) return;
    const key = `${facts.replicas} ${facts.ranks}`;
    if (key !== this.key) this.#build(facts, key);
    this.rows.forEach((row, at) => row.setAttribute("aria-pressed", String(at === replica)));
    for (const cell of /** @type {NodeListOf<HTMLElement>} */ (
      this.home.querySelectorAll("[data-rank]")
    ))
      cell.classList.toggle("on", Number(cell.dataset.rank) === chosen);
    if (pass === this.drawn) return;
    this.drawn = pass;
    const joined = pass ? joinedOf(pass) : [];
    const lines = meshLines(pass);
    [...this.home.querySelectorAll(".wb-pl-axes span")].forEach(
      (line, i) => (line.textContent = lines[i]),
    );
    [
      .../** @type {NodeListOf<HTMLElement>} */ (this.home.querySelectorAll("[data-place]")),
    ].forEach((cell, place) => {
      const one = joined[place] ?? null;
      cell.textContent =
        one && facts.ranks <= MESH_CAPTION ? `${bytes(one.nbytes)}\n${duration(one.ns)}` : "";
      cell.title = pass ? joinedWords(pass, one, place) : "";
    });
  }

  /** @param {PipelineFacts} facts @param {string} key */
  #build({ replicas, ranks, axes }, key) {
    this.key = key;
    this.drawn = undefined;
    const make = (/** @type {string} */ tag, /** @type {string} */ name, text = "") =>
      Object.assign(document.createElement(tag), { className: name, textContent: text });
    const places = Array.from({ length: ranks }, (_, place) => place);
    const table = make("div", `wb-pl-cells${ranks > MESH_CAPTION ? " many" : ""}`);
    const named = (
      axes ?? [
        ["data", replicas],
        ["pipeline", ranks],
      ]
    )
      .map(([name, size]) => `${name} ${size}`)
      .join(" × ");
    this.rows = Array.from({ length: replicas }, (_, replica) => {
      const row = make("button", "");
      const first = replica * ranks;
      row.append(
        make("span", "name", `replica ${replica}`),
        ...places.map((place) => {
          const cell = make("i", "", ranks <= MESH_NUMBERED ? String(first + place) : "");
          cell.style.background = `var(--s${place % 8})`; // as the model's picture has its stages
          cell.style.color = `var(--on-s${place % 8})`;
          cell.dataset.rank = String(first + place);
          return cell;
        }),
      );
      row.setAttribute("aria-label", `replica ${replica}, ranks ${first} to ${first + ranks - 1}`);
      row.title = `show replica ${replica}, ranks ${first} to ${first + ranks - 1}`;
      row.onclick = (event) => {
        const rank = /** @type {HTMLElement} */ (event.target).dataset.rank;
        this.choose(replica, rank === undefined ? null : Number(rank));
      };
      return row;
    });
    const sums = make("div", "sums");
    const lines = make("p", "wb-pl-axes");
    sums.append(
      make("span", "name", "↕ all-reduce"),
      ...places.map((place) => {
        const cell = make("b", "");
        cell.dataset.place = String(place);
        return cell;
      }),
    );
    lines.append(make("span", ""), make("span", ""));
    table.append(...this.rows, sums);
    this.home.setAttribute("aria-label", `Mesh of the ranks, ${named}`);
    this.home.replaceChildren(table, lines);
  }
}

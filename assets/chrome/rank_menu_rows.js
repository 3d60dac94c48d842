// @ts-check
/**
 * The rows of a rank's menu and of a link's.
 *
 * @typedef {import("../engine/player.js").Known} Known
 * @typedef {import("./rank_menu.js").RankMenu} RankMenu
 */
import { BANDWIDTHS, FACTORS, LATENCIES, canAddRank, typedValue } from "../engine/actions.js";
import { againWords, isForNextRun, offersLinks } from "../engine/trials.js";
import { piece } from "./targets.js";

/**
 * What can be done to a rank: its compute time, its data, its process.
 * @param {RankMenu} menu
 * @param {HTMLElement} rows
 * @param {number} rank
 */
export function rankRows(menu, rows, rank) {
  const control = () => menu.stage.known.control;
  const frozen = () => !!control()?.frozen.includes(rank);
  menu.marks = [];
  const speeds = FACTORS.map((factor) =>
    menu.button(
      factor > 1 ? `×${factor}` : "its own",
      () => ({ verb: "slow", args: { rank, factor } }),
      () => (control()?.slow[rank] ?? 1) === factor,
      factor === 1,
    ),
  );
  menu.row(rows, "Compute time", speeds);
  const corrupt = menu.button(
    "Corrupt its next minibatch",
    () => ({ verb: "corrupt", args: { rank } }),
    () => !!control()?.corrupts?.includes(rank),
  );
  const data = menu.row(rows, "Its data", [corrupt]);
  menu.marks.push(() => (data.hidden = !control()?.loads?.includes(rank)));
  const freeze = menu.button(
    "",
    () => ({ verb: frozen() ? "thaw" : "freeze", args: { rank } }),
    frozen,
  );
  menu.marks.push(() => (freeze.textContent = frozen() ? "Thaw" : "Freeze"));
  const kill = menu.button("✕ Kill …", () => ({ verb: "kill", args: { rank } }));
  kill.classList.add("fatal");
  const sure = piece("button", "wb-action fatal", `Kill rank ${rank}, for good`);
  const keep = piece("button", "wb-action", "Keep it");
  kill.onclick = () => menu.ask(true, keep);
  sure.onclick = () => {
    menu.ask(false, menu.menu);
    menu.do({ verb: "kill", args: { rank } });
  };
  keep.onclick = () => menu.ask(false, kill);
  menu.row(rows, "Its process", [freeze, kill, keep, sure]);
  menu.marks.push(() => {
    kill.hidden = freeze.hidden = menu.sure;
    sure.hidden = keep.hidden = !menu.sure;
  });
  runRows(menu, rows, rank);
}

/**
 * What can be done to the run: who trains in it, a checkpoint. Only what this run allows.
 * @param {RankMenu} menu
 * @param {HTMLElement} rows
 * @param {number} rank
 */
function runRows(menu, rows, rank) {
  const run = menu.stage.known.run;
  const notice = menu.button("Give notice", () => ({ verb: "preempt", args: { rank } }));
  const remove = menu.button("Remove", () => ({ verb: "remove_rank", args: { rank } }));
  const add = menu.button("Add a rank", () => ({ verb: "add_rank", args: {} }));
  if (run?.recovers)
    menu.row(rows, "Its membership", run.elastic ? [notice, remove, add] : [notice]);
  menu.marks.push(() => (add.hidden = !canAddRank(menu.stage.known)));
  if (run?.checkpoints)
    menu.row(rows, "The run", [
      menu.button("Write a checkpoint now", () => ({ verb: "checkpoint", args: {} })),
    ]);
}

/**
 * What can be done to a link, in one direction or both: latency, bandwidth, contact.
 * @param {RankMenu} menu
 * @param {HTMLElement} rows
 * @param {number} from
 * @param {number} to
 */
export function linkRows(menu, rows, from, to) {
  const link = () => menu.link;
  const both = document.createElement("input");
  both.type = "checkbox";
  menu.marks = [];
  const action = (/** @type {Record<string, any>} */ values) => ({
    verb: "link",
    args: { source: from, target: to, ...values, ...(both.checked ? { both: true } : {}) },
  });
  for (const what of /** @type {const} */ (["latency", "bandwidth"])) {
    const choices = what === "latency" ? LATENCIES : BANDWIDTHS;
    const so = (/** @type {string} */ value) =>
      (what === "latency" ? `${link().latency_ms} ms` : link().bandwidth) === value;
    const short = (/** @type {string} */ value) =>
      what === "latency" ? value : value.replace("unlimited", "none").replace("bit/s", "");
    const typed = typedInput(menu, what, (value) => menu.do(action({ [what]: value })));
    menu.row(rows, what === "latency" ? "Latency" : "At most, bit/s", [
      ...choices.map((value) =>
        menu.button(
          short(value),
          () => action({ [what]: value }),
          () => so(value),
          value === choices[0],
        ),
      ),
      typed,
    ]);
  }
  const cut = menu.button(
    "",
    () => action({ down: !link().down }),
    () => link().down,
  );
  const label = piece("label", "wb-rank-menu-both");
  cut.classList.add("fatal");
  menu.marks.push(() => (cut.textContent = link().down ? "Restore the link" : "✂ Cut the link"));
  label.append(both, ` both directions, ${from} ↔ ${to}`);
  menu.row(rows, "Contact", [cut, label]);
  menu.marks.push(() => (cut.hidden = isForNextRun(menu.stage.known, menu.target)));
  againRow(menu, rows, both);
}

/**
 * Run the experiment again with the link as it is: there as soon as it is another than at first.
 * @param {RankMenu} menu
 * @param {HTMLElement} rows
 * @param {HTMLInputElement} both
 */
function againRow(menu, rows, both) {
  const button = /** @type {HTMLButtonElement} */ (
    piece("button", "wb-action", "Run again with this link")
  );
  const row = menu.row(rows, "Side by side", [button]);
  button.onclick = () => menu.again(both.checked);
  button.onpointerenter = button.onfocus = () => menu.tell(againWords(menu.stage.known));
  button.onpointerleave = () => menu.tell("");
  menu.marks.push(() => {
    const { known } = menu.stage;
    const { latency_ms, bandwidth, down } = menu.link;
    const another = menu.undo.length > 0 || latency_ms > 0 || bandwidth !== BANDWIDTHS[0];
    row.hidden = !offersLinks(known) || !!known.run?.trials?.starting || !another || down;
  });
}

/**
 * A field for a latency or bandwidth that no button has.
 * @param {RankMenu} menu
 * @param {"latency" | "bandwidth"} what
 * @param {(value: string) => void} send
 */
function typedInput(menu, what, send) {
  const typed = document.createElement("input");
  Object.assign(typed, {
    className: "wb-typed",
    placeholder: what === "latency" ? "other, ms" : "other, Mbit/s",
    size: 10,
  });
  typed.setAttribute(
    "aria-label",
    what === "latency" ? "Other latency, in milliseconds" : "Other bandwidth, in Mbit/s",
  );
  typed.onkeydown = (event) => {
    if (event.key !== "Enter") return;
    const value = typedValue(typed.value, what);
    if (value) send(value);
    else
      menu.answer(
        false,
        `“${typed.value}” is no ${what}: write a number, such as ` +
          `${what === "latency" ? "30 ms" : "25 Mbit/s"}.`,
      );
  };
  typed.onfocus = () => menu.tell("A number, then Enter.");
  return typed;
}

// @ts-check
/**
 * The ranks' own time, set apart from the reader's: an amber frame that says what all ranks do, and
 * holds, slows, steps and stops them.
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("./stage.js").Look} Look
 */
import { MOTIONS, fittedMotion, measuredCall, ranksWords, whyNot } from "../engine/actions.js";
import { refreshRankMenu } from "./rank_menu.js";
import { piece } from "./targets.js";
import { grouped } from "../engine/format.js";

/**
 * The amber frame at the right of the time bar, with what the ranks do, and what holds and stops them; and
 * another one with what slows and steps all of them.
 * @param {HTMLElement} body @param {HTMLElement} more @param {Stage} stage
 */
export function ranksControl(body, more, stage) {
  body.setAttribute("role", "group");
  body.setAttribute("aria-label", "The ranks themselves");
  const words = piece("span", "wb-ranks-now");
  const answer = piece("span", "wb-ranks-answer");
  const motion = document.createElement("select");
  const pick = piece("label", "wb-pick");
  const hold = piece("button", "wb-hold");
  const stop = piece("button", "wb-stop", "■ Stop");
  const steps = piece("span", "wb-group");
  answer.setAttribute("role", "alert");
  pick.append(piece("span", "wb-sr", "Slow motion of the ranks"), motion);
  for (const unit of ["chunk", "step", "iteration"]) {
    const button = steps.appendChild(piece("button", "wb-one", unit));
    button.title = `let every rank go on by one ${unit}`;
    button.setAttribute("aria-label", button.title);
    button.onclick = () => act("step", { count: 1, unit });
  }
  body.append(words, hold, stop, answer);
  more.append(pick, steps);
  more.setAttribute("role", "group");
  more.setAttribute("aria-label", "More of the ranks themselves");
  const act = async (/** @type {string} */ verb, /** @type {Record<string, any>} */ args) => {
    const reply = await stage.act(verb, args);
    answer.textContent = reply.ok ? "" : reply.words;
    stage.touch();
  };
  hold.onclick = () => act(stage.known.control?.held ? "resume" : "pause", {});
  hold.title = "holds the ranks themselves, not the picture: H";
  stop.onclick = () => act("stop", {});
  stop.title = "the run ends after the iteration that is under way; what was recorded stays";
  motion.append(
    ...MOTIONS.map(
      (factor) =>
        new Option(
          factor > 1 ? `slow motion ×${grouped(factor)}` : "no slow motion",
          String(factor),
        ),
    ),
    new Option("slow motion to fit", "fit"),
  );
  let asked = -Infinity; // when the reader last chose: the run's answer is on its way
  motion.onchange = () => {
    const factor = motion.value === "fit" ? fitted() : Number(motion.value);
    asked = performance.now();
    act("slow_motion", { factor });
  };
  let measured = { key: "", motion: 1 };
  const fitted = () => {
    const flights = stage.playback.open(measured.key)?.flights ?? [];
    return fittedMotion(flights, new Set(flights.map((f) => f.step)).size, measured.motion);
  };
  /** The factor may be one that another page or the program has set. @param {number} factor */
  const chosen = (factor) => {
    if (performance.now() - asked < 1000) return;
    let option = [...motion.options].find((o) => Number(o.value) === factor);
    if (!option)
      motion.add(
        (option = new Option(`slow motion ×${grouped(factor)}`, String(factor))),
        motion.options.length - 1,
      );
    if (motion.value !== option.value) motion.value = option.value;
  };
  return {
    /** @param {Look} look */
    say({ known }) {
      const why = whyNot(known);
      const held = !!known.control?.held && !why;
      const text = `Ranks: ${ranksWords(known)}`;
      if (words.textContent !== text) words.textContent = text;
      const label = held ? "▶ Let them run" : "■ Hold the ranks";
      if (hold.textContent !== label) hold.textContent = label;
      // what cannot be done is not offered: only ranks that are held take steps
      body.classList.toggle("wb-words-only", !!why);
      for (const item of [more, hold, stop]) item.hidden = !!why;
      steps.hidden = !held;
      body.title = why;
      if (why) answer.textContent = "";
      chosen(known.control?.slow_motion ?? 1);
      measured = measuredCall(known, measured);
      refreshRankMenu(stage);
    },
  };
}

// @ts-check
/**
 * The texts of a stage, brought up to date four times a second: its title, what is known of the run,
 * what the picture is, what was made by us, and the sentence of the scene.
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("./stage.js").Look} Look
 */
import { whyNot } from "../engine/actions.js";
import { badge, factsOf, grouped, meter } from "../engine/format.js";
import { heldWithin } from "../engine/holds.js";
import { iterationThen } from "../engine/iteration_then.js";
import { behindOf, isOver } from "../engine/player.js";
import { showBottleneck } from "./bottleneck.js";

/** @param {Stage} stage @param {Look} look */
export function refreshTexts(stage, look) {
  const { known } = look;
  const { root, view } = stage;
  const put = (/** @type {string} */ selector, /** @type {string} */ text) => {
    const node = stage.$(selector);
    if (node.textContent !== text) node.textContent = text;
  };
  put(".wb-top b", view.title(look));
  // a picture without a run: there is no time to go through
  root.classList.toggle("alone", !!known.run?.alone);
  put(".wb-facts", factsOf(known, iterationThen(look)));
  const behind = behindOf(known, look.t, look.at);
  const held = heldWithin(known.table, look.t, look.t + behind); // a hold is nobody's
  const real = known.table.rows ? badge(look, behind - held, stage.playback.player) : "";
  put(".wb-real", real);
  stage.$(".wb-top").title = [stage.$(".wb-facts").textContent, real].filter(Boolean).join(" · ");
  const beside = `${stage.wide} ${stage.$(".wb-top").textContent?.length}`; // what room they have
  refreshChips(
    stage.$(".wb-made"),
    [
      ...(known.run?.emulated.map((link) => link.words) ?? []),
      ...(known.run?.notes ?? []),
      ...(view.badges?.(look) ?? []),
      ...motionNow(look),
    ],
    beside,
  );
  put(".wb-question", known.run?.question ?? "");
  stage.$(".wb-question").hidden = !known.run?.question;
  stage.trials.say(known);
  stage.knobs.say(known);
  stage.walk.say(look);
  showBottleneck(stage.$(".wb-why"), known.run?.bottleneck);
  stage.$(".wb-hold-hint").hidden = !!whyNot(known);
  put(".wb-meter", meter(known));
  stage
    .$(".wb-meter")
    .classList.toggle("lossy", !!(known.counters?.dropped || known.counters?.coarser));
  const trouble = stage.wire.trouble(look.at);
  const words = trouble || view.sentence(look);
  put(".wb-say span", words);
  const say = stage.$(".wb-say");
  if (say.title !== words) say.title = words; // it has so many lines, and no more
  root.classList.toggle("cut-off", !!trouble);
}

/** That the ranks are in slow motion: a chip, as what we made is; none where the past is shown. @param {import("./stage.js").Look} look */
const motionNow = ({ known, live }) =>
  live && !isOver(known) && (known.control?.slow_motion ?? 1) > 1
    ? [`ranks slowed ×${grouped(known.control?.slow_motion ?? 1)}`]
    : [];

/**
 * What was made by us, a chip each; those that have no room are one chip, which counts them.
 * @param {HTMLElement} chips
 * @param {string[]} texts
 * @param {string} beside  changes with the room
 */
function refreshChips(chips, texts, beside) {
  const key = [...texts, beside].join("\n");
  if (chips.dataset.words === key) return;
  chips.dataset.words = key;
  const chip = (/** @type {string} */ textContent, title = "") =>
    Object.assign(document.createElement("span"), {
      className: "wb-badge made",
      textContent,
      title,
    });
  chips.replaceChildren(...texts.map((words) => chip(words)));
  for (let shown = texts.length - 1; shown >= 0 && texts.length > 1; shown--) {
    if (chips.scrollWidth <= chips.clientWidth) return;
    const rest = texts.slice(shown);
    const words = shown ? `+${rest.length}` : `${rest.length} made by us`;
    chips.replaceChildren(
      ...texts.slice(0, shown).map((each) => chip(each)),
      chip(words, rest.join(" · ")),
    );
  }
  const [only] = chips.children;
  if (texts.length > 1 && only.scrollWidth > only.clientWidth)
    only.textContent = `+${texts.length}`;
}

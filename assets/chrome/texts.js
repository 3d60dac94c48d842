// @ts-check
/**
 * The texts of a stage, brought up to date four times a second: its title, what is known of the run,
 * what the picture is, what was made by us, and the sentence of the scene.
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("./stage.js").Look} Look
 */
import { badge, factsOf, meter } from "../engine/format.js";
import { nowOf } from "../engine/player.js";
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
  put(".wb-facts", factsOf(known));
  const behind = nowOf(known, look.at) - look.t;
  const real = known.table.rows ? badge(look, behind, stage.playback.player) : "";
  put(".wb-real", real);
  stage.$(".wb-top").title = [stage.$(".wb-facts").textContent, real].filter(Boolean).join(" · ");
  refreshChips(stage.$(".wb-made"), [
    ...(known.run?.emulated.map((link) => link.words) ?? []),
    ...(known.run?.notes ?? []),
    ...(view.badges?.(look) ?? []),
  ]);
  put(".wb-question", known.run?.question ?? "");
  stage.$(".wb-question").hidden = !known.run?.question;
  stage.trials.say(known);
  showBottleneck(stage.$(".wb-why"), known.run?.bottleneck);
  put(".wb-meter", meter(known));
  stage.$(".wb-meter").classList.toggle("lossy", !!known.counters?.dropped);
  const trouble = stage.wire.trouble(look.at);
  const words = trouble || view.sentence(look);
  put(".wb-say span", words);
  const say = stage.$(".wb-say");
  if (say.title !== words) say.title = words; // it has so many lines, and no more
  root.classList.toggle("cut-off", !!trouble);
}

/** What was made by us, a chip each. @param {HTMLElement} chips @param {string[]} texts */
function refreshChips(chips, texts) {
  if (chips.dataset.words === texts.join("\n")) return;
  chips.dataset.words = texts.join("\n");
  chips.replaceChildren(
    ...texts.map((words) =>
      Object.assign(document.createElement("span"), {
        className: "wb-badge made",
        textContent: words,
      }),
    ),
  );
}

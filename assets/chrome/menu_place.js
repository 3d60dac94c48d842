// @ts-check
/**
 * Where the card of a rank or a link stands: beside its disc, clear of it and of its links; where the
 * picture has no room, or nothing that could be pointed at, beside or below the scene.
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("../engine/actions.js").Target} Target
 * @typedef {import("../engine/card_place.js").Box} Box
 */
import { freePlace } from "../engine/card_place.js";

/**
 * The boxes of a target's discs, and the ways of its links, in px of the scene's own place.
 * @param {Stage} stage @param {Target} target @param {(rect: DOMRect) => Box} boxOf
 */
function marksOf(stage, target, boxOf) {
  const spots = /** @type {HTMLElement[]} */ ([
    ...stage.root.querySelectorAll(".wb-scenes > :not([hidden]) .wb-co-spots > *"),
  ]);
  const boxes = new Map(
    spots.map((one) => [
      one.dataset.code ?? one.dataset.rank ?? "",
      boxOf(one.getBoundingClientRect()),
    ]),
  );
  const wanted = "rank" in target ? [target.rank] : [target.from, target.to];
  const ways = [...boxes.keys()]
    .map((code) => code.split(">"))
    .filter(([from, to]) =>
      "rank" in target
        ? to !== undefined && [from, to].includes(String(target.rank))
        : from === String(target.from) && to === String(target.to),
    )
    .map((ends) =>
      ends.map((rank) => {
        const { x, y, w, h } = boxes.get(rank) ?? { x: 0, y: 0, w: 0, h: 0 };
        return { x: x + w / 2, y: y + h / 2 };
      }),
    );
  const marks = wanted.flatMap((rank) => boxes.get(String(rank)) ?? []);
  return { marks, ways: /** @type {any} */ (ways) };
}

/** Put the card where it stands now. @param {Stage} stage @param {HTMLElement} card @param {Target} target */
export function placeCard(stage, card, target) {
  const main = /** @type {HTMLElement} */ (stage.$(".wb-main"));
  const home = main.getBoundingClientRect();
  const scale = home.width / main.offsetWidth || 1;
  const boxOf = (/** @type {DOMRect} */ r) => ({
    x: (r.left - home.left) / scale,
    y: (r.top - home.top) / scale,
    w: r.width / scale,
    h: r.height / scale,
  });
  const { marks, ways } = marksOf(stage, target, boxOf);
  const narrow = stage.root.classList.contains("narrow");
  if (!card.isConnected) main.append(card);
  card.classList.add("card");
  const line = boxOf(stage.$(".wb-time").getBoundingClientRect()).y; // at the foot of the window
  const room = { x: 0, y: 0, w: main.offsetWidth, h: Math.min(main.offsetHeight, line - 4) };
  const size = { w: card.offsetWidth, h: card.offsetHeight };
  const place = marks.length && !narrow ? freePlace(size, room, marks, ways) : null;
  card.classList.toggle("card", !!place);
  const parent = place ? main : stage.$(".wb-menu-place");
  if (card.parentElement !== parent) parent.append(card);
  card.style.left = place ? `${place.x}px` : "";
  card.style.top = place ? `${place.y}px` : "";
}

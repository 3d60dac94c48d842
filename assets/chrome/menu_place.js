// @ts-check
/**
 * Where the card of a rank or a link stands: beside its disc, clear of it, of its links, of other discs and
 * of the scene's other pictures. Where there is no such place, or nothing that could be pointed at, it
 * stands beside the scene; where nothing stands beside it, the card may lie over another picture.
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("../engine/actions.js").Target} Target
 * @typedef {import("../engine/card_place.js").Box} Box
 */
import { clearPlace } from "../engine/card_place.js";

const PICTURES = ".wb-scenes > :not([hidden]) .wb-matrix"; // beside the one with the discs

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
  const discs = [...boxes].filter(([code]) => !code.includes(">")).map(([, box]) => box);
  return { marks, discs, ways: /** @type {any} */ (ways) };
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
  const { marks, discs, ways } = marksOf(stage, target, boxOf);
  const { classList } = stage.root;
  const pictures = [...stage.root.querySelectorAll(PICTURES)].map((one) =>
    boxOf(one.getBoundingClientRect()),
  );
  if (!card.isConnected) main.append(card);
  card.classList.add("card");
  const line = boxOf(stage.$(".wb-time").getBoundingClientRect()).y; // at the foot of the window
  const width = /** @type {HTMLElement} */ (stage.$(".wb-scenes")).offsetWidth;
  const room = { x: 0, y: 0, w: width, h: Math.min(main.offsetHeight, line - 4) };
  const size = { w: card.offsetWidth, h: card.offsetHeight };
  const around = { marks, ways, discs, pictures };
  const pointed = marks.length && !classList.contains("narrow");
  const place = pointed ? clearPlace(size, room, around, classList.contains("wide")) : null;
  card.classList.toggle("card", !!place);
  const parent = place ? main : stage.$(".wb-menu-place");
  if (card.parentElement !== parent) parent.append(card);
  card.style.left = place ? `${place.x}px` : "";
  card.style.top = place ? `${place.y}px` : "";
}

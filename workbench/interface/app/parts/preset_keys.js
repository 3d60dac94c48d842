// @ts-check
/**
 * Presets by keyboard: a group of cards is one stop of the Tab key, and its "change first" the next;
 * arrows lead from card to card as they lie on the page.
 */

/** @param {HTMLElement} group @returns {HTMLElement[]} the cards that can be seen, in order */
const cardsOf = (group) => [...group.querySelectorAll("div.preset")].filter(isShown);
/** @param {Element} card @returns {card is HTMLElement} */
const isShown = (card) => !(/** @type {HTMLElement} */ (card).hidden);

/** Make this card the one that Tab leads to. @param {HTMLElement} group @param {HTMLElement} stop */
function stopAt(group, stop) {
  for (const card of group.querySelectorAll(".preset"))
    for (const button of card.querySelectorAll("button")) button.tabIndex = card === stop ? 0 : -1;
}

/** Let Tab lead to the first card where the one that it led to is hidden. @param {HTMLElement} group */
export function keepStop(group) {
  const cards = cardsOf(group);
  const kept = cards.some((card) => card.querySelector("button")?.tabIndex === 0);
  if (!kept && cards.length) stopAt(group, cards[0]);
}

/**
 * Return the card to which an arrow, Home or End leads; null: none.
 * @param {string} key
 * @param {HTMLElement[]} cards
 * @param {number} at
 */
function ledTo(key, cards, at) {
  const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: cards.length - 1 }[key];
  if (next !== undefined) return cards[next] ?? null;
  const way = { ArrowUp: -1, ArrowDown: 1 }[key];
  if (!way) return null;
  const from = cards[at].getBoundingClientRect();
  const beyond = cards
    .map((card) => ({ card, box: card.getBoundingClientRect() }))
    .filter(({ box }) => way * (box.top - from.top) > 1)
    .sort(
      (a, b) =>
        way * (a.box.top - b.box.top) ||
        Math.abs(a.box.left - from.left) - Math.abs(b.box.left - from.left),
    );
  return beyond[0]?.card ?? null;
}

/** Lead by arrows in a group of cards. @param {HTMLElement} group @returns {HTMLElement} the group */
export function leadByArrows(group) {
  keepStop(group);
  const cardAt = (/** @type {Event} */ { target }) =>
    /** @type {HTMLElement | null} */ (/** @type {HTMLElement} */ (target).closest(".preset"));
  group.addEventListener("focusin", (event) => {
    const card = cardAt(event);
    if (card) stopAt(group, card);
  });
  group.addEventListener("keydown", (event) => {
    const cards = cardsOf(group);
    const at = cards.indexOf(/** @type {HTMLElement} */ (cardAt(event)));
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const button = ledTo(event.key, cards, at)?.querySelector("button");
    if (!button) return;
    event.preventDefault();
    button.focus();
  });
  return group;
}

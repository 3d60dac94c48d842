// @ts-check
/** From one to the next in a row that is one stop of the Tab key: tabs, tools. */

/**
 * Return where an arrow, Home or End leads from the element that has the focus; null: the key means
 * something else. A key that leads somewhere is taken: it is not the time's here.
 * @template {HTMLElement} Item
 * @param {KeyboardEvent} event
 * @param {Item[]} row  those that can be seen, in order
 * @returns {Item | null}
 */
export function ledByArrow(event, row) {
  const at = row.indexOf(/** @type {Item} */ (event.target));
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: row.length - 1 }[event.key];
  if (at < 0 || to === undefined || event.ctrlKey || event.metaKey || event.altKey) return null;
  event.preventDefault();
  event.stopPropagation();
  return row[(to + row.length) % row.length];
}

// @ts-check
/**
 * A picture in a tab of JupyterLab: to the right of its notebook, under the run's title. It is a
 * second view of the same widget. JupyterLab's own "Create New View for Cell Output" splits the
 * window below, names every tab alike, and stays empty when the page is loaded again.
 *
 * A page that is loaded again opens the tabs that it had: a browser's tab keeps their names.
 */

const KEPT = "workbench.tabs";
const LOOK_MS = 1000; // after so long a tab closes whose notebook has been closed

const lab = /** @type {{workbenchTabs?: Map<string, any>}} */ (globalThis);
/** By the name of their picture's model. */
const tabs = (lab.workbenchTabs ??= new Map());

/** The titles of the tabs that this page had, by model. @returns {Record<string, string>} */
function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
  } catch {
    return {}; // a page that may keep nothing
  }
}

/** @param {string} name @param {string | undefined} title */
function keep(name, title) {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify({ ...kept(), [name]: title }));
  } catch {
    // it is not opened again, then
  }
}

/**
 * The tab itself, around a view: of Lumino's plain class, which a page has no other way to. It has
 * its own node, because a widget's layout takes the place and the size from the view's.
 * @param {any} inner  the view's Lumino widget
 * @param {string} name
 */
function around(inner, name) {
  let plain = inner.constructor;
  while (!Object.hasOwn(plain, "attach")) plain = Object.getPrototypeOf(plain);
  const outer = new plain();
  outer.id = `workbench-${name}`;
  outer.addClass("wb-lab-tab");
  outer.disposed.connect(() => inner.dispose());
  return { outer, show: () => inner.isAttached || plain.attach(inner, outer.node) };
}

/**
 * Open a picture beside its notebook, or show the tab that it has.
 * @param {any} model  the picture's
 * @param {Element} el  in the notebook
 * @param {string} title
 * @returns {Promise<boolean>} whether it is open
 */
export async function openTab(model, el, title) {
  const name = model.get("own");
  const panel = el.closest(".jp-NotebookPanel");
  const { context } = model.widget_manager;
  if (!panel || !context?.addSibling || !el.closest("#jp-main-dock-panel")) return false;
  if (!tabs.has(name)) {
    const view = await model.widget_manager.create_view(await model.widget_manager.get_model(name));
    const tab = around(view.luminoWidget ?? view.pWidget, name);
    tabs.set(name, tab);
    const watch = setInterval(() => panel.isConnected || tab.outer.dispose(), LOOK_MS);
    tab.outer.disposed.connect(() => {
      clearInterval(watch);
      tabs.delete(name);
      keep(name, undefined);
    });
  }
  const { outer, show } = tabs.get(name);
  Object.assign(outer.title, { label: title, caption: title, closable: true });
  context.addSibling(outer, { ref: panel.id, mode: "split-right", type: "Workbench" });
  show();
  keep(name, title);
  return true;
}

/** Open the tab that a picture had before the page was loaded again. @param {any} model @param {Element} el */
export async function reopenTab(model, el) {
  const name = model.get("own");
  const title = kept()[name];
  if (title !== undefined && !tabs.has(name)) await openTab(model, el, title);
}

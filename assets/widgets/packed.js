// @ts-check
/**
 * What a widget's small module shares: models that a trait names, and a large module that comes
 * packed, once a kernel, compiled once a page.
 */

const page = /** @type {{workbenchModules?: Map<string, Promise<any>>}} */ (globalThis);
/** Compiled modules by what they hold: of all kernels whose stages are on this page. */
const modules = (page.workbenchModules ??= new Map());

/** A model that a trait names. @param {any} model @param {string} name @returns {Promise<any>} */
export const named = (model, name) =>
  model.widget_manager.get_model(String(model.get(name)).replace("IPY_MODEL_", ""));

/** @param {DataView} packed */
async function compiled(packed) {
  const text = await new Response(
    new Blob([/** @type {any} */ (packed)]).stream().pipeThrough(new DecompressionStream("gzip")),
  ).text();
  const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  try {
    return (await import(url)).default;
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** The default export of a widget's `source`. @param {any} model */
export async function moduleOf(model) {
  const source = await named(model, "source");
  const key = source.get("key");
  const module = modules.get(key) ?? compiled(source.get("packed"));
  modules.set(key, module);
  module.catch(() => modules.delete(key)); // the next one tries anew
  return module;
}

/**
 * Let messages reach a model without waiting for its widget's module, as those of every other kind
 * of model do: anywidget stops waiting after two seconds, and then loses them all.
 * @param {any} whole
 */
export function ungate(whole) {
  const owners = [];
  for (let proto = whole; proto; proto = Object.getPrototypeOf(proto))
    if (Object.hasOwn(proto, "_handle_comm_msg")) owners.push(proto);
  const plain = owners[1] ?? owners[0]; // behind anywidget's own
  if (plain)
    whole.comm?.on_msg?.((/** @type {any} */ message) =>
      plain._handle_comm_msg.call(whole, message),
    );
}

// @ts-check
/**
 * What the parts of the pages share: elements in one line, messages to the server, copying. Texts
 * are never HTML.
 */

const HELLO_MS = 3000; // what is lost on its way is told again by then
const SELDOM_MS = 24_000; // the same, once the page has been there for a while

/**
 * An element: `h("a", { href, class: "x", onclick }, "text", child)`. What is null or false is left
 * out.
 * @param {string} tag
 * @param {Record<string, any>} [given]
 * @param {...(Node | string | null | false)} children
 * @returns {any}
 */
export function h(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on") || name === "value" || name === "checked")
      /** @type {any} */ (element)[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(
    .../** @type {(Node | string)[]} */ (
      children.filter((child) => child !== null && child !== false)
    ),
  );
  return element;
}

/**
 * A part: `draw(body, state, tell)` makes or updates its elements from the state that the server sent; `tell`
 * sends a message back.
 * @param {(body: HTMLElement, state: any, tell: (message: any) => void) => void} draw
 */
export function part(draw) {
  return {
    /** @param {{model: any, el: HTMLElement, view?: any}} host */
    render({ model, el, view }) {
      const body = h("div", { class: "part" });
      const tell = (/** @type {any} */ message) => {
        view.model_proxy.send_msg(message);
        wait = HELLO_MS; // its answer may be lost
        clearTimeout(again);
        again = setTimeout(hello, wait);
      };
      const look = () => {
        const state = model.get("state");
        if (state?.address)
          location.assign(state.address); // the server sends the reader elsewhere
        else draw(body, state ?? {}, tell);
      };
      let wait = HELLO_MS;
      let again = 0;
      const hello = () => {
        view.model_proxy.send_msg({ type: "hello", n: model.get("state")?.n ?? 0 });
        again = setTimeout(hello, wait);
        wait = Math.min(2 * wait, SELDOM_MS);
      };
      model.on("change:state", look);
      el.append(body);
      look();
      hello();
      return () => {
        clearTimeout(again);
        model.off("change:state", look);
      };
    },
  };
}

/**
 * A button that copies, and says so.
 * @param {string} label
 * @param {() => string} text
 * @param {Record<string, any>} [given]
 * @returns {HTMLButtonElement}
 */
export function copies(label, text, given = {}) {
  const button = h("button", { type: "button", ...given }, label);
  button.onclick = async () => {
    const done = await copied(text());
    button.textContent = done ? "Copied" : "Select and copy it";
    setTimeout(() => (button.textContent = label), 1500);
  };
  return button;
}

/** @param {string} text */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // a page that is neither local nor https may not; the old way still works
    const field = h("textarea", {
      value: text,
      readonly: true,
      style: "position: fixed; opacity: 0",
    });
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

/** A whole address from a path of this server. @param {string} path */
export function whole(path) {
  return new URL(path, location.href).href;
}

/** Whether two texts that were told are the same. @param {any} a @param {any} b */
export function same(a, b) {
  return JSON.stringify(a) === JSON.stringify(b);
}

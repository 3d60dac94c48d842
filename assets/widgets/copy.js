// @ts-check
/** Code to read, to select, or to copy with a button. */
import { named, ungate } from "./packed.js";

export default {
  /** @param {{model: any, el: HTMLElement}} host */
  render({ model, el }) {
    const code = document.createElement("pre");
    const button = document.createElement("button");
    code.tabIndex = 0;
    button.type = "button";
    button.textContent = "Copy";
    const look = () => (code.textContent = model.get("text"));
    button.onclick = async () => {
      try {
        await navigator.clipboard.writeText(code.textContent ?? "");
        button.textContent = "Copied";
      } catch {
        // a page that is neither local nor https may not
        getSelection()?.selectAllChildren(code);
        button.textContent = "Selected: press Ctrl C";
      }
      setTimeout(() => (button.textContent = "Copy"), 2000);
    };
    model.on("change:text", look);
    el.classList.add("wb-code");
    el.append(button, code);
    look();
    void named(model, "_own").then((whole) => {
      ungate(whole);
      model.send({ type: "state" }); // what was lost before
    });
    return () => model.off("change:text", look);
  },
};

// @ts-check
/**
 * What happened (engine/happenings.js) as a list under the scene.
 *
 * @typedef {import("../engine/feed_lines.js").Line} Line
 */
import { quietWords } from "../engine/feed_lines.js";
import { duration } from "../engine/format.js";
import { Happenings } from "../engine/happenings.js";
import { nowOf } from "../engine/player.js";

/** How many of the lines the reader sees without scrolling. */
const SEEN_LINES = 4;
const LIVE = -2; // no line is sought: the newest are seen
const LOUD = new Set(["fault", "detect", "abort", "state"]);

/**
 * The lines as a list under the scene; a line is a button that goes to its moment.
 * @param {HTMLElement} body @param {import("./stage.js").Stage} stage
 */
export function feedView(body, stage) {
  const heading = body.appendChild(
    Object.assign(document.createElement("h3"), { textContent: "What happened" }),
  );
  const list = body.appendChild(
    Object.assign(document.createElement("ol"), { className: "wb-happened" }),
  );
  const spoken = body.appendChild(
    Object.assign(document.createElement("span"), { className: "wb-sr" }),
  );
  heading.id = `wb-happened-${Math.random().toString(36).slice(2)}`;
  list.setAttribute("aria-labelledby", heading.id);
  list.style.setProperty("--lines", String(SEEN_LINES));
  spoken.setAttribute("role", "status");
  const quiet = document.createElement("li"); // where there is no line
  quiet.innerHTML = '<span class="wb-line"><em></em></span>';
  let reader = /** @type {Happenings | null} */ (null);
  let drawn = -1;
  let follows = true;
  let seen = LIVE; // the line at a held view's moment
  const items = /** @type {WeakMap<Line, HTMLElement>} */ (new WeakMap());
  list.onscroll = () => {
    list.classList.toggle("scrolled", list.scrollTop > 2); // the line at its head may be cut: it fades
    if (seen === LIVE) follows = list.scrollTop + list.clientHeight > list.scrollHeight - 12;
  };
  list.onkeydown = (event) => {
    const li = /** @type {HTMLElement} */ (event.target).closest("li");
    const next = { ArrowUp: li?.previousElementSibling, ArrowDown: li?.nextElementSibling }[
      event.key
    ];
    if (!next) return;
    event.preventDefault();
    event.stopPropagation();
    /** @type {HTMLElement} */ (next.firstElementChild).focus();
  };
  list.addEventListener("focusin", (event) => {
    // one of them is in the order of the Tab key
    for (const button of list.querySelectorAll("button"))
      button.tabIndex = button === event.target ? 0 : -1;
  });
  /** @param {Line} line */
  const item = (line) => {
    let li = items.get(line);
    if (!li) {
      const button = (li = document.createElement("li")).appendChild(
        document.createElement("button"),
      );
      button.append(document.createElement("span"), document.createElement("em"));
      Object.assign(button, {
        className: `wb-line ${line.kind}`,
        title: "to this moment",
        tabIndex: -1,
        onclick: () => stage.playback.goto(line.t),
      });
      button.children[0].textContent = line.t < 1000 ? "start" : duration(line.t);
      items.set(line, li);
    }
    const words = /** @type {Element} */ (li.querySelector("em"));
    const name = `wb-line ${line.kind}`;
    if (words.parentElement && !words.parentElement.classList.contains(line.kind))
      words.parentElement.className = name; // what was an alarm is none any more
    if (words.textContent !== line.words) words.textContent = line.words;
    return li;
  };
  /** @param {Line[]} lines */
  const draw = (lines) => {
    lines.forEach((line, i) => {
      // those that stay are not touched: one may have the focus
      const li = item(line);
      if (list.children[i] !== li) list.insertBefore(li, list.children[i] ?? null);
    });
    while (list.children.length > lines.length) list.lastElementChild?.remove();
    const end = list.lastElementChild?.firstElementChild;
    if (end instanceof HTMLElement && !list.querySelector("button[tabindex='0']")) end.tabIndex = 0;
    if (follows && seen === LIVE) list.scrollTop = list.scrollHeight;
  };
  /** Scroll to the newest line, or to that of a held view's moment, unless one has the focus. */
  const settle = () => {
    const li = /** @type {HTMLElement | undefined} */ (list.children[Math.max(0, seen)]);
    if (seen === LIVE) {
      if (follows) list.scrollTop = list.scrollHeight;
    } else if (li && !list.contains(/** @type {any} */ (list.getRootNode()).activeElement))
      list.scrollTop = li.offsetTop - list.offsetTop + li.offsetHeight - list.clientHeight;
  };
  new ResizeObserver(settle).observe(list); // a list of another height shows the same line
  return {
    /** All lines so far, oldest first. */
    get lines() {
      return reader?.lines ?? [];
    },
    /** A number that grows with every change of the lines. */
    get version() {
      return reader?.version ?? 0;
    },
    /** @param {import("./stage.js").Look} look */
    say({ known, t, held, at }) {
      const now = nowOf(known, at);
      if (reader?.table !== known.table) {
        reader = new Happenings(known);
        drawn = -1;
      }
      const lines = reader.read(known, now);
      if (reader.version !== drawn) {
        const news = lines.at(-1);
        if (news && drawn >= 0 && LOUD.has(news.kind)) spoken.textContent = news.words;
        drawn = reader.version;
        draw(lines);
      }
      if (!lines.length) {
        const words = /** @type {Element} */ (quiet.querySelector("em"));
        if (words.textContent !== quietWords(known)) words.textContent = quietWords(known);
        if (!quiet.isConnected) list.append(quiet);
      }
      // the future is pale
      lines.forEach((line, i) => list.children[i].classList.toggle("later", held && line.t > t));
      const place = held ? lines.findLastIndex((line) => line.t <= t) : LIVE;
      if (place === seen) return;
      seen = place;
      if (!held) follows = true;
      settle();
    },
  };
}

"""The overview and the user's hands on the ranks, in a browser that a live run's feed talks to.

No host stands between: the page's messages go to the feed and the feed's to the page.
"""

from __future__ import annotations

import base64
import json
import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

import workbench as wb
from tests.browser.conftest import PATIENCE, Watched, let_draw
from tests.live import LONG, lenet
from tests.pairwise import first
from tests.runs.steered import settle
from workbench.front_end.assets import stage_module, theme
from workbench.views.packing import Message
from workbench.views.pages.feed import feed, nothing

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

HOST = """<!doctype html><meta charset="utf-8">
<style>body { margin: 0; background: light-dark(#fff, #14171b) }
%s</style><main></main>
<script type="module">
const { default: stage } = await import("data:text/javascript;base64,%s");
let take;
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
const model = { on: (_, f) => (take = f), off() {}, send: (message) => window.hear(message) };
window.take = (all) => JSON.parse(all).forEach(([head, body]) => take(head, body && [bytes(body)]));
stage.render({ model, el: document.querySelector("main") });
</script>"""

# Every text and mark on screen as boxes; those that lie over each other, or are too small.
CLASHES = """(root) => {
  const boxes = [], wrong = [], walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const shown = (e) =>
    e.checkVisibility({ visibilityProperty: true, opacityProperty: true })
    && !e.closest(".wb-sr, option");
  const cut = (box, e) => {
    let { left, right, top, bottom } = box;
    for (; e && e !== root; e = e.parentElement) {
      if (getComputedStyle(e).overflow === "visible") continue;
      const o = e.getBoundingClientRect();
      left = Math.max(left, o.left); right = Math.min(right, o.right);
      top = Math.max(top, o.top); bottom = Math.min(bottom, o.bottom);
    }
    return { left, right, top, bottom };
  };
  const put = (box, e, name) => {
    const c = cut(box, e);
    if (c.right - c.left > 1 && c.bottom - c.top > 2) boxes.push({ ...c, e, name });
  };
  while (walker.nextNode()) {
    const text = walker.currentNode, e = text.parentElement, range = document.createRange();
    if (!text.textContent.trim() || !shown(e)) continue;
    if (parseFloat(getComputedStyle(e).fontSize) < 11) wrong.push(`small: ${text.textContent}`);
    range.selectNodeContents(text);
    for (const box of range.getClientRects()) put(box, e, text.textContent);
  }
  for (const e of root.querySelectorAll("svg, canvas, select, input"))
    if (shown(e)) put(e.getBoundingClientRect(), e, e.outerHTML.slice(0, 40));
  const over = root.querySelector(".wb-rank-menu"), whole = root.getBoundingClientRect();
  boxes.forEach((a, i) => {
    if (a.left < whole.left || a.right > whole.right + 0.5) wrong.push(`outside: ${a.name}`);
    for (const b of boxes.slice(0, i)) {
      if (a.e.contains(b.e) || b.e.contains(a.e)) continue;
      if (over && over.contains(a.e) !== over.contains(b.e)) continue; // the dialog is on top
      const w = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (w > 1 && h > 2) wrong.push(`${a.name} over ${b.name}`);
    }
  });
  return wrong;
}"""
PLACES = """(root) => {
  const top = (name) => root.querySelector(name).getBoundingClientRect().top;
  return [".wb-ov-head", ".wb-ov-grid", ".wb-loss", ".wb-ov-key", ".wb-ov-next", ".wb-feed"]
    .map((name) => Math.round(top(name) - top(".wb-scenes")));
}"""


class Viewer:
    """A page and a feed; ``until`` carries messages between them while it waits."""

    def __init__(self, page: Page, run: wb.Run | None, width: int) -> None:
        self.page, self._messages = page, queue.SimpleQueue[Message]()
        self._member = None
        if run is not None:  # as every host, a page that is slow is told less often
            self._member = feed(run).join(self._messages.put, ready=self._messages.empty)
        page.set_viewport_size({"width": width, "height": 1000})
        page.expose_function("hear", self._hear)
        module = base64.b64encode(stage_module().encode()).decode()
        page.set_content(HOST % (theme(), module))
        self.stage: Locator = page.locator(".wb-stage")
        self.stage.wait_for()

    def _hear(self, message: dict[str, Any]) -> None:
        if self._member is not None:
            self._member.hear(message)
        elif message["type"] == "hello":
            self._messages.put(nothing())

    def until(self, condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> None:
        """Carry messages until it holds, and then as long as texts take to follow."""
        deadline, settled_at = time.monotonic() + seconds, 0.0
        while not settled_at or time.monotonic() < settled_at:
            batch = []
            while not self._messages.empty():
                message = self._messages.get()
                body = base64.b64encode(message.payload).decode() if message.payload else None
                batch.append([message.header, body])
            if batch:
                self.page.evaluate("(all) => window.take(all)", json.dumps(batch))
            self.page.wait_for_timeout(50)
            assert settled_at or time.monotonic() < deadline, f"not seen in {seconds} s: {what}"
            if not settled_at and condition():
                settled_at = time.monotonic() + 0.4

    def knows(self, script: str) -> bool:
        return bool(
            self.stage.evaluate(f"(root) => {{ const k = root.stage.known(); return {script}; }}")
        )

    def shows(self, place: Locator, *words: str) -> None:
        """Carry messages until all these words stand there: what a run has done reaches a page
        later, and one that is slow hears of it less often.
        """
        self.until(
            lambda: place.count() == 1 and all(one in place.inner_text() for one in words),
            f"{words}",
        )

    def says(self, state: str) -> None:
        words = self.stage.locator(".wb-ov-state")
        self.until(lambda: state in words.inner_text(), f"the state {state!r}")

    def focus(self) -> str:
        return str(
            self.page.evaluate("document.activeElement.className || document.activeElement.tagName")
        )


@pytest.fixture
def view(open_page: Callable[..., Watched]) -> Iterator[Callable[..., tuple[wb.Run, Viewer]]]:
    runs: list[wb.Run] = []

    def start(width: int = 992, scheme: str = "light", **fields: Any) -> tuple[wb.Run, Viewer]:
        runs.append(wb.run(lenet(**{"iterations": LONG, **fields})))
        viewer = Viewer(open_page(color_scheme=scheme).page, runs[-1], width)
        viewer.until(lambda: viewer.knows("k.table.calls.length > 20"), "calls")
        return runs[-1], viewer

    yield start
    for run in runs:
        run.stop()
        run.wait(timeout=90, check=False)


@pytest.mark.full
@pytest.mark.parametrize(
    ("width", "scheme", "ranks"), first(1, [(640, "dark", 2), (992, "light", 4)])
)
def test_nothing_overlaps_or_moves_from_state_to_state(
    view: Callable[..., tuple[wb.Run, Viewer]], width: int, scheme: str, ranks: int
) -> None:
    run, viewer = view(width, scheme, ranks=ranks)
    stage, places = viewer.stage, []

    def look(state: str) -> None:
        viewer.says(state)
        assert stage.evaluate(CLASHES) == [], state
        places.append(stage.evaluate(PLACES))

    look("Live")
    stage.evaluate("(root) => root.stage.goto(root.stage.known().table.to / 2)")
    look("View held")
    viewer.shows(stage.locator(".wb-ov-list"), "was ")
    stage.press("l")
    run.pause()
    look("Ranks held")
    stage.locator(".wb-ov-line").first.click()
    assert stage.evaluate(CLASHES) == []
    viewer.page.keyboard.press("Escape")
    run.stop()
    look("Finished")
    assert all(place == places[0] for place in places), places


CONTROLS = """(root) => {
  const seen = [...root.querySelectorAll(".wb-bar :is(button, select, .wb-state)")]
    .filter((one) => one.checkVisibility())
    .map((one) => [one.textContent, one.getBoundingClientRect()]);
  const { left, right } = root.getBoundingClientRect();
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1.5
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1.5;
  return seen.filter(([, a], i) => a.left < left || a.right > right
    || seen.some(([, b], j) => j < i && over(a, b))).map(([words]) => words);
}"""  # those beyond the picture's edge, or on one another


@pytest.mark.full
def test_without_a_run_the_places_are_there(open_page: Callable[..., Watched]) -> None:
    viewer = Viewer(open_page().page, None, 992)
    viewer.says("Nothing runs yet")
    assert viewer.stage.evaluate(CLASHES) == []
    assert viewer.stage.locator(".wb-ranks button:visible").count() == 0  # none could act
    assert viewer.stage.locator(".wb-ov-line").count() == 4


@pytest.mark.full
def test_a_rank_is_slowed_and_the_slowness_taken_back_by_keyboard_alone(
    view: Callable[..., tuple[wb.Run, Viewer]],
) -> None:
    run, viewer = view()
    page, keys = viewer.page, viewer.page.keyboard
    viewer.stage.locator(".wb-ov-line[data-rank='1']").focus()
    keys.press("Enter")
    dialog = page.get_by_role("dialog", name="Change rank 1")
    assert dialog.is_visible() and viewer.focus() == "SELECT"
    names = set()
    for _ in range(20):  # the Tab key stays inside
        keys.press("Tab")
        assert dialog.evaluate("(d) => d.contains(document.activeElement)")
        names.add(page.evaluate("document.activeElement.textContent"))
    assert {"×2", "×4", "×8", "Freeze", "✕ Kill …"} <= names
    page.get_by_role("button", name="×4", exact=True).focus()
    assert "4 times as long" in dialog.inner_text()  # said before it is done
    keys.press("Enter")
    viewer.until(lambda: dict(run.control_state.slow) == {1: 4.0}, "rank 1 slowed")
    viewer.shows(dialog, "computes 4 times as long")
    viewer.shows(dialog.locator(".wb-action.on"), "×4")
    undo = dialog.get_by_role("button", name="Undo")
    viewer.until(undo.is_visible, "its undo")
    undo.focus()
    keys.press("Enter")
    viewer.until(lambda: not run.control_state.slow, "the slowness taken back")
    keys.press("Escape")
    assert not dialog.is_visible() and "wb-ov-line" in viewer.focus()
    happened = viewer.stage.locator(".wb-happened")
    viewer.shows(happened, "You slowed rank 1 ×4", "full speed again")


@pytest.mark.full
def test_a_link_is_changed_both_ways_and_cut(view: Callable[..., tuple[wb.Run, Viewer]]) -> None:
    run, viewer = view()
    page = viewer.page
    viewer.stage.locator(".wb-rank-menu-bar select").select_option("1>0")
    page.get_by_role("button", name="Change …").click()
    dialog = page.get_by_role("dialog", name="Change link 1 → 0")
    dialog.get_by_label("both directions").check()
    dialog.get_by_label("Other latency").fill("7")
    dialog.get_by_label("Other latency").press("Enter")
    viewer.until(lambda: len(run.control_state.links) == 2, "both links")
    assert {link.latency_ns for link in run.control_state.links.values()} == {7_000_000}
    dialog.get_by_label("Other latency").fill("soon")
    dialog.get_by_label("Other latency").press("Enter")
    assert "is no latency" in dialog.inner_text()
    dialog.get_by_role("button", name="Cut the link").click()
    viewer.until(lambda: run.control_state.links[1, 0].down, "the cut")
    undo = dialog.get_by_role("button", name="Undo")
    viewer.until(undo.is_visible, "its undo")
    undo.click()
    viewer.until(lambda: not run.control_state.links[1, 0].down, "the link restored")
    happened = viewer.stage.locator(".wb-happened")
    viewer.shows(happened, "link 1 ↔ 0 now 7 ms", "You cut link 1 ↔ 0")


def test_a_kill_is_asked_twice_and_its_end_told(
    view: Callable[..., tuple[wb.Run, Viewer]],
) -> None:
    run, viewer = view()
    page = viewer.page
    viewer.stage.locator(".wb-ov-line[data-rank='1']").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Kill …").click()
    assert "cannot be undone" in dialog.inner_text()
    dialog.get_by_role("button", name="Keep it").click()
    viewer.until(lambda: True, "a moment")
    assert not run.control_state.ended
    dialog.get_by_role("button", name="Kill …").click()
    dialog.get_by_role("button", name="Kill rank 1, for good").click()
    viewer.says("Failed")
    viewer.shows(viewer.stage.locator(".wb-ov-say"), "You killed rank 1 in iteration")
    viewer.shows(viewer.stage.locator("[data-rank='1']"), "killed by you")
    viewer.shows(viewer.stage.locator("[data-rank='0']"), "stopped")
    viewer.shows(dialog, "The run is over")
    for button in dialog.locator(".wb-action").all():
        assert button.is_disabled()
    assert viewer.stage.evaluate(CLASHES) == []
    page.keyboard.press("Escape")
    viewer.stage.evaluate("(root) => root.stage.goto(root.stage.known().table.to)")
    let_draw(page, 300)
    line = viewer.stage.locator("[data-rank='1']")
    assert "killed by you" in line.inner_text()  # held too
    viewer.stage.evaluate("(root) => root.stage.goto(root.stage.known().table.to / 2)")
    viewer.until(lambda: "killed" not in line.inner_text(), "the moment before its end")


@pytest.mark.full
def test_a_rank_is_removed_another_added_and_a_checkpoint_written(
    view: Callable[..., tuple[wb.Run, Viewer]], tmp_path: Path
) -> None:
    plan = wb.Checkpoint(folder=str(tmp_path / "checkpoints"), every=0)
    run, viewer = view(ranks=3, recovery="shrink", checkpoint=plan, pad_compute="20 ms")
    viewer.stage.locator(".wb-ov-line[data-rank='1']").click()
    dialog = viewer.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Write a checkpoint now").click()
    viewer.until(lambda: [*tmp_path.glob("checkpoints/iteration-*")], "a checkpoint")
    assert not dialog.get_by_role("button", name="Add a rank").is_visible()  # none is missing
    assert viewer.stage.evaluate(CLASHES) == []
    dialog.get_by_role("button", name="Remove").click()
    viewer.until(lambda: run.recovery().table.height == 1, "the others go on")
    viewer.page.keyboard.press("Escape")
    viewer.stage.locator(".wb-ov-line[data-rank='0']").click()
    dialog.get_by_role("button", name="Add a rank").click()
    viewer.until(lambda: run.recovery().table.height == 2, "it trains with them")


def test_sliders_change_all_links_and_control_z_takes_it_back(
    view: Callable[..., tuple[wb.Run, Viewer]],
) -> None:
    run, viewer = view()
    slider = viewer.stage.get_by_role("slider", name="latency of all links")

    def latencies() -> set[int]:
        return {link.latency_ns for link in run.control_state.links.values()}

    slider.focus()
    for expected in (1_000_000, 5_000_000):
        viewer.page.keyboard.press("ArrowRight")
        viewer.until(lambda ns=expected: latencies() == {ns}, f"{expected} ns")
        heard = f"k.control.links[0]?.latency_ms === {expected // 1_000_000}"
        viewer.until(lambda script=heard: viewer.knows(script), "the page hears of it")
    assert len(run.control_state.links) == 2, "both ways"
    viewer.shows(viewer.stage.locator(".wb-happened"), "link 0 ↔ 1 now 5 ms")
    viewer.page.keyboard.press("Control+z")
    viewer.until(lambda: latencies() == {1_000_000}, "one step back")
    viewer.page.keyboard.press("Control+z")
    viewer.until(lambda: latencies() <= {0}, "as it was")
    assert not viewer.stage.get_by_role("button", name="Undo").is_visible()


@pytest.mark.full
def test_the_ranks_are_held_stepped_slowed_to_fit_and_stopped(
    view: Callable[..., tuple[wb.Run, Viewer]],
) -> None:
    run, viewer = view()
    frame = viewer.stage.locator(".wb-ranks")
    more, line = viewer.stage.locator(".wb-ranks-more"), viewer.stage.locator(".wb-strip")
    chunk = more.get_by_role("button", name="let every rank go on by one chunk")
    assert not chunk.is_visible()  # ranks that run take no steps
    frame.get_by_role("button", name="Hold the ranks").click()
    viewer.until(lambda: run.held, "a rank that stands, for which the other waits or stands too")
    viewer.shows(frame, "Ranks: held")
    viewer.says("Ranks held")
    settle(run)
    rows = len(run.store)
    viewer.until(lambda: True, "a moment")
    assert len(run.store) == rows  # they are held
    for width in (800, 900, 1100, 1280):
        viewer.page.set_viewport_size({"width": width, "height": 900})
        viewer.until(lambda: viewer.stage.evaluate(CONTROLS) == [], f"all controls at {width} px")
    chunk.click()
    viewer.until(lambda: len(run.store) > rows, "a chunk")
    line.hover()  # the bar grows
    more.get_by_role("combobox").select_option("fit")
    # By how much depends on how long a chunk takes here: on busy cores, longer.
    viewer.until(lambda: run.control_state.slow_motion > 1, "slow motion")
    frame.get_by_role("button", name="Let them run").click()
    viewer.until(lambda: "slowed ×" in frame.inner_text(), "the frame says so")
    frame.get_by_role("button", name="Stop").click()
    viewer.says("Finished")
    viewer.until(lambda: frame.inner_text() == "Ranks: ended", "the frame says so, and no more")
    assert frame.locator(":is(button, select):visible").count() == 0


@pytest.mark.full
def test_a_line_of_what_happened_leads_to_its_moment(
    view: Callable[..., tuple[wb.Run, Viewer]],
) -> None:
    run, viewer = view()
    run.freeze(1)
    line = viewer.stage.get_by_role("button", name="You froze rank 1")
    viewer.until(lambda: line.count() == 1, "the freeze")
    run.thaw(1)
    line.click()
    viewer.says("View held")
    viewer.until(lambda: run.events.filter(name="freeze").height, "its row")
    at = run.events.filter(name="freeze")["end_ns"].item()
    assert viewer.stage.evaluate("(root) => root.stage.frame().playhead") == pytest.approx(
        at, abs=2
    )

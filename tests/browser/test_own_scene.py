"""The scene that docs/own_scene.md writes out: from its text into a browser, at most 80 lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.conftest import Watched, frame, open_scene, wait_for
from tests.browser.recorded_runs import replay

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "own_scene.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"`(scenes/heat/[\w.]+)`:\n\n```\w+\n(.*?)```", TEXT, re.DOTALL))
pytestmark = pytest.mark.browser


def test_it_is_short() -> None:
    assert len(FILES) == 5
    assert sum(text.count("\n") for text in FILES.values()) <= 80


def test_it_is_drawn_and_answers_the_pointer_and_the_keyboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_page: Callable[..., Watched]
) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.setenv("WORKBENCH_EXTENSIONS", str(tmp_path))
    stage = replay(open_page().page, "poisoned")  # three ranks, a ring
    open_scene(stage, "heat")
    stage.evaluate("(root) => root.stage.goto(root.stage.known().table.to)")
    wait_for(lambda: any(mark["n"] for mark in frame(stage)["marks"]), "what was sent")
    marks = {(mark["rank"], mark["peer"]): mark["n"] for mark in frame(stage)["marks"]}
    assert len(marks) == 9 and marks[0, 1] > 0 == marks[0, 0] == marks[0, 2], "a ring"
    scene = stage.locator(".wb-scene-heat")
    picture, chart = scene.locator("canvas").nth(0), scene.locator("canvas").nth(1)
    picture.hover(position={"x": 64 + 1.5 * 28, "y": 14})
    assert scene.locator(".wb-co-tip").inner_text().startswith("rank 0 has sent ")
    picture.click(position={"x": 64 + 1.5 * 28, "y": 14})
    assert stage.evaluate("(root) => root.querySelector('.wb-co-spots button').dataset.rank") == "0"
    scene.get_by_role("button", name="rank 2").focus()
    assert scene.locator(".wb-co-tip").inner_text().startswith("rank 2 has sent 0")
    words = chart.get_attribute("aria-label") or ""
    assert words.endswith("have been sent.") and words != "0 B have been sent."

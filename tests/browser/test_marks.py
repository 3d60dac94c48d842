"""What is on screen of the recorded runs, scene by scene and moment by moment, is what it was.

With ``WRITE_MARKS=1`` it keeps what is drawn now: for where a picture was changed on purpose.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator

from tests.browser.recorded_runs import FOLDER, empty_stage, take

FILE = Path(__file__).with_name("marks.json")
RUNS = sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))
pytestmark = pytest.mark.browser
# The marks of each scene that the run offers, at two moments: numbers to a tenth.
MARKS = """async (root) => {
  const frames = async (n) => { while (n--) await new Promise(requestAnimationFrame); };
  await frames(3);
  const tabs = [...root.querySelectorAll(".wb-tabs button")].filter((tab) => !tab.hidden);
  const { from, to } = root.stage.known().table, found = {};
  for (const { dataset: { scene } } of tabs) {
    root.stage.open(scene);
    await frames(2);
    for (const share of [0.3, 0.62]) {
      root.stage.goto(from + share * (to - from));
      await frames(2);
      const { marks } = root.stage.frame();
      const short = (_, v) => (typeof v === "number" ? Math.round(v * 10) / 10 : v);
      found[`${scene} ${share}`] = `${marks.length} marks: ${JSON.stringify(marks, short)}`;
    }
  }
  return found;
}"""


@pytest.fixture(scope="module")
def stage(browser: Browser) -> Iterator[Locator]:
    """One page for all runs, which it replays one after the other."""
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    errors: list[object] = []
    page.on("pageerror", lambda error: errors.append(error))
    yield empty_stage(page)
    page.close()
    assert errors == [], "the page raised"


@pytest.mark.parametrize("name", RUNS)
def test_the_marks_are_those_that_were_stored(name: str, stage: Locator) -> None:
    take(stage, name)
    marks = {
        moment: f"{text.split(':')[0]}, {hashlib.sha256(text.encode()).hexdigest()[:12]}"
        for moment, text in stage.evaluate(MARKS).items()
    }
    stored = json.loads(FILE.read_text()) if FILE.exists() else {}
    if os.environ.get("WRITE_MARKS"):
        FILE.write_text(json.dumps(stored | {name: marks}, indent=1, sort_keys=True) + "\n")
    else:
        assert marks == stored[name]

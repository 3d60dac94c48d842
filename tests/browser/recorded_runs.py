"""The runs of tests/js/recorded/ in a page, replayed: no rank is started."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page

from tests.browser.conftest import wait_for
from tests.browser.test_overview import HOST
from workbench.front_end.assets import stage_module, theme

FOLDER = Path(__file__).parents[1] / "js" / "recorded"


def replay(page: Page, name: str) -> Locator:
    """Return the stage of a page that replays that run, once it has its rows."""
    stage = empty_stage(page)
    take(stage, name)
    return stage


def empty_stage(page: Page, hear: Callable[[Any], object] = lambda _: None) -> Locator:
    """Return the stage of a page that has not heard of a run. ``hear`` takes what it sends."""
    page.expose_function("hear", hear)
    module = base64.b64encode(stage_module().encode()).decode()
    page.set_content(HOST % (theme(), module))
    stage = page.locator(".wb-stage")
    stage.wait_for()
    return stage


def take(stage: Locator, name: str, **more: Any) -> None:
    """Have the stage replay that run, instead of the one before; ``more``: of the message."""
    record = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    message = {"type": "batch", "seq": 1, "reset": True, "state": "replay", "now": None, **more}
    header = {**record["header"], **message, "run": {"id": name, **record["run"]}}
    stage.page.evaluate("(all) => window.take(all)", json.dumps([[header, record["bytes"]]]))
    its_own = """(root, name) => {
      const { run, table } = root.stage.known();
      return run?.id === name && table.rows;
    }"""
    wait_for(lambda: stage.evaluate(its_own, name), "its rows")

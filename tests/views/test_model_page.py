"""The picture of a split model without a run: what the page is told, and which page is not a
notebook.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

import workbench as wb
from workbench.studies.split import Split
from workbench.views.jupyter import ModelStage
from workbench.views.pages.model_page import model_page

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def split() -> Split:
    return wb.split("lenet_digits", stages=3, microbatch=4)


def test_a_page_is_told_the_model_and_that_there_is_no_run(split: Split) -> None:
    header = json.loads(json.dumps(model_page(split.facts, memory_limit=10).header))
    run = header["run"]
    assert run["alone"] and run["scene"] == "model" and run["memory_limit"] == 10
    assert run["model"] == json.loads(json.dumps(split.facts)) and run["ranks"] == 3
    assert header["rows"] == 0 and header["state"] == "empty" and not run["id"]


def test_a_notebook_gets_the_picture_and_keeps_the_table(split: Split) -> None:
    data, metadata = split._repr_mimebundle_()
    assert data["text/html"] == split._repr_html_() and data["text/plain"] == str(split)
    assert isinstance(metadata, dict)
    stage = next(w for w in _widgets() if w.model_id == data[WIDGET]["model_id"])
    messages: list[dict[str, Any]] = []
    stage.send = lambda content, buffers=None: messages.append(content)  # type: ignore[method-assign]
    stage._handle_custom_msg({"type": "do", "id": 1, "verb": "pause"}, [])
    stage._handle_custom_msg({"type": "hello", "token": "a"}, [])
    (header,) = messages
    assert header["run"]["model"]["memory"] == list(split.memory)
    stage.close()


def _widgets() -> list[ModelStage]:
    from ipywidgets.widgets.widget import _instances

    return [widget for widget in _instances.values() if isinstance(widget, ModelStage)]


def test_without_widgets_there_is_the_table(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("workbench.views.jupyter", "workbench.views.pages.widget"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "anywidget", None)
    assert split._repr_mimebundle_() == {
        "text/plain": str(split),
        "text/html": split._repr_html_(),
    }

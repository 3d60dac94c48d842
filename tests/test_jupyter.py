"""A run in a notebook without a browser: stable words, one stage, a thread that ends."""

from __future__ import annotations

import threading
import time

from tests.synthetic import training
from tests.views.test_ring import Run
from workbench.jupyter import show


class Shown(Run):
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "Run(data_parallel, lenet_digits, 4 ranks)"


def pages() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "workbench page"]


def test_a_run_shows_itself_with_stable_words_and_leaves_no_thread() -> None:
    run = Shown()
    run.tell(training(2))
    stage = show(run)
    assert show(run) is stage
    bundle = stage._repr_mimebundle_()[0]
    assert bundle["text/plain"] == repr(run)
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert len(pages()) == 1
    run.done = True
    deadline = time.monotonic() + 5
    while pages() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert pages() == []


def test_hello_is_answered_with_the_history_and_the_rows() -> None:
    run = Shown()
    run.tell(training(2))
    run.done = True
    stage, heard = show(run), []
    stage.send = lambda header, buffers=None: heard.append((header, buffers))
    stage._pump.join(5)
    stage._hear(stage, {"type": "hello"}, [])
    header, (payload,) = heard[-1]
    assert [call["op"] for call in header["calls"]] == [1]
    assert payload.nbytes > 50 * header["rows"]
    stage._hear(stage, {"type": "something else"}, [])
    assert heard[-1][0] is header

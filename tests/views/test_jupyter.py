"""A run in a notebook without a browser: stable words, a picture, and a real kernel that hears."""

from __future__ import annotations

import gzip
import json
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.formatters import DisplayFormatter

import workbench as wb
from tests.kernel import Kernel, started
from tests.live import lenet, until
from tests.page import Client
from tests.synthetic import training
from tests.views.feeding import HELLO, Run, threads
from workbench.front_end.assets import stage_module
from workbench.runs.loaded import Loaded
from workbench.store.event_store import Store
from workbench.views.jupyter import Stage, show
from workbench.views.packing import Message
from workbench.views.pages import widget

WIDGET, PICTURE = "application/vnd.jupyter.widget-view+json", "image/svg+xml"


class Shown(Run):
    def __repr__(self) -> str:
        return "Run(data_parallel, lenet_digits, 4 ranks)"


def listening(stage: Stage) -> Client:
    """Return what the front end of this stage gets."""
    client = Client()
    stage.send = lambda header, buffers=None: client.send(  # type: ignore[method-assign]
        Message(header, bytes(buffers[0]) if buffers else b"")
    )
    return client


def test_a_run_shows_itself_with_stable_words_and_a_picture() -> None:
    run = Shown()
    run.tell(training(2))
    stage = show(run)
    assert show(run) is stage
    bundle, metadata = stage._repr_mimebundle_()
    assert bundle["text/plain"] == repr(run) and isinstance(metadata, dict)
    assert bundle[WIDGET]["model_id"] == stage.model_id
    title = ET.fromstring(bundle[PICTURE]).find("{http://www.w3.org/2000/svg}title")
    assert "4 processes are training one model together" in title.text
    assert threads() == []  # no page looks yet
    stage.close()


def test_hello_is_answered_with_the_history_and_the_rows() -> None:
    run = Shown()
    run.tell(training(2))
    stage = show(run)
    client = listening(stage)
    stage._handle_custom_msg(HELLO, [])
    client.until(lambda: client.table.height == len(run.store))
    run.tell(training(1, start=2 * 10**12))
    client.until(lambda: client.table.height == len(run.store))
    stage.close()
    until(lambda: not threads(), 5, "its thread has ended")


def test_the_stage_s_module_is_sent_once_a_kernel_and_each_widget_is_small() -> None:
    run = Loaded(Store.from_frame(training(1)))
    one, other = show(run), run.view("timeline")
    assert one.source is other.source and one.line is not other.line
    assert gzip.decompress(one.source.packed).decode() == stage_module()
    print(
        f"{len(one.source.packed):,} bytes once, of {len(stage_module()):,}; {len(one._esm):,} each"
    )
    assert len(one.source.packed) < 0.4 * len(stage_module())
    for key, value in one.get_state().items():
        size = len(str(value))
        assert size < 5_000 or (key == "_css" and size < 40_000), f"{key}: {size} bytes a widget"
    one.source.close()  # as ipywidgets.Widget.close_all() does
    again = run.view("collectives")
    assert again.source.comm is not None and again.source.key == other.source.key
    for stage in (one, other, again):
        stage.close()
        assert stage.line.comm is None


def test_scenes_have_a_stage_each_and_others_are_refused() -> None:
    run = Loaded(Store.from_frame(training(1)))
    overview, timeline = show(run), run.view("timeline")
    assert overview is not timeline and run.view("timeline") is timeline
    client = listening(timeline)
    timeline._handle_custom_msg(HELLO, [])
    client.until(lambda: client.headers)
    assert client.last["run"]["scene"] == "timeline" and client.last["run"]["readonly"]
    with pytest.raises(ValueError, match="no scene 'attic'; there is overview, collectives"):
        run.view("attic")
    timeline.close()
    assert run.view("timeline") is not timeline
    for stage in (overview, run.view("timeline")):
        stage.close()


def test_a_real_run_displays_itself() -> None:
    run = wb.run(lenet(iterations=3))
    assert run._repr_mimebundle_()[0]["text/plain"] == "Run(data_parallel, lenet_digits, 2 ranks)"
    run.wait(60)
    assert "3 iterations" in run._repr_mimebundle_()[0][PICTURE]
    show(run).close()


def test_without_a_user_interface_a_run_is_shown_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Loaded(Store.from_frame(training(1)))
    shown, _ = DisplayFormatter().format(run)
    assert shown == {}  # it displays itself
    monkeypatch.setitem(sys.modules, "workbench.views.jupyter", None)
    shown, _ = DisplayFormatter().format(run)
    assert shown == {"text/plain": repr(run)}


# ---- a real kernel

MAKE = """
from tests.synthetic import training
from tests.views.feeding import Run
from workbench.views.jupyter import show
run = Run()
run.tell(training(3))
stage = show(run)
print(stage.line.comm.comm_id)
"""
BUSY = """
import os, time
stage.send({{'type': 'from the main thread'}})
while not os.path.exists({heard!r}):
    time.sleep(0.01)
print('the cell ends')
"""


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    with started(tmp_path, monkeypatch) as here:
        yield here


@pytest.mark.full
def test_a_page_is_heard_while_a_synchronous_cell_runs(kernel: Kernel, tmp_path: Path) -> None:
    """As JupyterLab does it: the widget's messages come through a subshell of their own.

    The cell runs until the page has been answered.
    """
    client = kernel.client
    client.control_channel.send(client.session.msg("create_subshell_request", {}))
    subshell = client.control_channel.get_msg(timeout=120)["content"]["subshell_id"]
    client.execute(MAKE)
    printed = kernel.until(lambda m: m["msg_type"] in ("stream", "error"), 60, "a stage")
    comm = printed["content"]["text"].strip()
    client.execute(BUSY.format(heard=str(tmp_path / "heard")))
    ours = lambda m: m["msg_type"] == "comm_msg" and m["content"]["comm_id"] == comm  # noqa: E731
    kernel.until(lambda m: ours(m) and "from the main thread" in str(m["content"]), 20, "the cell")
    hello = {"comm_id": comm, "data": {"method": "custom", "content": HELLO}}
    message = client.session.msg("comm_msg", hello)
    message["header"]["subshell_id"] = subshell
    client.shell_channel.send(message)
    history = lambda m: ours(m) and m["content"]["data"]["content"].get("reset")  # noqa: E731
    answer = kernel.until(history, 20, "the history")
    (tmp_path / "heard").touch()
    header = answer["content"]["data"]["content"]
    assert header["rows"] > 0 and len(answer["buffers"][0]) > 50 * header["rows"]
    json.dumps(header, allow_nan=False)
    kernel.until(kernel.printed("the cell ends"), 20, "the cell's end")


RUN = """
import workbench as wb
run = wb.run(wb.Experiment(ranks=2, iterations=1_000_000, pad_compute="10 ms"))
run
"""
STOP = """
run.stop()
print(len((await run).losses), "iterations")
"""


def test_the_picture_of_a_saved_notebook_is_that_of_the_run_s_end(kernel: Kernel) -> None:
    """Before the cell that awaits it ends: a notebook that is saved then has that."""
    begun, awaits = kernel.client.execute(RUN), kernel.client.execute(STOP)
    idle = lambda m: (  # noqa: E731
        m["content"].get("execution_state") == "idle" and m["parent_header"]["msg_id"] == awaits
    )
    kernel.until(idle, 90, "the end of the run")
    shown = [m for m in kernel.got if "image/svg+xml" in m["content"].get("data", {})]
    first, last = shown[0], shown[-1]
    printed = (m["content"]["text"] for m in kernel.got if m["msg_type"] == "stream")
    counted = next(text.strip() for text in printed if text.endswith("iterations\n"))
    assert [m["msg_type"] for m in shown] == ["display_data", "update_display_data"]
    assert first["parent_header"]["msg_id"] == begun and last["parent_header"]["msg_id"] == awaits
    assert first["content"]["transient"] == last["content"]["transient"] != {}
    pictures = [m["content"]["data"][PICTURE] for m in shown]
    assert "at the end" not in pictures[0] and counted in pictures[1]
    for m in shown:
        assert m["content"]["data"]["text/plain"] == "Run(data_parallel, lenet_digits, 2 ranks)"
        assert WIDGET in m["content"]["data"]


def test_a_picture_that_no_page_loads_is_missed_until_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(widget, "LATE_SECONDS", 0.05)
    picture, turns, heard = widget.Picture(), list[bool](), list[Any]()
    picture.on_msg(lambda _, content, __: heard.append(content))
    picture.await_page(lambda: turns.append(picture.is_missed))
    until(lambda: turns == [True], 5)
    assert "has not loaded anywidget" in picture.absent.value
    picture._handle_line(None, {"type": "there"}, [])
    assert turns == [True, False] and not picture.absent.value
    assert not heard, "it is not a message to the picture's owner"
    picture.close()


class _TooLate(threading.Event):
    """A page's answer that comes just as the time for it is over."""

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return False


def test_a_page_that_comes_just_as_its_time_is_over_has_its_picture() -> None:
    picture, turns = widget.Picture(), list[bool]()
    picture._is_met = _TooLate()
    picture.await_page(lambda: turns.append(picture.is_missed))
    name = "workbench waits for a page"
    until(lambda: all(one.name != name for one in threading.enumerate()), 5)
    assert picture._is_met.is_set() and not picture.is_missed and turns == []
    picture.close()

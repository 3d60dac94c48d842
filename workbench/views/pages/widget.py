"""The stage as a widget of a notebook: its module, which is sent once, and its line.

A widget's own module is loader.js, two kilobytes. The stage's (a megabyte) is in a model that all
stages of a kernel share, packed; a page takes it once. Messages go by a plain model, the ``line``:
anywidget loses every message of a widget whose module was not there within two seconds.
"""

from __future__ import annotations

import gzip
import hashlib
import threading
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any

import anywidget
import ipywidgets
import traitlets

from workbench.common import threads
from workbench.front_end.assets import joined, stage_module, theme
from workbench.views.packing import Message

LATE_SECONDS = 15.0  # for a page to load a widget's module, before it is taken to have none
ABSENT = (
    "This page has not loaded anywidget, which draws live pictures. Load the page again, then run "
    "the cell again; if that does not help, install anywidget where Jupyter itself runs."
)
PACKING = 6  # of gzip: five megabytes take a third of a second

_shared: dict[str, Source] = {}  # this kernel's, by key


class Source(ipywidgets.Widget):
    """A module, packed. ``key``: equal where it is the same."""

    packed = traitlets.Bytes().tag(sync=True)
    key = traitlets.Unicode().tag(sync=True)


class Picture(anywidget.AnyWidget):
    """A view as a widget. Its owner receives messages of its pages with ``on_msg``, and sends."""

    _esm = joined("widgets/loader.js")
    _css = theme()
    source = traitlets.Instance(Source).tag(sync=True, **ipywidgets.widget_serialization)
    opens = traitlets.Unicode().tag(sync=True)  # the scene whose shape it has until rows come
    line = traitlets.Instance(ipywidgets.Widget).tag(sync=True, **ipywidgets.widget_serialization)
    own = traitlets.Unicode().tag(sync=True)  # the name of its model: of a tab's second view

    def __init__(self) -> None:
        self._sending, self._is_met = threading.Lock(), threading.Event()
        self._settling = threading.RLock()
        self.is_missed = False  # no page has loaded it, though there was time
        self.absent = ipywidgets.HTML()  # a sentence that says so
        self._turn: Callable[[], None] = lambda: None
        super().__init__(model_id=self.own, source=source(stage_module()), line=ipywidgets.Widget())
        self.line.on_msg(self._handle_line)
        for comm in (self.comm, self.line.comm):
            hear_at_once(comm)

    @traitlets.default("own")
    def _name(self) -> str:
        return uuid.uuid4().hex

    def _handle_line(self, _: object, content: Any, buffers: list[Any]) -> None:
        self._is_met.set()
        self._settle()
        if not isinstance(content, dict) or content.get("type") != "there":
            self._handle_custom_msg(content, buffers)

    def await_page(self, turn: Callable[[], None] = lambda: None) -> None:
        """Call ``turn`` if no page loads the picture in time, and again should one do so later.

        JupyterLab without anywidget shows "Click to show javascript error" in its place: where it
        was installed after the page was loaded, or in the kernel's environment alone.
        """

        def wait() -> None:
            if not self._is_met.wait(LATE_SECONDS):
                self._settle()

        self._turn = turn
        threads.start(wait, "workbench waits for a page", stop=self._is_met.set)

    def _settle(self) -> None:
        """Show the sentence or the picture, whichever is right now: a page may come just as the
        time for it is over.
        """
        with self._settling:
            is_missed = not self._is_met.is_set()
            if is_missed == self.is_missed:
                return
            self.is_missed = is_missed
            self.absent.value = f"<p>{ABSENT}</p>" if is_missed else ""
            self._turn()

    def send(self, content: Any, buffers: Any = None) -> None:
        """Send a message to every page that shows it, from the feed's or an answering thread."""
        with self._sending:
            self.line.send(content, buffers)

    def push(self, message: Message) -> None:
        """Send a feed's message."""
        self.send(message.header, buffers=[memoryview(message.payload)] if message.payload else [])

    def close(self) -> None:
        """Take the picture away."""
        self._is_met.set()
        super().close()
        self.line.close()
        self.absent.close()


class Small(anywidget.AnyWidget):
    """A widget whose pages follow its traits, however late its module: they ask for them."""

    _own = traitlets.Unicode().tag(sync=True)  # the name of its model

    def __init__(self) -> None:
        super().__init__(model_id=self._own)
        self.on_msg(self._hear)

    @traitlets.default("_own")
    def _name(self) -> str:
        return uuid.uuid4().hex

    def _hear(self, _: object, content: Any, __: object) -> None:
        if isinstance(content, dict) and content.get("type") == "state":
            self.send_state()


def source(module: str) -> Source:
    """Return the model of a module: one per kernel, created again if it was closed."""
    packed, key = _pack(module)
    if (result := _shared.get(key)) is None or result.comm is None:
        result = _shared[key] = Source(packed=packed, key=key)
    return result


@cache
def _pack(module: str) -> tuple[bytes, str]:
    text = module.encode()
    return gzip.compress(text, PACKING, mtime=0), hashlib.sha256(text).hexdigest()


def hear_at_once(comm: Any) -> None:
    """Let messages of the page in while a synchronous cell runs.

    JupyterLab sends a widget's messages to a thread of their own (a subshell); ipykernel 7.4 turns
    them back to the main one, which is busy, because that is where the widget sent from last. Ours
    only sets events and needs no main thread. It is a private method: where it does not exist,
    messages wait for the cell's end, or come at once as in ipykernel 7.1 and 7.3.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, default: default

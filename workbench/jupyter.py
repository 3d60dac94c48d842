"""The stage in a notebook. Only here is anywidget imported.

A run displays itself through ``show(run)``. A thread sends to the page what is new, so the picture
moves while a cell runs, awaits or has returned; the thread ends with the run.
"""

from __future__ import annotations

import uuid
import weakref
from typing import Any

import anywidget

from workbench._assets import stage_module, theme
from workbench.views import Message
from workbench.views.facts import Watched
from workbench.views.stream import Pump, Stream

_stages: weakref.WeakKeyDictionary[Watched, Stage] = weakref.WeakKeyDictionary()


class Stage(anywidget.AnyWidget):
    """One run, drawn live from its events."""

    _esm = stage_module()
    _css = theme()

    def __init__(self, run: Watched) -> None:
        super().__init__()
        self._words = repr(run)
        self._stream = Stream(run, uuid.uuid4().hex)
        self._pump = Pump(self._stream, self._push)
        self.on_msg(self._hear)
        # Not only on hello: a synchronous cell keeps the page's messages waiting, ours get through.
        self._pump.start()

    def _push(self, message: Message) -> None:
        self.send(message.header, buffers=[memoryview(message.payload)] if message.payload else [])

    def _hear(self, _: object, content: dict[str, Any], __: object) -> None:
        if content.get("type") == "hello":
            self._push(self._stream.history())

    def close(self) -> None:
        """Take the picture away and end its thread; the run goes on."""
        self._pump.stop()
        super().close()

    def __repr__(self) -> str:
        return self._words  # where widgets do not run, a cell shows the run's own words


def show(run: Watched) -> Stage:
    """The stage of ``run``; the same one when asked again, however many cells show it."""
    if run not in _stages:
        _stages[run] = Stage(run)
    return _stages[run]

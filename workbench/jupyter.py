"""The stage in a notebook. Only here is anywidget imported.

A run displays itself through ``show(run)``. The run's feed (views/feed.py) sends from a thread of
its own, so the picture moves while a cell runs, awaits or has returned.
"""

from __future__ import annotations

import weakref
from typing import Any

import anywidget
from IPython.display import display

from workbench._assets import stage_module, theme
from workbench.views import Message
from workbench.views.embedded import image
from workbench.views.facts import Watched
from workbench.views.feed import Start, feed
from workbench.views.still import select
from workbench.views.svg import svg

_stages: weakref.WeakKeyDictionary[Watched, dict[str, Stage]] = weakref.WeakKeyDictionary()


class Stage(anywidget.AnyWidget):
    """One run, drawn live from its events. ``scene`` opens first; the reader may go to others.

    ``readonly`` and ``on_start`` are those of ``Feed.join``.
    """

    _esm = stage_module()
    _css = theme()

    def __init__(
        self,
        run: Watched,
        scene: str = "overview",
        *,
        readonly: bool = False,
        on_start: Start | None = None,
    ) -> None:
        super().__init__()
        self.scene, self._words, self._shown = scene, repr(run), False
        self._renewed = False
        self._page = feed(run).join(self._push, readonly, on_start, scene)
        self.on_msg(self._hear)
        hear_at_once(self.comm)

    def _push(self, message: Message) -> None:
        self.send(message.header, buffers=[memoryview(message.payload)] if message.payload else [])

    def _hear(self, _: object, content: dict[str, Any], __: object) -> None:
        self._page.hear(content)

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The widget, and for where widgets do not run the picture as it is now, and words."""
        bundle = super()._repr_mimebundle_(**options)
        if bundle is not None:
            still = svg(select(self._page.run.store))
            bundle[0].update({"image/svg+xml": still, "text/html": image(still, self._words)})
        return bundle

    def _ipython_display_(self) -> None:
        """Show it, so that the picture for elsewhere can still change: it is at first that of a run
        that begins, and in the end, and in the saved notebook, that of one that is over.
        """
        self._publish()
        run = self._page.run
        if not run.done and hasattr(run, "at_end") and not self._shown:
            self._shown = True
            run.at_end(lambda: self._publish(update=True))

    def renew(self) -> None:
        """Have the picture for elsewhere be as the run is now. Pages draw the stage anew for that,
        so it is done once where one shows it live: the reader may have gone to another scene.
        """
        if self._shown and not (self._renewed and self._page.listens):
            self._renewed = True
            self._publish(update=True)

    def _publish(self, update: bool = False) -> None:
        """Everywhere at once: the places of a display share its id."""
        if (bundle := self._repr_mimebundle_()) is not None:
            data, metadata = bundle
            display(data, metadata=metadata, raw=True, display_id=self.model_id, update=update)

    def close(self) -> None:
        """Take the picture away; the run goes on."""
        self._page.leave()
        for stages in _stages.values():
            if stages.get(self.scene) is self:
                del stages[self.scene]
        super().close()

    def __repr__(self) -> str:
        return self._words  # where widgets do not run, a cell shows the run's own words


class ModelStage(anywidget.AnyWidget):
    """What is drawn without a run: a split model, a partition. ``table``: HTML for where no widget
    runs.
    """

    _esm = stage_module()
    _css = theme()

    def __init__(self, page: Message, words: str, table: str) -> None:
        super().__init__()
        self._page, self._words, self._table = page, words, table
        self.on_msg(self._hear)
        hear_at_once(self.comm)

    def _hear(self, _: object, content: Any, __: object) -> None:
        if isinstance(content, dict) and content.get("type") == "hello":
            self.send(self._page.header)

    def turn(self, page: Message, words: str, table: str) -> None:
        """Show another one in its place."""
        self._page, self._words, self._table = page, words, table
        self.send(page.header)

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**options)
        if bundle is not None:
            bundle[0]["text/html"] = self._table
        return bundle

    def __repr__(self) -> str:
        return self._words


def hear_at_once(comm: Any) -> None:
    """Let messages of the page in while a synchronous cell runs.

    JupyterLab sends a widget's messages to a thread of their own (a subshell); ipykernel 7.4 turns
    them back to the main one, which is busy, because that is where the widget sent from last. Ours
    only sets events and needs no main thread. It is a private method: where it does not exist,
    messages wait for the cell's end, or come at once as in ipykernel 7.1 and 7.3.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, default: default


def show(run: Watched, scene: str = "overview") -> Stage:
    """The stage of ``run`` that opens with ``scene``; the same one when asked again.

    Raises ValueError, which names the scenes that there are, for another one.
    """
    stages = _stages.setdefault(run, {})
    if scene not in stages:
        stages[scene] = Stage(run, scene)
    return stages[scene]

"""The stage in a notebook.

A run displays itself through ``show(run)``. The run's feed (views/pages/feed.py) sends from a
thread of its own, so the picture moves while a cell runs, awaits or has returned.
"""

from __future__ import annotations

import weakref
from typing import Any

from IPython.display import display

from workbench.common.html_picture import image
from workbench.views.packing import Message
from workbench.views.pages.facts import Watched
from workbench.views.pages.feed import Start, feed
from workbench.views.pages.widget import Picture, hear_at_once
from workbench.views.stills.still import select
from workbench.views.stills.svg import svg

__all__ = ["ModelStage", "Stage", "hear_at_once", "show"]

_stages: weakref.WeakKeyDictionary[Watched, dict[str, Stage]] = weakref.WeakKeyDictionary()


class Stage(Picture):
    """One run, drawn live from its events. ``scene`` opens first; the reader may go to others.

    ``readonly`` and ``on_start`` are those of ``Feed.join``.
    """

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
        self._page = feed(run).join(self.push, readonly, on_start, scene)
        self.on_msg(self._hear)

    def _hear(self, _: object, content: dict[str, Any], __: object) -> None:
        self._page.hear(content)

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the widget, and for where widgets do not run the picture as it is now, and its
        text.
        """
        bundle = super()._repr_mimebundle_(**options)
        if bundle is not None:
            still = svg(select(self._page.run.store, self.scene))
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
        """Bring the still picture up to date. Pages draw the stage anew for that, so it is done
        once where a page shows it live: the reader may have gone to another scene.
        """
        if self._shown and not (self._renewed and self._page.listens):
            self._renewed = True
            self._publish(update=True)

    def _publish(self, update: bool = False) -> None:
        """Update every output that shows it: they share its display id."""
        if (bundle := self._repr_mimebundle_()) is not None:
            data, metadata = bundle
            display(data, metadata=metadata, raw=True, display_id=self.model_id, update=update)

    def close(self) -> None:
        """Take the picture away; the run goes on."""
        if (page := getattr(self, "_page", None)) is not None:  # it comes of a refused one as well
            page.leave()
        for stages in _stages.values():
            if stages.get(self.scene) is self:
                del stages[self.scene]
        super().close()

    def __repr__(self) -> str:
        return self._words  # where widgets do not run, a cell shows the run's own words


class ModelStage(Picture):
    """A view without a run: a split model, a partition.

    ``table``: HTML for where no widget runs.
    """

    def __init__(self, page: Message, words: str, table: str) -> None:
        super().__init__()
        self._page, self._words, self._table = page, words, table
        self.on_msg(self._hear)

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


def show(run: Watched, scene: str = "overview") -> Stage:
    """Return the stage of ``run`` that opens with ``scene``; the same one when asked again.

    Raises SpecError, which names the scenes that there are, for another one.
    """
    stages = _stages.setdefault(run, {})
    if scene not in stages:
        stages[scene] = Stage(run, scene)
    return stages[scene]

"""The stage in a notebook.

A run displays itself through ``show(run)``. The run's feed (views/pages/feed.py) sends from a
thread of its own, so the picture moves while a cell runs, awaits or has returned.
"""

from __future__ import annotations

import os
import re
import weakref
from functools import partial
from typing import Any

from IPython import get_ipython
from IPython.display import display

from workbench.common.errors import SpecError
from workbench.experiment.spec import Experiment
from workbench.front_end.html_picture import image
from workbench.runs.displays import display as display_of
from workbench.runs.run import Run, start
from workbench.views.packing import Message
from workbench.views.pages.facts import Watched
from workbench.views.pages.feed import Start, feed
from workbench.views.pages.page import Page, Trials
from workbench.views.pages.unattended import WIDGET, for_readers
from workbench.views.pages.widget import ABSENT, Picture, hear_at_once
from workbench.views.replay import to_html
from workbench.views.scenes import first_scene
from workbench.views.stills.still import select
from workbench.views.stills.svg import svg

__all__ = ["ModelStage", "Stage", "hear_at_once", "show"]

_MOMENT = re.compile(r"(^|&)t=\d+(\.\d+)?(&|$)")  # a time is the part that it must have

_stages: weakref.WeakKeyDictionary[Watched, dict[tuple[str, str], Stage]]
_stages = weakref.WeakKeyDictionary()  # by scene and moment


class Stage(Picture):
    """One run, drawn live from its events. ``scene`` opens first; the reader may go to others.

    ``readonly`` and ``on_start`` are those of ``Feed.join``. ``moment``: where it opens, as the
    picture's own menu copies it.
    """

    def __init__(
        self,
        run: Watched,
        scene: str = "overview",
        *,
        readonly: bool = False,
        on_start: Start | None = None,
        moment: str = "",
    ) -> None:
        super().__init__()
        self.scene, self._words, self._shown = scene, repr(run), False
        self._renewed = self._awaits = False
        self._walk: dict[str, Any] | None = None
        self.opens = scene
        self._run, self._readonly, self._on_start = run, readonly, on_start
        self._page = self._join(run, scene, None if readonly else display_of("trials")(self, [run]))
        self._page.moment = moment
        self.on_msg(self._hear)

    def _join(self, run: Watched, scene: str, trials: Trials | None) -> Page:
        return feed(run).join(self.push, self._readonly, self._on_start, scene=scene, trials=trials)

    def begin(self, exp: Experiment, name: str) -> Run:
        """Start the run of a trial (studies/rank_trials.py)."""
        return start(exp)

    def turn(self, run: Watched, trials: Trials) -> None:
        """Show another run in the same picture: of a trial, or both of its runs."""
        self._page.leave()
        self._page = self._join(run, first_scene(run.store.metadata), trials)
        self._page.hear({"type": "hello"})

    def tell_walk(self, walk: dict[str, Any]) -> None:
        """Open a walk of one's own on every page that shows it (views/walks.py)."""
        self._page.walk = self._walk = walk

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write to ``path`` one file that animates in any browser, and opens the same walk."""
        to_html(self._run.store, path, self._walk)

    def refresh_facts(self) -> None:
        """Send the facts again."""
        self._page.refresh()

    def _hear(self, _: object, content: dict[str, Any], __: object) -> None:
        self._page.hear(content)

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the widget, and for where widgets do not run the picture as it is now, and its
        text.
        """
        bundle = super()._repr_mimebundle_(**options)
        if bundle is not None:
            still = svg(select(self._run.store, self.scene))
            pictures = {"image/svg+xml": still, "text/html": image(still, self._words)}
            return for_readers(bundle[0] | pictures), bundle[1]
        return bundle

    def _ipython_display_(self) -> None:
        """Show it, so that the picture for elsewhere can still change: it is at first that of a run
        that begins, and in the end, and in the saved notebook, that of one that is over.
        """
        self._publish()
        if not self._awaits and hasattr(get_ipython(), "kernel"):  # not a terminal
            self._awaits = True
            self.await_page(partial(self._publish, update=True))
        run: Any = self._run
        if not run.done and hasattr(run, "at_end") and not self._shown:
            self._shown = True
            run.at_end(lambda: self._publish(update=True))

    def renew(self) -> None:
        """Bring the still picture up to date. Pages draw the stage again for that, so it is done
        once where a page shows it live: the reader may have gone to another scene.
        """
        if self._shown and not (self._renewed and self._page.listens):
            self._renewed = True
            self._publish(update=True)

    def _publish(self, update: bool = False) -> None:
        """Update every output that shows it: they share its display id."""
        if (bundle := self._repr_mimebundle_()) is not None:
            data, metadata = bundle
            if self.is_missed and data.pop(WIDGET, None):
                data["text/html"] = f"<p>{ABSENT}</p>{data['text/html']}"
            display(data, metadata=metadata, raw=True, display_id=self.model_id, update=update)

    def close(self) -> None:
        """Take the picture away; the run goes on."""
        if (page := getattr(self, "_page", None)) is not None:  # it comes of a refused one as well
            page.leave()
        for stages in _stages.values():
            for key in [key for key, stage in stages.items() if stage is self]:
                del stages[key]
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
            return for_readers(bundle[0] | {"text/html": self._table}), bundle[1]
        return bundle

    def __repr__(self) -> str:
        return self._words


def show(run: Watched, scene: str = "overview", moment: str = "") -> Stage:
    """Return the stage of ``run`` that opens with ``scene``, at ``moment``; the same one when asked
    again.

    Raises SpecError for a scene that there is not, whose text names the scenes, and for a moment
    that is none.
    """
    if moment and not _MOMENT.search(moment):
        raise SpecError(
            f"moment: expected text such as 't=48213900&rank=2', got {moment!r}; copy it from the "
            "menu Share of a picture"
        )
    stages = _stages.setdefault(run, {})
    if (key := (scene, moment)) not in stages:
        stages[key] = Stage(run, scene, moment=moment)
    return stages[key]

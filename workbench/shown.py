"""How a run shows itself: the same for a live one, a saved one, and one that is watched."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from workbench.store import Store


class Shown:
    """Everything that follows from the events in ``store``. User interface is imported when asked
    for.
    """

    store: Store

    @property
    def events(self) -> pl.DataFrame:
        """The event table up to now; complete once the run is over."""
        return self.store.events

    @property
    def dropped(self) -> int:
        """Records lost to overflow: 0 in normal use."""
        return self.store.dropped

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """One file that animates in any browser, offline."""
        from workbench.replay import to_html

        to_html(self.store, path)

    def view(self, scene: str = "overview") -> Any:
        """The stage as a notebook's widget, opened with the scene "overview", "collectives" or
        "timeline". Raises ValueError, which names the scenes, for another one.
        """
        from workbench.jupyter import show

        return show(self, scene)  # type: ignore[arg-type]  # who derives from this has the rest

    def figure(self, name: str, theme: str = "light") -> Any:
        """A plain Plotly figure of the run as it is now: loss, accuracy, throughput, communication,
        overhead; of a parameter server also updates, time, clocks, staleness, waiting, servers.
        ``theme``: light or dark. Raises ValueError, which names them, for another one.
        """
        from workbench.views.charts import figure
        from workbench.views.curves import record_ns

        return figure(self.store, name, theme, record_ns(self))

    def charts(self, *names: str, theme: str | None = None) -> Any:
        """The same figures as a notebook's widget that follows the run; by default all that have
        something to say of it.

        ``close()`` takes it away and ends its thread, which ends by itself with the run.
        """
        from workbench.views.live import Charts

        return Charts(self, *names, theme=theme)

    def _stage(self) -> Any:
        """For IPython: where no user interface is installed, it then shows the plain words."""
        try:
            return self.view()
        except ImportError as error:
            raise NotImplementedError(f"no user interface: {error}") from error

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self._stage()._repr_mimebundle_(**options)

    def _ipython_display_(self) -> None:
        self._stage()._ipython_display_()

    def __panel__(self) -> Any:
        from workbench.app import stage

        return stage(self)

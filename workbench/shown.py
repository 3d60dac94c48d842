"""How a run shows itself: the same for a live one, a saved one, and one that is watched."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from workbench.pipelines.schedule import Schedule
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

    @property
    def schedule(self) -> Schedule | None:
        """The schedule of a pipeline with a flush; None for any other run."""
        from workbench.pipelines.schedule import Schedule

        return Schedule.from_facts(self._pipeline)

    def bubble(self) -> pl.DataFrame:
        """Why a pipeline's ranks were idle: a row a rank, shares of its time.

        Columns: busy, warm_up, imbalance, communication, fault; planned: idle by the schedule. The
        first iteration is left out where there are others. Empty for any other run.
        """
        from workbench.pipelines.bubble import shares

        events = self.events
        settled = events.filter(events["iteration"] != 0) if self._settled(events) else events
        return shares(settled, self._pipeline)

    def disagreement(self) -> pl.DataFrame:
        """How far replicas that train for themselves are apart: iteration, rank, distance from the
        mean of all, and norm. Estimated from eight random projections of each replica, which keep
        distances but for a factor of about 1 ± ¼. Empty where replicas are always equal.
        """
        from workbench.gossip.disagreement import disagreement

        return disagreement(self.events)

    @staticmethod
    def _settled(events: pl.DataFrame) -> bool:
        """Is there more than the first iteration, in which all is still cold?"""
        newest = events["iteration"].max()
        return isinstance(newest, int) and newest > 0

    @property
    def _pipeline(self) -> dict[str, Any]:
        """What pages are told of it; empty for any other strategy."""
        told: dict[str, Any] = json.loads(self.store.metadata.get("pipeline", "{}"))
        return told

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write to ``path`` one file that animates in any browser, offline."""
        from workbench.replay import to_html

        to_html(self.store, path)

    def view(self, scene: str = "overview") -> Any:
        """The stage as a notebook's widget, opened with the scene "overview", "collectives" or
        "timeline". Raises ValueError, which names the scenes, for another one.
        """
        from workbench.jupyter import show

        return show(self, scene)  # type: ignore[arg-type]  # who derives from this has the rest

    def figure(self, name: str, theme: str = "light") -> Any:
        """A plain Plotly figure of the run as it is now, by ``name``: loss, accuracy, throughput,
        communication, overhead; of a parameter server also updates, time, clocks, staleness,
        waiting, servers.
        ``theme``: light or dark. Raises ValueError, which names them, for another one.
        """
        from workbench.views.charts import figure
        from workbench.views.curves import record_ns

        return figure(self.store, name, theme, record_ns(self))

    def charts(self, *names: str, theme: str | None = None) -> Any:
        """The same figures, by their ``names``, as a notebook's widget that follows the run; by
        default all that have something to say of it. ``theme``: light or dark; None: the reader's.

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

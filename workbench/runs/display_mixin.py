"""The displays of a run: the same for a live one, a saved one, and one that is watched."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from workbench.common.arguments import Place, Text, Theme, checked
from workbench.common.errors import WorkbenchError
from workbench.runs.displays import display
from workbench.runs.path_mixin import Paths
from workbench.runs.tables_mixin import Tables

if TYPE_CHECKING:
    import polars as pl

    from workbench.analysis.bottleneck import Bottleneck
    from workbench.analysis.detection import Detection
    from workbench.analysis.poison import Poison
    from workbench.analysis.recovery import Recoveries
    from workbench.store.event_store import Store
    from workbench.store.skipped import Skipped
    from workbench.training.pipelines.schedule import Schedule


class Shown(Tables, Paths):
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
        from workbench.training.pipelines.schedule import Schedule

        return Schedule.from_facts(self._pipeline)

    @checked
    def bubble(self, by_iteration: bool = False) -> pl.DataFrame:
        """Return why a pipeline's ranks were idle: a row per rank, with shares of its time.

        Columns: busy, warm_up, imbalance, communication, fault; planned: idle by the schedule. The
        first iteration is left out where there are others. Empty for any other run.

        ``by_iteration``: a row per iteration instead, with iteration; idle: the share of the ranks'
        time; took_ms: from its first action's start to its last one's end. Without a flush
        iterations overlap, and the whole run is one row, with iteration -1.
        """
        from workbench.analysis.pipeline_tables import idle_by_iteration
        from workbench.training.pipelines.bubble import shares

        events, facts = self.events, self._pipeline
        flushes = facts.get("flush", True) and self._settled(events)
        settled = events.filter(events["iteration"] != 0) if flushes else events
        return (idle_by_iteration if by_iteration else shares)(settled, facts)

    def disagreement(self) -> pl.DataFrame:
        """Compute how far replicas that train for themselves are apart: iteration, rank, distance
        from the mean of all, and norm. Estimated from eight random projections of each replica,
        which keep distances within a factor of about 1 ± ¼. Empty where replicas are always equal.
        """
        from workbench.training.gossip.disagreement import disagreement

        return disagreement(self.events)

    def recovery(self) -> Recoveries:
        """Measure what each loss of ranks cost, so far: how long the driver took to notice, the
        survivors to leave, the next group to form and to have what is trained, and its first
        iteration to end; what was lost and repeated, and the goodput of the run. ``.table`` has
        them as columns: see analysis/recovery.py.
        """
        from workbench.analysis.recovery import measure

        return measure(self.events, self.store.metadata)

    def bottleneck(self) -> Bottleneck | None:
        """Find what the time of the ranks that train was spent on (``shares``: computing, waiting
        for others, links, cores), what cost most, whose doing it is and what would help: see
        analysis/bottleneck.py. None where fewer than two ranks train.
        """
        from workbench.analysis.bottleneck import find

        return find(self.store.scan(), self.store.metadata)

    def detection(self) -> Detection:
        """Score what was noticed, so far, against the faults that were done: each with the time to
        its detection, what was missed, and false alarms. ``.table`` has them as columns: see
        analysis/detection.py.
        """
        from workbench.analysis.detection import score

        return score(self.events, self.store.metadata)

    def skipped(self) -> list[Skipped]:
        """Return the minibatches that all ranks left out (``bad_minibatch="skip"``), so far, or one
        rank its share of: the rank that found each, why, the ids of what was left out, which of
        them are bad, and in which layer.
        """
        from workbench.store.skipped import skipped_of

        return skipped_of(self.store.metadata)

    def poison(self) -> Poison | None:
        """Follow the first NaN that ``wb.Corrupt`` put into a gradient through the recorded
        messages of its iteration: which chunks carried it, and which ranks they reached in which
        step. None where none was, or it was found before the sum: see analysis/poison.py.
        """
        from workbench.analysis.poison import follow

        return follow(self.events)

    def bytes_by_kind(self) -> pl.DataFrame:
        """Count the bytes of each kind of message between actors, replay, learners and servers, so
        far: kind, messages, nbytes, and expected, the bytes by formula. Empty for a strategy
        without actors: see training/reinforcement/bytes_by_kind.py.
        """
        from workbench.training.reinforcement.bytes_by_kind import of_run

        return of_run(self.events, self.store.metadata)

    @staticmethod
    def _settled(events: pl.DataFrame) -> bool:
        """Return whether there are iterations after the first, in which caches are still cold."""
        newest = events["iteration"].max()
        return isinstance(newest, int) and newest > 0

    @property
    def _pipeline(self) -> dict[str, Any]:
        """The pipeline's facts for pages; empty for any other strategy."""
        facts: dict[str, Any] = json.loads(self.store.metadata.get("pipeline", "{}"))
        return facts

    @checked
    def to_html(self, path: Place) -> None:
        """Write to ``path`` one file that animates in any browser, offline."""
        display("page")(self.store, path)

    @checked
    def view(self, scene: Text = "overview", *, moment: Text = "") -> Any:
        """Return the stage as a notebook's widget, opened with ``scene``, such as "overview",
        "collectives" or "timeline". ``moment``: where in the run it opens, as the picture's menu
        *Share* copies it. Raises SpecError, which names the scenes, for another one.
        """
        return display("widget")(self, scene, moment)

    @checked
    def figure(self, name: Text, theme: Theme = "light") -> Any:
        """Draw a plain Plotly figure of the run as it is now, by ``name``: loss, accuracy,
        throughput, communication, overhead; of a parameter server also updates, time, clocks,
        staleness, waiting, servers; where memory is counted also memory, river. ``theme``: light or
        dark. Raises SpecError, which names them, for another one.
        """
        from workbench.analysis.curves import record_ns

        return display("figure")(self.store, name, theme, record_ns(self))

    @checked
    def charts(self, *names: Text, theme: Theme | None = None) -> Any:
        """Return the same figures, by their ``names``, as a notebook's widget that follows the run;
        by default all that have data. ``theme``: light or dark; None: the reader's.

        ``close()`` takes it away and ends its thread, which ends by itself with the run.
        """
        return display("charts")(self, *names, theme=theme)

    def _stage(self) -> Any:
        """Return the stage for IPython; where no user interface is installed, IPython then shows
        the run's text.
        """
        try:
            return self.view()
        except ImportError as error:
            raise NotImplementedError(f"no user interface: {error}") from error

    def _repr_mimebundle_(self, **options: Any) -> Any:
        try:
            return self._stage()._repr_mimebundle_(**options)
        except WorkbenchError as error:  # of metadata that no run of ours stores
            return {"text/plain": str(error)}

    def _ipython_display_(self) -> None:
        try:
            self._stage()._ipython_display_()
        except WorkbenchError as error:
            print(error)

    def __panel__(self) -> Any:
        return display("panel")(self)

"""The critical path of a run's iterations, and how long they would take with changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.common.arguments import Number, checked

if TYPE_CHECKING:
    import polars as pl

    from workbench.analysis.critical_path.path import CriticalPath
    from workbench.analysis.critical_path.what_if import Retimer
    from workbench.runs.provable import Provable
    from workbench.store.event_store import Store


class Paths:
    """The work that set the time of iterations, by the record in ``store``."""

    store: Store

    @checked
    def critical_path(self, iteration: Number | None = None) -> CriticalPath | None:
        """Find the work and the messages, through all ranks, that set the time of an ``iteration``
        (from 0; None: the newest that is finished), as a path: ``segments``, with rank, kind, name,
        start_ns, end_ns and share; ``causes``, summed up; ``slack`` of all other work. It shows
        itself as a picture. None where no iteration is finished: see analysis/critical_path/.

        Raises SpecError for an iteration that is not finished.
        """
        from workbench.analysis.critical_path.path import critical_path

        return critical_path(self.store.scan(), self.store.metadata, iteration, self.store.dropped)

    @checked
    def what_if(self, links: Any = None, compute: Any = None) -> Provable:
        """Predict how long an iteration would take with changes, by its dependencies: ``ms``,
        between ``low`` and ``high``; ``ms`` is None where the record does not carry an answer, and
        ``why_not`` says why. ``prove()`` runs it.

        ``links``: other links, by the ranks that they lead from and to; what a Link leaves out is
        as it was. ``compute``: factors on the time that ranks compute, by rank. Several changes at
        once are timed together. Raises SpecError for a change of what the run does not have.

        >>> run.what_if(links={(0, 1): wb.Link(latency="5 ms")}, compute={1: 0.7})
        """
        from workbench.analysis.critical_path.what_if import changes_of
        from workbench.runs.provable import provable

        changes, retimer = changes_of(links, compute), self._retimer()
        experiment = getattr(self, "experiment", None)
        return provable(retimer.predict(changes), retimer, experiment)

    def what_helps(self) -> pl.DataFrame:
        """List how much faster an iteration would be if one rank computed twice as fast, or one
        link had half the latency or twice the bandwidth: a row per change, by gain.

        change: in words; kind: compute, latency or bandwidth; rank, peer: whose; ms: an iteration
        with it; gain_ms. Empty where the record does not carry a prediction: ``what_if()`` says
        why.
        """
        return self._retimer().helps()

    def _retimer(self) -> Retimer:
        from workbench.analysis.critical_path.what_if import Retimer

        return Retimer(self.store.scan(), self.store.metadata, self.store.dropped)

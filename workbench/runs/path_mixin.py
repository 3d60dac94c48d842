"""The critical path of a run's iterations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.common.arguments import Number, checked

if TYPE_CHECKING:
    from workbench.analysis.critical_path.path import CriticalPath
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

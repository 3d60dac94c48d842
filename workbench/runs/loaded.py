"""A run that was saved, with everything that a finished run offers but its ranks."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from workbench.common.arguments import Job, Place, checked
from workbench.formats.reading import read, recognized
from workbench.runs.display_mixin import Shown
from workbench.runs.failure import read_facts
from workbench.runs.job_failure import note_failure
from workbench.store.event_store import Store
from workbench.store.holds import STILL, holds_of
from workbench.store.overlap import Overlap, measure
from workbench.store.regular_file import opened
from workbench.store.restarts import ends_of_text
from workbench.store.result import Overhead
from workbench.store.trace_sources import find_sources


@dataclass(frozen=True)
class Loaded(Shown):
    """A run that was saved: events, store, exports and views, as a finished Run has them."""

    store: Store  # its events and metadata

    done: ClassVar[bool] = True

    @property
    def failure(self) -> dict[str, Any] | None:
        """Why the run failed: ``text``, ``rank`` (-1: none by itself), ``how``, ``doing`` and more;
        None if it did not.
        """
        return read_facts(self.store.metadata.get("failure", ""))

    def overlap(self) -> Overlap:
        """Measure how much communication was hidden behind computation: see store/overlap.py."""
        return measure(self.events, holds_of(self.store.metadata, STILL))

    def overhead(self) -> Overhead:
        """Return what recording cost, as saved with the run; ``share`` is NaN if it was not."""
        if facts := self.store.metadata.get("overhead"):
            with contextlib.suppress(TypeError, ValueError):  # another version's
                return Overhead.from_json(facts)
        nan = float("nan")
        return Overhead(len(self.store), self.dropped, nan, nan, nan)


@checked
def load(path: Place, *, partial: bool = False, job: Job = -1) -> Loaded:
    """Read what ``run.store.save`` wrote to ``path``, the WORKBENCH_TRACE folder there, or what
    others recorded: files of torch's profiler or flight recorder, of Horovod or Chakra (formats/),
    one file or a folder of one a rank.

    Of a folder, ``partial`` takes what is whole of a damaged one; ``job`` says whose records, if
    several jobs wrote there: 0 is the oldest, -1 the newest. Attempts of a job that was restarted
    are read together: the column ``generation`` counts them. Raises WorkbenchError.

    >>> job = wb.load("/tmp/trace")
    """
    place = Path(path)
    if not _is_ours(place) and (files := recognized(place)):
        return Loaded(read(files))
    store = Store.load(path, partial=partial, job=job)
    if place.is_dir():
        ends, pids = store.metadata.get("ends", ""), json.loads(store.metadata.get("pids", "{}"))
        numbers = {int(rank): pid for rank, pid in pids.items()}
        note_failure(store.metadata, ends_of_text(ends), numbers, store.events)
    return Loaded(store)


def _is_ours(path: Path) -> bool:
    """Return whether this is a file or folder of the workbench's own."""
    if path.is_dir():
        return bool(find_sources(path))
    try:
        with opened(path) as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return True  # whose error says more

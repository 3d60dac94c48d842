"""The end of a run that its user stops: all ranks end before the same iteration."""

from __future__ import annotations

from workbench.rank.boundaries import agree
from workbench.rank.preemption import AtBoundary
from workbench.shared_memory.control_block import ABORT, STOP, STOP_ASKED


def is_over(job: AtBoundary, iteration: int) -> bool:
    """Return whether the run ends before this iteration because it was stopped, or has failed.

    All agree on a boundary (boundaries.py), which rank 0 names. Where ranks wait for their
    neighbors only, some are ahead of it by then: at most by ``job.lead``. A rank that is served
    asks its servers, whose answer says that its last push is in.
    """
    words = job.control.words
    if words[ABORT]:
        return True
    if job.rank == 0 and words[STOP] == STOP_ASKED:
        agree(job, STOP, iteration + 1 + job.lead)
    return not job.served and 0 < words[STOP] <= iteration

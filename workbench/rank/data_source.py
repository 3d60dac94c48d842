"""A data source that is gone for a while: a file that vanishes, a folder that is not mounted.

A rank that can read none of its samples waits until their source is back, for ``data_patience`` at
most; the clocks of the others stand meanwhile. Where a run goes on from what ranks have in memory
(``recovery``), all leave the iteration, write a checkpoint before it if the experiment has any, and
begin it again (a pipeline, which needs samples to be built, writes it when they are back). With
"abort" and "restart" they do so where there are checkpoints and all replicas are equal; otherwise
they wait where they are. Where one sample cannot be read and others can, it is not the source: see
attempts.py.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from workbench.checkpoints.parts import Parts
from workbench.common.errors import DataSourceDown, MissingFiles, SpecError, WorkbenchError
from workbench.experiment.spec import Experiment
from workbench.experiment.survivors import check_from_memory
from workbench.experiment.team import Team
from workbench.process_group.session import Session
from workbench.rank.corruption import Corruption
from workbench.recording.events import CODE
from workbench.recording.recorder import Recorder
from workbench.shared_memory.control_block import WAITS, Control

DOWN, BACK = "data source down", "data source back"  # names of rows
LOOK = 0.05  # seconds between two tries
MOST_TRIED = 16  # other samples
MOST_WORDS = 500  # letters of an error, in which the source has its name
_NOT_THE_SOURCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

T = TypeVar("T")


class Reads(Protocol):
    """The interface of a rank's job whose samples are read."""

    exp: Experiment
    run_rank: int
    ranks: int
    train: Any
    team: Team
    session: Session
    control: Control
    recorder: Recorder
    corruption: Corruption
    begins: bool
    goes_on_from_memory: bool
    parts: Parts

    def batch(self, dataset: Any, ids: np.ndarray) -> Any: ...


def read(job: Reads, ids: np.ndarray) -> Any:
    """Return these samples as one batch; wait for their source while it is down.

    Raises DataSourceDown after ``data_patience``, or where all ranks are to meet first.
    """
    dataset = job.corruption.samples(job.train, ids)
    try:
        return job.batch(dataset, ids)
    except Exception as error:
        if not is_down(error) or _any_can_be_read(job, ids):
            raise
        if _may_leave(job):
            raise DataSourceDown(_words(job, error), job.run_rank, how="left") from error
        return wait(job, error, lambda: job.batch(dataset, ids))


def patiently(job: Reads, again: Callable[[], T]) -> T:
    """Return what ``again`` reads, such as the validation samples; wait while it cannot."""
    try:
        return again()
    except Exception as error:
        if not is_down(error):
            raise
        return wait(job, error, again)


def reread(job: Reads, again: Callable[[], T]) -> T:
    """Return what ``again`` reads as a rank gets ready: patiently, where a generation before could
    read it; what is wrong at the start of a run is wrong at once.
    """
    return patiently(job, again) if job.team.generation else again()


def wait(job: Reads, error: Exception, again: Callable[[], T]) -> T:
    """Try ``again`` until the source is back. Raises DataSourceDown after ``data_patience``."""
    deadline = time.monotonic() + job.exp.data_patience_ns * 1e-9
    job.recorder.mark(CODE["detect"], DOWN, peer=job.run_rank)
    job.control.set_rank(job.run_rank, WAITS, 1)  # the driver lets the others' clocks stand
    try:
        while time.monotonic() < deadline:
            time.sleep(LOOK)
            job.session.look()
            try:
                result = again()
            except Exception as still:
                if not is_down(still):
                    raise
                error = still
            else:
                job.recorder.mark(CODE["detect"], BACK, peer=job.run_rank)
                return result
    finally:
        job.control.set_rank(job.run_rank, WAITS, 0)
    raise DataSourceDown(
        f"{_words(job, error)}. It was not back within data_patience={job.exp.data_patience!r}",
        job.run_rank,
        how="raised",
        doing="reading samples",
    ) from error


def is_down(error: Exception) -> bool:
    """Return whether the error says that a file or a connection is not there."""
    if isinstance(error, WorkbenchError):
        return isinstance(error, MissingFiles)
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    known = isinstance(error, OSError) and error.errno is not None
    return known and error.errno not in _NOT_THE_SOURCE  # type: ignore[attr-defined]


def _any_can_be_read(job: Reads, ids: np.ndarray) -> bool:
    """Return whether any of these samples can be read, or the first or the last of all."""
    for one in [*ids[:MOST_TRIED].tolist(), 0, len(job.train) - 1]:
        try:
            job.batch(job.train, np.asarray([one]))
        except Exception:
            continue
        return True
    return False


def _may_leave(job: Reads) -> bool:
    """Return whether all ranks meet before they wait: not where they have done so already."""
    if not (job.goes_on_from_memory or _saves(job)) or not job.begins or job.ranks == 1:
        return False
    first = job.team.sizes[-1][0] if job.team.sizes else 0
    return not job.team.waits or job.recorder.where.iteration > first


def _saves(job: Reads) -> bool:
    """Return whether a checkpoint is to be written before the wait, and every rank has all that
    belongs into it.
    """
    exp = job.exp
    if exp.checkpoint is None or not job.parts.equal:
        return False
    try:
        check_from_memory(exp, "replaced")
    except SpecError:
        return False
    return True


def _words(job: Reads, error: Exception) -> str:
    return (
        f"the data source of rank {job.run_rank} is down: none of its samples can be read "
        f"({type(error).__name__}: {str(error)[:MOST_WORDS]})"
    )

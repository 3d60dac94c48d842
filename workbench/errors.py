"""What can go wrong, in words: every message says who, what, expected, received and what to do."""

from __future__ import annotations


class WorkbenchError(Exception):
    """Above every error that the workbench raises on purpose.

    ``result`` holds what a failed run left.
    """

    result: object | None = None


class SpecError(WorkbenchError, ValueError):
    """An Experiment that cannot be: raised by its constructor, before any process starts."""


class CollectiveError(WorkbenchError, RuntimeError):
    """Ranks disagree about a collective: shape, dtype, operation or order."""


class PeerLost(WorkbenchError, ConnectionError, RuntimeError):
    """A rank ended while others counted on it. ``rank`` says which. (A RuntimeError too: that is
    what code around torch.distributed expects.)
    """

    def __init__(self, message: str, rank: int = -1) -> None:
        super().__init__(message)
        self.rank = rank


class RunTimeout(WorkbenchError, TimeoutError, RuntimeError):
    """No progress, or not done, within the time that was allowed. (A RuntimeError, as above.)"""


class GroupClosed(WorkbenchError, RuntimeError):
    """A process group was destroyed or aborted before what was asked of it was done."""


class RankError(WorkbenchError):
    """The user's own code raised on a rank.

    ``rank`` says which, the message holds its traceback.
    """

    def __init__(self, message: str, rank: int = -1) -> None:
        super().__init__(message)
        self.rank = rank


class MemoryLimit(WorkbenchError, MemoryError):
    """A rank holds, or would hold, more than the experiment's ``memory_limit``."""


class PadOverrun(WorkbenchError):
    """A padded computation took longer than its pad: a plan made of pads would not hold."""

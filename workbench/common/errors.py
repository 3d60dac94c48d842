"""The errors that the workbench raises on purpose.

A message says for people which rank failed in which operation, what was expected and received, and
what to do. Code reads fields instead, and never parses a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

How = Literal[
    "",
    "killed",
    "exited",
    "ended",
    "left",
    "raised",
    "stopped",
    "silent",
    "aborted",
    "evicted",
    "removed",
    "corrupt",
    "late",
]
"""How a rank failed: a signal ended its process; it exited with a code; it ended, unknown
how; it left the group; its code raised; it is stopped (SIGSTOP); it makes no progress; it was told
to give up after another rank had failed; it could not be reached, and the driver ended it; its
user took it away; its replica was wrong, and the driver ended it; it did
not answer in time, and the others went on without it.
"""

FIELDS = ("rank", "peer", "how", "code", "doing", "found_by", "planned")  # beside its message


class WorkbenchError(Exception):
    """The base class of all errors that the workbench raises on purpose.

    ``rank`` is the rank that failed, ``how`` it failed, ``code`` the exit code of its process (-9:
    killed by signal 9). ``peer`` is the rank that depended on it, or that it depended on.
    ``doing`` is the operation that was under way: on ``peer`` if there is one, else on ``rank``.
    ``found_by`` is the rank that found the failure. ``planned`` is the fault of the experiment that
    caused it, as Python writes it. -1, 0 and "" stand for what is not known, or does not apply.
    ``under_way`` holds the last report of each rank, where the driver raises the
    error of a run, and ``result`` what the failed run left.
    """

    result: object | None = None

    def __init__(
        self,
        message: str = "",
        rank: int = -1,
        *,
        peer: int = -1,
        how: How = "",
        code: int = 0,
        doing: str = "",
        found_by: int = -1,
        planned: str = "",
        under_way: Iterable[LastReport] = (),
    ) -> None:
        super().__init__(message)
        self.rank, self.peer, self.how, self.code = rank, peer, how, code
        self.doing, self.found_by, self.planned = doing, found_by, planned
        self.under_way = tuple(under_way)

    def as_fields(self) -> dict[str, Any]:
        """Return the error as plain values: for another process, a file or a page."""
        fields = {name: getattr(self, name) for name in FIELDS}
        return {"kind": type(self).__name__, "text": str(self), **fields}


class CollectiveError(WorkbenchError, RuntimeError):
    """Ranks disagree about a collective: shape, dtype, operation or order."""


class PeerLost(WorkbenchError, ConnectionError, RuntimeError):
    """A rank, ``rank``, ended while others depended on it.

    It is a RuntimeError too because code around torch.distributed expects one.
    """


class TooFewRanks(WorkbenchError):
    """Fewer ranks came, or are left, than the run needs; ``rank`` is one of the others."""


class StateLost(WorkbenchError):
    """No rank that lives has what a lost one, ``rank``, trained. Ranks raise it in a take-over, and
    do not regroup for it; the driver, which knows how that rank ended, makes it a PeerLost.
    """


class RunTimeout(WorkbenchError, TimeoutError, RuntimeError):
    """No progress, or not done, within the time that was allowed.

    It is a RuntimeError too because code around torch.distributed expects one.
    """


class GroupClosed(WorkbenchError, RuntimeError):
    """A process group was destroyed or aborted while an operation of it was still pending."""


class RankError(WorkbenchError):
    """The user's own code raised on ``rank``; the message holds its traceback."""


class MemoryLimit(WorkbenchError, MemoryError):
    """A rank holds, or would hold, more than the experiment's ``memory_limit``."""


class CheckpointError(WorkbenchError):
    """A checkpoint is damaged, of another run, or could not be written."""


class BadMinibatch(WorkbenchError):
    """A minibatch cannot be loaded, or its gradient on ``rank`` is not finite; the message names
    the samples, and the layer.
    """


class DataSourceDown(WorkbenchError):
    """None of a rank's samples can be read, and that lasted longer than ``data_patience``; the
    message names the source.
    """


class CorruptReplica(WorkbenchError):
    """A replica, that of ``rank``, differs from most others; all should be equal to the bit.
    ``replicas``: all ranks of which that is known; () where there is no majority.
    """

    replicas: tuple[int, ...] = ()


class PadOverrun(WorkbenchError):
    """At least half of a rank's padded computations take longer than their pad: a plan made of pads
    would not hold.
    """


@dataclass(frozen=True)
class LastReport:
    """The last that is known of a rank when its run failed.

    ``words`` says it for people: the error that the rank raised, or what it was in. ``doing`` is
    the operation that it was in, "" if it raised; ``error`` holds the fields of the error that it
    raised, if it is one of ours.
    """

    rank: int
    words: str
    doing: str = ""
    error: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.words}"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an Experiment, or with another record or call.

    ``path`` leads to the field (``("network", "links", "0->1")``), () stands for the whole;
    ``value`` is what was given there, as Python writes it; ``message`` says what is wrong and what
    to do; ``allowed`` lists values that are possible, where they can be listed; ``remedy`` is what
    to write in Python, where the message does not say it; ``record`` is the name of the record that
    the path begins in.
    """

    message: str
    path: tuple[str | int, ...] = ()
    value: str = ""
    allowed: tuple[object, ...] = ()
    remedy: str = ""
    record: str = ""

    def __str__(self) -> str:
        words = f"{self.message}. {self.remedy}" if self.remedy else self.message
        if not self.path:
            return words
        where = "".join([self.record, *map(_step, self.path)]).removeprefix(".")
        return f"{where} = {self.value}: {words}" if self.value else f"{where}: {words}"


def _step(part: str | int) -> str:
    """Return one step of a path as Python writes it: .links, [0], ["0->1"]."""
    if isinstance(part, str):
        return f".{part}" if part.isidentifier() else f'["{part}"]'
    return f"[{part}]"


class SpecError(WorkbenchError, ValueError):
    """An impossible Experiment or an unsuitable argument: raised before any process starts and
    before anything is changed. ``problems`` lists everything that is wrong.
    """

    def __init__(self, message: str = "", *, problems: Sequence[Problem] = ()) -> None:
        self.problems = list(problems) or [Problem(message)]
        super().__init__(message or "\n".join(map(str, self.problems)))

    @classmethod
    def at(
        cls,
        path: str | Sequence[str | int],
        message: str,
        value: object = None,
        *,
        allowed: Iterable[object] = (),
        remedy: str = "",
    ) -> Self:
        """Return the error of one field, ``path``: "options.servers", or its parts.

        ``message``, ``value``, ``allowed`` and ``remedy`` are those of a Problem; ``value`` is left
        out where the message says it already.
        """
        parts = tuple(path.split(".")) if isinstance(path, str) else tuple(path)
        value_text = "" if value is None else short(value)
        return cls(problems=[Problem(message, parts, value_text, tuple(allowed), remedy)])

    def within(self, record: str, *path: str | int) -> SpecError:
        """Return the same error where the record that it is about is ``path`` of ``record``."""
        inner = [
            replace(one, record=record, path=(*path, *one.path)) if one.path or path else one
            for one in self.problems
        ]
        return SpecError(problems=inner)


class MissingFiles(SpecError):
    """Files that a task reads are not there, or not whole."""


def short(value: object) -> str:
    """Return the beginning of what Python writes for ``value``, for a sentence."""
    try:
        text = repr(value)
    except Exception:  # a whole number of 5,000 digits, or an object whose own words fail
        text = f"({type(value).__name__})"
    return text if len(text) <= 80 else text[:77] + "..."


_KINDS: dict[str, type[WorkbenchError]] = {
    name: kind
    for name, kind in vars().items()
    if isinstance(kind, type) and issubclass(kind, WorkbenchError)
}


def from_fields(fields: Mapping[str, Any], text: str | None = None) -> WorkbenchError:
    """Return the error that another process told as ``as_fields``; with ``text`` as its message."""
    error = _KINDS.get(fields["kind"], WorkbenchError)(fields["text"] if text is None else text)
    for name in FIELDS:
        if name in fields:
            setattr(error, name, fields[name])
    return error


def timed_out(seconds: float) -> str:
    """Return the end of a RunTimeout's message. Programs, and PyTorch's own tests, tell a time
    limit from other errors by the words "timed out" and " timeout " in it.
    """
    return f"It timed out: the timeout is {seconds:g} s; raise timeout= if this is expected."

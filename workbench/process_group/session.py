"""The state that a process's groups share: the recorder, the control block, the algorithms.

torch creates process groups on its own account (sub-groups of a device mesh, of FSDP, ...) and
gives them nothing of ours, so this one object belongs to the process, not to the caller. In a Run
the launcher sets it; in any other script it comes from the environment (common/environment.py).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workbench.choosing.costs import Costs
from workbench.collectives import OPERATIONS, algorithms, refusal
from workbench.common import environment, extensions
from workbench.common.errors import CollectiveError, SpecError, WorkbenchError
from workbench.process_group.call_site import call_site
from workbench.recording.events import Where
from workbench.recording.recorder import Recorder
from workbench.shared_memory.control_block import LOST, OUTDATED, SLICE, Control
from workbench.transports.in_place import Lender

# The larger, the fewer moves; four a link still fit into a core's cache.
DEFAULT_SLOT = int(environment.VARIABLES["WORKBENCH_CHUNK"].default)


class Session:
    """Settings of this process. ``functions`` holds a user's own algorithms by name."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        control: Control | None = None,
        slot_bytes: int = DEFAULT_SLOT,
        all_reduce: str = "auto",
        algorithms: Mapping[str, str] | None = None,
        generation: int = 0,
        native: bool = False,
        functions: dict[tuple[str, str], Callable[..., Any]] | None = None,
        costs: Costs | None = None,
        joining: float = 0.0,
    ) -> None:
        self.recorder, self.control, self.slot_bytes = recorder, control, slot_bytes
        self.all_reduce, self.generation = all_reduce, generation
        self.algorithms = dict(algorithms or {})  # of the other operations, those that are named
        self._namesakes: dict[tuple[str, str], str] = {}
        self.joining = joining  # seconds that making a group may take, if its timeout is less
        self.costs = costs  # what "auto" goes by, equal on all ranks; None: a group's rank 0's
        # Every operation in the group inside, for comparison; operations are recorded, chunks are
        # not.
        self.native = native
        self._functions = dict(functions or {})
        self.progress_engine: Any = (
            None  # moves the messages of all groups; made with the first one
        )
        self.lender = Lender()  # of what peers read in place
        self.lost: set[int] = set()  # world ranks that have ended and that the groups could spare
        self.look_s = SLICE  # seconds between two looks of a wait at its peers
        # The ranks of a run that lost some, in order; empty: all, from 0 on.
        self.members: Sequence[int] = ()
        self.store: Any = None
        self.labels = _Labels()
        self.attached = False  # the job knows nothing of us: see attaching/
        self.next_group = (
            ""  # the name of the group that is made next, if it is to have a certain one
        )

    def attach(self) -> None:
        """Note that the job knows nothing of us: its calls are named by their lines, and its
        iterations are counted from outside.
        """
        self.attached = True
        if self.recorder.where.iteration < 0:
            self.recorder.where = Where(iteration=0)

    def run_rank(self, rank: int) -> int:
        """Return the rank in the run of a rank of torch's default group."""
        return self.members[rank] if self.members else rank

    def spared(self, rank: int) -> bool:
        """Return whether this rank has ended, and groups go on without it."""
        return rank in self.lost

    def regroup(self, generation: int, members: Sequence[int], store: Any = None) -> None:
        """Begin a generation of these ranks: groups that are made from now on are of it. ``store``:
        where the ranks of all generations meet.
        """
        self.store = store
        self.generation, self.lost, self.next_group = generation, set(), ""
        self.members = () if list(members) == list(range(len(members))) else tuple(members)

    def look(self) -> None:
        """Raise WorkbenchError where a rank was lost, so that waiting for all is useless."""
        if self.control is not None and self.control.words[LOST] > self.generation:
            raise WorkbenchError(OUTDATED, how="aborted")

    def chosen(self, operation: str) -> str:
        """Return the name of the algorithm that is asked for; "auto": the fastest one.

        Other operations than all-reduce take the algorithm of its name, if they have one: in a run
        with rings FSDP's all-gathers and reduce-scatters go round rings.
        """
        if operation == "all_reduce":
            return self.all_reduce
        if (name := self.algorithms.get(operation)) is not None:
            return name
        key = operation, self.all_reduce
        if key not in self._namesakes:
            self._namesakes[key] = key[1] if key[1] in algorithms(operation) else "auto"
        return self._namesakes[key]

    def algorithm(self, operation: str, name: str) -> Callable[..., Any]:
        """Return the function of ``collectives/<operation>_<name>.py``, or the user's own of that
        name.
        """
        if (operation, name) not in self._functions:
            module = extensions.load("collectives", f"{operation}_{name}")
            self._functions[operation, name] = getattr(module, operation)
        result: Callable[..., Any] = self._functions[operation, name]
        return result

    def refusal(self, operation: str, name: str, size: int) -> str:
        """Return why that algorithm does not run on ``size`` ranks; "" if it does."""
        if (operation, name) in self._functions and name not in algorithms(operation):
            answer = refusal(getattr(self._functions[operation, name], "takes", None), size)
        else:  # here: it stands on what a group stands on
            from workbench.choosing.choose import refuses

            answer = refuses(operation, name, size)
        return (
            f"{operation}: {name} does not run on {size} ranks: it takes {answer}" if answer else ""
        )

    @contextmanager
    def label(self, text: str) -> Iterator[None]:
        """Name the collectives that this thread starts inside ("bucket 0")."""
        before, self.labels.text = self.labels.text, text
        try:
            yield
        finally:
            self.labels.text = before

    def current_label(self) -> str:
        """Return the name of what this thread starts; in an attached job, the line that does."""
        return self.labels.text or (call_site() if self.attached else "")

    def group_name(self, torch_name: str, whole: bool) -> str:
        """Return the name of a new process group in the records."""
        name, self.next_group = self.next_group, ""
        return name or ("default" if whole else torch_name)


class _Labels(threading.local):
    text = ""


_MOST_BYTES = 250  # of a name in a trace
_current: Session | None = None


def use(session: Session) -> None:
    """Make this the process's session (the launcher does, before any group is made)."""
    global _current
    _current = session


def session(rank: int = 0) -> Session:
    """Return the process's session; on first use it is made from the environment, for world rank
    ``rank``.
    """
    global _current
    if _current is None:
        _current = _from_environment(rank)
    return _current


def record_end() -> None:
    """Record that this process ends by itself, and the exception that it raised, if any."""
    if _current is None:
        return
    error = getattr(sys, "last_value", None)  # what the interpreter has just printed
    if error is None:
        return _current.recorder.end("")
    kind = type(error).__name__
    words = ": ".join([kind, *str(error).strip().splitlines()[:1]])
    # what a callback has raised torch raises again, as a RuntimeError
    words = words[max(0, words.rfind(f"{CollectiveError.__name__}: ")) :]
    ours = error if isinstance(error, WorkbenchError) else WorkbenchError(how="raised")
    fields = ours.as_fields() | {"kind": kind[:40], "doing": ours.doing[:60]}
    words = _sentences(words)
    del fields["text"]  # a name has 255 bytes
    _current.recorder.end(words, fields)


def _sentences(text: str) -> str:
    """Return the text, without its last sentences where they do not fit into a name."""
    if len(text.encode()) <= _MOST_BYTES:
        return text
    short = text.encode()[: _MOST_BYTES - 4].decode(errors="ignore")
    whole = short[: short.rfind(". ") + 1]
    return whole or f"{short.rpartition(' ')[0]} …"


def _from_environment(rank: int) -> Session:
    folder = environment.text("WORKBENCH_TRACE")
    chosen = {"all_reduce": environment.text("WORKBENCH_ALL_REDUCE")}
    _check("WORKBENCH_ALL_REDUCE", "all_reduce", chosen["all_reduce"])
    for entry in environment.text("WORKBENCH_ALGORITHMS").split(","):
        if entry.strip():
            operation, _, name = (word.strip() for word in entry.partition("="))
            _check("WORKBENCH_ALGORITHMS", operation, name)
            chosen[operation] = name
    recorder = Recorder.into_folder(Path(folder), rank) if folder else Recorder.off(rank)
    slot_bytes = environment.whole("WORKBENCH_CHUNK", 64, 64)
    all_reduce = chosen.pop("all_reduce")
    return Session(recorder, slot_bytes=slot_bytes, all_reduce=all_reduce, algorithms=chosen)


def _check(variable: str, operation: str, name: str) -> None:
    """Raise SpecError unless there is such an algorithm of such an operation."""
    names = algorithms(operation) if operation in OPERATIONS else []
    if not names:
        raise SpecError(
            f"{variable}: there is no operation {operation!r} to choose an algorithm of; there is "
            f"{', '.join(OPERATIONS)}, as in broadcast=tree,all_gather=ring"
        )
    if name not in ("auto", *names):
        raise SpecError(
            f"{variable}={environment.text(variable)!r}: {operation} has no algorithm {name!r}; "
            f"there is {', '.join(names)} and auto"
        )

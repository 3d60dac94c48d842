"""What one server gives to a run, and the words for it when that is not enough."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from workbench.errors import WorkbenchError
from workbench.source import listed
from workbench.spec import Experiment
from workbench.units import counted, print_size

PAGE_BYTES = 4096


class Refused(WorkbenchError):
    """What this server does not do, and why."""


@dataclass(frozen=True)
class Limits:
    """The names are those of the options of ``workbench serve``."""

    ranks: int = 16  # of one run
    runs: int = 4  # live at a time, of all owners
    minutes: float = 30.0  # that one run may last
    memory: int = 4_000_000_000  # bytes that the ranks of one run may hold together

    @property
    def words(self) -> str:
        return (
            f"Here a run has up to {counted(self.ranks, 'rank')}, {print_size(self.memory)} and "
            f"{self.long}; {counted(self.runs, 'run')} at a time."
        )

    @property
    def long(self) -> str:
        """How long a run may last."""
        return f"{self.minutes:g} minute{'s' * (self.minutes != 1)}"

    def check(self, exp: Experiment) -> None:
        """Raises Refused for an experiment that this server does not run."""
        refuse_code(exp.carries_code)
        if exp.ranks > self.ranks:
            raise Refused(
                f"This server gives a run up to {counted(self.ranks, 'rank')}, and this one asks "
                f"for {exp.ranks}. (--max-ranks)"
            )

    def time_over(self) -> str:
        return f"Its time is over: here a run lasts up to {self.long}. (--max-minutes)"

    def too_heavy(self, held: int) -> str:
        return (
            f"Its ranks held {held / 1e9:.2f} GB of memory, and {print_size(self.memory)} are the "
            "most here, so they were ended. Fewer ranks hold less. (--max-memory)"
        )

    def no_place(self, own: int) -> str:
        """Why no further run can start; ``own`` of the live ones are the asker's."""
        yours = f" {'One' if own == 1 else own} of them {'is' if own == 1 else 'are'} yours."
        if self.runs == 1:
            yours = " It is yours."
        return (
            f"This server runs {counted(self.runs, 'run')} at a time, and that many are live now."
            f"{yours if own else ''} Start again once one has ended. (--max-runs)"
        )


def refuse_code(fields: Iterable[str]) -> None:
    """Raises Refused if any field carries code, as source or as a path to it."""
    if carrying := list(fields):
        raise Refused(
            "This server runs experiments that are data, never code, and this one carries code in "
            f"{listed(carrying)}. Run it from a notebook, or with `workbench run`."
        )


def memory(pids: Iterable[int], enough: int = 0) -> int:
    """Bytes that these processes hold, what they share counted once. Where an upper bound that is
    quick to have is not above ``enough``, that bound.
    """
    pids = [*pids]
    if (most := sum(map(_resident, pids))) <= enough:
        return most
    return sum(map(_own_part, pids))


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):  # it has ended
        return 0


def _own_part(pid: int) -> int:
    """Proportional set size: a page that n processes share counts for an n-th in each."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0

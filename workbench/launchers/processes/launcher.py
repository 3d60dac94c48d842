"""The interface of a launcher, and of the ranks that it starts; ``launcher_of`` finds one by name.

launcher = launcher_of("local")
launcher.begin(range(4))
meeting = launcher.meeting_place(4)
ranks = launcher.take(range(4))
for rank in ranks:
    rank.order({"rank": rank.rank, ...}, fds=[control, trace, stacks])
...
for rank in ranks:
    rank.close()
launcher.close(4)
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from workbench.experiment.configure import configure
from workbench.experiment.frozen_model import Fixed
from workbench.user_code.source import Source, load


class RankHandle(Protocol):
    """The driver's end of one rank.

    ``socket``: readable when ``hear`` has something, for a selector. ``pid``: on the rank's host.
    """

    rank: int
    pid: int

    @property
    def socket(self) -> Any: ...

    @property
    def code(self) -> int | None:
        """The exit code, as ``waitstatus_to_exitcode`` gives it; None: it lives."""

    @property
    def end(self) -> str:
        """The end in words, such as "was killed by SIGKILL"."""

    def order(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send it a message. ``fds``: the driver's descriptors of the control block, of the rank's
        trace, of its stack dumps. A rank that shares no memory with the driver gets memory of its
        own, and what is written there travels (relay.py).
        """

    def hear(self) -> list[tuple[dict[str, Any], bytearray]] | None:
        """Return its messages that have come, each with the bytes of it, without waiting for the
        rest of one; None: there will be no more.
        """

    def signal(self, number: signal.Signals) -> None:
        """Send its process a signal; nothing once that has ended."""

    def close(self) -> None:
        """Close the connection; an idle rank ends then."""


class MeetingPlace(Protocol):
    """A torch store of the driver's at which the ranks form their groups."""

    host: str
    port: int


class Launcher(Protocol):
    """Starts ranks; each run has its own.

    ``alive``: it can still say how ranks end; ``end``: in words, why it cannot.
    """

    @property
    def alive(self) -> bool: ...

    @property
    def end(self) -> str: ...

    def meeting_place(self, ranks: int) -> MeetingPlace:
        """Return a store that this number of ranks can reach."""

    def begin(self, ranks: Sequence[int]) -> None:
        """Have processes for these ranks started, while the driver prepares what they need."""

    def take(self, ranks: Sequence[int]) -> Sequence[RankHandle]:
        """Return a fresh process for each rank, which waits for its order. Raises WorkbenchError
        where there is none to have; then none is left.
        """

    def prepare(self, ranks: int) -> None:
        """Have this many processes ready, for ranks that are lost. Only asked of a launcher whose
        runs may recover, which today are those of "local".
        """

    def must_be_ours(self, what: str) -> None:
        """Raise WorkbenchError in a fork of the process that made the launcher."""

    def words(self, count: int) -> str:
        """Return what starts this number of ranks, such as a command, or a job's script."""

    def bear(self, seconds: float) -> None:
        """Wait so many seconds for a host that is cut off; then its ranks count as lost."""

    def collected_by(
        self, drain: Callable[[], object], coarser: Callable[[int, int, int], None]
    ) -> None:
        """Have records that come late written no faster than ``drain`` reads them. ``coarser`` is
        called with a rank, how many of its rows were folded, and into how many (coarser.py).
        """

    def cut_off(self) -> Mapping[int, str]:
        """Return the ranks that cannot be reached at this moment, and the names of their hosts."""

    def facts(self) -> dict[str, str]:
        """Return what the run keeps of how its ranks were started, once they are taken, and again
        at its end: name -> text. "launch": the command, and host, cores and threads of each rank,
        as JSON; "clocks": those of other hosts (host_clock.py), by rank.
        """

    def close(self, ranks: int) -> None:
        """Release what the run held; ``ranks`` processes may soon be needed again."""


def launcher_of(
    value: str | Source, options: Mapping[str, Any] = Fixed(), threads: int = 1
) -> Launcher:
    """Return the launcher of that name or path, with options for its ``Config``, for ranks of so
    many threads. Raises SpecError where there is none, and WorkbenchError where it cannot start
    anything here.
    """
    launcher = load("launchers", value, "Launcher")
    result: Launcher = launcher()
    config = getattr(sys.modules.get(launcher.__module__), "Config", None)
    if config is not None and hasattr(result, "configure"):
        result.configure(configure(config, options, "launcher_options"), threads)
    return result

"""The start of a run that has a minimum of ranks: those that come within the grace begin.

Others join once they are there, at the boundary of an iteration; one that never starts is named and
gone without.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from workbench.common.errors import TooFewRanks
from workbench.common.units import counted
from workbench.experiment.spec import Experiment
from workbench.experiment.team import Team
from workbench.rank.stop_watch import JOINING


class Gathering:
    """Waits for the ranks of a run, from the moment at which it is made."""

    def __init__(self, exp: Experiment, later: Collection[int] = ()) -> None:
        """Begin to wait. ``later``: the ranks that are not to come yet."""
        self._exp, self._later, self._begun = exp, later, time.monotonic()

    def team(self, waiting: Collection[int], ended: Mapping[int, str]) -> Team | None:
        """Return the first team of the run; None: it is too early. ``waiting``: ranks that have
        come; ``ended``: how others ended before that.

        Raises TooFewRanks once there will not be enough.
        """
        exp, seconds = self._exp, time.monotonic() - self._begun
        came = sorted(rank for rank in waiting if rank not in ended)
        gone = {*came, *ended, *self._later}
        absent = [rank for rank in range(exp.ranks) if rank not in gone]
        least, grace = exp.min_ranks or exp.ranks, exp.grace_ns * 1e-9
        enough = len(came) >= least
        if enough and (not absent or seconds > grace):
            return Team(0, tuple(came))
        if len(came) + len(absent) < least:
            number = f"{counted(len(came) + len(absent), 'rank')} can start"
            raise self._too_few(number, ended, [])
        if not enough and seconds > max(grace, JOINING):
            number = f"{counted(len(came), 'rank')} came within {seconds:.1f} s"
            raise self._too_few(number, ended, absent)
        return None

    def _too_few(self, number: str, ended: Mapping[int, str], absent: list[int]) -> TooFewRanks:
        """Return the error where too few have come. ``absent``: those that could come still."""
        least = self._exp.min_ranks or self._exp.ranks
        missing = [f"rank {rank} {how}" for rank, how in sorted(ended.items())]
        missing += [f"rank {rank} has not started" for rank in absent]
        return TooFewRanks(
            f"{number}, and the run needs {least} (ranks=({least}, {self._exp.ranks})): "
            f"{', '.join(missing)}",
            min(absent or ended),
            how="silent" if absent else "ended",
        )

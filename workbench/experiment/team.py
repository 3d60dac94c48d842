"""The ranks that train together, and what a recovery policy is told when some of them are lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from workbench.common.errors import How

State = Literal["beginning", "memory", "checkpoint"]
"""From where a team takes what it trains: the start, its survivors' memory, the last checkpoint."""


@dataclass(frozen=True)
class Team:
    """The ranks of one generation. A member's place here is its rank in torch.distributed.

    ``fresh``: members whose process is new. ``checkpoint``: the folder of the checkpoint to go on
    from, where ``state`` says so. ``waits``: it begins with a wait for a data source.
    ``sizes``: the first iteration of each generation so far, and how many ranks it has; () stands
    for (0, all members).
    """

    generation: int
    members: tuple[int, ...]
    fresh: tuple[int, ...] = ()
    state: State = "beginning"
    checkpoint: str = ""
    sizes: tuple[tuple[int, int], ...] = ()
    waits: bool = False

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Team:
        """Return the team that was sent as plain values."""
        members, fresh = tuple(fields["members"]), tuple(fields["fresh"])
        sizes = tuple((first, ranks) for first, ranks in fields["sizes"])
        return cls(**{**fields, "members": members, "fresh": fresh, "sizes": sizes})

    def after(self, before: Team, iteration: int) -> Team:
        """Return the same team with the sizes of those that were ``before`` it, where it goes on
        with this iteration.
        """
        past = [one for one in before.sizes or ((0, len(before.members)),) if one[0] < iteration]
        return replace(self, sizes=(*past, (iteration, len(self.members))))


@dataclass(frozen=True)
class Failure:
    """Ranks that were lost, for a recovery policy: a function ``recover(failure)`` that returns the
    team to go on with, or None to end the run.

        def recover(failure):
            return failure.replace() if failure.number < 2 else failure.shrink()
    """

    team: Team  # that has lost them
    lost: Mapping[int, How]  # rank -> how it ended
    iteration: int  # that training goes on with: the furthest survivor has completed those before
    iterations: int  # of the whole run
    number: int = 0  # earlier failures of this run
    checkpoint: str = ""  # the newest whole one's folder; "": there is none
    ranks: int = 0  # of the experiment

    @property
    def survivors(self) -> tuple[int, ...]:
        """The members that live."""
        return tuple(rank for rank in self.team.members if rank not in self.lost)

    def shrink(self) -> Team:
        """Return the survivors as a team, which goes on with what they have in memory."""
        return self._team(self.survivors)

    def replace(self) -> Team:
        """Return the same team with a new process for each lost rank, which receives what
        survivors have in memory.
        """
        return self._team(self.team.members, self.lost)

    def restart(self) -> Team:
        """Return all ranks of the experiment as a team, lost ones with a new process, which goes
        back to the last checkpoint, or to the beginning where none was written yet.
        """
        members = tuple(range(self.ranks))
        fresh = [rank for rank in members if rank not in self.survivors]
        if not self.checkpoint:
            return Team(self.team.generation + 1, members, tuple(fresh))
        return Team(self.team.generation + 1, members, tuple(fresh), "checkpoint", self.checkpoint)

    def _team(self, members: tuple[int, ...], fresh: Collection[int] = ()) -> Team:
        return Team(self.team.generation + 1, members, tuple(fresh), "memory")

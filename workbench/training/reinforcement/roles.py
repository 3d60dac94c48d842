"""The role of each rank: servers first, then learners, then replay, then actors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.common.errors import SpecError
from workbench.process_group.direct import group_of

if TYPE_CHECKING:
    from workbench.rank.job import Job


_NAMES = ("servers", "learners", "replays", "actors")


@dataclass(frozen=True)
class Roles:
    """The ranks of each role, in the order in which they stand. ``bundles``: ranks that are an
    actor, a replay and a learner in one.
    """

    servers: range
    learners: range
    replays: range
    actors: range
    bundles: bool = False
    whole: Roles | None = None  # the roles of the first generation, where ranks were lost since

    @classmethod
    def of(cls, ranks: int, servers: int, learners: int, replays: int) -> Roles:
        """Return the roles of so many ranks; all that are left are actors."""
        first, second = servers + learners, servers + learners + replays
        return cls(
            range(servers),
            range(servers, first),
            range(first, second),
            range(second, max(second, ranks)),
        )

    @classmethod
    def bundled(cls, ranks: int, servers: int) -> Roles:
        """Return the roles where all ranks but the servers are bundles."""
        rest = range(servers, ranks)
        return cls(range(servers), rest, rest, rest, bundles=True)

    def living(self, members: Sequence[int]) -> Roles:
        """Return the roles in a team of which these ranks of the run are ``members``, by place."""
        places = {}
        for name in _NAMES:
            here = [place for place, rank in enumerate(members) if rank in getattr(self, name)]
            places[name] = range(min(here, default=0), max(here, default=-1) + 1)
        return Roles(**places, bundles=self.bundles, whole=self)

    def missing(self, members: Collection[int]) -> str:
        """Return a role that none of these ranks of the run plays; "" where each is played."""
        for name in _NAMES:
            ranks = getattr(self, name)
            if ranks and not any(rank in ranks for rank in members):
                return name.removesuffix("s")
        return ""

    @property
    def first(self) -> Roles:
        """The roles of the first generation, by the ranks of the run: they number actors and
        replays.
        """
        return self.whole or self

    @property
    def spare(self) -> set[int]:
        """The ranks without which the run goes on: actors, and one of several learners or replays,
        for as long as there is another.
        """
        several = [part for part in (self.learners, self.replays) if len(part) > 1]
        return {*self.actors, *(rank for part in several for rank in part)}

    def facts(self) -> dict[str, list[int]]:
        """Return the ranks by role, as pages read them."""
        return {name: [*getattr(self, name)] for name in _NAMES}


def check_counts(ranks: int, needed: dict[str, int], actors: int | None) -> None:
    """Raise SpecError unless there is a rank for each role, and the actors are as many as said.

    ``needed``: how many ranks each of the other roles has.
    """
    left = ranks - sum(needed.values())
    words = ", ".join(f"{name} = {count}" for name, count in needed.items())
    if left < 1:
        raise SpecError.at(
            "ranks",
            f"{words} leaves {max(left, 0)} actors: there must be at least 1, so take ranks="
            f"{sum(needed.values()) + 1} or more",
            ranks,
        )
    if actors is not None and actors != left:
        raise SpecError.at(
            "options.actors",
            f"{words} leaves {left} of ranks={ranks}: take ranks={sum(needed.values()) + actors}, "
            "or leave actors out",
            actors,
        )


def spare(roles: Roles, job: Job) -> None:
    """Have this rank's messages go on without the ranks that the run can spare; where a lost rank
    has all others form a new group, there are none.
    """
    if job.goes_on_from_memory:
        return
    group_of().spare(roles.spare - {job.rank})

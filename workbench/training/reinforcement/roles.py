"""The role of each rank: servers first, then learners, then replay, then actors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.distributed as dist

from workbench.common.errors import SpecError

if TYPE_CHECKING:
    from workbench.rank.job import Job


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

    @property
    def spare(self) -> set[int]:
        """The ranks without which the run goes on: actors, and one of several learners or replays,
        for as long as there is another.
        """
        several = [part for part in (self.learners, self.replays) if len(part) > 1]
        return {*self.actors, *(rank for part in several for rank in part)}

    def facts(self) -> dict[str, list[int]]:
        """Return the ranks by role, as pages read them."""
        names = ("servers", "learners", "replays", "actors")
        return {name: [*getattr(self, name)] for name in names}


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
    """Have this rank's messages go on without the ranks that the run can spare."""
    dist.group.WORLD.spare(roles.spare - {job.rank})  # type: ignore[union-attr]

"""Actors and replays where ranks are lost and the others form a new group: they keep all.

Servers and learners go on as those of a parameter server do. Actors and replays take part in that
exchange and say what came, so that each actor can record what was on its way and is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from workbench.training.parameter_servers.holding import Carried
from workbench.training.parameter_servers.members import serving, wait_for_end
from workbench.training.parameter_servers.taking_over import attend

if TYPE_CHECKING:
    from workbench.rank.job import Job
    from workbench.training.parameter_servers.options import Options

BEFORE_ANY = -1  # instead of an iteration: a rank without iterations leaves at no boundary
Kept = TypeVar("Kept")


def kept(job: Job, kind: type[Kept]) -> Kept | None:
    """Return what this rank has kept from the generation before; None: nothing of this kind."""
    carried = job.past.carried if job.past is not None and job.team.state == "memory" else None
    beside = carried.beside if isinstance(carried, Carried) else None
    return beside if isinstance(beside, kind) else None


def take_part(job: Job, keeps: object, report: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """Keep something for the next generation, and attend the take-over from the one before.

    ``report``: what other actors and replays need to know. Returns their reports by rank of the
    run; nothing in the first generation.
    """
    job.carried = Carried(job.team.generation, beside=keeps)
    reports = attend(job, report) if job.team.state == "memory" else {}
    job.begins = True
    return reports


def stay(job: Job, served: Options | None) -> None:
    """Wait until the first server has all that was trained, where this rank may be needed once
    more. ``served``: None without servers.
    """
    if served is not None and job.goes_on_from_memory:
        wait_for_end(job, serving(job, served)[0])

"""The choice of what carries a group's chunks between hosts: MPI where all its ranks can, or Gloo.

WORKBENCH_BETWEEN_HOSTS may name one; MPI is then an error where a rank lacks it. All ranks choose
the same, as they go by what all of them have written at the group's meeting place.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch._C._distributed_c10d import PrefixStore, Store

from workbench.common import environment
from workbench.common.errors import RunTimeout, WorkbenchError
from workbench.transports import mpi_job
from workbench.transports.doorbell import Bells
from workbench.transports.gloo import GlooChannels
from workbench.transports.mpi import MpiChannels
from workbench.transports.peer_page import PLANES, PeerPage

_job: mpi_job.MpiJob | None = None  # MPI begins once in a process
_without = ""  # why it has not begun, though it was tried


class Group(NamedTuple):
    """The group, as one of its ranks knows it. ``world[i]``: the world rank of its rank i;
    ``far``: its ranks on other hosts.
    """

    store: Store
    rank: int
    world: list[int]
    far: list[int]


def why_no_mpi(size: int) -> str:
    """Return why this rank of a group of that size cannot send by MPI; "": it can, or may try."""
    if environment.text("WORKBENCH_BETWEEN_HOSTS") == "gloo":
        return "it is to use Gloo"
    return "" if _job is not None else _without or mpi_job.why_not(size)


def open_channels(
    group: Group,
    whys: Sequence[str],
    slot_bytes: int,
    page: PeerPage,
    bells: Bells,
    ended: Callable[[int, bool], None],
    *,
    lone: bool,
    seconds: float,
) -> GlooChannels | MpiChannels:
    """Return this rank's channels to ranks on other hosts.

    ``whys``: of each rank, what ``why_no_mpi`` said there. ``lone``: the rank may end without its
    peers (mpi_job.begin). Raises WorkbenchError where MPI was asked for and a rank has none, and
    RunTimeout where a rank does not come to it.
    """
    places: list[Any] = [[-1, why] for why in whys]
    if not any(whys):
        places = _meet(group, lone, seconds)
    size, rest = len(group.world), (group.far, slot_bytes, page, bells, ended)
    lacking = [(rank, why) for rank, (place, why) in enumerate(places) if place < 0]
    if not lacking:
        assert _job is not None
        at = group.store, group.rank, size, group.far
        return MpiChannels(_job, places, *at, slot_bytes, page=page, bells=bells, ended=ended)
    if environment.text("WORKBENCH_BETWEEN_HOSTS") == "mpi":
        rank, why = lacking[0]
        raise WorkbenchError(
            f"chunks between hosts were to go over MPI, and rank {group.world[rank]} cannot: {why}"
        )
    return GlooChannels(group.store, group.rank, size, *rest)


def _meet(group: Group, lone: bool, seconds: float) -> list[Any]:
    """Begin MPI if it has not begun. Return for each rank of the group its rank in MPI and the
    first of its tags; or -1, and why it has none.
    """
    global _job, _without
    size, keys = len(group.world), PrefixStore("mpi", group.store)
    if _job is None:
        keys.set(f"loaded {group.rank}", mpi_job.load(lone))
        whys = [keys.get(f"loaded {rank}").decode() for rank in range(size)]
        if any(whys):
            _without = whys[group.rank] or "another rank cannot"
            return [[-1 if why else 0, why] for why in whys]
        try:
            _job, _without = mpi_job.begin(size, time.monotonic() + seconds, lone)
        except TimeoutError as error:
            raise RunTimeout(
                f"rank {group.world[group.rank]} has waited {seconds:.0f} s in {error} for the "
                f"other {size - 1} ranks to begin MPI: has one of them ended?",
                group.world[group.rank],
                how="silent",
                found_by=group.world[group.rank],
            ) from None
    mine = [-1, _without] if _job is None else [_job.rank, _job.take_tags(len(PLANES))]
    keys.set(str(group.rank), json.dumps(mine))
    return [json.loads(keys.get(str(rank))) for rank in range(size)]

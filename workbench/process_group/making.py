"""Making a group of ours as torch asks for one, and the name that it has in the records."""

from __future__ import annotations

import sys
from datetime import timedelta
from functools import wraps
from types import FrameType
from typing import Any

import torch.distributed as dist

from workbench.process_group.group import WorkbenchGroup
from workbench.process_group.session import session


def create(options: Any, _backend_options: Any = None) -> WorkbenchGroup:
    """Make a process group of these options of torch's."""
    within = list(options.global_ranks_in_group)  # empty for the default group
    rank, size = options.group_rank, options.group_size
    job_session = session(within[rank] if within else rank)
    name = job_session.group_name(_group_name(str(options.group_id)), whole=not within)
    if not within:
        job_session.recorder.joined(size)
    # A run that lost ranks goes on with others: torch counts those from 0, we do not.
    world = [job_session.run_rank(one) for one in within] or list(job_session.members)
    if within:
        job_session.recorder.group(name, world)
    return WorkbenchGroup(options.store, rank, size, options.timeout, world or None, name)


def _group_name(number: str) -> str:
    """Name a sub-group for the records. torch gives us only its number: the description is an
    argument of the function that calls us.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_new_process_group_helper":
        frame = frame.f_back
    description = "" if frame is None else str(frame.f_locals.get("group_desc") or "")
    return name_in_records(number, description)


def name_in_records(number: str, description: str) -> str:
    """Return "mesh_dp:3": a group's description, and torch's number (of a hash, enough of it),
    since several groups may have one description.
    """
    short = number if len(number) < 12 else number[:8]
    return f"{description[:40]}:{short}" if description not in ("", "undefined") else number


def _monitored_barrier(
    group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """Call the group's own ``monitored_barrier``: torch's function accepts only a "gloo" group."""
    target = dist.distributed_c10d._get_default_group() if group is None else group
    if isinstance(target, WorkbenchGroup):
        target.monitored_barrier(timeout, wait_all_ranks)
    else:
        _torchs_barrier(group, timeout, wait_all_ranks)


_torchs_barrier = dist.monitored_barrier
dist.monitored_barrier = dist.distributed_c10d.monitored_barrier = wraps(_torchs_barrier)(
    _monitored_barrier
)

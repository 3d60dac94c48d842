"""Process groups of an attached job: what torch's ``_new_process_group_helper`` makes, replaced or
observed.

torch has no public way to exchange a backend behind its name, so this stands on that private
function; ``fits`` says whether it is as we know it, and tests/attaching/test_torchs_helper.py pins
it by torch version. What torch would have said of the group, ``get_backend()`` above all, it says
of ours too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from workbench.attaching import iterations
from workbench.attaching.command import ENGINE
from workbench.process_group.group import WorkbenchGroup

# The parameters that are used here, and the order in which torch passes them.
KNOWN = ("group_size", "group_rank", "global_ranks_in_group", "backend", "store", "group_name")
_OF_TORCH = {"gloo", "nccl"}

Helper = Callable[..., tuple[Any, Any]]


def fits(helper: Helper) -> str:
    """Return why groups cannot be taken over through ``helper``; "" if they can."""
    names = tuple(inspect.signature(helper).parameters)
    if names[: len(KNOWN)] == KNOWN:
        return ""
    return (
        f"torch {torch.__version__} makes process groups in another way than the workbench knows: "
        f"{', '.join(names[: len(KNOWN)])} instead of {', '.join(KNOWN)}. The job runs unobserved"
    )


def make_group(helper: Helper, way: str, *args: Any, **options: Any) -> tuple[Any, Any]:
    """Make the group that torch asks ``helper`` for: ours, or torch's own, observed."""
    iterations.count()
    call = inspect.signature(helper).bind(*args, **options)
    backend = dist.Backend(str(call.arguments["backend"]))
    if way == ENGINE and served_by_engine(devices_of(backend), torch.cuda.is_available()):
        call.arguments["backend"] = dist.Backend("workbench")
        call.arguments.pop("backend_options", None)  # NCCL's
        group, store = helper(*call.args, **call.kwargs)
        if isinstance(group, WorkbenchGroup):
            _name_as_asked(group, backend)
        return group, store
    group, store = helper(*call.args, **call.kwargs)
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        return group, store
    from workbench.attaching.observing import observe  # here: only where there is such a group

    ranks = [*call.arguments["global_ranks_in_group"]]
    return observe(group, call.arguments["store"], ranks, str(backend)), store


def devices_of(backend: Any) -> dict[str, str]:
    """Return which backend torch would take for which kind of device."""
    return dict(dist.distributed_c10d.BackendConfig(backend).get_device_backend_map())


def served_by_engine(backends: Mapping[str, str], has_cuda: bool) -> bool:
    """Return whether our engine takes the whole group.

    It does if all that torch would use is Gloo. Where there is no GPU, NCCL has nothing to do, and
    a script that asks for it runs on the CPU.
    """
    used = {name for device, name in backends.items() if has_cuda or device in ("cpu", "cuda")}
    return used == {"gloo"} or (not has_cuda and bool(used) and used <= _OF_TORCH)


def _name_as_asked(group: WorkbenchGroup, backend: Any) -> None:
    """Put back what torch says of the group: its backend's name, and its configuration.

    A group for which no backend was named has the name of the one that torch would have taken.
    """
    world, config = dist.distributed_c10d._world, dist.distributed_c10d.BackendConfig(backend)
    name = dist.Backend("gloo") if backend == "undefined" else backend
    world.pg_map[group] = name, world.pg_map[group][1]
    world.pg_backend_config[group] = str(config)
    group.context.session.attach()

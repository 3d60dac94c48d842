"""torch's private function by which attached groups are made, pinned by version; and that nothing
in the way there can break a program that imports torch.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.processes import command
from workbench import _autoload
from workbench.attaching.groups import KNOWN, devices_of, fits, make_group, served_by_engine

HELPER = inspect.unwrap(dist.distributed_c10d._new_process_group_helper)
# All parameters, by the versions of torch that have been looked at.
PARAMETERS = {
    "2.13": [
        *KNOWN,
        *("backend_options", "timeout", "pg_tag", "device_id", "group_desc"),
    ],
}


def test_the_helper_is_as_this_version_had_it() -> None:
    version = ".".join(torch.__version__.split(".")[:2])
    assert fits(HELPER) == ""
    assert list(inspect.signature(HELPER).parameters) == PARAMETERS.get(
        version, list(inspect.signature(HELPER).parameters)
    )
    world = dist.distributed_c10d._world
    assert isinstance(world.pg_map, dict) and isinstance(world.pg_backend_config, dict)


def test_a_helper_of_another_form_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    class C10d:
        @staticmethod
        def _new_process_group_helper(config: Any) -> Any:
            return config, "made by torch"

    torchs = C10d._new_process_group_helper
    _autoload._attach(C10d, "engine")
    assert C10d._new_process_group_helper is not torchs
    assert C10d._new_process_group_helper("mine") == ("mine", "made by torch")
    message = capsys.readouterr().err
    assert "not attached: torch" in message and "config instead of group_size" in message
    assert C10d._new_process_group_helper is torchs


BROKEN = """
import sys
sys.modules["workbench.attaching"] = None  # importing it fails
import torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(3))
assert type(dist.group.WORLD) is dist.ProcessGroup
dist.destroy_process_group()  # left open, it sometimes aborts a plain program at its end
"""


@pytest.mark.full
def test_a_workbench_that_cannot_be_imported_leaves_the_program_as_it_is() -> None:
    ended = command([sys.executable, "-c", BROKEN], 120, WORKBENCH_ATTACH="engine")
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "[workbench] not attached: " in ended.stderr


@pytest.mark.parametrize(
    ("backend", "has_cuda", "ours"),
    [
        ("gloo", False, True),
        ("gloo", True, True),
        ("nccl", False, True),
        ("nccl", True, False),
        ("cpu:gloo", True, True),
        ("cpu:gloo,cuda:nccl", False, True),
        ("cpu:gloo,cuda:nccl", True, False),
        ("undefined", False, True),
        ("mpi", False, False),
        ("fake", False, False),
    ],
)
def test_which_groups_the_engine_takes(backend: str, has_cuda: bool, ours: bool) -> None:
    import torch.testing._internal.distributed.fake_pg  # noqa: F401 (makes that one known)

    assert served_by_engine(devices_of(dist.Backend(backend)), has_cuda) is ours


def test_a_group_that_this_rank_is_not_in_stays_nobodys() -> None:
    def helper(group_size, group_rank, global_ranks_in_group, backend, store, group_name):
        return dist.GroupMember.NON_GROUP_MEMBER, None

    for way in ("engine", "operations"):
        group = make_group(helper, way, 2, 0, [0, 1], "gloo", None, "1")
        assert group == (dist.GroupMember.NON_GROUP_MEMBER, None)

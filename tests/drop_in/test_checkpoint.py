"""torch.distributed.checkpoint over both backends: saved by one layout, loaded by another."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from tests.drop_in.both import compare
from tests.drop_in.test_fsdp import sharded, whole
from tests.drop_in.training import state, train
from tests.process_group.common import model


def _folder(name: str) -> str:
    """A folder that all ranks know, in memory if that can be."""
    paths: list[Any] = [tempfile.mkdtemp(prefix=f"drop_in_{name}_") if not dist.get_rank() else ""]
    dist.broadcast_object_list(paths)
    return str(paths[0])


def _remove(folder: str) -> None:
    dist.barrier()
    if not dist.get_rank():
        shutil.rmtree(folder)


def _refused(action: Callable[[], Any]) -> list[int]:
    """The ranks that torch blames."""
    try:
        action()
    except CheckpointException as error:  # no Exception
        return sorted(error.failures)
    return []


def _adam(net: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(net.parameters(), lr=0.01)


def from_mesh_to_mesh(rank: int, n: int) -> Any:
    """FSDP2's model and optimizer over all, loaded as HSDP's, trained on, and back."""
    folder = _folder("mesh")
    net = sharded(init_device_mesh("cpu", (n,)))
    optimizer = _adam(net)
    train(net, rank, optimizer=optimizer)
    saved = dict(zip(("model", "optim"), get_state_dict(net, optimizer), strict=True))
    dcp.save(saved, checkpoint_id=folder)

    other = sharded(init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("replicate", "shard")))
    adam = _adam(other)
    loaded = dict(zip(("model", "optim"), get_state_dict(other, adam), strict=True))
    dcp.load(loaded, checkpoint_id=folder)
    set_state_dict(other, adam, model_state_dict=loaded["model"], optim_state_dict=loaded["optim"])
    before = whole(other)
    for a, b in zip(whole(net), before, strict=True):
        assert torch.equal(a, b)
    losses = [train(net, rank, optimizer=optimizer), train(other, rank, optimizer=adam)]
    files = sorted(path.name for path in Path(folder).iterdir())
    _remove(folder)
    return before, losses, whole(net), whole(other), files


def replicas(rank: int, n: int) -> Any:
    """DDP's: each tensor is written once."""
    folder = _folder("ddp")
    net = DistributedDataParallel(model())
    train(net, rank)
    dcp.save({"model": net.module.state_dict(), "epoch": 3, "rank": [rank]}, checkpoint_id=folder)
    other = model()
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    loaded: dict[str, Any] = {"model": other.state_dict(), "epoch": 0, "rank": []}
    dcp.load(loaded, checkpoint_id=folder)
    other.load_state_dict(loaded["model"])
    sizes = sum(path.stat().st_size for path in Path(folder).iterdir()) < 120_000
    missing = _refused(lambda: dcp.load({"nothing": torch.zeros(2)}, checkpoint_id=folder))
    _remove(folder)
    return state(other), loaded["epoch"], loaded["rank"], sizes, missing


def saved_while_training(rank: int, n: int) -> Any:
    """async_save on a thread with collectives of its own, in a group of its own."""
    folder = _folder("async")
    net = sharded(init_device_mesh("cpu", (n,)))
    group, optimizer = dist.new_group(), _adam(net)
    train(net, rank, iterations=2, optimizer=optimizer)
    kept = whole(net)
    done = dcp.async_save(
        {"model": get_model_state_dict(net)},
        checkpoint_id=folder,
        process_group=group,
        async_checkpointer_type=AsyncCheckpointerType.THREAD,
    )
    losses = train(net, rank, optimizer=optimizer)  # meanwhile
    done.result(timeout=80)
    other = sharded(init_device_mesh("cpu", (n,)))
    loaded = {"model": get_model_state_dict(other)}
    dcp.load(loaded, checkpoint_id=folder)
    for a, b in zip(kept, loaded["model"].values(), strict=True):
        assert torch.equal(a, b.full_tensor())  # type: ignore[union-attr]
    _remove(folder)
    return kept, losses, whole(net)


def to_and_from_torch_save(rank: int, n: int) -> Any:
    folder = _folder("format")
    net = sharded(init_device_mesh("cpu", (n,)))
    train(net, rank, iterations=2)
    dcp.save(get_model_state_dict(net), checkpoint_id=f"{folder}/a")
    if rank == 0:
        dcp_to_torch_save(f"{folder}/a", f"{folder}/one.pt")
        torch_save_to_dcp(f"{folder}/one.pt", f"{folder}/b")
    dist.barrier()
    one = torch.load(f"{folder}/one.pt")
    other = get_model_state_dict(sharded(init_device_mesh("cpu", (n,))))
    dcp.load(other, checkpoint_id=f"{folder}/b")
    got = [x.full_tensor() for x in other.values()]  # type: ignore[union-attr]
    _remove(folder)
    return dict(one), got


def a_rank_that_cannot_write(rank: int, n: int) -> Any:
    """Tell all ranks what one meets."""
    folder = _folder("refused")
    bad = {"x": torch.ones(2), **({"y": _Unpicklable()} if rank == 1 else {})}
    message = _refused(lambda: dcp.save(bad, checkpoint_id=folder))
    _remove(folder)
    return message


class _Unpicklable:
    def __reduce__(self) -> Any:
        raise RuntimeError("not to be written")


@pytest.mark.full
def test_checkpoints() -> None:
    compare(
        [
            from_mesh_to_mesh,
            replicas,
            saved_while_training,
            to_and_from_torch_save,
            a_rank_that_cannot_write,
        ],
        4,
    )

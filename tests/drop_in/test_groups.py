"""Groups: what they say of themselves, many of them, how they are made and go; and threads."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import socket
import tempfile
import weakref
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from tests.drop_in.both import LIMIT, all_here, compare, raised, tried
from tests.drop_in.group_threads import first_messages, threads_at_once


def total(group: Any, value: float) -> float:
    x = torch.full((100,), value)
    dist.all_reduce(x, group=group)
    return float(x[0])


def _properties(rank: int, n: int) -> dict[str, Any]:
    backend = dist.get_backend()
    evens = dist.new_group(list(range(0, n, 2)), group_desc="evens")
    turned = dist.new_group([2, 0], sort_ranks=False)
    inside = evens is not dist.GroupMember.NON_GROUP_MEMBER
    properties: dict[str, Any] = {
        "known": [dist.is_initialized(), dist.is_available(), dist.is_backend_available(backend)],
        "name of the backend": [
            type(backend).__name__,
            dist.Backend(backend) == backend,
            dist.get_backend_config().replace(backend, "B"),
        ],
        "world": [dist.get_rank(), dist.get_world_size(), c10d.get_pg_count()],
        "default device": str(c10d._get_pg_default_device()),
        "object device": c10d._get_object_coll_device(),
        "node's rank": dist.get_node_local_rank(0),
        "evens": [dist.get_rank(evens), dist.get_world_size(evens), inside],
        "turned": dist.get_rank(turned),
        "a default for the host": str(c10d.get_default_backend_for_device("cpu")),
    }
    world: Any = dist.group.WORLD
    properties["of the world"] = [
        dist.get_process_group_ranks(world),
        world.rank(),
        world.size(),
        world.group_name,
        world.group_desc,
        world.bound_device_id,
        [str(one) for one in world._device_types],
        world._has_hooks(),
        dist.get_process_group_ranks(None),
    ]
    if inside:
        properties["of evens"] = [
            evens.group_desc,
            dist.get_process_group_ranks(evens),
            dist.get_group_rank(evens, 2),
            dist.get_global_rank(evens, 1),
            evens == evens,
            raised(lambda: dist.get_group_rank(evens, 1)),
            c10d._get_process_group_name(evens),
            dist.get_backend(evens) == backend,
            c10d._get_group_tag(evens),
            c10d._resolve_process_group(evens.group_name) is evens,
        ]
        properties["of turned"] = dist.get_process_group_ranks(turned)
    else:
        properties["of evens"] = raised(lambda: dist.get_backend(evens))
        properties["not ours"] = dist.all_reduce(torch.ones(1), group=evens)
    properties["wrong groups"] = [
        raised(lambda: dist.new_group([0, n])),
        raised(lambda: dist.new_group([0, 0])),
        raised(lambda: dist.init_process_group(backend)),
    ]
    dist.barrier()
    return properties


def _many_groups(rank: int, n: int) -> list[Any]:
    """A hundred groups at once, in use in turn, closed in another order than they were made."""
    totals = [total(None, 1.0)]
    dist.barrier()
    before = _descriptors()
    pairs = list(itertools.combinations(range(n), 2))
    members = [pairs[i % len(pairs)] if i % 4 else range(n) for i in range(100)]
    groups = [dist.new_group(list(some)) for some in members]
    for _ in range(2):
        for i, (some, group) in enumerate(zip(members, groups, strict=True)):
            if rank in some:
                totals.append(total(group, float(rank + i)))
    dist.barrier()  # what one of Gloo's ends closes, others may still be using
    order = [*range(1, 100, 2), *reversed(range(0, 100, 2))]
    for i in order:
        if rank in members[i]:
            dist.destroy_process_group(groups[i])
    groups.clear()
    dist.barrier()
    left = _descriptors() - before
    assert left < 40, left  # of more than 60 groups of this rank
    return [*totals, c10d.get_pg_count()]


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _sub_groups(rank: int, n: int) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    mine, groups = dist.new_subgroups(group_size=2)
    properties["new_subgroups"] = [len(groups), dist.get_world_size(mine), total(mine, rank + 1.0)]
    mine, groups = dist.new_subgroups_by_enumeration([[0, n - 1], list(range(1, n - 1))])
    properties["by enumeration"] = [len(groups), dist.get_process_group_ranks(mine)]
    properties["its sum"] = total(mine, rank + 1.0)
    some = [0, n - 1] if rank in (0, n - 1) else list(range(1, n - 1))
    local = dist.new_group(some, use_local_synchronization=True)
    properties["made by its members alone"] = total(local, rank + 1.0)
    alone = dist.new_group([rank], use_local_synchronization=True)
    properties["alone"] = [total(alone, 5.0), dist.get_world_size(alone), *_alone(alone)]
    properties["split"] = raised(lambda: dist.split_group(None, [[0, 1]]))
    properties["shrunk"] = raised(lambda: dist.shrink_group([n - 1]))
    timed = dist.new_group(timeout=timedelta(seconds=70))
    properties["with a time limit"] = total(timed, 1.0)
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("rows", "columns"))
    sums = [total(mesh.get_group(name), rank + 1.0) for name in ("rows", "columns")]
    properties["of a mesh"] = [sums, mesh.get_coordinate(), mesh["rows"].get_local_rank()]
    properties["flattened"] = total(mesh._flatten().get_group(), 1.0)
    return properties


def _alone(group: Any) -> list[Any]:
    """Every operation in a group of one."""
    x, out = torch.arange(4.0), torch.zeros(4)
    dist.all_gather_into_tensor(out, x, group=group)
    results = [out.clone()]
    dist.reduce_scatter_tensor(out, x * 2, group=group)
    results.append(out.clone())
    dist.all_to_all_single(out, x * 3, group=group)
    results.append(out.clone())
    dist.broadcast(out, dist.get_rank(), group=group)
    dist.reduce(out, dist.get_rank(), group=group)
    parts = [torch.zeros(4)]
    dist.gather(x, parts, dst=dist.get_rank(), group=group)
    dist.scatter(out, [x * 5], src=dist.get_rank(), group=group)
    gathered: list[Any] = [None]
    dist.all_gather_object(gathered, {"one": 1}, group=group)
    dist.barrier(group=group)
    return [*results, out, *parts, gathered]


def _after_the_end(rank: int, n: int) -> list[Any]:
    """Return what a group that was destroyed, or aborted, says; and nothing holds on to it."""
    group, other = dist.new_group(), dist.new_group()
    dist.barrier()
    dist.destroy_process_group(group)
    results: list[Any] = []
    if dist.get_backend() != "gloo":  # whose groups go on for a while
        refusals = [
            _refusal(group.allreduce, [torch.ones(1)]),
            _refusal(group.send, [torch.ones(1)], 0, 0),
        ]
        assert all("was destroyed, and rank" in one for one in refusals), refusals
    gc.disable()
    known = weakref.ref(group)
    del group
    results.append(known() is None)
    gc.enable()
    if dist.get_backend() != "gloo":  # for which abort() is nothing
        if rank == 0:
            other.abort()
        assert _refusal(dist.all_reduce, torch.ones(1), group=other)
    return results


def _refusal(call: Any, *arguments: Any, **options: Any) -> str:
    try:
        call(*arguments, **options)
    except RuntimeError as error:
        return str(error)
    return ""


def _again_and_again(rank: int, n: int) -> list[Any]:
    """The default group ends and begins again in one process, ten times, with other sizes."""
    backend, store = dist.get_backend(), c10d._get_default_store()
    dist.destroy_process_group()
    results: list[Any] = [raised(lambda: dist.all_reduce(torch.ones(1))), dist.is_initialized()]
    for round_ in range(10):
        size = 1 + round_ % n
        if rank < size:
            substore = dist.PrefixStore(f"round {round_}", store)
            turned = (rank + round_) % size  # a process need not have the same rank again
            dist.init_process_group(backend, store=substore, rank=turned, world_size=size)
            sub = dist.new_group([0])
            x = torch.tensor([float(turned)])
            work = dist.all_reduce(x, async_op=True)
            if round_ % 3:  # else it is still under way when the group goes
                assert work is not None
                work.wait()
            if turned == 0:
                results.append(total(sub, 3.0))
            if round_ % 2:
                dist.destroy_process_group()
            else:
                if turned == 0:
                    dist.destroy_process_group(sub)
                dist.destroy_process_group(dist.group.WORLD)
            if round_ % 3:
                results.append(x)
    substore = dist.PrefixStore("the end", store)
    dist.init_process_group(backend, store=substore, rank=rank, world_size=n)
    return [*results, total(None, 1.0)]


def _stores(rank: int, n: int) -> dict[str, Any]:
    """Every way to find each other."""
    backend, store = dist.get_backend(), c10d._get_default_store()
    folders = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folders, src=0)
    folder = Path(str(folders[0]))
    dist.barrier()
    dist.destroy_process_group()
    totals: dict[str, Any] = {}

    def over(name: str, **options: Any) -> None:
        dist.init_process_group(backend, timeout=LIMIT, **options)
        totals[name] = total(None, rank + 1.0)
        dist.barrier()
        dist.destroy_process_group()

    for i in range(2):  # a file of its own each time, as torch asks
        name = f"{folder}/of {backend} {i}"
        over(f"FileStore {i}", store=dist.FileStore(name, n), rank=rank, world_size=n)
        over(f"file:// {i}", init_method=f"file://{name}.url", rank=rank, world_size=n)
    served = dist.TCPStore("127.0.0.1", 0, n, True, wait_for_workers=False) if rank == 0 else None
    if served is not None:
        store.set("port", str(served.port))
    port = int(store.get("port"))
    client = served or dist.TCPStore("127.0.0.1", port, n, False)
    over("TCPStore", store=client, rank=rank, world_size=n)
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    totals["HashStore"] = total(None, 4.0)
    dist.destroy_process_group()
    if rank == 0:
        store.set("free", str(_free_port()))
    free, before = store.get("free").decode(), dict(os.environ)
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    for i in range(3):  # one address: each group's store must be gone when the next begins
        all_here(store, f"env {i}", n)
        os.environ |= {"MASTER_PORT": free, "RANK": str(rank), "WORLD_SIZE": str(n)}
        dist.init_process_group(backend)
        totals[f"env:// {i}"] = total(None, rank + i + 1.0)
        all_here(store, f"env done {i}", n)
        dist.destroy_process_group()
    all_here(store, "tcp", n)
    over("tcp://", init_method=f"tcp://127.0.0.1:{free}", rank=rank, world_size=n)
    os.environ.clear()
    os.environ |= before
    all_here(store, "all", n)
    substore = dist.PrefixStore("the end", store)
    dist.init_process_group(backend, store=substore, rank=rank, world_size=n)
    return totals


def _free_port() -> int:
    """One that no connection is given by chance, as those above are."""
    for port in range(10_000 + os.getpid() % 15_000, 32_000):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


def _orders_of_ending(rank: int, n: int) -> list[Any]:
    first, second = dist.new_group(), dist.new_group(list(range(n - 1)))
    results: list[Any] = [total(first, 1.0)]
    if rank < n - 1:
        results.append(total(second, 2.0))
    dist.destroy_process_group(first)
    results += [
        raised(lambda: dist.destroy_process_group(first)),
        total(None, 1.0),
        c10d.get_pg_count(),
    ]
    late = dist.new_group()
    results.append(total(late, 3.0))
    dist.barrier()
    return results  # the rest goes with the default group


def _other_backend(rank: int, n: int) -> list[Any]:
    """Groups of one backend beside groups of the other."""
    other = "gloo" if dist.get_backend() != "gloo" else "workbench"
    group = dist.new_group(backend=other)
    some = dist.new_group([0, 1], backend=other)
    totals: list[Any] = [total(group, rank + 1.0), total(None, rank + 2.0)]
    if rank < 2:
        totals.append(total(some, rank + 3.0))
    dist.barrier(group=group)
    return totals


def _device_backends(rank: int, n: int) -> list[Any]:
    """A backend that is named for its devices."""
    backend, store = dist.get_backend(), c10d._get_default_store()
    dist.destroy_process_group()
    totals = []
    for i, name in enumerate((f"cpu:{backend}", f"cpu:{backend},cuda:gloo")):
        substore = dist.PrefixStore(f"devices {i}", store)
        dist.init_process_group(name, store=substore, rank=rank, world_size=n)
        totals.append(tried(lambda: [total(None, rank + 1.0), total(dist.new_group(), 1.0)]))
        dist.barrier()
        dist.destroy_process_group()
    substore = dist.PrefixStore("the end", store)
    dist.init_process_group(backend, store=substore, rank=rank, world_size=n)
    return totals


@pytest.mark.full
def test_groups_of_every_kind() -> None:
    cases = [
        _properties,
        _sub_groups,
        _many_groups,
        _orders_of_ending,
        _after_the_end,
        threads_at_once,
        first_messages,
        _other_backend,
        _again_and_again,
        _stores,
        _device_backends,
    ]
    compare(cases, 4, exact=True)

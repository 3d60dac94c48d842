"""Every algorithm of the folder over real ranks: one case is one call, judged by its own rank."""

from __future__ import annotations

import hashlib
import itertools
import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.collectives.cases import (
    PARTED,
    RANKS,
    REDUCTIONS,
    Case,
    cases,
    gives,
    judge,
    large,
    odd_numbers,
    shares,
)
from workbench.common.errors import CollectiveError
from workbench.messaging.fingerprint import signature
from workbench.process_group.session import session
from workbench.recording.events import NOWHERE, now
from workbench.transports.arrays import LEFT_TO_TORCH


def run_all(rank: int, size: int, operation: str, name: str, every: bool) -> dict[str, str]:
    """All cases of one file, over groups of 1, 2, ... of the ranks. By case: the result's digest.

    Raises AssertionError that names the case.
    """
    groups = {n: dist.new_group([*range(n)]) for n in RANKS}
    function = session().algorithm(operation, name)
    takes = getattr(sys.modules[function.__module__], "takes", lambda n: "")
    mine = {n: group for n, group in groups.items() if rank < n and not takes(n)}
    digests = {
        str(case): digest(run_one(mine[case.n], operation, name, case))
        for case in cases(operation, every)
        if case.n in mine
    }
    for n, group in mine.items():
        if operation == "all_reduce":
            digests |= odd_sums(group, name, n)
        group.comm.rendezvous = True  # sends return when received: slots hide no deadlock
        run_one(group, operation, name, large(operation, n))
        group.comm.rendezvous = False
    for n in set(groups) - set(mine):
        if rank < n:
            with pytest.raises(CollectiveError, match=rf"\b{n}\b"):
                run_one(groups[n], operation, name, large(operation, n))
    dist.barrier()  # no rank leaves while others still are in a smaller group
    return digests


def odd_sums(group: Any, name: str, n: int) -> dict[str, str]:
    """Sums of which only one thing can be said: that every rank's have the same bits."""
    digests = {}
    for reduce, dtype in itertools.product(REDUCTIONS, ("float32", "bfloat16")):
        x, case = odd_numbers(group.comm.rank, dtype), Case(n, 64, dtype, reduce, -1)
        call(group, "all_reduce", name, case, [x, reduce])
        digests[f"odd numbers, {case}"] = digest(x)
    return digests


def digest(result: torch.Tensor) -> str:
    bits = result.as_strided(result.shape, (1,)).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(bits).hexdigest()[:16]


def run_one(group: Any, operation: str, name: str, case: Case) -> torch.Tensor:
    """Call the algorithm as the process group does. Returns what this rank ends with."""
    comm, n, N = group.comm, case.n, case.elements
    me, dtype = comm.rank, getattr(torch, case.dtype)
    whole = N * n if operation in PARTED else N
    argument = gives(me, N if operation in ("gather", "all_gather") else whole, case)
    kept, room = argument.clone(), torch.full((whole,), 7, dtype=dtype)
    part, at_root = torch.full((N,), 7, dtype=dtype), me == case.root
    sends, receives = shares(N, n, me)
    arguments: dict[str, list[Any]] = {
        "all_reduce": [argument, case.reduce],
        "broadcast": [argument, case.root],
        "reduce": [argument, case.root, case.reduce],
        "gather": [argument, room if at_root else None, case.root],
        "scatter": [argument if at_root else None, part, case.root],
        "all_gather": [argument, room],
        "reduce_scatter": [argument, part, case.reduce],
        "all_to_all": [argument, into := torch.full((sum(receives),), 7, dtype=dtype)],
        "barrier": [],
    }
    more = [sends, receives] if operation == "all_to_all" else []
    call(group, operation, name, case, arguments[operation] + more)
    result = {
        "all_reduce": argument,
        "broadcast": argument,
        "reduce": argument,
        "gather": room,
        "scatter": part,
        "all_gather": room,
        "reduce_scatter": part,
        "all_to_all": into,
        "barrier": part,
    }[operation]
    what = f"{operation}/{name}, {case}, rank {me}"
    judge(operation, case, me, result, what)
    if operation in ("gather", "scatter", "all_gather", "reduce_scatter", "all_to_all") or (
        operation == "reduce" and not at_root
    ):
        assert torch.equal(argument, kept), f"{what}: what it was given is changed"
    return result


def call(group: Any, operation: str, name: str, case: Case, arguments: list[Any]) -> None:
    """The algorithm, with the rows around it that a process group writes."""
    comm, dtype = group.comm, getattr(torch, case.dtype)
    whole = case.elements * (case.n if operation in PARTED else 1)
    uneven = operation == "all_to_all"
    number = signature(operation, dtype, 0 if uneven else whole, case.reduce)
    start = now()
    comm.begin(operation, name, next(group._numbers), number, NOWHERE, (whole,), case.dtype)
    session().algorithm(operation, name)(comm, *map(flat, arguments))
    if whole > 0 or operation == "barrier":  # of nothing: no row, a group sends nothing
        itemsize = float("nan") if uneven and whole % case.n else dtype.itemsize
        comm.end(start, whole * dtype.itemsize, "", itemsize, case.root)


def call_plainly(group: Any, operation: str, name: str, *arguments: Any) -> None:
    """The algorithm by itself, as the group's next collective."""
    number = signature(operation)
    group.comm.begin(operation, name, next(group._numbers), number, NOWHERE)
    session().algorithm(operation, name)(group.comm, *arguments)


def flat(x: Any) -> Any:
    """As numpy sees it, where numpy knows the dtype."""
    return x.numpy() if isinstance(x, torch.Tensor) and x.dtype not in LEFT_TO_TORCH else x

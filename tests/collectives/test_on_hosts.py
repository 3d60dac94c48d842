"""Hierarchical all-reduce over hosts: every factorization, over both transports, in one spawn."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch.distributed as dist

import workbench as wb
from tests.collectives.cases import Case
from tests.collectives.ranks import run_one
from tests.processes import values
from workbench import laws
from workbench.collectives.all_reduce_hierarchical import all_reduce
from workbench.common.errors import CollectiveError
from workbench.theory import cost_model

LEVELS = ([4, 2], [2, 4], [2, 2, 2], [8], [4, 1, 2], [2, 3], [3, 2], [1, 5])
SIZES = (0, 1, 7, 9, 4097)
GROUPS = {"halves": [0, 1, 4, 5], "one host": [0, 1, 2, 3], "one each": [3, 7], "uneven": [0, 1, 4]}


def every_factorization(rank: int, size: int) -> dict[str, Any]:
    world: Any = dist.group.WORLD
    by_group = {"world": world.comm.levels}
    for name, members in GROUPS.items():
        group: Any = dist.new_group(members)
        if rank in members:
            by_group[name] = group.comm.levels
            run_one(
                group, "all_reduce", "hierarchical", Case(len(members), 1023, "float32", "SUM", -1)
            )
    groups = {n: dist.new_group([*range(n)]) for n in {prod(levels) for levels in LEVELS}}
    for levels in LEVELS:
        n = prod(levels)
        if rank >= n:
            continue
        group = groups[n]
        group.comm.levels = tuple(levels)
        for k, elements in enumerate(SIZES):
            dtype, reduce = (("float32", "SUM"), ("int64", "MAX"), ("bfloat16", "SUM"))[k % 3]
            run_one(group, "all_reduce", "hierarchical", Case(n, elements, dtype, reduce, -1))
        group.comm.rendezvous = True  # sends return when received: slots hide no deadlock
        run_one(group, "all_reduce", "hierarchical", Case(n, 4097, "float32", "SUM", -1))
        group.comm.rendezvous = False
    dist.barrier()
    return by_group


@pytest.mark.full
def test_every_factorization_is_right_and_as_theory_has_it(tmp_path: Path) -> None:
    env = {"WORKBENCH_TRACE": str(tmp_path), "WORKBENCH_CHUNK": "1024"}
    by_rank = values(
        every_factorization,
        8,
        timeout=120.0,
        env=lambda rank: {**env, "WORKBENCH_HOST": "ab"[rank // 4]},
    )
    events = wb.load(tmp_path).events
    assert laws.check_events(events) == []
    rows = events.with_columns(pl.col("kind", "phase", "group", "algorithm").cast(pl.String))
    rows = rows.filter(pl.col("algorithm") == "hierarchical")
    outer = rows.filter(pl.col("kind") == "collective", pl.col("nbytes") > 0)
    ways = {f"levels {','.join(map(str, levels))}" for levels in LEVELS if prod(levels) > 1}
    assert ways <= set(outer["phase"])
    # What leaves a host, of a whole that the ranks share evenly, is as the levels say.
    op = ["generation", "group", "op"]
    sends = rows.filter(pl.col("kind") == "send").join(
        outer.filter(pl.col("rank") == 0).select(*op, "phase", whole="nbytes", each="value"),
        on=op,
        suffix="_of",
    )
    for levels in ([4, 2], [2, 4], [2, 2, 2], [2, 3], [3, 2]):
        inside = levels[0]
        own = sends.filter(pl.col("phase_of") == f"levels {','.join(map(str, levels))}")
        far = own.filter(pl.col("rank") // inside != pl.col("peer") // inside)
        for (elements,), call in far.group_by((pl.col("whole") // pl.col("each")).cast(pl.Int64)):
            per_rank = cost_model.level_elements(levels, int(elements))
            expected = [sum(level[r] for level in per_rank[1:]) for r in range(prod(levels))]
            calls = call.select(*op).unique().height
            sent = dict(
                call.group_by("rank")
                .agg(pl.col("nbytes") / pl.col("each"))
                .select("rank", pl.col("nbytes").list.sum())
                .rows()
            )
            assert [sent.get(r, 0) for r in range(prod(levels))] == [calls * e for e in expected]
    # Where nothing says which ranks share a host, where they are says it.
    assert all(one["world"] == [4, 2] for one in by_rank)
    assert by_rank[0]["halves"] == [2, 2] and by_rank[0]["one host"] == by_rank[0]["uneven"] == []
    assert by_rank[3]["one each"] == []


def dealt_in_turn(rank: int, size: int) -> Any:
    group: Any = dist.group.WORLD
    for elements in SIZES:
        run_one(group, "all_reduce", "hierarchical", Case(size, elements, "float32", "SUM", -1))
    return group.comm.in_turn


def test_ranks_that_were_dealt_to_hosts_in_turn(tmp_path: Path) -> None:
    """A host of three sends one whole, as it would if they were neighbors."""
    env = {"WORKBENCH_TRACE": str(tmp_path), "WORKBENCH_CHUNK": "1024"}
    levels = values(dealt_in_turn, 6, env=lambda rank: {**env, "WORKBENCH_HOST": "ab"[rank % 2]})
    assert levels == [[3, 2]] * 6
    events = wb.load(tmp_path).events
    assert laws.check_events(events) == []
    rows = events.with_columns(pl.col("kind", "phase", "algorithm").cast(pl.String))
    rows = rows.filter(pl.col("algorithm") == "hierarchical")
    assert "levels 3,2 in turn" in rows["phase"]
    op = ["group", "op"]
    far = rows.filter(pl.col("kind") == "send", pl.col("rank") % 2 != pl.col("peer") % 2)
    sent = far.group_by(*op, host=pl.col("rank") % 2).agg(pl.col("nbytes").sum().alias("sent"))
    whole = rows.filter(pl.col("kind") == "collective", pl.col("rank") == 0).select(*op, "nbytes")
    both = sent.join(whole, on=op)
    assert both.height > 2 * len(SIZES) - 3 and (both["sent"] == both["nbytes"]).all()


def test_levels_that_are_not_the_group_s_are_refused() -> None:
    class Comm:
        rank, size, levels = 3, 6, (4, 2)

    with pytest.raises(CollectiveError, match=r"rank 3: levels \(4, 2\) make 8 .*has 6; \(3, 2\)"):
        all_reduce(Comm(), None)  # type: ignore[arg-type]

"""A rank of a parameter server is told to go: all leave at one boundary, with no push on its way,
and a server's keys stay, with the state of their optimizer.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import LONG, over_in_the_end, training
from tests.pairwise import first
from tests.recovery.lasting import ended, generations, wait_for
from tests.recovery.test_lost_servers import (
    COUNTED,
    KEYS,
    minibatches_in,
    served,
    uninterrupted,
)
from tests.recovery.test_policies import assert_every_sample_once, kinds


def assert_left_at_a_boundary(run: wb.Run, left: tuple[int, ...]) -> None:
    """Assert that by the record nothing was done twice, or is missing."""
    teams = generations(run)
    assert sorted(int(rank) for one in teams for rank in one.lost) == sorted(left)
    for one in teams:
        assert one.failed_in == one.iteration and {*one.go_on.values()} == {one.iteration}
    for one in run.recovery():
        assert one.samples_repeated == one.updates_lost == 0
    for kind, of in (("apply", ("rank", "peer", "iteration")), ("load", ("rank", "iteration"))):
        counts = kinds(run, kind).group_by(of).len()
        assert counts["len"].max() == 1, f"{kind} rows of the same iteration"
    preempted = kinds(run, "fault").filter(name="preempted")
    assert sorted(preempted["rank"].to_list()) == sorted(left)
    assert not run.detection().missed


@pytest.mark.parametrize(
    ("policy", "leavers", "options"),
    first(
        1,
        [
            ("shrink", (1,), {}),
            ("replace", (0,), {"servers": 1}),  # the only one: a worker keeps the keys
            ("shrink", (2,), {"servers": 1, "workers": 3}),  # a worker
            ("replace", (0, 1), {}),
            ("shrink", (0,), {"servers": 3, "placement": "hash"}),
            ("shrink", (1, 3), {"workers": 3}),  # a server and a worker
            ("replace", (1,), {"replicas": 2, "placement": (0.8, 0.2)}),  # one is in place
            ("wait", (1,), {"placement": (0.7, 0.3)}),
        ],
    ),
    ids=str,
)
def test_in_lockstep_a_rank_leaves_nothing_undone(
    policy: str, leavers: tuple[int, ...], options: dict[str, Any]
) -> None:
    fields = {"recovery": policy, "iterations": LONG, "pad_compute": "10 ms", **options}
    run = wb.run(served(**fields))
    with over_in_the_end(run):
        training(run, 2)
        for rank in leavers:
            run.preempt(rank)
        wait_for(run, 1)
        if len(generations(run)[0].lost) < len(leavers):
            wait_for(run, 2)  # each at a boundary of its own
        result = ended(run)
    assert_left_at_a_boundary(run, leavers)
    assert_every_sample_once(run)
    whole = uninterrupted(iterations=len(result.losses))
    servers = run.experiment.options["servers"]
    if max(leavers) < servers:  # the same workers take the same samples
        assert result.losses == whole.losses
        assert set(result.digests.values()) == set(whole.digests.values())
        assert {one for each in run.recovery() for one in each.sources} == {"replica"}
    else:
        assert result.losses == pytest.approx(whole.losses, rel=1e-12, abs=1e-12)


@pytest.mark.full
@pytest.mark.parametrize("leaver", [0, 1, 3])
@pytest.mark.parametrize("consistency", ["asp", "ssp", "dssp"])
def test_without_lockstep_each_key_has_every_push_once(consistency: str, leaver: int) -> None:
    iterations = 300
    exp = served(
        workers=3,
        consistency=consistency,
        **COUNTED,
        iterations=iterations,
        batch_size=48,
        pad_compute="5 ms",
        recovery="shrink",
        faults=(wb.Preempt(rank=leaver, at_iteration=5), wb.Slow(rank=2, factor=2.0)),
    )
    run = wb.run(exp)
    result = run.wait(timeout=180)
    assert minibatches_in(run, result).tolist() == pytest.approx([iterations] * KEYS)
    assert_left_at_a_boundary(run, (leaver,))


@pytest.mark.full
def test_a_rank_that_joins_servers_has_nothing_done_again() -> None:
    run = wb.run(served(recovery="shrink", iterations=LONG, pad_compute="10 ms"))
    with over_in_the_end(run):
        training(run, 2)
        run.preempt(1)
        wait_for(run, 1)
        run.add_rank()
        wait_for(run, 2)
        result = ended(run)
    assert_left_at_a_boundary(run, (1,))
    assert result.losses == uninterrupted(iterations=len(result.losses)).losses
    rows = run.events.filter(pl.col("name").cast(pl.String) == "elements")
    held = dict(rows.group_by("generation").agg(pl.col("value").sort()).rows())
    assert len(held[1]) == 1 and len(held[0]) == 2 and held[2] == held[0]

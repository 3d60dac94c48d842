"""Ranks that never start, and ranks that join, as faults of a scenario."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import gone, lenet
from tests.recovery.lasting import generations
from tests.recovery.test_policies import assert_as_sequential, experiment
from workbench.interface import lines

SCENARIO = """
faults:
- {fault: fail_to_start, rank: 1}
- {fault: kill, rank: 0, at_iteration: 2}
- {fault: join, rank: 3, at_iteration: 4}
- {fault: join, rank: 1, when: {rank: 3, step: 1}}
"""


def test_a_rank_that_fails_to_start_is_left_out_and_ranks_join_when_they_are_to() -> None:
    """Rank 3 joins at an iteration, and rank 1 after all as rank 3 is in a step."""
    scenario = wb.Scenario.from_yaml(SCENARIO)
    exp = scenario.on(
        experiment(
            "data_parallel",
            (1, 4),
            iterations=60,
            recovery="shrink",
            pad_compute="40 ms",
            grace="100 s",  # no rank is left out for having got no core
        )
    )
    assert wb.Experiment.from_yaml(exp.to_yaml()) == exp
    assert lines.parse_faults(lines.print_faults(exp.faults)) == exp.faults
    run = wb.run(exp)
    result = run.wait(timeout=90)
    assert_as_sequential(run, result, {1, 2, 3})
    joined = [one.fresh for one in generations(run)]
    assert joined == [(), (3,), (1,)] and result.lost == [0]
    rows = run.events.with_columns(pl.col("kind", "name", "lane").cast(pl.String))
    struck = rows.filter(pl.col("kind") == "fault", pl.col("rank") == -1).sort("start_ns")
    assert struck.select("name", "peer", "lane").rows() == [
        ("fail to start", 1, "experiment"),
        ("join", 3, "experiment"),
        ("join", 1, "experiment"),
    ]
    detection = run.detection()
    assert not detection.missed and not detection.false_alarms
    causes = {(one.fault, one.ranks[0]): one.how for one in detection.each}
    assert causes == {
        ("fail to start", 1): "killed",
        ("kill", 0): causes["kill", 0],
        ("join", 3): "arrived",
        ("join", 1): "arrived",
    }


def test_where_all_must_be_there_the_run_ends_and_names_those_that_did_not_start() -> None:
    run = wb.run(lenet(ranks=3, faults=wb.FailToStart(rank=1)))
    pids = [*run.pids.values()]
    with pytest.raises(wb.PeerLost) as failed:
        run.wait(timeout=60)
    assert failed.value.rank == 1 and gone(pids)


def test_without_a_minimum_the_others_shrink_at_once() -> None:
    run = wb.run(experiment("data_parallel", 3, recovery="shrink", faults=wb.FailToStart(rank=1)))
    result = run.wait(timeout=90)
    assert_as_sequential(run, result, {0, 2})
    assert result.lost == [1] and not run.detection().missed


def test_drawn_joins_are_of_ranks_that_were_lost() -> None:
    exp = lenet(ranks=(1, 4), iterations=60, recovery="shrink")
    scenario = wb.Scenario(rates={"kill": 0.2, "join": 0.2, "fail_to_start": 1.0}, seed=3)
    drawn = scenario.drawn(exp)
    out = set[int]()
    for one in drawn:
        if isinstance(one, wb.Join):
            assert one.rank in out
            out.discard(one.rank)
        else:
            assert isinstance(one, wb.Kill | wb.FailToStart)
            out.add(one.rank)
    assert isinstance(drawn[0], wb.FailToStart) and any(isinstance(one, wb.Join) for one in drawn)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"faults": wb.FailToStart(rank=4)}, "no rank 4; ranks=3 are 0 to 2"),
        ({"faults": [wb.FailToStart(rank=1)] * 2}, "another FailToStart"),
        ({"faults": wb.Join(rank=1, at_iteration=2), "recovery": "abort"}, "takes in no rank"),
        ({"faults": wb.Join(rank=1, at_iteration=2), "strategy": "fsdp"}, "takes in no rank"),
        ({"faults": wb.Join(rank=1, at_iteration=2)}, r"without rank 1.*ranks=\(2, 3\)"),
        ({"faults": [{"fault": "join", "rank": 1}]}, "say when"),
        (
            {
                "ranks": (2, 3),
                "faults": [wb.Join(rank=rank, at_iteration=2) for rank in (1, 2)],
            },
            r"without ranks 1, 2.*ranks=\(1, 3\)",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(wb.SpecError, match=words):
        lenet(**{"ranks": 3, "recovery": "shrink", **fields})

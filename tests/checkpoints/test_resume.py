"""A run that goes on from a checkpoint is the run that was never interrupted, of every strategy: to
the bit on the same ranks, within rounding on others.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import LONG, lenet, until
from tests.pairwise import first
from workbench.checkpoints.folder import MANIFEST, iterations, name_of

DONE, ALL = 5, 9
CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("sequential", 1, {}),
    ("data_parallel", 3, {}),
    ("data_parallel", 2, {"examples": "partitioned"}),
    ("ddp", 3, {"bucket_cap_mb": 0.05}),
    ("ddp", 3, {"compression": "powersgd", "powersgd_start": 2}),
    ("ddp", 2, {"accumulate": 2}),
    ("fsdp", 3, {}),
    ("fsdp", 2, {"reshard_after_forward": False, "prefetch": 1}),
    ("zero", 3, {}),
    ("zero", 2, {"zero": 2, "accumulate": 2}),
    ("fusion", 2, {}),
    ("top_k", 2, {}),
    ("tensor_parallel", 2, {}),
    ("pipeline", 2, {}),
    ("pipeline", 4, {"schedule": "gpipe", "replicas": 2}),
    ("pipeline", 2, {"schedule": "interleaved_1f1b", "stages_per_rank": 2}),
    ("local_sgd", 3, {"every": 4}),
    ("diloco", 2, {"every": 4}),
    ("gossip", 3, {}),
    ("malt", 3, {"wait": True, "cb": 2}),
    ("data_servers", 3, {"ahead": 2}),
    ("parameter_server", 3, {}),
    ("parameter_server", 4, {"servers": 2, "placement": "hash"}),
]


def experiment(strategy: str, ranks: int, options: dict[str, Any], **more: Any) -> wb.Experiment:
    """Return a run with Adam, which has a state, and a warm-up, which counts updates."""
    fields = {"optimizer": "adam", "warmup": 7, "iterations": ALL, **more}
    return lenet(strategy=strategy, ranks=ranks, options=options, **fields)


def interrupted(folder: Path, *case: Any, **more: Any) -> None:
    """Train for some iterations, and write a checkpoint at the end."""
    plan = wb.Checkpoint(folder=str(folder), every=3)
    wb.run(experiment(*case, iterations=DONE, checkpoint=plan, **more)).wait(timeout=90)
    assert iterations(folder) == [DONE, 3]


@pytest.mark.parametrize(("strategy", "ranks", "options"), first(2, CASES), ids=str)
def test_on_the_same_ranks_nothing_differs(
    tmp_path: Path, strategy: str, ranks: int, options: dict[str, Any]
) -> None:
    case = strategy, ranks, options
    whole = wb.run(experiment(*case)).wait(timeout=90)
    interrupted(tmp_path, *case)
    run = wb.run(experiment(*case, resume=str(tmp_path)))
    result = run.wait(timeout=90)
    assert result.losses == whole.losses and len(whole.losses) == ALL
    assert result.digests == whole.digests and result.digests
    rows = run.events.filter(pl.col("kind").cast(pl.String) == "restore")
    assert set(rows["iteration"]) == {DONE}
    trained = run.events.filter(pl.col("kind").cast(pl.String) == "forward")["iteration"]
    assert trained.filter(trained >= 0).min() == DONE, "what was done is not done again"


@cache
def sequential() -> wb.Result:
    return wb.run(experiment("sequential", 1, {}, dtype="float64")).wait(timeout=90)


MOVES = [
    ("data_parallel", 4, 2, {}, {}),
    ("fsdp", 3, 2, {}, {}),
    ("zero", 3, 2, {}, {"zero": 2}),
    ("pipeline", 3, 2, {}, {}),
    ("parameter_server", 3, 4, {"servers": 2}, {"servers": 1}),
    ("data_parallel", 2, 3, {}, {}),
    ("ddp", 3, 2, {}, {}),
    ("fsdp", 2, 4, {}, {}),
    ("pipeline", 2, 4, {}, {"replicas": 2}),
    ("parameter_server", 3, 5, {"servers": 1}, {"servers": 3, "placement": "hash"}),
]


@pytest.mark.parametrize("case", first(1, [([*one],) for one in MOVES]), ids=str)
def test_on_other_ranks_it_is_sequential_training(tmp_path: Path, case: Any) -> None:
    strategy, before, after, options, others = case
    interrupted(tmp_path, strategy, before, options, dtype="float64")
    exp = experiment(strategy, after, others, dtype="float64", resume=str(tmp_path))
    result = wb.run(exp).wait(timeout=90)
    reference = sequential()
    pairs = zip(result.losses, reference.losses, strict=True)
    assert max(abs(a - b) for a, b in pairs) <= 1e-12
    for name, value in reference.parameters.items():
        assert (result.parameters[name] - value).abs().max() <= 1e-11, name


@pytest.mark.full
def test_from_eight_to_four_to_six(tmp_path: Path) -> None:
    """Twice interrupted, on three numbers of ranks."""
    plan = wb.Checkpoint(folder=str(tmp_path), every=3)
    case: dict[str, Any] = {"dtype": "float64", "record": False}
    wb.run(experiment("data_parallel", 8, {}, iterations=3, checkpoint=plan, **case)).wait(90)
    more = {"checkpoint": plan, "resume": str(tmp_path), **case}
    wb.run(experiment("data_parallel", 4, {}, iterations=6, **more)).wait(90)
    result = wb.run(experiment("data_parallel", 6, {}, resume=str(tmp_path), **case)).wait(90)
    pairs = zip(result.losses, sequential().losses, strict=True)
    assert max(abs(a - b) for a, b in pairs) <= 1e-12


@pytest.mark.full
@pytest.mark.parametrize(
    "options", first(1, [{"consistency": "asp"}, {"consistency": "ssp"}]), ids=str
)
def test_where_workers_are_at_different_iterations_they_meet(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """The slow one is waited for at the checkpoint; every gradient up to it is in."""
    plan = wb.Checkpoint(folder=str(tmp_path), every=DONE)
    exp = experiment(
        "parameter_server", 3, options, checkpoint=plan, faults=wb.Slow(rank=2, factor=3)
    )
    wb.run(exp).wait(timeout=90)
    kept = json.loads((tmp_path / name_of(DONE) / "rank-0000.json").read_text())
    assert kept["values"]["shard"][0]["dict"] == [["version", 2 * DONE]], "both workers' gradients"
    result = wb.run(
        experiment("parameter_server", 3, options, resume=str(tmp_path / name_of(DONE)))
    )
    assert len(result.wait(timeout=90).losses) == ALL


@pytest.mark.full
@pytest.mark.parametrize("strategy", first(1, ["ad_psgd", "malt"]))
def test_strategies_without_a_common_iteration_go_on(tmp_path: Path, strategy: str) -> None:
    interrupted(tmp_path, strategy, 3, {})
    result = wb.run(experiment(strategy, 3, {}, resume=str(tmp_path))).wait(timeout=90)
    assert len(result.losses) == ALL and all(map(math.isfinite, result.losses))


@pytest.mark.full
@pytest.mark.parametrize("strategy", first(1, ["ad_psgd", "malt"]))
def test_stopped_at_iterations_of_their_own_ranks_write_one_last_checkpoint(
    tmp_path: Path, strategy: str
) -> None:
    plan = wb.Checkpoint(folder=str(tmp_path), every=0)
    run = wb.run(experiment(strategy, 3, {}, iterations=LONG, checkpoint=plan))
    run.slow(2, 4)
    asked, there = run.checkpoint(), run.iteration
    until(lambda: run.done or run.iteration > there + 3, what="they are apart")
    run.stop()
    run.wait(timeout=60)
    assert "checkpoint problem" not in run.store.metadata
    last, before = iterations(tmp_path)
    assert name_of(before) == asked.name and (tmp_path / name_of(last) / MANIFEST).exists()
    more = experiment(strategy, 3, {}, iterations=last + 2, resume=str(tmp_path))
    assert len(wb.run(more).wait(timeout=90).losses) == last + 2


def test_at_any_moment(tmp_path: Path) -> None:
    """One more is written while ranks train; a stopped run leaves its last iteration."""
    plan = wb.Checkpoint(folder=str(tmp_path), every=0, keep=3)
    run = wb.run(experiment("data_parallel", 2, {}, iterations=LONG, checkpoint=plan))
    one, two = run.checkpoint(), run.checkpoint()
    assert one.parent == tmp_path and one.name < two.name and (two / MANIFEST).exists()
    run.stop()
    result = run.wait(timeout=60)
    assert iterations(tmp_path) == [len(result.losses), *(int(x.name[10:]) for x in (two, one))]
    again = experiment("data_parallel", 2, {}, iterations=len(result.losses) + 2)
    more = wb.run(again.replace(resume=str(tmp_path))).wait(timeout=60)
    assert more.losses[: len(result.losses)] == result.losses
    with pytest.raises(wb.WorkbenchError, match="the run is over"):
        run.checkpoint()


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    plan = wb.Checkpoint(folder=str(tmp_path), every=2)
    case: tuple[str, int, dict[str, Any]] = ("data_parallel", 2, {})
    exp = experiment(*case, checkpoint=plan, faults=wb.Kill(rank=1, at_iteration=7))
    with pytest.raises(wb.PeerLost):
        wb.run(exp).wait(timeout=60)
    result = wb.run(experiment(*case, checkpoint=plan, resume=str(tmp_path))).wait(timeout=60)
    assert result.losses == wb.run(experiment(*case)).wait(timeout=60).losses


def test_what_it_costs_is_in_the_rows(tmp_path: Path) -> None:
    plan = wb.Checkpoint(folder=str(tmp_path), every=3)
    run = wb.run(experiment("data_parallel", 2, {}, checkpoint=plan))
    run.wait(timeout=60)
    rows = run.events.filter(pl.col("kind").cast(pl.String) == "checkpoint")
    counts = dict(rows.group_by(pl.col("name").cast(pl.String)).len().iter_rows())
    assert {k: v for k, v in counts.items() if k != "wait"} == {"copy": 6, "write": 6, "commit": 3}
    assert set(rows.filter(pl.col("name").cast(pl.String) == "copy")["iteration"]) == {3, 6, 9}


@pytest.mark.parametrize(
    ("strategy", "ranks", "recovery", "record"),
    first(
        2,
        [
            ("parameter_server", 4, "abort", True),
            ("data_parallel", 3, "replace", False),
            ("parameter_server", 4, "abort", False),
            ("data_parallel", 3, "shrink", True),
            ("parameter_server", 4, "replace", True),
        ],
    ),
)
def test_what_a_lost_rank_had_reported_is_in_checkpoints_of_later(
    tmp_path: Path, strategy: str, ranks: int, recovery: str, record: bool
) -> None:
    """The rank is lost after the second iteration, and the checkpoint is of the fourth."""
    plan = wb.Checkpoint(folder=str(tmp_path), every=4)
    exp = experiment(strategy, ranks, {}, dtype="float64", record=record)
    kill = wb.Kill(rank=ranks - 1, at_iteration=2)
    lost = exp.replace(iterations=4, checkpoint=plan, faults=kill, recovery=recovery)
    before = wb.run(lost).wait(timeout=90)
    assert before.losses[:2] == pytest.approx(sequential().losses[:2], rel=1e-12, abs=1e-12)
    result = wb.run(exp.replace(resume=str(tmp_path))).wait(timeout=90)
    assert result.losses[:4] == pytest.approx(before.losses, rel=1e-12, abs=1e-12)

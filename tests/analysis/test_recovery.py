"""What each loss of ranks cost, of real runs and of rows written by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import lenet
from tests.pairwise import first
from workbench.analysis.recovery import PHASES, Recoveries, measure
from workbench.store.table import EMPTY, SCHEMA

MS = 1_000_000
BLANK = {
    name: "" if dtype in (pl.Categorical, pl.String) or "Enum" in str(dtype) else -1
    for name, dtype in SCHEMA.items()
}


def row(
    kind: str, rank: int, generation: int, start: float, end: float, **more: Any
) -> dict[str, Any]:
    """Return a row; times in ms."""
    times = {"start_ns": int(start * MS), "end_ns": int(end * MS)}
    own = {"kind": kind, "rank": rank, "generation": generation, "value": math.nan}
    return {**BLANK, **own, **times, **more}


def measured(rows: list[dict[str, Any]], *recoveries: dict[str, Any]) -> Recoveries:
    table = pl.DataFrame(rows, schema=SCHEMA) if rows else EMPTY
    return measure(table, {"recoveries": json.dumps(recoveries)})


def iteration(which: int, generation: int, start: float, ranks: tuple[int, ...]) -> list[Any]:
    """Return the rows of an iteration of 10 ms, of 16 samples a rank."""
    result = []
    for rank in ranks:
        more = {"iteration": which}
        end = start + 9 + rank / 10
        result += [
            row("forward", rank, generation, start, start + 4, **more),
            row("metric", rank, generation, start + 4, start + 4, name="samples", value=16, **more),
            row("optimizer", rank, generation, end - 1, end, **more),
        ]
    return result


REPLACED = {
    "generation": 1,
    "lost": {"1": "killed"},
    "failed_in": 2,
    "iteration": 1,
    "members": [0, 1],
    "fresh": [1],
    "state": "checkpoint",
}


def test_survivors_that_notice_before_the_driver_set_the_end_of_detection() -> None:
    rows = [
        *iteration(2, 0, 20, (0,))[:2],
        row("fault", 1, 0, 21, 21, name="kill", iteration=2),
        row("abort", 0, 0, 23, 24, iteration=2),
        row("detect", -1, 0, 25, 25, name="killed", peer=1),
    ]
    one = measured(rows, REPLACED)[0]
    assert (one.since, one.detect_ms, one.abort_ms) == ("fault", 2, 3)


def test_times_and_losses_of_rows_written_by_hand() -> None:
    rows = [
        *iteration(0, 0, 0, (0, 1)),
        *iteration(1, 0, 10, (0, 1)),
        *iteration(2, 0, 20, (0,))[:2],  # rank 1 is lost in it
        row("fault", 1, 0, 21, 21, name="kill", iteration=2),
        row("detect", -1, 0, 25, 25, name="killed", peer=1),
        row("abort", 0, 0, 26, 28, iteration=2),
        row("rebuild", 0, 1, 29, 40, value=2),
        row("rebuild", 1, 1, 35, 41, value=2),
        row("restore", 0, 1, 41, 45, name="kept", iteration=1),
        row("restore", 1, 1, 41, 46, name="received", nbytes=1000, iteration=1),
    ]
    begun = measured(rows, REPLACED)[0]
    assert [getattr(begun, f"{phase}_ms") for phase in PHASES] == [4, 7, 20, 25, None]
    rows += [*iteration(1, 1, 50, (0, 1)), *iteration(2, 1, 60, (0, 1))]
    recoveries = measured(rows, REPLACED)
    one = recoveries[0]
    assert one.first_ms == pytest.approx(59.1 - 21) and one.since == "fault"
    assert (one.iterations_lost, one.samples_repeated, one.bytes_received) == (1, 3 * 16, 1000)
    assert recoveries.goodput == pytest.approx((9.1 + 19.1) / 69.1)  # 0; 1 and 2 once more
    assert recoveries.table.height == len(recoveries) == 1
    assert recoveries.table["lost"].to_list() == [[1]]
    words = "rank 1 was lost in iteration 3; ranks 0 and 1 went on with iteration 2"
    assert words in repr(recoveries) and "the first ended 38 ms after the fault: " in one.words


def test_an_iteration_that_is_lost_twice_is_repeated_twice_and_counts_once() -> None:
    again = {**REPLACED, "generation": 2, "failed_in": 1}
    rows = [
        *iteration(0, 0, 0, (0, 1)),
        *iteration(1, 0, 10, (0, 1)),
        *iteration(1, 1, 30, (0, 1)),
        row("detect", -1, 1, 41, 41, name="killed", peer=1),
        *iteration(1, 2, 60, (0, 1)),
    ]
    recoveries = measured(rows, REPLACED, again)
    assert [one.samples_repeated for one in recoveries] == [32, 32]
    assert [one.since for one in recoveries] == ["detect", "detect"]
    assert recoveries[1].detect_ms == 0
    assert recoveries[0].detect_ms is None  # its row was lost
    assert "the first ended 28 ms after the loss was noticed: " in recoveries[1].words
    assert recoveries.goodput == pytest.approx((9.1 + 9.1) / 69.1)


def test_a_change_that_was_planned_is_called_neither_a_loss_nor_a_recovery() -> None:
    removed = {**REPLACED, "lost": {"1": "removed"}, "iteration": 2, "members": [0], "fresh": []}
    joined = {**REPLACED, "generation": 2, "lost": {}, "iteration": 2, "fresh": [1]}
    left = {**removed, "generation": 3, "lost": {"1": "ended"}}
    rows = [row("detect", -1, at, at, at, name="ended", peer=1) for at in range(3)]
    rows += [one for at in (1, 2, 3) for one in iteration(2, at, 10 * at, (0, 1))]
    changes = measured(rows, removed, joined, left)
    assert repr(changes).startswith("3 planned changes, goodput")
    for words, event in zip(changes, ("was removed", "joined", "left"), strict=True):
        assert f"rank 1 {event} in iteration 3" in words.words
        assert "after the change was noticed" in words.words, words
        assert "loss" not in words.words and "rank 1 was lost" not in words.words
    mixed = measured(rows, removed, {**REPLACED, "generation": 2})
    assert repr(mixed).startswith("1 recovery and 1 planned change, goodput")


def test_a_run_without_losses_has_none() -> None:
    assert math.isnan(measured([]).goodput) and measured([]).table.height == 0
    recoveries = measured(iteration(0, 0, 0, (0, 1)))
    assert len(recoveries) == 0 and recoveries.goodput == 1 and "no recovery" in repr(recoveries)


@pytest.mark.full
@pytest.mark.parametrize("policy", first(1, ["shrink", "replace"]))
def test_a_real_run_says_the_same_live_and_loaded(tmp_path: Path, policy: str) -> None:
    kill = wb.Kill(rank=1, at_iteration=4)
    run = wb.run(lenet(ranks=3, iterations=8, recovery=policy, faults=kill))
    run.wait(timeout=90)
    recoveries = run.recovery()
    times = [getattr(recoveries[0], f"{phase}_ms") for phase in PHASES]
    assert times == sorted(times) and times[0] > 0 and recoveries[0].since == "fault"
    assert recoveries[0].lost == (1,) and recoveries[0].failed_in == recoveries[0].iteration == 4
    assert recoveries[0].iterations_lost == 0 and recoveries[0].samples_repeated < 16
    assert (recoveries[0].bytes_received > 0) == (policy == "replace")
    assert 0 < recoveries.goodput < 1
    run.store.save(tmp_path / "run.parquet")
    assert wb.load(tmp_path / "run.parquet").recovery() == recoveries

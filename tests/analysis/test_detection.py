"""What was noticed is scored against what was done: found, missed, not looked for, false alarm."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import lenet
from tests.pairwise import first
from workbench.analysis.detection import score
from workbench.store.event_store import Store

MS = 1_000_000
Row = tuple[int, str, str, int, int, float, str]  # ms, kind, name, rank, peer, value, group


def table(*rows: Row) -> pl.DataFrame:
    """Return an event table of these rows, sorted by time, and one row of training at 60 s."""
    empty = Store().events
    names = ("start_ns", "kind", "name", "rank", "peer", "value", "group")
    records = [
        dict(zip(names, (row[0] * MS, *row[1:]), strict=True)) | {"end_ns": row[0] * MS}
        for row in (*rows, (60_000, "optimizer", "", 0, -1, 0.0, "world"))
    ]
    frame = pl.DataFrame(records)
    columns = [
        (pl.col(name) if name in frame.columns else pl.lit(-1).alias(name))
        for name in ("start_ns", "end_ns", "kind", "name", "rank", "peer", "value", "group")
    ]
    assert {"start_ns", "kind"} <= set(empty.columns)
    return frame.select(*columns, pl.lit(0).alias("iteration"), pl.lit(0).alias("generation"))


def test_each_fault_has_its_own_detection_and_what_is_left_is_a_false_alarm() -> None:
    detection = score(
        table(
            (5, "detect", "stalled", 0, 1, 1.0, ""),
            (100, "fault", "kill", 2, -1, 0.0, ""),
            (104, "detect", "killed", -1, 2, 0.0, ""),
            (200, "fault", "kill", -1, 2, 0.0, ""),
            (230, "detect", "killed", -1, 2, 0.0, ""),
            (300, "fault", "kill", -1, 1, 0.0, ""),
            (310, "detect", "late: computes", 0, 3, 0.0, ""),
            (20_000, "detect", "killed", -1, 3, 0.0, ""),
        ),
        {},
    )
    assert [one.latency_ms for one in detection.each] == [4, 30, None]
    assert [one.ranks for one in detection.missed] == [(1,)] and detection.latency_ms == 17
    alarms = [(one.name, one.rank) for one in detection.false_alarms]
    assert alarms == [("stalled", 1), ("killed", 3)]
    assert detection.table["missed"].to_list() == [False, False, True]
    assert "3 faults, 2 found (median 17.0 ms), 1 missed, 2 false alarms" in repr(detection)


def test_a_notice_is_over_when_its_rank_leaves_and_a_second_one_says_the_same() -> None:
    detection = score(
        table(
            (100, "fault", "preempt", 1, -1, 0.0, ""),
            (200, "fault", "preempt", 1, -1, 0.0, ""),
            (9_000, "fault", "preempted", 1, -1, 0.0, ""),
            (9_010, "detect", "ended", -1, 1, 0.0, ""),
            (9_100, "fault", "preempt", 1, -1, 0.0, ""),
            (9_200, "fault", "preempt", -1, 2, 0.0, ""),
        ),
        {},
    )
    assert [one.latency_ms for one in detection.each] == [8_910, None, None, None]
    assert [one.at_ns // MS for one in detection.missed] == [9_100, 9_200]
    assert not detection.false_alarms


def test_a_rank_that_is_killed_before_it_leaves_is_found_as_killed() -> None:
    detection = score(
        table(
            (100, "fault", "preempt", 1, -1, 0.0, ""),
            (200, "fault", "kill", 1, -1, 0.0, ""),
            (210, "detect", "killed", -1, 1, 0.0, ""),
        ),
        {},
    )
    assert [one.latency_ms for one in detection.each] == [None, 10]
    assert not detection.missed and not detection.false_alarms


def test_a_notice_may_come_too_late_in_a_generation_that_others_ended() -> None:
    """Rank 1 had it in generation 0, and took part in the last iteration in generation 1."""
    rows = table(
        (100, "fault", "preempt", 1, -1, 0.0, ""),
        (200, "optimizer", "", 1, -1, 0.0, "world"),
    )
    later = pl.when(pl.col("kind") == "optimizer").then(pl.lit(1)).otherwise(pl.lit(0))
    fault = pl.when(pl.col("kind") == "fault").then(-1).otherwise(0)
    rows = rows.with_columns(iteration=fault)
    in_one = rows.with_columns(generation=later)
    spec = {"experiment": lenet(iterations=1, recovery="shrink").to_json()}
    assert score(rows.with_columns(generation=1 - later), spec).missed
    assert not score(in_one, spec).missed


def test_an_alarm_is_explained_by_a_fault_from_which_it_can_follow() -> None:
    """A stall and an end pass from rank to rank; a kill and a replica that differs do not."""
    scored = score(
        table(
            (100, "fault", "freeze", 1, -1, 1.0, ""),
            (900, "detect", "stalled: stopped", 2, 1, 1.0, ""),
            (950, "detect", "stalled", 3, 2, 1.0, ""),
            (1000, "detect", "lost", 1, 0, 0.0, ""),
            (1100, "detect", "killed", -1, 3, 0.0, ""),
            (1150, "detect", "bad minibatch: NaN", 2, 2, 0.0, ""),
            (1200, "detect", "a replica differs", 0, 2, 0.0, ""),
        ),
        {},
    )
    alarms = [(one.name, one.rank) for one in scored.false_alarms]
    assert alarms == [("killed", 3), ("bad minibatch: NaN", 2), ("a replica differs", 2)]


def test_of_two_replicas_that_differ_both_are_named_and_no_alarm_is_false() -> None:
    scored = score(
        table(
            (100, "fault", "corrupt bitflip", 1, -1, 1.0, ""),
            (130, "detect", "a replica differs", 0, 1, 1.0, ""),
            (130, "detect", "a replica differs", 0, 0, 1.0, ""),
            (160, "detect", "killed", -1, 0, 0.0, ""),
        ),
        {},
    )
    assert scored.each[0].how == "a replica differs" and not scored.false_alarms


def test_a_corrupt_share_is_not_looked_at_where_its_iteration_is_given_up() -> None:
    """Rank 1's is: it left before the iteration began again. Rank 2 looked, and said nothing."""
    detection = score(
        table(
            (0, "fault", "corrupt shape", 1, -1, 7.0, ""),
            (0, "fault", "corrupt shape", 2, -1, 8.0, ""),
            (50, "abort", "", 1, -1, 0.0, ""),
        ),
        {"experiment": wb.Experiment(bad_minibatch="skip").to_json()},
    )
    assert [one.missed for one in detection.each] == [False, True]


def test_a_fault_lasts_until_it_is_undone() -> None:
    detection = score(
        table(
            (0, "fault", "freeze", 1, -1, 0.5, ""),
            (1000, "fault", "freeze", -1, 1, float("nan"), ""),
            (1500, "fault", "thaw", -1, 1, 0.0, ""),
            (2000, "fault", "slow", -1, 2, 4.0, ""),
            (2500, "fault", "slow", -1, 2, 1.0, ""),
            (9000, "fault", "cut", -1, 1, 0.0, "0->1"),
            (9001, "fault", "cut", -1, 0, 0.0, "1->0"),
            (10_100, "detect", "stalled", 1, 0, 1.0, ""),
            (12_000, "fault", "link", -1, 1, 0.0, "0->1"),
            (12_001, "fault", "link", -1, 0, 0.0, "1->0"),
            (20_000, "fault", "cut", -1, 1, 0.0, "2->1"),
        ),
        {},
    )
    spans = [(one.fault, one.ranks, one.at_ns // MS, one.until_ns // MS) for one in detection.each]
    assert spans == [
        ("freeze", (1,), 0, 500),
        ("freeze", (1,), 1000, 1500),
        ("slow", (2,), 2000, 2500),
        ("cut", (0, 1), 9000, 12_001),
        ("cut", (1, 2), 20_000, 60_000),
    ]
    assert [one.expected for one in detection.each] == [False, False, False, True, True]
    assert [one.latency_ms for one in detection.each] == [None, None, None, 1100, None]
    assert [one.ranks for one in detection.missed] == [(1, 2)] and not detection.false_alarms


def test_a_share_that_is_corrupt_again_after_a_recovery_is_one_fault() -> None:
    detection = score(
        table(
            (100, "fault", "corrupt nan", 0, -1, 7.0, ""),
            (101, "fault", "kill", 2, -1, 0.0, ""),
            (130, "detect", "killed", -1, 2, 0.0, ""),
            (6200, "fault", "corrupt nan", 0, -1, 8.0, ""),  # its share is another one now
            (6210, "detect", "bad minibatch: not finite", 0, 0, 8.0, ""),
            (6300, "fault", "corrupt nan", 1, -1, 9.0, ""),
        ),
        {"experiment": "bad_minibatch: skip"},
    )
    assert [one.latency_ms for one in detection.each] == [6110, 29, None]
    assert [one.ranks for one in detection.missed] == [(1,)] and not detection.false_alarms


@pytest.mark.parametrize("text", ["", "[", "bad_minibatch: skip", "- 1", "digest_every: x"])
def test_what_is_checked_stands_in_the_experiment_that_is_stored(text: str) -> None:
    rows = table((1, "fault", "corrupt nan", 1, -1, 5.0, ""))
    (one,) = score(rows, {"experiment": text}).each
    assert one.missed == (text == "bad_minibatch: skip")


CASES: list[tuple[dict[str, Any], list[str]]] = [
    (
        {
            "iterations": 9,
            "recovery": "shrink",
            "faults": wb.Preempt(rank=1, at_iteration=8),
        },
        [""],  # it leaves with all others
    ),
    ({"recovery": "shrink", "faults": wb.Kill(rank=1, at_iteration=2)}, ["killed"]),
    ({"faults": wb.Kill(rank=1, at_iteration=2)}, ["killed"]),
    (
        {"bad_minibatch": "skip", "faults": wb.Corrupt(rank=1, at_iteration=2)},
        ["bad minibatch: not finite"],
    ),
    (
        {"digest_every": 2, "faults": wb.Corrupt(rank=1, at_iteration=2, kind="bitflip")},
        ["a replica differs"],
    ),
    ({"faults": wb.Freeze(rank=1, at_iteration=2, seconds=0.1)}, [""]),
]


@pytest.mark.parametrize(("fields", "how"), first(1, CASES), ids=str)
def test_faults_of_a_real_run_are_found_and_nothing_else_is(
    fields: dict[str, Any], how: list[str]
) -> None:
    run = wb.run(lenet(ranks=3, **fields))
    run.wait(timeout=90, check=False)
    detection = run.detection()
    assert [one.how for one in detection.each] == how, detection
    assert not detection.missed and not detection.false_alarms, detection
    assert all(one.ranks == (1,) for one in detection.each)

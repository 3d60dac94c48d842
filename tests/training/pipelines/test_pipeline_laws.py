"""The laws of a pipeline hold of a planned table and fail on one that was tampered with.

Over real processes they are asked in the tests of the strategy.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from workbench.training.pipelines.laws import check_pipeline
from workbench.training.pipelines.schedule import Schedule, build
from workbench.training.pipelines.theory import Times, plan

LENGTHS = Times(0.01, 0.012, 0.008, hop=0.001)
SIZES = {"interleaved_1f1b": 2, "zbv": 2, "dualpipe_v": 2, "looped_bfs": 2}
NAMES = ["1f1b", "gpipe", "sequential", "zb_h1", "zb_h2", "pipedream", *SIZES]


def table(schedule: Schedule, each: int, iterations: int = 3, replicas: int = 1) -> pl.DataFrame:
    """A run as planned, with the versions that it would have."""
    if schedule.flush:
        parts = [
            plan(schedule, LENGTHS, iteration=n, start_ns=n * 10**9).with_columns(
                version=pl.col("iteration")
            )
            for n in range(iterations)
        ]
        # op goes on over the iterations, by sender and receiver
        rows = pl.concat(parts).with_columns(
            op=pl.when(pl.col("op") >= 0)
            .then(pl.col("op") + 1000 * pl.col("iteration"))
            .otherwise(-1)
        )
    else:
        rows = plan(schedule, LENGTHS, microbatches=each)
        versions = []
        for row in schedule.rows:
            backwards, stash = 0, {}
            for one in row:
                if one.kind == "F":
                    stash[one.microbatch] = backwards // each
                backwards += one.kind == "B"
                versions.append((one.stage, one.microbatch, stash[one.microbatch]))
        known = pl.DataFrame(versions, ["stage", "microbatch", "version"], orient="row").unique()
        numbered = known.select(
            "stage",
            "version",
            iteration=pl.col("microbatch") // each,
            microbatch=(pl.col("microbatch") % each).cast(pl.Int32),
        )
        keys = ["stage", "iteration", "microbatch"]
        rows = rows.drop("version").join(numbered, on=keys, how="left", maintain_order="left")
    held = in_flight(schedule)
    rows = pl.concat([rows.select(held.columns), held])
    shifts = (replica * schedule.ranks for replica in range(replicas))
    return pl.concat(
        rows.with_columns(
            pl.col("rank") + shift,
            peer=pl.when(pl.col("peer") >= 0).then(pl.col("peer") + shift).otherwise(-1),
        )
        for shift in shifts
    ).cast({"rank": pl.Int32, "peer": pl.Int32})


def in_flight(schedule: Schedule) -> pl.DataFrame:
    """The count that a rank writes after each action."""
    blank = plan(schedule, LENGTHS).head(1)
    return pl.concat(
        blank.with_columns(
            kind=pl.lit("metric").cast(pl.Categorical),
            iteration=pl.lit(0, pl.Int64),
            name=pl.lit("in flight").cast(pl.Categorical),
            rank=pl.lit(rank, pl.Int32),
            stage=pl.lit(stage, pl.Int64),
            value=pl.lit(float(schedule.peaks[stage])),
        )
        for stage, rank in enumerate(schedule.rank_of)
    )


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_they_hold_of_a_run_as_planned(name: str, replicas: int) -> None:
    schedule = build(
        name, ranks=2, microbatches=4, stages_per_rank=SIZES.get(name, 1), iterations=3
    )
    assert (
        check_pipeline(
            table(schedule, 4, replicas=replicas), schedule, iterations=3, microbatches=4
        )
        == []
    )


def where(**values: object) -> pl.Expr:
    return pl.all_horizontal(pl.col(name) == value for name, value in values.items())


FORWARD = {"kind": "forward", "iteration": 1, "microbatch": 2, "stage": 1}
BACKWARD = {**FORWARD, "kind": "backward"}

Change = Callable[[pl.DataFrame], pl.DataFrame]
TAMPERED: dict[str, tuple[str, Change, str]] = {
    "a forward is missing": (
        "every microbatch once",
        lambda rows: rows.filter(~where(**FORWARD)),
        "1F2 was done 0 times",
    ),
    "a backward is done twice": (
        "every microbatch once",
        lambda rows: pl.concat([rows, rows.filter(where(**BACKWARD))]),
        "1B2 was done 2 times",
    ),
    "an iteration is missing": (
        "every microbatch once",
        lambda rows: rows.filter(pl.col("iteration") != 2),
        "iteration 3",
    ),
    "a backward before the next stage's": (
        "in order",
        lambda rows: rows.with_columns(
            end_ns=pl.when(where(**BACKWARD)).then(pl.col("end_ns") + 10**8).otherwise("end_ns")
        ),
        "0B2 began .* ms before 1B2, which it needs, ended",
    ),
    "a row in another order": (
        "in order",
        lambda rows: rows.with_columns(
            start_ns=pl.when(where(**FORWARD))
            .then(pl.col("start_ns") + 10**8)
            .otherwise("start_ns")
        ),
        "was 1B|the schedule has 1F2",
    ),
    "more held than planned": (
        "peaks kept",
        lambda rows: rows.with_columns(
            value=pl.when(where(name="in flight", stage=1)).then(2.0).otherwise("value")
        ),
        "held activations of 2 microbatches of stage 1, the schedule's most is 1",
    ),
    "forwards run ahead": (
        "peaks kept",
        lambda rows: rows.with_columns(
            start_ns=pl.when(where(**FORWARD))
            .then(pl.col("start_ns") - 10**8)
            .otherwise("start_ns")
        ),
        "stage 1 had 2 microbatches in flight, the schedule 1",
    ),
    "an old version": (
        "versions right",
        lambda rows: rows.with_columns(
            version=pl.when(where(**FORWARD)).then(0).otherwise("version")
        ),
        "1F2 ran on version 0, but its stage had been updated 1 times",
    ),
    "another version than the forward's": (
        "versions right",
        lambda rows: rows.with_columns(
            version=pl.when(where(**BACKWARD)).then(2).otherwise("version")
        ),
        "1B2 ran on version 2, but its forward ran on version 1",
    ),
    "a message is lost": (
        "messages paired",
        lambda rows: rows.filter(~where(kind="recv", iteration=1, microbatch=2, stage=1)),
        "was sent and not received",
    ),
    "a message never left": (
        "messages paired",
        lambda rows: rows.filter(
            ~where(name="gradient", iteration=1, microbatch=2, collective="p2p")
        ),
        r"iteration 2: stage 0 received the gradient of microbatches \[0, 1, 3\], expected",
    ),
    "a gradient comes as an activation": (
        "messages paired",
        lambda rows: rows.with_columns(
            name=pl.when(where(kind="recv", iteration=1, microbatch=2, stage=0))
            .then(pl.lit("activation"))
            .otherwise(pl.col("name").cast(pl.String))
            .cast(pl.Categorical)
        ),
        "left as .*gradient.* arrived as .*activation",
    ),
    "bytes are lost": (
        "messages paired",
        lambda rows: rows.with_columns(
            nbytes=pl.when(where(kind="recv", microbatch=2)).then(3).otherwise("nbytes")
        ),
        "iteration, microbatch, name, bytes",
    ),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_each_fails_where_it_is_broken(name: str) -> None:
    law, change, words = TAMPERED[name]
    schedule = build("1f1b", ranks=2, microbatches=4)
    violations = check_pipeline(change(table(schedule, 4)), schedule, iterations=3)
    messages = [str(one) for one in violations if one.law == law]
    assert messages
    assert pl.Series(messages).str.contains(words).any(), messages


def test_stashed_versions_are_checked_without_a_flush() -> None:
    schedule = build("pipedream", ranks=2, microbatches=2, iterations=4)
    rows = table(schedule, 2, iterations=4)
    used = rows.filter(where(kind="forward", rank=0)).sort("iteration", "microbatch")["version"]
    assert used.to_list() == [0, 0, 0, 1, 1, 2, 2, 3]  # an update after each second backward
    newest = rows.with_columns(
        version=pl.when(where(kind="backward", rank=0))
        .then(pl.col("version") + 1)
        .otherwise("version")
    )
    broken = check_pipeline(newest, schedule, iterations=4, microbatches=2)
    assert {one.law for one in broken} == {"versions right"}

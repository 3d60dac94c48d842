"""Pipelines in the user's hands: held, stopped, killed, slowed, and padded too short."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import workbench as wb
from tests.live import lenet, training
from tests.pairwise import first
from tests.runs.steered import hold
from workbench.training.pipelines import bubble
from workbench.views.pages.tally import Tally


def test_a_run_tells_its_schedule_and_why_its_ranks_were_idle(tmp_path: Path) -> None:
    run = wb.run(padded(iterations=3))
    run.wait(timeout=60)
    run.store.save(tmp_path / "run.parquet")
    loaded = wb.load(tmp_path / "run.parquet")
    assert run.schedule == loaded.schedule == wb.schedule("1f1b", ranks=3, microbatches=4)
    parts = run.bubble()
    assert parts.equals(loaded.bubble()) and parts["rank"].to_list() == [0, 1, 2]
    whole = parts.select(pl.sum_horizontal(pl.exclude("rank", "planned")))
    assert np.allclose(whole.to_series(), 1)
    assert np.allclose(parts["planned"], 2 / 6)
    # In time, not as a share: on busy cores iterations last longer, and what was planned does not.
    by_iteration = bubble.measure(run.events, run.schedule, pads_ns=run.experiment.pads_ns).parts
    assert (by_iteration["warm_up_ns"] > 0.2 * 6 * 36e6).all(), by_iteration
    other = wb.run(lenet(iterations=1))
    other.wait(timeout=60)
    assert other.schedule is None and other.bubble().height == 0


# -- in the user's hands --


def padded(**fields: Any) -> wb.Experiment:
    return lenet(
        **{
            "strategy": "pipeline",
            "ranks": 3,
            "iterations": 1000,
            "batch_size": 8,
            "pad_compute": "12 ms",
            "options": {"microbatches": 4},
            **fields,
        }
    )


@pytest.mark.parametrize("schedule", first(1, ["1f1b", "pipedream"]))
def test_it_holds_steps_and_stops_where_all_agree(schedule: str) -> None:
    run = training(wb.run(padded(options={"schedule": schedule, "microbatches": 4})), 2)
    hold(run)
    at = run.iteration
    time.sleep(0.3)
    assert run.iteration == at
    run.resume()
    run.stop()
    result = run.wait(timeout=90)
    assert result.ok and at < len(result.losses) < 1000
    done = run.events.filter(pl.col("kind").cast(pl.String) == "backward")
    counts = done.group_by("stage").len()["len"].unique().to_list()
    assert counts == [len(result.losses) * 4]


def test_a_killed_rank_is_named() -> None:
    run = training(wb.run(padded()))
    run.kill(1)
    with pytest.raises(wb.PeerLost, match=r"rank 1 .*SIGKILL"):
        run.wait(timeout=90)


def test_a_slow_stage_is_slow_and_its_neighbors_wait() -> None:
    run = wb.run(padded(iterations=4, faults=[wb.Slow(rank=1, factor=3)]))
    run.wait(timeout=60)
    spans = run.events.filter(pl.col("kind").cast(pl.String) == "forward").with_columns(
        ms=(pl.col("end_ns") - pl.col("start_ns")) / 1e6
    )
    median = dict(spans.group_by("rank").agg(pl.col("ms").median()).iter_rows())
    assert median[1] >= 36 > 1.5 * median[0]


def test_computing_longer_than_its_pad_is_an_error() -> None:
    pads = wb.Pads(forward="10 us", input_gradient="10 us", weight_gradient="10 us")
    result = wb.run(padded(pad_compute=pads)).wait(timeout=60, check=False)
    assert isinstance(result.error, wb.PadOverrun) and "padded to 0.01 ms" in str(result.error)


def test_a_run_of_few_pads_that_are_too_short_ends_with_an_error_too() -> None:
    result = wb.run(padded(pad_compute="10 us", iterations=2)).wait(timeout=60, check=False)
    assert isinstance(result.error, wb.PadOverrun) and "(the median of 8)" in str(result.error)


SLOW_AT = """
class Uneven(Task):
    def loss(self, model, batch):
        if len(self.many) in self.slow:  # one of four microbatches, as of a machine that is busy
            end = time.thread_time() + 0.06
            while time.thread_time() < end:
                pass
        self.many.append(1)
        return super().loss(model, batch)
"""


def uneven(slow: range, tmp_path: Path) -> wb.Run:
    """Two stages, four microbatches; the last stage computes for 60 ms in these of its pads."""
    path = tmp_path / "uneven.py"
    path.write_text(
        "import time\nfrom workbench.tasks.lenet_digits import Task\n"
        f"{SLOW_AT}    slow, many = {slow!r}, []\n"
    )
    exp = padded(
        task=f"{path}:Uneven",
        ranks=2,
        iterations=8,
        pad_compute="30 ms",
        options={"microbatches": 4},
    )
    return wb.run(exp)


def test_single_overruns_are_marked_and_their_iterations_left_out_of_what_is_measured(
    tmp_path: Path,
) -> None:
    run = uneven(range(9, 33, 16), tmp_path)  # in two iterations, four apart
    result = run.wait(timeout=60)
    assert len(result.losses) == 8
    p, kind, name = pl.col, pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String)
    marks = run.events.filter(kind == "metric", name == "pad overrun")
    own = marks.filter(p("rank") == 1, p("value") > 25)
    slow = set(own["iteration"])
    assert any({one, one + 4} <= slow for one in slow), marks
    assert (marks["stage"] == marks["rank"]).all() and (marks["microbatch"] >= 0).all()
    marked = set(marks["iteration"])
    assert run.schedule is not None
    measured = bubble.measure(run.events, run.schedule, pads_ns=run.experiment.pads_ns)
    assert set(measured.parts.filter("overrun")["iteration"]) == marked
    left = measured.parts.filter(~p("overrun"))
    left = left if left.height else measured.parts
    assert measured.measured == pytest.approx(1 - left["busy_ns"].sum() / left["whole_ns"].sum())
    tally = Tally(run.store, {})
    tally.catch_up(run.events.height)
    assert tally.badges == [f"pad overrun in {len(marked)} of 8 iterations"]


@pytest.mark.full
def test_where_most_pads_are_overrun_the_run_ends_and_says_how_long_they_should_be(
    tmp_path: Path,
) -> None:
    result = uneven(range(1000), tmp_path).wait(timeout=60, check=False)
    assert isinstance(result.error, wb.PadOverrun)
    words = str(result.error)
    assert "rank 1 computes for" in words and "forward that is padded to 30 ms" in words
    proposed = float(words.partition('pad_compute="')[2].partition(" ms")[0])
    assert 80 <= proposed < 400, words

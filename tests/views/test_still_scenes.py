"""Still pictures of scenes that a cell asks for: samples, ranks apart in time, replicas."""

from __future__ import annotations

import math
import re
from typing import Any

import polars as pl

import workbench as wb
from tests.live import lenet
from tests.synthetic import loss_row, table, training
from tests.views.test_still import stored
from workbench.front_end.svg import INK
from workbench.views.scenes import timeline
from workbench.views.stills.still import select
from workbench.views.stills.svg import HEIGHT, svg


def test_samples_are_drawn_where_a_cell_asks_for_them() -> None:
    run = wb.run(lenet(ranks=3, iterations=2, batch_size=12))
    assert run.wait(timeout=60).ok
    picture = svg(select(run.store, "samples"))
    assert "Which rank took which samples" in picture and "minibatch 0" in picture
    assert "Where the chunks were" not in picture
    (inner,) = re.findall(r'<svg x="0" y="36"[^>]* height="(\d+)"', picture)
    assert 36 + int(inner) <= HEIGHT, "all of it is seen"
    assert "Where the chunks were" in svg(select(run.store))


def test_ranks_that_are_not_in_an_iteration_together_are_shown_at_one_time() -> None:
    """Rank 1 comes to each iteration a second later: a picture of that iteration would be empty."""

    def forward(rank: int, iteration: int, start_ms: int) -> dict[str, Any]:
        start = start_ms * 1_000_000
        row = loss_row(iteration, start, math.nan) | {"kind": "forward", "name": "", "rank": rank}
        return row | {"end_ns": start + 8_000_000}

    fast = [forward(0, at, 10 * at) for at in range(400)]
    late = [forward(1, at, 1000 + 10 * at) for at in range(200)]
    bars = timeline.select(table(fast + late).lazy(), {})
    assert bars is not None and not bars.together and bars.whole_ms == 8
    assert sum(end - start for _, _, start, end in bars.bars) > 8
    assert "each rank in an iteration of its own" in "".join(timeline.draw(bars))
    together = timeline.select(
        table([forward(r, at, 10 * at) for r in (0, 1) for at in range(9)]).lazy(), {}
    )
    assert together is not None and together.together


def test_the_axis_of_a_run_that_ended_early_ends_where_its_losses_end() -> None:
    over = svg(select(stored(training(5), ok="1")))
    assert ">200<" not in over and ">5<" in over
    assert ">200<" in svg(select(stored(training(5))))


def test_ranks_that_tell_no_loss_are_at_work() -> None:
    calls = training(3).filter(pl.col("kind") != "metric")
    assert select(stored(calls)).sentence == "4 processes are at work."
    assert select(stored(calls.head(0))).sentence == "4 processes are about to train one model."


def test_of_replicas_that_are_alike_at_the_end_the_furthest_is_shown() -> None:
    exp = lenet(strategy="local_sgd", ranks=2, iterations=12, options={"every": 4})
    run = wb.run(exp)
    assert run.wait(timeout=60).ok
    mixing = select(run.store, "peers").selected
    assert max(mixing.distances) > 1e-9 and "alike after 12" in mixing.words


def test_the_key_of_a_pipeline_is_inside_the_picture() -> None:
    run = wb.run(lenet(strategy="pipeline", ranks=2, iterations=2))
    assert run.wait(timeout=60).ok
    picture = svg(select(run.store, "pipeline"))
    bottoms = [float(y) for y in re.findall(r'<text x="[\d.]+" y="([\d.]+)"', picture)]
    assert max(bottoms) <= HEIGHT - 4 and INK["ground"] in picture

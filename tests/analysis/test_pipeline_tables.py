"""A pipeline's actions and its iterations' idle time, of a real run of two stages."""

from __future__ import annotations

import json

import polars as pl
import pytest

import workbench as wb
from tests.analysis.test_tables import loaded
from tests.synthetic import training
from workbench.runs.run import Run

M, ITERATIONS = 3, 2


def trained(schedule: str) -> Run:
    """Return a finished run of a pipeline of two stages."""
    run = wb.run(
        wb.Experiment(
            strategy="pipeline",
            ranks=2,
            iterations=ITERATIONS,
            batch_size=12,
            options={"schedule": schedule, "microbatches": M},
        )
    )
    run.wait(timeout=60)
    return run


@pytest.fixture(scope="module")
def run() -> Run:
    return trained("gpipe")


@pytest.mark.full
def test_actions_are_those_of_the_schedule_in_its_order(run: Run) -> None:
    assert run.schedule is not None
    table = run.actions()
    for rank, row in enumerate(run.schedule.rows):
        each = table.filter(rank=rank, iteration=1)
        assert each["action"].to_list() == [str(action) for action in row]
        assert each["start_ms"].is_sorted() and (each["took_ms"] > 0).all()
    assert table.height == ITERATIONS * 2 * 2 * M


def test_gpipe_holds_all_microbatches_before_the_first_comes_back(run: Run) -> None:
    table = run.actions().filter(rank=0)
    assert table["in_flight"].to_list() == [1, 2, 3, 2, 1, 0] * ITERATIONS


def test_idle_time_is_that_between_an_iterations_actions(run: Run) -> None:
    (each,) = run.bubble(by_iteration=True).rows(named=True)
    assert each["iteration"] == 1, "the first is left out"
    actions = run.actions().filter(iteration=1)
    end = (actions["start_ms"] + actions["took_ms"]).max()
    whole = end - actions["start_ms"].min()
    assert each["took_ms"] == pytest.approx(whole)
    assert each["idle"] == pytest.approx(1 - actions["took_ms"].sum() / (2 * whole))
    shares = run.bubble()
    assert 1 - shares["busy"].mean() == pytest.approx(each["idle"])  # type: ignore[operator]


def test_without_a_flush_the_run_is_one_row() -> None:
    run = trained("pipedream")
    (each,) = run.bubble(by_iteration=True).rows(named=True)
    actions = run.actions()
    assert actions.height == ITERATIONS * 2 * 2 * M and each["iteration"] == -1
    whole = (actions["start_ms"] + actions["took_ms"]).max() - actions["start_ms"].min()
    assert each["idle"] == pytest.approx(1 - actions["took_ms"].sum() / (2 * whole))


def test_stages_are_those_of_the_cut(run: Run) -> None:
    first, last = run.stages().rows(named=True)
    model = json.loads(run.store.metadata["model"])
    assert first["layers"] + last["layers"] == len(model["layers"])
    assert first["parameters"] + last["parameters"] == 246_824
    assert (first["rank"], last["rank"], last["cut_bytes"]) == (0, 1, None)
    crossed = run.bytes(iteration=1, by_peer=True).filter(what="activation")["sent"].sum()
    assert crossed == M * first["cut_bytes"]
    assert first["in_flight"] == M and first["activations"] > 0
    own = run.actions().filter(iteration=1, stage=0, what="F")["took_ms"].median()
    assert first["forward_ms"] == pytest.approx(own)


def test_without_a_pipeline_there_are_none() -> None:
    ring = loaded(training(2))
    assert ring.actions().height == ring.bubble(by_iteration=True).height == 0
    assert ring.stages().height == 0
    assert isinstance(ring.actions(), pl.DataFrame)

"""Past runs: what they were, how they ended, how they compare; and how much of them is kept."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

import workbench as wb
from tests.live import training, until
from workbench.analysis.against_reference import plain
from workbench.analysis.curves import select
from workbench.runs.history import (
    History,
    Past,
    beside_reference,
    compare,
    comparison_note,
    describe,
    is_one_task,
    label,
    loss_curves,
    of_one_task,
)
from workbench.shared_memory.control_block import Control
from workbench.views.pages.figures import comparison

SMALL = {"ranks": 2, "iterations": 12, "batch_size": 16}
LONG = {"iterations": 100_000, "pad_compute": "10 ms"}


@pytest.fixture(scope="module")
def history() -> Iterator[History]:
    """Four runs: by ring, by the naive way, one that was stopped, one that lost a rank."""
    kept = History()
    kept.add(wb.run(wb.Experiment(**SMALL)), "By ring")
    kept.add(wb.run(wb.Experiment(**SMALL | {"all_reduce": "naive", "ranks": 3})))
    stopped = wb.run(wb.Experiment(**SMALL | LONG))
    kept.add(stopped, "Stopped")
    training(stopped)
    stopped.stop()
    kept.add(wb.run(wb.Experiment(**SMALL, faults=wb.Kill(rank=1, at_iteration=6))), "Killed")
    for past in kept:
        past.run.wait(60, check=False)
    yield kept


def test_a_summary_is_what_the_run_says(history: History) -> None:
    past = next(iter(history))
    summary, result = past.summary(), past.run.result
    assert (summary["state"], summary["error"]) == ("finished", None)
    assert (summary["strategy"], summary["algorithm"]) == ("data_parallel", "ring")
    assert summary["ranks"] == 2
    assert summary["iterations"] == summary["iterations_asked"] == 12
    assert summary["loss"] == result.losses[-1]
    assert summary["accuracy"] == result.metrics["accuracy"]
    assert summary["wall_seconds"] == result.wall_seconds
    assert summary["bytes_sent"] == max(result.bytes_sent.values())
    assert summary["iterations_per_s"] == pytest.approx(12 / result.wall_seconds)
    assert summary["samples_per_s"] == pytest.approx(12 * 16 / result.wall_seconds)
    steps = select(past.run.store, "communication").tail(-1)
    assert summary["step_ms"] == pytest.approx(steps["step_ms"].mean())
    assert summary["exposed_share"] == pytest.approx(summary["exposed_ms"] / summary["step_ms"])
    assert summary["wait_share"] == pytest.approx(summary["wait_ms"] / summary["step_ms"])
    shares = past.run.bottleneck().shares
    assert (summary["exposed_share"], summary["wait_share"]) == (shares["link"], shares["wait"])
    assert past.losses()["loss"].to_list() == pytest.approx(result.losses)


def test_a_run_that_diverges_is_running_all_the_same() -> None:
    diverges = wb.Experiment(**SMALL | {"iterations": 100_000, "lr": 3e38})
    past = Past(wb.run(diverges), 1)
    until(lambda: past.run.loss is not None and not math.isfinite(past.run.loss), 60, "its loss")
    assert (past.state, past.summary()["loss"]) == ("running", None)
    past.run.stop()
    past.run.wait(60, check=False)


def test_a_loss_of_zero_is_one() -> None:
    control = Control.create(2)
    try:
        assert control.loss(0) is None
        control.set_loss(0, 0.0)
        assert control.loss(0) == 0.0 and control.loss(1) is None
    finally:
        control.segment.close()


def test_states_are_told_apart(history: History) -> None:
    assert [past.state for past in history] == ["finished", "finished", "stopped", "failed"]
    *_, stopped, killed = history
    assert 3 < stopped.summary()["iterations"] < 100_000
    summary = killed.summary()
    assert "rank 1" in summary["error"] and "SIGKILL" in summary["error"]
    assert summary["iterations"] == 6 == killed.losses().height
    assert summary["accuracy"] is None
    assert summary["bytes_sent"] > 0  # from its rows: it reported nothing


def test_a_live_run_says_how_far_it_is_without_its_events_being_read() -> None:
    kept = History()
    past = kept.add(wb.run(wb.Experiment(**SMALL | LONG)))
    assert past.title == "data_parallel, ring, 2 ranks"
    until(lambda: past.summary()["iterations"] >= 9, 30, "nine iterations")
    summary = past.summary()
    assert summary["state"] == "running" and summary["loss"] > 0 and summary["wall_seconds"] is None
    assert not past.run.store._taps  # no reader keeps rows waiting
    until(lambda: past.losses().height > 0, 30, "the losses to be collected")
    past.run.stop()
    past.run.wait(30)
    assert past.state == "stopped"


def test_runs_compare_side_by_side(history: History) -> None:
    pasts = [*history]
    table = compare(pasts)
    assert table.columns == ["", *map(label, pasts)]
    assert table.columns[1:3] == ["1 · By ring", "2 · data_parallel, naive, 3 ranks"]
    by_name = {row[0]: row[1:] for row in table.iter_rows()}
    assert by_name["state"] == ("finished", "finished", "stopped", "failed")
    assert by_name["all-reduce, policy or schedule"] == ("ring", "naive", "ring", "ring")
    assert by_name["accuracy"][0].endswith("%") and by_name["accuracy"][3] == "–"
    assert by_name["sent by the busiest rank"][0].endswith("MB")
    assert compare([]).columns == [""]


def test_the_best_is_marked_and_others_are_told_against_the_reference(history: History) -> None:
    """Of the runs that finished: what is stopped early is not fast for it."""
    pasts = [*history]
    rows = dict(beside_reference(pasts, pasts[1].id))
    best = {name: [cell.best for cell in cells] for name, cells in rows.items()}
    assert not any(best["state"] + best["ranks"] + best["iterations done"])
    assert all(not any(marks[2:]) for marks in best.values()), "stopped, failed"
    seconds = [past.summary()["wall_seconds"] for past in pasts[:2]]
    if len({cell.text for cell in rows["time, s"][:2]}) == 2:
        assert best["time, s"][:2] == [seconds[0] < seconds[1], seconds[1] < seconds[0]]
    sent = [past.summary()["bytes_sent"] for past in pasts[:2]]
    assert sent[0] < sent[1] and best["sent by the busiest rank"][:2] == [True, False]
    change = rows["sent by the busiest rank"][0].change
    assert change == f"×{sent[0] / sent[1]:.3g}"
    assert rows["sent by the busiest rank"][1].change == "", "the reference"
    same = {row["name"] for row in plain(beside_reference(pasts[:2])) if row["same"]}
    assert "state" in same and "sent by the busiest rank" not in same
    first = dict(beside_reference(pasts))["sent by the busiest rank"]
    assert first[0].change == "" and first[1].change == f"×{sent[1] / sent[0]:.3g}"


def test_runs_of_different_tasks_have_no_best_and_share_no_loss(history: History) -> None:
    """A loss of another model on other data is not smaller: it is something else."""
    pasts = [*history][:2]
    other = History()
    mixed = [other.add(past.run, id=past.id) for past in pasts]
    mixed[1].experiment = pasts[1].experiment.replace(task="mlp_layers")
    assert is_one_task(pasts) and not is_one_task(mixed)
    assert of_one_task(mixed) == mixed[1:] and of_one_task(pasts) == pasts and of_one_task([]) == []
    rows = dict(beside_reference(mixed))
    assert {"last loss", "accuracy", "samples a second"} & rows.keys() == set()
    assert {"last loss", "accuracy", "samples a second"} < dict(beside_reference(pasts)).keys()
    assert not any(cell.best or cell.change for cells in rows.values() for cell in cells)
    assert "different tasks" in comparison_note(mixed) and comparison_note(mixed[:1]) == ""
    assert comparison_note(pasts).startswith("★ the best")


def test_a_run_is_renamed_and_deleted(history: History) -> None:
    kept = History()
    past = kept.add(next(iter(history)).run, "A name")
    past.rename("  Mine,\nwith   spaces ")
    assert label(past) == "1 · Mine, with spaces"
    past.rename(" ")
    assert past.title == describe(past.experiment)
    assert not kept.remove("none") and kept.remove(past.id) and not [*kept]


def test_a_comparison_is_drawn_by_iteration_and_by_time(history: History) -> None:
    pasts = [*history]
    figure = comparison(loss_curves(pasts))
    assert [trace.name for trace in figure.data] == [label(past) for past in pasts] * 2
    assert list(figure.data[0].x) == list(range(1, 13))
    assert list(figure.data[0].y) == pytest.approx(pasts[0].run.result.losses)
    assert list(figure.data[4].x) == pytest.approx(pasts[0].losses()["seconds"].to_list())


def test_sequential_training_has_no_all_reduce() -> None:
    exp = wb.Experiment(strategy="sequential", ranks=1)
    assert describe(exp) == "sequential, 1 rank"
    assert describe(wb.Experiment(backend="gloo")) == "data_parallel, gloo, 4 ranks"


class Ended:
    """A run that is over: what a History asks of one, with a real run's store and result."""

    def __init__(self, like: wb.Run) -> None:
        self.store, self.result, self.experiment, self.done = (
            like.store,
            like.result,
            like.experiment,
            True,
        )


def test_the_newest_runs_are_kept(history: History) -> None:
    like = next(iter(history)).run
    kept = History(keep=3)
    added = [kept.add(Ended(like)) for _ in range(5)]
    assert [*kept] == added[2:] and len(kept) == 3
    assert [past.number for past in kept] == [3, 4, 5]
    assert kept.find("5") is added[4] and kept.find("1") is None


def test_a_run_that_goes_on_is_never_let_go(history: History) -> None:
    like = next(iter(history)).run
    live = Ended(like)
    live.done = False
    kept = History(keep=2, keep_rows=0)
    first = kept.add(live)
    for _ in range(3):
        kept.add(Ended(like))
    assert first in kept and first.run is live


def test_events_are_let_go_oldest_first_and_figures_stay(history: History) -> None:
    like = next(iter(history)).run
    rows = len(like.store)
    kept = History(keep_rows=2 * rows)
    added: list[Past] = [kept.add(Ended(like), f"number {n}") for n in range(4)]
    assert [past.run is None for past in added] == [True, True, False, False]
    assert added[0].summary()["loss"] == like.result.losses[-1]
    assert added[0].losses().height == 12
    assert added[0].state == "finished" and added[0].over

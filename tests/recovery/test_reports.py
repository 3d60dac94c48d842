"""The losses and times of a run that lost ranks: of each iteration once, whatever is done again."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import until
from tests.pairwise import first
from tests.recovery.test_policies import experiment
from workbench.runs.outcome import past_losses
from workbench.shared_memory.control_block import DONE, STATE
from workbench.store.recoveries import recoveries_of
from workbench.store.result import digest
from workbench.studies.uninterrupted import differs_from_uninterrupted


@pytest.mark.full
def test_an_iteration_that_is_done_a_third_time_counts_once() -> None:
    """Ranks 0 and 1 have done the first iteration, rank 2 has not. Rank 0 is lost, and then rank 1,
    before it has given what it has to the others: they begin that iteration again.
    """
    exp = experiment("fusion", 3, optimizer="sgd", iterations=2)
    whole = wb.run(exp).wait(timeout=90)
    slow = wb.Network(links={"1->2": wb.Link(latency="150 ms")})
    sends = wb.When(rank=1, step=0, collective="broadcast")
    kills = wb.Kill(rank=0, at_iteration=1), wb.Kill(rank=1, when=sends)
    run = wb.run(exp.replace(network=slow, recovery="replace", faults=kills))
    result = run.wait(timeout=90)
    assert result.losses == pytest.approx(whole.losses, rel=1e-12, abs=1e-12)


@pytest.mark.full
def test_a_worker_that_goes_back_beyond_its_first_iteration_reports_that_one_too() -> None:
    """A worker is replaced, and then the server is lost before it has sent its keys: the latest
    pull, of the other worker, is one iteration older.
    """
    exp = experiment("parameter_server", 3, optimizer="sgd", iterations=4)
    whole = wb.run(exp).wait(timeout=90)
    links = {f"0->{worker}": wb.Link(latency="200 ms") for worker in (1, 2)}
    kill = wb.Kill(rank=2, at_iteration=2)
    run = wb.run(
        exp.replace(network=wb.Network(links=links), recovery="replace", faults=kill),
    )
    until(lambda: "regained 1" in run.store.metadata, what="the new worker is there")
    run.kill(0)
    result = run.wait(timeout=90)
    assert result.losses == pytest.approx(whole.losses, rel=1e-12, abs=1e-12)


def test_what_a_lost_worker_does_again_counts_once_without_lockstep_too() -> None:
    """Its last push is still on its way when it ends; the other worker is far ahead by then."""
    slow = wb.Network(links={"2->0": wb.Link(latency="300 ms")})
    exp = experiment(
        "parameter_server",
        3,
        optimizer="sgd",
        options={"consistency": "asp"},
        network=slow,
        recovery="replace",
        iterations=4,
    )
    run = wb.run(exp)
    reports = (pl.col("rank") == 2) & (pl.col("name").cast(pl.String) == "loss")
    until(lambda: run.events.filter(reports).height == 2, what="it has reported two losses")
    run.kill(2)
    run.wait(timeout=90)
    (recovery,) = recoveries_of(run.store.metadata)
    reported = [one["begun"] for one in past_losses(run.store, [recovery])]
    assert reported == [*range(recovery.go_on[2])]


@pytest.mark.full
@pytest.mark.parametrize("models", first(1, [2, 1]))
def test_what_a_worker_had_reported_counts_where_the_run_goes_on_without_it(models: int) -> None:
    options = {"models": models}
    exp = experiment("parameter_server", 5, optimizer="sgd", options=options, iterations=4)
    whole = wb.run(exp).wait(timeout=90)
    kill = wb.Kill(rank=4, at_iteration=2)
    run = wb.run(exp.replace(faults=kill))
    result = run.wait(timeout=90)
    assert result.lost == [4] and len(result.losses) == 4
    for losses, others in zip(result.model_losses, whole.model_losses, strict=True):
        assert losses[:2] == pytest.approx(others[:2], rel=1e-12, abs=1e-12)
    assert models > 1 or result.losses[2] != pytest.approx(whole.losses[2], rel=1e-6)
    assert differs_from_uninterrupted(run.experiment, run, result) == ""


def test_the_time_of_a_run_begins_with_its_first_iteration() -> None:
    kill = wb.Kill(rank=1, at_iteration=5)
    exp = experiment("data_parallel", 2, iterations=6, pad_compute="50 ms")
    result = wb.run(exp.replace(recovery="replace", faults=kill)).wait(timeout=90)
    assert result.wall_seconds >= 6 * 0.05


class Unmeasured:
    """A task without metrics, so that nothing is summed at the end."""

    def model(self) -> Any:
        import torch

        return torch.nn.Linear(4, 1)

    def dataset(self, split: str) -> Any:
        import torch

        generator = torch.Generator().manual_seed(1)
        return torch.utils.data.TensorDataset(torch.randn(64, 4, generator=generator))

    def loss(self, model: Any, batch: Any) -> Any:
        return model(batch[0]).square().mean()


def assert_nothing_changes(exp: wb.Experiment, victim: int, latency: str) -> None:
    """Lose a rank once rank 0 has finished, whose messages take so long to the others."""
    whole = wb.run(exp).wait(timeout=90)
    slow = {f"0->{rank}": wb.Link(latency=latency) for rank in (1, 2)}
    run = wb.run(exp.replace(network=wb.Network(links=slow), recovery="replace"))
    until(lambda: run._control.rank_word(0, STATE) == DONE, what="rank 0 has finished")
    run.kill(victim)
    result = run.wait(timeout=90)
    assert result.losses == pytest.approx(whole.losses, rel=1e-12, abs=1e-12)
    assert set(result.digests.values()) == set(whole.digests.values())


@pytest.mark.parametrize(
    ("strategy", "fields"),
    first(
        2,
        [
            ("data_parallel", {"task": Unmeasured}),
            ("local_sgd", {"options": {"every": 2}}),
            ("local_sgd", {"options": {"every": 2}, "task": Unmeasured}),
            ("diloco", {"options": {"every": 2}}),
        ],
    ),
    ids=str,
)
def test_lost_as_the_first_have_finished_it_has_the_others_do_nothing_again(
    strategy: str, fields: dict[str, Any]
) -> None:
    """Rank 0 has the last sums before it sends them to the others."""
    exp = experiment(
        strategy, 3, **{"iterations": 3, "optimizer": "sgd", "all_reduce": "naive", **fields}
    )
    assert_nothing_changes(exp, victim=1, latency="300 ms")


@pytest.mark.full
@pytest.mark.parametrize(("last", "link"), [(2, "0->2"), (0, "2->0")])
def test_lost_when_all_others_have_finished(last: int, link: str) -> None:
    """Its losses count; without rank 0 another that has the same parameters reports the run's."""
    exp = experiment("fusion", 3, optimizer="sgd", iterations=2)
    whole = wb.run(exp).wait(timeout=90)
    slow = wb.Network(links={link: wb.Link(latency="200 ms")})
    run = wb.run(exp.replace(network=slow, recovery="replace"))
    others = {0, 1, 2} - {last}
    until(lambda: all(run._control.rank_word(rank, STATE) == DONE for rank in others))
    run.kill(last)
    result = run.wait(timeout=90)
    assert set(result.digests) in (others, {0, 1, 2}), "it may have finished in between"
    assert result.losses == pytest.approx(whole.losses, rel=1e-12, abs=1e-12)
    assert {digest(result.parameters)} == {*result.digests.values()} == {*whole.digests.values()}


@pytest.mark.parametrize(
    ("strategy", "options"),
    first(
        1, [("tensor_parallel", {}), ("data_servers", {"ahead": 1}), ("fsdp", {"units": "whole"})]
    ),
    ids=str,
)
def test_lost_as_the_first_is_done_it_is_needed_no_more(
    strategy: str, options: dict[str, Any]
) -> None:
    """Rank 0 is through the last barrier, and the others have not heard of it."""
    fields = {"iterations": 1, "optimizer": "sgd", "all_reduce": "naive", "options": options}
    exp = experiment(strategy, 3, **fields)
    assert_nothing_changes(exp, victim=2, latency="200 ms")

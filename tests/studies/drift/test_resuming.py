"""wb.drift names what a training forgot that goes on from a checkpoint."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import workbench as wb
from tests.studies.drift.test_judge import with_bug
from workbench.common.errors import SpecError
from workbench.studies.drift.judge import judge
from workbench.studies.drift.resuming import (
    WORDS,
    Resumed,
    generators,
    may_lose,
    moments,
    same_generators,
    set_generators,
)
from workbench.studies.drift.subjects import RESUMING, experiment_of, mutant, subjects_of

WAIT = 170  # seconds, on cores that are busy with something else
FIELDS: dict[str, Any] = {"iterations": 4, "batch_size": 12, "lr": 0.05, "momentum": 0.9}


class Noisy:
    """A small task whose loss draws a number, as layers that are dropped at random do."""

    def model(self) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))

    def dataset(self, split: str) -> Any:
        generator = torch.Generator().manual_seed(7)
        x = torch.randn(90, 6, generator=generator)
        return torch.utils.data.TensorDataset(x, x.sin().sum(1, keepdim=True))

    def loss(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        x, y = batch
        return (model(x) - y).square().mean() * (0.5 + torch.rand(()))


def one_update(rank, size, model, optimizer, loss, batch):
    optimizer.zero_grad()
    loss([part[rank::size] for part in batch]).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= size
    optimizer.step()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def restores_all(rank, size, model, minibatches, loss):
    optimizer = sgd(model)
    for number, batch in enumerate(minibatches):
        if number == 2:  # saves, ends, begins again, and loads
            saved = model.state_dict(), optimizer.state_dict(), torch.get_rng_state()
            torch.manual_seed(1)
            optimizer = sgd(model)
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
            torch.set_rng_state(saved[2])
        one_update(rank, size, model, optimizer, loss, batch)


def forgets_the_optimizer(rank, size, model, minibatches, loss):
    optimizer = sgd(model)
    for number, batch in enumerate(minibatches):
        if number == 2:
            optimizer = sgd(model)
        one_update(rank, size, model, optimizer, loss, batch)


def forgets_the_sampler(rank, size, model, minibatches, loss):
    optimizer, history = sgd(model), []
    for number, batch in enumerate(minibatches):
        history.append(batch)
        batch = history[number - 2] if number >= 2 else batch
        one_update(rank, size, model, optimizer, loss, batch)


def forgets_the_generators(rank, size, model, minibatches, loss):
    optimizer, at_first = sgd(model), torch.get_rng_state()
    for number, batch in enumerate(minibatches):
        if number == 2:
            torch.set_rng_state(at_first)
        one_update(rank, size, model, optimizer, loss, batch)


def forgets_something_else(rank, size, model, minibatches, loss):
    optimizer = sgd(model)
    for number, batch in enumerate(minibatches):
        if number == 2:
            optimizer.param_groups[0]["momentum"] = 0.5
        one_update(rank, size, model, optimizer, loss, batch)


@pytest.mark.full
def test_a_loop_that_forgets_something_is_named_and_a_right_one_is_not() -> None:
    """Loops of one's own, and the mutants, which are data parallel training with the bug in it."""
    loops = {
        "right": restores_all,
        "optimizer": forgets_the_optimizer,
        "sampler": forgets_the_sampler,
        "generators": forgets_the_generators,
        "else": forgets_something_else,
    }
    ground = wb.Experiment(ranks=2, task=Noisy, **FIELDS)
    mutants = {name: mutant(name, ground, {"at": 2}).experiment for name in RESUMING}
    subjects = {
        name: experiment_of(loop, {**FIELDS, "task": Noisy}) for name, loop in loops.items()
    }
    report = wb.drift({**subjects, **mutants}, at=(), mutants=False).wait(WAIT)
    findings = report.findings
    assert report.verdicts["right"] in ("rounding", "no difference")
    for name, lost in [*zip(WORDS, WORDS, strict=True), *RESUMING.items()]:
        assert report.verdicts[name] == f"bug: {WORDS[lost]}: right until iteration 2", str(report)
        assert findings[name].since == 2
        assert "one process that resumes so" in str(findings[name].reasons)
    other = "another algorithm: equal to the same loop on one rank, but not to plain SGD: "
    assert report.verdicts["else"] == f"{other}they part at the update of iteration 3"
    assert report._ends == {} and report.over == len(report.plan)


def test_the_mutants_of_resuming_run_beside_where_they_show() -> None:
    adam = {**FIELDS, "optimizer": "adam", "momentum": 0.0}
    several = [one.name for one in subjects_of(None, True, adam, 3)]
    assert several[6:] == ["no optimizer state", "no sampler position", "no generators"]
    plain = [one.name for one in subjects_of(None, True, {"iterations": 5}, 3)]
    assert plain[6:] == ["no sampler position", "no generators"]
    assert len(subjects_of(None, True, adam)) == 6
    report = wb.drift(iterations=2, at=(1,), resumes_at=1)
    report.stop()
    report.wait(WAIT)  # LeNet draws no random numbers, so that nothing of them can be lost
    assert [one.name for one in report.subjects][6:] == ["no sampler position"]


def test_what_training_can_lose() -> None:
    plain, adam = wb.Experiment(), wb.Experiment(optimizer="adam")
    assert may_lose(plain, draws=False) == ["sampler"]
    assert may_lose(adam) == may_lose(plain.replace(momentum=0.9)) == [*WORDS]
    assert may_lose(plain.replace(warmup=5), draws=False) == ["optimizer", "sampler"]


@pytest.mark.parametrize("wrong", [0, 5, 9])
def test_an_iteration_at_which_nothing_can_resume_is_refused(wrong: int) -> None:
    with pytest.raises((SpecError, TypeError), match="resumes_at"):
        wb.drift(resumes_at=wrong, **FIELDS)


def test_where_training_may_have_resumed() -> None:
    assert moments(4, 10) == [4, 5]
    assert moments(0, 10) == [1]
    assert moments(9, 10) == [9]
    assert moments(None, 10) == [9]  # the last update alone is wrong
    assert moments(None, 1) == moments(0, 1) == []


def test_a_verdict_names_what_was_lost_and_when() -> None:
    for lost, words in WORDS.items():
        finding = judge(with_bug(resumed=Resumed(lost, 7)))
        assert finding.verdict == f"bug: {words}: right until iteration 7" and finding.since == 7


def draws() -> Iterator[float]:
    while True:
        yield from (torch.rand(()).item(), np.random.rand(), random.random())


def test_generators_go_back_to_where_they_were() -> None:
    before = generators()
    drawn = [*islice(draws(), 6)]
    assert not same_generators(before, generators())
    set_generators(before)
    assert same_generators(before, generators()) and [*islice(draws(), 6)] == drawn

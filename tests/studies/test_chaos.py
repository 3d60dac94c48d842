"""Chaos: faults are drawn from seed and number, each run is judged, and what is wrong is named."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.live import lenet
from workbench.store.result import Result
from workbench.studies import chaos

RUNS = 40
CASES: list[dict[str, Any]] = [
    {"strategy": "data_parallel", "ranks": 4, "recovery": "shrink", "bad_minibatch": "skip"},
    {"strategy": "ddp", "ranks": 3, "recovery": "replace", "bad_minibatch": "skip"},
    {"strategy": "fusion", "ranks": 3, "recovery": "replace"},
    {"strategy": "local_sgd", "ranks": 3, "recovery": "shrink"},
    {"strategy": "gossip", "ranks": 4, "recovery": "replace"},
    {"strategy": "data_parallel", "ranks": 3},
    {"strategy": "fsdp", "ranks": 2},
]


def test_seed_and_number_decide_the_faults() -> None:
    exp = lenet(ranks=4, iterations=40, recovery="shrink")
    four = [one.faults for one in islice(chaos.trials(exp, seed=1), 4)]
    assert four[2:] == [one.faults for one in islice(chaos.trials(exp, seed=1, first=2), 2)]
    assert four[:2] != [one.faults for one in islice(chaos.trials(exp, seed=2), 2)]
    assert any(four) and len(set(four)) > 2


def test_some_runs_with_faults_end_as_they_must() -> None:
    for number, fields in enumerate(CASES[:2]):
        exp = lenet(**fields, iterations=20, timeout="60 s")
        (trial,) = islice(chaos.trials(exp, seed=5, first=number), 1)
        outcome = chaos.done(trial)
        assert not outcome.wrong, (outcome.words, trial.faults)


@pytest.mark.full
@pytest.mark.parametrize("fields", CASES, ids=lambda one: f"{one['strategy']}")
def test_many_runs_with_faults_end_as_they_must(fields: dict[str, Any]) -> None:
    exp = lenet(**fields, iterations=30, timeout="60 s")
    wrong = []
    for trial in islice(chaos.trials(exp, seed=3), max(1, RUNS // len(CASES))):
        outcome = chaos.done(trial)
        if outcome.wrong:
            wrong.append((outcome.words, trial.faults))
    assert not wrong, "\n".join(map(str, wrong))


def test_what_should_not_be_is_named() -> None:
    exp = lenet(ranks=2, iterations=3)
    error = wb.RunTimeout("too late", 1)
    judge: Any = chaos._judge
    assert judge(exp, None, Result(error=error, ok=False)) == "it ended by RunTimeout: too late"
    killed = exp.replace(faults=wb.Kill(rank=1, at_iteration=1))
    assert "ranks [1] were struck" in judge(killed, None, Result(error=error, ok=False))
    lost = wb.PeerLost("rank 1 was killed", 1)
    assert judge(killed, None, Result(error=lost, ok=False)) == ""
    assert judge(killed.replace(recovery="shrink"), None, Result(error=lost, ok=False)) != ""
    flip = wb.Corrupt(rank=1, at_iteration=1, kind="bitflip")
    (trial,) = islice(chaos.trials(exp.replace(faults=flip), seed=0), 1)
    outcome = chaos.done(chaos.Trial(0, 0, trial.experiment.replace(faults=flip)))
    assert outcome.wrong == "replicas differ at the end"
    nan = wb.Corrupt(rank=1, at_iteration=1)
    outcome = chaos.done(chaos.Trial(0, 0, trial.experiment.replace(faults=nan)))
    assert outcome.wrong == "the loss of iteration 2 is not finite"


def test_losses_are_those_of_uninterrupted_training() -> None:
    """In float64, also where a minibatch was left out; replicas apart from that agree."""
    faults = (wb.Kill(rank=1, at_iteration=3), wb.Corrupt(rank=0, at_iteration=5))
    fields = {"recovery": "shrink", "bad_minibatch": "skip", "dtype": "float64", "faults": faults}
    run = wb.run(lenet(ranks=3, iterations=8, **fields))
    result = run.wait(timeout=90)
    assert chaos._judge(run.experiment, run, result) == ""
    result.losses[6] *= 1 + 1e-9
    assert re.match(
        r"the loss of iteration 7 is .* in one uninterrupted process",
        chaos._judge(run.experiment, run, result),
    )


def test_an_algorithm_that_is_not_sequential_training_is_not_compared_with_it() -> None:
    run = wb.run(lenet(ranks=3, iterations=4, strategy="local_sgd", dtype="float64"))
    result = run.wait(timeout=90)
    result.losses[2] *= 2
    assert chaos._judge(run.experiment, run, result) == ""


@pytest.mark.full
def test_the_command_runs_prints_and_says_how_to_have_it_again(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    program = str(Path(sys.executable).parent / "workbench")

    def run(**fields: Any) -> subprocess.CompletedProcess[str]:
        lenet(iterations=3, **fields).to_yaml(spec)
        command = [program, "chaos", str(spec), "--minutes", "5", "--seed", "1", "--runs", "2"]
        return subprocess.run(command, capture_output=True, text=True, timeout=240)

    flip = wb.Corrupt(rank=1, at_iteration=1, kind="bitflip")
    broken = run(ranks=3, strategy="data_parallel", faults=flip)
    assert broken.returncode == 1 and "WRONG: replicas differ" in broken.stdout, broken
    assert re.search(r"again: .* --seed 1 --first [01] --runs 1", broken.stdout), broken.stdout
    assert "2 runs, " in broken.stdout

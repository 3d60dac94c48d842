"""Code of the user's own in an Experiment: named by path or carried as text, and checked unrun."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.experiment.experiments import OWN_TASK
from workbench.common.errors import SpecError
from workbench.experiment.configure import configure
from workbench.experiment.spec import Experiment
from workbench.user_code.source import Source


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "my_task.py"
    file.write_text(f"raise RuntimeError('validation must not run this')\n{OWN_TASK}")
    return file


def test_a_path_is_checked_without_running_it(own_file: Path) -> None:
    exp = Experiment(task="my_task.py:MyTask", task_options={"width": 4, "depth": 2})
    assert exp.task == "my_task.py:MyTask" and exp.carries_code == ("task",)
    with pytest.raises(SpecError, match=r"no MyTusk \(did you mean 'MyTask'"):
        Experiment(task="my_task.py:MyTusk")
    with pytest.raises(SpecError, match=r"no option 'widht' \(did you mean 'width'"):
        Experiment(task="my_task.py:MyTask", task_options={"widht": 4})
    own_file.write_text("class MyTask(:\n")
    with pytest.raises(SpecError, match=r"my_task\.py.*line 1"):
        Experiment(task="my_task.py:MyTask")


def test_code_needs_leave_to_be_read_from_yaml(own_file: Path, tmp_path: Path) -> None:
    source = Source(name="MyTask", code=OWN_TASK)
    assert Experiment().carries_code == ()
    for exp in (Experiment(task="my_task.py:MyTask"), Experiment(task=source)):
        with pytest.raises(SpecError, match=r"code in task.*allow_code=True"):
            Experiment.from_yaml(exp.to_yaml())
        assert Experiment.from_yaml(exp.to_yaml(), allow_code=True) == exp
    nested = "options: {consistency: [{name: A, code: 'class A: pass'}]}"
    with pytest.raises(SpecError, match="code in options"):
        Experiment.from_yaml(nested)


@pytest.mark.parametrize(
    "launcher",
    [
        "launcher: torchrun\nlauncher_options: {hosts: [a], address: 10.0.0.5, remote: sh -c date}",
        "launcher: mpiexec\nlauncher_options: {program: ./date}",
    ],
)
def test_a_program_needs_the_same_leave(launcher: str) -> None:
    with pytest.raises(SpecError, match=r"code in launcher_options.*allow_code=True"):
        Experiment.from_yaml(launcher)
    exp = Experiment.from_yaml(launcher, allow_code=True)
    assert exp.carries_code == ("launcher_options",)


def test_a_path_may_be_beside_the_yaml_and_is_absolute_for_ranks(
    own_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exp = Experiment(task="my_task.py:MyTask")
    exp.to_yaml(tmp_path / "spec.yaml")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert Experiment.from_json(exp.to_json()).task == f"{own_file}:MyTask"
    monkeypatch.chdir(elsewhere)
    loaded = Experiment.from_yaml(tmp_path / "spec.yaml", allow_code=True)
    assert loaded.task == f"{own_file}:MyTask"


def test_options_of_an_own_strategy_are_those_of_its_config() -> None:
    code = "class Config:\n    def __init__(self, pace=1): ...\ndef train(job, config): ...\n"
    own = Source(name="train", code=code)
    assert Experiment(strategy=own, options={"pace": 2}).options == {"pace": 2}
    with pytest.raises(SpecError, match=r"no option 'place' \(did you mean 'pace'"):
        Experiment(strategy=own, options={"place": 2})
    without = Source(name="train", code="def train(job, config): ...\n")
    with pytest.raises(SpecError, match=r"takes none.*Config"):
        Experiment(strategy=without, options={"pace": 2})


@dataclass(frozen=True)
class _Config:
    shares: tuple[float, ...] = (1.0,)
    workers: int = 1

    def __post_init__(self) -> None:
        if self.workers > 9:
            raise ValueError("workers must be at most 9")


def test_configure_checks_values_and_turns_lists_into_tuples() -> None:
    assert configure(_Config, {"shares": [1, 2]}) == _Config(shares=(1.0, 2.0))
    for options, says in (
        ({"workers": "many"}, "workers = 'many'"),
        ({"workers": 10}, "at most 9"),
        ({"worker": 1}, "did you mean 'workers'"),
    ):
        with pytest.raises(SpecError, match=says):
            configure(_Config, options)

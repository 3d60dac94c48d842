"""What is done before a run: ranks inherit it, and nothing else of it can be seen."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import workbench as wb
from tests.processes import values
from workbench.rank import warm_up
from workbench.tasks.lenet_digits import Task

DEADLINE = 60.0  # seconds


class Other(Task):
    """A task of a user's own."""

    def dataset(self, split: str) -> Any:
        return [split]


def _learn(rank: int, size: int) -> dict[str, Any]:
    """Learn as the fork server does, in a new process; then use two threads in a fork of it."""
    torch.set_num_threads(2)
    state, threads = torch.get_rng_state(), len(os.listdir("/proc/self/task"))
    warm_up.learn()
    result = {
        "threads": len(os.listdir("/proc/self/task")) - threads,
        "setting": torch.get_num_threads(),
        "random": torch.equal(state, torch.get_rng_state()),
        "gradients": torch.is_grad_enabled(),
        "times": warm_up.times,
        "modules": "workbench.strategies.sequential" in sys.modules,
    }
    if (fork := os.fork()) == 0:
        signal.alarm(int(DEADLINE) // 2)  # a thread that is waited for and is not there
        model, x = torch.nn.Linear(512, 512), torch.randn(512, 512)
        for _ in range(3):
            model(x).square().mean().backward()
        os._exit(0)
    result["fork"] = os.waitpid(fork, 0)[1]
    return result


def test_learning_leaves_one_thread_and_no_trace() -> None:
    (result,) = values(_learn, 1, backend="", timeout=DEADLINE)
    assert result == {
        "threads": 0,
        "setting": 2,
        "random": True,
        "gradients": True,
        "times": 1,
        "modules": True,
        "fork": 0,
    }


def _samples(rank: int, size: int) -> list[bool]:
    warm_up.learn()
    own, fresh = warm_up.samples_of(Other(), "train"), Task().dataset("train")
    first, second = (warm_up.samples_of(Task(), "train") for _ in range(2))
    return [
        all(torch.equal(a, b) for a, b in zip(first.tensors, fresh.tensors, strict=True)),
        first is not second and first.tensors[0].data_ptr() != second.tensors[0].data_ptr(),
        own == ["train"],
        len(warm_up.samples_of(Task(), "validation")) == 360,
    ]


def test_samples_read_before_are_those_of_the_task_and_handed_out_once() -> None:
    assert values(_samples, 1, backend="", timeout=DEADLINE) == [[True] * 4]


def _edited(rank: int, size: int) -> list[bool]:
    warm_up.learn()
    before = {name: sys.modules[name] for name in warm_up._sources}
    name = "workbench.strategies.sequential"
    warm_up.forget_changed()
    same = all(sys.modules.get(each) is module for each, module in before.items())
    file, written = warm_up._sources[name]
    warm_up._sources[name] = file, written - 1  # as if it had been written since
    warm_up.forget_changed()
    dropped = [each for each in before if each not in sys.modules]
    from workbench.user_code import source

    again = source.load_module("strategies", "sequential")
    return [same, dropped == [name], again is not before[name], len(before) > 40]


@pytest.mark.full
def test_a_file_that_has_changed_is_read_again() -> None:
    assert values(_edited, 1, backend="", timeout=DEADLINE) == [[True] * 4]


def tells(job: Any, config: Any) -> None:
    """A strategy that says how often its process had rehearsed."""
    from workbench.rank import warm_up

    job.tell({"times": str(warm_up.times)})
    for minibatch in job.iterations():
        model = job.model()
        job.report(job.forward(model, job.load(minibatch.ids[:1])), 1)


def test_processes_of_the_pool_rehearse_while_they_wait() -> None:
    exp = wb.Experiment(strategy=tells, ranks=1, iterations=1, record=False)
    rehearsals, losses, pause, deadline = [], [], 0.2, time.monotonic() + DEADLINE
    while "2" not in rehearsals and time.monotonic() < deadline:
        run = wb.run(exp)
        losses += run.wait(DEADLINE).losses
        rehearsals.append(run.store.metadata["times"])
        time.sleep(pause)
        pause *= 2
    assert rehearsals[-1] == "2"  # the fork server once, and the process itself
    assert len(set(losses)) == 1 and np.isfinite(losses[0])  # what was rehearsed changes nothing


ENGINE = """
import sys

from workbench.collectives.all_reduce_ring import all_reduce as ring

ROOMS = tuple(f"workbench.{room}" for room in (
    "choosing", "messaging", "native", "process_group", "transports"))
BEFORE = {*sys.modules}  # this is read before the rank's first group is made

def all_reduce(comm, x_N):
    late = sorted(name for name in {*sys.modules} - BEFORE if name.startswith(ROOMS))
    assert not late, f"imported by each rank itself: {late}"
    return ring(comm, x_N)
"""


def test_a_rank_inherits_the_whole_engine(tmp_path: Path) -> None:
    """Its import costs 20 ms, which every rank of every run would spend before its first step."""
    (tmp_path / "looks.py").write_text(ENGINE)
    exp = wb.Experiment(ranks=2, iterations=2, all_reduce=f"{tmp_path}/looks.py:all_reduce")
    assert len(wb.run(exp).wait(DEADLINE).losses) == 2

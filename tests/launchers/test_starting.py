"""What a run's start consists of under any launcher: what is imported, where, and in which order.

Four ranks on a few cores start as fast as their imports: a millisecond in each is one for all.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from tests.live import PATIENCE
from tests.processes import ROOT
from workbench.common import threads
from workbench.common.errors import WorkbenchError
from workbench.experiment.spec import Experiment
from workbench.rank.update_rule import optimizer_of

BEFORE_TORCH = "numpy pydantic polars torch yaml".split()  # large, in the order of their size


def printed(code: str) -> str:
    """Return the last line that a fresh interpreter prints."""
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def imported(module: str, of: list[str]) -> list[str]:
    """Return which of these modules are there once ``module`` is imported."""
    code = f"import json, sys, {module}; print(json.dumps([m for m in {of} if m in sys.modules]))"
    result: list[str] = json.loads(printed(code))
    return result


def test_an_agent_calls_before_it_imports_what_only_ranks_need() -> None:
    assert imported("workbench.launchers.processes.agent", BEFORE_TORCH) == ["numpy"]


def test_an_agents_parent_imports_none_of_it() -> None:
    assert imported("workbench.launchers.processes.agents_parent", BEFORE_TORCH) == []


STEP = """
import sys
import numpy as np
import workbench.rank.main
from workbench.experiment.spec import Experiment
from workbench.rank.placement import collate
from workbench.rank.update_rule import optimizer_of
from workbench.tasks.lenet_digits import Task

task = Task()
for name in ("sgd", "adam", "adamw", "adagrad"):
    model = task.model()
    optimizer = optimizer_of(Experiment(optimizer=name), model.parameters())
    optimizer.zero_grad()
    task.loss(model, collate(task.dataset("train"), np.arange(4))).backward()
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
print([name for name in ("torch._dynamo", "sympy", "polars") if name in sys.modules])
"""


@pytest.mark.full
def test_a_ranks_iteration_does_without_the_compiler() -> None:
    """Importing it takes as long as torch itself."""
    assert printed(STEP) == "[]"


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "adagrad"])
def test_the_update_rule_is_torchs_to_the_bit(name: str) -> None:
    exp = Experiment(optimizer=name, lr=0.05, momentum=0.9 if name == "sgd" else 0.0)
    results = []
    for ours in (True, False):
        torch.manual_seed(3)
        model, x = torch.nn.Linear(4, 3), torch.randn(8, 4)
        if ours:
            optimizer = optimizer_of(exp, model.parameters())
        elif name == "sgd":
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        else:
            torchs = {"adam": "Adam", "adamw": "AdamW", "adagrad": "Adagrad"}[name]
            optimizer = getattr(torch.optim, torchs)(model.parameters(), lr=0.05)
        counts = []
        optimizer.register_step_post_hook(lambda *_, counts=counts: counts.append(1))
        for step in range(6):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
            if step == 2:
                optimizer.load_state_dict(optimizer.state_dict())
        assert len(counts) == 6
        results.append((type(optimizer).__name__, optimizer.state_dict(), [*model.parameters()]))
    (kind, state, parameters), (torchs, its_state, its_parameters) = results
    assert kind == torchs and all(map(torch.equal, parameters, its_parameters))
    assert state["param_groups"] == its_state["param_groups"]
    for number, values in its_state["state"].items():
        assert all(torch.equal(state["state"][number][key], one) for key, one in values.items())


LAUNCHER = """
import sys
from workbench.launchers.local import Launcher as Local

class Launcher(Local):
    def begin(self, ranks):
        print("begins", [*ranks], "polars" in sys.modules, flush=True)
        super().begin(ranks)

    def take(self, ranks):
        print("takes", [*ranks], "polars" in sys.modules, flush=True)
        return super().take(ranks)
"""


def test_ranks_are_started_before_the_driver_imports_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(LAUNCHER)
    code = f"""
import workbench as wb
exp = wb.Experiment(ranks=2, iterations=2, launcher="{tmp_path}/own.py:Launcher")
run = wb.run(exp)
print(len(run.wait(100, progress=False).losses))
"""
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.stdout.splitlines() == ["begins [0, 1] False", "takes [0, 1] True", "2"], (
        done.stderr
    )


WITHOUT = """
from workbench.common.errors import WorkbenchError
from workbench.transports.meeting_place import must_reach

for address in ("127.0.0.1", "192.0.2.1"):
    try:
        must_reach(address)
    except WorkbenchError as error:
        print(error)
"""


def test_a_machine_without_a_network_of_its_own_is_told_what_is_missing() -> None:
    """torch would call itself for 300 s, and show frames of C++."""
    words = ["unshare", "--net", sys.executable, "-c", WITHOUT]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT)
    if done.stderr.startswith("unshare"):
        pytest.skip(f"not run here: no network namespaces: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    here, elsewhere = done.stdout.splitlines()
    assert "cannot listen at 127.0.0.1" in here and "ip link set lo up" in here
    assert "192.0.2.1" in elsewhere and "launcher_options={'address': ...}" in elsewhere


def test_a_thread_that_cannot_start_says_which_limit() -> None:
    """A stack of 64 TB is as impossible as one thread too many."""
    size = threading.stack_size(1 << 46)
    try:
        with pytest.raises(WorkbenchError, match=r"'workbench x' cannot start .*`ulimit -u`"):
            threads.start(lambda: None, "workbench x")
    finally:
        threading.stack_size(size)

"""The first backward pass of a process takes no longer than it must: no rank waits for imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pairwise import first

ONE_PASS = """
import json, sys
from pathlib import Path
import torch
import workbench as wb
from workbench.rank.computing import Computing
from workbench.recording.recorder import Recorder
from workbench.shared_memory.control_block import Control

recorder = Recorder.into_folder(Path(sys.argv[1]), 0)
exp = wb.Experiment(ranks=1, strategy="sequential")
computing = Computing(exp, 0, torch.device("cpu"), recorder, Control.create(1))
x = torch.tensor([1.0, 2.0], requires_grad=True)
before = set(sys.modules)
computing.backward((x * x).sum(), float(sys.argv[2]))
modules = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps([x.grad.tolist(), sorted(modules)]))
"""


@pytest.mark.parametrize("weight", first(1, [0.25, 1.0]))
def test_a_weighted_loss_makes_torch_import_nothing(weight: float, tmp_path: Path) -> None:
    command = [sys.executable, "-c", ONE_PASS, str(tmp_path), str(weight)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    gradient, imported = json.loads(ended.stdout)
    assert gradient == [2 * weight, 4 * weight]
    assert "sympy" not in imported

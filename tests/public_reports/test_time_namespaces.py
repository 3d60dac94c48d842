"""Report E17: ranks in time namespaces of their own, as restored containers have."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import workbench as wb
from tests.processes import command

AHEAD_S = 5000  # of rank 1's clock
PATIENCE_S = 120.0
SCRIPT = """
import os, sys, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
for _ in range(5):
    x = torch.ones(4)
    dist.all_reduce(x)
    assert x.tolist() == [2] * 4
dist.destroy_process_group()
"""


@pytest.mark.full
def test_calls_of_ranks_whose_clocks_differ_last_as_long_as_they_did(tmp_path: Path) -> None:
    possible = subprocess.run(
        ["unshare", "--time", "true"], capture_output=True, check=False, timeout=60
    )
    if possible.returncode:
        pytest.skip(f"not run here: no time namespaces: {possible.stderr.decode().strip()}")
    script, trace = tmp_path / "train.py", tmp_path / "trace"
    script.write_text(SCRIPT)
    train = shlex.join([sys.executable, str(script), str(tmp_path / "store")])
    shift = f"--monotonic {AHEAD_S} --boottime {AHEAD_S}"
    both = (
        f"RANK=1 unshare --time --fork --kill-child {shift} {train} & other=$!; "
        f"RANK=0 {train} && wait $other"
    )
    ours = {"WORKBENCH_DEFAULT": "1", "WORKBENCH_TRACE": str(trace)}
    ended = command(["bash", "-c", both], PATIENCE_S, **ours)
    assert ended.returncode == 0, ended.stderr[-3000:]
    job = wb.load(trace)
    calls = job.calls().filter(collective="all_reduce")
    assert calls["completed"].to_list() == [True] * 5
    assert 0 < calls["took_ms"].max() < PATIENCE_S * 1e3  # type: ignore[operator]
    events = job.events
    seconds = (events["end_ns"].max() - events["start_ns"].min()) * 1e-9  # type: ignore[operator]
    assert 0 < seconds < PATIENCE_S, f"not the {AHEAD_S} s by which the clocks differ"
